// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/redistribute.hpp: law.meaning, for random transitions over ranks as threads.
#include <reshard/exec/redistribute.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/plan/equal_addends.hpp>
#include <reshard/plan/fold_chunks.hpp>
#include <reshard/plan/relay.hpp>

#include "support/cluster.hpp"
#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// Memory of a local tensor whose dimensions lie in a random order, with gaps and guards.
template <class T>
struct Padded {
    std::vector<T> memory;
    TensorView<T> view;
    T guard;

    Padded(DynamicShape const& shape, test::Random& random, T fill) : guard(fill) {
        std::vector<int> order;
        for (int dim = 0; dim < shape.rank(); ++dim) order.push_back(dim);
        std::shuffle(order.begin(), order.end(), random.engine());
        Indices strides = shape.extents();
        Index step = 1;
        for (int dim : order) {
            step *= random.between(1, 2);
            strides[dim] = step;
            step *= std::max<Index>(shape.extent(dim), 1);
        }
        memory.assign(static_cast<std::size_t>(step + 2), fill);
        view = TensorView<T>(memory.data() + 1, shape, strides);
    }
    template <class Visit>
    void each(Visit visit) {
        Index const size = view.size();
        for (Index k = 0; k < size; ++k) {
            Index rest = k;
            Index position = 0;
            for (int dim = view.rank() - 1; dim >= 0; --dim) {
                position += rest % view.extent(dim) * view.stride(dim);
                rest /= view.extent(dim);
            }
            visit(k, view.data()[position]);
        }
    }
};

/// Runs a plan on threads and compares what the result means with what the source meant.
template <class T>
void check_meaning(Plan<> const& plan, std::vector<T> const& global, test::Random& random, bool counted) {
    auto const size = static_cast<int>(std::max(oracle::rank_limit(plan.from()), oracle::rank_limit(plan.to())));
    auto const sources = oracle::scatter(global, plan.from(), random.engine());
    std::vector<Padded<T>> from;
    std::vector<Padded<T>> to;
    for (int rank = 0; rank < size; ++rank) {
        T const fill = static_cast<T>(77.0F);
        bool const gives = plan.from().contains(rank);
        from.emplace_back(gives ? plan.from().local_shape(rank) : DynamicShape(Shape<0>{}), random, fill);
        if (gives) {
            auto const& local = sources[static_cast<std::size_t>(rank)];
            from.back().each([&](Index k, T& element) { element = local[static_cast<std::size_t>(k)]; });
        }
        to.emplace_back(plan.to().contains(rank) ? plan.to().local_shape(rank) : DynamicShape(Shape<0>{}), random,
                        fill);
    }
    auto const before = from;
    std::vector<Traffic> moved(static_cast<std::size_t>(size));
    PrepareOptions options;  // of 1 addend at a time, of some, or all at once
    if (random.chance(66)) options.fold_elements = random.between(1, 60);
    run_on_threads(size, [&](ThreadCommunicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        auto job = prepare(plan, comm, from[r].view, to[r].view, options);
        Traffic const start = comm.traffic();
        job.run();
        moved[r] = comm.traffic() - start;
        job.run();  // replay
    });
    oracle::Locals<T> results(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
        auto const r = static_cast<std::size_t>(rank);
        bool const untouched =
            std::memcmp(before[r].memory.data(), from[r].memory.data(), from[r].memory.size() * sizeof(T)) == 0;
        REQUIRE(untouched);
        REQUIRE(to[r].memory.front() == to[r].guard);
        REQUIRE(to[r].memory.back() == to[r].guard);
        if (plan.to().contains(rank)) to[r].each([&](Index, T& element) { results[r].push_back(element); });
        if (!counted) continue;
        Cost const cost = plan.cost(rank);
        REQUIRE(moved[r].bytes_received == cost.received * static_cast<Index>(sizeof(T)));
        REQUIRE(moved[r].bytes_sent == cost.sent * static_cast<Index>(sizeof(T)));
        planning::Steps steps = plan.steps();
        if (options.fold_elements > 0) steps.fold_elements = options.fold_elements;
        bool const in_chunks = planning::FoldChunks(steps).count() > 1;
        REQUIRE((in_chunks || moved[r].messages_received == cost.messages_received));
    }
    auto const after = oracle::gather(results, plan.to());
    bool const same = after == global;
    REQUIRE(same);
}

