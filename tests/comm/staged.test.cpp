// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/staged.hpp.
#include <reshard/comm/staged.hpp>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include "conformance.hpp"
#include "lost.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace {
using namespace reshard;
static_assert(Communicator<Staged<SelfCommunicator>>);
static_assert(Communicator<Staged<ThreadCommunicator>>);

bool contiguous(transport::StridedBox const& box) {
    Index stride = box.element_bytes;
    for (int d = box.dims.size() - 1; d >= 0; --d) {
        if (box.dims[d].stride != stride) return false;
        stride *= box.dims[d].extent;
    }
    return true;
}

/// Notes whether what it is asked to move lies without gaps, aligned, outside of the caller's memory.
class Strict : public SelfCommunicator {
public:
    static inline bool all_contiguous = true;
    static inline bool all_aligned = true;
    static inline bool all_plain = true;
    using SelfCommunicator::split;
    Strict() = default;
    explicit Strict(SelfCommunicator&& base) : SelfCommunicator(std::move(base)) {}
    [[nodiscard]] Strict split(int colour, int key) { return Strict(SelfCommunicator::split(colour, key)); }
    [[nodiscard]] Strict split(DynamicMesh const& mesh, int axis) {
        return Strict(SelfCommunicator::split(mesh, axis));
    }
    transport::InOrder exchange(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        for (auto const& send : sends) look(send);
        for (auto const& receive : receives) look(receive);
        return SelfCommunicator::exchange(sends, receives);
    }

private:
    template <class Byte>
    static void look(transport::Transfer<Byte> const& transfer) {
        all_contiguous = all_contiguous && contiguous(transfer.box);
        all_aligned = all_aligned && reinterpret_cast<std::uintptr_t>(transfer.base) % 64 == 0;
        all_plain = all_plain && transfer.conversion.is_plain();
    }
};

/// A source of memory that counts and can run dry.
struct Pool {
    static inline int allocations = 0;
    static inline Index held = 0;
    static inline Index limit = Index{1} << 40;
    static StagingOptions options() {
        allocations = 0;
        held = 0;
        return {.allocate = [](Index bytes) noexcept -> std::byte* {
                    if (held + bytes > limit) return nullptr;
                    ++allocations;
                    held += bytes;
                    return static_cast<std::byte*>(std::aligned_alloc(64, static_cast<std::size_t>(bytes)));
                },
                .release =
                    [](std::byte* memory, Index bytes) noexcept {
                        held -= bytes;
                        std::free(memory);
                    }};
    }
};

}  // namespace

