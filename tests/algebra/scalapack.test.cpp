// SPDX-License-Identifier: Apache-2.0
#include <reshard/algebra/scalapack.hpp>

#include <reshard/algebra/notation.hpp>

#include <doctest/doctest.h>

#include "support/oracle.hpp"
#include "support/random.hpp"

#include <string>

namespace {
using namespace reshard;

/// TOOLS/numroc.f of ScaLAPACK, line by line.
int numroc(int n, int nb, int iproc, int isrcproc, int nprocs) {
    int const mydist = (nprocs + iproc - isrcproc) % nprocs;
    int const nblocks = n / nb;
    int result = nblocks / nprocs * nb;
    int const extrablks = nblocks % nprocs;
    if (mydist < extrablks) {
        result += nb;
    } else if (mydist == extrablks) {
        result += n % nb;
    }
    return result;
}

/// INDXG2P and INDXG2L of TOOLS/, for a global index counted from 0.
int owner(int global, int nb, int isrcproc, int nprocs) { return (isrcproc + global / nb) % nprocs; }
int local(int global, int nb, int nprocs) { return nb * (global / (nb * nprocs)) + global % nb; }

ScalapackDescriptor random_descriptor(test::Random& random, ProcessGrid const& grid) {
    auto const number = [&](Index low, Index high) { return static_cast<int>(random.between(low, high)); };
    ScalapackDescriptor d;
    d.ctxt = number(0, 9);
    d.m = number(0, 40);
    d.n = number(0, 40);
    d.mb = number(1, random.chance(20) ? 60 : 7);
    d.nb = number(1, random.chance(20) ? 60 : 7);
    d.rsrc = number(0, grid.rows - 1);
    d.csrc = number(0, grid.columns - 1);
    d.lld = 60;
    return d;
}
ProcessGrid random_grid(test::Random& random) {
    auto const number = [&](Index low, Index high) { return static_cast<int>(random.between(low, high)); };
    ProcessOrder const order = random.chance(50) ? ProcessOrder::row_major : ProcessOrder::column_major;
    return {number(1, 4), number(1, 4), order, random.chance(30) ? number(1, 5) : 0};
}

template <class Call>
std::string complaint(Call call) {
    try {
        static_cast<void>(call());
    } catch (Error const& error) {
        return error.message();
    }
    return "none";
}
template <class E, class Call>
void check_refused(Call call, std::string const& word) {
    CHECK_THROWS_AS(static_cast<void>(call()), E);
    std::string const text = complaint(call);
    CAPTURE(text);
    CHECK(text.find(word) != std::string::npos);
    CHECK(text.find("Fix: ") != std::string::npos);
}

constexpr ScalapackDescriptor plain{.m = 10, .n = 7, .mb = 3, .nb = 2, .lld = 6};
static_assert(distribution(plain, {2, 2}).local_shape(0) == DynamicShape(Indices{6, 4}));

}  // namespace