template <class T>
void random_within(std::uint64_t seed, std::vector<Reduce> const& ops, bool mostly_cyclic = false) {
    test::Limits limits;
    limits.max_elements = 2000;
    limits.max_ranks = 12;
    limits.mostly_cyclic = mostly_cyclic;
    limits.ops = ops;
    test::Random random(seed, limits);
    DynamicMesh const mesh = random.mesh();
    DynamicShape const shape = random.shape();
    auto const from = random.distribution(mesh, shape);
    auto const to = random.distribution(mesh, shape);
    INFO(test::reproduction(seed, from, to));
    Plan<> const move = plan(from, to);
    bool const one_shot = random.chance(33);
    check_meaning(one_shot ? move.one_shot_fold() : move, random.values<T>(shape.size()), random, true);
}

/// A transition of which a plan gives ranks several pieces of what they owe; folded on the way, or not.
void random_in_pieces(std::uint64_t seed) {
    test::Random random(seed);
    std::vector<DynamicMesh> const meshes{DynamicMesh(Mesh{2, 2, 2}), DynamicMesh(Mesh{2, 4}), DynamicMesh(Mesh{3, 2})};
    std::vector<std::string> const placements{"R", "S0", "S0", "S1", "P+"};
    DynamicMesh const& mesh = random.pick(meshes);
    auto const any = [&] {
        std::string text = random.pick(placements);
        for (int axis = 1; axis < mesh.axes(); ++axis) text += errors::concat(",", random.pick(placements));
        return distribution(mesh, Shape{48, 16}, text);
    };
    for (;;) {
        Plan<> const move = plan(any(), any());
        bool pieces = false;
        for (planning::Layout const& layout : move.steps().layouts) {
            for (int axis = 0; axis < mesh.axes(); ++axis) {
                pieces = pieces || layout.distribution.signature()[axis].split() == SplitKind::strided;
            }
        }
        if (!pieces) continue;
        INFO(test::reproduction(seed, move.from(), move.to()));
        auto const values = random.values<std::int64_t>(48 * 16);
        check_meaning(move, values, random, true);
        check_meaning(move.relayed(random.between(2, 4)), values, random, true);
        return check_meaning(move.one_shot_fold(), values, random, true);
    }
}

template <class T>
void random_across(std::uint64_t seed, bool mostly_cyclic = false) {
    test::Limits limits;
    limits.max_elements = 2000;
    limits.max_ranks = 8;
    limits.mostly_cyclic = mostly_cyclic;
    limits.ops = {Reduce::sum};
    test::Random random(seed, limits);
    DynamicShape const shape = random.shape();
    auto const from = random.distribution(random.mesh(), shape);
    auto const to = random.distribution(random.mesh(), shape);
    INFO(test::reproduction(seed, from, to));
    check_meaning(plan_across(from, to), random.values<T>(shape.size()), random, true);
}

template <class T>
void random_relayed(std::uint64_t seed, std::vector<Reduce> const& ops) {
    test::Limits limits;
    limits.max_elements = 2000;
    limits.max_ranks = 12;
    limits.ops = ops;
    test::Random random(seed, limits);
    test::Cluster const cluster(random);
    DynamicShape const shape = random.shape();
    auto const from = random.distribution(cluster.mesh, shape);
    auto const to = random.distribution(cluster.mesh, shape);
    INFO(test::reproduction(seed, from, to), ", nodes of ", cluster.ranks_per_node);
    check_meaning(plan(from, to).relayed(cluster.ranks_per_node), random.values<T>(shape.size()), random, true);
}

template <class T>
void random_relayed_across(std::uint64_t seed) {
    test::Limits limits;
    limits.max_elements = 2000;
    limits.max_ranks = 8;
    limits.ops = {Reduce::sum};
    test::Random random(seed, limits);
    test::Cluster const cluster(random);
    DynamicShape const shape = random.shape();
    auto const from = random.distribution(random.mesh(), shape);
    auto const to = random.distribution(cluster.mesh, shape);
    Index const ranks_per_node = random.chance(30) ? all_ranks : cluster.ranks_per_node;
    INFO(test::reproduction(seed, from, to), ", nodes of ", ranks_per_node);
    check_meaning(plan_across(from, to).relayed(ranks_per_node), random.values<T>(shape.size()), random, true);
}

