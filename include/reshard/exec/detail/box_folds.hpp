// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/box_folds.hpp
/// \brief  What one rank does where boxes that it needs are folded from boxes that overlap.
/// \depends exec/{box_move,detail/job}, memory/host_memory; <algorithm>.
///
/// What others have arrives in scratch memory, whole. Then the addends of each cell are brought side by side and folded
/// into place; a cell that one addend reaches is copied, unless it lies there already.
#pragma once

#include <reshard/exec/box_move.hpp>
#include <reshard/exec/detail/job.hpp>
#include <reshard/memory/host_memory.hpp>

#include <algorithm>  // ranges::lower_bound

namespace reshard::inline v0_1::detail {

/// A box of its own that lies in scratch memory, or a part of it.
template <class Byte>
[[nodiscard]] Transfer<Byte> dense_transfer(Byte* base, DType dtype, Box const& whole, Box const& part) {
    return box_transfer(base, dtype, row_major_strides(whole.shape()), relative_to(whole, part));
}

inline void fold_cells(JobWork const& work, MemoryPolicy const& memory, JobStep const& /*step*/) {
    for (FoldWork const& cell : work.cells) memory.fold(cell);
}

/// \pre `scratch` has room for parts.scratch(); `sends` are those of `parts`.
[[nodiscard]] inline Job bind_folds(BoxExchange const& parts, BoxMove const& move, Index rank, std::byte* scratch,
                                    std::vector<Send>&& sends, MemoryPolicy const& memory) {
    struct Gathered {
        std::size_t from = 0;  ///< view of the source, counted from 1; 0: scratch memory
        std::size_t to = 0;    ///< and of the destination
        Send send;
        Receive receive;
    };
    Index const element = bytes(move.dtype);
    HeldBox const* const held = move.from.boxes_of(rank).data();
    HeldBox const* const needed = move.to.boxes_of(rank).data();
    JobWork work;
    JobTransfers& travel = work.exchanges.emplace_back();
    travel.sends = std::move(sends);
    Index used = 0;
    std::vector<Index> places;  // in scratch memory, of what arrives
    for (BoxMessage const& message : parts.receives) {
        places.push_back(used);
        travel.receives.push_back(dense_transfer(scratch + used * element, move.dtype, message.box, message.box));
        travel.receives.back().peer = static_cast<int>(message.peer);
        used += message.box.size();
    }
    std::vector<Gathered> pieces;
    for (planning::BoxCell const& cell : parts.cells) {
        HeldBox const& whole = move.to.boxes()[cell.to];
        auto const to = as_size(&whole - needed);
        DynamicView const& view = move.destination[to];
        Receive const target = box_transfer(view.data(), move.dtype, view.strides(), relative_to(whole.box, cell.box));
        bool const folded = cell.from.size() > 1;
        std::byte* slot = folded ? scratch + used * element : nullptr;
        if (folded) {
            FoldWork& fold = work.cells.emplace_back();
            fold.op = move.fold->op;
            fold.dtype = move.dtype;
            fold.addends = as_index(cell.from.size());
            fold.divisor = fold.op == Reduce::avg ? fold.addends : 1;
            fold.slot_bytes = cell.box.size() * element;
            fold.slots = dense_transfer<std::byte const>(slot, move.dtype, cell.box, cell.box);
            fold.to = target;
            used += fold.addends * cell.box.size();
        }
        for (std::size_t const from : cell.from) {
            HeldBox const& source = move.from.boxes()[from];
            Gathered piece;
            if (source.rank == rank) {
                piece.from = as_size(&source - held) + 1;
                ConstDynamicView const& own = move.source[piece.from - 1];
                piece.send = box_transfer(own.data(), move.dtype, own.strides(), relative_to(source.box, cell.box));
            } else {
                BoxMessage const wanted{source.rank, {}, from, cell.to};
                auto const message = std::ranges::lower_bound(parts.receives, wanted, is_sent_before);
                Index const place = places[as_size(message - parts.receives.begin())];
                piece.send =
                    dense_transfer<std::byte const>(scratch + place * element, move.dtype, message->box, cell.box);
            }
            piece.receive = target;
            if (folded) {
                piece.receive = dense_transfer(slot, move.dtype, cell.box, cell.box);
                slot += cell.box.size() * element;
            } else {
                piece.to = to + 1;
                if (piece.send.base == target.base) continue;  // in place
            }
            pieces.push_back(piece);
        }
    }
    sort_list(pieces,
              [](Gathered const& a, Gathered const& b) { return a.from != b.from ? a.from < b.from : a.to < b.to; });
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        bool const same = i != 0 && pieces[i].from == pieces[i - 1].from && pieces[i].to == pieces[i - 1].to;
        if (!same) work.steps.push_back({planning::StepKind::copy, 1});
        work.steps.back().copy.sends.push_back(pieces[i].send);
        work.steps.back().copy.receives.push_back(pieces[i].receive);
    }
    if (!work.cells.empty()) work.steps.push_back({planning::StepKind::fold, 1});
    work.carry_out = fold_cells;
    return Job(std::move(work), memory);
}

/// What BoxFold refers to.
struct BoxFolding {
    HostMemory host;
    decltype(&bind_folds) bind;
};

}  // namespace reshard::inline v0_1::detail