TEST_SUITE("algebra/scalapack") {
    TEST_CASE("a descriptor is a block-cyclic distribution over the process grid") {
        CHECK(to_string(distribution(plain, {2, 2})) == "(2,2):(S0:cyc3,S1:cyc2)");
        CHECK(distribution(plain, {2, 3}).mesh() == DynamicMesh(Mesh{2, 3}));
        CHECK(distribution(plain, {2, 3, ProcessOrder::column_major}).mesh() ==
              DynamicMesh(Mesh{2, 3}.on({0, {0, 2, 4, 1, 3, 5}})));
        ScalapackDescriptor turned = plain;
        turned.rsrc = 1;
        turned.csrc = 2;
        CHECK(distribution(turned, {2, 3}).mesh() == DynamicMesh(Mesh{2, 3}.on({0, {5, 3, 4, 2, 0, 1}})));
    }

    TEST_CASE("random descriptors: NUMROC is local_shape, INDXG2P and INDXG2L say where every element lies") {
        for (std::uint64_t seed : test::seeds(500)) {
            test::Random random(seed);
            ProcessGrid const grid = random_grid(random);
            ScalapackDescriptor const d = random_descriptor(random, grid);
            auto const layout = distribution(d, grid);
            CAPTURE(seed);
            for (int p = 0; p < grid.rows; ++p)
                for (int q = 0; q < grid.columns; ++q) {
                    Index const rank = grid.rank(p, q);
                    REQUIRE(layout.local_shape(rank).extent(0) == numroc(d.m, d.mb, p, d.rsrc, grid.rows));
                    REQUIRE(layout.local_shape(rank).extent(1) == numroc(d.n, d.nb, q, d.csrc, grid.columns));
                    auto const held = oracle::held_indices(layout, rank);
                    for (std::size_t i = 0; i < held[0].size(); ++i) {
                        int const row = static_cast<int>(held[0][i]);
                        REQUIRE(owner(row, d.mb, d.rsrc, grid.rows) == p);
                        REQUIRE(local(row, d.mb, grid.rows) == static_cast<int>(i));
                    }
                    for (std::size_t j = 0; j < held[1].size(); ++j) {
                        int const column = static_cast<int>(held[1][j]);
                        REQUIRE(owner(column, d.nb, d.csrc, grid.columns) == q);
                        REQUIRE(local(column, d.nb, grid.columns) == static_cast<int>(j));
                    }
                }
        }
    }

    TEST_CASE("random descriptors: there and back, and as nine integers") {
        for (std::uint64_t seed : test::seeds(500)) {
            test::Random random(seed);
            ProcessGrid const grid = random_grid(random);
            ScalapackDescriptor const d = random_descriptor(random, grid);
            CAPTURE(seed);
            REQUIRE(descriptor(distribution(d, grid), grid, d.lld, d.ctxt) == d);
            int nine[9];
            d.copy_to(nine);
            REQUIRE(ScalapackDescriptor::from(nine) == d);
            REQUIRE(nine[4] == d.mb);
            REQUIRE(nine[8] == 60);
        }
    }

    TEST_CASE("chunks are one block each, and an axis of one process holds everything") {
        DynamicShape const shape = Shape{10, 6};
        auto const chunks = descriptor(distribution(Mesh{4, 1}, shape, "S0,R"), {4, 1}, 3);
        CHECK(chunks == ScalapackDescriptor{.m = 10, .n = 6, .mb = 3, .nb = 6, .lld = 3});
        auto const same = distribution(chunks, {4, 1});
        for (Index rank = 0; rank < 4; ++rank) {
            CHECK(oracle::elements(same, rank) == oracle::elements(distribution(Mesh{4, 1}, shape, "S0,R"), rank));
        }
        CHECK(descriptor(distribution(Mesh{2, 1}, Shape{0, 0}, "S0,R"), {2, 1}, 1).mb == 1);
    }

    TEST_CASE("the local matrix is column-major") {
        double memory[6 * 4] = {};
        auto const matrix = local_matrix(memory, plain, {2, 2}, 0);
        CHECK(matrix.shape() == DynamicShape(Indices{6, 4}));
        CHECK(&matrix(5, 0) == memory + 5);
        CHECK(&matrix(0, 3) == memory + 18);
        ScalapackDescriptor narrow = plain;
        narrow.lld = 5;
        check_refused<BufferError>([&] { return local_matrix(memory, narrow, {2, 2}, 0); }, "LLD_ is 5");
        check_refused<MeshError>([&] { return local_matrix(memory, plain, {2, 2}, 4); }, "rank 4");
        ScalapackDescriptor const none{.m = 2, .n = 2, .mb = 2, .nb = 2};
        CHECK(local_matrix(memory, none, {2, 2}, 3).size() == 0);
    }

    TEST_CASE("bad descriptors: the error names the field") {
        auto const with = [](int ScalapackDescriptor::*field, int value) {
            return [=] {
                ScalapackDescriptor d = plain;
                d.*field = value;
                return distribution(d, {2, 3});
            };
        };
        check_refused<PlacementError>(with(&ScalapackDescriptor::dtype, 502), "DTYPE_ is 502");
        check_refused<ShapeError>(with(&ScalapackDescriptor::m, -1), "M_ is -1");
        check_refused<ShapeError>(with(&ScalapackDescriptor::n, -7), "N_ is -7");
        check_refused<PlacementError>(with(&ScalapackDescriptor::mb, 0), "MB_ is 0");
        check_refused<PlacementError>(with(&ScalapackDescriptor::nb, -3), "NB_ is -3");
        check_refused<PlacementError>(with(&ScalapackDescriptor::rsrc, 2), "RSRC_ is 2, outside a grid of 2 rows");
        check_refused<PlacementError>(with(&ScalapackDescriptor::csrc, 3), "CSRC_ is 3, outside a grid of 3 columns");
        check_refused<PlacementError>(with(&ScalapackDescriptor::csrc, -1), "CSRC_ is -1");
        check_refused<BufferError>(with(&ScalapackDescriptor::lld, 0), "LLD_ is 0");
        check_refused<MeshError>([] { return distribution(plain, {0, 3}); }, "0 x 3");
        check_refused<MeshError>([] { return distribution(plain, {1, 1, ProcessOrder::row_major, -1}); }, "first_rank");
        check_refused<MeshError>([] { return distribution(plain, {1 << 16, 1 << 16}); }, "4294967296 processes");
    }

    TEST_CASE("what ScaLAPACK has no field for is refused") {
        DynamicShape const shape = Shape{8, 8};
        auto const of = [&](char const* text) {
            return [=] { return descriptor(distribution(Mesh{2, 2}, shape, text), {2, 2}, 8); };
        };
        check_refused<PlacementError>(of("S0:cyc2,R"), "NB_");
        check_refused<PlacementError>(of("P+,S1:cyc2"), "MB_");
        check_refused<PlacementError>(of("S0:bal,S1"), "MB_");
        check_refused<PlacementError>(of("S1,S0"), "MB_");
        check_refused<ShapeError>(
            [] {
                return descriptor(distribution(Mesh{2, 2}, Shape{8}, "S0,R"), {2, 2}, 8);
            },
            "no matrix");
        check_refused<MeshError>(
            [] {
                return descriptor(distribution(Mesh{4}, Shape{8, 8}, "S0"), {2, 2}, 8);
            },
            "2 x 2");
        check_refused<MeshError>(
            [&] {
                return descriptor(distribution(Mesh{2, 2}.on({0, {0, 2, 1, 3}}), shape, "S0,S1"), {2, 2}, 8);
            },
            "RSRC_ and CSRC_");
        check_refused<ShapeError>(
            [] {
                return descriptor(distribution(Mesh{2, 2}, Shape{8, Index{1} << 31}, "S0,S1"), {2, 2}, 8);
            },
            "N_ is");
        check_refused<BufferError>(
            [&] {
                return descriptor(distribution(Mesh{2, 2}, shape, "S0,S1"), {2, 2}, 0);
            },
            "LLD_ is 0");
    }
}
