// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/row_exchange.hpp
/// \brief  The exchange that the goals are about, (n):(S0) -> (n):(S1) of float64, and the loop it is held against.
#pragma once

#include <reshard/comm/threads.hpp>
#include <reshard/reshard.hpp>

#include <barrier>  // barrier
#include <cstring>  // memcpy
#include <vector>   // vector

namespace reshard::bench {

/// A matrix held as blocks of rows and wanted as blocks of columns. Every rank has a source and a destination of its
/// own, written once before anything is measured.
class RowExchange {
public:
    /// \pre `ranks` divides both extents.
    RowExchange(Index rows, Index columns, int ranks)
        : rows_(rows), columns_(columns), ranks_(ranks), entry_(ranks), exit_(ranks) {
        for (int r = 0; r < ranks; ++r) {
            sources_.emplace_back(from().local_shape(r));
            destinations_.emplace_back(to().local_shape(r));
            for (Index i = 0; i < sources_.back().size(); ++i) {
                sources_.back().data()[i] = static_cast<double>(r * sources_.back().size() + i);
                destinations_.back().data()[i] = -1;
            }
        }
    }
    /// A matrix of `bytes` bytes, square or twice as wide as high. \pre a power of two of at least 1 KiB.
    [[nodiscard]] static RowExchange of_bytes(Index bytes, int ranks) {
        Index rows = 1;
        while (rows * rows * 4 * Index{sizeof(double)} <= bytes) rows *= 2;
        return RowExchange(rows, bytes / (rows * Index{sizeof(double)}), ranks);
    }

    [[nodiscard]] int ranks() const noexcept { return ranks_; }
    [[nodiscard]] Index bytes() const noexcept { return rows_ * columns_ * Index{sizeof(double)}; }

    /// The library's way, ready to run. Collective.
    [[nodiscard]] PreparedPlan prepare(CommunicatorRef comm) {
        return reshard::prepare(plan(from(), to()), comm, source(comm.rank()), destination(comm.rank()));
    }
    /// By hand: what everybody would write, a memcpy per row between two barriers. Collective.
    void by_memcpy(int rank) {
        entry_.arrive_and_wait();
        Index const height = rows_ / ranks_;
        Index const width = columns_ / ranks_;
        double* const own = destination(rank).data();
        for (int turn = 0; turn < ranks_; ++turn) {
            int const peer = (rank + turn) % ranks_;
            double const* const theirs = source(peer).data() + rank * width;
            for (Index row = 0; row < height; ++row) {
                std::memcpy(own + (peer * height + row) * width, theirs + row * columns_,
                            static_cast<std::size_t>(width) * sizeof(double));
            }
        }
        exit_.arrive_and_wait();
    }
    /// As many bytes from one place to another in one call, which nobody can do who must reorder them. Collective.
    void by_one_memcpy(int rank) {
        entry_.arrive_and_wait();
        std::memcpy(destination(rank).data(), source(rank).data(),
                    static_cast<std::size_t>(source(rank).size()) * sizeof(double));
        exit_.arrive_and_wait();
    }
    /// What any exchange between threads must do at least. Collective.
    void barriers_only() {
        entry_.arrive_and_wait();
        exit_.arrive_and_wait();
    }

    /// Overwrites a rank's destination, so that right values are the work of whoever comes next.
    void spoil(int rank) {
        for (Index i = 0; i < destination(rank).size(); ++i) destination(rank).data()[i] = -1;
    }
    [[nodiscard]] bool is_right(int rank) const {
        Index const width = columns_ / ranks_;
        double const* const own = destinations_[static_cast<std::size_t>(rank)].data();
        for (Index row = 0; row < rows_; ++row)
            for (Index column = 0; column < width; ++column)
                if (own[row * width + column] != static_cast<double>(row * columns_ + rank * width + column)) {
                    return false;
                }
        return true;
    }

private:
    [[nodiscard]] DynamicDistribution from() const {
        return distribution<Shard<0>>(Mesh{ranks_}, Shape{rows_, columns_});
    }
    [[nodiscard]] DynamicDistribution to() const {
        return distribution<Shard<1>>(Mesh{ranks_}, Shape{rows_, columns_});
    }
    [[nodiscard]] TensorView<double> source(int rank) { return sources_[static_cast<std::size_t>(rank)].view(); }
    [[nodiscard]] TensorView<double> destination(int rank) {
        return destinations_[static_cast<std::size_t>(rank)].view();
    }

    Index rows_;
    Index columns_;
    int ranks_;
    std::vector<Tensor<double>> sources_;
    std::vector<Tensor<double>> destinations_;
    std::barrier<> entry_;
    std::barrier<> exit_;
};

}  // namespace reshard::bench
