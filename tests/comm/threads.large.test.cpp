// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/threads.hpp: sizes beyond 32 bits. Needs 4.3 GiB of memory.
#include <reshard/comm/threads.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {
using namespace reshard;

/// A 64-bit word that no other position of the transfer holds.
constexpr std::uint64_t word_at(Index i) noexcept { return static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U + 1U; }
}  // namespace

TEST_SUITE("comm/threads") {
    TEST_CASE("ThreadCommunicator: one transfer of more than 2^31 bytes arrives whole and is counted") {
        constexpr Index words = (Index{1} << 28) + 8209;  // 2 GiB and 65672 bytes
        for (bool rows : {false, true}) {                 // one run, and rows with gaps at the receiver
            CAPTURE(rows);
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                constexpr Index row = 4099;
                Index const count = rows ? words / row : 1;
                Index const length = rows ? row : words;
                Index const pitch = rows ? row + 3 : words;
                transport::StridedBox box;
                box.element_bytes = 8;
                box.dims.push_back({count, 8 * length});
                box.dims.push_back({length, 8});
                std::vector<std::uint64_t> memory(
                    static_cast<std::size_t>(comm.rank() == 0 ? count * length : count * pitch));
                if (comm.rank() == 0) {
                    for (Index i = 0; i < count * length; ++i) memory[static_cast<std::size_t>(i)] = word_at(i);
                    transport::Send const send{1, reinterpret_cast<std::byte const*>(memory.data()), box};
                    comm.exchange({&send, 1}, {}).wait();
                    CHECK(comm.traffic().bytes_sent == count * length * 8);
                    CHECK(comm.traffic().bytes_sent > Index{1} << 31);
                } else {
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
                }
            });
        }
    }
}
