// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/device_threads.hpp: who waits for whom, what passes through the window, and what becomes
// of failures while devices are at work.
#include "../alike.hpp"
#include "devices.hpp"

#include <reshard/reshard.hpp>

#include <atomic>
#include <chrono>
#include <numeric>  // iota
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {
using namespace reshard;
using namespace std::chrono_literals;
using test::box_of;
using test::check_none;
using test::check_nothing_left;
using test::check_poisoned;
using test::Ended;
using test::on_devices;
namespace fake = test::fake;

static_assert(DeviceThreadCommunicator::name == "device_threads");

template <class Body>
std::vector<Ended> on_comms(int ranks, ThreadOptions const& options, Body const& body) {
    return on_devices(ranks, ranks, options, [&](ThreadCommunicator& host, cudaStream_t stream) {
        DeviceThreadCommunicator comm(std::move(host), stream);
        body(comm);
    });
}

/// A value to the next rank, and one from the rank before.
struct Ring {
    int mine;
    int got = -1;
    transport::Send send;
    transport::Receive receive;

    explicit Ring(DeviceThreadCommunicator const& comm)
        : mine(100 + comm.rank()),
          send{(comm.rank() + 1) % comm.size(), reinterpret_cast<std::byte const*>(&mine), box_of(4, {})},
          receive{(comm.rank() + comm.size() - 1) % comm.size(), reinterpret_cast<std::byte*>(&got), box_of(4, {})} {}
    Ring(Ring const&) = delete;
    auto start(DeviceThreadCommunicator& comm) { return comm.exchange({&send, 1}, {&receive, 1}); }
    [[nodiscard]] int expected(DeviceThreadCommunicator const& comm) const {
        return 100 + (comm.rank() + comm.size() - 1) % comm.size();
    }
};
}  // namespace

