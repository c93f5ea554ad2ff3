// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/verify_replicas.hpp: random tensors with random damage, against a program that
// compares everything with everything.
#include <reshard/checkpoint/verify_replicas.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/detail/element_range.hpp>
#include <reshard/checkpoint/detail/replica_hash.hpp>
#include <reshard/checkpoint/detail/replica_value.hpp>
#include <reshard/comm/threads.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "support/around.hpp"
#include "support/oracle.hpp"
#include "support/random.hpp"

namespace {
using namespace reshard;
using Bytes = std::vector<std::byte>;

/// A tensor and, per rank, its dense bytes and how they lie in memory.
struct Item {
    DynamicDistribution distribution;
    DType dtype = DType::u8;
    std::vector<Bytes> dense;
    std::vector<Indices> strides;
    std::vector<Bytes> memory;
};

std::size_t size_of(DType dtype) { return static_cast<std::size_t>(bytes(dtype)); }

/// Where element k of a rank's part lies in its memory.
std::size_t place(Item const& item, std::size_t rank, std::size_t k) {
    Index rest = static_cast<Index>(k);
    Index position = 0;
    DynamicShape const local = item.distribution.local_shape(static_cast<Index>(rank));
    for (int dim = local.rank() - 1; dim >= 0; --dim) {
        position += rest % local.extent(dim) * item.strides[rank][dim];
        rest /= local.extent(dim);
    }
    return static_cast<std::size_t>(position) * size_of(item.dtype);
}

/// Dimensions in any order in memory, sometimes with gaps.
void lay_out(Item& item, std::size_t rank, test::Random& random) {
    DynamicShape const local = item.distribution.local_shape(static_cast<Index>(rank));
    std::vector<int> dims(static_cast<std::size_t>(local.rank()));
    std::iota(dims.begin(), dims.end(), 0);
    if (random.chance(30)) std::shuffle(dims.begin(), dims.end(), random.engine());
    Indices strides = local.extents();
    Index step = 1;
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
        strides[*dim] = step;
        step *= detail::larger<Index>(local.extent(*dim), 1);
        if (random.chance(15)) step += random.between(1, 3);
    }
    item.strides[rank] = strides;
    item.memory[rank].assign(static_cast<std::size_t>(step) * size_of(item.dtype), std::byte{0x5A});
    for (std::size_t k = 0; k * size_of(item.dtype) < item.dense[rank].size(); ++k) {
        std::memcpy(item.memory[rank].data() + place(item, rank, k), item.dense[rank].data() + k * size_of(item.dtype),
                    size_of(item.dtype));
    }
}

/// Zeros of both signs and NaNs are frequent.
std::uint64_t random_bits(DType dtype, test::Random& random) {
    std::uint64_t const all = random.engine()();
    detail::FloatFormat format;
    if (!detail::float_format(dtype, format) || random.chance(50)) return all;
    switch (random.between(0, 3)) {
        case 0: return 0;
        case 1: return format.sign;
        case 2: return format.largest + 1;
        default: return format.sign | (format.largest + 1 + (all & 1U));
    }
}

Item random_item(int ranks, test::Random& random) {
    DynamicMesh mesh = random.mesh();
    while (mesh.last_rank() >= ranks) mesh = random.mesh();
    Item item;
    item.distribution = random.distribution(mesh, random.shape());
    item.dtype = random.pick(std::vector<DType>{DType::u8, DType::boolean, DType::f8_e4m3, DType::f8_e5m2fnuz,
                                                DType::i16, DType::f16, DType::bf16, DType::i32, DType::f32, DType::c64,
                                                DType::f64, DType::u64});
    auto const count = static_cast<std::size_t>(ranks);
    item.dense.resize(count);
    item.strides.resize(count);
    item.memory.resize(count);
    // One whole tensor per addend, cut by the oracle.
    std::map<Index, std::vector<std::uint64_t>> wholes;
    for (Index rank : oracle::ranks(item.distribution)) {
        auto& whole = wholes[oracle::addend_of(item.distribution, rank)];
        while (whole.size() < static_cast<std::size_t>(item.distribution.shape().size())) {
            whole.push_back(random_bits(item.dtype, random));
        }
        auto const r = static_cast<std::size_t>(rank);
        for (Index i : oracle::elements(item.distribution, rank)) {
            auto const* from = reinterpret_cast<std::byte const*>(&whole[oracle::at(i)]);
            item.dense[r].insert(item.dense[r].end(), from, from + bytes(item.dtype));
        }
    }
    // Damage: the same kind may hit several ranks, which then agree again.
    for (Index hits = random.chance(50) ? random.between(1, 4) : 0; hits > 0; --hits) {
        std::uint64_t const bits = random_bits(item.dtype, random);
        auto const where = static_cast<std::size_t>(random.between(0, 1000));
        for (Index rank : oracle::ranks(item.distribution)) {
            Bytes& dense = item.dense[static_cast<std::size_t>(rank)];
            if (dense.empty() || !random.chance(30)) continue;
            std::size_t const at = where % (dense.size() / size_of(item.dtype)) * size_of(item.dtype);
            std::memcpy(dense.data() + at, &bits, size_of(item.dtype));
        }
    }
    for (Index rank : oracle::ranks(item.distribution)) lay_out(item, static_cast<std::size_t>(rank), random);
    return item;
}

