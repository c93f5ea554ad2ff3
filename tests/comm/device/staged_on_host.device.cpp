// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/staged_on_host.hpp: how many rounds, how much memory, and what becomes of failures.
#include "../alike.hpp"
#include "../lost.hpp"
#include "devices.hpp"

#include <reshard/comm/self.hpp>
#include <reshard/comm/staged_on_host.hpp>
#include <reshard/reshard.hpp>

#include <atomic>
#include <chrono>
#include <numeric>  // iota
#include <random>
#include <vector>

namespace {
using namespace reshard;
using namespace std::chrono_literals;
using test::box_of;
using test::check_none;
using test::check_nothing_left;
using test::check_only_windows_left;
using test::Ended;
using test::on_devices;
namespace fake = test::fake;

using Comm = StagedOnHost<ThreadCommunicator>;
static_assert(std::is_same_v<Composed<ThreadCommunicator, StagedOnHost>, Comm>);

/// Runs body(comm) on `ranks` ranks, with a window of so many bytes each.
template <class Body>
std::vector<Ended> on_staged(int ranks, Index window, Body const& body) {
    return on_devices(ranks, 1, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
        StagedOnHostOptions options(stream);
        options.window_bytes = window;
        Comm comm(std::move(host), options);
        body(comm);
    });
}
}  // namespace

