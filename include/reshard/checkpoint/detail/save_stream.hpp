// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/save_stream.hpp
/// \brief  One rank's bytes on their way into its file: in pieces that threads take, summed just before each is
///         written.
/// \depends checkpoint/{checksum,manifest}, checkpoint/detail/{element_range,workers} (dense bytes of views).
#pragma once

#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/detail/element_range.hpp>
#include <reshard/checkpoint/detail/workers.hpp>
#include <reshard/checkpoint/manifest.hpp>

#include <algorithm>  // any_of, upper_bound
#include <cstring>    // memcpy
#include <memory>     // unique_ptr
#include <mutex>      // mutex
#include <utility>    // exchange
#include <vector>     // vector

namespace reshard::inline v0::detail {

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
        : spans_(std::move(spans)), unit_bytes_(larger<Index>(unit_bytes / 64 * 64, 64)), block_bytes_(block_bytes) {
        if (!spans_.empty()) bytes_ = spans_.back().begin + spans_.back().bytes;
        auto const units = static_cast<std::size_t>(ceil_div(bytes_, unit_bytes_));
        first_part_.reserve(units + 1);
        for (std::size_t unit = 0; unit < units; ++unit) {
            first_part_.push_back(parts_.size());
            for_each_part(unit, [&](std::size_t span, Index begin, Index end) {
                for (Index next = 0; begin < end; begin = next) {
                    next = smaller(block_end(begin), end);
                    parts_.push_back({span, begin / block_bytes_, next - begin, 0});
                }
            });
        }
        first_part_.push_back(parts_.size());
        bool const fetches = std::any_of(spans_.begin(), spans_.end(), [](auto const& s) { return s.from != nullptr; });
        if (fetches) fetching_ = std::make_unique<std::mutex>();
    }

    [[nodiscard]] Index bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::size_t units() const noexcept { return first_part_.empty() ? 0 : first_part_.size() - 1; }
    [[nodiscard]] Index unit_begin(std::size_t unit) const noexcept { return static_cast<Index>(unit) * unit_bytes_; }
    [[nodiscard]] Index unit_size(std::size_t unit) const noexcept {
        return smaller(unit_bytes_, bytes_ - unit_begin(unit));
    }

    /// Sums and writes a unit from the tensors' memory. `buffer` takes what does not lie in one run, or only in a short
    /// one. \pre the buffer holds 64 bytes or more.
    template <class Sink>
    void write(std::size_t unit, std::span<std::byte> buffer, Sink const& sink) {
        Index at = unit_begin(unit);  // in the data section
        std::size_t filled = 0;       // of the buffer
        auto const flush = [&] {
            if (filled == 0) return;
            sink(at, std::span<std::byte const>(buffer.first(filled)));
            at += static_cast<Index>(filled);
            filled = 0;
        };
        std::size_t part = first_part_[unit];
        for_each_part(unit, [&](std::size_t s, Index begin, Index end) {
            ConstDynamicView const& view = spans_[s].view;
            bool const dense = is_dense(view);
            bool const direct = dense && spans_[s].from == nullptr && end - begin >= direct_bytes;
            if (direct) flush();
            Index const element = reshard::bytes(view.dtype());
            for (std::uint32_t sum = 0; begin < end;) {
                Index const stop = smaller(block_end(begin), end);
                Index const room = direct ? step_bytes : static_cast<Index>(buffer.size() - filled) / element * element;
                Index const count = smaller(stop - begin, room);
                if (count == 0) {
                    flush();
                    continue;
                }
                auto const size = static_cast<std::size_t>(count);
                if (direct) {
                    std::span<std::byte const> const step(view.data() + begin, size);
                    sum = crc32c(step, sum);
                    sink(at, step);
                    at += count;
                } else {
                    std::span<std::byte> const to = buffer.subspan(filled, size);
                    take(spans_[s], dense, begin, begin + count, to.data());
                    sum = crc32c(to, sum);
                    filled += size;
                }
                begin += count;
                if (begin == stop) parts_[part++].sum = std::exchange(sum, 0);
            }
        });
        flush();
    }

