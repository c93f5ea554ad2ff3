// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/nccl.hpp: how exchanges travel, what memory they take, and plans over them.
#include "../alike.hpp"
#include "gpus.hpp"

#include <reshard/comm/traced.hpp>
#include <reshard/reshard.hpp>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace {
using namespace reshard;
using test::box_of;
using test::check_none;
using test::on_devices;
using test::on_gpus;
namespace fake = test::fake_nccl;

static_assert(NcclCommunicator::name == "nccl");

/// Rows of 4 bytes out of 8: no box of them lies in a row.
transport::StridedBox every_other(Index elements) { return box_of(4, {{elements, 8}}); }

/// In how many rounds it goes.
Index rounds_of(transport::Send const& send, detail::PairShare const& share) {
    detail::PeerQueue queue{1, 1, 0, 1};
    Index rounds = 0;
    for (; queue.at != queue.end; ++rounds)
        detail::take_round(std::span(&send, 1), queue, share, [](transport::Send const&, transport::Send const&) {});
    return rounds;
}

/// Staging memory of which the test knows how much there is.
struct Pool {
    static inline std::atomic<Index> held{0};
    static inline std::atomic<int> taken{0};
    static StagingOptions options() {
        StagingOptions made;
        made.allocate = [](Index bytes) noexcept -> std::byte* {
            held += bytes;
            ++taken;
            return device_staging().allocate(bytes);
        };
        made.release = [](std::byte* memory, Index bytes) noexcept {
            held -= bytes;
            device_staging().release(memory, bytes);
        };
        return made;
    }
};

}  // namespace

