// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/bind.hpp
/// \brief  From boxes of the global index space to strided boxes of this rank's memory.
/// \depends plan, core.
#pragma once

#include <reshard/core/transfer.hpp>
#include <reshard/plan/plan.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// Memory in which one rank's part of a distribution lies.
template <class Byte>
struct BoundMemory {
    Byte* base = nullptr;
    Binding binding;

    /// The messages as transfers, with what stays with the rank, a transfer to itself, in its place among the peers.
    [[nodiscard]] std::vector<Transfer<Byte>> transfers(std::vector<Message> const& messages,
                                                        std::span<Message const> kept,
                                                        Conversion const& conversion) const {
        std::vector<Transfer<Byte>> result(messages.size() + kept.size());
        auto next = messages.begin();
        auto stays = kept.begin();
        for (Transfer<Byte>& transfer : result) {
            bool const to_itself = stays != kept.end() && (next == messages.end() || stays->peer < next->peer);
            Message const& message = to_itself ? *stays++ : *next++;
            transfer.peer = static_cast<int>(message.peer);
            transfer.base = base + binding.place(message, transfer.box);
            transfer.conversion = conversion;
        }
        return result;
    }
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

}  // namespace reshard::inline v0_1::detail
