// SPDX-License-Identifier: Apache-2.0
#include <reshard/mch/merge.hpp>

#include "support/allocations.hpp"
#include "support/mch_kernels.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace reshard;
using namespace reshard::test;

#define IMPLEMENTATIONS HostInOrder, HostWorkers

namespace {

MergeCase with_numbered_rows(std::vector<std::vector<Index>> runs) {
    MergeCase made;
    made.widths = {1};
    unsigned number = 0;
    for (auto const& run : runs) {
        made.columns.emplace_back(1);
        for (std::size_t i = 0; i != run.size(); ++i)
            made.columns.back()[0].push_back(static_cast<std::byte>(number++));
    }
    made.runs = std::move(runs);
    return made;
}

Bytes numbers(std::initializer_list<int> list) {
    Bytes bytes;
    for (int number : list) bytes.push_back(static_cast<std::byte>(number));
    return bytes;
}

std::vector<std::pair<Index, Index>> runs_of(std::vector<Index> const& keys) {
    std::vector<std::pair<Index, Index>> runs;
    Index const count = for_each_sorted_run(keys, [&](Index begin, Index end) { runs.emplace_back(begin, end); });
    CHECK(count == static_cast<Index>(runs.size()));
    return runs;
}

}  // namespace

TEST_CASE_TEMPLATE("merge: equal keys keep the order of their runs, and columns follow", Implementation,
                   IMPLEMENTATIONS) {
    auto given = with_numbered_rows({{-5, 2, 9}, {}, {2, 2, 7}, {INT64_MIN, 2, INT64_MAX}});
    for (int parts = 1; parts <= 8; ++parts) {
        CAPTURE(parts);
        given.parts = parts;
        auto const result = Implementation::merge(given);
        CHECK(result.keys == std::vector<Index>{INT64_MIN, -5, 2, 2, 2, 2, 7, 9, INT64_MAX});
        CHECK((result.columns[0] == numbers({6, 0, 1, 3, 4, 7, 5, 2, 8})));
        CHECK(result.duplicates == std::vector<Index>{3, 4, 5});
        CHECK(result.guards_intact);
    }
}

TEST_CASE_TEMPLATE("merge: no runs, empty runs, one run, and more parts than entries", Implementation,
                   IMPLEMENTATIONS) {
    for (auto const& runs : std::vector<std::vector<std::vector<Index>>>{
             {}, {{}}, {{}, {}, {}}, {{1, 2, 3}}, {{5}, {4}}, {{INT64_MAX}, {INT64_MAX}}, {{INT64_MAX}, {}, {3}}}) {
        auto given = with_numbered_rows(runs);
        for (int parts : {1, 5}) {
            given.parts = parts;
            CHECK((Implementation::merge(given) == merge_oracle(given)));
        }
    }
}

TEST_CASE_TEMPLATE("merge: dropped entries leave no gap", Implementation, IMPLEMENTATIONS) {
    auto given = with_numbered_rows({{0, 2, 4, 6}, {1, 3, 5, 7}});
    for (auto const& drops :
         std::vector<std::vector<Index>>{{0}, {7}, {0, 1, 2, 3}, {3, 3, 5}, {0, 1, 2, 3, 4, 5, 6, 7}}) {
        given.drops = drops;
        for (int parts : {1, 2, 3, 8}) {
            given.parts = parts;
            CHECK((Implementation::merge(given) == merge_oracle(given)));
        }
    }
}

TEST_CASE("merge: a run begins where a key is smaller than the one before it") {
    using Runs = std::vector<std::pair<Index, Index>>;
    CHECK(runs_of({}) == Runs{});
    CHECK(runs_of({4}) == Runs{{0, 1}});
    CHECK(runs_of({1, 2, 2, 3}) == Runs{{0, 4}});
    CHECK(runs_of({1, 5, 3, 4, -7, INT64_MAX}) == Runs{{0, 2}, {2, 4}, {4, 6}});
    CHECK(runs_of({3, 2, 1}) == Runs{{0, 1}, {1, 2}, {2, 3}});
}

