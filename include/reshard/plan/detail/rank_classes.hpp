// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/detail/rank_classes.hpp
/// \brief  Which ranks of a plan have the same picture of it, so that one of them speaks for all.
/// \depends intersections, plan/{steps,topology}; <algorithm>, <vector>.
///
/// What a rank receives is a product over tensor dimensions: along each, the pieces of the source that meet what it
/// needs. What it sends is such a product too. So its picture is known from one *list* per dimension and direction:
/// the sizes of those pieces, and how near each of them is: in how many tiers its place agrees with the rank's own
/// along the axes that cut that dimension. (A message crosses the tier of the farthest of its dimensions.) Two ranks
/// whose lists are equal have equal loads, and the key of a rank is a digest of its lists. Lists depend on few
/// coordinates and are made once per combination of those; per rank there is only a look at each list, whether the
/// rank is near any of it. Nothing is assumed of the split rules: short, empty and irregular parts have other lists.
///
/// This needs that every piece has one holder (copies choose among themselves by their place in a line: see share)
/// and that units of the topology are boxes of mesh coordinates. Otherwise there are no classes.
#pragma once

#include <reshard/plan/detail/intersections.hpp>
#include <reshard/plan/steps.hpp>
#include <reshard/plan/topology.hpp>

#include <algorithm>      // sort
#include <unordered_map>  // unordered_map
#include <vector>         // vector

namespace reshard::inline v0_1::detail {

[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t x) noexcept {  // splitmix64's finaliser
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
}
[[nodiscard]] constexpr std::uint64_t combined(std::uint64_t a, std::uint64_t b) noexcept {
    return mixed(a * 0x9e3779b97f4a7c15U + b + 1);
}

/// Units of a topology as blocks of mesh coordinates, for tiers that split the mesh: ranks are in one unit when they
/// agree on the axes before `axis` and on coordinate / block along it. Level 0 is the rank itself.
struct UnitLevel {
    int axis = 0;
    Index block = 1;
};
using UnitLevels = InlineList<UnitLevel, max_tiers + 1>;

/// False when some unit is no box of coordinates, or the mesh lists its ranks.
[[nodiscard]] inline bool unit_levels(DynamicMesh const& mesh, Topology const& topology, UnitLevels& levels) {
    levels = {};
    levels.push_back({mesh.axes() - 1, 1});
    if (mesh.is_listed()) return false;
    Index const first = mesh.rank_at(0);
    for (int i = 0; i < topology.size(); ++i) {
        if (topology.unit(i, first) == topology.unit(i, mesh.last_rank())) return true;
        Index const ranks = topology.tier(i).ranks;
        int axis = 0;  // the outermost axis that a unit does not hold whole
        while (axis + 1 < mesh.axes() && mesh.stride(axis) > ranks) ++axis;
        Index const block = ranks / mesh.stride(axis);
        if (first % ranks != 0 || ranks % mesh.stride(axis) != 0 || mesh.extent(axis) % block != 0) return false;
        levels.push_back({axis, block});
    }
    return true;
}

/// The lists of one dimension and one direction: per place along the axes that cut `mine`, the pieces of `other` that
/// meet what is there; and of a rank, the digest of its list seen from its own place along the axes that cut `other`.
class IntersectionLists {
public:
    /// `budget` counts pieces down; below zero the lists are not complete.
    IntersectionLists(DynamicMesh const& mesh, UnitLevels const& levels, Grid const& mine, Grid const& other, int dim,
                      int repeats, Index& budget)
        : mine_(mesh, mine.axes_cutting(dim)), other_(mesh, other.axes_cutting(dim)) {
        for (UnitLevel const& level : levels) {
            Index block = 1;  // neighbouring places that one unit of the level holds
            for (int axis = level.axis; axis < mesh.axes(); ++axis) {
                if ((other.axes_cutting(dim) >> axis & 1U) == 0) continue;
                block *= axis == level.axis ? level.block : mesh.extent(axis);
            }
            blocks_.push_back(block);
        }
        auto const lists = as_size(mine_.size());
        budget -= mine_.size() + other_.size();
        if (budget < 0) return;
        for (Index place = 0; place < other_.size(); ++place) block_of_.push_back(place / blocks_.back());
        begin_.reserve(lists + 1);
        far_.reserve(lists);
        nearest_.reserve(lists);
        begin_.push_back(0);
        for (Index list = 0; list < mine_.size() && budget >= 0; ++list) {
            fill(mine.index_set(mine_.ordinal(list), dim), other, dim, repeats, budget);
        }
        Index memo = 0;
        if (multiply_fits(mine_.size(), other_.size(), memo) && memo <= memo_limit) {
            memo_.assign(as_size(memo), 0);
        }
    }

