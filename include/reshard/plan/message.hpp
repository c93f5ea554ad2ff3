// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/message.hpp
/// \brief  What travels between two ranks at once: a box of the global index space, or a box and its repetitions; and
///         where that lies in memory.
/// \depends algebra, core; <vector>. Plain data.
#pragma once

#include <reshard/algebra/segments.hpp>
#include <reshard/core/function_ref.hpp>
#include <reshard/core/transfer.hpp>
#include <reshard/plan/detail/grid.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

namespace planning {

/// A box again and again along one dimension: what two block-cyclic cuts share.
struct BoxRepeat {
    int dim = 0;
    Index pitch = 0;
    Index count = 0;
    friend constexpr bool operator==(BoxRepeat const&, BoxRepeat const&) = default;
};

/// A box of the global index space that travels between this rank and `peer`. Behind the tensor's dimensions come
/// the addends, when a partial tensor is folded. Where both sides are regular, `box` is the first of many equal ones:
/// the message holds them all, by ascending dimension, the outer repeat of a dimension first.
struct Message {
    /// As many as fit a strided box of two dimensions cut both ways; what has more is several messages.
    static constexpr int max_repeats = 4;

    Index peer = 0;
    detail::GridBox box;
    InlineList<BoxRepeat, max_repeats> repeats{};

    /// Indices the message has along one dimension.
    [[nodiscard]] constexpr Index extent(int dim) const noexcept {
        Index product = box[dim].size();
        for (BoxRepeat const& repeat : repeats)
            if (repeat.dim == dim) product *= repeat.count;
        return product;
    }
    [[nodiscard]] constexpr Index elements() const noexcept {
        Index product = 1;
        for (Interval interval : box) product *= interval.size();
        for (BoxRepeat const& repeat : repeats) product *= repeat.count;
        return product;
    }
    friend constexpr bool operator==(Message const&, Message const&) = default;
};

/// One rank's part of one exchange: sorted by peer, then by box, so that the k-th send of s to d is the k-th receive
/// of d from s.
struct Exchange {
    std::vector<Message> sends;
    std::vector<Message> receives;
    std::vector<Message> kept;  ///< boxes the rank needs and holds itself; peer is the rank
};

}  // namespace planning

/// What one rank moves when it carries out a plan, in elements (multiply by bytes(dtype)).
struct Cost {
    int phases = 0;           ///< exchanges one after the other, those in chunks as one; 0 for views and local copies
    Index messages_sent = 0;  ///< all chunks of one as one; load_of() and simulate() count each
    Index messages_received = 0;
    Index sent = 0;
    Index received = 0;
    /// Elements of scratch memory on a host, without what alignment adds: for memory to give to prepare() ask
    /// workspace_bytes(), which knows devices as well.
    Index workspace = 0;
    friend constexpr bool operator==(Cost const&, Cost const&) = default;
};