TEST_SUITE("comm/nccl") {
    TEST_CASE("forty ranks with more than 1,024 operations each: groups stay below, and nobody waits crosswise") {
        fake::reset();
        NcclOptions options;
        options.window_bytes = 1 << 20;
        std::atomic<Index> most = 0;
        auto const count = [](int from, int to) { return (from * 7 + to * 13) % 71; };  // uneven, also there and back
        check_none(on_gpus(40, options, [&](NcclCommunicator& comm) {
            Index mine = 0;
            for (int r = 0; r != 40; ++r) mine += r == comm.rank() ? 0 : count(comm.rank(), r) + count(r, comm.rank());
            Index before = most;
            while (before < mine && !most.compare_exchange_weak(before, mine)) {
            }
            test::moves_in_order(comm, count, [](int from, int to, int k) { return 1 + (from + to + k) % 50; });
        }));
        CHECK(most > 2000);
        CHECK(fake::counts().largest_group <= 1024);
        CHECK(fake::counts().largest_group > 700);  // and not one by one
        CHECK(fake::counts().mismatches == 0);
    }

    TEST_CASE("NcclRounds: the window is shared by the peers, and 1,024 operations by sends and receives") {
        for (int ranks : {1, 2, 3, 8, 40, 513, 514, 4096}) {
            CAPTURE(ranks);
            detail::NcclRounds rounds(0, ranks, Index{256} << 20);
            CHECK(rounds.distances >= 1);
            CHECK(rounds.with(0).bytes == rounds.shared_by_all().bytes);
            for (int peers : {0, 1, 2, 39, 512, 513, 4095}) {
                CAPTURE(peers);
                int const queues = std::clamp(peers, 1, 512);  // in one group
                detail::PairShare const share = rounds.shared_by(peers);
                CHECK(share.messages >= 1);
                CHECK(2 * queues * share.messages <= detail::nccl_group_limit);
                CHECK(2 * queues * share.bytes <= (Index{256} << 20));
                CHECK(2 * queues * share.bytes > (Index{255} << 20));
                if (peers < ranks) CHECK(share.bytes >= rounds.shared_by_all().bytes);
                int told[2] = {1, peers};  // the one that has more counts
                rounds.peers = told;
                CHECK(rounds.with(1).bytes == share.bytes);
                rounds.peers = nullptr;
            }
        }
    }

    TEST_CASE("groups are as few as the peers of each pair allow, of replays too; trusted ranks count all as peers") {
        struct Case {
            int ranks;
            bool compare;
            bool (*linked)(int ranks, int from, int to);
        };
        auto const ring = [](int ranks, int from, int to) { return to == (from + 1) % ranks; };
        auto const star = [](int ranks, int from, int to) {  // and one without peers
            return (from == 0) != (to == 0) && from + to < ranks - 1;
        };
        Case const cases[] = {{40, true, ring}, {5, false, ring}, {12, true, star}, {12, false, star}};
        std::byte const place{};
        for (Case const& one : cases) {
            CAPTURE(one.ranks);
            CAPTURE(one.compare);
            auto const sends_to = [&](int from, int to) { return one.linked(one.ranks, from, to); };
            constexpr Index elements = 1 << 16;
            NcclOptions options;
            options.window_bytes = 256 << 10;
            options.compare = one.compare;
            fake::reset();
            check_none(on_gpus(one.ranks, options, [&](NcclCommunicator& comm) {
                int const me = comm.rank();
                std::vector<int> from(2 * elements);
                std::vector<std::vector<int>> to;
                std::vector<transport::Send> sends;
                std::vector<transport::Receive> receives;
                for (int r = 0; r != one.ranks; ++r) {
                    if (sends_to(me, r))
                        sends.push_back({r, reinterpret_cast<std::byte const*>(from.data()), every_other(elements)});
                    if (!sends_to(r, me)) continue;
                    auto* const at = to.emplace_back(static_cast<std::size_t>(elements)).data();
                    receives.push_back({r, reinterpret_cast<std::byte*>(at), box_of(4, {{elements, 4}})});
                }
                auto exchange = comm.bind(sends, receives);
                for (int round = 0; round != 3; ++round) {
                    for (std::size_t i = 0; i != from.size(); ++i)
                        from[i] = static_cast<int>(i / 2) + 1000 * me + round;
                    exchange.start();
                    exchange.wait();
                    int wrong = 0;
                    for (std::size_t n = 0; n != to.size(); ++n)
                        for (std::size_t i = 0; i != to[n].size(); ++i)
                            wrong += to[n][i] != static_cast<int>(i) + 1000 * receives[n].peer + round ? 1 : 0;
                    CHECK(wrong == 0);
                }
                CHECK(comm.staging_bytes() <= options.window_bytes);
            }));
            detail::NcclRounds const rounds(0, one.ranks, options.window_bytes);
            auto const peers = [&](int rank) {
                int sends = 0;
                int receives = 0;
                for (int r = 0; r != one.ranks; ++r) {
                    sends += sends_to(rank, r) ? 1 : 0;
                    receives += sends_to(r, rank) ? 1 : 0;
                }
                return std::max(sends, receives);
            };
            Index groups = one.compare ? one.ranks : 0;  // in which they compare
            for (int a = 0; a != one.ranks; ++a) {
                Index most = 0;
                for (int b = 0; b != one.ranks; ++b) {
                    if (!sends_to(a, b) && !sends_to(b, a)) continue;
                    auto const share =
                        one.compare ? rounds.shared_by(std::max(peers(a), peers(b))) : rounds.shared_by_all();
                    most = std::max(most, rounds_of({b, &place, every_other(elements)}, share));
                }
                groups += 3 * most;
            }
            CHECK(fake::counts().groups == groups);
            if (one.ranks == 40) CHECK(groups == 40 * (1 + 3 * 3));  // 256 KiB, of a share of 128 KiB
            CHECK(fake::counts().mismatches == 0);
        }
    }

    TEST_CASE("ranks with uneven numbers of peers: every value arrives, again and again, through any window") {
        for (bool compare : {true, false}) {
            for (Index window : {Index{600}, Index{20000}, Index{256} << 20}) {
                CAPTURE(compare);
                CAPTURE(window);
                Pool::held = 0;
                Pool::taken = 0;
                NcclOptions options;
                options.window_bytes = window;
                options.compare = compare;
                options.staging = Pool::options();
                check_none(on_gpus(8, options, [&](NcclCommunicator& comm) {
                    test::moves_among(comm, test::has_link, 3000);
                    CHECK((comm.staging_bytes() == 0) == (comm.rank() == 7));
                    if (window != 600) CHECK(comm.staging_bytes() <= window);
                }));
                CHECK(Pool::taken == 8 + 7);  // once for each that has a peer, beside what meets
                CHECK(Pool::held == 0);
            }
        }
    }

    TEST_CASE("random exchanges deliver every byte, through any window") {
        auto const seed = 4711U;
        CAPTURE(seed);
        for (Index window : {Index{600}, Index{20000}, Index{256} << 20}) {
            CAPTURE(window);
            NcclOptions options;
            options.window_bytes = window;
            check_none(on_gpus(4, options, [&](NcclCommunicator& comm) { test::moves_at_random(comm, seed, 20); }));
        }
    }

    TEST_CASE("a message of more than 2^31 bytes is one message where the window allows, and pieces where not") {
        constexpr Index bytes = Index{5} << 30;  // the double counts such messages, it does not copy them
        fake::reset();
        NcclOptions options;
        options.window_bytes = Index{64} << 30;
        std::byte place{};
        check_none(on_gpus(2, options, [&](NcclCommunicator& comm) {
            bool const sends = comm.rank() == 0;
            transport::Send const send{1, &place, box_of(4, {{bytes / 4, 4}})};
            transport::Receive const receive{0, &place, box_of(4, {{bytes / 4, 4}})};
            sends ? comm.exchange({&send, 1}, {}).wait() : comm.exchange({}, {&receive, 1}).wait();
            CHECK((sends ? comm.traffic().bytes_sent : comm.traffic().bytes_received) == bytes);
            CHECK((sends ? comm.traffic().messages_sent : comm.traffic().messages_received) == 1);
            CHECK(comm.staging_bytes() == 0);
        }));
        CHECK(fake::counts().largest_message == static_cast<std::uint64_t>(bytes));
        // How it is cut is the same rule on both sides, whatever the strides are.
        detail::PairShare const share = detail::NcclRounds(0, 2, Index{256} << 20).shared_by_all();
        transport::Send const dense{1, &place, box_of(4, {{1 << 15, 4 << 15}, {1 << 15, 4}})};
        transport::Send const padded{1, &place, box_of(4, {{1 << 15, 8 << 15}, {1 << 15, 8}})};
        for (transport::Send const* send : {&dense, &padded}) {
            detail::PeerQueue queue{1, 1, 0, 1};
            int taken = 0;
            Index moved = 0;
            for (; queue.at != queue.end; ++taken) {
                Index round = 0;
                detail::take_round(
                    std::span(send, 1), queue, share,
                    [&](transport::Send const&, transport::Send const& piece) { round += piece.payload_bytes(); });
                CHECK(round <= share.bytes);
                moved += round;
            }
            CHECK(moved == Index{4} << 30);
            CHECK(taken == 33);
        }
    }

    TEST_CASE("boxes that lie in a row take no staging memory; others take what the window allows, once") {
        Pool::held = 0;
        Pool::taken = 0;
        NcclOptions options;
        options.window_bytes = 64 << 10;
        options.staging = Pool::options();
        check_none(on_gpus(3, options, [&](NcclCommunicator& comm) {
            constexpr Index elements = 200000;
            std::vector<int> from(2 * elements);
            std::vector<int> to(3 * 2 * elements);
            std::vector<transport::Send> sends;
            std::vector<transport::Receive> receives;
            test::moves_in_order(
                comm, [](int, int) { return 2; }, [](int, int, int) { return 100000; });
            CHECK(comm.staging_bytes() == 0);
            for (Index i = 0; i != elements; ++i)
                from[static_cast<std::size_t>(2 * i)] = static_cast<int>(i) + comm.rank() * 1000;
            for (int r = 0; r != 3; ++r) {
                sends.push_back({r, reinterpret_cast<std::byte const*>(from.data()), every_other(elements)});
                receives.push_back(
                    {r, reinterpret_cast<std::byte*>(to.data() + r * 2 * elements), every_other(elements)});
            }
            comm.exchange(sends, receives).wait();
            Index const held = comm.staging_bytes();
            CHECK(held > 32 << 10);
            CHECK(held <= 64 << 10);
            int wrong = 0;
            for (int r = 0; r != 3; ++r) {
                for (Index i = 0; i != elements; ++i) {
                    auto const at = static_cast<std::size_t>(2 * (r * elements + i));
                    wrong += to[at] != static_cast<int>(i) + r * 1000 || to[at + 1] != 0 ? 1 : 0;
                }
            }
            CHECK(wrong == 0);
            barrier(comm);
            int const taken = Pool::taken;
            barrier(comm);
            for (int i = 0; i != 3; ++i) comm.exchange(sends, receives).wait();
            CHECK(comm.staging_bytes() == held);
            barrier(comm);
            CHECK(Pool::taken == taken);
        }));
        CHECK(Pool::held == 0);
    }

    TEST_CASE("with a reserve as large as the window nothing is allocated after the communicator is made") {
        NcclOptions options;
        options.window_bytes = 128 << 10;
        options.staging.reserve_bytes = options.window_bytes;
        options.host_staging.reserve_bytes = 2 * options.window_bytes;
        check_none(on_gpus(3, options, [](NcclCommunicator& comm) {
            CHECK(comm.staging_bytes() >= 128 << 10);
            CHECK(comm.split(0, 0).staging_bytes() == 0);  // what a part needs is not what the whole needed
            barrier(comm);
            int const before = fake::live_allocations();
            auto const taken = fake::counts().device_allocations;
            barrier(comm);
            test::moves_strided_boxes(comm);
            test::converts_on_the_way(comm);
            test::moves_nine_dimensions(comm);
            barrier(comm);
            CHECK(fake::live_allocations() == before);
            CHECK(fake::counts().device_allocations == taken);
            barrier(comm);
        }));
    }

    TEST_CASE("without staging memory an exchange fails on all ranks, before anything is moved") {
        auto const ended = on_gpus(3, {}, [](NcclCommunicator& comm) {
            std::vector<int> from(2000);
            std::vector<int> to(2000, -1);
            int const next = (comm.rank() + 1) % 3;
            int const previous = (comm.rank() + 2) % 3;
            transport::Send const send{next, reinterpret_cast<std::byte const*>(from.data()), every_other(1000)};
            transport::Receive const receive{previous, reinterpret_cast<std::byte*>(to.data()), every_other(1000)};
            if (comm.rank() == 1) fake::fail("cudaMalloc", cudaErrorMemoryAllocation);
            auto request = comm.exchange({&send, 1}, {&receive, 1});
            try {
                request.wait();
            } catch (Error const&) {
                CHECK(to == std::vector<int>(2000, -1));
                throw;
            }
        });
        CHECK(ended[1].code == ErrorCode::out_of_memory);
        CHECK(ended[1].says("NcclOptions::window_bytes"));
        CHECK(ended[0].code == ErrorCode::peer_failed);
        CHECK(ended[2].code == ErrorCode::peer_failed);
    }

    TEST_CASE("with trusted peers exchange() enqueues everything; nothing is on the default stream") {
        fake::reset();
        NcclOptions options;
        options.compare = false;
        check_none(on_gpus(2, options, [](NcclCommunicator& comm) {
            std::vector<int> from(20, comm.rank());
            std::vector<int> to(20, -1);
            transport::Send const send{1 - comm.rank(), reinterpret_cast<std::byte const*>(from.data()),
                                       every_other(10)};
            transport::Receive const receive{1 - comm.rank(), reinterpret_cast<std::byte*>(to.data()), every_other(10)};
            auto request = comm.exchange({&send, 1}, {&receive, 1});
            // The stream alone finishes it: the host need not come back for it.
            cudaEvent_t event = nullptr;
            CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
            CHECK(cudaEventRecord(event, comm.stream()) == cudaSuccess);
            while (cudaEventQuery(event) != cudaSuccess) std::this_thread::yield();
            CHECK(cudaEventDestroy(event) == cudaSuccess);
            CHECK(to[18] == 1 - comm.rank());
            request.wait();
        }));
        CHECK(fake::counts().default_stream == 0);
    }

    TEST_CASE("what is started again is enqueued at once, and asks nobody") {
        fake::reset();
        check_none(on_gpus(3, {}, [](NcclCommunicator& comm) {
            std::vector<int> from(20, comm.rank());
            std::vector<int> to(20, -1);
            transport::Send const send{(comm.rank() + 1) % 3, reinterpret_cast<std::byte const*>(from.data()),
                                       every_other(10)};
            transport::Receive const receive{(comm.rank() + 2) % 3, reinterpret_cast<std::byte*>(to.data()),
                                             every_other(10)};
            auto exchange = comm.bind({&send, 1}, {&receive, 1});
            exchange.start();
            exchange.wait();
            barrier(comm);
            auto const before = fake::counts().messages;
            barrier(comm);
            for (int round = 1; round != 4; ++round) {
                from.assign(20, 10 * round + comm.rank());
                exchange.start();
                cudaEvent_t event = nullptr;
                CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
                CHECK(cudaEventRecord(event, comm.stream()) == cudaSuccess);
                while (cudaEventQuery(event) != cudaSuccess) std::this_thread::yield();
                CHECK(cudaEventDestroy(event) == cudaSuccess);
                CHECK(to[18] == 10 * round + (comm.rank() + 2) % 3);
                exchange.wait();
            }
            barrier(comm);
            CHECK(fake::counts().messages - before == 3 * 3);
        }));
    }

    TEST_CASE("plans run over NCCL: rows become columns, columns become whole, and memory of the host is refused") {
        for (int ranks : {1, 2, 3}) {
            CAPTURE(ranks);
            check_none(on_gpus(ranks, {}, [&](NcclCommunicator& comm) {
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
                Index const first = rows.box(comm.rank()).begin(0) * 10;
                for (std::size_t i = 0; i != from.size(); ++i)
                    from[i] = static_cast<float>(first + static_cast<Index>(i));
                TensorView<float> const a{from.data(), rows.local_shape(comm.rank())};
                TensorView<float> const b{middle.data(), columns.local_shape(comm.rank())};
                TensorView<float> const c{all.data(), whole.local_shape(comm.rank())};
                prepare(plan(rows, columns), comm, a, b).run();
                prepare(plan(columns, whole), comm, b, c).run();
                int wrong = 0;
                for (std::size_t i = 0; i != all.size(); ++i) wrong += all[i] != static_cast<float>(i) ? 1 : 0;
                CHECK(wrong == 0);

                int const culprit = comm.size() - 1;
                if (comm.rank() == culprit) fake::claim(from.data(), from.size() * sizeof(float), -1);
                CHECK_THROWS_WITH_AS(static_cast<void>(prepare(plan(rows, columns), comm, a, b)),
                                     doctest::Contains("device and host memory mixed"), BufferError);
                fake::claim(from.data(), 0, 0);
                TensorView<float> const nothing{nullptr, b.shape()};
                TensorView<float> const& given = comm.rank() == culprit ? nothing : b;
                CHECK_THROWS_WITH_AS(static_cast<void>(prepare(plan(rows, columns), comm, a, given)),
                                     doctest::Contains("is null. Fix: pass memory"), BufferError);
                prepare(plan(rows, columns), comm, a, b).run();  // and nothing is poisoned
            }));
        }
    }

    TEST_CASE("without kernels plans copy on the device, cast on the way, and are refused where they would compute") {
        fake::guard_device_memory(true);  // code of the host that touched it would not survive
        check_none(on_gpus(2, {}, [](NcclCommunicator& comm) {
            std::vector<float> numbers(12);
            for (std::size_t i = 0; i != 12; ++i) numbers[i] = static_cast<float>(i);
            void* memory = nullptr;
            CHECK(cudaMalloc(&memory, 2 * 48) == cudaSuccess);
            auto* const from = static_cast<std::byte*>(memory);
            std::byte* const to = from + 48;
            auto const move = [&](void* target, void const* source, std::size_t bytes) {
                CHECK(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, comm.stream()) == cudaSuccess);
                CHECK(cudaStreamSynchronize(comm.stream()) == cudaSuccess);
            };
            move(from, numbers.data(), 48);
            auto const run = [&](char const* a, char const* b, DType type, PrepareOptions const& options) {
                Shape const shape{12};
                Plan<> const p = plan(parse(a, shape), parse(b, shape));
                prepare(p, comm, ConstDynamicView(from, DType::f32, p.from().local_shape(comm.rank())),
                        DynamicView(to, type, p.to().local_shape(comm.rank())), options)
                    .run();
            };
            std::vector<float> result(6);
            run("(2):(R)", "(2):(S0:cyc2)", DType::f32, {});  // a local copy
            move(result.data(), to, 24);
            float const first = 2.0F * static_cast<float>(comm.rank());
            CHECK(result == std::vector<float>{first, first + 1, first + 4, first + 5, first + 8, first + 9});
            run("(2):(S0:cyc2)", "(2):(S0)", DType::f64, Casting{0.5});
            std::vector<double> wide(6);
            move(wide.data(), to, 48);
            CHECK(wide[0] == (comm.rank() == 0 ? 0.0 : 1.0));
            CHECK(wide[2] == (comm.rank() == 0 ? 0.0 : 2.0));

            auto const refused = [&](char const* a, char const* b, PrepareOptions const& options, char const* text) {
                CHECK_THROWS_WITH_AS(run(a, b, DType::f32, options), doctest::Contains(text), TransitionError);
                CHECK_THROWS_WITH_AS(run(a, b, DType::f32, options), doctest::Contains("nccl.cuh"), TransitionError);
            };
            refused("(2):(P+)", "(2):(S0)", {}, "rank 0 of 2: reshard::prepare: (2):(P+) -> (2):(S0) folds addends");
            refused("(2):(S0)", "(2):(P+)", {}, "fills in identities");
            refused("(2):(P+)", "(2):(Pavg)", {}, "changes values in place");
            refused("(2):(R)", "(2):(S0:cyc2)", PrepareOptions{.factor = 2.0}, "changes values in place");
            run("(2):(R)", "(2):(S0:cyc2)", DType::f32, {});  // and nothing is poisoned
            CHECK(cudaFree(memory) == cudaSuccess);
        }));
        fake::guard_device_memory(false);
    }

    TEST_CASE("policies wrap it: a traced communicator keeps the contract and sees what moves") {
        check_none(on_devices(3, [](ThreadCommunicator& host, cudaStream_t stream) {
            Trace trace;
            auto comm = compose<Traced>(nccl_from(host, stream), trace);
            test::conforms(comm);
            CHECK_FALSE(trace.records().empty());
            CHECK(trace.records().front().transport == "nccl");
        }));
    }

    TEST_CASE("what is asked of another device leaves the program's device as it was") {
        check_none(on_gpus(2, {}, [](NcclCommunicator& comm) {
            int const mine = comm.device();
            CHECK(mine == comm.rank());
            CHECK(cudaSetDevice(9) == cudaSuccess);
            barrier(comm);
            int now = -1;
            CHECK(cudaGetDevice(&now) == cudaSuccess);
            CHECK(now == 9);
            CHECK(cudaSetDevice(mine) == cudaSuccess);
        }));
    }
}