template <class T>
void random_averages(std::uint64_t seed) {
    test::Limits limits;
    limits.max_elements = 1000;
    limits.max_ranks = 12;
    limits.ops = {Reduce::avg};
    test::Random random(seed, limits);
    test::Cluster const cluster(random);
    DynamicShape const shape = random.shape();
    auto const from = random.distribution(cluster.mesh, shape);
    bool const across = random.chance(25);
    limits.partial = !across;  // between meshes an average is only folded
    test::Random other(seed + 1'000'000, limits);
    auto const to = other.distribution(across ? other.mesh() : cluster.mesh, shape);
    if (!across && fills_average(from.signature(), to.signature())) return;
    Plan<> move = across ? plan_across(from, to) : plan(from, to);
    bool const folds = move.steps().find(planning::StepKind::fold) != nullptr;
    // Thirds that are kept along one axis while others are folded along another are not exact.
    if (folds && oracle::owed(to).addends > 1) return;
    if (random.chance(33)) {
        move = move.relayed(across && random.chance(30) ? all_ranks : cluster.ranks_per_node);
    } else if (!across && random.chance(33)) {
        move = move.one_shot_fold();
    }
    INFO(test::reproduction(seed, from, to));
    check_meaning(move, random.values<T>(shape.size()), random, true);
}

/// Whatever way addends take, they are folded in the order of the mesh, in float, and rounded once. Sums of these
/// depend on the order.
template <class T>
void check_bits(std::uint64_t seed, Reduce op) {
    test::Limits limits;
    limits.max_elements = 300;
    limits.max_ranks = 8;
    limits.ops = {op};
    test::Random random(seed, limits);
    test::Cluster const cluster(random);
    bool const relayed = random.chance(40);
    DynamicMesh const mesh = relayed ? cluster.mesh : random.mesh();
    DynamicShape const shape = random.shape();
    auto const from = random.distribution(mesh, shape);
    auto const owed = oracle::owed(from);
    if (owed.addends == 1) return;
    limits.partial = false;
    test::Random other(seed + 1'000'000, limits);
    bool const across = random.chance(40);
    auto const to = other.distribution(across ? other.mesh() : mesh, shape);
    std::vector<std::vector<T>> addends(oracle::at(owed.addends));
    for (std::vector<T>& one : addends) {
        for (Index i = 0; i < shape.size(); ++i) {
            auto const whole = static_cast<float>(random.between(-1000, 1000));
            one.push_back(static_cast<T>(std::ldexp(whole, static_cast<int>(random.between(-14, 14)))));
        }
    }
    std::vector<T> want;
    for (std::size_t i = 0; i < oracle::at(shape.size()); ++i) {
        std::vector<T> parts;
        for (std::vector<T> const& one : addends) parts.push_back(one[i]);
        want.push_back(oracle::fold(op, parts));
    }
    Plan<> move = across ? plan_across(from, to) : plan(from, to);
    if (relayed) {
        move = move.relayed(across && random.chance(30) ? all_ranks : cluster.ranks_per_node);
    } else if (!across && random.chance(50)) {
        move = move.one_shot_fold();
    }
    PrepareOptions options;
    if (random.chance(50)) options.fold_elements = random.between(1, 60);
    INFO(test::reproduction(seed, from, to));
    int const size = static_cast<int>(std::max(oracle::rank_limit(from), oracle::rank_limit(to)));
    std::vector<int> wrong(oracle::at(size), 0);
    run_on_threads(size, [&](ThreadCommunicator& comm) {
        Index const me = comm.rank();
        auto const of_mine = [&](DynamicDistribution const& side, std::vector<T> const& global) {
            std::vector<T> mine;
            for (Index i : oracle::elements(side, me)) mine.push_back(global[oracle::at(i)]);
            return mine;
        };
        auto const local = [&](DynamicDistribution const& side) {
            return side.contains(me) ? side.local_shape(me) : DynamicShape(Shape<0>{});
        };
        std::vector<T> source;
        if (from.contains(me)) source = of_mine(from, addends[oracle::at(oracle::addend_of(from, me))]);
        std::vector<T> expected;
        if (to.contains(me)) expected = of_mine(to, want);
        std::vector<T> got(expected.size());
        redistribute(move, comm, TensorView<T const>(source.data(), local(from)), TensorView<T>(got.data(), local(to)),
                     options);
        bool const same = got.empty() || std::memcmp(got.data(), expected.data(), got.size() * sizeof(T)) == 0;
        wrong[oracle::at(me)] = same ? 0 : 1;
    });
    CHECK(wrong == std::vector<int>(wrong.size(), 0));
}

