// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/report.hpp.
#include <reshard/mch/report.hpp>

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <type_traits>

namespace {
using namespace reshard;

TEST_CASE("a report without faults is sound and says so") {
    MchReport const report;
    CHECK(report.sound());
    CHECK(report.total() == 0);
    CHECK(explain(report) == "sound");
}

TEST_CASE("all faults are counted, the first places of each kind are listed") {
    MchReport report;
    for (Index i = 0; i < 20; ++i) report.add({MchFault::id_order, 1, 20 - i, i, i + 1});
    report.add({MchFault::unreachable, 1, 3, 70, 2});
    CHECK_FALSE(report.sound());
    CHECK(report.total() == 21);
    CHECK(report.total(MchFault::id_order) == 20);
    CHECK(report.total(MchFault::unreachable) == 1);
    CHECK(report.total(MchFault::slot_range) == 0);
    CHECK(report.violations().size() == MchReport::listed + 1);

    report.add_total(MchFault::id_order, 1);  // of another rank
    report.add_listed({MchFault::id_order, 0, 5, 7, 9});
    report.sort();
    CHECK(report.total(MchFault::id_order) == 21);
    CHECK(report.violations()[0] == MchViolation{MchFault::id_order, 0, 5, 7, 9});
    CHECK(report.violations()[1] == MchViolation{MchFault::id_order, 1, 13, 7, 8});
    CHECK(report.violations().back().fault == MchFault::unreachable);
    static_assert(std::is_same_v<decltype(MchReport().violations()), std::vector<MchViolation>>);  // for range-for
}

TEST_CASE("a report prints a line per kind: how many, and where") {
    MchReport report;
    report.add({MchFault::id_order, 0, 5, 7, 9});
    report.add({MchFault::unreachable, 1, 3, 70, 2});
    report.add({MchFault::unreachable, 1, 4, 71, 1});
    CHECK(explain(report) ==
          "I1 ids do not ascend: 1 (rank 0, position 5: id 7 after 9)\n"
          "I5 id is looked up elsewhere: 2 (rank 1, position 3: id 70, looked up on rank 2; rank 1, position 4: id 71, "
          "looked up in another bucket of the rank)");
    report = {};
    for (Index i = 0; i < 9; ++i) report.add({MchFault::iteration, i, 0, 5, 6});
    std::string const text = explain(report);
    CHECK(text.find("I6 current iteration differs between ranks: 9 (rank 0: 5 instead of 6; ") == 0);
    CHECK(text.find("; rank 7: 5 instead of 6; ...)") != std::string::npos);
}

TEST_CASE("every fault has a name and words of its own") {
    std::set<std::string> names;
    std::set<std::string> places;
    for (int i = 0; i < mch_fault_count; ++i) {
        auto const fault = static_cast<MchFault>(i);
        names.insert(std::string(name(fault)));
        std::string const text = to_string(MchViolation{fault, 3, 4, 5, -6});
        CHECK(text.find("rank 3") == 0);
        places.insert(text);
    }
    CHECK(names.size() == static_cast<std::size_t>(mch_fault_count));
    // Repeated ids and slots, and what stands instead of what, differ in their words; two kinds of counts do as well.
    CHECK(places.size() == static_cast<std::size_t>(mch_fault_count));
    CHECK(to_string(MchViolation{MchFault::reserved_slot, 0, 9, 3, 7}) ==
          "rank 0, position 9: slot 3, the last slot is at position 7");
    CHECK(to_string(MchViolation{MchFault::reserved_slot, 0, 9, 3, -1}) ==
          "rank 0, position 9: slot 3, the last slot is nowhere");
}

}  // namespace
