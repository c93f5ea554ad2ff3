// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/bind.hpp
/// \brief  From boxes of the global index space to strided boxes of this rank's memory.
/// \depends plan, core.
#pragma once

#include <reshard/core/tensor_view.hpp>
#include <reshard/core/transfer.hpp>
#include <reshard/plan/plan.hpp>

namespace reshard::inline v0::detail {

/// Memory in which one rank's part of a distribution lies.
template <class Byte>
class Binding {
public:
    Binding() = default;
    Binding(Byte* base, DType dtype, Indices const& strides, DynamicDistribution const& distribution, Index rank)
        : base_(base), element_bytes_(bytes(dtype)) {
        Indices const coordinates = distribution.mesh().coordinates(rank);
        for (int dim = 0; dim < distribution.shape().rank(); ++dim) {
            sets_.push_back(distribution.index_set(coordinates, dim));
            strides_.push_back(strides[dim] * element_bytes_);
        }
    }

    /// The same, of a staging area that holds many addends, `slot` bytes apart, from `origin` bytes of each on.
    [[nodiscard]] Binding staged(Index slot, Index origin) const {
        Binding result = *this;
        result.slot_ = slot;
        result.origin_ = origin;
        return result;
    }
    /// The same memory, to be read.
    template <class Other>
        requires(std::same_as<Other const, Byte>)
    Binding(Binding<Other> const& written)
        : base_(written.base_),
          element_bytes_(written.element_bytes_),
          slot_(written.slot_),
          origin_(written.origin_),
          sets_(written.sets_),
          strides_(written.strides_) {}

    /// A message of the global index space (with the planner's extra dimensions behind the tensor's), as memory: what
    /// is regular there is regular here. \pre the box lies within one segment per dimension, and holds one addend.
    [[nodiscard]] Transfer<Byte> transfer(Message const& message) const {
        Transfer<Byte> result;
        result.peer = static_cast<int>(message.peer);
        result.box.element_bytes = element_bytes_;
        Index offset = -origin_;
        int next = 0;
        for (int dim = 0; dim < sets_.size(); ++dim) {
            Index const begin = message.box[dim].begin;
            Index const origin = sets_[dim].local_index(begin);
            offset += origin * strides_[dim];
            for (; next < message.repeats.size() && message.repeats[next].dim == dim; ++next) {
                BoxRepeat const& repeat = message.repeats[next];
                Index const step = sets_[dim].local_index(begin + repeat.pitch) - origin;
                result.box.dims.push_back({repeat.count, step * strides_[dim]});
            }
            result.box.dims.push_back({message.box[dim].size(), strides_[dim]});
        }
        if (message.box.size() > sets_.size()) offset += message.box[sets_.size()].begin * slot_;
        result.base = base_ + offset;
        return result;
    }

private:
    template <class Other>
    friend class Binding;

    Byte* base_ = nullptr;
    Index element_bytes_ = 1;
    Index slot_ = 0;
    Index origin_ = 0;
    InlineList<IndexSet, max_rank> sets_;
    Indices strides_;
};

/// Where, in local indices, what a rank holds under `inner` lies within what it holds under `outer`. \pre inner
/// refines outer.
[[nodiscard]] inline Box local_box(DynamicDistribution const& outer, DynamicDistribution const& inner, Index rank) {
    Indices const outside = outer.mesh().coordinates(rank);
    Indices const inside = inner.mesh().coordinates(rank);
    Box box;
    for (int dim = 0; dim < outer.shape().rank(); ++dim) {
        box.push_back(local_interval(outer.index_set(outside, dim), inner.index_set(inside, dim)));
    }
    return box;
}

/// A box of a local tensor, as memory.
template <class Byte>
[[nodiscard]] Transfer<Byte> box_transfer(Byte* base, DType dtype, Indices const& strides, Box const& box) {
    Transfer<Byte> result;
    result.box.element_bytes = bytes(dtype);
    Index offset = 0;
    for (int dim = 0; dim < box.rank(); ++dim) {
        offset += box.begin(dim) * strides[dim] * bytes(dtype);
        result.box.dims.push_back({box.extent(dim), strides[dim] * bytes(dtype)});
    }
    result.base = box.empty() ? base : base + offset;
    return result;
}

/// The first address from a pointer on that is a multiple of 64; null stays null.
[[nodiscard]] inline std::byte* aligned(std::byte* pointer) noexcept {
    auto const address = reinterpret_cast<std::uintptr_t>(pointer);
    return pointer == nullptr ? nullptr : pointer + ((64 - address % 64) % 64);
}

/// What a local transition copies: what is needed and held, along every dimension. Where data only fills one place
/// (R -> P), coordinate 0 is that place.
[[nodiscard]] inline std::vector<Message> local_messages(DynamicDistribution const& from, DynamicDistribution const& to,
                                                         Index rank) {
    std::vector<Message> messages;
    Indices const coordinates = from.mesh().coordinates(rank);
    for (int axis = 0; axis < from.mesh().axes(); ++axis) {
        bool const fills = axis_change(from.signature()[axis], to.signature()[axis]) == AxisChange::fill;
        if (fills && from.signature()[axis].is_replicate() && coordinates[axis] != 0) return messages;
    }
    IndexSets const have = index_sets(from, coordinates);
    IndexSets const want = index_sets(to, coordinates);
    for_each_common(have, want, forms_of(have, want), [&](Message const& message) {
        messages.push_back(message);
        messages.back().peer = rank;
    });
    return messages;
}

}  // namespace reshard::inline v0::detail