TEST_CASE("merge: a duplicate names its key, its run and its row there") {
    std::vector<Index> const a{1, 4, 9};
    std::vector<Index> const b{4, 10};
    std::vector<SortedRun> const runs{{a.data(), 3}, {b.data(), 2}};
    Merge merge(runs, 2);
    Bytes workspace(static_cast<std::size_t>(merge.workspace_bytes()));
    merge.order(workspace);
    CHECK(merge.duplicates() == 1);
    Index seen = 0;
    merge.for_each_duplicate([&](Index position, Index key, Index run, Index row) {
        ++seen;
        CHECK(position == 2);
        CHECK(key == 4);
        CHECK(run == 1);
        CHECK(row == 0);
    });
    CHECK(seen == 1);
}

TEST_CASE("merge: neither the order nor a gather allocates") {
    std::vector<Index> const a{1, 4, 9};
    std::vector<Index> const b{4, 10};
    std::vector<SortedRun> const runs{{a.data(), 3}, {b.data(), 2}, {a.data(), 3}};
    std::vector<std::byte const*> columns;
    for (SortedRun const& run : runs) columns.push_back(reinterpret_cast<std::byte const*>(run.keys));
    Merge merge(runs, 2);
    Bytes workspace(static_cast<std::size_t>(merge.workspace_bytes()));
    Bytes out(8 * 8);
    CHECK(allocations_in([&] {
              merge.order(workspace);
              merge.gather(8, columns, out.data());
          }) == 0);
}

TEST_CASE("merge: bad input is named with its remedy") {
    std::vector<Index> const keys{1, 2};
    std::vector<SortedRun> runs{{keys.data(), 2}, {nullptr, 1}};
    CHECK_THROWS_WITH_AS(Merge{runs},
                         "reshard::Merge: the keys of run 1 are null. Fix: give every run the address of its keys.",
                         BufferError);
    runs[1] = {keys.data(), -1};
    CHECK_THROWS_AS(Merge{runs}, ShapeError);
    runs[1] = {keys.data(), INT64_MAX / 8};
    CHECK_THROWS_AS(Merge{runs}, ShapeError);
    CHECK_THROWS_AS(Merge(std::span(runs).first(1), 0), ShapeError);
    std::vector<SortedRun> const many(32768, {keys.data(), 1});
    CHECK_THROWS_AS(Merge{many}, ShapeError);

    runs.pop_back();
    Merge merge(runs);
    std::byte out[16] = {};
    std::byte const* columns[] = {reinterpret_cast<std::byte const*>(keys.data()), nullptr};
    CHECK_THROWS_AS(merge.gather(8, std::span(columns, 1), out), TransitionError);
    CHECK_THROWS_AS(merge.drop(0), TransitionError);
    Bytes workspace(static_cast<std::size_t>(merge.workspace_bytes()));
    CHECK_THROWS_AS(merge.order(std::span(workspace).first(workspace.size() - 1)), BufferError);
    merge.order(workspace);
    CHECK_THROWS_AS(merge.gather(8, std::span(columns, 2), out), ShapeError);
    CHECK_THROWS_AS(merge.gather(0, std::span(columns, 1), out), ShapeError);
    CHECK_THROWS_AS(merge.gather(8, std::span(columns, 1), nullptr), BufferError);
    CHECK_THROWS_AS(merge.gather(8, std::span(columns + 1, 1), out), BufferError);
    CHECK_THROWS_AS(merge.drop(2), ShapeError);
    CHECK_THROWS_AS(merge.drop(-1), ShapeError);
    merge.drop(1);
    CHECK_THROWS_AS(merge.gather(8, std::span(columns, 1), out), TransitionError);
    merge.settle();
    merge.gather(8, std::span(columns, 1), out);
    CHECK(merge.kept() == 1);
}
