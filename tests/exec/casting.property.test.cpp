// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/detail/value_change.hpp: a move that casts and scales leaves what a move followed
// by one conversion of every value would leave, for random transitions, pairs of types and factors.
#include <reshard/exec/redistribute.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// One value, by the kernel that tests/memory/convert.test.cpp compares with exact arithmetic.
template <class T, class S>
T converted(S value, double factor) {
    transport::StridedBox from;
    from.element_bytes = sizeof(S);
    transport::StridedBox to;
    to.element_bytes = sizeof(T);
    T result{};
    transport::convert(reinterpret_cast<std::byte const*>(&value), from, dtype_of<S>,
                       reinterpret_cast<std::byte*>(&result), to, dtype_of<T>, factor);
    return result;
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

bool owes(DynamicDistribution const& d) {
    return oracle::owed(d).addends != 1 || [&] {
        for (int axis = 0; axis < d.mesh().axes(); ++axis)
            if (d.placement(axis).is_partial()) return true;
        return false;
    }();
}

Reduce op_of(DynamicDistribution const& d) {
    for (int axis = 0; axis < d.mesh().axes(); ++axis)
        if (d.placement(axis).is_partial()) return d.placement(axis).op();
    return Reduce::sum;
}

/// Dense local tensors; every third destination is transposed in memory.
template <class S, class T>
void check_casting(Plan<> const& plan, test::Random& random, double factor, bool use_workspace) {
    std::vector<S> const global = random.values<S>(plan.from().shape().size());
    auto const size = static_cast<int>(std::max(oracle::rank_limit(plan.from()), oracle::rank_limit(plan.to())));
    auto const sources = oracle::scatter(global, plan.from(), random.engine());
    oracle::Locals<T> results(static_cast<std::size_t>(size));
    std::vector<Traffic> moved(static_cast<std::size_t>(size));
    bool const transposed = random.chance(33);
    Index const fold_elements = random.chance(50) ? random.between(1, 60) : 0;
    run_on_threads(size, [&](ThreadCommunicator& comm) {
        int const rank = comm.rank();
        auto const r = static_cast<std::size_t>(rank);
        auto const shape = [&](DynamicDistribution const& side) {
            return side.contains(rank) ? side.local_shape(rank) : DynamicShape(Shape<0>{});
        };
        DynamicShape const to = shape(plan.to());
        std::vector<T> memory(static_cast<std::size_t>(to.size()));
        Indices strides = row_major_strides(to);
        if (transposed) {  // the first dimension is the dense one
            Index step = 1;
            for (int dim = 0; dim < to.rank(); ++dim) {
                strides[dim] = step;
                step *= std::max<Index>(to.extent(dim), 1);
            }
        }
        S const* const from = r < sources.size() ? sources[r].data() : nullptr;
        Casting options{factor};
        options.fold_elements = fold_elements;
        std::vector<std::byte> workspace;
        if (use_workspace) {
            workspace.resize(static_cast<std::size_t>(workspace_bytes(plan, rank, dtype_of<S>, options)));
            options.workspace = workspace;
        }
        auto job = prepare(plan, comm, TensorView<S const>(from, shape(plan.from())),
                           TensorView<T>(memory.data(), to, strides), options);
        Traffic const start = comm.traffic();
        job.run();
        moved[r] = comm.traffic() - start;
        job.run();
        for (std::size_t k = 0; k != memory.size(); ++k) {
            auto rest = static_cast<Index>(k);
            Index position = 0;
            for (int dim = to.rank() - 1; dim >= 0; --dim) {
                position += rest % to.extent(dim) * strides[dim];
                rest /= to.extent(dim);
            }
            results[r].push_back(memory[static_cast<std::size_t>(position)]);
        }
    });
    std::vector<T> want;
    for (S value : global) want.push_back(converted<T>(value, factor));
    if (owes(plan.to())) {
        bool const equal = oracle::gather(results, plan.to()) == want;
        REQUIRE(equal);
    } else {
        for (Index rank : oracle::ranks(plan.to())) {
            std::vector<T> mine;
            for (Index i : oracle::elements(plan.to(), rank)) mine.push_back(want[static_cast<std::size_t>(i)]);
            REQUIRE(same_bits(results[static_cast<std::size_t>(rank)], mine));
        }
    }
    if (plan.is_local() || owes(plan.from())) return;
    for (int rank = 0; rank < size; ++rank) {  // the smaller of the two types travels
        Index const bytes = static_cast<Index>(std::min(sizeof(S), sizeof(T)));
        auto const& traffic = moved[static_cast<std::size_t>(rank)];
        REQUIRE(traffic.bytes_received == plan.cost(rank).received * bytes);
        REQUIRE(traffic.bytes_sent == plan.cost(rank).sent * bytes);
    }
}

/// A factor the destination can have: exact where addends stay addends, so that their sum is that of the values.
template <class S, class T>
double factor_for(test::Random& random, DynamicDistribution const& to) {
    if constexpr (std::is_integral_v<S> || std::is_integral_v<T>) {
        return 1.0;
    } else {
        std::vector<double> const any{1.0, 0.5, -2.0, 0.3, 1.0 / 3.0, 1e-3, -0.7, 0x1p-20};
        if (!owes(to)) return random.pick(any);
        Reduce const op = op_of(to);
        if (op == Reduce::product) return 1.0;
        if (op == Reduce::min || op == Reduce::max) return random.pick(std::vector<double>{1.0, 0.3, 2.0});
        return random.pick(std::vector<double>{1.0, 0.5, -2.0});
    }
}

template <class S, class T>
void random_casts(std::uint64_t seed, std::vector<Reduce> const& ops) {
    test::Limits limits;
    limits.max_elements = 600;
    limits.max_ranks = 8;
    limits.ops = ops;
    test::Random random(seed, limits);
    DynamicShape const shape = random.shape();
    DynamicMesh const mesh = random.mesh();
    bool const across = random.chance(30);
    auto const from = random.distribution(mesh, shape);
    auto const to = random.distribution(across ? random.mesh() : mesh, shape);
    double const factor = factor_for<S, T>(random, to);
    INFO(test::reproduction(seed, from, to));
    CAPTURE(name(dtype_of<S>));
    CAPTURE(name(dtype_of<T>));
    CAPTURE(factor);
    check_casting<S, T>(across ? plan_across(from, to) : plan(from, to), random, factor, random.chance(50));
}
}  // namespace

