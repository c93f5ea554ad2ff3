// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/mpi.hpp: sizes beyond 32 bits. Needs 4.3 GiB of memory.
#include <reshard/comm/mpi.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <vector>

namespace {
using namespace reshard;
using namespace std::chrono_literals;

/// A 64-bit word that no other position of the transfer holds.
constexpr std::uint64_t word_at(Index i) noexcept { return static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U + 1U; }

/// Rank 0 sends `count` rows of `length` words, which lie `pitch` words apart at the last rank.
void send_rows(MpiCommunicator& comm, Index count, Index length, Index pitch) {
    int const last = comm.size() - 1;
    transport::StridedBox box;
    box.element_bytes = 8;
    box.dims.push_back({count, 8 * length});
    box.dims.push_back({length, 8});
    if (comm.rank() == 0) {
        std::vector<std::uint64_t> memory(static_cast<std::size_t>(count * length));
        for (Index i = 0; i < count * length; ++i) memory[static_cast<std::size_t>(i)] = word_at(i);
        transport::Send const send{last, reinterpret_cast<std::byte const*>(memory.data()), box};
        comm.exchange({&send, 1}, {}).wait();
        CHECK(comm.traffic().bytes_sent == count * length * 8);
        CHECK(comm.traffic().bytes_sent > Index{1} << 31);
    } else if (comm.rank() == last) {
        std::vector<std::uint64_t> memory(static_cast<std::size_t>(count * pitch));
        box.dims[0].stride = 8 * pitch;
        transport::Receive const receive{0, reinterpret_cast<std::byte*>(memory.data()), box};
        comm.exchange({}, {&receive, 1}).wait();
        CHECK(comm.traffic().bytes_received == count * length * 8);
        Index wrong = 0;
        for (Index r = 0; r < count; ++r) {
            auto const* const got = memory.data() + r * pitch;
            for (Index i = 0; i < length; ++i) wrong += got[i] != word_at(r * length + i) ? 1 : 0;
            for (Index i = length; i < pitch; ++i) wrong += got[i] != 0 ? 1 : 0;
        }
        CHECK(wrong == 0);
    } else {
        comm.exchange({}, {}).wait();
    }
}
}  // namespace

TEST_SUITE("comm/mpi") {
    TEST_CASE("MpiCommunicator: one transfer of more than 2^31 bytes arrives whole and is counted, on every path") {
        constexpr Index words = (Index{1} << 28) + 8209;  // 2 GiB and 65672 bytes
        for (int ranks_per_node : {0, 1}) {
            CAPTURE(ranks_per_node);
            MpiOptions options;
            options.ranks_per_node = ranks_per_node;
            options.deadline = 120s;
            {
                MpiCommunicator comm(MPI_COMM_WORLD, options);
                if (comm.size() < 2) return;
                send_rows(comm, 1, words, words);
            }
            MpiCommunicator comm(MPI_COMM_WORLD, options);
            send_rows(comm, words / 4099, 4099, 4102);
        }
    }
}
