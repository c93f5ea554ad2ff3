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

/// Of a dense row-major box of the index space.
[[nodiscard]] inline MessagePart part_of_dense(Message const& message, DType dtype, Box const& dense) {
    Indices strides = row_major_strides(dense.shape());
    for (Index& stride : strides) stride *= bytes(dtype);
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

/// What ranks need of boxes, one after the other: one message, as it nearly always is, or several, the same in the same
/// order for whoever asks. Keeps the memory that this takes.
class Needs {
public:
    /// What a rank of the mesh needs of a box, which may reach beyond the tensor; false when that is nothing.
    bool find(Box const& box, DynamicDistribution const& to, Index rank) {
        coordinates_ = to.mesh().coordinates(rank);
        dense_ = box;
        if (!partial_part(to, coordinates_).has_values) return false;
        messages_.assign(1, {});
        for (int dim = 0; dim < to.shape().rank(); ++dim) {
            Interval part = intersect(box[dim], {0, to.shape().extent(dim)});
            if (!to.cuts(dim).empty()) {
                IndexSet const set = to.index_set(coordinates_, dim);
                if (!set.is_interval()) return find_messages(intersect(box, Box(to.shape())), to);
                part = intersect(part, set.span());
            }
            if (part.empty()) return false;
            messages_.front().box.push_back(part);
        }
        return true;
    }
    /// Of what was found.
    [[nodiscard]] Index elements() const noexcept {
        Index sum = 0;
        for (Message const& message : messages_) sum += message.elements();
        return sum;
    }
    /// visit(MessagePart) for each part of what was found: where it lies in the box, packed row-major.
    template <class Visit>
    void for_each_in(DType dtype, Visit&& visit) const {
        for (Message const& message : messages_) visit(part_of_dense(message, dtype, dense_));
    }
    /// The same, in the same order, for the rank itself: where each part lies in its local tensor.
    template <class Visit>
    void for_each_in(LocalTensor const& local, Visit&& visit) const {
        for (Message const& message : messages_)
            visit(part_of_local(message, local.view, local.distribution, coordinates_));
    }
    /// visit(where it lies in the box, where in the local tensor) for each part.
    template <class Visit>
    void for_each(LocalTensor const& local, Visit&& visit) const {
        for (Message const& message : messages_)
            visit(part_of_dense(message, local.view.dtype(), dense_),
                  part_of_local(message, local.view, local.distribution, coordinates_));
    }

private:
    bool find_messages(Box const& box, DynamicDistribution const& to) {
        messages_.clear();
        IndexSets const sets = index_sets(to, coordinates_);
        IndexSets asked;
        for (int dim = 0; dim < box.rank(); ++dim) asked.push_back(IndexSet(box[dim]));
        for_each_common(asked, sets, forms_of(asked, sets),
                        [&](Message const& message) { messages_.push_back(message); });
        return !messages_.empty();
    }

    Indices coordinates_;
    Box dense_;
    std::vector<Message> messages_;
};

}  // namespace reshard::inline v0::detail
