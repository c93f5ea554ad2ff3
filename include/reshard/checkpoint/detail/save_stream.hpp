// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/save_stream.hpp
/// \brief  One rank's bytes on their way into its file: in pieces that threads take, summed just before each is
///         written.
/// \depends checkpoint/{checksum,manifest}, checkpoint/detail/element_range, core/detail/workers (dense bytes of
/// views).
#pragma once

#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/detail/element_range.hpp>
#include <reshard/checkpoint/manifest.hpp>
#include <reshard/core/detail/workers.hpp>

#include <algorithm>  // any_of, upper_bound
#include <atomic>     // atomic_ref
#include <cstring>    // memcpy
#include <memory>     // unique_ptr
#include <mutex>      // mutex
#include <vector>     // vector

namespace reshard::inline v0_1::detail {

/// The sums of runs of bytes that are written, and of their blocks. Parts come in any order, each once, from any thread
/// or rank: a block's sum is the exclusive or of those of its parts, each as if zeros stood for the bytes behind it.
class BlockSums {
public:
    BlockSums() = default;
    /// `bytes`: of each run.
    BlockSums(std::vector<Index> bytes, Index block_bytes) : bytes_(std::move(bytes)), block_bytes_(block_bytes) {
        first_.push_back(0);
        for (Index const run : bytes_) first_.push_back(first_.back() + as_size(ceil_div(run, block_bytes)));
        parts_.resize(first_.back(), 0);
    }
    /// Bytes of a run from `begin` on.
    void add(std::size_t run, Index begin, std::span<std::byte const> bytes) {
        while (!bytes.empty()) {
            Index const block = begin / block_bytes_;
            Index const room = block_size(run, block) - begin % block_bytes_;
            auto const part = bytes.first(smaller(bytes.size(), as_size(room)));
            auto const size = as_index(part.size());
            std::atomic_ref<std::uint32_t> of_block(parts_[first_[run] + as_size(block)]);
            of_block.fetch_xor(crc32c_combine(crc32c(part), 0, room - size), std::memory_order_relaxed);
            bytes = bytes.subspan(part.size());
            begin += size;
        }
    }
    /// A number for each block of each run: what others have added of the same runs is joined by an exclusive or.
    [[nodiscard]] std::vector<std::uint32_t>& parts() noexcept { return parts_; }
    /// The sum of a run, once all of it was added; of its blocks, if it has several.
    [[nodiscard]] std::uint32_t whole(std::size_t run) const {
        std::uint32_t sum = 0;
        for (std::size_t i = first_[run]; i < first_[run + 1]; ++i)
            sum = crc32c_combine(sum, parts_[i], block_size(run, as_index(i - first_[run])));
        return sum;
    }
    [[nodiscard]] std::span<std::uint32_t const> blocks(std::size_t run) const noexcept {
        std::size_t const count = first_[run + 1] - first_[run];
        return std::span(parts_).subspan(first_[run], count == 1 ? 0 : count);
    }

private:
    [[nodiscard]] Index block_size(std::size_t run, Index block) const noexcept {
        return smaller(block_bytes_, bytes_[run] - block * block_bytes_);
    }

    std::vector<Index> bytes_;
    Index block_bytes_ = default_block_bytes;
    std::vector<std::size_t> first_;  ///< per run, its first block; then the number of blocks
    std::vector<std::uint32_t> parts_;
};

/// Bytes of a file's data section and the window of memory they come from.
struct SaveSpan {
    ConstDynamicView view;
    Index begin = 0;
    Index bytes = 0;
    MemoryPolicy const* from = nullptr;  ///< what brings it to the host, where the window is a device's
};

/// The data section of a file, cut into units of unit_bytes. Units are independent: any thread takes any of them. A
/// sink is called as sink(position in the data section, bytes).
class SaveStream {
public:
    /// As long as raw copies are fast, and short enough to share.
    static constexpr Index default_unit_bytes = Index{8} << 20;
    /// What is summed and then written at once, so that the write finds it in the cache.
    static constexpr Index step_bytes = Index{512} << 10;
    /// From here a run of memory is written where it lies; shorter ones are put together first.
    static constexpr Index direct_bytes = Index{64} << 10;

    SaveStream() = default;
    /// Spans follow each other without gaps, from 0. Elements of whole bytes; units are a multiple of all of them.
    explicit SaveStream(std::vector<SaveSpan> spans, Index unit_bytes = default_unit_bytes,
                        Index block_bytes = default_block_bytes)
        : spans_(std::move(spans)), unit_bytes_(larger<Index>(unit_bytes / 64 * 64, 64)) {
        if (!spans_.empty()) bytes_ = spans_.back().begin + spans_.back().bytes;
        std::vector<Index> bytes;
        for (SaveSpan const& span : spans_) bytes.push_back(span.bytes);
        sums_ = BlockSums(std::move(bytes), block_bytes);
        bool const fetches = std::any_of(spans_.begin(), spans_.end(), [](auto const& s) { return s.from != nullptr; });
        if (fetches) fetching_ = std::make_unique<std::mutex>();
    }