/// Carries out a plan on dense local arrays, one per rank number.
oracle::Locals<std::uint64_t> carry_out(Plan<> const& plan, oracle::Locals<std::uint64_t> const& source) {
    auto const size = static_cast<int>(std::max(oracle::rank_limit(plan.from()), oracle::rank_limit(plan.to())));
    oracle::Locals<std::uint64_t> result(static_cast<std::size_t>(size));
    run_on_threads(size, [&](ThreadCommunicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        auto const shape = [&](DynamicDistribution const& side) {
            return side.contains(comm.rank()) ? side.local_shape(comm.rank()) : DynamicShape(Shape<0>{});
        };
        result[r].resize(static_cast<std::size_t>(shape(plan.to()).size()));
        std::uint64_t const* const from = r < source.size() ? source[r].data() : nullptr;
        redistribute(plan, comm, TensorView<std::uint64_t const>(from, shape(plan.from())),
                     TensorView<std::uint64_t>(result[r].data(), shape(plan.to())));
    });
    return result;
}
/// Over all elements of all ranks, modulo 2^64.
std::uint64_t inner_product(oracle::Locals<std::uint64_t> const& a, oracle::Locals<std::uint64_t> const& b) {
    std::uint64_t sum = 0;
    for (std::size_t r = 0; r < std::min(a.size(), b.size()); ++r)
        for (std::size_t i = 0; i < a[r].size(); ++i) sum += a[r][i] * b[r].at(i);
    return sum;
}

/// <A x, y> = <x, At y> for every x that is valid under from() and every y that is valid in the dual of to(): copies
/// are equal, nothing else is asked of them. Copies (R) meet addends (P+) in the product, which therefore counts
/// every element of the tensor once.
void check_adjoint(Plan<> const& plan, test::Random& random) {
    auto const values = [&] {
        std::vector<std::uint64_t> result(static_cast<std::size_t>(plan.from().shape().size()));
        for (auto& value : result) value = random.engine()();
        return result;
    };
    Plan<> const adjoint = plan.adjoint();
    auto const x = oracle::scatter(values(), plan.from(), random.engine());
    auto const y = oracle::scatter(values(), adjoint.from(), random.engine());
    auto const left = inner_product(carry_out(plan, x), y);
    auto const right = inner_product(x, carry_out(adjoint, y));
    REQUIRE(left == right);
}

}  // namespace

