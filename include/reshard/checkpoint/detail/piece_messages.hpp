// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/piece_messages.hpp
/// \brief  What a rank needs of a box that somebody reads, in closed form, and where it lies in the box.
/// \depends algebra, plan/message.hpp, core/transfer.hpp, exec/local_tensor.hpp.
#pragma once

#include <reshard/algebra/box.hpp>
#include <reshard/algebra/distribution.hpp>
#include <reshard/core/tensor_view.hpp>
#include <reshard/core/transfer.hpp>
#include <reshard/exec/local_tensor.hpp>
#include <reshard/plan/message.hpp>

#include <vector>

namespace reshard::inline v0::detail {

/// What a rank needs of a box: nothing, a box, or what only messages can say.
enum class NeedForm : int { nothing, box, messages };
struct NeededBox {
    Box box;       ///< of the global index space
    Indices held;  ///< the first index that the rank holds, by dimension
};
/// A box, as it nearly always is: without a list of messages, for thousands of tensors.
/// \pre the coordinates of a rank that has values
[[nodiscard]] inline NeedForm needed_box(NeededBox& needed, Box const& box, DynamicDistribution const& to,
                                         Indices const& coordinates) noexcept {
    int const dims = to.shape().rank();
    needed.box = box;
    needed.held.count = dims;
    for (int dim = 0; dim < dims; ++dim) {
        needed.held[dim] = 0;
        if (!to.cuts(dim).empty()) {
            IndexSet const set = to.index_set(coordinates, dim);
            if (!set.is_interval()) return NeedForm::messages;
            needed.box.set(dim, intersect(box[dim], set.span()));
            needed.held[dim] = set.span().begin;
        }
        if (needed.box[dim].empty()) return NeedForm::nothing;
    }
    return NeedForm::box;
}

/// Appends what `rank` needs of the box: the same messages in the same order for whoever asks.
/// \pre the rank is in the mesh.
inline void append_needs(std::vector<Message>& messages, Box const& box, DynamicDistribution const& to, Index rank) {
    Indices const coordinates = to.mesh().coordinates(rank);
    if (!partial_part(to, coordinates).has_values) return;
    int const dims = to.shape().rank();
    NeededBox needed;
    NeedForm const form = needed_box(needed, box, to, coordinates);
    if (form == NeedForm::nothing) return;
    if (form == NeedForm::box) {
        Message& message = messages.emplace_back();
        message.peer = rank;
        for (int dim = 0; dim < dims; ++dim) message.box.push_back(needed.box[dim]);
        return;
    }
    IndexSets const sets = index_sets(to, coordinates);
    IndexSets asked;
    for (int dim = 0; dim < dims; ++dim) asked.push_back(IndexSet(box[dim]));
    for_each_common(asked, sets, forms_of(asked, sets), [&](Message const& message) {
        messages.push_back(message);
        messages.back().peer = rank;
    });
}

/// A message as a strided box of memory, or of a file.
struct MessagePart {
    Index offset = 0;  ///< bytes from the first element of what it is a part of
    StridedBox box;
};

/// `place(dim, i)` is where index i of the global index space lies along a dimension, `strides` are in bytes. What is
/// regular there is regular here.
template <class Place>
[[nodiscard]] MessagePart part_of(Message const& message, DType dtype, Indices const& strides, Place&& place) {
    MessagePart part;
    part.box.element_bytes = bytes(dtype);
    int next = 0;
    for (int dim = 0; dim < strides.size(); ++dim) {
        Index const begin = message.box[dim].begin;
        Index const origin = place(dim, begin);
        part.offset += origin * strides[dim];
        for (; next < message.repeats.size() && message.repeats[next].dim == dim; ++next) {
            BoxRepeat const& repeat = message.repeats[next];
            part.box.dims.push_back({repeat.count, (place(dim, begin + repeat.pitch) - origin) * strides[dim]});
        }
        part.box.dims.push_back({message.box[dim].size(), strides[dim]});
    }
    return part;
}

/// Describes a needed box in a dense row-major box of the index space; returns where it begins there, in bytes.
[[nodiscard]] inline Index place_in_dense(StridedBox& part, NeededBox const& needed, DType dtype,
                                          Box const& dense) noexcept {
    int const dims = dense.rank();
    part.element_bytes = bytes(dtype);
    part.dims.count = dims;
    Index offset = 0;
    Index stride = bytes(dtype);
    for (int dim = dims - 1; dim >= 0; --dim) {
        part.dims[dim] = {needed.box.extent(dim), stride};
        offset += (needed.box.begin(dim) - dense.begin(dim)) * stride;
        stride *= dense.extent(dim);
    }
    return offset;
}
/// The same in the rank's local tensor.
[[nodiscard]] inline Index place_in_local(StridedBox& part, NeededBox const& needed, DynamicView const& view) noexcept {
    int const dims = view.rank();
    part.element_bytes = bytes(view.dtype());
    part.dims.count = dims;
    Index offset = 0;
    for (int dim = 0; dim < dims; ++dim) {
        Index const stride = view.stride(dim) * part.element_bytes;
        part.dims[dim] = {needed.box.extent(dim), stride};
        offset += (needed.box.begin(dim) - needed.held[dim]) * stride;
    }
    return offset;
}

/// Of a dense row-major box of the index space.
[[nodiscard]] inline MessagePart part_of_dense(Message const& message, DType dtype, Box const& dense) {
    Indices strides;
    strides.count = dense.rank();
    Index stride = bytes(dtype);
    for (int dim = dense.rank() - 1; dim >= 0; --dim) {  // the shape is known to be one
        strides[dim] = stride;
        stride *= dense.extent(dim);
    }
    return part_of(message, dtype, strides, [&](int dim, Index i) { return i - dense.begin(dim); });
}

/// Of this rank's local tensor.
[[nodiscard]] inline MessagePart part_of_local(Message const& message, DynamicView const& view,
                                               DynamicDistribution const& distribution, Indices const& coordinates) {
    Indices strides = view.strides();
    for (Index& stride : strides) stride *= bytes(view.dtype());
    return part_of(message, view.dtype(), strides,
                   [&](int dim, Index i) { return distribution.index_set(coordinates, dim).local_index(i); });
}

}  // namespace reshard::inline v0::detail
