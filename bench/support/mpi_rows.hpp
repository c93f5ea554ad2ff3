// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/mpi_rows.hpp
/// \brief  Rows to columns, written by hand against MPI: what the library is held against.
#pragma once

#include <reshard/comm/mpi.hpp>

#include <cstring>  // memcpy
#include <vector>   // vector

namespace reshard::bench {

/// The shape of the exchange: rank r holds rows [r * block, (r + 1) * block) of an n x n matrix and wants as many
/// columns. \pre the ranks divide n, and a block of elements counts in int.
struct RowsToColumns {
    RowsToColumns(Index extent, MPI_Comm communicator) : n(extent), comm(communicator) {
        MPI_Comm_size(comm, &ranks);
        MPI_Comm_rank(comm, &rank);
        block = n / ranks;
    }
    [[nodiscard]] std::size_t row_bytes() const noexcept { return static_cast<std::size_t>(block) * sizeof(double); }

    Index n;
    MPI_Comm comm;
    int ranks = 1;
    int rank = 0;
    Index block = 0;
};

/// Pack, MPI_Alltoallv, unpack: what most programs do. The scratch memory is kept from call to call.
class PackedExchange {
public:
    explicit PackedExchange(RowsToColumns const& job)
        : job_(job),
          packed_(static_cast<std::size_t>(job.block * job.n)),
          received_(packed_.size()),
          counts_(static_cast<std::size_t>(job.ranks), static_cast<int>(job.block * job.block)) {
        for (int peer = 0; peer < job.ranks; ++peer) displacements_.push_back(peer * counts_[0]);
    }

    void operator()(double const* source, double* destination) {
        pack(source);
        send(received_.data());
        // What comes from one peer is whole rows of the destination: one copy each.
        for (int peer = 0; peer < job_.ranks; ++peer) {
            Index const at = peer * job_.block * job_.block;
            std::memcpy(destination + at, received_.data() + at,
                        static_cast<std::size_t>(job_.block) * job_.row_bytes());
        }
    }
    /// Without the second copy, which only a destination of whole rows allows.
    void in_place(double const* source, double* destination) {
        pack(source);
        send(destination);
    }

private:
    void pack(double const* source) {
        double* to = packed_.data();
        for (int peer = 0; peer < job_.ranks; ++peer) {
            double const* from = source + peer * job_.block;
            for (Index row = 0; row < job_.block; ++row, from += job_.n, to += job_.block) {
                std::memcpy(to, from, job_.row_bytes());
            }
        }
    }
    void send(double* into) {
        MPI_Alltoallv(packed_.data(), counts_.data(), displacements_.data(), MPI_DOUBLE, into, counts_.data(),
                      displacements_.data(), MPI_DOUBLE, job_.comm);
    }

    RowsToColumns job_;
    std::vector<double> packed_;
    std::vector<double> received_;
    std::vector<int> counts_;
    std::vector<int> displacements_;
};

/// MPI_Alltoallw with a subarray type per peer, made once: MPI packs, and nobody unpacks.
class TypedExchange {
public:
    explicit TypedExchange(RowsToColumns const& job)
        : job_(job), ones_(static_cast<std::size_t>(job.ranks), 1), zeros_(static_cast<std::size_t>(job.ranks), 0) {
        int const n = static_cast<int>(job.n);
        int const block = static_cast<int>(job.block);
        for (int peer = 0; peer < job.ranks; ++peer) {
            add(sends_, {block, n}, {0, peer * block}, block);
            add(receives_, {n, block}, {peer * block, 0}, block);
        }
    }
    TypedExchange(TypedExchange const&) = delete;
    TypedExchange& operator=(TypedExchange const&) = delete;
    ~TypedExchange() {
        for (MPI_Datatype& type : sends_) MPI_Type_free(&type);
        for (MPI_Datatype& type : receives_) MPI_Type_free(&type);
    }

    void operator()(double const* source, double* destination) const {
        MPI_Alltoallw(source, ones_.data(), zeros_.data(), sends_.data(), destination, ones_.data(), zeros_.data(),
                      receives_.data(), job_.comm);
    }

private:
    struct Pair {
        int at[2];
    };
    static void add(std::vector<MPI_Datatype>& types, Pair whole, Pair start, int block) {
        int const part[2] = {block, block};
        MPI_Datatype type = MPI_DATATYPE_NULL;
        MPI_Type_create_subarray(2, whole.at, part, start.at, MPI_ORDER_C, MPI_DOUBLE, &type);
        MPI_Type_commit(&type);
        types.push_back(type);
    }

    RowsToColumns job_;
    std::vector<int> ones_;
    std::vector<int> zeros_;
    std::vector<MPI_Datatype> sends_;
    std::vector<MPI_Datatype> receives_;
};

/// Memory that all ranks of the node see, and a memcpy per row between two barriers: no message at all.
class SharedExchange {
public:
    explicit SharedExchange(RowsToColumns const& job) : job_(job) {
        own_source_ = allocate(&source_window_);
        own_destination_ = allocate(&destination_window_);
        for (int peer = 0; peer < job.ranks; ++peer) {
            MPI_Aint bytes = 0;
            int unit = 0;
            void* memory = nullptr;
            MPI_Win_shared_query(source_window_, peer, &bytes, &unit, &memory);
            sources_.push_back(static_cast<double const*>(memory));
        }
        MPI_Win_lock_all(MPI_MODE_NOCHECK, source_window_);
    }
    SharedExchange(SharedExchange const&) = delete;
    SharedExchange& operator=(SharedExchange const&) = delete;
    ~SharedExchange() {
        MPI_Win_unlock_all(source_window_);
        MPI_Win_free(&source_window_);
        MPI_Win_free(&destination_window_);
    }

    [[nodiscard]] double* source() const noexcept { return own_source_; }
    [[nodiscard]] double* destination() const noexcept { return own_destination_; }

    void operator()() const {
        meet();
        for (int turn = 0; turn < job_.ranks; ++turn) {
            int const peer = (job_.rank + turn) % job_.ranks;
            double const* from = sources_[static_cast<std::size_t>(peer)] + job_.rank * job_.block;
            double* to = own_destination_ + peer * job_.block * job_.block;
            for (Index row = 0; row < job_.block; ++row, from += job_.n, to += job_.block) {
                std::memcpy(to, from, job_.row_bytes());
            }
        }
        meet();
    }

private:
    [[nodiscard]] double* allocate(MPI_Win* window) const {
        void* memory = nullptr;
        auto const bytes = static_cast<MPI_Aint>(job_.block * job_.n) * static_cast<MPI_Aint>(sizeof(double));
        MPI_Win_allocate_shared(bytes, sizeof(double), MPI_INFO_NULL, job_.comm, &memory, window);
        return static_cast<double*>(memory);
    }
    void meet() const {
        MPI_Win_sync(source_window_);
        MPI_Barrier(job_.comm);
        MPI_Win_sync(source_window_);
    }

    RowsToColumns job_;
    MPI_Win source_window_ = MPI_WIN_NULL;
    MPI_Win destination_window_ = MPI_WIN_NULL;
    double* own_source_ = nullptr;
    double* own_destination_ = nullptr;
    std::vector<double const*> sources_;
};

}  // namespace reshard::bench
