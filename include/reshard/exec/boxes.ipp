// SPDX-License-Identifier: Apache-2.0
// How exec/boxes.hpp is done.
#pragma once

#include <reshard/exec/boxes.hpp>
#include <reshard/exec/detail/batch_job.hpp>
#include <reshard/exec/detail/box_agreement.hpp>
#include <reshard/exec/detail/box_folds.hpp>

namespace reshard::inline v0_1 {

namespace detail {

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
            refuse("a view of ", name(view.dtype()), " elements for ", box, " of the ", side, ", but ", name(dtype),
                   " was to move. Fix: pass the element type of the views as `dtype`.");
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

/// Of each source of a move, whether it is the memory of the destination of an equal box, as it may be in a fold.
[[nodiscard]] inline std::vector<char> sources_in_place(BoxMove const& move, int rank) {
    std::vector<char> result(move.source.size(), false);
    if (!move.fold) return result;
    std::vector<std::pair<void const*, std::size_t>> written;
    for (DynamicView const& view : move.destination) written.push_back({view.data(), written.size()});
    sort_list(written);
    for (std::size_t i = 0; i < result.size(); ++i) {
        ConstDynamicView const& view = move.source[i];
        auto at = std::ranges::lower_bound(written, std::pair<void const*, std::size_t>{view.data(), 0});
        for (; at != written.end() && at->first == view.data() && !result[i]; ++at) {
            bool const same = move.from.boxes_of(rank)[i].box == move.to.boxes_of(rank)[at->second].box;
            result[i] = same && same_strides(view, move.destination[at->second]);
        }
    }
    return result;
}

/// Throws BufferError for memory that is written and read, or written twice.
inline void check_apart(std::span<BoxMove const> moves, int rank) {
    struct ViewOf {
        std::size_t tensor;
        std::size_t view;
    };
    std::vector<ViewUse> uses;
    std::vector<ViewOf> places;
    auto const text = [&](std::size_t i, std::string_view side) {
        std::string const tensor = label(moves, places[i].tensor);
        return concat("view ", places[i].view, " of the ", side, tensor.empty() ? "" : " of ", tensor);
    };
    for (std::size_t t = 0; t < moves.size(); ++t) {
        std::vector<char> const in_place = sources_in_place(moves[t], rank);
        std::size_t view = 0;
        auto const add = [&](ConstDynamicView const& memory, bool written) {
            uses.push_back({memory, places.size(), written});
            places.push_back({t, view++});
        };
        for (ConstDynamicView const& source : moves[t].source) in_place[view] ? void(++view) : add(source, false);
        view = 0;
        for (DynamicView const& destination : moves[t].destination) {
            add(destination, true);
            if (is_injective(destination)) continue;
            raise(ErrorCode::buffer, "reshard::prepare: on rank ", rank, " ", text(places.size() - 1, "destination"),
                  " has strides ", to_string(destination.strides()),
                  " that overlap. Fix: give every element memory of its own.");
        }
    }
    Clash const clash = find_clash(uses);
    if (clash.writer == clash.other) return;
    raise(ErrorCode::buffer, "reshard::prepare: on rank ", rank, " ", text(clash.writer, "destination"), " overlaps ",
          text(clash.other, clash.reads ? "source" : "destination"), ". Fix: give each box its own memory.");
}

template <class Byte, class View>
[[nodiscard]] std::vector<Transfer<Byte>> transfers_of(std::span<BoxMessage const> messages,
                                                       std::span<HeldBox const> boxes, std::size_t first,
                                                       std::size_t BoxMessage::*place, std::span<View const> views) {
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

/// What a rank does with a tensor's boxes, wherever these lie: of copies, what stays with the rank is a message to
/// itself, in its place among the peers.
[[nodiscard]] inline BoxExchange parts_of(BoxMove const& move, int rank) {
    if (move.fold) return exchange(move.from, move.to, rank, Overlap::addends);
    BoxExchange parts = exchange(move.from, move.to, rank);
    for (auto* const messages : {&parts.sends, &parts.receives}) {
        messages->insert(messages->end(), parts.kept.begin(), parts.kept.end());
        sort_list(*messages, is_sent_before);
    }
    return parts;
}

/// Throws what is wrong with one rank's side of a tensor's move.
inline void check_boxes(BoxMove const& move, CommunicatorRef comm, MemoryPolicy const& memory) {
    int const rank = comm.rank();
    check_byte_sized("prepare", move.dtype);
    for (BoxTable const* table : {&move.from, &move.to}) {
        if (table->last_rank() < comm.size()) continue;
        raise(ErrorCode::mesh, "reshard::prepare: rank ", table->last_rank(), " has a box, the communicator only ",
              comm.size(), " ranks. Fix: list ranks that exist.");
    }
    if (move.fold) {
        check_op("prepare", move.fold->op, " is not defined for ", move.dtype);
        if (!memory.copies_only().empty()) {
            raise(ErrorCode::transition, "reshard::prepare: boxes that overlap are folded, and this communicator only ",
                  "copies memory of a device. Fix: ", memory.copies_only());
        }
    }
    check_box_views("source", move.from, move.dtype, rank, move.source);
    check_box_views("destination", move.to, move.dtype, rank, move.destination);
    auto const check = [&](std::string_view side, ConstDynamicView const& view) {
        if (view.size() == 0) return;  // an empty view may lie anywhere
        comm.check_memory(view.data());
        memory.check(side, view.data(), bytes(move.dtype));
    };
    for (ConstDynamicView const& view : move.source) check("source", view);
    for (DynamicView const& view : move.destination) check("destination", view);
}

/// Binds one rank's side of a tensor's move, with scratch memory for its folds. Communicates nothing.
[[nodiscard]] inline Job bind_boxes(BoxMove const& move, BoxExchange const& parts, std::byte* scratch, Index rank,
                                    MemoryPolicy const& memory) {
    auto const first = [&](BoxTable const& table) {
        return as_size(table.boxes_of(rank).data() - table.boxes().data());
    };
    auto sends =
        transfers_of<std::byte const>(parts.sends, move.from.boxes(), first(move.from), &BoxMessage::from, move.source);
    if (move.fold) return move.fold->with().bind(parts, move, rank, scratch, std::move(sends), memory);
    JobWork work;
    work.exchanges.push_back({std::move(sends), transfers_of<std::byte>(parts.receives, move.to.boxes(), first(move.to),
                                                                        &BoxMessage::to, move.destination)});
    return Job(std::move(work), memory);
}

template <class View>
[[nodiscard]] std::vector<View> views_of_boxes(DynamicDistribution const& distribution, Index rank, View const& local) {
    std::vector<View> views;
    if (!distribution.contains(rank)) return views;
    if (!(local.shape() == distribution.local_shape(rank))) return {local};  // prepare() refuses it, on all ranks
    IndexSets const sets = index_sets(distribution, distribution.mesh().coordinates(rank));
    for (Box const& box : distribution.boxes(rank)) {
        Index offset = 0;
        for (int d = 0; d < box.rank(); ++d) offset += sets[d].local_index(box.begin(d)) * local.stride(d);
        views.emplace_back(local.data() + offset * bytes(local.dtype()), local.dtype(), box.shape(), local.strides());
    }
    return views;
}

}  // namespace detail

RESHARD_INLINE detail::BoxFolding const& detail::box_folding() noexcept {
    static BoxFolding const all{host_memory(), bind_folds};
    return all;
}

RESHARD_INLINE PreparedPlan prepare(std::span<BoxMove const> moves, CommunicatorRef comm) {
    PreparedPlan prepared;
    std::optional<detail::BoxTables> tables;
    detail::BatchDigest digest;  // without options: nobody differs in those
    std::size_t current = moves.size();
    transport::Verdict verdict = detail::verdict_of([&] {
        tables.emplace(moves);
        digest = detail::digest_of(moves, *tables);
        MemoryPolicy const* memory = &detail::memory_of(comm, host_copies());
        std::vector<planning::BoxExchange> parts;  // those of moves one behind the other that are alike once
        std::vector<std::size_t> parts_of(moves.size());
        Index scratch = 0;
        for (current = 0; current < moves.size(); ++current) {
            BoxMove const& move = moves[current];
            if (move.fold) memory = &detail::memory_of(comm, move.fold->with().host);
            detail::check_boxes(move, comm, *memory);
            BoxMove const& before = moves[current == 0 ? 0 : current - 1];
            bool const alike = current != 0 && &move.from == &before.from && &move.to == &before.to;
            if (!alike || move.fold.has_value() != before.fold.has_value())
                parts.push_back(detail::parts_of(move, comm.rank()));
            parts_of[current] = parts.size() - 1;
            scratch += detail::padded_bytes(parts.back().scratch(), move.dtype);
        }
        detail::check_apart(moves, comm.rank());
        Workspace workspace;
        if (scratch != 0) workspace = memory->allocate(scratch);
        std::vector<detail::Job> jobs;
        detail::BatchJob::Round all;
        std::byte* next = workspace.data();
        for (current = 0; current < moves.size(); ++current) {
            BoxMove const& move = moves[current];
            planning::BoxExchange const& mine = parts[parts_of[current]];
            all.push_back(current);
            jobs.push_back(detail::bind_boxes(move, mine, detail::aligned(next), comm.rank(), *memory));
            next += detail::padded_bytes(mine.scratch(), move.dtype);
        }
        std::span const rounds(&all, moves.empty() ? 0 : 1);
        prepared = PreparedPlan(new detail::BatchJob(comm, std::move(jobs), rounds, std::move(workspace)));
    });
    if (!verdict.ok() && current < moves.size()) {  // without memory for the label it goes without
        static_cast<void>(detail::verdict_of([&] {
            std::string const tensor = detail::label(moves, current);
            if (!tensor.empty()) verdict.reason = errors::concat(tensor, ": ", verdict.reason);
        }));
    }
    verdict.call = "prepare(BoxMove)";
    detail::agree_on_batch(comm, std::move(verdict), digest,
                           [&](Index place) { return detail::describe(moves, *tables, place); });
    return prepared;
}

RESHARD_INLINE std::vector<ConstDynamicView> box_views(DynamicDistribution const& distribution, Index rank,
                                                       ConstDynamicView const& local) {
    return detail::views_of_boxes(distribution, rank, local);
}
RESHARD_INLINE std::vector<DynamicView> box_views(DynamicDistribution const& distribution, Index rank,
                                                  DynamicView const& local) {
    return detail::views_of_boxes(distribution, rank, local);
}

RESHARD_INLINE std::vector<LocalTensor> box_tensors(std::string_view name, BoxTable const& table, DType dtype,
                                                    Index rank, std::span<DynamicView const> views) {
    std::span<HeldBox const> const mine = table.boxes_of(rank);
    if (views.size() != mine.size()) {
        errors::raise(ErrorCode::buffer, "reshard::box_tensors: rank ", rank, " has ", mine.size(), " boxes of '", name,
                      "', and gives ", views.size(),
                      " views. Fix: give one for each of boxes_of(rank), in their order.");
    }
    auto const first = detail::as_size(mine.data() - table.boxes().data());
    std::vector<LocalTensor> list;
    table.for_each_class([&](Box const& box, std::span<std::size_t const> copies) {
        std::vector<Index> ranks;
        DynamicView view(nullptr, dtype, Shape{0});
        for (std::size_t const place : copies) {
            Index const holder = table.boxes()[place].rank;
            if (!ranks.empty() && ranks.back() == holder) {
                errors::raise(ErrorCode::placement, "reshard::box_tensors: rank ", holder, " has ", to_string(box),
                              " of '", name, "' twice. Fix: list it once.");
            }
            ranks.push_back(holder);
            if (holder == rank) view = views[place - first];
        }
        IndexList const on(ranks.data(), detail::as_index(ranks.size()));
        DynamicMesh const mesh(Indices{on.size()}, {0, on});
        Indices begin;
        for (int d = 0; d < box.rank(); ++d) begin.push_back(box.begin(d));
        list.push_back({std::string(name), replicated(mesh, box.shape()), view, {table.shape(), begin}});
    });
    if (list.empty() && !table.boxes().empty() && table.shape().size() == 0) {  // it has a name and a shape
        DynamicMesh const holder(Indices{1}, first_rank(table.boxes()[0].rank));
        list.push_back(
            {std::string(name), replicated(holder, table.shape()), DynamicView(nullptr, dtype, table.shape())});
    }
    return list;
}

}  // namespace reshard::inline v0_1