    /// Which list a rank has, and from which place it sees it.
    [[nodiscard]] Index list(Index ordinal) const noexcept { return mine_.index(ordinal); }
    [[nodiscard]] Index place(Index ordinal) const noexcept { return other_.index(ordinal); }
    /// Every rank sees one and the same list from one and the same place.
    [[nodiscard]] bool is_constant() const noexcept { return mine_.size() == 1 && other_.size() == 1; }

    [[nodiscard]] std::uint64_t digest(Index list, Index place) noexcept {
        auto const at = as_size(list);
        Index const block = block_of_[as_size(place)];
        if (block < nearest_[at].begin || block >= nearest_[at].end) return far_[at];
        if (memo_.empty()) return near_digest(list, place);
        std::uint64_t& known = memo_[as_size(list * other_.size() + place)];
        if (known == 0) known = near_digest(list, place);
        return known;
    }

private:
    struct Piece {
        Index place = 0;
        Index size = 0;
    };
    struct Entry {
        Index place = 0;
        std::uint64_t sum = 0;  ///< of the digests of this list's pieces up to here
    };

    void fill(IndexSet const& set, Grid const& other, int dim, int repeats, Index& budget) {
        pieces_.clear();
        other.for_each_part(dim, set, [&](IndexSet const& part, Index ordinal) {
            if (--budget < 0) return;
            for_each_sent(set, part, repeats, [&](Segments const& segments) {
                pieces_.push_back({other_.index(ordinal), segments.size()});
                --budget;
            });
        });
        std::sort(pieces_.begin(), pieces_.end(), [](Piece const& a, Piece const& b) {
            return a.place != b.place ? a.place < b.place : a.size < b.size;
        });
        // How far along the dimension a piece lies does not count: the same ones elsewhere are the same picture.
        std::uint64_t sum = 0;
        for (Piece const& piece : pieces_) {
            sum += combined(1, static_cast<std::uint64_t>(piece.size));
            if (as_index(entries_.size()) > begin_.back() && entries_.back().place == piece.place) {
                entries_.back().sum = sum;
            } else {
                entries_.push_back({piece.place, sum});
            }
        }
        begin_.push_back(as_index(entries_.size()));
        std::uint64_t key = combined(sum, 0);
        for (int level = 0; level < blocks_.size(); ++level) key = combined(key, 0);
        far_.push_back(key | 1U);
        Interval blocks;
        if (!pieces_.empty()) {
            blocks = {pieces_.front().place / blocks_.back(), pieces_.back().place / blocks_.back() + 1};
        }
        nearest_.push_back(blocks);
    }

    /// Sum over the pieces before `place`.
    [[nodiscard]] std::uint64_t before(Index list, Index place) const noexcept {
        Entry const* const first = entries_.data() + begin_[as_size(list)];
        Index const count = begin_[as_size(list) + 1] - begin_[as_size(list)];
        Index const found = first_where<Index>(0, count, [&](Index i) { return first[i].place >= place; });
        return found == 0 ? 0 : first[found - 1].sum;
    }
    [[nodiscard]] std::uint64_t near_digest(Index list, Index place) const noexcept {
        std::uint64_t key = combined(before(list, INT64_MAX), 0);
        for (Index block : blocks_) {
            Index const begin = place / block * block;
            key = combined(key, before(list, begin + block) - before(list, begin));
        }
        return key | 1U;  // never 0, which means not yet known
    }

    static constexpr Index memo_limit = 1 << 21;

