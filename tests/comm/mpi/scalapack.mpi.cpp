// SPDX-License-Identifier: Apache-2.0
// Block-cyclic matrices moved by the library and by ScaLAPACK's pdgemr2d: element by element the same.
#include <reshard/algebra/scalapack.hpp>
#include <reshard/comm/mpi.hpp>
#include <reshard/reshard.hpp>

#include "support/random.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

// libscalapack installs no C header. These are its own names for C callers (Cpdgemr2d: REDIST/SRC/pdgemr.c).
extern "C" {
void Cblacs_get(int context, int what, int* value);
void Cblacs_gridinit(int* context, char const* order, int rows, int columns);
void Cblacs_gridexit(int context);
void Cpdgemr2d(int rows, int columns, double const* a, int ia, int ja, int const* a_descriptor, double* b, int ib,
               int jb, int const* b_descriptor, int context);
}

namespace {
using namespace reshard;

constexpr double untouched = -7;

/// A BLACS grid of the first rows * columns ranks; -1 on the others. Collective.
class Context {
public:
    explicit Context(ProcessGrid const& grid) {
        Cblacs_get(0, 0, &value_);
        Cblacs_gridinit(&value_, grid.order == ProcessOrder::row_major ? "R" : "C", grid.rows, grid.columns);
    }
    Context(Context const&) = delete;
    Context& operator=(Context const&) = delete;
    ~Context() {
        if (value_ >= 0) Cblacs_gridexit(value_);
    }
    [[nodiscard]] int value() const noexcept { return value_; }

private:
    int value_ = -1;
};

/// One side of a redistribution, on this rank.
struct Side {
    ProcessGrid grid;
    ScalapackDescriptor layout;
    Index rank = 0;
    std::vector<double> memory{};

    [[nodiscard]] bool here() const { return rank < static_cast<Index>(grid.rows) * grid.columns; }
    /// Columns with some space between them, filled with `untouched`.
    void allocate(int space) {
        memory.assign(1, untouched);
        if (!here()) return;
        DynamicShape const shape = distribution(layout, grid).local_shape(rank);
        layout.lld = static_cast<int>(detail::larger<Index>(shape.extent(0), 1)) + space;
        memory.assign(static_cast<std::size_t>(layout.lld * shape.extent(1) + 1), untouched);
    }
    [[nodiscard]] TensorView<double> view() {
        if (!here()) return {nullptr, DynamicShape(Indices{0, 0})};
        return local_matrix(memory.data(), layout, grid, rank);
    }
    /// Calls visit(element, row, column) with global indices.
    template <class Visit>
    void each(Visit&& visit) {
        if (!here()) return;
        auto const matrix = view();
        Index row = 0;
        Index column = 0;
        auto const cut = distribution(layout, grid);
        Index const first = cut.offset(rank)[1];
        for (Box const& box : cut.boxes(rank)) {  // row-major, as they lie in local memory
            if (box.begin(1) == first) column = 0;
            for (Index i = 0; i < box.extent(0); ++i)
                for (Index j = 0; j < box.extent(1); ++j) {
                    visit(matrix(row + i, column + j), box.begin(0) + i, box.begin(1) + j);
                }
            column += box.extent(1);
            if (column == matrix.extent(1)) row += box.extent(0);
        }
    }
    [[nodiscard]] std::vector<int> nine(Context const& context) const {
        int values[9];
        ScalapackDescriptor descriptor = layout;
        descriptor.ctxt = context.value();
        descriptor.copy_to(values);
        return {values, values + 9};
    }
};

Side random_side(test::Random& random, MpiCommunicator& comm, int m, int n) {
    auto const number = [&](Index low, Index high) { return static_cast<int>(random.between(low, high)); };
    Side side;
    side.rank = comm.rank();
    side.grid.rows = number(1, comm.size());
    side.grid.columns = number(1, comm.size() / side.grid.rows);
    side.grid.order = random.chance(50) ? ProcessOrder::row_major : ProcessOrder::column_major;
    side.layout.m = m;
    side.layout.n = n;
    side.layout.mb = number(1, random.chance(30) ? m + 5 : 9);
    side.layout.nb = number(1, random.chance(30) ? n + 5 : 9);
    side.layout.rsrc = number(0, side.grid.rows - 1);
    side.layout.csrc = number(0, side.grid.columns - 1);
    side.allocate(number(0, 3));
    return side;
}

/// Both ways of going from one layout to the other. `from` is filled here.
void check_same(MpiCommunicator& comm, Side from, Side ours) {
    from.each([&](double& element, Index i, Index j) { element = static_cast<double>(1 + i * from.layout.n + j); });
    Side theirs = ours;

    auto const a = distribution(from.layout, from.grid);
    auto const b = distribution(ours.layout, ours.grid);
    redistribute(a.mesh() == b.mesh() ? Plan<>(plan(a, b)) : plan_across(a, b), comm, from.view(), ours.view());

    ProcessGrid const everybody{1, comm.size()};
    Context const all(everybody);
    Context const from_context(from.grid);
    Context const to_context(theirs.grid);
    auto const from_nine = from.nine(from_context);
    auto const to_nine = theirs.nine(to_context);
    Cpdgemr2d(from.layout.m, from.layout.n, from.memory.data(), 1, 1, from_nine.data(), theirs.memory.data(), 1, 1,
              to_nine.data(), all.value());

    bool const same = ours.memory == theirs.memory;  // the space between the columns included
    CHECK(same);
    bool right = true;
    Index count = 0;
    ours.each([&](double element, Index i, Index j) {
        right = right && element == static_cast<double>(1 + i * ours.layout.n + j);
        ++count;
    });
    CHECK(right);
    CHECK(count == ours.view().size());
}

}  // namespace

TEST_SUITE("comm/mpi/scalapack") {
    TEST_CASE("pdgemr2d and redistribute agree: random grids, orders, blocks, sources and leading dimensions") {
        MpiOptions messages;
        messages.path = MpiPath::messages;
        MpiCommunicator direct(MPI_COMM_WORLD);
        MpiCommunicator sent(MPI_COMM_WORLD, messages);
        for (std::uint64_t seed : test::seeds(60)) {
            test::Random random(seed);  // the same numbers on every rank
            MpiCommunicator& comm = seed % 2 == 0 ? direct : sent;
            int const m = static_cast<int>(random.between(1, 60));
            int const n = static_cast<int>(random.between(1, 60));
            Side const from = random_side(random, comm, m, n);
            Side const to = random_side(random, comm, m, n);
            INFO("seed ", seed, ": ", m, " x ", n, " ", to_string(distribution(from.layout, from.grid)), " -> ",
                 to_string(distribution(to.layout, to.grid)));
            check_same(comm, from, to);
        }
    }

    TEST_CASE("pdgemr2d and redistribute agree: 700 x 900, blocks of 64 to 256 and of 8 to 32, and back") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        int const rows = comm.size() % 2 == 0 ? 2 : 1;
        for (std::pair<int, int> const& blocks : {std::pair{64, 256}, std::pair{8, 32}, std::pair{32, 8}}) {
            Side from;
            from.rank = comm.rank();
            from.grid = {rows, comm.size() / rows};
            from.layout = {.m = 700, .n = 900, .mb = blocks.first, .nb = blocks.first};
            Side to = from;
            to.layout.mb = to.layout.nb = blocks.second;
            from.allocate(0);
            to.allocate(5);
            CAPTURE(blocks.first);
            check_same(comm, from, to);
        }
    }
}
