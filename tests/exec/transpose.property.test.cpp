// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/algebra/permute.hpp with exec/redistribute.hpp: a tensor is transposed while it moves.
#include <reshard/algebra/permute.hpp>
#include <reshard/exec/redistribute.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// The row-major values of the transposed tensor: index i of its dimension d is index i of dimension order[d].
template <class T>
std::vector<T> transposed(std::vector<T> const& global, DynamicShape const& shape, Indices const& order) {
    std::vector<T> result(global.size());
    for (std::size_t k = 0; k != global.size(); ++k) {
        auto rest = static_cast<Index>(k);
        Indices at = shape.extents();
        for (int dim = shape.rank() - 1; dim >= 0; --dim) {
            at[dim] = rest % shape.extent(dim);
            rest /= shape.extent(dim);
        }
        Index place = 0;
        for (Index dim : order) {
            place = place * shape.extent(static_cast<int>(dim)) + at[static_cast<int>(dim)];
        }
        result[static_cast<std::size_t>(place)] = global[k];
    }
    return result;
}

/// `from` distributes the tensor, `to` its transpose; both dense in memory.
template <class S, class T>
void check_transpose(DynamicDistribution const& from, DynamicDistribution const& to, Indices const& order,
                     test::Random& random, PrepareOptions const& options) {
    std::vector<S> const global = random.values<S>(from.shape().size());
    Indices const inverse = inverse_permutation(order);
    auto const target = permute(to, inverse);
    bool const across = !(from.mesh() == to.mesh());
    Plan<> const move = across ? plan_across(from, target) : plan(from, target);
    auto const size = static_cast<int>(std::max(oracle::rank_limit(from), oracle::rank_limit(to)));
    auto const sources = oracle::scatter(global, from, random.engine());
    oracle::Locals<T> results(static_cast<std::size_t>(size));
    run_on_threads(size, [&](ThreadCommunicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        DynamicShape const empty{Indices(0)};
        bool const gives = from.contains(comm.rank());
        bool const takes = to.contains(comm.rank());
        if (takes) results[r].resize(static_cast<std::size_t>(to.local_shape(comm.rank()).size()));
        DynamicView const destination =
            takes ? permute(DynamicView(results[r].data(), dtype_of<T>, to.local_shape(comm.rank())), inverse)
                  : DynamicView(nullptr, dtype_of<T>, empty);
        ConstDynamicView const source(gives ? sources[r].data() : nullptr, dtype_of<S>,
                                      gives ? from.local_shape(comm.rank()) : empty);
        redistribute(move, comm, source, destination, options);
    });
    auto const want = transposed(global, from.shape(), order);
    auto const got = oracle::gather(results, to);
    bool same = got.size() == want.size();
    for (std::size_t i = 0; same && i != got.size(); ++i) {
        same = static_cast<double>(static_cast<float>(got[i])) ==
               static_cast<double>(static_cast<float>(want[i])) * options.factor;
    }
    REQUIRE(same);
}

template <class S, class T>
void all_placements(DynamicShape const& shape, std::vector<Indices> const& orders, std::vector<std::string> const& list,
                    PrepareOptions const& options) {
    test::Random random(7);
    int turn = 0;
    for (Indices const& order : orders) {
        auto const result = permute(shape, order);
        for (auto const& a : list) {
            for (auto const& b : list) {
                if (test::fewer_seeds() && turn++ % 7 != 0) continue;  // each `a` and each `b` has its turn
                auto const from = distribution(Mesh{2, 2}, shape, a);
                auto const to = distribution(Mesh{2, 2}, result, b);
                INFO(test::reproduction(7, from, to));
                CAPTURE(to_string(order));
                check_transpose<S, T>(from, to, order, random, options);
            }
        }
    }
}
}  // namespace

TEST_SUITE("exec/transpose") {
    TEST_CASE("every placement of a matrix to every placement of its transpose") {
        std::vector<std::string> list;
        for (char const* a : {"R", "S0", "S1", "P+"})
            for (char const* b : {"R", "S0", "S1:bal", "S0:cyc2", "P+"}) list.push_back(errors::concat(a, ",", b));
        all_placements<std::int32_t, std::int32_t>(Shape{5, 8}, {Indices(1, 0)}, list, {});
        all_placements<float, BFloat16>(Shape{7, 4}, {Indices(1, 0)}, list, Casting{0.5});
    }
    TEST_CASE("every placement of three dimensions, in every order") {
        std::vector<Indices> const orders{Indices(0, 2, 1), Indices(1, 0, 2), Indices(1, 2, 0), Indices(2, 0, 1),
                                          Indices(2, 1, 0)};
        std::vector<std::string> list;
        for (char const* a : {"R", "S0", "S1", "S2"})
            for (char const* b : {"R", "S0", "S2"}) list.push_back(errors::concat(a, ",", b));
        all_placements<double, double>(Shape{3, 4, 5}, orders, list, {});
    }
    TEST_CASE("random transpositions, within and between meshes") {
        for (std::uint64_t seed : test::seeds(150)) {
            test::Limits limits;
            limits.max_elements = 600;
            limits.max_ranks = 8;
            limits.ops = {Reduce::sum};
            test::Random random(seed, limits);
            DynamicShape const shape = random.shape();
            Indices order;
            for (int dim = 0; dim < shape.rank(); ++dim) order.push_back(dim);
            std::shuffle(order.begin(), order.end(), random.engine());
            DynamicMesh const mesh = random.mesh();
            auto const from = random.distribution(mesh, shape);
            auto const to = random.distribution(random.chance(50) ? mesh : random.mesh(), permute(shape, order));
            INFO(test::reproduction(seed, from, to));
            CAPTURE(to_string(order));
            check_transpose<float, double>(from, to, order, random, Casting{});
        }
    }
}
