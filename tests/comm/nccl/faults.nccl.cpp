// SPDX-License-Identifier: Apache-2.0
// What goes wrong among ranks of NCCL: typed errors on every rank, and nobody waits for ever.
#include "../alike.hpp"
#include "gpus.hpp"
#include "support/allocations.hpp"

#include <sys/wait.h>  // waitpid
#include <unistd.h>    // fork

#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {
using namespace reshard;
using namespace std::chrono_literals;
using test::box_of;
using test::check_poisoned;
using test::Ended;
using test::on_devices;
using test::on_gpus;
namespace fake = test::fake_nccl;

NcclOptions with_deadline(std::chrono::milliseconds deadline) {
    NcclOptions options;
    options.deadline = deadline;
    return options;
}

/// The ways ranks can be waiting for one another.
enum class Wait { exchange, agree, split, child_agree };
constexpr Wait all_waits[] = {Wait::exchange, Wait::agree, Wait::split, Wait::child_agree};

void wait_for_others(NcclCommunicator& comm, NcclCommunicator& child, Wait how) {
    switch (how) {
        case Wait::exchange: return test::sends_one_value_to_each_peer(comm);
        case Wait::agree: return barrier(comm);
        case Wait::split: return static_cast<void>(comm.split(0, 0));
        case Wait::child_agree: return barrier(child);
    }
}

void check_nothing_left() {
    CHECK(fake::live_communicators() == 0);
    CHECK(fake::live_allocations() == 0);
}

/// Runs body(comm, child), which fails somewhere, and tries afterwards that both communicators stay failed.
template <class Body>
std::vector<Ended> failing(int ranks, NcclOptions const& options, Body const& body) {
    auto const ended = on_gpus(ranks, options, [&](NcclCommunicator& comm) {
        NcclCommunicator child = comm.split(0, 0);
        try {
            body(comm, child);
        } catch (Error const&) {
            check_poisoned(comm);
            check_poisoned(child);
            throw;
        }
    });
    check_nothing_left();
    return ended;
}
}  // namespace