    AxisSubset mine_;
    AxisSubset other_;
    InlineList<Index, max_tiers + 1> blocks_;  ///< per level, in places of `other_`
    std::vector<Entry> entries_;
    std::vector<Index> begin_;
    std::vector<std::uint64_t> far_;   ///< per list: its digest from a place that is near none of it
    std::vector<Interval> nearest_;    ///< per list: the outermost blocks its places span
    std::vector<Index> block_of_;      ///< per place: its outermost block
    std::vector<Piece> pieces_;        ///< of the list being made
    std::vector<std::uint64_t> memo_;  ///< near digests that are known; 0: not yet
};

/// Of a plan that has classes, if they are few enough; else nothing.
struct RankClasses {
    std::vector<std::uint32_t> of;  ///< per mesh ordinal: its class
    std::vector<Index> ranks;       ///< per class: how many
    std::vector<Index> first;       ///< per class: the first mesh ordinal
};

/// The lists that a rank's key is made of.
class RankKeys {
public:
    /// \pre a collective plan on one mesh.
    RankKeys(planning::Steps const& steps, DynamicDistribution const& from, DynamicDistribution const& to,
             Topology const& topology, Index budget)
        : mesh_(from.mesh()) {
        UnitLevels levels;
        if (!unit_levels(mesh_, topology, levels)) return;
        bool only_moves = true;
        for (planning::Step const& step : steps.list) {
            only_moves = only_moves && step.kind != planning::StepKind::fold && step.kind != planning::StepKind::fill;
            if (step.kind != planning::StepKind::exchange) continue;
            Grids const grids(steps, step);
            if (!add_phase(grids.source, grids.target, levels, budget)) return;
        }
        if (!only_moves) {  // memory and bound count what the phases do not show
            DynamicDistribution const copies = replicated(mesh_, from.shape());
            for (DynamicDistribution const* held : {&from, &to}) {
                for (int dim = 0; dim < from.shape().rank(); ++dim) {
                    if (!add_list(levels, Grid(*held), Grid(copies), dim, 2, budget)) return;
                }
            }
        }
        complete_ = true;
    }
    /// Sorts all ranks into classes; gives up when there are more than `most`.
    [[nodiscard]] RankClasses classes(std::size_t most) {
        RankClasses result;
        if (!complete_) return result;
        std::unordered_map<std::uint64_t, std::uint32_t> known;  // classes by key, numbered in the order they are met
        result.of.reserve(as_size(mesh_.size()));
        Index const row = mesh_.extent(mesh_.axes() - 1);
        struct Line {  // what a list needs to know of a row of ranks: its places at the start and the steps along it
            Index list = 0;
            Index list_step = 0;
            Index place = 0;
            Index place_step = 0;
        };
        std::vector<Line> lines(lists_.size());
        for (std::size_t i = 0; i != lists_.size(); ++i) {
            lines[i].list_step = lists_[i].list(1);
            lines[i].place_step = lists_[i].place(1);
        }
        for (Index start = 0; start < mesh_.size(); start += row) {
            for (std::size_t i = 0; i != lists_.size(); ++i) {
                lines[i].list = lists_[i].list(start);
                lines[i].place = lists_[i].place(start);
            }
            for (Index k = 0; k < row; ++k) {
                std::uint64_t key = 0;
                for (std::size_t i = 0; i != lists_.size(); ++i) {
                    Line& line = lines[i];
                    key = key * 0x9e3779b97f4a7c15U + lists_[i].digest(line.list, line.place);
                    line.list += line.list_step;
                    line.place += line.place_step;
                }
                auto const next = static_cast<std::uint32_t>(result.ranks.size());
                std::uint32_t const number = known.try_emplace(mixed(key), next).first->second;
                if (number == next) {
                    if (result.ranks.size() == most) return {};
                    result.ranks.push_back(0);
                    result.first.push_back(start + k);
                }
                ++result.ranks[number];
                result.of.push_back(number);
            }
        }
        return result;
    }

private:
    /// Both directions of every dimension; false when pieces have several holders or there are too many.
    [[nodiscard]] bool add_phase(Grid const& source, Grid const& target, UnitLevels const& levels, Index& budget) {
        for (int axis = 0; axis < mesh_.axes(); ++axis) {
            if (mesh_.extent(axis) > 1 && ((target.cutting & ~source.cutting) >> axis & 1U) != 0) return false;
        }
        DimForms const forms = forms_of(source, target);
        for (int dim = 0; dim < source.dims.size(); ++dim) {
            for (bool const receives : {true, false}) {
                Grid const& mine = receives ? target : source;
                Grid const& other = receives ? source : target;
                if (!add_list(levels, mine, other, dim, forms[dim].levels, budget)) return false;
            }
        }
        return true;
    }

    [[nodiscard]] bool add_list(UnitLevels const& levels, Grid const& mine, Grid const& other, int dim, int repeats,
                                Index& budget) {
        lists_.emplace_back(mesh_, levels, mine, other, dim, repeats, budget);
        if (budget < 0) return false;
        if (lists_.back().is_constant()) lists_.pop_back();
        return true;
    }

    DynamicMesh mesh_;
    std::vector<IntersectionLists> lists_;
    bool complete_ = false;
};

}  // namespace reshard::inline v0_1::detail
