// SPDX-License-Identifier: Apache-2.0
// A bound holds whoever plans: no chain of the library's own plans gets below it.
#include <reshard/algebra/total_bound.hpp>
#include <reshard/plan/plan.hpp>

#include <doctest/doctest.h>

#include <reshard/algebra/bound.hpp>

#include <string>
#include <vector>

namespace {
using namespace reshard;

/// Every combination of these placements, on a mesh of one or two axes; two reductions in one tensor are none.
std::vector<DynamicDistribution> all_on(DynamicMesh const& mesh, DynamicShape const& shape) {
    std::vector<std::string> lists{""};
    for (int axis = 0; axis < mesh.axes(); ++axis) {
        std::vector<std::string> longer;
        for (std::string const& list : lists)
            for (char const* one : {"R", "S0", "S1", "P+", "P>"}) longer.push_back(list + (axis == 0 ? "" : ",") + one);
        lists = longer;
    }
    std::vector<DynamicDistribution> result;
    for (std::string const& list : lists) {
        bool const two_ops = list.find("P+") != std::string::npos && list.find("P>") != std::string::npos;
        if (!two_ops) result.push_back(distribution(mesh, shape, list));
    }
    return result;
}

/// Elements received: by all ranks, and by the rank that receives most.
struct Moved {
    Index total = 0;
    Index most = 0;
};
Moved moved(Plan<> const& plan) {
    Moved result;
    for (Index ordinal = 0; ordinal < plan.from().mesh().size(); ++ordinal) {
        Index const received = plan.cost(plan.from().mesh().rank_at(ordinal)).received;
        result.total += received;
        result.most = detail::larger(result.most, received);
    }
    return result;
}

/// The fewest elements of any chain of plans, in place of those of one plan.
void shorten(std::vector<std::vector<Index>>& table) {
    for (std::size_t by = 0; by < table.size(); ++by)
        for (auto& row : table)
            for (std::size_t to = 0; to < table.size(); ++to)
                row[to] = detail::smaller(row[to], row[by] + table[by][to]);
}

}  // namespace

TEST_SUITE("plan/bound") {
    TEST_CASE("no chain of plans receives less than the bound") {
        int known = 0;
        for (Indices const& extents : {Indices{4}, Indices{2, 2}, Indices{4, 2}, Indices{3, 4}, Indices{1, 3}}) {
            DynamicMesh const mesh(extents);
            for (DynamicShape const& shape : {Shape{24, 24}, Shape{7, 5}}) {
                auto const all = all_on(mesh, shape);
                std::vector<std::vector<Index>> totals(all.size(), std::vector<Index>(all.size()));
                std::vector<std::vector<Index>> most = totals;
                for (std::size_t i = 0; i < all.size(); ++i) {
                    for (std::size_t j = 0; j < all.size(); ++j) {
                        Moved const figures = moved(plan(all[i], all[j]));
                        totals[i][j] = figures.total;
                        most[i][j] = figures.most;
                    }
                }
                shorten(totals);
                shorten(most);
                for (std::size_t i = 0; i < all.size(); ++i) {
                    for (std::size_t j = 0; j < all.size(); ++j) {
                        TotalBound const bound = total_bound(all[i], all[j]);
                        if (!bound.known) continue;
                        ++known;
                        INFO(to_string(all[i]), " -> ", to_string(all[j]), " of ", to_string(shape));
                        CHECK(totals[i][j] >= bound.total);
                        CHECK(most[i][j] >= bound.received);
                    }
                }
            }
        }
        CHECK(known > 1000);
    }
}