TEST_SUITE("comm/nccl") {
    TEST_CASE("an asynchronous error of NCCL on one rank is its TransportError, and PeerFailed on the others") {
        for (Wait how : all_waits) {
            for (int culprit : {0, 2}) {
                CAPTURE(static_cast<int>(how));
                CAPTURE(culprit);
                auto const ended = failing(3, {}, [&](NcclCommunicator& comm, NcclCommunicator& child) {
                    ncclComm_t const native = how == Wait::child_agree ? child.native() : comm.native();
                    if (comm.rank() == culprit) fake::set_async_error(native, ncclSystemError);
                    wait_for_others(comm, child, how);
                });
                for (int r = 0; r != 3; ++r) {
                    Ended const& mine = ended[static_cast<std::size_t>(r)];
                    CAPTURE(mine.text);
                    CHECK(mine.code == (r == culprit ? ErrorCode::transport : ErrorCode::peer_failed));
                    CHECK(mine.says("unhandled system error"));
                    CHECK(mine.says("Fix: "));
                    if (r != culprit) CHECK(mine.says(errors::concat("rank ", culprit, " failed: ")));
                }
            }
        }
    }

    TEST_CASE("an error NCCL blames on a peer is PeerFailed") {
        auto const ended = failing(2, {}, [&](NcclCommunicator& comm, NcclCommunicator&) {
            if (comm.rank() == 1) fake::set_async_error(comm.native(), ncclRemoteError);
            barrier(comm);
        });
        for (Ended const& each : ended) CHECK(each.code == ErrorCode::peer_failed);
        CHECK(ended[1].says("remote process exited"));
    }

    TEST_CASE("a call that fails is named, wherever it is made") {
        struct Case {
            char const* call;
            int code;
            ErrorCode seen;
        };
        Case const cases[] = {
            {"ncclSend", ncclSystemError, ErrorCode::transport},
            {"ncclRecv", ncclRemoteError, ErrorCode::peer_failed},
            {"ncclGroupEnd", ncclInvalidUsage, ErrorCode::transport},
            {"ncclCommGetAsyncError", ncclInternalError, ErrorCode::transport},
            {"cudaMemcpyAsync", cudaErrorInvalidValue, ErrorCode::transport},
            {"cudaMemcpy2DAsync", cudaErrorInvalidValue, ErrorCode::transport},
            {"cudaLaunchHostFunc", cudaErrorInvalidValue, ErrorCode::transport},
            {"cudaEventRecord", cudaErrorInvalidValue, ErrorCode::transport},
            {"cudaEventQuery", cudaErrorIllegalAddress, ErrorCode::transport},
            {"cudaPointerGetAttributes", cudaErrorInvalidValue, ErrorCode::transport},
            {"cudaMalloc", cudaErrorMemoryAllocation, ErrorCode::out_of_memory},
            {"cudaMallocHost", cudaErrorMemoryAllocation, ErrorCode::out_of_memory},
        };
        for (Case const& one : cases) {
            CAPTURE(one.call);
            auto const ended = failing(3, {}, [&](NcclCommunicator& comm, NcclCommunicator&) {
                if (comm.rank() == 1) fake::fail(one.call, one.code);
                test::moves_strided_boxes(comm);
                test::converts_on_the_way(comm);
                FAIL("the fault was not met");
            });
            CAPTURE(ended[1].text);
            CHECK(ended[1].code == one.seen);
            if (one.seen != ErrorCode::out_of_memory) CHECK(ended[1].says(errors::concat(one.call, " failed: ")));
            CHECK(ended[1].says("Fix: "));
            for (std::size_t r : {0U, 2U}) {
                CAPTURE(ended[r].text);
                CHECK(ended[r].code == ErrorCode::peer_failed);
                CHECK(ended[r].says("rank 1 failed: "));
            }
        }
    }

    TEST_CASE("a collective that fails is named") {
        for (char const* call : {"ncclAllReduce", "ncclCommSplit"}) {
            CAPTURE(call);
            auto const ended = failing(2, {}, [&](NcclCommunicator& comm, NcclCommunicator&) {
                if (comm.rank() == 0) fake::fail(call, ncclSystemError);
                static_cast<void>(comm.split(0, 0));
            });
            CHECK(ended[0].code == ErrorCode::transport);
            CHECK(ended[0].says(errors::concat(call, " failed: ")));
            CHECK(ended[1].code == ErrorCode::peer_failed);
        }
    }

    TEST_CASE("a rank that never comes is named when the deadline has passed, to all who waited") {
        for (Wait how : all_waits) {
            CAPTURE(static_cast<int>(how));
            std::atomic<int> gave_up = 0;
            auto const ended = failing(4, with_deadline(1s), [&](NcclCommunicator& comm, NcclCommunicator& child) {
                if (comm.rank() % 2 == 1) {
                    while (gave_up != 2) std::this_thread::sleep_for(1ms);
                    barrier(comm);  // too late
                    return;
                }
                try {
                    wait_for_others(comm, child, how);
                } catch (...) {
                    ++gave_up;
                    throw;
                }
            });
            for (std::size_t r = 0; r != 4; ++r) {
                CAPTURE(ended[r].text);
                CHECK(ended[r].code == (r % 2 == 0 ? ErrorCode::deadline : ErrorCode::peer_failed));
                CHECK(ended[r].says("for rank 1, 3"));
            }
        }
    }

    TEST_CASE("of those that have not come one is named that does not wait itself, in whichever communicator") {
        std::atomic<int> gave_up = 0;
        auto const ended = on_gpus(4, with_deadline(1500ms), [&](NcclCommunicator& comm) {
            NcclCommunicator line = comm.split(comm.rank() / 2, 0);
            barrier(comm);
            if (comm.rank() == 3) {
                while (gave_up != 3) std::this_thread::sleep_for(1ms);
                return;
            }
            if (comm.rank() == 2) std::this_thread::sleep_for(500ms);  // the others give up first
            try {
                barrier(comm.rank() == 2 ? line : comm);
            } catch (...) {
                ++gave_up;
                throw;
            }
        });
        for (std::size_t r : {0U, 1U, 2U}) {
            CAPTURE(ended[r].text);
            CHECK(ended[r].says("in agree for rank 3. Fix"));
        }
        check_nothing_left();
    }

    TEST_CASE("a rank whose program says so leaves its wait, and the others are told") {
        static thread_local bool enough = false;
        for (Wait how : all_waits) {
            CAPTURE(static_cast<int>(how));
            std::atomic<int> gave_up = 0;
            NcclOptions options = with_deadline(1h);
            options.interrupted = [] { return enough; };
            auto const ended = failing(3, options, [&](NcclCommunicator& comm, NcclCommunicator& child) {
                if (comm.rank() == 0) {
                    while (gave_up != 2) std::this_thread::sleep_for(1ms);
                    return barrier(comm);
                }
                enough = comm.rank() == 1;
                try {
                    wait_for_others(comm, child, how);
                } catch (...) {
                    ++gave_up;
                    throw;
                }
            });
            CHECK(ended[1].code == ErrorCode::user);
            CHECK(ended[1].says("reshard::NcclCommunicator: interrupted() of its options has ended a wait in "));
            for (std::size_t r : {0U, 2U}) {
                CAPTURE(ended[r].text);
                CHECK(ended[r].code == ErrorCode::peer_failed);
                CHECK(ended[r].says("rank 1 failed: reshard::NcclCommunicator: interrupted() "));
            }
        }
    }

    TEST_CASE("a device that is never done: what other communicators of its rank have there is kept") {
        static std::atomic<int> freed;
        std::atomic<bool> const never = false;
        freed = 0;
        NcclOptions options = with_deadline(300ms);
        options.staging = {0, StagingOptions{}.allocate, [](std::byte*, Index) noexcept { ++freed; }};
        options.host_staging = options.staging;
        auto const ended = on_gpus(2, options, [&](NcclCommunicator& comm) {
            NcclCommunicator const other = comm.split(0, 0);
            NcclCommunicator child = comm.split(0, 0);
            std::byte bytes[12] = {};
            transport::Send const send{1 - comm.rank(), bytes, box_of(1, {{3, 2}})};
            transport::Receive const receive{1 - comm.rank(), bytes + 6, box_of(1, {{3, 2}})};
            child.exchange({&send, 1}, {&receive, 1}).wait();
            CHECK(child.staging_bytes() > 0);
            test::fake_runtime::hold(comm.stream(), never);
            barrier(comm);
        });
        CHECK((ended[0].code == ErrorCode::deadline || ended[1].code == ErrorCode::deadline));
        CHECK(freed == 0);
        check_nothing_left();
    }

    TEST_CASE("a rank that leaves early fails those that wait for it, long before the deadline") {
        for (Wait how : all_waits) {
            CAPTURE(static_cast<int>(how));
            std::atomic<int> out = 0;
            auto const ended = on_devices(3, [&](ThreadCommunicator& host, cudaStream_t stream) {
                std::optional<NcclCommunicator> comm = nccl_from(host, stream, with_deadline(1h));
                std::optional<NcclCommunicator> child = comm->split(0, 0);
                if (host.rank() == 1) {
                    child.reset();
                    comm.reset();
                    ++out;
                    return;
                }
                while (out == 0) std::this_thread::yield();
                wait_for_others(*comm, *child, how);
            });
            for (std::size_t r : {0U, 2U}) {
                CAPTURE(ended[r].text);
                CHECK(ended[r].code == ErrorCode::peer_failed);
                CHECK(ended[r].says("rank 1 has left"));
            }
            check_nothing_left();
        }
    }

    TEST_CASE("a rank that throws in between fails the others, and the reason travels") {
        auto const ended = on_gpus(3, with_deadline(1h), [](NcclCommunicator& comm) {
            if (comm.rank() == 2) {
                comm.abort(ErrorCode::user, "the disk is full");
                throw std::runtime_error("the disk is full");
            }
            barrier(comm);
        });
        for (std::size_t r : {0U, 1U}) {
            CHECK(ended[r].code == ErrorCode::peer_failed);
            CHECK(ended[r].says("rank 2 failed: the disk is full"));
        }
        check_nothing_left();
    }

    TEST_CASE(
        "an exception that destroys a child before it is caught is what others hear of, not that a rank has left") {
        auto const ended = on_gpus(3, with_deadline(1h), [](NcclCommunicator& comm) {
            try {
                struct SlowToEnd {
                    ~SlowToEnd() { std::this_thread::sleep_for(300ms); }
                } const slow;
                NcclCommunicator child = comm.split(0, 0);
                if (comm.rank() == 2) throw std::runtime_error("the disk is full");
                barrier(child);
            } catch (std::runtime_error const& error) {
                if (comm.rank() == 2) comm.abort(ErrorCode::user, error.what());
                throw;
            }
        });
        for (std::size_t r : {0U, 1U}) {
            CAPTURE(ended[r].text);
            CHECK(ended[r].code == ErrorCode::peer_failed);
            CHECK(ended[r].says("rank 2 failed: the disk is full"));
        }
        check_nothing_left();
    }

    TEST_CASE("abort in a split child poisons the whole family, wherever the others wait") {
        std::atomic<int> ready = 0;
        auto const ended = on_gpus(4, with_deadline(1h), [&](NcclCommunicator& comm) {
            NcclCommunicator child = comm.split(0, -comm.rank());  // the other way round
            NcclCommunicator grandchild = child.split(comm.rank() % 2, 0);
            std::string text;
            for (++ready; ready != 4;) std::this_thread::yield();
            try {
                if (comm.rank() == 3) grandchild.abort(ErrorCode::format, "bad header");
                static_cast<void>((comm.rank() % 2 == 0 ? comm : child).agree({}));
                barrier(grandchild);
            } catch (PeerFailed const& error) {
                text = error.message();
            }
            CAPTURE(text);
            CHECK(text.find("rank 3 failed: bad header") != std::string::npos);  // as the outermost counts
            check_poisoned(comm);
            check_poisoned(child);
            check_poisoned(grandchild);
        });
        test::check_none(ended);
        check_nothing_left();
    }

    TEST_CASE("making a communicator that never becomes ready ends at the deadline, and leaves nothing behind") {
        fake::reset();
        fake::stall_init(true);
        auto const ended = on_gpus(2, with_deadline(300ms), [](NcclCommunicator&) { FAIL("it became ready"); });
        fake::reset();
        for (Ended const& each : ended) {
            CAPTURE(each.text);
            CHECK(each.code == ErrorCode::deadline);
            CHECK(each.says("making the communicator"));
            CHECK(each.says("NcclOptions::deadline"));
        }
        check_nothing_left();
    }

    TEST_CASE("a rank that does not come to make the communicator is a DeadlineExceeded") {
        ncclUniqueId const id = nccl_unique_id();
        auto const ended = on_devices(2, [&](ThreadCommunicator& host, cudaStream_t stream) {
            if (host.rank() == 1) return;
            NcclCommunicator const comm = NcclCommunicator::make(id, 0, 2, stream, with_deadline(60ms));
        });
        CHECK(ended[0].code == ErrorCode::deadline);
        check_nothing_left();
    }

    TEST_CASE("what cannot begin fails on every rank") {
        auto const no_id = on_devices(3, [&](ThreadCommunicator& host, cudaStream_t stream) {
            if (host.rank() == 0) fake::fail("ncclGetUniqueId", ncclSystemError);
            NcclCommunicator const comm = nccl_from(host, stream);
        });
        for (Ended const& each : no_id) {
            CHECK(each.code == ErrorCode::transport);
            CHECK(each.says("ncclGetUniqueId failed: "));
        }
        auto const differing = on_devices(3, [&](ThreadCommunicator& host, cudaStream_t stream) {
            NcclOptions options;
            options.compare = host.rank() != 2;
            NcclCommunicator const comm = nccl_from(host, stream, options);
        });
        for (Ended const& each : differing) {
            CHECK(each.code == ErrorCode::mismatch);
            CHECK(each.says("NcclOptions of rank 2 are not those of rank 0"));
        }
        fake::gather_first(detail::version_word + 1);
        auto const versions = on_devices(3, [&](ThreadCommunicator& host, cudaStream_t stream) {
            NcclCommunicator const comm = nccl_from(host, stream);
        });
        fake::gather_first(0);
        for (Ended const& each : versions) {
            CHECK(each.code == ErrorCode::mismatch);
            CHECK(each.says(" of this library, that of rank 2 with " + detail::version_text(detail::version_word + 1)));
        }
        auto const no_memory = on_devices(2, [&](ThreadCommunicator& host, cudaStream_t stream) {
            NcclOptions options = with_deadline(1h);
            if (host.rank() == 0) options.staging.allocate = [](Index) noexcept -> std::byte* { return nullptr; };
            NcclCommunicator const comm = nccl_from(host, stream, options);
        });
        for (Ended const& each : no_memory) CHECK(each.code == ErrorCode::out_of_memory);
        CHECK_THROWS_AS(NcclCommunicator(nullptr, nullptr), TransportError);
        CHECK_THROWS_AS(static_cast<void>(NcclCommunicator::make({}, 2, 2, nullptr)), MeshError);
        check_nothing_left();
    }

    TEST_CASE("payloads of different size are a mismatch on both ranks and PeerFailed on the others") {
        std::vector<test::Mismatch> cases = test::mismatches;
        cases.push_back({{1, 2, 3, 4, 5}, {1, 2, 3, 4, 6}, "5 transfers of 15 bytes, rank 3 expects 5 of 16"});
        for (test::Mismatch const& one : cases) {
            for (bool by_test : {false, true}) {
                CAPTURE(one.story);
                CAPTURE(by_test);
                std::vector<std::byte> untouched(64, std::byte{0x77});
                auto const ended = on_gpus(4, {}, [&](NcclCommunicator& comm) {
                    test::exchange_mismatched(comm, one, by_test, untouched.data());
                    barrier(comm);  // ranks 0 and 2 had nothing to do with it
                });
                for (std::size_t r = 0; r != 4; ++r) {
                    CAPTURE(ended[r].text);
                    CHECK(ended[r].code == (r % 2 == 1 ? ErrorCode::mismatch : ErrorCode::peer_failed));
                    CHECK(ended[r].says(one.story));
                }
                CHECK(ended[1].text == ended[3].text);
                CHECK(untouched == std::vector<std::byte>(64, std::byte{0x77}));
                check_nothing_left();
            }
        }
    }

    TEST_CASE("a rank that has no memory for what it splits off tells the others") {
        auto const ended = on_gpus(3, with_deadline(20s), [](NcclCommunicator& comm) {
            auto& counter = test::allocation_counter();
            counter.once = true;
            if (comm.rank() == 1) counter.refused_from = 20'000;  // lists of messages
            NcclCommunicator child = comm.split(0, 0);
            barrier(child);
        });
        CHECK(ended[1].code == ErrorCode::out_of_memory);
        for (std::size_t r : {0U, 2U}) {
            CAPTURE(ended[r].text);
            CHECK(ended[r].code == ErrorCode::peer_failed);
            CHECK(ended[r].says("rank 1 failed: reshard: out of memory"));
        }
        check_nothing_left();
    }

    TEST_CASE("extents or types on the wire that differ are a mismatch, also with oneself") {
        auto const types = on_gpus(2, {}, [](NcclCommunicator& comm) {
            double value = 1;
            DType const wire = comm.rank() == 0 ? DType::i64 : DType::u64;
            transport::Conversion const conversion{DType::f64, wire, 1.0, transport::convert};
            transport::Send const send{1, reinterpret_cast<std::byte const*>(&value), box_of(8, {}), conversion};
            transport::Receive const receive{0, reinterpret_cast<std::byte*>(&value), box_of(8, {}), conversion};
            if (comm.rank() == 0) return comm.exchange({&send, 1}, {}).wait();
            comm.exchange({}, {&receive, 1}).wait();
        });
        auto const extents = on_gpus(2, {}, [](NcclCommunicator& comm) {
            std::byte bytes[6] = {};
            transport::Send const send{1, bytes, box_of(1, {{2, 3}, {3, 1}})};
            transport::Receive const receive{0, bytes, box_of(1, {{3, 2}, {2, 1}})};
            if (comm.rank() == 0) return comm.exchange({&send, 1}, {}).wait();
            comm.exchange({}, {&receive, 1}).wait();
        });
        auto const alone = on_gpus(1, {}, [](NcclCommunicator& comm) {
            std::byte bytes[8] = {};
            transport::Send const send{0, bytes, box_of(1, {{3, 1}})};
            transport::Receive const receive{0, bytes + 4, box_of(1, {{4, 1}})};
            comm.exchange({&send, 1}, {&receive, 1}).wait();
        });
        for (std::size_t r : {0U, 1U}) {
            CHECK(types[r].code == ErrorCode::mismatch);
            CHECK(types[r].says("rank 0 sends I64, rank 1 expects U64"));
            CHECK(extents[r].code == ErrorCode::mismatch);
            CHECK(extents[r].says("both sides move 6 bytes but list different extents"));
        }
        CHECK(alone[0].code == ErrorCode::mismatch);
        CHECK(alone[0].says("rank 0 sends 3 bytes, rank 0 expects 4 bytes"));
    }

    TEST_CASE("ranks that are alone share no errors: what one did is PeerFailed on the other") {
        auto const ended = on_gpus(2, with_deadline(1h), [](NcclCommunicator& comm) {
            NcclCommunicator alone = comm.split(-1, 0);
            std::byte bytes[8] = {};
            transport::Send const send{0, bytes, box_of(1, {{3, 1}})};
            transport::Receive const receive{0, bytes + 4, box_of(1, {{4, 1}})};
            if (comm.rank() == 0) return alone.exchange({&send, 1}, {&receive, 1}).wait();
            while (true) alone.exchange({}, {}).wait();
        });
        CHECK(ended[0].code == ErrorCode::mismatch);
        CHECK(ended[1].code == ErrorCode::peer_failed);
        for (Ended const& each : ended) CHECK(each.says("rank 0 sends 3 bytes, rank 0 expects 4 bytes"));
        check_nothing_left();
    }

    TEST_CASE("ranks that make different calls are told so, long before the deadline") {
        auto const ended = on_gpus(2, with_deadline(1h), [](NcclCommunicator& comm) {
            if (comm.rank() == 0) return barrier(comm);
            comm.exchange({}, {}).wait();
        });
        for (Ended const& each : ended) {
            CAPTURE(each.text);
            CHECK(each.code == ErrorCode::mismatch);
            CHECK(each.says("called agree"));
            CHECK(each.says("called exchange"));
        }
    }

    TEST_CASE("ranks that start different exchanges again are told so, long before the deadline") {
        for (bool new_one : {false, true}) {
            CAPTURE(new_one);
            auto const ended = on_gpus(2, with_deadline(1h), [&](NcclCommunicator& comm) {
                int const mine[2] = {comm.rank(), comm.rank() + 10};
                int got[2] = {-1, -1};
                int const other = 1 - comm.rank();
                auto const bind = [&](int i) {
                    static thread_local transport::Send sends[2];
                    static thread_local transport::Receive receives[2];
                    sends[i] = {other, reinterpret_cast<std::byte const*>(&mine[i]), box_of(4, {})};
                    receives[i] = {other, reinterpret_cast<std::byte*>(&got[i]), box_of(4, {})};
                    return comm.bind({&sends[i], 1}, {&receives[i], 1});
                };
                auto first = bind(0);
                auto second = bind(1);
                first.start();
                first.wait();
                if (!new_one) {
                    second.start();
                    second.wait();
                }
                // Alike in every number, and not the same.
                auto& next = comm.rank() == 0 ? first : second;
                next.start();
                next.wait();
                barrier(comm);
            });
            for (Ended const& each : ended) {
                CAPTURE(each.text);
                CHECK(each.code == ErrorCode::mismatch);
                CHECK(each.says("that one started another"));
            }
            check_nothing_left();
        }
    }

    TEST_CASE("exchanges that are alike are not mixed up, whether or not peers are trusted") {
        for (bool compare : {true, false}) {
            for (bool again : {false, true}) {
                CAPTURE(compare);
                CAPTURE(again);
                NcclOptions options = with_deadline(1h);
                options.compare = compare;
                check_none(
                    on_gpus(3, options, [&](NcclCommunicator& comm) { test::notices_another_order(comm, again); }));
                check_nothing_left();
            }
        }
    }

    TEST_CASE("memory of the host, or of another device, is refused by name") {
        std::vector<int> host_values(4);
        std::vector<int> far_values(4);
        fake::claim(host_values.data(), 16, -1);
        fake::claim(far_values.data(), 16, 7);
        auto const ended = on_gpus(2, {}, [&](NcclCommunicator& comm) {
            int near = 0;
            comm.check_memory(&near);
            CHECK_THROWS_WITH_AS(comm.check_memory(host_values.data()),
                                 doctest::Contains("device and host memory mixed. Fix: "), BufferError);
            CHECK_THROWS_WITH_AS(comm.check_memory(far_values.data() + 1),
                                 doctest::Contains("memory of device 7. Fix: "), BufferError);
            transport::Send const send{1, reinterpret_cast<std::byte const*>(host_values.data()), box_of(4, {{4, 4}})};
            transport::Receive const receive{0, reinterpret_cast<std::byte*>(&near), box_of(4, {})};
            if (comm.rank() == 0) return comm.exchange({&send, 1}, {}).wait();
            comm.exchange({}, {&receive, 1}).wait();
        });
        CHECK(ended[0].code == ErrorCode::buffer);
        CHECK(ended[1].code == ErrorCode::peer_failed);
        CHECK(ended[1].says("device and host memory mixed"));
        fake::claim(host_values.data(), 0, 0);
        fake::claim(far_values.data(), 0, 0);
    }

    TEST_CASE("an exchange out of order, or one that is under way, is refused") {
        auto const ended = on_gpus(2, {}, [](NcclCommunicator& comm) {
            NcclCommunicator other = comm.split(0, 0);
            auto first = other.exchange({}, {});
            CHECK_THROWS_WITH_AS(first.start(), doctest::Contains("under way"), TransportError);
            first.wait();
            NcclCommunicator moved = std::move(other);
            test::sends_one_value_to_each_peer(moved);
            std::byte byte{};
            transport::Send const beyond{comm.size(), &byte, box_of(1, {})};
            comm.exchange({&beyond, 1}, {}).wait();
        });
        for (Ended const& each : ended) CHECK((each.says("sort transfers by peer")));
    }

    TEST_CASE("a request's destructor gives up at the deadline and does not throw") {
        std::atomic<bool> given_up = false;
        auto const ended = on_gpus(2, with_deadline(1s), [&](NcclCommunicator& comm) {
            comm.exchange({}, {}).wait();  // from now on both are connected
            if (comm.rank() == 0) {
                { auto request = comm.exchange({}, {}); }
                given_up = true;
                check_poisoned(comm);
            } else {
                while (!given_up) std::this_thread::sleep_for(1ms);
            }
        });
        test::check_none(ended);
        check_nothing_left();
    }

    TEST_CASE("the first exchange with a peer begins when that peer's does; those behind it do not wait") {
        std::atomic<bool> began = false;
        std::atomic<bool> again = false;
        auto const ended = on_gpus(2, with_deadline(30s), [&](NcclCommunicator& comm) {
            if (comm.rank() == 0) {
                auto first = comm.exchange({}, {});
                CHECK(began);  // NCCL connects both ends before it says that a group has been launched
                first.wait();
                auto second = comm.exchange({}, {});
                again = true;
                second.wait();
                return;
            }
            std::this_thread::sleep_for(50ms);
            began = true;
            comm.exchange({}, {}).wait();
            while (!again) std::this_thread::sleep_for(1ms);
            comm.exchange({}, {}).wait();
        });
        test::check_none(ended);
        check_nothing_left();
    }

    TEST_CASE("ranks that start two communicators in opposite orders wait for each other, until the deadline") {
        auto const ended = on_gpus(2, with_deadline(1s), [&](NcclCommunicator& comm) {
            NcclCommunicator child = comm.split(0, comm.rank());
            NcclCommunicator& first = comm.rank() == 0 ? comm : child;
            NcclCommunicator& second = comm.rank() == 0 ? child : comm;
            auto one = first.exchange({}, {});
            auto other = second.exchange({}, {});
            one.wait();
            other.wait();
        });
        int deadlines = 0;
        for (Ended const& each : ended) {
            CAPTURE(each.text);
            CHECK(each.code != ErrorCode::none);
            deadlines += each.code == ErrorCode::deadline ? 1 : 0;
        }
        CHECK(deadlines > 0);
        check_nothing_left();
    }

    TEST_CASE("a communicator of the program's own is revoked after a failure, not destroyed") {
        for (bool fails : {false, true}) {
            CAPTURE(fails);
            fake::reset();
            ncclUniqueId const id = nccl_unique_id();
            auto const ended = on_devices(3, [&](ThreadCommunicator& host, cudaStream_t stream) {
                ncclComm_t native = nullptr;
                CHECK(ncclCommInitRank(&native, 3, id, host.rank()) == ncclSuccess);
                {
                    NcclCommunicator comm{native, stream};
                    CHECK(comm.native() == native);
                    test::conforms(comm);
                    if (fails) {
                        if (host.rank() == 0) comm.abort(ErrorCode::user, "enough");
                        // The one that aborts is told as well: its communicator is of no use any more.
                        CHECK_THROWS_AS(barrier(comm), PeerFailed);
                        check_poisoned(comm);
                    }
                }
                int rank = -1;
                CHECK(ncclCommUserRank(native, &rank) == ncclSuccess);
                CHECK(rank == host.rank());
                CHECK(ncclCommDestroy(native) == ncclSuccess);
            });
            test::check_none(ended);
            CHECK(fake::counts().revoked == (fails ? 3 : 0));
            CHECK(fake::counts().aborted == 0);
            check_nothing_left();
        }
    }

    TEST_CASE("NcclBoard: those who name the same number see the same seats, and the first failure counts") {
        std::uint64_t const number = detail::unique_number();
        detail::NcclBoard one(number, 3);
        detail::NcclBoard other(number, 3);
        detail::NcclBoard third(number + 1, 3);
        one.seat(2).entered.store(77);
        CHECK(other.seat(2).entered.load() == 77);
        CHECK(third.seat(2).entered.load() == 0);
        detail::FailureRecord heard;
        CHECK_FALSE(other.failure().heard(heard));
        detail::FailureRecord first = detail::failure_record(ErrorCode::io, 1, 5, -1, -1, std::string(2000, 'x'));
        detail::FailureRecord second = detail::failure_record(ErrorCode::user, 2, 5, -1, -1, "later");
        one.failure().tell(first);
        other.failure().tell(second);
        CHECK(second.rank == 1);
        CHECK(std::string(second.reason) == std::string(999, 'x'));
        CHECK(other.failure().heard(heard));
        CHECK(heard.code == static_cast<int>(ErrorCode::io));
        CHECK_FALSE(third.failure().heard(heard));
        one.forget_name();
        detail::NcclBoard late(number, 3);  // a name that is free again
        CHECK(late.seat(2).entered.load() == 0);
    }

    TEST_CASE("a process that has ended does not live, whether or not somebody has asked for its status") {
        CHECK(detail::process_lives(::getpid()));
        pid_t const child = ::fork();
        if (child == 0) ::_exit(0);
        siginfo_t info{};
        REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
        CHECK_FALSE(detail::process_lives(child));
        REQUIRE(::waitpid(child, nullptr, 0) == child);
        CHECK_FALSE(detail::process_lives(child));
    }
}
