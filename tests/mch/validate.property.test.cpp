// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/validate.hpp: random damage to real states, counted by comparing everything with
// everything.
#include <reshard/mch/validate.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include <mch/support/state.hpp>
#include <support/random.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

namespace {
using namespace reshard;
namespace sim = test::torchrec;
using enum MchFault;

using Totals = std::array<Index, mch_fault_count>;
using Places = std::set<std::tuple<MchFault, Index, Index>>;  // fault, rank, position

/// The definitions of MchFault, one by one, over the buffers of all ranks.
class Oracle {
public:
    explicit Oracle(sim::World const& world) : world_(world) {
        for (std::size_t r = 0; r < world.ranks.size(); ++r) shard(static_cast<Index>(r), world.ranks[r]);
        shared();
    }
    Totals totals{};
    Places places;

private:
    void add(MchFault fault, Index rank, Index position) {
        ++totals[static_cast<std::size_t>(fault)];
        places.insert({fault, rank, position});
    }
    static bool all_zero(sim::Module const& m) {
        for (std::size_t i = 0; i < m.raw.size(); ++i) {
            if (m.raw[i] != 0 || m.mapping[i] != 0) return false;
        }
        return m.z > 0;
    }
    void shard(Index r, sim::Module const& m) {
        if (all_zero(m)) return add(never_loaded, r, 0);
        auto const z = static_cast<std::size_t>(m.z);
        for (std::size_t i = 0; i < z; ++i) {
            auto const at = static_cast<Index>(i);
            bool const live = m.raw[i] != sim::no_id;
            bool seen_id = false;
            bool seen_slot = false;
            for (std::size_t k = 0; k < i; ++k) {
                seen_id = seen_id || m.raw[k] == m.raw[i];
                seen_slot = seen_slot || m.mapping[k] == m.mapping[i];
            }
            bool const mine = m.mapping[i] >= m.o && m.mapping[i] < m.o + m.z;
            if (i > 0 && m.raw[i] < m.raw[i - 1]) add(id_order, r, at);
            if (live && seen_id) add(id_repeated, r, at);
            if (!mine) add(slot_range, r, at);
            if (mine && seen_slot) add(slot_repeated, r, at);
            if (i + 1 == z && live) add(reserved_live, r, at);
            if (i + 1 == z && m.mapping[i] != m.o + m.z - 1) add(reserved_slot, r, at);
            Index const count = m.counts.empty() ? 0 : m.counts[i];
            Index const access = m.last.empty() ? 0 : m.last[i];
            if (count < 0) add(count_negative, r, at);
            if (live && count == INT64_MAX) add(count_pinned, r, at);
            if (!m.last.empty() && (access < 0 || access > m.iteration[0])) add(access_late, r, at);
            if (!live && i + 1 != z) {
                for (Index column : {count, access}) {
                    if (column != 0) add(stale_metadata, r, at);
                }
            }
            if (live && static_cast<Index>(world_.rank_of(m.raw[i])) != r) add(unreachable, r, at);
        }
    }
    /// How many shards beyond one hold an id, over all ids and those places of a rank that hold it.
    void shared() {
        std::map<sim::Id, std::map<std::size_t, Index>> holders;  // id -> rank -> places
        for (std::size_t r = 0; r < world_.ranks.size(); ++r) {
            if (all_zero(world_.ranks[r])) continue;
            for (sim::Id id : world_.ranks[r].raw) {
                if (id != sim::no_id) ++holders[id][r];
            }
        }
        for (auto const& [id, by_rank] : holders) {
            std::size_t const home = world_.rank_of(id);
            std::size_t const keeps = by_rank.count(home) == 1 ? home : by_rank.begin()->first;
            for (auto const& [rank, count] : by_rank) {
                if (rank != keeps) totals[static_cast<std::size_t>(id_on_two_ranks)] += count;
            }
        }
        for (sim::Module const& m : world_.ranks) {
            if (m.iteration[0] != world_.ranks[0].iteration[0]) ++totals[static_cast<std::size_t>(iteration)];
        }
    }
    sim::World const& world_;
};

/// A few numbers of a few buffers become others, likely ones often.
void damage(sim::World& world, test::Random& random) {
    Index const times = random.between(0, 6);
    for (Index i = 0; i < times; ++i) {
        sim::Module& m =
            world.ranks[static_cast<std::size_t>(random.between(0, static_cast<Index>(world.ranks.size()) - 1))];
        if (m.z == 0) continue;
        auto const at = static_cast<std::size_t>(random.between(0, m.z - 1));
        auto const with = static_cast<std::size_t>(random.between(0, m.z - 1));
        sim::Module const& other =
            world.ranks[static_cast<std::size_t>(random.between(0, static_cast<Index>(world.ranks.size()) - 1))];
        switch (random.between(0, 9)) {
            case 0: std::swap(m.raw[at], m.raw[with]); break;
            case 1: m.raw[at] = m.raw[with]; break;
            case 2:
                if (other.z > 0) m.raw[at] = other.raw[static_cast<std::size_t>(random.between(0, other.z - 1))];
                break;
            case 3: std::swap(m.mapping[at], m.mapping[with]); break;
            case 4: m.mapping[at] += random.between(-3, 3); break;
            case 5:
                if (!m.counts.empty()) m.counts[at] = random.pick(std::vector<Index>{-1, 0, 5, INT64_MAX});
                break;
            case 6:
                if (!m.last.empty()) m.last[at] += random.between(-2, 2);
                break;
            case 7: m.iteration[0] += random.between(-1, 1); break;
            case 8: m.raw[at] = random.pick(std::vector<Index>{0, -1, INT64_MIN, INT64_MAX, INT64_MAX - 1}); break;
            default:
                if (random.chance(20)) {
                    std::fill(m.raw.begin(), m.raw.end(), 0);
                    std::fill(m.mapping.begin(), m.mapping.end(), 0);
                }
        }
    }
}

Index total_of(Totals const& totals, MchFault fault) { return totals[static_cast<std::size_t>(fault)]; }

TEST_CASE("damage is counted and placed exactly, on all ranks alike") {
    Totals seen{};
    for (std::uint64_t seed : test::seeds(400)) {
        test::Random random(seed);
        auto const ranks = static_cast<int>(random.between(2, 5));
        Index const slots = random.between(1, 40);
        auto const policy = static_cast<sim::Policy>(random.between(0, 2));
        auto const kind = static_cast<sim::Kind>(random.between(0, 2));
        double const fill = random.pick(std::vector<double>{0.0, 0.3, 1.0, 3.0});
        Index const hash_size = kind == sim::Kind::low ? random.between(1, 100'000) : INT64_MAX;
        sim::World world = sim::trained(seed, slots, ranks, policy, kind, fill, 8, hash_size);
        damage(world, random);
        Oracle const oracle(world);
        std::vector<MchReport> reports(static_cast<std::size_t>(ranks));
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            auto const r = static_cast<std::size_t>(comm.rank());
            reports[r] = validate(sim::table_of(world), sim::state_of(world.ranks[r]), comm);
        });
        CAPTURE(seed);
        MchReport const& report = reports[0];
        for (MchReport const& other : reports) CHECK(other == report);
        INFO(explain(report));
        for (int i = 0; i < mch_fault_count; ++i) {
            auto const fault = static_cast<MchFault>(i);
            CAPTURE(name(fault));
            CHECK(report.total(fault) == total_of(oracle.totals, fault));
            seen[static_cast<std::size_t>(i)] += report.total(fault);
        }
        // Which of two equal entries is "the other" is a matter of order; whether there is one is not.
        for (MchViolation const& v : report.violations()) {
            if (v.fault == iteration || v.fault == id_on_two_ranks) continue;
            CHECK(oracle.places.count({v.fault, v.rank, v.position}) == 1);
        }
    }
    for (int i = 0; i < mch_fault_count; ++i) {  // the damage reached every kind it can
        CAPTURE(name(static_cast<MchFault>(i)));
        if (static_cast<MchFault>(i) == stale_segments) continue;
        CHECK((seen[static_cast<std::size_t>(i)] > 0 || test::fewer_seeds()));
    }
}

}  // namespace
