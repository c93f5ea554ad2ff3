// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/compare_stream.hpp
/// \brief  Elements of tensors in row-major order, streamed from two checkpoints at once, and where they differ.
/// \depends checkpoint/detail/{consolidate_piece,load_lists,replica_value},
/// checkpoint/{compare_report,ranged_read}.
#pragma once

#include <reshard/checkpoint/compare_report.hpp>
#include <reshard/checkpoint/detail/consolidate_piece.hpp>
#include <reshard/checkpoint/detail/load_lists.hpp>
#include <reshard/checkpoint/detail/replica_value.hpp>
#include <reshard/checkpoint/ranged_read.hpp>

#include <algorithm>  // sort
#include <cmath>      // abs, isfinite
#include <cstring>    // memcmp
#include <optional>   // optional

namespace reshard::inline v0::detail {

/// Throws BufferError for options that mean nothing.
inline void check(CompareOptions const& options) {
    auto const refuse = [](std::string_view what, Index value, std::string_view fix) {
        raise(ErrorCode::buffer, concat("reshard::CompareOptions: ", what, " is ", value, ". Fix: ", fix));
    };
    if (options.most_elements < 0) refuse("most_elements", options.most_elements, "0 lists none.");
    if (options.window_bytes < 1) refuse("window_bytes", options.window_bytes, "some megabytes are fast.");
    check(options.reads);
}

/// One checkpoint: all ranks know what is where, and each opens the files that it reads from.
class StreamedCheckpoint {
public:
    /// Collective. Throws the same error on every rank.
    StreamedCheckpoint(std::string const& path, CommunicatorRef comm, PendingVerdict& pending) {
        ListShare share;
        LoadList list = list_together(path, comm, share, pending);
        pending.attempt([&] {
            catalogue_ = std::move(list.catalogue);
            files_.emplace(catalogue_, path, std::move(list.open));
        });
        pending.agree(comm);
    }
    StreamedCheckpoint(StreamedCheckpoint const&) = delete;
    StreamedCheckpoint& operator=(StreamedCheckpoint const&) = delete;

    [[nodiscard]] Catalogue const& catalogue() const noexcept { return catalogue_; }
    void check_unchanged() const { files_->check_unchanged(); }

    /// Elements [begin, end) of a tensor in row-major order, packed; of its first copy.
    void read(std::size_t place, LineTensor const& tensor, Index begin, Index end, ReadOptions const& options,
              std::byte* to) {
        boxes_.clear();
        append_reads(boxes_, catalogue_, place, tensor, 0, Box(tensor.shape), begin, end, to);
        for (ReadBox const& box : boxes_) files_->open(box.file);
        read_boxes(boxes_, options, [&](int file, Index at, std::span<std::byte> out) { files_->read(file, at, out); });
    }

private:
    Catalogue catalogue_;
    std::optional<LoadFiles> files_;  ///< refers to the catalogue
    std::vector<ReadBox> boxes_;
};

/// A tensor that both have, in the same form: its places in the catalogues.
struct ComparedTensor {
    std::size_t first = 0;
    std::size_t second = 0;
    LineTensor tensor;

    [[nodiscard]] Index bytes() const noexcept { return tensor.shape.size() * tensor.from_bytes(); }
};

/// What one rank found in a tensor, by its place in the list of those that are compared.
struct Found {
    std::size_t tensor = 0;
    Index elements = 0;
    double largest = 0;
    std::vector<DifferentElement> places;
};
template <class Io>
void pass(Io& io, typename Io::template Ref<Found> found) {
    io.number(found.tensor);
    io.number(found.elements);
    io.word(found.largest);
    io.size(found.places);
    for (auto& element : found.places) {
        io.number(element.place);
        io.word(element.first);
        io.word(element.second);
    }
}

/// Where the share of a rank begins, of bytes that lie in one line.
[[nodiscard]] inline Index share_begin(Index bytes, Index rank, Index ranks) noexcept {
    return bytes / ranks * rank + bytes % ranks * rank / ranks;
}

/// Goes through a part of the tensors, a window of each checkpoint at a time.
class CompareWindows {
public:
    /// \pre all that is given outlives this
    CompareWindows(StreamedCheckpoint& first, StreamedCheckpoint& second, CompareOptions const& options)
        : first_(&first), second_(&second), options_(&options) {}

    /// The bytes [begin, end) of all tensors, one after the other; an element belongs to the part in which it begins.
    /// Tensors in which something differs are written to `out`, in their order.
    void run(std::span<ComparedTensor const> tensors, Index begin, Index end, ByteWriter& out) {
        Index before = 0;  // bytes of the tensors before this one
        for (std::size_t t = 0; t < tensors.size() && before < end; ++t) {
            Index const bytes = tensors[t].bytes();
            Index const width = tensors[t].tensor.from_bytes();
            Index const from = ceil_div(larger<Index>(begin - before, 0), width);
            Index const to = ceil_div(smaller(end - before, bytes), width);
            Found found;
            found.tensor = t;
            Index const step = larger<Index>(options_->window_bytes / width, 1);
            for (Index element = from; element < to; element += step) {
                window(tensors[t], element, smaller(element + step, to), found);
                if (options_->progress) {
                    Index const done = before + smaller(element + step, to) * width - begin;
                    options_->progress(smaller(done, end - begin), end - begin);
                }
            }
            if (found.elements > 0) pass(out, found);
            before += bytes;
        }
    }

private:
    void window(ComparedTensor const& tensor, Index begin, Index end, Found& found) {
        Index const width = tensor.tensor.from_bytes();
        auto const bytes = static_cast<std::size_t>((end - begin) * width);
        if (bytes > a_.size()) {
            a_.resize(bytes);
            b_.resize(bytes);
        }
        first_->read(tensor.first, tensor.tensor, begin, end, options_->reads, a_.data());
        second_->read(tensor.second, tensor.tensor, begin, end, options_->reads, b_.data());
        if (std::memcmp(a_.data(), b_.data(), bytes) == 0) return;
        DType const dtype = tensor.tensor.from;
        FloatFormat format;
        bool const is_float = float_format(dtype, format);
        for (Index i = begin; i < end; ++i) {
            std::uint64_t const x = load_bits(a_.data() + (i - begin) * width, dtype);
            std::uint64_t const y = load_bits(b_.data() + (i - begin) * width, dtype);
            if (x == y) continue;
            ++found.elements;
            if (found.places.size() < static_cast<std::size_t>(options_->most_elements))
                found.places.push_back({i, x, y});
            if (!is_float) continue;
            double const distance = std::abs(float_value(format, x) - float_value(format, y));
            if (std::isfinite(distance)) found.largest = larger(found.largest, distance);
        }
    }

    StreamedCheckpoint* first_;
    StreamedCheckpoint* second_;
    CompareOptions const* options_;
    std::vector<std::byte> a_;
    std::vector<std::byte> b_;
};

}  // namespace reshard::inline v0::detail
