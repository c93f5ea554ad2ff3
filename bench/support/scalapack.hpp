// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/scalapack.hpp
/// \brief  A redistribution by ScaLAPACK's pdgemr2d, ready to be called.
///
/// ScaLAPACK is column-major. A row-major matrix is handed to it as the column-major matrix that is its transpose:
/// the same bytes in the same places, so the same access pattern.
#pragma once

#include <reshard/core/index.hpp>

// libscalapack installs no C header. These are its own names for C callers (Cpdgemr2d: REDIST/SRC/pdgemr.c).
extern "C" {
void Cblacs_get(int context, int what, int* value);
void Cblacs_gridinit(int* context, char const* order, int rows, int columns);
void Cblacs_gridinfo(int context, int* rows, int* columns, int* row, int* column);
void Cblacs_gridexit(int context);
void Cpdgemr2d(int rows, int columns, double const* a, int ia, int ja, int const* a_descriptor, double* b, int ib,
               int jb, int const* b_descriptor, int context);
}

namespace reshard::bench {

/// A grid of all ranks (row-major numbering of the row-major matrix's axes), with blocks of some size.
struct Blocks {
    int grid_rows = 1;
    int grid_columns = 1;
    int block_rows = 1;
    int block_columns = 1;
};

class Scalapack {
public:
    /// An n x n row-major matrix, from one layout to the other. Collective over MPI_COMM_WORLD.
    Scalapack(int n, Blocks const& from, Blocks const& to) : n_(n), from_(side(from)), to_(side(to)) {}
    Scalapack(Scalapack const&) = delete;
    Scalapack& operator=(Scalapack const&) = delete;
    ~Scalapack() {
        Cblacs_gridexit(from_.descriptor[1]);
        Cblacs_gridexit(to_.descriptor[1]);
    }

    void operator()(double const* source, double* destination) const {
        Cpdgemr2d(n_, n_, source, 1, 1, from_.descriptor, destination, 1, 1, to_.descriptor, from_.descriptor[1]);
    }

private:
    struct Side {
        int descriptor[9];  ///< type, context, rows, columns, block rows, block columns, 0, 0, leading dimension
    };

    /// Extent of the first axis held by process `at` of `processes`: ScaLAPACK's NUMROC, with process 0 first.
    [[nodiscard]] static int held(int extent, int block, int at, int processes) {
        int const blocks = extent / block;
        int const rest = blocks % processes;
        int const own = blocks / processes * block;
        return own + (at < rest ? block : at == rest ? extent % block : 0);
    }
    /// Rows and columns change their places: the transpose.
    [[nodiscard]] Side side(Blocks const& blocks) const {
        int context = 0;
        Cblacs_get(0, 0, &context);
        // Rank r sits at (r / columns, r % columns) of the row-major grid, so column by column in its transpose.
        Cblacs_gridinit(&context, "C", blocks.grid_columns, blocks.grid_rows);
        int rows = 0;
        int columns = 0;
        int row = 0;
        int column = 0;
        Cblacs_gridinfo(context, &rows, &columns, &row, &column);
        int const leading = held(n_, blocks.block_columns, row, rows);
        return {{1, context, n_, n_, blocks.block_columns, blocks.block_rows, 0, 0, leading > 1 ? leading : 1}};
    }

    int n_;
    Side from_;
    Side to_;
};

}  // namespace reshard::bench
