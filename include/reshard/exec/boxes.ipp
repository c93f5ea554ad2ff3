// SPDX-License-Identifier: Apache-2.0
// How exec/boxes.hpp is done.
#pragma once

#include <reshard/exec/boxes.hpp>
#include <reshard/exec/detail/batch_check.hpp>
#include <reshard/exec/detail/batch_job.hpp>

namespace reshard::inline v0 {

namespace detail {

/// What this rank brings to the agreement: the boxes of both tables, as tensors of a batch are.
[[nodiscard]] inline BatchDigest digest_of(BoxTable const& from, BoxTable const& to, DType dtype) {
    BatchDigest result;
    Digest options;
    options.add(from.boxes().size()).add(static_cast<std::uint64_t>(dtype));
    for (BoxTable const* table : {&from, &to}) {
        for (Index extent : table->shape().extents()) options.add_signed(extent);
        for (HeldBox const& held : table->boxes()) {
            Digest box;
            box.add_word_signed(held.rank);
            for (int d = 0; d < held.box.rank(); ++d)
                box.add_word_signed(held.box.begin(d)).add_word_signed(held.box.end(d));
            result.tensors.push_back(box.value());
        }
    }
    result.options = options.value();
    return result;
}
/// Completes "rank 3 ..., but rank 0 ...". `place` as first_difference() gives it.
[[nodiscard]] inline std::string describe(BoxTable const& from, BoxTable const& to, DType dtype, Index place) {
    auto const count = as_index(from.boxes().size());
    if (place < 0) {
        return concat("moves ", count, " boxes of ", to_string(from.shape()), " into boxes of ", to_string(to.shape()),
                      ", ", name(dtype));
    }
    BoxTable const& table = place < count ? from : to;
    auto const i = as_size(place < count ? place : place - count);
    std::string_view const side = place < count ? "read" : "written";
    if (i >= table.boxes().size()) return concat("lists ", i, " boxes that are ", side);
    HeldBox const& held = table.boxes()[i];
    return concat("lists ", to_string(held.box), " of rank ", held.rank, " as box ", i, " of those that are ", side);
}

/// Throws unless a rank gives a view for each of its boxes, of its shape.
template <class View>
void check_box_views(std::string_view side, BoxTable const& table, DType dtype, int rank, std::span<View const> views) {
    std::span<HeldBox const> const boxes = table.boxes_of(rank);
    auto const refuse = [&](auto const&... parts) {
        raise(ErrorCode::buffer, "reshard::prepare: rank ", rank, " has ", parts...);
    };
    if (views.size() != boxes.size()) {
        refuse(boxes.size(), " boxes of the ", side, ", and gives ", views.size(),
               " views. Fix: give one for each of boxes_of(rank), in their order.");
    }
    for (std::size_t i = 0; i < views.size(); ++i) {
        View const& view = views[i];
        std::string const box = to_string(boxes[i].box);
        if (view.dtype() != dtype) {
            refuse("a view of ", name(view.dtype()), " elements for ", box, " of the ", side, ", which are ",
                   name(dtype), ". Fix: say which element type moves.");
        }
        if (!(view.shape() == boxes[i].box.shape())) {
            refuse("a view of shape ", to_string(view.shape()), " for ", box, " of the ", side,
                   ". Fix: give a tensor of the box's extents.");
        }
        if (view.data() == nullptr && view.size() != 0)
            refuse("a null view for ", box, " of the ", side, ". Fix: pass memory for its elements.");
        if (!strides_fit(view.shape(), view.strides(), dtype))
            refuse("strides ", to_string(view.strides()), " beyond 64 bits for ", box, ". Fix: check them.");
    }
}

/// Throws BufferError for memory that is written and read, or written twice.
inline void check_apart(std::span<ConstDynamicView const> source, std::span<DynamicView const> destination, int rank) {
    std::vector<Stretch> stretches;
    for (ConstDynamicView const& view : source) stretches.push_back({view, stretches.size(), false});
    for (DynamicView const& view : destination) {
        if (!is_injective(view)) {
            raise(ErrorCode::buffer, "reshard::prepare: view ", stretches.size() - source.size(),
                  " of the destination of rank ", rank, " has strides ", to_string(view.strides()),
                  " that overlap. Fix: give every element memory of its own.");
        }
        stretches.push_back({view, stretches.size(), true});
    }
    Clash const clash = find_clash(stretches);
    if (clash.writer == clash.other) return;
    raise(ErrorCode::buffer, "reshard::prepare: on rank ", rank, " view ", clash.writer - source.size(),
          " of the destination overlaps view ", clash.reads ? clash.other : clash.other - source.size(), " of the ",
          clash.reads ? "source" : "destination", ". Fix: give each box its own memory.");
}

/// Messages as transfers, with what stays with the rank, a transfer to itself, in its place among the peers.
template <class Byte, class View>
[[nodiscard]] std::vector<Transfer<Byte>> transfers_of(std::vector<BoxMessage> messages, std::vector<BoxMessage> kept,
                                                       std::span<HeldBox const> boxes, std::size_t first,
                                                       std::size_t BoxMessage::*place, std::span<View const> views) {
    messages.insert(messages.end(), kept.begin(), kept.end());
    sort_messages(messages);
    std::vector<Transfer<Byte>> transfers;
    transfers.reserve(messages.size());
    for (BoxMessage const& message : messages) {
        Box const& whole = boxes[message.*place].box;
        View const& view = views[message.*place - first];
        transfers.push_back(
            box_transfer<Byte>(view.data(), view.dtype(), view.strides(), relative_to(whole, message.box)));
        transfers.back().peer = static_cast<int>(message.peer);
    }
    return transfers;
}

}  // namespace detail

RESHARD_INLINE PreparedPlan prepare(BoxTable const& from, BoxTable const& to, DType dtype, CommunicatorRef comm,
                                    std::span<ConstDynamicView const> source,
                                    std::span<DynamicView const> destination) {
    int const rank = comm.rank();
    PreparedPlan prepared(comm, nullptr);
    detail::BatchDigest digest;
    Verdict verdict = detail::verdict_of([&] {
        digest = detail::digest_of(from, to, dtype);
        detail::check_byte_sized(dtype);
        for (BoxTable const* table : {&from, &to}) {
            if (table->last_rank() < comm.size()) continue;
            raise(ErrorCode::mesh, "reshard::prepare: rank ", table->last_rank(), " has a box, the communicator only ",
                  comm.size(), " ranks. Fix: list ranks that exist.");
        }
        detail::check_box_views("source", from, dtype, rank, source);
        detail::check_box_views("destination", to, dtype, rank, destination);
        detail::check_apart(source, destination, rank);
        MemoryPolicy const& memory = detail::memory_of(comm, host_copies());
        auto const check = [&](std::string_view side, ConstDynamicView const& view) {
            if (view.size() == 0) return;  // an empty view may lie anywhere
            comm.check_memory(view.data());
            memory.check(side, view.data(), bytes(dtype));
        };
        for (ConstDynamicView const& view : source) check("source", view);
        for (DynamicView const& view : destination) check("destination", view);
        BoxExchange const mine = exchange(from, to, rank);
        detail::JobTransfers transfers;
        auto const first = [&](BoxTable const& table) {
            return detail::as_size(table.boxes_of(rank).data() - table.boxes().data());
        };
        transfers.sends = detail::transfers_of<std::byte const>(mine.sends, mine.kept, from.boxes(), first(from),
                                                                &BoxMessage::from, source);
        transfers.receives = detail::transfers_of<std::byte>(mine.receives, mine.kept, to.boxes(), first(to),
                                                             &BoxMessage::to, destination);
        std::vector<detail::Job> jobs;
        jobs.emplace_back(std::move(transfers), memory);
        detail::BatchJob::Round const alone(1, 0);
        prepared = PreparedPlan(comm, new detail::BatchJob(comm, std::move(jobs), std::span(&alone, 1), Workspace()));
    });
    detail::agree_on_batch(comm, std::move(verdict), digest,
                           [&](Index place) { return detail::describe(from, to, dtype, place); });
    return prepared;
}

RESHARD_INLINE void redistribute(BoxTable const& from, BoxTable const& to, DType dtype, CommunicatorRef comm,
                                 std::span<ConstDynamicView const> source, std::span<DynamicView const> destination) {
    prepare(from, to, dtype, comm, source, destination).run();
}

namespace detail {

template <class View>
[[nodiscard]] std::vector<View> views_of_boxes(DynamicDistribution const& distribution, Index rank, View const& local) {
    std::vector<View> views;
    if (!distribution.contains(rank)) return views;
    if (!(local.shape() == distribution.local_shape(rank))) return {local};  // prepare() refuses it, on all ranks
    IndexSets const sets = index_sets(distribution, distribution.mesh().coordinates(rank));
    for_each_segment_box(sets, [&](Box const& box) {
        Index offset = 0;
        for (int d = 0; d < box.rank(); ++d) offset += sets[d].local_index(box.begin(d)) * local.stride(d);
        views.emplace_back(local.data() + offset * bytes(local.dtype()), local.dtype(), box.shape(), local.strides());
    });
    return views;
}

}  // namespace detail

RESHARD_INLINE std::vector<ConstDynamicView> box_views(DynamicDistribution const& distribution, Index rank,
                                                       ConstDynamicView const& local) {
    return detail::views_of_boxes(distribution, rank, local);
}
RESHARD_INLINE std::vector<DynamicView> box_views(DynamicDistribution const& distribution, Index rank,
                                                  DynamicView const& local) {
    return detail::views_of_boxes(distribution, rank, local);
}

}  // namespace reshard::inline v0