TEST_SUITE("exec/casting") {
    TEST_CASE("law.cast: floats of all sizes into each other, scaled") {
        std::vector<Reduce> const ops{Reduce::sum, Reduce::min, Reduce::max};
        for (std::uint64_t seed : test::seeds(80)) {
            random_casts<float, BFloat16>(seed, ops);
            random_casts<BFloat16, float>(seed + 1000, ops);
            random_casts<Float16, BFloat16>(seed + 2000, {Reduce::max});
            random_casts<double, Float16>(seed + 3000, {Reduce::min});
            random_casts<float, float>(seed + 4000, ops);
            random_casts<float, double>(seed + 5000, ops);
        }
    }
    TEST_CASE("law.cast: integers and floats") {
        for (std::uint64_t seed : test::seeds(60)) {
            random_casts<float, std::int32_t>(seed, {Reduce::sum, Reduce::max});
            random_casts<std::int64_t, float>(seed + 1000, {Reduce::min});
            random_casts<std::int32_t, std::int64_t>(seed + 2000, {Reduce::max, Reduce::min});
            random_casts<std::uint8_t, double>(seed + 3000, {Reduce::max});
            random_casts<std::uint16_t, std::uint8_t>(seed + 4000, {Reduce::max, Reduce::min, Reduce::band});
        }
    }
}