namespace detail {

using planning::BoxRepeat;
using planning::Exchange;
using planning::Message;

/// One dimension of an exchange: whether either side deals it out in blocks, and how many repeats a message may have.
struct DimForm {
    bool interleaved = false;
    int levels = 0;
};
using DimForms = InlineList<DimForm, max_grid_dims>;

/// Two repeats per block-cyclic dimension, as long as a message and the strided box of a tensor of `rank` dimensions
/// have room: then one for the first dimensions, and none.
template <class Interleaved>
[[nodiscard]] constexpr DimForms dim_forms(int rank, int dims, Interleaved&& is_interleaved) noexcept {
    DimForms forms;
    for (int dim = 0; dim < dims; ++dim) forms.push_back({is_interleaved(dim), 0});
    int room = smaller(max_dims + 1 - rank, Message::max_repeats);
    for (int round = 0; round < 2; ++round) {
        for (int dim = 0; dim < dims && room > 0; ++dim) {
            if (!forms[dim].interleaved) continue;
            ++forms[dim].levels;
            --room;
        }
    }
    return forms;
}

/// Calls `visit` with families of at most `levels` repeats: what has more is listed, the shorter repeat first.
inline void list_repeats(Segments const& segments, int levels, FunctionRef<void(Segments const&)> visit) {
    Segments one = segments;
    Repeat listed[2];
    for (Repeat& repeat : listed) {
        if (one.levels() <= levels) break;
        bool const inner = one.inner.count > 1 && (one.outer.count == 1 || one.inner.count <= one.outer.count);
        Repeat& taken = inner ? one.inner : one.outer;
        repeat = taken;
        taken = {};
    }
    for (Index i = 0; i < listed[0].count; ++i) {
        for (Index j = 0; j < listed[1].count; ++j) {
            Index const shift = i * listed[0].pitch + j * listed[1].pitch;
            one.first = {segments.first.begin + shift, segments.first.end + shift};
            visit(one);
        }
    }
}

/// What two index sets share, as it is sent: for_each_shared() with at most `levels` repeats.
inline void for_each_sent(IndexSet const& a, IndexSet const& b, int levels, FunctionRef<void(Segments const&)> visit) {
    for_each_shared(a, b, [&](Segments const& segments) {
        if (segments.count() == 1) return visit(segments);
        list_repeats(segments, levels, visit);
    });
}

/// A message's next dimension.
inline void append(Message& message, Segments const& segments) noexcept {
    int const dim = message.box.size();
    message.box.push_back(segments.first);
    if (segments.outer.count > 1) message.repeats.push_back({dim, segments.outer.pitch, segments.outer.count});
    if (segments.inner.count > 1) message.repeats.push_back({dim, segments.inner.pitch, segments.inner.count});
}

/// What a rank holds or needs: the product of one set per dimension.
using IndexSets = InlineList<IndexSet, max_grid_dims>;

[[nodiscard]] inline IndexSets index_sets(DynamicDistribution const& distribution, Indices const& coordinates) {
    IndexSets sets;
    for (int dim = 0; dim < distribution.shape().rank(); ++dim) {
        sets.push_back(distribution.index_set(coordinates, dim));
    }
    return sets;
}
/// Elements that two products share.
[[nodiscard]] inline Index common_size(IndexSets const& a, IndexSets const& b) noexcept {
    Index product = 1;
    for (int dim = 0; dim < a.size() && product != 0; ++dim) product *= shared_size(a[dim], b[dim]);
    return product;
}

/// Forms of what two products share.
[[nodiscard]] inline DimForms forms_of(IndexSets const& a, IndexSets const& b) noexcept {
    return dim_forms(a.size(), a.size(), [&](int dim) { return !a[dim].is_interval() || !b[dim].is_interval(); });
}

/// Calls `visit` with the messages that together are what two products share, row-major.
inline void for_each_common(IndexSets const& a, IndexSets const& b, DimForms const& forms,
                            FunctionRef<void(Message const&)> visit, Message&& message = {}) {
    int const dim = message.box.size();
    if (dim == a.size()) return visit(message);
    int const repeats = message.repeats.size();
    for_each_sent(a[dim], b[dim], forms[dim].levels, [&](Segments const& segments) {
        append(message, segments);
        for_each_common(a, b, forms, visit, static_cast<Message&&>(message));
        message.box.pop_back();
        message.repeats.count = repeats;
    });
}

/// How one rank's part of a distribution, or a box, lies in memory.
class Binding {
public:
    Binding() = default;
    /// Of a staging area that holds many addends, `slot` bytes apart: from `origin` bytes of each on.
    [[gnu::noinline]] Binding(DType dtype, Indices const& strides, DynamicDistribution const& distribution, Index rank,
                              Index slot = 0, Index origin = 0)
        : Binding(dtype, strides, index_sets(distribution, distribution.mesh().coordinates(rank)), slot, origin) {}
    /// Of the elements that one set per dimension says.
    [[gnu::noinline]] Binding(DType dtype, Indices const& strides, IndexSets const& sets, Index slot = 0,
                              Index origin = 0)
        : element_bytes_(bytes(dtype)), slot_(slot), origin_(origin), sets_(sets), strides_(strides) {
        for (Index& stride : strides_) stride *= element_bytes_;
    }

    /// A message of the global index space (with the planner's extra dimensions behind the tensor's), as memory: what
    /// is regular there is regular here. Returns at which byte `box` begins. \pre the box of the message lies within
    /// one segment per dimension, and holds one addend.
    Index place(Message const& message, StridedBox& box) const {
        box.element_bytes = element_bytes_;
        Index offset = -origin_;
        int next = 0;
        for (int dim = 0; dim < sets_.size(); ++dim) {
            Index const begin = message.box[dim].begin;
            Index const origin = sets_[dim].local_index(begin);
            offset += origin * strides_[dim];
            for (; next < message.repeats.size() && message.repeats[next].dim == dim; ++next) {
                BoxRepeat const& repeat = message.repeats[next];
                Index const step = sets_[dim].local_index(begin + repeat.pitch) - origin;
                box.dims.push_back({repeat.count, step * strides_[dim]});
            }
            box.dims.push_back({message.box[dim].size(), strides_[dim]});
        }
        if (message.box.size() > sets_.size()) offset += message.box[sets_.size()].begin * slot_;
        return offset;
    }

private:
    Index element_bytes_ = 1;
    Index slot_ = 0;
    Index origin_ = 0;
    IndexSets sets_;
    Indices strides_;
};

}  // namespace detail

}  // namespace reshard::inline v0_1