TEST_SUITE("comm/staged") {
    TEST_CASE("Staged: the transport sees contiguous, aligned, plain transfers only") {
        Staged comm{Strict()};
        test::conforms(comm);
        CHECK(Strict::all_contiguous);
        CHECK(Strict::all_aligned);
        CHECK(Strict::all_plain);
        CHECK(comm.staging_bytes() > 0);
    }

    TEST_CASE("Staged: memory grows to what the largest exchange needs, then nothing is allocated") {
        {
            Staged comm(SelfCommunicator(), Pool::options());
            auto const move = [&](int bytes) {
                test::moves_in_order(
                    comm, [](int, int) { return 3; }, [bytes](int, int, int) { return bytes; });
            };
            move(100);
            CHECK(Pool::allocations == 1);
            CHECK(Pool::held == 6 * 128);
            for (int i = 0; i != 10; ++i) move(100);
            move(1);
            CHECK(Pool::allocations == 1);
            move(1000);
            CHECK(Pool::allocations == 2);
            CHECK(Pool::held == 6 * 1024);
            CHECK(comm.staging_bytes() == Pool::held);
            auto part = comm.split(0, 0);  // has memory of its own, from the same source
            CHECK(part.staging_bytes() == 0);
            test::sends_one_value_to_each_peer(part);
            CHECK(Pool::allocations == 3);
            auto const moved = std::move(part);
            CHECK(moved.staging_bytes() == 128);
        }
        CHECK(Pool::held == 0);
        {
            auto options = Pool::options();
            options.reserve_bytes = 6 * 1024;
            Staged comm(SelfCommunicator(), options);
            CHECK(Pool::allocations == 1);
            test::moves_in_order(
                comm, [](int, int) { return 3; }, [](int, int, int) { return 1000; });
            CHECK(Pool::allocations == 1);
        }
        CHECK(Pool::held == 0);
    }

    TEST_CASE("Staged: without memory an exchange fails on all ranks, before anything is moved") {
        ErrorCode seen[3] = {};
        CHECK_THROWS_AS(run_on_threads(3,
                                       [&](ThreadCommunicator& plain) {
                                           int const me = plain.rank();
                                           StagingOptions options;
                                           if (me == 1)
                                               options.allocate = [](Index) noexcept -> std::byte* { return nullptr; };
                                           Staged comm(std::move(plain), options);
                                           try {
                                               test::sends_one_value_to_each_peer(comm);
                                           } catch (Error const& error) {
                                               seen[me] = error.code();
                                               throw;
                                           }
                                       }),
                        OutOfMemory);
        CHECK(seen[0] == ErrorCode::peer_failed);
        CHECK(seen[1] == ErrorCode::out_of_memory);
        CHECK(seen[2] == ErrorCode::peer_failed);
    }

    TEST_CASE("Staged: memory that a transport may still write to is kept, whether it gives up at once or later") {
        for (bool starts : {true, false}) {
            CAPTURE(starts);
            {
                Staged comm(test::LostCommunicator(starts), test::WatchedMemory::options());
                CHECK_THROWS_AS(test::sends_one_value_to_each_peer(comm), DeadlineExceeded);
                CHECK(comm.staging_bytes() > 0);
            }
            CHECK(test::WatchedMemory::released == 0);
        }
    }

    TEST_CASE("Staged: a mismatch passes with its type and its words, on both ranks; nothing is unpacked") {
        std::string texts[2];
        CHECK_THROWS_AS(
            run_on_threads(
                2,
                [&](ThreadCommunicator& plain) {
                    int const me = plain.rank();
                    Staged comm(std::move(plain));
                    double value = me;
                    Index const bytes = me == 0 ? 8 : 4;
                    transport::Send const send{1, reinterpret_cast<std::byte const*>(&value), test::box_of(bytes, {})};
                    transport::Receive const receive{0, reinterpret_cast<std::byte*>(&value), test::box_of(bytes, {})};
                    auto request = me == 0 ? comm.exchange({&send, 1}, {}) : comm.exchange({}, {&receive, 1});
                    try {
                        request.wait();
                    } catch (MismatchError const& error) {
                        texts[me] = error.message();
                        CHECK(request.done());
                        CHECK(value == me);
                        throw;
                    }
                }),
            MismatchError);
        CHECK(texts[0].find("rank 0 sends 8 bytes, rank 1 expects 4 bytes") != std::string::npos);
        CHECK(texts[0] == texts[1]);
    }

    TEST_CASE("Staged: a second start while an exchange is under way is an error that leaves the first alone") {
        run_on_threads(2, [](ThreadCommunicator& plain) {
            Staged comm(std::move(plain));
            int const mine = comm.rank();
            int got = -1;
            transport::Send const send{1 - mine, reinterpret_cast<std::byte const*>(&mine), test::box_of(4, {})};
            transport::Receive const receive{1 - mine, reinterpret_cast<std::byte*>(&got), test::box_of(4, {})};
            auto request = comm.exchange({&send, 1}, {&receive, 1});
            CHECK_THROWS_AS(request.start(), TransportError);
            request.wait();
            CHECK(got == 1 - mine);
            test::sends_one_value_to_each_peer(comm);
        });
    }

    TEST_CASE("Staged: values are converted between memory and staging, on the side that asks for it") {
        // bf16 travels. The sender rounds in one exchange, the receiver widens in the other.
        std::vector<float> const values{1.0F, -2.5F, 0.33333334F, 1e30F, 65504.0F, 0.0F};
        std::vector<BFloat16> rounded(6);
        std::vector<float> back(12, -1.0F);
        Staged comm{Strict()};
        Strict::all_plain = true;
        transport::StridedBox wide = test::box_of(4, {{6, 4}});
        transport::StridedBox const narrow = test::box_of(2, {{6, 2}});
        transport::Send const down{0,
                                   reinterpret_cast<std::byte const*>(values.data()),
                                   wide,
                                   {DType::f32, DType::bf16, 0.5, transport::convert}};
        transport::Receive const at{0,
                                    reinterpret_cast<std::byte*>(rounded.data()),
                                    narrow,
                                    {DType::bf16, DType::bf16, 1.0, transport::convert}};
        comm.exchange({&down, 1}, {&at, 1}).wait();
        for (std::size_t i = 0; i != 6; ++i) CHECK(rounded[i] == BFloat16(values[i] * 0.5F));
        transport::Send const again{0,
                                    reinterpret_cast<std::byte const*>(rounded.data()),
                                    narrow,
                                    {DType::bf16, DType::bf16, 1.0, transport::convert}};
        wide.dims[0].stride = 8;
        transport::Receive const up{
            0, reinterpret_cast<std::byte*>(back.data()), wide, {DType::f32, DType::bf16, 2.0, transport::convert}};
        comm.exchange({&again, 1}, {&up, 1}).wait();
        for (std::size_t i = 0; i != 6; ++i) {
            CHECK(back[2 * i] == 2.0F * static_cast<float>(rounded[i]));
            CHECK(back[2 * i + 1] == -1.0F);
        }
        CHECK(Strict::all_plain);
        CHECK(comm.traffic().bytes_local == 24);
    }
}
