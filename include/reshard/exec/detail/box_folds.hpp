// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/box_folds.hpp
/// \brief  What one rank does where boxes that it needs are folded from boxes that overlap.
/// \depends algebra/box_cover, exec/detail/{box_move,job}.hpp, memory/host_memory.
///
/// What others have arrives in scratch memory, whole. Then each box is cut into cells that the same addends reach:
/// those of a cell are brought side by side and folded into place; a cell that one addend reaches is copied, unless it
/// lies there already.
#pragma once

#include <reshard/algebra/box_cover.hpp>
#include <reshard/exec/detail/box_move.hpp>
#include <reshard/exec/detail/job.hpp>
#include <reshard/memory/host_memory.hpp>

namespace reshard::inline v0_1::detail {

/// What of a tensor's boxes is folded on one rank.
struct BoxFolds {
    struct Addend {
        BoxMessage message;
        Index place = -1;  ///< the element of scratch memory where it arrives; -1: it is in the source
    };
    struct Cell {
        std::size_t to = 0;  ///< the box that it is a part of, as place in the table
        Box box;
        std::vector<std::size_t> addends;  ///< in the order of ranks
    };
    BoxExchange exchange;
    std::vector<Addend> addends;
    std::vector<Cell> cells;
    Index elements = 0;  ///< of scratch memory

    BoxFolds() = default;  ///< nothing is folded
    BoxFolds(BoxMove const& move, Index rank)
        : exchange(reshard::exchange(move.from, move.to, rank, Overlap::addends)) {
        for (BoxMessage const& message : exchange.kept) addends.push_back({message});
        for (BoxMessage const& message : exchange.receives) {
            addends.push_back({message, elements});
            elements += message.box.size();
        }
        sort_list(addends, [](Addend const& a, Addend const& b) {
            return a.message.to != b.message.to ? a.message.to < b.message.to : a.message.from < b.message.from;
        });
        std::vector<Box> boxes;
        for (std::size_t first = 0; first < addends.size(); first += boxes.size()) {
            std::size_t const to = addends[first].message.to;
            boxes.clear();
            for (std::size_t i = first; i < addends.size() && addends[i].message.to == to; ++i)
                boxes.push_back(addends[i].message.box);
            for_each_cell(move.to.boxes()[to].box, boxes, [&](Box const& box, std::span<std::size_t const> in) {
                Cell& cell = cells.emplace_back(Cell{to, box, {in.begin(), in.end()}});
                for (std::size_t& addend : cell.addends) addend += first;
                if (in.size() > 1) elements += as_index(in.size()) * box.size();
            });
        }
    }
};

/// A box of its own that lies in scratch memory, or a part of it.
template <class Byte>
[[nodiscard]] Transfer<Byte> dense_transfer(Byte* base, DType dtype, Box const& whole, Box const& part) {
    return box_transfer(base, dtype, row_major_strides(whole.shape()), relative_to(whole, part));
}

inline void fold_cells(JobWork const& work, MemoryPolicy const& memory, JobStep const& /*step*/) {
    for (FoldWork const& cell : work.cells) memory.fold(cell);
}

/// \pre `scratch` has room for folds.elements; `sends` are those of the exchange.
[[nodiscard]] inline Job bind_folds(BoxFolds const& folds, BoxMove const& move, Index rank, std::byte* scratch,
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
    for (BoxMessage const& message : folds.exchange.receives) {
        travel.receives.push_back(dense_transfer(scratch + used * element, move.dtype, message.box, message.box));
        travel.receives.back().peer = static_cast<int>(message.peer);
        used += message.box.size();
    }
    std::vector<Gathered> pieces;
    for (BoxFolds::Cell const& cell : folds.cells) {
        HeldBox const& whole = move.to.boxes()[cell.to];
        auto const to = as_size(&whole - needed);
        DynamicView const& view = move.destination[to];
        Receive const target = box_transfer(view.data(), move.dtype, view.strides(), relative_to(whole.box, cell.box));
        bool const folded = cell.addends.size() > 1;
        std::byte* slot = folded ? scratch + used * element : nullptr;
        if (folded) {
            FoldWork& fold = work.cells.emplace_back();
            fold.op = move.fold->op;
            fold.dtype = move.dtype;
            fold.addends = as_index(cell.addends.size());
            fold.divisor = fold.op == Reduce::avg ? fold.addends : 1;
            fold.slot_bytes = cell.box.size() * element;
            fold.slots = dense_transfer<std::byte const>(slot, move.dtype, cell.box, cell.box);
            fold.to = target;
            used += fold.addends * cell.box.size();
        }
        for (std::size_t const i : cell.addends) {
            BoxFolds::Addend const& addend = folds.addends[i];
            Gathered piece;
            if (addend.place < 0) {
                HeldBox const& source = move.from.boxes()[addend.message.from];
                piece.from = as_size(&source - held) + 1;
                ConstDynamicView const& own = move.source[piece.from - 1];
                piece.send = box_transfer(own.data(), move.dtype, own.strides(), relative_to(source.box, cell.box));
            } else {
                piece.send = dense_transfer<std::byte const>(scratch + addend.place * element, move.dtype,
                                                             addend.message.box, cell.box);
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
    BoxFolds (*find)(BoxMove const& move, Index rank);
    decltype(&bind_folds) bind;
};

}  // namespace reshard::inline v0_1::detail