/// One element as it is compared.
std::uint64_t element(Item const& item, std::size_t rank, std::size_t k, bool canonical) {
    std::uint64_t bits =
        detail::load_bits(static_cast<int>(bytes(item.dtype)), item.dense[rank].data() + k * size_of(item.dtype));
    auto const one_form = [&](DType dtype, std::uint64_t x) {
        detail::FloatFormat format;
        if (!detail::float_format(dtype, format)) return x;
        double const value = detail::float_value(format, x);
        if (value == 0.0) return std::uint64_t{0};
        return value != value ? std::uint64_t{0x7ff8dead} : x;
    };
    if (!canonical) return bits;
    if (item.dtype != DType::c64) return one_form(item.dtype, bits);
    return one_form(DType::f32, bits & 0xffffffffU) * 31 + one_form(DType::f32, bits >> 32U) * 1000003;
}

/// The report by definition.
ReplicaReport expected_report(std::vector<Item> const& items, VerifyReplicasOptions const& options) {
    ReplicaReport report;
    report.tensors = items.size();
    for (std::size_t t = 0; t < items.size(); ++t) {
        Item const& item = items[t];
        DynamicDistribution const& d = item.distribution;
        // Ranks that hold the same elements of the same addend. Only empty parts are equal by chance.
        std::map<std::pair<oracle::Elements, Index>, std::set<int>> groups;
        for (Index rank : oracle::ranks(d)) {
            auto const elements = oracle::elements(d, rank);
            if (!elements.empty()) groups[{elements, oracle::addend_of(d, rank)}].insert(static_cast<int>(rank));
        }
        bool replicated = false;
        std::vector<ReplicaDifference> found;
        for (auto const& [what, members] : groups) {
            replicated = replicated || members.size() > 1;
            std::vector<std::vector<std::uint64_t>> kinds;
            std::vector<int> votes;
            ReplicaDifference one;
            one.tensor = t;
            one.name = errors::concat("tensor ", t);
            one.dtype = item.dtype;
            for (int rank : members) {
                std::vector<std::uint64_t> values;
                for (std::size_t k = 0; k < what.first.size(); ++k) {
                    values.push_back(element(item, static_cast<std::size_t>(rank), k, options.canonicalise));
                }
                std::size_t kind = 0;
                while (kind < kinds.size() && kinds[kind] != values) ++kind;
                if (kind == kinds.size()) {
                    kinds.push_back(values);
                    votes.push_back(0);
                }
                ++votes[kind];
                one.ranks.push_back(rank);
                one.contents.push_back(static_cast<int>(kind));
            }
            if (kinds.size() == 1) continue;
            int const most = *std::max_element(votes.begin(), votes.end());
            bool const tie = std::count(votes.begin(), votes.end(), most) != 1;
            auto const right = tie ? 0 : static_cast<int>(std::find(votes.begin(), votes.end(), most) - votes.begin());
            for (std::size_t m = 0; m < one.ranks.size(); ++m) {
                if (one.contents[m] == right) {
                    if (one.spot.reference < 0) one.spot.reference = one.ranks[m];
                } else {
                    if (one.spot.rank < 0) one.spot.rank = one.ranks[m];
                    if (!tie) one.odd.push_back(one.ranks[m]);
                }
            }
            auto const a = static_cast<std::size_t>(one.spot.rank);
            auto const b = static_cast<std::size_t>(one.spot.reference);
            for (std::size_t k = 0; k < what.first.size(); ++k) {
                if (element(item, a, k, options.canonicalise) == element(item, b, k, options.canonicalise)) continue;
                one.spot.found = true;
                one.spot.index = detail::unravel(d.shape(), what.first[k]);
                one.spot.value = element(item, a, k, false);
                one.spot.reference_value = element(item, b, k, false);
                break;
            }
            found.push_back(one);
        }
        std::sort(found.begin(), found.end(), [](auto const& x, auto const& y) { return x.ranks < y.ranks; });
        report.compared += replicated ? 1U : 0U;
        report.differences.insert(report.differences.end(), found.begin(), found.end());
    }
    return report;
}