TEST_SUITE("exec/prepare: casting") {
    TEST_CASE("addends are folded in the source's type, and their result is rounded once more, not each of them") {
        // 256 + 1 is a tie of bfloat16 that rounds to 256; in float the three addends are 257.5.
        for (char const* to : {"(4):(R)", "(4):(S0)"}) {
            Plan<> const reduce = plan(distribution(Mesh{4}, Shape{8}, "P+"), parse(to, Shape{8}));
            run_on_threads(4, [&](ThreadCommunicator& comm) {
                float const addends[] = {256.0F, 1.0F, 0.5F, 0.25F};
                std::vector<float> const mine(8, addends[comm.rank()]);
                std::vector<BFloat16> result(8);
                DynamicShape const shape = reduce.to().local_shape(comm.rank());
                redistribute(reduce, comm, TensorView<float const>(mine.data(), Shape{8}),
                             TensorView<BFloat16>(result.data(), shape), Casting{2.0});
                for (Index i = 0; i < shape.size(); ++i) {
                    CHECK(static_cast<float>(result[static_cast<std::size_t>(i)]) == 516.0F);  // 515.5, ties of 4
                }
            });
        }
    }

    TEST_CASE("sums become averages and back in the one rounding that casts and scales") {
        Plan<> const averages =
            plan(distribution(Mesh{3, 2}, Shape{4}, "P+,S0"), distribution(Mesh{3, 2}, Shape{4}, "Pavg,R"));
        run_on_threads(6, [&](ThreadCommunicator& comm) {
            std::vector<float> const mine(2, 0x1.01p0F);  // times 3 rounds in bfloat16, times 1.5 too
            std::vector<BFloat16> result(4);
            redistribute(averages, comm, TensorView<float const>(mine.data(), Shape{2}),
                         TensorView<BFloat16>(result.data(), Shape{4}), Casting{0.5});
            for (BFloat16 value : result) CHECK(value == converted<BFloat16>(0x1.01p0F, 1.5));
        });
        // Without a communicator, and back.
        auto const sum = distribution<Partial<>>(Mesh<3>{}, Shape<4>{});
        auto const average = distribution<Partial<Reduce::avg>>(Mesh<3>{}, Shape<4>{});
        std::vector<float> const values{1.0F, -3.5F, 0x1.8p100F, 0.1F};
        std::vector<double> wide(4);
        redistribute(plan(average, sum), TensorView<float const>(values.data(), Shape{4}),
                     TensorView<double>(wide.data(), Shape{4}), 1, Casting{3.0});
        for (std::size_t i = 0; i < 4; ++i) CHECK(wide[i] == static_cast<double>(values[i]));
    }

    TEST_CASE("what a fill puts where no data goes is the identity of the destination's type, not scaled") {
        auto const whole = distribution<Replicate>(Mesh<2>{}, Shape<4>{});
        auto const owed = distribution<Partial<>>(Mesh<2>{}, Shape<4>{});
        auto const factors = distribution<Partial<Reduce::product>>(Mesh<2>{}, Shape<4>{});
        std::vector<float> const values{1.25F, 2, 3, 4};
        for (int rank : {0, 1}) {
            std::vector<BFloat16> result(4);
            redistribute(plan(whole, owed), TensorView<float const>(values.data(), Shape{4}),
                         TensorView<BFloat16>(result.data(), Shape{4}), rank, Casting{-2.0});
            for (std::size_t i = 0; i < 4; ++i) {
                CHECK(result[i].bits == (rank == 0 ? converted<BFloat16>(values[i], -2.0).bits : 0x8000));  // -0.0
            }
            std::vector<std::int16_t> ones(4);
            redistribute(plan(whole, factors), TensorView<float const>(values.data(), Shape{4}),
                         TensorView<std::int16_t>(ones.data(), Shape{4}), rank, Casting{});
            CHECK(ones == (rank == 0 ? std::vector<std::int16_t>{1, 2, 3, 4} : std::vector<std::int16_t>(4, 1)));
        }
    }

    TEST_CASE("a factor needs no cast, and typed views of one type take plain options") {
        auto const rows = distribution<Shard<0>>(Mesh<2>{}, Shape<4>{});
        auto const whole = distribution<Replicate>(Mesh<2>{}, Shape<4>{});
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<float> const mine{1.0F + static_cast<float>(comm.rank()), 5.0F};
            std::vector<float> result(4);
            redistribute(plan(rows, whole), comm, TensorView<float const>(mine.data(), Shape{2}),
                         TensorView<float>(result.data(), Shape{4}), PrepareOptions{.factor = -0.5});
            CHECK(result == std::vector<float>{-0.5F, -2.5F, -1.0F, -2.5F});
            std::vector<BFloat16> gathered(comm.rank() == 0 ? 4 : 0);
            gather(rows, comm, 0, TensorView<float const>(mine.data(), Shape{2}),
                   TensorView<BFloat16>(gathered.data(), Shape{comm.rank() == 0 ? 4 : 0}), Casting{});
            if (comm.rank() == 0) CHECK(static_cast<float>(gathered[2]) == 2.0F);
        });
    }

    TEST_CASE("types that differ are a MismatchError unless a cast is asked for, and ranks agree about the cast") {
        Plan<> const move = plan(distribution(Mesh{2}, Shape{4}, "S0"), distribution(Mesh{2}, Shape{4}, "R"));
        double source[4] = {};
        double destination[8] = {};
        auto const attempt = [&](DType from, DType to, PrepareOptions const& zero, PrepareOptions const& one) {
            std::string messages[2];
            ErrorCode codes[2] = {ErrorCode::none, ErrorCode::none};
            try {
                run_on_threads(2, [&](ThreadCommunicator& comm) {
                    try {
                        redistribute(move, comm, ConstDynamicView(source, from, Shape{2}),
                                     DynamicView(destination + 4 * comm.rank(), to, Shape{4}),
                                     comm.rank() == 0 ? zero : one);
                    } catch (Error const& error) {
                        messages[comm.rank()] = error.message();
                        codes[comm.rank()] = error.code();
                        throw;
                    }
                });
            } catch (Error const&) {
            }
            CHECK(messages[0] == messages[1]);
            CHECK(codes[0] == codes[1]);
            return std::pair(codes[0], messages[0]);
        };
        auto const holds = [](std::string const& text, char const* part) {
            return text.find(part) != std::string::npos;
        };

        auto const [implicit, implicit_text] = attempt(DType::f32, DType::bf16, {}, {});
        CHECK(implicit == ErrorCode::mismatch);
        CHECK(holds(implicit_text, "holds F32, the destination BF16"));
        CHECK(holds(implicit_text, "reshard::Casting{}"));

        auto const [factors, factors_text] = attempt(DType::f32, DType::bf16, Casting{0.5}, Casting{0.25});
        CHECK(factors == ErrorCode::mismatch);
        CHECK(holds(factors_text, "F32 as BF16 times 0.25"));
        CHECK(holds(factors_text, "F32 as BF16 times 0.5"));

        auto const [scaled, scaled_text] = attempt(DType::f32, DType::f32, {}, PrepareOptions{.factor = 2.0});
        CHECK(scaled == ErrorCode::mismatch);
        CHECK(holds(scaled_text, "F32 times 2, but rank 0 prepared"));

        struct Case {
            DType from;
            DType to;
            double factor;
        };
        for (Case const& c : {Case{DType::c64, DType::f32, 1.0}, Case{DType::f8_e4m3, DType::f32, 1.0},
                              Case{DType::f4, DType::f32, 1.0}, Case{DType::i32, DType::f32, 0.5},
                              Case{DType::f32, DType::i8, 0.5}, Case{DType::boolean, DType::u8, 2.0}}) {
            CAPTURE(name(c.from));
            CAPTURE(name(c.to));
            auto const [code, text] = attempt(c.from, c.to, Casting{c.factor}, Casting{c.factor});
            CHECK(code == ErrorCode::dtype);
            CHECK(holds(text, "Fix: "));
        }
        double const infinite = std::numeric_limits<double>::infinity();
        CHECK(attempt(DType::f32, DType::f32, Casting{infinite}, Casting{infinite}).first == ErrorCode::dtype);
    }

    TEST_CASE("a factor that does not commute with the reduction of addends is a DTypeError") {
        std::vector<float> values(4, 1.0F);
        std::vector<float> result(4);
        auto const attempt = [&](char const* placement, double factor) {
            auto const owed = distribution(Mesh{2}, Shape{4}, placement);
            redistribute(plan(owed, owed), ConstDynamicView(values.data(), DType::f32, Shape{4}),
                         DynamicView(result.data(), DType::f32, Shape{4}), 1, PrepareOptions{.factor = factor});
        };
        CHECK_THROWS_WITH_AS(attempt("P*", 0.5), doctest::Contains("is not that factor for their"), DTypeError);
        CHECK_THROWS_AS(attempt("P<", -1.0), DTypeError);
        attempt("P<", 3.0);
        CHECK(result == std::vector<float>(4, 3.0F));
        attempt("P+", -2.0);
        CHECK(result == std::vector<float>(4, -2.0F));
        std::vector<std::int32_t> counts(4, 1);
        auto const bits = distribution(Mesh{2}, Shape{4}, "P&");
        CHECK_THROWS_WITH_AS(redistribute(plan(bits, bits), ConstDynamicView(counts.data(), DType::i32, Shape{4}),
                                          DynamicView(result.data(), DType::f32, Shape{4}), 0, Casting{}),
                             doctest::Contains("not defined for F32"), DTypeError);
    }
}