    /// Copies a unit to `to`, dense, for write_copy().
    void copy(std::size_t unit, std::byte* to) const {
        for_each_part(unit, [&](std::size_t s, Index begin, Index end) {
            take(spans_[s], is_dense(spans_[s].view), begin, end, to);
            to += end - begin;
        });
    }
    /// Sums and writes a unit that was copied.
    template <class Sink>
    void write_copy(std::size_t unit, std::byte const* from, Sink const& sink) {
        Index const size = unit_size(unit);
        std::size_t part = first_part_[unit];
        Index in_part = 0;
        for (Index done = 0; done < size; done += step_bytes) {
            auto const step = std::span(from + done, static_cast<std::size_t>(smaller(step_bytes, size - done)));
            for (std::size_t summed = 0; summed < step.size();) {
                Part& mine = parts_[part];
                Index const count = smaller(mine.bytes - in_part, static_cast<Index>(step.size() - summed));
                mine.sum = crc32c(step.subspan(summed, static_cast<std::size_t>(count)), mine.sum);
                summed += static_cast<std::size_t>(count);
                in_part += count;
                if (in_part == mine.bytes) {
                    ++part;
                    in_part = 0;
                }
            }
            sink(unit_begin(unit) + done, step);
        }
    }

    /// How many sums a span of so many bytes has: its own, then those of its blocks.
    [[nodiscard]] static constexpr std::size_t sums_of(Index bytes, Index block_bytes) noexcept {
        return 1 + static_cast<std::size_t>(block_count(bytes, block_bytes));
    }
    /// Of every span, once all units are written: sums_of() each, one after the other.
    [[nodiscard]] std::vector<std::uint32_t> sums() const {
        std::vector<std::uint32_t> result;
        auto part = parts_.begin();
        for (std::size_t s = 0; s < spans_.size(); ++s) {
            std::size_t const own = result.size();
            result.resize(own + sums_of(spans_[s].bytes, block_bytes_), 0);
            for (; part != parts_.end() && part->span == s; ++part) {
                result[own] = crc32c_combine(result[own], part->sum, part->bytes);
                if (spans_[s].bytes <= block_bytes_) continue;
                std::uint32_t& block = result[own + 1 + static_cast<std::size_t>(part->block)];
                block = crc32c_combine(block, part->sum, part->bytes);
            }
        }
        return result;
    }

private:
    /// Calls f(span, begin, end), in bytes of the span, for all that a unit has bytes of.
    template <class F>
    void for_each_part(std::size_t unit, F&& f) const {
        Index const begin = unit_begin(unit);
        Index const end = begin + unit_size(unit);
        auto span = std::upper_bound(spans_.begin(), spans_.end(), begin,
                                     [](Index at, SaveSpan const& one) { return at < one.begin + one.bytes; });
        for (; span != spans_.end() && span->begin < end; ++span) {
            Index const from = larger(begin, span->begin) - span->begin;
            Index const to = smaller(end, span->begin + span->bytes) - span->begin;
            if (from < to) f(static_cast<std::size_t>(span - spans_.begin()), from, to);
        }
    }
    /// Bytes [begin, end) of the dense form of a window.
    void take(SaveSpan const& span, bool dense, Index begin, Index end, std::byte* to) const {
        ConstDynamicView const& view = span.view;
        if (dense && span.from == nullptr) {
            std::memcpy(to, view.data() + begin, static_cast<std::size_t>(end - begin));
            return;
        }
        Index const element = reshard::bytes(view.dtype());
        std::unique_lock<std::mutex> lock;
        if (span.from != nullptr) lock = std::unique_lock(*fetching_);
        gather(view, begin / element, end / element, to, span.from);
    }

    /// Where the block ends that byte `at` of a span is in.
    [[nodiscard]] Index block_end(Index at) const noexcept { return (at / block_bytes_ + 1) * block_bytes_; }

    /// What one unit has of one block of a span.
    struct Part {
        std::size_t span = 0;
        Index block = 0;
        Index bytes = 0;
        std::uint32_t sum = 0;
    };

    std::vector<SaveSpan> spans_;
    Index unit_bytes_ = default_unit_bytes;
    Index block_bytes_ = default_block_bytes;
    Index bytes_ = 0;
    std::vector<Part> parts_;               ///< in the order of the bytes
    std::vector<std::size_t> first_part_;   ///< per unit; then the number of parts
    std::unique_ptr<std::mutex> fetching_;  ///< from devices, if there is something to fetch
};

}  // namespace reshard::inline v0::detail