/// Applies a repair to the dense bytes; false when a tie has no source.
bool repair_by_hand(std::vector<Item>& items, ReplicaReport& report, int source) {
    for (ReplicaDifference& one : report.differences) {
        DynamicDistribution const& d = items[one.tensor].distribution;
        one.source = one.spot.reference;
        if (one.is_tie()) {
            auto const at = source < 0 ? oracle::Coordinates{} : oracle::coordinates(d, source);
            if (at.empty()) return false;
            for (int rank : one.ranks) {  // the member of the source's replica
                auto const mine = oracle::coordinates(d, rank);
                bool same = true;
                for (std::size_t axis = 0; axis < at.size(); ++axis) {
                    same = same && (!d.placement(static_cast<int>(axis)).is_replicate() || at[axis] == mine[axis]);
                }
                if (same) one.source = rank;
            }
        }
        auto const place_of_source = std::find(one.ranks.begin(), one.ranks.end(), one.source) - one.ranks.begin();
        int const right = one.contents[static_cast<std::size_t>(place_of_source)];
        for (std::size_t m = 0; m < one.ranks.size(); ++m) {
            if (one.contents[m] != right) one.repaired.push_back(one.ranks[m]);
        }
    }
    for (ReplicaDifference const& one : report.differences) {
        Item& item = items[one.tensor];
        for (int rank : one.repaired) {
            auto const r = static_cast<std::size_t>(rank);
            item.dense[r] = item.dense[static_cast<std::size_t>(one.source)];
            for (std::size_t k = 0; k * size_of(item.dtype) < item.dense[r].size(); ++k) {
                std::memcpy(item.memory[r].data() + place(item, r, k), item.dense[r].data() + k * size_of(item.dtype),
                            size_of(item.dtype));
            }
        }
    }
    return true;
}

int check_case(std::uint64_t seed) {
    test::Limits limits;
    limits.max_ranks = 8;
    limits.max_elements = 200;
    test::Random random(seed, limits);
    int const ranks = static_cast<int>(random.between(1, 8));
    std::vector<Item> items;
    std::string text = errors::concat("seed ", seed, ", ", ranks, " ranks");
    for (Index i = random.between(0, 5); i > 0; --i) {
        items.push_back(random_item(ranks, random));
        text += errors::concat("\n", to_string(items.back().distribution), " of ",
                               to_string(items.back().distribution.shape()), " ", name(items.back().dtype));
    }
    INFO(text);
    VerifyReplicasOptions options;
    options.mode = VerifyMode::report;
    options.canonicalise = random.chance(50);
    options.block_bytes = random.between(1, 100);
    options.root = random.chance(60) ? static_cast<int>(random.between(0, ranks - 1)) : -1;

    std::vector<Item> after = items;
    ReplicaReport const expected = expected_report(items, options);
    ReplicaReport repaired = expected;
    bool const decided = repair_by_hand(after, repaired, options.root);
    if (!decided) after = items;

    struct Answers {
        ReplicaReport warned;
        ReplicaReport repaired;
        std::string error;
        std::string undecided;
    };
    std::vector<Answers> answers(static_cast<std::size_t>(ranks));
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        auto const rank = static_cast<std::size_t>(comm.rank());
        Answers& mine = answers[rank];
        std::vector<LocalTensor> tensors;
        for (std::size_t t = 0; t < items.size(); ++t) {
            Item& item = items[t];
            DynamicView view(nullptr, item.dtype, Shape{0});
            if (item.distribution.contains(comm.rank())) {
                DynamicShape const local = item.distribution.local_shape(comm.rank());
                view = DynamicView(item.memory[rank].data(), item.dtype, local, item.strides[rank]);
            }
            tensors.push_back({errors::concat("tensor ", t), item.distribution, view});
        }
        mine.warned = verify_replicas(tensors, comm, options);
        VerifyReplicasOptions other = options;
        other.mode = VerifyMode::error;
        try {
            verify_replicas(tensors, comm, other);
        } catch (MismatchError const& error) {
            mine.error = error.message();
        }
        other.mode = VerifyMode::repair;
        try {
            mine.repaired = verify_replicas(tensors, comm, other);
        } catch (MismatchError const& error) {
            mine.undecided = error.message();
        }
    });
    for (Answers const& answer : answers) {
        CHECK(explain(answer.warned) == explain(expected));
        CHECK(answer.warned == expected);
        CHECK(answer.error == answers[0].error);
        CHECK((answer.error.find(explain(expected)) != std::string::npos) == !expected.equal());
        CHECK(answer.undecided == answers[0].undecided);
        CHECK(answer.undecided.empty() == decided);
        if (decided) CHECK(answer.repaired == repaired);
    }
    for (std::size_t t = 0; t < items.size(); ++t) CHECK((items[t].memory == after[t].memory));
    if (decided) CHECK(expected_report(after, options).equal());
    return expected.equal() ? 0 : decided ? 2 : 1;
}