TEST_SUITE("comm/device") {
    TEST_CASE("what a rank sends is what its stream has produced by then, however late the stream is") {
        std::atomic<int> started = 0;
        check_none(on_comms(3, {}, [&](DeviceThreadCommunicator& comm) {
            Ring ring(comm);
            int const value = std::exchange(ring.mine, -7);
            std::atomic<bool> go = false;
            fake::hold(comm.stream(), go);  // what produces the value has yet to begin
            fake::add_task(comm.stream(), [&] { return ring.mine = value, true; });
            auto request = ring.start(comm);
            for (int i = 0; i != 100; ++i) CHECK_FALSE(request.test());
            ++started;
            while (started != 3) CHECK_FALSE(request.test());
            go = true;
            request.wait();
            CHECK(ring.got == ring.expected(comm));
        }));
    }

    TEST_CASE("a rank's exchange is over when nobody reads its memory any more") {
        std::atomic<bool> go = false;
        std::atomic<bool> checked = false;
        check_none(on_comms(2, {}, [&](DeviceThreadCommunicator& comm) {
            int value = 5;
            if (comm.rank() == 0) {
                transport::Send const send{1, reinterpret_cast<std::byte const*>(&value), box_of(4, {})};
                auto request = comm.exchange({&send, 1}, {});
                for (int i = 0; i != 1000; ++i) CHECK_FALSE(request.test());
                checked = true;
                request.wait();
                CHECK(go);
                value = 6;
            } else {
                transport::Receive const receive{0, reinterpret_cast<std::byte*>(&value), box_of(4, {})};
                fake::hold(comm.stream(), go);
                auto request = comm.exchange({}, {&receive, 1});
                while (!checked) CHECK_FALSE(request.test());
                go = true;
                request.wait();
                CHECK(value == 5);
            }
            barrier(comm);
        }));
    }

    TEST_CASE("memory of devices moves once; the host takes no part, and nothing is allocated after the beginning") {
        fake::reset();
        check_none(on_comms(4, {}, [](DeviceThreadCommunicator& comm) {
            auto const once = [&] {
                test::moves_in_order(
                    comm, [](int, int) { return 3; }, [](int, int, int k) { return 1000 + k; });
            };
            once();
            barrier(comm);
            fake::Counts const before = fake::counts();
            int const held = fake::live_allocations();
            barrier(comm);
            for (int i = 0; i != 5; ++i) once();
            barrier(comm);
            fake::Counts const after = fake::counts();
            CHECK(after.copies - before.copies == 5 * 4 * 4 * 3);
            CHECK(after.host_functions == 0);
            CHECK(after.default_stream == 0);
            CHECK(fake::live_allocations() == held);
            barrier(comm);
            DeviceThreadCommunicator part = comm.split(comm.rank() % 2, 0);
            test::sends_one_value_to_each_peer(part);
            CHECK(part.staging_bytes() == comm.staging_bytes());  // the same window
            CHECK(fake::live_allocations() == held);
            barrier(comm);
        }));
        check_nothing_left();
    }

    TEST_CASE("pinned memory that lies in a row needs no host; other memory of the host passes through the window") {
        for (bool pinned : {true, false}) {
            for (bool strided : {true, false}) {
                CAPTURE(pinned);
                CAPTURE(strided);
                fake::reset();
                check_none(on_devices(2, 1, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
                    DeviceThreadOptions options;
                    options.window_bytes = 1024;
                    DeviceThreadCommunicator comm(std::move(host), stream, options);
                    constexpr Index count = 5000;
                    Index const step = strided ? 2 : 1;
                    std::vector<int> here(static_cast<std::size_t>(count * step));
                    std::vector<int> near(static_cast<std::size_t>(count), -1);
                    std::vector<int> back(here.size(), -1);
                    std::iota(here.begin(), here.end(), comm.rank() * 100000);
                    int const place = pinned ? fake::pinned_host : fake::pageable_host;
                    fake::claim(here.data(), here.size() * 4, place);
                    fake::claim(back.data(), back.size() * 4, place);
                    int const other = 1 - comm.rank();
                    transport::StridedBox const gaps = box_of(4, {{count, 4 * step}});
                    transport::StridedBox const dense = box_of(4, {{count, 4}});
                    transport::Send const up{other, reinterpret_cast<std::byte const*>(here.data()), gaps};
                    transport::Receive const into{other, reinterpret_cast<std::byte*>(near.data()), dense};
                    comm.exchange({&up, 1}, {&into, 1}).wait();  // host to device
                    transport::Send const down{other, reinterpret_cast<std::byte const*>(near.data()), dense};
                    transport::Receive const out{other, reinterpret_cast<std::byte*>(back.data()), gaps};
                    comm.exchange({&down, 1}, {&out, 1}).wait();  // device to host
                    int wrong = 0;
                    for (std::size_t i = 0; i != static_cast<std::size_t>(count); ++i) {
                        std::size_t const at = i * static_cast<std::size_t>(step);
                        wrong += near[i] != other * 100000 + static_cast<int>(at) || back[at] != here[at] ? 1 : 0;
                        if (strided) wrong += back[at + 1] != -1 ? 1 : 0;
                    }
                    CHECK(wrong == 0);
                    CHECK(comm.staging_bytes() == 1024);
                    barrier(comm);
                    fake::claim(here.data(), 0, 0);
                    fake::claim(back.data(), 0, 0);
                }));
                CHECK((fake::counts().host_functions == 0) == (pinned && !strided));
                CHECK(fake::counts().pinned_allocations == 2);
            }
        }
        check_nothing_left();
    }

    TEST_CASE("plans run between views of devices and of the host; memory of another device is refused on all ranks") {
        for (int ranks : {1, 2, 3}) {
            CAPTURE(ranks);
            check_none(on_comms(ranks, {}, [&](DeviceThreadCommunicator& comm) {
                Mesh const mesh{comm.size()};
                Shape const shape{7, 10};
                auto const rows = distribution<Shard<0>>(mesh, shape);
                auto const columns = distribution<Shard<1>>(mesh, shape);
                auto const whole = distribution<Replicate>(mesh, shape);
                auto const local = [&](auto const& where) {
                    return std::vector<float>(static_cast<std::size_t>(where.local_shape(comm.rank()).size()));
                };
                std::vector<float> from = local(rows);
                std::vector<float> middle = local(columns);
                std::vector<float> all = local(whole);
                std::iota(from.begin(), from.end(), static_cast<float>(rows.box(comm.rank()).begin(0) * 10));
                fake::claim(middle.data(), middle.size() * sizeof(float), fake::pageable_host);
                TensorView<float> const a{from.data(), rows.local_shape(comm.rank())};
                TensorView<float> const b{middle.data(), columns.local_shape(comm.rank())};
                TensorView<float> const c{all.data(), whole.local_shape(comm.rank())};
                prepare(plan(rows, columns), comm, a, b).run();
                prepare(plan(columns, whole), comm, b, c).run();
                int wrong = 0;
                for (std::size_t i = 0; i != all.size(); ++i) wrong += all[i] != static_cast<float>(i) ? 1 : 0;
                CHECK(wrong == 0);
                std::vector<float> own = local(rows);  // nothing is sent: done on return, as the host's memory is
                fake::claim(own.data(), own.size() * sizeof(float), fake::pinned_host);
                prepare(plan(whole, rows), comm, c, TensorView<float>{own.data(), a.shape()}).run();
                CHECK(own == from);
                fake::claim(own.data(), 0, 0);

                if (comm.rank() == comm.size() - 1) fake::claim(from.data(), from.size() * sizeof(float), 9);
                CHECK_THROWS_WITH_AS(static_cast<void>(prepare(plan(rows, columns), comm, a, b)),
                                     doctest::Contains("this is memory of device 9"), BufferError);
                fake::claim(from.data(), 0, 0);
                TensorView<float> const nothing{nullptr, b.shape()};
                bool const last = comm.rank() == comm.size() - 1;
                CHECK_THROWS_WITH_AS(static_cast<void>(prepare(plan(rows, columns), comm, a, last ? nothing : b)),
                                     doctest::Contains("is null. Fix: pass memory"), BufferError);
                fake::claim(middle.data(), 0, 0);
                prepare(plan(rows, columns), comm, a, b).run();          // and nothing is poisoned
                auto const owed = distribution<Partial<>>(mesh, shape);  // there are no kernels to fold
                std::vector<float> addends = local(owed);
                TensorView<float> const d{addends.data(), owed.local_shape(comm.rank())};
                if (comm.size() > 1) {
                    CHECK_THROWS_WITH_AS(static_cast<void>(prepare(plan(owed, whole), comm, d, c)),
                                         doctest::Contains("DeviceThreadKernelCommunicator"), TransitionError);
                }
            }));
        }
    }

    TEST_CASE("ranks may share a stream") {
        fake::Stream shared;
        check_none(on_devices(3, 1, {}, [&](ThreadCommunicator& host, cudaStream_t) {
            DeviceThreadCommunicator comm(std::move(host), shared);
            for (int i = 0; i != 20; ++i) test::sends_one_value_to_each_peer(comm);
        }));
    }

    TEST_CASE("a call that fails is named, wherever it is made; the others learn of it, and nothing is left behind") {
        struct Case {
            char const* call;
            int code;
            int skipped;
            ErrorCode seen;
        };
        Case const cases[] = {
            {"cudaPointerGetAttributes", cudaErrorInvalidValue, 0, ErrorCode::transport},
            {"cudaPointerGetAttributes", cudaErrorInvalidValue, 5, ErrorCode::transport},
            {"cudaEventRecord", cudaErrorInvalidValue, 0, ErrorCode::transport},  // ready
            {"cudaEventRecord", cudaErrorInvalidValue, 1, ErrorCode::transport},  // fetched
            {"cudaEventRecord", cudaErrorInvalidValue, 2, ErrorCode::transport},  // complete
            {"cudaStreamWaitEvent", cudaErrorInvalidValue, 0, ErrorCode::transport},
            {"cudaStreamWaitEvent", cudaErrorInvalidValue, 2, ErrorCode::transport},
            {"cudaDeviceCanAccessPeer", cudaErrorInvalidDevice, 0, ErrorCode::transport},
            {"cudaDeviceEnablePeerAccess", cudaErrorInvalidDevice, 1, ErrorCode::transport},
            {"cudaMemPoolSetAccess", cudaErrorInvalidDevice, 1, ErrorCode::transport},
            {"cudaMemcpy2DAsync", cudaErrorInvalidValue, 0, ErrorCode::transport},
            {"cudaMemcpyAsync", cudaErrorMemoryAllocation, 3, ErrorCode::out_of_memory},
            {"cudaEventQuery", cudaErrorIllegalAddress, 0, ErrorCode::transport},
            {"cudaLaunchHostFunc", cudaErrorInvalidValue, 0, ErrorCode::transport},
        };
        for (Case const& one : cases) {
            CAPTURE(one.call);
            CAPTURE(one.skipped);
            fake::reset();
            auto const ended = on_comms(3, {}, [&](DeviceThreadCommunicator& comm) {
                DeviceThreadCommunicator child = comm.split(0, 0);
                if (comm.rank() == 1) fake::fail(one.call, one.code, one.skipped);
                try {
                    test::moves_strided_boxes(comm);
                    test::converts_on_the_way(comm);
                    FAIL("the fault was not met");
                } catch (Error const&) {
                    check_poisoned(comm);
                    check_poisoned(child);
                    throw;
                }
            });
            CAPTURE(ended[1].text);
            CHECK(ended[1].code == one.seen);
            CHECK(ended[1].says(errors::concat("reshard: ", one.call, " failed: ")));
            CHECK(ended[1].says("Fix: "));
            for (std::size_t r : {0U, 2U}) {
                CAPTURE(ended[r].text);
                CHECK(ended[r].code == ErrorCode::peer_failed);
                CHECK(ended[r].says("rank 1 failed: "));
            }
            check_nothing_left();
        }
        fake::reset();
    }

    TEST_CASE("a device without pools of memory has none to open to its peers") {
        fake::reset();
        check_none(on_comms(2, {}, [&](DeviceThreadCommunicator& comm) {
            fake::fail("cudaDeviceGetMemPool", cudaErrorNotSupported);
            test::moves_strided_boxes(comm);
        }));
        CHECK(fake::counts().opened_peers == 2);
        CHECK(fake::counts().opened_pools == 0);
    }

    TEST_CASE("what cannot begin fails on every rank that asks") {
        for (char const* call : {"cudaMallocHost", "cudaEventCreateWithFlags"}) {
            CAPTURE(call);
            auto const ended = on_devices(3, 3, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
                if (host.rank() == 2) fake::fail(call, cudaErrorMemoryAllocation);
                DeviceThreadCommunicator comm(std::move(host), stream);
                barrier(comm);
            });
            CHECK(ended[2].code == ErrorCode::out_of_memory);
            CHECK(ended[0].code == ErrorCode::peer_failed);
            CHECK(ended[1].code == ErrorCode::peer_failed);
            check_nothing_left();
        }
        // Without a window what would need it is refused, by the rank that fetches it.
        auto const ended = on_devices(2, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
            DeviceThreadOptions options;
            options.window_bytes = 0;
            DeviceThreadCommunicator comm(std::move(host), stream, options);
            test::moves_strided_boxes(comm);
            test::converts_on_the_way(comm);
        });
        CHECK((ended[0].says("window_bytes") || ended[1].says("window_bytes")));
        CHECK((ended[0].code == ErrorCode::out_of_memory || ended[1].code == ErrorCode::out_of_memory));
        check_nothing_left();
    }

    TEST_CASE("memory of another device, payloads that differ and other calls are errors on both sides") {
        auto const wrong_device = on_comms(3, {}, [](DeviceThreadCommunicator& comm) {
            Ring ring(comm);
            if (comm.rank() == 1) fake::claim(&ring.got, 4, 0);
            auto const forget = [&] { fake::claim(&ring.got, 0, 0); };
            try {
                ring.start(comm).wait();
            } catch (...) {
                forget();
                throw;
            }
            forget();
        });
        CHECK(wrong_device[1].code == ErrorCode::buffer);
        CHECK(wrong_device[1].says("moves memory of device 1 here, and this is memory of device 0"));
        CHECK(wrong_device[0].code == ErrorCode::peer_failed);
        CHECK(wrong_device[2].code == ErrorCode::peer_failed);

        auto const differing = on_comms(3, {}, [](DeviceThreadCommunicator& comm) {
            std::vector<std::byte> bytes(64, std::byte{0x77});
            transport::Send const send{1, bytes.data(), box_of(1, {{24, 1}})};
            transport::Receive const receive{0, bytes.data(), box_of(1, {{32, 1}})};
            auto request = comm.rank() == 0   ? comm.exchange({&send, 1}, {})
                           : comm.rank() == 1 ? comm.exchange({}, {&receive, 1})
                                              : comm.exchange({}, {});
            request.wait();
        });
        for (std::size_t r : {0U, 1U, 2U}) {
            CHECK(differing[r].code == (r == 2 ? ErrorCode::peer_failed : ErrorCode::mismatch));
            CHECK(differing[r].says("rank 0 sends 24 bytes, rank 1 expects 32 bytes"));
        }

        auto const mixed = on_devices(2, 1, {}, [](ThreadCommunicator& host, cudaStream_t stream) {
            if (host.rank() == 1) return host.exchange({}, {}).wait();  // as a rank of the host
            DeviceThreadCommunicator comm(std::move(host), stream);
            comm.exchange({}, {}).wait();
        });
        for (Ended const& each : mixed) {
            CHECK(each.code == ErrorCode::mismatch);
            CHECK(each.says("called exchange among devices"));
        }

        CHECK(on_comms(1, {},
                       [](DeviceThreadCommunicator& comm) {
                           auto exchange = comm.exchange({}, {});
                           exchange.start();
                       })[0]
                  .says("under way"));
        check_nothing_left();
    }

    TEST_CASE("a rank that never comes is a DeadlineExceeded that names it") {
        ThreadOptions options;
        options.deadline = 500ms;
        std::atomic<bool> gave_up = false;
        auto const ended = on_comms(2, options, [&](DeviceThreadCommunicator& comm) {
            if (comm.rank() == 1) {
                while (!gave_up) std::this_thread::yield();
                return barrier(comm);
            }
            try {
                Ring(comm).start(comm).wait();
            } catch (...) {
                gave_up = true;
                throw;
            }
        });
        CHECK(ended[0].code == ErrorCode::deadline);
        CHECK(ended[0].says("for rank 1"));
        CHECK(ended[1].code == ErrorCode::peer_failed);
        check_nothing_left();
    }

    TEST_CASE("a device that is never done is a DeadlineExceeded; what it may still use is not freed") {
        ThreadOptions options;
        options.deadline = 500ms;
        for (bool catches_up : {false, true}) {  // before the communicator goes
            CAPTURE(catches_up);
            std::atomic<bool> go = false;
            fake::Stream streams[2];  // they go on after the ranks, as devices would
            int values[4] = {0, 1, 2, 3};
            auto const ended = on_devices(2, 2, options, [&](ThreadCommunicator& host, cudaStream_t) {
                int const me = host.rank();
                DeviceThreadCommunicator comm(std::move(host), streams[me]);
                transport::Send const send{1 - me, reinterpret_cast<std::byte const*>(&values[me]), box_of(4, {})};
                transport::Receive const receive{1 - me, reinterpret_cast<std::byte*>(&values[2 + me]), box_of(4, {})};
                fake::hold(comm.stream(), go);
                try {
                    comm.exchange({&send, 1}, {&receive, 1}).wait();
                } catch (...) {
                    if (catches_up) {
                        go = true;
                        fake::finish(comm.stream());
                    }
                    throw;
                }
            });
            CHECK((ended[0].code == ErrorCode::deadline || ended[1].code == ErrorCode::deadline));
            if (!catches_up) {
                CHECK((ended[0].says("to be done with an exchange") && ended[1].says("to be done with an exchange")));
                test::kept_windows += 2;
            }
            check_nothing_left();
            go = true;
            for (cudaStream_t stream : streams) fake::finish(stream);
            CHECK((values[2] == 1 && values[3] == 0));
        }
    }

    TEST_CASE("the host's part of a late stream is called off when ranks have given up: their memory may be gone") {
        ThreadOptions options;
        options.deadline = 200ms;
        std::atomic<bool> go = false;
        fake::Stream streams[2];
        std::vector<std::byte> all(64, std::byte{0xEE});
        fake::set_elsewhere(fake::Elsewhere::pageable);
        auto const ended = on_devices(2, 2, options, [&](ThreadCommunicator& host, cudaStream_t) {
            int const me = host.rank();
            DeviceThreadCommunicator comm(std::move(host), streams[me]);
            std::vector<std::byte> const mine(32, std::byte{7});
            std::vector<std::byte> other(64);
            if (me == 0) fake::hold(comm.stream(), go);
            all_gather(comm, std::span<std::byte const>(mine), std::span<std::byte>(me == 0 ? all : other));
        });
        fake::set_elsewhere(fake::Elsewhere::current_device);
        CHECK((ended[0].code == ErrorCode::deadline || ended[1].code == ErrorCode::deadline));
        go = true;
        for (cudaStream_t stream : streams) fake::finish(stream);
        CHECK(all == std::vector<std::byte>(64, std::byte{0xEE}));
        test::kept_windows += 2;
        check_nothing_left();
    }

    TEST_CASE("an exchange that ends has brought its bytes, or throws, where a rank that is done with it has failed") {
        std::atomic<bool> go = false;
        fake::Stream streams[3];
        std::vector<std::byte> got[2]{std::vector<std::byte>(64), std::vector<std::byte>(64)};
        fake::set_elsewhere(fake::Elsewhere::pageable);
        auto const ended = on_devices(3, 3, {}, [&](ThreadCommunicator& host, cudaStream_t) {
            int const me = host.rank();
            DeviceThreadCommunicator comm(std::move(host), streams[me]);
            if (me == 2) {
                comm.exchange({}, {}).wait();  // all have enqueued what they fetch
                comm.abort(ErrorCode::user, "enough");
                go = true;
                return;
            }
            std::vector<std::byte> const mine(64, std::byte{7});
            if (me == 0) fake::hold(comm.stream(), go);
            transport::Send const send{1 - me, mine.data(), box_of(1, {{64, 1}})};
            transport::Receive const receive{1 - me, got[me].data(), box_of(1, {{64, 1}})};
            comm.exchange({&send, 1}, {&receive, 1}).wait();
        });
        fake::set_elsewhere(fake::Elsewhere::current_device);
        for (std::size_t r = 0; r < 2; ++r) CHECK((ended[r].code != ErrorCode::none || got[r][0] == std::byte{7}));
    }

    TEST_CASE("a rank leaves a failed exchange only when no device reads its memory any more") {
        // Rank 2 fails between the phases. By then rank 0 has asked its device to read memory of rank 1, which does so
        // when `go` is set; rank 1 frees its memory as soon as it is out. AddressSanitizer sees a violation as well.
        for (int trial = 0; trial != 20; ++trial) {
            CAPTURE(trial);
            fake::reset();
            std::atomic<bool> go = false;
            std::atomic<int> out = 0;
            std::atomic<int> fetched = 0;
            auto const ended = on_comms(3, {}, [&](DeviceThreadCommunicator& comm) {
                constexpr Index bytes = 1 << 14;
                int const me = comm.rank();
                if (me == 2) {
                    auto request = comm.exchange({}, {});
                    while (fetched != 2) std::this_thread::yield();
                    comm.abort(ErrorCode::user, "enough");
                    for (int i = 0; i != 200; ++i) std::this_thread::yield();
                    CHECK(out == 0);
                    go = true;
                    return;
                }
                std::vector<std::byte> mine(bytes, std::byte{7});
                std::vector<std::byte> got(bytes);
                if (me == 0) fake::hold(comm.stream(), go);
                transport::Send const send{1 - me, mine.data(), box_of(1, {{bytes, 1}})};
                transport::Receive const receive{1 - me, got.data(), box_of(1, {{bytes, 1}})};
                try {
                    auto request = comm.exchange({&send, 1}, {&receive, 1});
                    // Rank 2 has laid out its part: the first step after that fetches.
                    fake::Counts const before = fake::counts();
                    while (fake::counts().copies == before.copies) CHECK_FALSE(request.test());
                    ++fetched;
                    request.wait();
                    FAIL("it completed");
                } catch (...) {
                    ++out;
                    mine.clear();
                    mine.shrink_to_fit();
                    CHECK(go);
                    throw;
                }
            });
            for (std::size_t r : {0U, 1U}) {
                CHECK(ended[r].code == ErrorCode::peer_failed);
                CHECK(ended[r].says("rank 2 failed: enough"));
            }
            check_nothing_left();
        }
    }

    TEST_CASE("a rank that fails while it asks its device to read stays, as do its peers, until that has been done") {
        std::atomic<bool> go = false;
        std::atomic<int> out = 0;
        auto const ended = on_comms(3, {}, [&](DeviceThreadCommunicator& comm) {
            int const me = comm.rank();
            int values[2] = {me, me};
            std::vector<transport::Send> sends;
            std::vector<transport::Receive> receives;
            for (int k = 0; me != 2 && k != 2; ++k) {
                auto* const at = reinterpret_cast<std::byte*>(&values[k]);
                if (me == 1) sends.push_back({0, at, box_of(4, {})});
                if (me == 0) receives.push_back({1, at, box_of(4, {})});
            }
            if (me == 0) {
                fake::hold(comm.stream(), go);
                fake::fail("cudaMemcpyAsync", cudaErrorInvalidValue, 1);
            }
            try {
                comm.exchange(sends, receives).wait();
                FAIL("it completed");
            } catch (...) {
                if (me == 2) {  // nobody reads its memory
                    for (int i = 0; i != 200; ++i) std::this_thread::yield();
                    CHECK(out == 0);
                    go = true;
                }
                ++out;
                throw;
            }
        });
        CHECK(ended[0].code == ErrorCode::transport);
        CHECK(ended[1].code == ErrorCode::peer_failed);
        CHECK(ended[2].code == ErrorCode::peer_failed);
        check_nothing_left();
    }

    TEST_CASE("nobody frees memory that a device still reads, whoever fails when") {
        auto const seed = 23U;
        CAPTURE(seed);
        std::mt19937 rng(seed);
        for (int trial = 0; trial != 30; ++trial) {
            CAPTURE(trial);
            int const culprit = static_cast<int>(rng() % 4U);
            int const pause = static_cast<int>(rng() % 50U);
            auto const ended = on_comms(4, {}, [&](DeviceThreadCommunicator& comm) {
                test::exchange_until_spoilt(comm, culprit, Index{1} << 12, [&](auto& request) {
                    for (int i = 0; i != pause; ++i) static_cast<void>(request.test());
                    comm.abort(ErrorCode::user, "now");
                });
            });
            for (Ended const& each : ended) CHECK(each.code == ErrorCode::peer_failed);
            check_nothing_left();
        }
    }
}
