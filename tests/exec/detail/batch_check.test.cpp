// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/detail/batch_check.hpp: who writes what another tensor uses, and where lists differ.
#include <reshard/exec/detail/batch_check.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/collectives.hpp>
#include <reshard/comm/threads.hpp>

#include "support/random.hpp"

#include <vector>

namespace {
using namespace reshard;
using detail::Clash;
using detail::ViewUse;

std::byte memory[4096];

ViewUse bytes_at(Index begin, Index size, std::size_t tensor, bool written) {
    return {ConstDynamicView(memory + begin, DType::u8, Shape{size}), tensor, written};
}
bool clashes(Clash const& clash) { return clash.writer != clash.other; }
}  // namespace

TEST_SUITE("exec/detail/batch_check") {
    TEST_CASE("memory is shared when one tensor writes it and another uses it, and not otherwise") {
        CHECK(!clashes(detail::find_clash({})));
        CHECK(!clashes(detail::find_clash({bytes_at(0, 9, 0, false), bytes_at(3, 9, 1, false)})));
        CHECK(!clashes(detail::find_clash({bytes_at(0, 9, 0, true), bytes_at(9, 9, 1, true)})));
        CHECK(!clashes(detail::find_clash({bytes_at(0, 9, 0, true), bytes_at(3, 0, 1, true)})));
        CHECK(!clashes(detail::find_clash({bytes_at(0, 9, 4, true), bytes_at(3, 9, 4, false)})));  // its own

        Clash const writes = detail::find_clash({bytes_at(8, 9, 7, true), bytes_at(0, 9, 3, true)});
        CHECK(clashes(writes));
        CHECK(!writes.reads);
        for (bool const first : {false, true}) {  // whichever starts first
            Clash const reads =
                detail::find_clash({bytes_at(first ? 0 : 8, 9, 7, true), bytes_at(first ? 8 : 0, 9, 3, false)});
            CHECK(reads.writer == 7);
            CHECK(reads.other == 3);
            CHECK(reads.reads);
        }
    }
    TEST_CASE("windows of one tensor lie between each other without sharing an element") {
        Indices strides;
        strides.push_back(8);
        strides.push_back(1);
        std::vector<ViewUse> columns;
        for (std::size_t i = 0; i < 4; ++i) {
            columns.push_back({ConstDynamicView(memory + 2 * i, DType::u8, Shape{5, 2}, strides), i, true});
        }
        CHECK(!clashes(detail::find_clash(columns)));
        columns[2].view = ConstDynamicView(memory + 5, DType::u8, Shape{5, 2}, strides);
        CHECK(clashes(detail::find_clash(columns)));
    }
    TEST_CASE("agrees with comparing every pair") {
        for (std::uint64_t seed : test::seeds(2000)) {
            CAPTURE(seed);
            test::Random random(seed);
            std::vector<ViewUse> uses;
            auto const count = static_cast<std::size_t>(random.between(0, 12));
            for (std::size_t i = 0; i < count; ++i) {
                uses.push_back(bytes_at(random.between(0, 300), random.between(0, 30),
                                        static_cast<std::size_t>(random.between(0, 8)), random.chance(40)));
            }
            bool expected = false;
            for (ViewUse const& a : uses)
                for (ViewUse const& b : uses)
                    expected = expected || (a.tensor != b.tensor && a.written && detail::overlap(a.view, b.view));
            REQUIRE(clashes(detail::find_clash(uses)) == expected);
        }
    }

    TEST_CASE("the first place counts at which any rank differs") {
        detail::BatchDigest const lists[] = {{1, {1, 2, 3, 4, 5, 6}}, {1, {1, 2, 3, 4, 5, 7}}, {1, {1, 2, 3, 9, 5, 6}}};
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            transport::Verdict ended;
            try {
                detail::agree_on_batch(comm, {}, lists[comm.rank()],
                                       [](Index place) { return errors::concat("at ", place); });
            } catch (Error const& error) {
                ended.reason = error.message();
            }
            CHECK(ended.reason.find("rank 2 of 3: at 3, but rank 0 at 3") == 0);
            barrier(comm);  // the group stays usable
        });
    }
    TEST_CASE("every rank learns where the other differs from rank 0: options, a tensor, or the end of a list") {
        struct Case {
            detail::BatchDigest other;
            Index place;
        };
        detail::BatchDigest const ours{1, {10, 20, 30}};
        for (Case const& c : {Case{{2, {10, 20, 30}}, -1}, Case{{1, {10, 21, 31}}, 1}, Case{{1, {10, 20}}, 2},
                              Case{{1, {10, 20, 30, 40}}, 3}, Case{{1, {}}, 0}}) {
            run_on_threads(3, [&](ThreadCommunicator& comm) {
                CHECK(detail::first_difference(comm, comm.rank() == 2 ? c.other : ours) == c.place);
            });
            CHECK(c.other.whole() != ours.whole());
        }
    }
    TEST_CASE("the digest of a whole batch is never the one of a rank with an error") {
        CHECK(detail::BatchDigest{}.whole() != 0);
        CHECK(detail::BatchDigest{0, {0}}.whole() != detail::BatchDigest{0, {0, 0}}.whole());
    }
}
