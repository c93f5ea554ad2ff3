// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_route.hpp
/// \brief  Entries of saved shards that belong to one rank, picked while they are read, and the rows that go with them.
/// \depends mch/detail/{checkpoint_load,incoming,leaving_rule}.
#pragma once

#include <reshard/mch/detail/checkpoint_load.hpp>
#include <reshard/mch/detail/incoming.hpp>
#include <reshard/mch/detail/leaving_rule.hpp>

namespace reshard::inline v0_1::detail {

/// Reads shards in pieces and keeps what belongs to one rank of the current table. Memory: what is kept, and one piece.
class MchPicker {
public:
    static constexpr Index piece_entries = Index{1} << 16U;

    MchPicker(MchSavedTable const& saved, MchTable const& current, Index rank, MchOptions const& options)
        : ids_(saved.ids),
          saved_(saved.table),
          current_(current),
          mine_(current.slots.mesh().ordinal(rank)),
          widths_(widths_of(current)),
          kept_(widths_.size()) {
        for (Index part = 0; part < saved_.parts(); ++part)
            room_ = larger(room_, smaller(piece_entries, saved_.part_range(part).size()));
        for (Index width : widths_) piece_.emplace_back(as_size(room_ * width));
        columns_.ids = reinterpret_cast<Index*>(piece_[0].data());
        columns_.slots = reinterpret_cast<Index*>(piece_[1].data());
        for (std::size_t c = 2; c < piece_.size(); ++c) columns_.metadata.push_back(piece_[c].data());
        rule_ = {saved.table, current, columns_, options};
    }

    /// All of part `read.part`.
    void pick(MchReader& reader, MchRead const& read) {
        Index const first = saved_.part_range(read.part).begin;
        reader.read_entries(read, columns_, room_, [&, this](Index begin, Index count) {
            rule_.offset = first + begin;
            for (Index i = 0; i < count; ++i) {
                Index const to = rule_(i);
                if (to == mine_) keep(i);
                if (to == MchLeavingRule::misplaced)
                    refuse(reader, read.part, begin + i, columns_.ids[i], columns_.slots[i]);
                bool const lost = to == rule_.left_out && rule_.router.part_of_slot(columns_.slots[i]) == mine_;
                if (lost) left_out_.push_back(columns_.ids[i]);
            }
        });
    }
    /// Of a part that is not picked from: that it holds what the text of the table says.
    void check(MchReader& reader, Index part) {
        MchShard piece;
        piece.ids = columns_.ids;
        reader.check_part(part);
        reader.read_entries({part, 0, saved_.part_range(part).size()}, piece, room_, [](Index, Index) {});
    }

    [[nodiscard]] Index entries() const noexcept { return entries_; }
    [[nodiscard]] std::vector<Index>& left_out() noexcept { return left_out_; }
    /// What was kept as one packed block, which takes its place.
    [[nodiscard]] std::vector<std::byte> packed() {
        std::vector<std::byte> block(as_size(packed_block_bytes(entries_, widths_)));
        std::byte* to = block.data();
        for (std::size_t c = 0; c < kept_.size(); ++c) {
            std::copy(kept_[c].begin(), kept_[c].end(), to);
            to += packed_column_bytes(entries_, widths_[c]);
            kept_[c] = {};
        }
        piece_ = {};
        return block;
    }

private:
    [[noreturn]] void refuse(MchReader const& reader, Index part, Index entry, Index id, Index slot) const {
        Interval const range = saved_.part_range(part);
        if (!range.contains(slot)) {
            refuse_mch_file(reader.path_of(part), "entry ", entry, " of table '", saved_.name, "' has slot ", slot,
                            ", outside its shard of slots ", range.begin, " to ", range.end,
                            ". Fix: restore the file.");
        }
        MchHashSizes sizes(saved_);
        for (std::size_t p = 0; p < ids_.size(); ++p) {
            if (ids_[p].highest < 0) continue;
            sizes.add(ids_[p].lowest, as_index(p));
            sizes.add(ids_[p].highest, as_index(p));
        }
        refuse_stray(saved_, current_, range.begin + entry, id, part, rule_.saved_router.part_of_id(id),
                     concat("of the bounds of all saved ids, ", sizes.text()));
    }
    void keep(Index row) {
        for (std::size_t c = 0; c < kept_.size(); ++c) {
            std::byte const* const from = piece_[c].data() + row * widths_[c];
            kept_[c].insert(kept_[c].end(), from, from + widths_[c]);
        }
        ++entries_;
    }

    std::vector<MchIdBounds> const& ids_;
    MchTable const& saved_;
    MchTable const& current_;
    Index mine_;
    std::vector<Index> widths_;
    Index room_ = 0;                             ///< entries of a piece
    std::vector<std::vector<std::byte>> piece_;  ///< per column: ids, slots, metadata
    MchShard columns_;                           ///< the same as a shard's
    MchLeavingRule rule_;                        ///< what redistribute() asks, of a piece
    std::vector<std::vector<std::byte>> kept_;
    std::vector<Index> left_out_;
    Index entries_ = 0;
};

/// Rows that go with moved ids, from the files into this rank's rows: the same as apply_row_moves() after a load by
/// position. Moves ascend by where they begin: rows near each other are read at once.
inline void read_moved_rows(MchReader& reader, MchTable const& saved, MchRows const& rows, Index offset,
                            std::span<MchRowMove const> moves) {
    constexpr Index gap_bytes = Index{64} << 10U;
    constexpr Index read_bytes = Index{8} << 20U;
    Index const width = info_of(rows).row_bytes();
    if (width == 0) return;
    SlotRouter const owner(saved.slots);
    std::vector<std::byte> memory;
    for (std::size_t first = 0, last = 0; first < moves.size(); first = last) {
        Interval const range = saved.part_range(owner(moves[first].from));
        Index end = moves[first].from + 1;
        for (last = first + 1; last < moves.size(); ++last) {
            Index const next = moves[last].from;
            bool const near = (next - end) * width <= gap_bytes && (next + 1 - moves[first].from) * width <= read_bytes;
            if (next >= range.end || !near) break;
            end = next + 1;
        }
        memory.resize(as_size((end - moves[first].from) * width));
        reader.read_rows(rows, {moves[first].from, end}, memory.data());
        for (std::size_t i = first; i < last; ++i) {
            std::memcpy(rows.view.data() + (moves[i].to - offset) * width,
                        memory.data() + (moves[i].from - moves[first].from) * width, as_size(width));
        }
    }
}

}  // namespace reshard::inline v0_1::detail
