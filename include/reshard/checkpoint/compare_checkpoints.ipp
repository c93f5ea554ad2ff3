// SPDX-License-Identifier: Apache-2.0
// How checkpoint/compare_checkpoints.hpp is done.
#pragma once

#include <reshard/checkpoint/compare_checkpoints.hpp>
#include <reshard/checkpoint/detail/compare_stream.hpp>
#include <reshard/plan/explain_text.hpp>

namespace reshard::inline v0 {

namespace detail {

/// The tensors of two catalogues side by side: what both have alike is to be compared, all else is a difference.
[[nodiscard]] inline std::vector<ComparedTensor> tensors_alike(Catalogue const& first, Catalogue const& second,
                                                               std::vector<CheckpointDifference>& differences) {
    std::vector<ComparedTensor> alike;
    auto const a = first.tensors();
    auto const b = second.tensors();
    for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
        int const order = j == b.size() ? -1 : i == a.size() ? 1 : a[i].name.compare(b[j].name);
        CheckpointDifference one;
        if (order <= 0) one = {DifferenceKind::only_first, a[i].name, a[i].dtype, a[i].shape, {}, {}, 0, 0, {}};
        if (order >= 0) {
            one.kind = order == 0 ? DifferenceKind::form : DifferenceKind::only_second;
            one.tensor = b[j].name;
            one.other_dtype = b[j].dtype;
            one.other_shape = b[j].shape;
        }
        if (order == 0 && a[i].dtype == b[j].dtype && a[i].shape == b[j].shape) {
            alike.push_back({i, j, line_tensor(a[i], a[i].dtype)});
        } else {
            differences.push_back(std::move(one));
        }
        i += order <= 0 ? 1 : 0;
        j += order >= 0 ? 1 : 0;
    }
    return alike;
}

/// What all ranks found, put together: each has looked at elements behind those of the ranks before it.
inline void join(std::vector<CheckpointDifference>& differences, GatheredLists<std::byte>& found_by,
                 std::span<ComparedTensor const> alike, Catalogue const& first, int most_elements) {
    std::size_t last = alike.size();
    for (std::size_t rank = 0; rank < found_by.sizes.size(); ++rank) {
        ByteReader in(found_by.of(static_cast<int>(rank)));
        while (!in.at_end()) {
            Found found;
            pass(in, found);
            if (found.tensor != last) {
                StoredTensor const& stored = first.tensors()[alike[found.tensor].first];
                differences.push_back({DifferenceKind::values,
                                       stored.name,
                                       stored.dtype,
                                       stored.shape,
                                       stored.dtype,
                                       stored.shape,
                                       0,
                                       0,
                                       {}});
                last = found.tensor;
            }
            CheckpointDifference& one = differences.back();
            one.elements += found.elements;
            one.largest = larger(one.largest, found.largest);
            for (DifferentElement const& element : found.places) {
                if (one.places.size() < static_cast<std::size_t>(most_elements)) one.places.push_back(element);
            }
        }
    }
    std::sort(differences.begin(), differences.end(),
              [](CheckpointDifference const& a, CheckpointDifference const& b) { return a.tensor < b.tensor; });
}

[[nodiscard]] inline CompareReport compare_once(std::string const& first, std::string const& second,
                                                CommunicatorRef comm, CompareOptions const& options) {
    PendingVerdict pending;
    GatheredLists<std::byte> room;
    pending.attempt([&] {
        check(options);
        room.make_room(comm.size());
    });
    StreamedCheckpoint a(first, comm, pending);
    StreamedCheckpoint b(second, comm, pending);

    CompareReport report;
    std::vector<ComparedTensor> alike;
    std::vector<std::byte> text;
    pending.attempt([&] {
        alike = tensors_alike(a.catalogue(), b.catalogue(), report.differences);
        for (ComparedTensor const& tensor : alike) {
            ++report.tensors;
            report.elements += a.catalogue().tensors()[tensor.first].shape.size();
            report.bytes += tensor.bytes();
        }
        ByteWriter out;
        CompareWindows windows(a, b, options);
        Index const begin = share_begin(report.bytes, comm.rank(), comm.size());
        Index const end = share_begin(report.bytes, comm.rank() + 1, comm.size());
        windows.run(alike, begin, end, out);
        a.check_unchanged();
        b.check_unchanged();
        text = out.take();
    });
    room.gather(comm, text, pending);
    pending.attempt([&] { join(report.differences, room, alike, a.catalogue(), options.most_elements); });
    pending.agree(comm);
    return report;
}

[[nodiscard]] inline std::string form_text(DType dtype, DynamicShape const& shape) {
    return concat(name(dtype), " ", to_string(shape));
}

}  // namespace detail

RESHARD_INLINE CompareReport compare_checkpoints(std::string const& first, std::string const& second,
                                                 CommunicatorRef comm, CompareOptions const& options) {
    return detail::load_saved([&] { return detail::compare_once(first, second, comm, options); });
}

RESHARD_INLINE std::string index_text(CheckpointDifference const& difference, Index place) {
    if (!is_byte_sized(difference.dtype)) return concat("byte ", place);
    return to_string(DynamicShape(detail::unravel(difference.shape, place)));
}

RESHARD_INLINE std::string value_text(CheckpointDifference const& difference, std::uint64_t bits) {
    return detail::value_text(is_byte_sized(difference.dtype) ? difference.dtype : DType::u8, bits);
}

RESHARD_INLINE std::string explain(CompareReport const& report) {
    std::string const compared =
        concat(detail::count_text(report.tensors, "tensor"), ", ", detail::bytes_text(report.bytes));
    if (report.equal()) return concat("equal: ", compared, "\n");
    std::string text =
        concat("not equal: ", detail::count_text(static_cast<Index>(report.differences.size()), "difference"), "; ",
               compared, " compared\n");
    for (CheckpointDifference const& one : report.differences) {
        std::string const first = detail::form_text(one.dtype, one.shape);
        std::string const second = detail::form_text(one.other_dtype, one.other_shape);
        text += concat("  ", one.tensor, ": ");
        switch (one.kind) {
            case DifferenceKind::only_first: text += concat(first, ", only in the first\n"); break;
            case DifferenceKind::only_second: text += concat(second, ", only in the second\n"); break;
            case DifferenceKind::form: text += concat(first, " in the first, ", second, " in the second\n"); break;
            case DifferenceKind::values: {
                Index const all = one.shape.size();
                text += concat(first, ", ", one.elements, " of ", detail::count_text(all, "element"), " differ");
                if (one.largest > 0) text += concat(", by ", detail::number_text(one.largest, 6), " at most");
                text += '\n';
                for (DifferentElement const& element : one.places) {
                    text += concat("    ", index_text(one, element.place), ": ", value_text(one, element.first),
                                   " and ", value_text(one, element.second), "\n");
                }
                Index const more = one.elements - static_cast<Index>(one.places.size());
                if (more > 0) text += concat("    and ", more, " more\n");
            }
        }
    }
    return text;
}

}  // namespace reshard::inline v0