    [[nodiscard]] Index bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::size_t units() const noexcept { return as_size(ceil_div(bytes_, unit_bytes_)); }
    [[nodiscard]] Index unit_begin(std::size_t unit) const noexcept { return as_index(unit) * unit_bytes_; }
    [[nodiscard]] Index unit_size(std::size_t unit) const noexcept {
        return smaller(unit_bytes_, bytes_ - unit_begin(unit));
    }

    /// Sums and writes a unit from the tensors' memory. `buffer` takes what does not lie in one run, or only in a short
    /// one. \pre the buffer holds 64 bytes or more.
    template <class Sink>
    void write(std::size_t unit, std::span<std::byte> buffer, Sink const& sink) {
        Index filled = 0;  // of the buffer
        Index ahead = 0;   // of the data section, where the buffer begins
        auto const flush = [&, this] {
            put(ahead, buffer.first(as_size(filled)), filled, sink);
            filled = 0;
        };
        for_each_part(
            unit_begin(unit), unit_begin(unit) + unit_size(unit), [&, this](std::size_t s, Index begin, Index end) {
                SaveSpan const& span = spans_[s];
                if (is_one_run(span) && end - begin >= direct_bytes) {
                    flush();
                    put(span.begin + begin, {span.view.data() + begin, as_size(end - begin)}, step_bytes, sink);
                    return;
                }
                Index const element = enums::bytes(span.view.dtype());
                while (begin < end) {
                    if (filled == 0) ahead = span.begin + begin;
                    Index const room = (std::ssize(buffer) - filled) / element * element;
                    Index const count = smaller(end - begin, room);
                    take(span, begin, begin + count, buffer.data() + filled);
                    filled += count;
                    begin += count;
                    if (begin < end) flush();
                }
            });
        flush();
    }

    /// Copies a unit to `to`, dense, for write_copy().
    void copy(std::size_t unit, std::byte* to) const {
        Index const at = unit_begin(unit);
        for_each_part(at, at + unit_size(unit), [&](std::size_t s, Index begin, Index end) {
            take(spans_[s], begin, end, to);
            to += end - begin;
        });
    }
    /// Sums and writes a unit that was copied.
    template <class Sink>
    void write_copy(std::size_t unit, std::byte const* from, Sink const& sink) {
        put(unit_begin(unit), {from, as_size(unit_size(unit))}, step_bytes, sink);
    }

    /// How many sums a span of so many bytes has: its own, then those of its blocks.
    [[nodiscard]] static constexpr std::size_t sums_of(Index bytes, Index block_bytes) noexcept {
        return 1 + as_size(block_count(bytes, block_bytes));
    }
    /// Of every span, once all units are written: sums_of() each, one after the other.
    [[nodiscard]] std::vector<std::uint32_t> sums() const {
        std::vector<std::uint32_t> result;
        for (std::size_t s = 0; s < spans_.size(); ++s) {
            auto const blocks = sums_.blocks(s);
            result.push_back(sums_.whole(s));
            result.insert(result.end(), blocks.begin(), blocks.end());
        }
        return result;
    }

private:
    /// Calls f(span, begin, end), in bytes of the span, for all that has bytes [begin, end) of the data section.
    template <class F>
    void for_each_part(Index begin, Index end, F&& f) const {
        auto span = std::ranges::upper_bound(spans_, begin, {}, [](auto const& one) { return one.begin + one.bytes; });
        for (; span != spans_.end() && span->begin < end; ++span) {
            Index const from = larger(begin, span->begin) - span->begin;
            Index const to = smaller(end, span->begin + span->bytes) - span->begin;
            if (from < to) f(as_size(span - spans_.begin()), from, to);
        }
    }
    /// Sums and writes bytes of the data section from `at` on, so many at a time.
    template <class Sink>
    void put(Index at, std::span<std::byte const> bytes, Index most, Sink const& sink) {
        while (!bytes.empty()) {
            auto const step = bytes.first(smaller(bytes.size(), as_size(most)));
            for_each_part(at, at + std::ssize(step), [&, this](std::size_t s, Index begin, Index end) {
                sums_.add(s, begin, step.subspan(as_size(spans_[s].begin + begin - at), as_size(end - begin)));
            });
            sink(at, step);
            at += std::ssize(step);
            bytes = bytes.subspan(step.size());
        }
    }
    [[nodiscard]] static bool is_one_run(SaveSpan const& span) noexcept {
        return span.from == nullptr && is_dense(span.view);
    }
    /// Bytes [begin, end) of the dense form of a window.
    void take(SaveSpan const& span, Index begin, Index end, std::byte* to) const {
        ConstDynamicView const& view = span.view;
        if (is_one_run(span)) {
            std::memcpy(to, view.data() + begin, as_size(end - begin));
            return;
        }
        Index const element = enums::bytes(view.dtype());
        std::unique_lock<std::mutex> lock;
        if (span.from != nullptr) lock = std::unique_lock(*fetching_);
        gather(view, begin / element, end / element, to, span.from);
    }

    std::vector<SaveSpan> spans_;
    Index unit_bytes_ = default_unit_bytes;
    Index bytes_ = 0;
    BlockSums sums_;
    std::unique_ptr<std::mutex> fetching_;  ///< from devices, if there is something to fetch
};

}  // namespace reshard::inline v0_1::detail