TEST_CASE("the report and the repair of random damage are those of comparing everything with everything") {
    int cases[3] = {};
    for (std::uint64_t seed : test::seeds(1000)) ++cases[check_case(seed)];
    MESSAGE(cases[0], " equal, ", cases[1], " undecided, ", cases[2], " repaired");
    for (int count : cases) CHECK(count > test::of_seeds(20));
}

TEST_CASE("the first difference is found around the bytes that are hashed at once, whatever the blocks are") {
    constexpr Index buffer = detail::ReplicaHasher::buffer_bytes;
    for (std::uint64_t seed : test::seeds(16)) {
        CAPTURE(seed);
        test::Random random(seed);
        Index const count = test::around(random, random.pick(std::vector<Index>{64, buffer / 4})) / 2;
        DynamicDistribution const copies = parse("(3,2):(R,S0)", Shape{2 * count});
        Index const place = random.pick(std::vector<Index>{1, count - 1, buffer / 4 - 1, buffer / 4}) % count;
        Index const minus = random.between(0, place);  // a zero; the rank that differs has -0.0
        int const odd = static_cast<int>(random.between(0, 5));
        VerifyReplicasOptions options;
        options.mode = VerifyMode::report;
        options.canonicalise = random.chance(50);
        options.block_bytes = random.pick(std::vector<Index>{4 * count - 1, 4 * count, 4 * count + 1, 4 * place + 4,
                                                             2 * count, INT64_MAX, std::max<Index>(count / 100, 1)});
        CAPTURE(count);
        CAPTURE(options.block_bytes);
        run_on_threads(6, [&](ThreadCommunicator& comm) {
            Index const step = (static_cast<int>(seed) + comm.rank()) % 2 + 1;  // some are dense
            std::vector<float> memory(static_cast<std::size_t>(step * count));
            for (Index i = 0; i < count; ++i) memory[static_cast<std::size_t>(i * step)] = static_cast<float>(i) + 0.5F;
            if (comm.rank() == odd) memory[static_cast<std::size_t>(place * step)] += 0.25F;
            if (minus != place) memory[static_cast<std::size_t>(minus * step)] = comm.rank() == odd ? -0.0F : 0.0F;
            std::vector<LocalTensor> const tensors{
                {"w", copies, DynamicView(memory.data(), DType::f32, Shape{count}, Indices{step})}};
            ReplicaReport const report = verify_replicas(tensors, comm, options);
            REQUIRE(report.differences.size() == 1);
            ReplicaDifference const& one = report.differences[0];
            CHECK(one.odd == std::vector<int>{odd});
            CHECK(one.spot.rank == odd);
            Index const first = options.canonicalise ? place : minus;
            CHECK(one.spot.index == Indices{odd % 2 * count + first});
        });
    }
}

}  // namespace