TEST_SUITE("exec/redistribute") {
    TEST_CASE("law.meaning: integers, every op that has an identity") {
        for (std::uint64_t seed : test::seeds(300)) {
            random_within<std::int64_t>(seed, {Reduce::sum, Reduce::min, Reduce::max, Reduce::product, Reduce::band,
                                               Reduce::bor, Reduce::bxor});
        }
    }
    TEST_CASE("law.meaning: floats of all sizes") {
        for (std::uint64_t seed : test::seeds(150)) {
            random_within<double>(seed, {Reduce::sum, Reduce::min, Reduce::max});
            random_within<BFloat16>(seed, {Reduce::sum, Reduce::min, Reduce::max});
            random_within<Float16>(seed, {Reduce::max});
        }
    }
    TEST_CASE("law.meaning: averages, direct, at once, relayed and between meshes") {
        for (std::uint64_t seed : test::seeds(100)) {
            random_averages<double>(seed);
            random_averages<BFloat16>(seed + 5000);
        }
    }
    TEST_CASE("law.bits: floats are folded in the order of the mesh, whatever way their addends take") {
        for (std::uint64_t seed : test::seeds(80)) {
            check_bits<float>(seed, Reduce::sum);
            check_bits<float>(seed + 1000, Reduce::avg);
            check_bits<BFloat16>(seed + 2000, Reduce::sum);
            check_bits<double>(seed + 4000, Reduce::avg);
            check_bits<float>(seed + 5000, Reduce::product);
        }
    }
    TEST_CASE("law.meaning: bytes") {
        for (std::uint64_t seed : test::seeds(150)) random_within<std::uint8_t>(seed, {Reduce::bxor, Reduce::sum});
    }
    TEST_CASE("law.meaning: between meshes") {
        for (std::uint64_t seed : test::seeds(300)) random_across<std::int32_t>(seed);
    }
    TEST_CASE("law.meaning: block-cyclic on either side, nested, copied, partial, between meshes") {
        for (std::uint64_t seed : test::seeds(400)) {
            random_within<std::int32_t>(seed, {Reduce::sum, Reduce::max}, true);
            random_across<std::int16_t>(seed, true);
        }
    }
    TEST_CASE("law.meaning: in pieces, direct, relayed and at once") {
        for (std::uint64_t seed : test::seeds(200)) random_in_pieces(seed);
    }
    TEST_CASE("law.bits: a fold in pieces, at once and chunk by chunk, alone and in a batch") {
        Shape const shape{48, 48};
        Plan<> const move = plan(parse("(2,2,3):(S0,S0,P+)", shape), parse("(2,2,3):(S1,P+,S1)", shape));
        auto const addend = [](Index k, Index i) {  // sums depend on the order
            return (k == 0 ? 1e5F : 1.0F) / static_cast<float>(3 + (k * 31 + i * 7) % 101);
        };
        std::vector<float> want;
        for (Index i = 0; i < shape.size(); ++i) {
            want.push_back(oracle::fold<float>(Reduce::sum, {addend(0, i), addend(1, i), addend(2, i)}));
        }
        struct Case {
            Index fold_elements;
            Index chunks;
        };
        // A rank folds 24 rows, 12 of each half; of five chunks one has rows of both.
        for (Case const& one : {Case{INT64_MAX, 1}, Case{117, 5}, Case{100, 6}, Case{1, 64}}) {
            CAPTURE(one.chunks);
            planning::Steps const steps = move.steps().folding(one.fold_elements);
            planning::Step const& fold = *steps.find(planning::StepKind::fold);
            REQUIRE(to_string(steps.to(fold).distribution) == "(2,2,3):(S1,S0:str2,S1)");
            REQUIRE(planning::FoldChunks(steps).count() == one.chunks);
            oracle::Locals<float> alone(12);
            oracle::Locals<float> batched(12);
            run_on_threads(12, [&](ThreadCommunicator& comm) {
                Index const me = comm.rank();
                std::vector<float> source;
                for (Index i : oracle::elements(move.from(), me)) {
                    source.push_back(addend(oracle::addend_of(move.from(), me), i));
                }
                TensorView<float const> const from(source.data(), move.from().local_shape(me));
                auto const to = [&](oracle::Locals<float>& results) {
                    DynamicShape const local = move.to().local_shape(me);
                    results[oracle::at(me)].resize(oracle::at(local.size()));
                    return TensorView<float>(results[oracle::at(me)].data(), local);
                };
                PrepareOptions const options{.fold_elements = one.fold_elements};
                redistribute(move, comm, from, to(alone), options);
                Batch batch;
                batch.add(move, from, to(batched), "in pieces", options);
                redistribute(batch, comm);
            });
            bool const same = oracle::gather(alone, move.to()) == want && oracle::gather(batched, move.to()) == want;
            CHECK(same);
        }
    }
    TEST_CASE("law.meaning: relayed, on one mesh and between meshes") {
        for (std::uint64_t seed : test::seeds(300)) {
            random_relayed<std::int32_t>(seed, {Reduce::sum, Reduce::max});
            random_relayed_across<std::int64_t>(seed);
        }
    }
    TEST_CASE("equal addends: every rank owes its share of the value, whatever else moves") {
        Shape const shape{6, 4};
        for (char const* text : {"R,R", "R,S0", "R,S1:bal"}) {
            auto const from = distribution(Mesh{4, 2}, shape, text);
            auto const to = distribution(Mesh{4, 2}, shape, "P+,R");
            std::vector<double> global;
            for (int i = 0; i < 24; ++i) global.push_back(i);
            test::Random random(1);
            oracle::Locals<double> const source = oracle::scatter(global, from, random.engine());
            run_on_threads(8, [&](ThreadCommunicator& comm) {
                Tensor<double> const mine =
                    redistribute(plan_equal_addends(from, to), comm,
                                 TensorView<double const>(source[static_cast<std::size_t>(comm.rank())].data(),
                                                          from.local_shape(comm.rank())));
                for (std::size_t i = 0; i < 24; ++i) REQUIRE(mine.data()[i] == global[i] / 4);
            });
        }
    }
    TEST_CASE("law.then: two plans joined leave the bits of the two, one after the other, and no rank receives more") {
        int joined = 0;
        for (std::uint64_t seed : test::seeds(300)) {
            test::Limits limits;
            limits.max_elements = 500;
            limits.max_ranks = 8;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicMesh const mesh = random.mesh();
            DynamicShape const shape = random.shape();
            auto const a = random.distribution(mesh, shape);
            auto const b = random.distribution(mesh, shape);
            bool const across = random.chance(30);
            auto const c = random.distribution(across ? random.mesh() : mesh, shape);
            Plan<> const first = plan(a, b);
            Plan<> const second = across ? plan_across(b, c) : plan(b, c);
            bool const folds = first.steps().find(planning::StepKind::fold) != nullptr &&
                               second.steps().find(planning::StepKind::fold) != nullptr;
            INFO(test::reproduction(seed, a, b), " -> ", to_string(c));
            if (folds) {
                CHECK_THROWS_AS(static_cast<void>(first.then(second)), TransitionError);
                continue;
            }
            ++joined;
            Plan<> const whole = first.then(second);
            bool owes = false;
            for (auto const* side : {&a, &b, &c})
                for (PlacementForm const& placement : side->signature().placements)
                    owes = owes || placement.is_partial();
            for (Index rank = 0; !owes && rank < oracle::rank_limit(c); ++rank) {
                REQUIRE(whole.cost(rank).received <= first.cost(rank).received + second.cost(rank).received);
            }
            auto const source = oracle::scatter(random.values<std::uint64_t>(shape.size()), a, random.engine());
            auto const by_two = oracle::gather(carry_out(second, carry_out(first, source)), c);
            REQUIRE(oracle::gather(carry_out(whole, source), c) == by_two);
            REQUIRE(whole == (across ? plan_across(a, c) : plan(a, c)));
        }
        CHECK(joined >= test::of_seeds(100));
    }
    TEST_CASE("plans that cannot be joined say why; relayed ones stay relayed") {
        Shape const shape{8, 6};
        auto const of = [&](char const* text) { return distribution(Mesh{4, 2}, shape, text); };
        auto const joined = [](Plan<> const& a, Plan<> const& b) { static_cast<void>(a.then(b)); };
        CHECK_THROWS_WITH_AS(joined(plan(of("S0,R"), of("R,R")), plan(of("S0,R"), of("R,R"))),
                             doctest::Contains("do not meet. Fix: start the second where the first ends."),
                             MismatchError);
        CHECK_THROWS_WITH_AS(joined(plan(of("S0,R"), of("R,R")).relayed(2), plan(of("R,R"), of("S1,R"))),
                             doctest::Contains("travel differently (relayed, one-shot). Fix: join direct plans"),
                             MismatchError);
        CHECK_THROWS_WITH_AS(joined(plan(of("P+,P+"), of("R,P+")), plan(of("R,P+"), of("R,R"))),
                             doctest::Contains("both fold or scale"), TransitionError);
        CHECK_THROWS_WITH_AS(joined(plan(of("P+,P+"), of("Pavg,Pavg")), plan(of("Pavg,Pavg"), of("R,R"))),
                             doctest::Contains("both fold or scale"), TransitionError);
        CHECK_THROWS_WITH_AS(joined(plan(of("R,R"), of("P+,R")), plan(of("P+,R"), of("Pavg,R"))),
                             doctest::Contains("Plan::then: (4,2):(R,R) -> (4,2):(P+,R) and (4,2):(P+,R) -> "
                                               "(4,2):(Pavg,R) owe averages of copies"),
                             TransitionError);
        CHECK_THROWS_WITH_AS(joined(plan(of("P+,R"), of("R,R")), plan(of("R,R"), of("Pavg,R"))),
                             doctest::Contains("owe averages of copies"), TransitionError);
        CHECK_THROWS_WITH_AS(joined(plan(of("R,R"), of("Pavg,R")), plan(of("Pavg,R"), of("P+,R"))),
                             doctest::Contains("owe averages of copies"), TransitionError);
        for (char const* between : {"R,R", "S0,R"}) {  // rounded once, where Pavg -> P+ rounds each addend
            CHECK_THROWS_WITH_AS(joined(plan(of("Pavg,R"), of(between)), plan(of(between), of("P+,R"))),
                                 doctest::Contains("would divide, and round, each addend. Fix: carry out"),
                                 TransitionError);
        }
        CHECK(plan(of("Pavg,S0"), of("P+,S0")).then(plan(of("P+,S0"), of("P+,R"))) == plan(of("Pavg,S0"), of("P+,R")));
        CHECK(plan(of("R,S0"), of("Pavg,S0")).then(plan(of("Pavg,S0"), of("Pavg,R"))) ==
              plan(of("R,S0"), of("Pavg,R")));
        CHECK(plan_across(of("S0,R"), of("R,R")).then(plan(of("R,R"), of("S1,R"))) ==
              plan_across(of("S0,R"), of("S1,R")));
        Plan<> const relayed = plan(of("P+,S0"), of("S1,S0")).relayed(4).then(plan(of("S1,S0"), of("R,R")).relayed(4));
        CHECK(relayed == plan(of("P+,S0"), of("R,R")).relayed(4));
        test::Random random(1);
        check_meaning(relayed, random.values<std::int32_t>(shape.size()), random, true);
    }
    TEST_CASE("law.meaning: a relayed fold, where nodes split an axis before one that cuts") {
        test::Random random(1);
        Shape const shape{8, 6};
        for (char const* source : {"P+,S0", "P+,S1", "S0,P+", "P+,P+"}) {
            for (char const* target : {"R,S0", "R,S1", "S0,R", "R,R"}) {
                auto const from = distribution(Mesh{4, 4}, shape, source);
                auto const to = distribution(Mesh{4, 4}, shape, target);
                for (Index const ranks_per_node : {2, 4, 8}) {
                    INFO(source, " -> ", target, ", nodes of ", ranks_per_node);
                    auto const values = random.values<std::int32_t>(shape.size());
                    check_meaning(plan(from, to).relayed(ranks_per_node), values, random, true);
                }
            }
        }
    }
    TEST_CASE("relays cast on the way in, and pass on what is cast") {
        for (std::uint64_t seed : test::seeds(150)) {
            test::Limits limits;
            limits.max_elements = 500;
            limits.max_ranks = 12;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            test::Cluster const cluster(random);
            DynamicShape const shape = random.shape();
            auto const from = random.distribution(cluster.mesh, shape);
            auto const to = random.distribution(cluster.mesh, shape);
            INFO(test::reproduction(seed, from, to), ", nodes of ", cluster.ranks_per_node);
            Plan<> const p = plan(from, to).relayed(cluster.ranks_per_node);
            auto const global = random.values<float>(shape.size());
            auto sources = oracle::scatter(global, from, random.engine());
            auto const size = static_cast<int>(oracle::rank_limit(from));
            oracle::Locals<double> results(static_cast<std::size_t>(size));
            run_on_threads(size, [&](ThreadCommunicator& comm) {
                auto const r = static_cast<std::size_t>(comm.rank());
                auto const shape_of = [&](DynamicDistribution const& side) {
                    return side.contains(comm.rank()) ? side.local_shape(comm.rank()) : DynamicShape(Shape<0>{});
                };
                results[r].resize(static_cast<std::size_t>(shape_of(to).size()));
                redistribute(p, comm, TensorView<float const>(sources[r].data(), shape_of(from)),
                             TensorView<double>(results[r].data(), shape_of(to)), Casting{});
            });
            bool const same = oracle::gather(results, to) == std::vector<double>(global.begin(), global.end());
            REQUIRE(same);
        }
    }
    TEST_CASE("law.adjoint: on one mesh and between meshes, in exact arithmetic") {
        for (std::uint64_t seed : test::seeds(200)) {
            test::Limits limits;
            limits.max_elements = 500;
            limits.max_ranks = 8;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicShape const shape = random.shape();
            DynamicMesh const mesh = random.mesh();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(mesh, shape);
            auto const away = random.distribution(random.mesh(), shape);
            {
                INFO(test::reproduction(seed, from, to));
                check_adjoint(plan(from, to), random);
                check_adjoint(plan(from, to).relayed(random.between(2, 4)), random);
                check_adjoint(plan(from, to).one_shot_fold(), random);
            }
            INFO(test::reproduction(seed, from, away));
            check_adjoint(plan_across(from, away), random);
            check_adjoint(plan_across(from, away).relayed(all_ranks), random);
        }
    }
}