TEST_SUITE("comm/device") {
    TEST_CASE("StagedOnHost: random exchanges deliver every byte, through any window, also when windows differ") {
        auto const seed = 4712U;
        CAPTURE(seed);
        for (Index window : {Index{2048}, Index{20000}, Index{64} << 20}) {
            CAPTURE(window);
            fake::reset();
            fake::set_elsewhere(fake::Elsewhere::mixed);
            check_none(on_devices(4, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
                StagedOnHostOptions options(stream);
                options.window_bytes = host.rank() == 2 ? window : 2 * window;
                Comm comm(std::move(host), options);
                test::moves_at_random(comm, seed, 20);
                CHECK(comm.staging_bytes() <= 2 * window);
            }));
            check_nothing_left();
        }
        fake::reset();
    }

    TEST_CASE("StagedOnHost: seventy ranks count their rounds in two steps, and only some have much to move") {
        fake::reset();
        auto const count = [](int from, int to) { return (from + 3 * to) % 9 == 0 ? from % 3 : 0; };
        auto const bytes = [](int from, int to, int k) { return from == 4 && to == 58 ? 70000 : 1 + to + k; };
        check_none(on_staged(70, 4096, [&](Comm& comm) {
            Index sent = 0;
            for (int r = 0; r != 70; ++r)
                for (int k = 0; k != count(comm.rank(), r); ++k) sent += bytes(comm.rank(), r, k);
            test::moves_in_order(comm, count, bytes);
            CHECK(comm.traffic().bytes_sent + comm.traffic().bytes_local == sent);
            CHECK(comm.staging_bytes() <= 4096 + 256 * 70);
        }));
        check_nothing_left();
    }

    TEST_CASE("StagedOnHost: an exchange that fits is one round, and one copy per transfer on each side") {
        fake::reset();
        check_none(on_staged(3, Index{1} << 20, [](Comm& comm) {
            auto const once = [&] {
                test::moves_in_order(
                    comm, [](int from, int to) { return from == to ? 0 : 2; }, [](int, int, int) { return 1000; });
            };
            once();
            CHECK(comm.traffic().messages_sent == 4);
            CHECK(comm.staging_bytes() == 8 * 1024);
            barrier(comm);
            auto const before = fake::counts();
            barrier(comm);
            for (int i = 0; i != 5; ++i) once();
            barrier(comm);
            CHECK(fake::counts().copies - before.copies == 5 * 3 * 8);
            CHECK(fake::counts().pinned_allocations == 3);
            CHECK(fake::counts().default_stream == 0);
        }));
        check_nothing_left();
    }

    TEST_CASE("StagedOnHost: a larger exchange goes in rounds that the window and the peers decide, there and back") {
        fake::reset();
        constexpr Index count = 50000;
        constexpr Index window = 16 << 10;
        check_none(on_staged(2, window, [&](Comm& comm) {
            std::vector<int> from(2 * count);
            std::vector<int> to(2 * count, -1);
            std::iota(from.begin(), from.end(), comm.rank() * 1000000);
            int const other = 1 - comm.rank();
            transport::Send const send{other, reinterpret_cast<std::byte const*>(from.data()), box_of(4, {{count, 8}})};
            transport::Receive const receive{other, reinterpret_cast<std::byte*>(to.data()), box_of(4, {{count, 8}})};
            comm.exchange({&send, 1}, {&receive, 1}).wait();
            int wrong = 0;
            for (std::size_t i = 0; i != to.size(); ++i)
                wrong += to[i] != (i % 2 == 0 ? other * 1000000 + static_cast<int>(i) : -1) ? 1 : 0;
            CHECK(wrong == 0);
            CHECK(comm.traffic().bytes_sent == 4 * count);
            CHECK(comm.traffic().messages_sent == detail::ceil_div(4 * count, window / 2 - 128));
            CHECK(comm.staging_bytes() <= window);
        }));
        check_nothing_left();
    }

    TEST_CASE("StagedOnHost: what stays with a rank stays on its device") {
        fake::reset();
        fake::Stream stream;
        {
            StagedOnHost<SelfCommunicator> comm(SelfCommunicator{}, StagedOnHostOptions{stream});
            test::moves_strided_boxes(comm);
            CHECK(comm.staging_bytes() == 0);
            CHECK(comm.traffic().bytes_local == 4 * 7 * 5);
            test::converts_on_the_way(comm);  // the host changes values
            CHECK(comm.staging_bytes() > 0);
        }
        check_nothing_left();
    }

    TEST_CASE("StagedOnHost: plans run between views of devices and of the host, refused where they do not belong") {
        fake::reset();
        check_none(on_staged(3, 1024, [](Comm& comm) {
            Mesh const mesh{comm.size()};
            Shape const shape{70, 10};
            auto const rows = distribution<Shard<0>>(mesh, shape);
            auto const columns = distribution<Shard<1>>(mesh, shape);
            auto const local = [&](auto const& where) {
                return std::vector<float>(static_cast<std::size_t>(where.local_shape(comm.rank()).size()));
            };
            std::vector<float> from = local(rows);
            std::vector<float> to = local(columns);
            std::vector<float> back = local(rows);
            std::iota(from.begin(), from.end(), static_cast<float>(rows.box(comm.rank()).begin(0) * 10));
            fake::claim(to.data(), to.size() * sizeof(float), fake::pageable_host);
            TensorView<float> const a{from.data(), rows.local_shape(comm.rank())};
            TensorView<float> const b{to.data(), columns.local_shape(comm.rank())};
            TensorView<float> const c{back.data(), rows.local_shape(comm.rank())};
            prepare(plan(rows, columns), comm, a, b).run();
            Index const first = columns.box(comm.rank()).begin(1);
            int wrong = 0;
            for (Index i = 0; i != 70; ++i) {
                for (Index j = 0; j != b.extent(1); ++j) {
                    auto const at = static_cast<std::size_t>(i * b.extent(1) + j);
                    wrong += to[at] != static_cast<float>(i * 10 + first + j) ? 1 : 0;
                }
            }
            CHECK(wrong == 0);
            prepare(plan(columns, rows), comm, b, c).run();
            CHECK(back == from);
            if (comm.rank() == 1) fake::claim(from.data(), from.size() * sizeof(float), 3);
            CHECK_THROWS_WITH_AS(static_cast<void>(prepare(plan(rows, columns), comm, a, b)),
                                 doctest::Contains("this is memory of device 3"), BufferError);
            fake::claim(from.data(), 0, 0);
            fake::claim(to.data(), 0, 0);
        }));
        check_nothing_left();
    }

    TEST_CASE("StagedOnHost: without pinned memory an exchange fails on all ranks, before anything is moved") {
        fake::reset();
        auto const ended = on_staged(3, Index{1} << 20, [](Comm& comm) {
            std::vector<int> from(1000);
            std::vector<int> to(1000, -1);
            transport::Send const send{(comm.rank() + 1) % 3, reinterpret_cast<std::byte const*>(from.data()),
                                       box_of(4, {{1000, 4}})};
            transport::Receive const receive{(comm.rank() + 2) % 3, reinterpret_cast<std::byte*>(to.data()),
                                             box_of(4, {{1000, 4}})};
            if (comm.rank() == 1) fake::fail("cudaMallocHost", cudaErrorMemoryAllocation);
            try {
                comm.exchange({&send, 1}, {&receive, 1}).wait();
                FAIL("it completed");
            } catch (Error const&) {
                CHECK(to == std::vector<int>(1000, -1));
                throw;
            }
        });
        CHECK(ended[1].code == ErrorCode::out_of_memory);
        CHECK(ended[1].says("StagedOnHostOptions::window_bytes"));
        CHECK(ended[0].code == ErrorCode::peer_failed);
        CHECK(ended[2].code == ErrorCode::peer_failed);
        check_only_windows_left(0, 2);
    }

    TEST_CASE("StagedOnHost: a call that fails is named, wherever it is made; the others learn of it") {
        struct Case {
            char const* call;
            int code;
            int skipped;
            ErrorCode seen;
        };
        Case const cases[] = {
            {"cudaPointerGetAttributes", cudaErrorInvalidValue, 1, ErrorCode::transport},
            {"cudaMemcpy2DAsync", cudaErrorInvalidValue, 0, ErrorCode::transport},
            {"cudaMemcpy2DAsync", cudaErrorInvalidValue, 3, ErrorCode::transport},
            {"cudaEventRecord", cudaErrorInvalidValue, 0, ErrorCode::transport},
            {"cudaEventRecord", cudaErrorInvalidValue, 1, ErrorCode::transport},
            {"cudaEventQuery", cudaErrorIllegalAddress, 0, ErrorCode::transport},
        };
        for (Case const& one : cases) {
            CAPTURE(one.call);
            CAPTURE(one.skipped);
            auto const ended = on_staged(3, 1024, [&](Comm& comm) {
                Comm child = comm.split(0, 0);
                if (comm.rank() == 1) fake::fail(one.call, one.code, one.skipped);
                try {
                    for (int i = 0; i != 3; ++i) test::moves_strided_boxes(comm);
                    FAIL("the fault was not met");
                } catch (Error const&) {
                    CHECK_THROWS_AS(comm.exchange({}, {}).wait(), PeerFailed);
                    CHECK_THROWS_AS(static_cast<void>(child.agree({})), PeerFailed);
                    throw;
                }
            });
            CAPTURE(ended[1].text);
            CHECK(ended[1].code == one.seen);
            CHECK(ended[1].says(errors::concat("reshard: ", one.call, " failed: ")));
            for (std::size_t r : {0U, 2U}) {
                CAPTURE(ended[r].text);
                CHECK(ended[r].code == ErrorCode::peer_failed);
                CHECK(ended[r].says("rank 1 failed: "));
            }
            check_only_windows_left(0, 3);
        }
        auto const no_event = on_devices(2, 1, {}, [](ThreadCommunicator& host, cudaStream_t stream) {
            if (host.rank() == 1) fake::fail("cudaEventCreateWithFlags", cudaErrorInvalidValue);
            Comm comm(std::move(host), StagedOnHostOptions(stream));
            barrier(comm);
        });
        CHECK(no_event[0].code == ErrorCode::peer_failed);
        CHECK(no_event[1].code == ErrorCode::transport);
    }

    TEST_CASE(
        "StagedOnHost: payloads that differ are a mismatch on both ranks; what is under way is not started again") {
        auto const differing = on_staged(3, Index{1} << 20, [](Comm& comm) {
            std::vector<std::byte> bytes(64, std::byte{0x77});
            transport::Send const send{1, bytes.data(), box_of(1, {{24, 1}})};
            transport::Receive const receive{0, bytes.data(), box_of(1, {{32, 1}})};
            auto request = comm.rank() == 0   ? comm.exchange({&send, 1}, {})
                           : comm.rank() == 1 ? comm.exchange({}, {&receive, 1})
                                              : comm.exchange({}, {});
            try {
                request.wait();
            } catch (Error const&) {
                CHECK(bytes == std::vector<std::byte>(64, std::byte{0x77}));
                throw;
            }
        });
        for (std::size_t r : {0U, 1U, 2U}) {
            CHECK(differing[r].code == (r == 2 ? ErrorCode::peer_failed : ErrorCode::mismatch));
            CHECK(differing[r].says("rank 0 sends 24 bytes, rank 1 expects 32 bytes"));
        }
        check_none(on_staged(2, Index{1} << 20, [](Comm& comm) {
            int const mine = comm.rank();
            int got = -1;
            transport::Send const send{1 - mine, reinterpret_cast<std::byte const*>(&mine), box_of(4, {})};
            transport::Receive const receive{1 - mine, reinterpret_cast<std::byte*>(&got), box_of(4, {})};
            auto request = comm.exchange({&send, 1}, {&receive, 1});
            CHECK_THROWS_AS(request.start(), TransportError);
            request.wait();
            CHECK(got == 1 - mine);
            test::sends_one_value_to_each_peer(comm);
        }));
        auto const unsorted = on_staged(2, 1024, [](Comm& comm) {
            std::byte byte{};
            transport::Send const sends[2] = {{1, &byte, box_of(1, {})}, {0, &byte, box_of(1, {})}};
            comm.exchange(sends, {}).wait();
        });
        CHECK((unsorted[0].says("sort transfers by peer") || unsorted[1].says("sort transfers by peer")));
        check_only_windows_left(0, 2);
    }

    TEST_CASE("StagedOnHost: options that make no sense are refused before the host's communicator is taken") {
        fake::reset();
        auto const ended = on_devices(2, 1, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
            StagedOnHostOptions options(stream);
            if (host.rank() == 0) options.deadline = 0ms;
            Comm comm(std::move(host), options);
            static_cast<void>(comm.agree({}));
        });
        CHECK(ended[0].code == ErrorCode::buffer);
        CHECK(ended[0].says("StagedOnHostOptions"));
        CHECK(ended[1].code == ErrorCode::peer_failed);
    }

    TEST_CASE("StagedOnHost: a device that is never done is a DeadlineExceeded; what it may still use is not freed") {
        fake::reset();
        std::atomic<bool> go = false;
        fake::Stream streams[2];  // they go on after the ranks, as devices would
        int values[4] = {0, 1, 2, 3};
        auto const ended = on_devices(2, 2, {}, [&](ThreadCommunicator& host, cudaStream_t) {
            StagedOnHostOptions options(streams[host.rank()]);
            options.deadline = 60ms;
            Comm comm(std::move(host), options);
            int const me = comm.rank();
            transport::Send const send{1 - me, reinterpret_cast<std::byte const*>(&values[me]), box_of(4, {})};
            transport::Receive const receive{1 - me, reinterpret_cast<std::byte*>(&values[2 + me]), box_of(4, {})};
            Comm child = comm.split(0, 0);
            child.exchange({&send, 1}, {&receive, 1}).wait();
            if (me == 0) fake::hold(comm.stream(), go);
            comm.exchange({&send, 1}, {&receive, 1}).wait();
        });
        CHECK(ended[0].code == ErrorCode::deadline);
        CHECK(ended[0].says("for its device"));
        CHECK(ended[1].code == ErrorCode::peer_failed);
        CHECK(fake::counts().freed_while_held == 0);
        check_only_windows_left(2, 4);  // those of rank 0, at least
        go = true;
        for (cudaStream_t stream : streams) fake::finish(stream);
    }

    TEST_CASE("StagedOnHost: a window that the transport may still write to is kept") {
        fake::reset();
        fake::Stream stream;
        StagedOnHostOptions options(stream);
        options.staging = test::WatchedMemory::options();
        options.staging.reserve_bytes = 64;
        for (bool starts : {true, false}) {
            {
                StagedOnHost<test::LostCommunicator> comm(test::LostCommunicator(starts), options);
                CHECK_THROWS_AS(test::sends_one_value_to_each_peer(comm), DeadlineExceeded);
            }
            CHECK(test::WatchedMemory::released == 0);
        }
        { StagedOnHost<SelfCommunicator> const comm(SelfCommunicator(), options); }
        CHECK(test::WatchedMemory::released == 1);
        check_nothing_left();
    }
}
