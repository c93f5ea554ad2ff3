// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/mpi.hpp: the contract of a transport, on every way a byte can take.
#include <reshard/comm/mpi.hpp>

#include <reshard/comm/detail/available_memory.hpp>
#include <reshard/comm/detail/mpi_call.hpp>
#include <reshard/comm/detail/mpi_team.hpp>
#include <reshard/memory/convert.hpp>

#include "comm/conformance.hpp"
#include "comm/mpi/ways.hpp"
#include "comm/policies.hpp"

#include <doctest/doctest.h>

#include <sys/resource.h>  // setrlimit

#include <algorithm>  // fill
#include <chrono>
#include <cstdio>  // sscanf
#include <cstdlib>
#include <ctime>  // clock_gettime
#include <fstream>
#include <memory>  // unique_ptr
#include <new>
#include <random>  // mt19937
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

// ---- Counting allocations ----------------------------------------------------------------------------------------

namespace {
bool counting = false;
int allocations = 0;
std::size_t refused_from = SIZE_MAX;  // bytes
}  // namespace

// The forms that are not here call these. Not inlined: the compiler would take new and free() for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
    if (counting) ++allocations;
    void* const memory = size >= refused_from ? nullptr : std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {
// The last words of a program name the type of its error once.
static_assert(reshard::detail::names_type("rank 0 of 2: IoError: a: no such file", "IoError"));
static_assert(reshard::detail::names_type("IoError: a: no such file", "IoError"));
static_assert(!reshard::detail::names_type("rank 0 of 2: the file IoError was not found", "IoError"));
static_assert(!reshard::detail::names_type("reshard::prepare: a MyIoError: no", "IoError"));
static_assert(!reshard::detail::names_type("", "IoError"));

using namespace reshard;
using namespace std::chrono_literals;

static_assert(MpiCommunicator::name == "mpi");

/// A random exchange: between each pair a few boxes of up to three dimensions, with gaps at both ends, of up to
/// `most` bytes; the dimensions lie in memory in any order on both sides, the same in all of an exchange or not. All
/// from one seed that ranks share.
class RandomExchange {
public:
    RandomExchange(MpiCommunicator& comm, unsigned seed, Index most, bool in_shared)
        : me_(comm.rank()), ranks_(comm.size()) {
        std::mt19937 rng(seed);
        bool const alike = rng() % 2U == 0;  // as programs do
        unsigned const way = static_cast<unsigned>(rng());
        Index from_bytes = 0;
        Index to_bytes = 0;
        for (int from = 0; from != ranks_; ++from) {
            for (int to = 0; to != ranks_; ++to) {
                int const count = static_cast<int>(rng() % 4U);
                for (int k = 0; k != count; ++k) {
                    Box box;
                    box.from = from;
                    box.to = to;
                    box.element = Index{1} << (rng() % 4U);
                    Index const limit = (rng() % 4U == 0 ? most : detail::smaller<Index>(most, 3000)) / box.element;
                    box.extents[0] = 1 + static_cast<Index>(rng() % 40U);
                    box.extents[1] = 1 + static_cast<Index>(rng() % 40U);
                    box.extents[2] = detail::larger<Index>(1, limit / (box.extents[0] * box.extents[1]));
                    box.from_way = alike ? way : static_cast<unsigned>(rng());
                    box.to_way = alike && rng() % 4U != 0 ? way : static_cast<unsigned>(rng());
                    if (from == me_) from_bytes = (box.from_at = from_bytes) + box.sent().bytes;
                    if (to == me_) to_bytes = (box.to_at = to_bytes) + box.received().bytes;
                    boxes_.push_back(box);
                }
            }
        }
        if (in_shared) {
            shared_from_ = comm.allocate<std::byte>(from_bytes);
            shared_to_ = comm.allocate<std::byte>(to_bytes);
            from_ = shared_from_.data();
            to_ = shared_to_.data();
        } else {
            own_from_.resize(static_cast<std::size_t>(from_bytes));
            own_to_.resize(static_cast<std::size_t>(to_bytes));
            from_ = own_from_.data();
            to_ = own_to_.data();
        }
        for (std::size_t i = 0; i != boxes_.size(); ++i) {
            Box const& box = boxes_[i];
            if (box.from == me_) {
                test::Laid const sent = box.sent();
                sent.each([&](Index k, Index at) {
                    from_[box.from_at + at] = test::mark(box.from, box.to, static_cast<int>(i), k);
                });
                sends_.push_back({box.to, from_ + box.from_at + sent.origin, sent.box});
            }
            if (box.to != me_) continue;
            test::Laid const received = box.received();
            receives_.push_back({box.from, to_ + box.to_at + received.origin, received.box});
        }
    }
    void run(MpiCommunicator& comm) { comm.exchange(sends_, receives_).wait(); }
    [[nodiscard]] Index wrong() const {
        Index wrong = 0;
        for (std::size_t i = 0; i != boxes_.size(); ++i) {
            Box const& box = boxes_[i];
            if (box.to != me_) continue;
            box.received().each([&](Index k, Index at) {
                wrong += to_[box.to_at + at] != test::mark(box.from, box.to, static_cast<int>(i), k) ? 1 : 0;
            });
        }
        return wrong;
    }

private:
    struct Box {
        int from = 0;
        int to = 0;
        Index element = 1;
        Index extents[3] = {};
        unsigned from_way = 0;
        unsigned to_way = 0;
        Index from_at = 0;
        Index to_at = 0;

        [[nodiscard]] test::Laid sent() const { return {element, extents, from_way}; }
        [[nodiscard]] test::Laid received() const { return {element, extents, to_way}; }
    };

    int me_;
    int ranks_;
    std::vector<Box> boxes_;
    std::vector<std::byte> own_from_;
    std::vector<std::byte> own_to_;
    MpiBuffer<std::byte> shared_from_;
    MpiBuffer<std::byte> shared_to_;
    std::byte* from_ = nullptr;
    std::byte* to_ = nullptr;
    std::vector<transport::Send> sends_;
    std::vector<transport::Receive> receives_;
};

/// An exchange among some of the ranks, bound once. Every word says who sent it, and in which round.
class Replayed {
public:
    Replayed(MpiCommunicator& comm, std::mt19937& same, bool is_short) : rank_(comm.rank()) {
        auto const ranks = static_cast<std::size_t>(comm.size());
        memory_.resize(2 * ranks);
        for (std::size_t from = 0; from != ranks; ++from) {
            for (std::size_t to = 0; to != ranks; ++to) {
                std::size_t const words = same() % 3 == 0 ? 0 : 1 + same() % (is_short ? 1500 : 20000);
                if (static_cast<int>(from) == rank_) memory_[to].resize(words);
                if (static_cast<int>(to) == rank_) memory_[ranks + from].resize(words);
            }
        }
        for (std::size_t peer = 0; peer != ranks; ++peer) {
            auto const box = [](auto const& words) { return test::box_of(8, {{static_cast<Index>(words.size()), 8}}); };
            auto const r = static_cast<int>(peer);
            auto& out = memory_[peer];
            auto& in = memory_[ranks + peer];
            if (!out.empty()) sends_.push_back({r, reinterpret_cast<std::byte const*>(out.data()), box(out)});
            if (!in.empty()) receives_.push_back({r, reinterpret_cast<std::byte*>(in.data()), box(in)});
        }
        exchange_ = comm.bind(sends_, receives_);
    }
    void start(std::uint64_t round) {
        for (std::size_t to = 0; to != memory_.size() / 2; ++to)
            for (std::uint64_t& word : memory_[to]) word = word_of(round, rank_, static_cast<int>(to));
        exchange_.start();
    }
    /// Words that are wrong.
    [[nodiscard]] std::uint64_t finish(std::uint64_t round) {
        exchange_.wait();
        std::uint64_t wrong = 0;
        for (std::size_t from = 0; from != memory_.size() / 2; ++from) {
            for (std::uint64_t& word : memory_[memory_.size() / 2 + from])
                wrong += word == word_of(round, static_cast<int>(from), rank_) ? 0 : 1;
        }
        return wrong;
    }

private:
    [[nodiscard]] static std::uint64_t word_of(std::uint64_t round, int from, int to) {
        return round << 32U | static_cast<std::uint64_t>(from) << 16U | static_cast<std::uint64_t>(to);
    }

    int rank_;
    std::vector<std::vector<std::uint64_t>> memory_;  ///< for each rank, then from each rank
    std::vector<transport::Send> sends_;
    std::vector<transport::Receive> receives_;
    MpiCommunicator::exchange_type exchange_;
};
}  // namespace

TEST_SUITE("comm/mpi") {
    TEST_CASE("MpiCommunicator: keeps the contract on every path") {
        test::for_each_way(test::all_ways(), [](MpiCommunicator& comm) {
            test::conforms(comm);
            test::refuses_a_second_start(comm);
        });
    }

    TEST_CASE("MpiCommunicator: keeps the contract with policies around it") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        test::conforms_with_policies<test::SomePolicies>(comm);
    }

    TEST_CASE("MpiCommunicator: keeps the contract when every exchange is streamed") {
        MpiOptions options;
        options.streaming_threshold_bytes = 0;
        MpiCommunicator comm(MPI_COMM_WORLD, options);
        test::conforms(comm);
    }

    TEST_CASE("MpiCommunicator: random boxes of every size arrive whole, from ordinary and from shared memory") {
        auto const seed = 4711U;
        CAPTURE(seed);
        test::for_each_way(test::all_ways(), [&](MpiCommunicator& comm) {
            for (unsigned trial = 0; trial != 12; ++trial) {
                CAPTURE(trial);
                Index const most = trial == 8 ? 5'000'000 : trial % 4 == 0 ? 1'500'000 : 20'000;
                RandomExchange exchange(comm, seed + trial, most, trial % 2 == 0);
                exchange.run(comm);
                CHECK(exchange.wrong() == 0);
                exchange.run(comm);
                CHECK(exchange.wrong() == 0);
            }
        });
    }

    TEST_CASE("MpiCommunicator: ranks whose programs have different versions of the library are told so, all of them") {
        int rank = 0;
        int size = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        if (size == 1) return;
        auto const mine = static_cast<std::int64_t>(detail::version_word);
        for (std::int64_t other : {mine + 1, mine - 1, std::int64_t{0}}) {
            CAPTURE(other);
            if (rank != size - 1) {
                std::string const text = " was built with " + detail::version_text(detail::version_word) +
                                         " of this library, that of another rank with " +
                                         detail::version_text(static_cast<std::uint64_t>(other)) +
                                         ". Fix: build all ranks with one version.";
                CHECK_THROWS_WITH_AS(MpiCommunicator(MPI_COMM_WORLD), doctest::Contains(text.c_str()), MismatchError);
                continue;
            }
            // What such a rank does: it must be so for ever.
            MPI_Comm own = MPI_COMM_NULL;
            MPI_Comm_dup(MPI_COMM_WORLD, &own);
            std::int64_t most[6] = {other, -other, 0, 0, 300'000, -300'000};
            MPI_Allreduce(MPI_IN_PLACE, most, 6, MPI_INT64_T, MPI_MAX, own);
            CHECK((most[0] == mine || -most[1] == mine));
            MPI_Comm_free(&own);
        }
    }

    TEST_CASE("MpiCommunicator: what lies without gaps goes in long messages, whichever dimension is innermost") {
        MpiOptions options;
        options.ranks_per_node = 1;
        options.deadline = 60s;
        MpiCommunicator comm(MPI_COMM_WORLD, options);
        if (comm.size() < 2) return;
        constexpr Index extents[3] = {256, 128, 16};  // 4 MiB
        enum Way : unsigned { rows, columns, padded_columns = 37 };
        auto const messages = [&](Way sent, Way received) {
            test::Laid const from(8, extents, sent);
            test::Laid const to(8, extents, received);
            std::vector<std::byte> out(static_cast<std::size_t>(from.bytes));
            std::vector<std::byte> in(static_cast<std::size_t>(to.bytes));
            from.each([&](Index k, Index at) { out[static_cast<std::size_t>(at)] = test::mark(0, 1, 0, k); });
            Traffic const before = comm.traffic();
            transport::Send const send{1, out.data(), from.box};
            transport::Receive const receive{0, in.data(), to.box};
            comm.exchange({&send, comm.rank() == 0 ? 1U : 0U}, {&receive, comm.rank() == 1 ? 1U : 0U}).wait();
            Index wrong = 0;
            to.each([&](Index k, Index at) {
                wrong += in[static_cast<std::size_t>(at)] != test::mark(0, 1, 0, k) ? 1 : 0;
            });
            CHECK((wrong == 0 || comm.rank() != 1));
            Traffic const moved = comm.traffic() - before;
            return comm.rank() == 0 ? moved.messages_sent : comm.rank() == 1 ? moved.messages_received : -1;
        };
        auto const expect = [&](Index count, Way sent, Way received) {
            CAPTURE(sent);
            CAPTURE(received);
            CHECK(messages(sent, received) == (comm.rank() < 2 ? count : -1));
        };
        expect(1, rows, rows);
        expect(1, columns, columns);
        expect(1, padded_columns, padded_columns);  // rows of 2 KiB, which MPI is told of
        expect(8, columns, rows);
        expect(8, rows, columns);
    }

    TEST_CASE("MpiCommunicator: payloads that differ are a mismatch on both ranks, on every path") {
        for (auto options : test::all_ways()) {
            options.deadline = 20s;
            for (test::Payloads const& one : test::different_payloads) {
                CAPTURE(options.ranks_per_node);
                CAPTURE(static_cast<int>(options.path));
                CAPTURE(one.sent.size());
                CAPTURE(one.expected.size());
                MpiCommunicator comm(MPI_COMM_WORLD, options);
                if (comm.size() > 1) test::notices_different_payloads(comm, one);
                MPI_Barrier(MPI_COMM_WORLD);
            }
        }
    }

    TEST_CASE("MpiCommunicator: exchanges that are alike are not mixed up, on every path") {
        for (auto options : test::all_ways()) {
            options.deadline = 20s;
            for (bool again : {false, true}) {
                CAPTURE(options.ranks_per_node);
                CAPTURE(static_cast<int>(options.path));
                CAPTURE(again);
                MpiCommunicator comm(MPI_COMM_WORLD, options);
                if (comm.size() > 1) test::notices_another_order(comm, again);
                MPI_Barrier(MPI_COMM_WORLD);
            }
        }
    }

    TEST_CASE("MpiCommunicator: ranks of different nodes learn that they list other extents, or convert otherwise") {
        MpiOptions options;
        options.ranks_per_node = 1;
        options.deadline = 20s;
        for (bool converts : {false, true}) {
            MpiCommunicator comm(MPI_COMM_WORLD, options);
            if (comm.size() < 2) return;
            std::vector<double> memory(12, 1.0);
            bool const receives = comm.rank() == 1;
            DType const wire = receives ? DType::u64 : DType::i64;
            transport::Conversion const conversion{DType::f64, wire, 1.0, converts ? transport::convert : nullptr};
            transport::StridedBox const box =
                receives && !converts ? test::box_of(8, {{3, 32}, {4, 8}}) : test::box_of(8, {{4, 24}, {3, 8}});
            auto* const base = reinterpret_cast<std::byte*>(memory.data());
            transport::Send const send{1, base, box, conversion};
            transport::Receive const receive{0, base, box, conversion};
            std::string text;
            try {
                comm.exchange({&send, comm.rank() == 0 ? 1U : 0U}, {&receive, receives ? 1U : 0U}).wait();
                barrier(comm);
            } catch (Error const& error) {
                CHECK(error.code() == (comm.rank() < 2 ? ErrorCode::mismatch : ErrorCode::peer_failed));
                text = error.message();
            }
            CAPTURE(text);
            CHECK(text.find(converts ? "rank 0 sends I64, rank 1 expects U64" : "list different extents") !=
                  std::string::npos);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }

    TEST_CASE("MpiCommunicator: ranks of different nodes that have nothing for each other run ahead") {
        MpiOptions options;
        options.ranks_per_node = 1;
        MpiCommunicator comm(MPI_COMM_WORLD, options);
        int const last = comm.size() - 1;
        for (int round = 0; round != 20000; ++round) {  // tags have wrapped by then
            int value = round;
            int got = -1;
            bool const mine = round % 64 == 0;
            transport::Send const send{last, reinterpret_cast<std::byte const*>(&value), test::box_of(4, {})};
            transport::Receive const receive{0, reinterpret_cast<std::byte*>(&got), test::box_of(4, {})};
            comm.exchange({&send, mine && comm.rank() == 0 ? 1U : 0U},
                          {&receive, mine && comm.rank() == last ? 1U : 0U})
                .wait();
            if (mine && comm.rank() == last) CHECK(got == round);
        }
    }

    TEST_CASE(
        "MpiCommunicator: short exchanges that are replayed in any order arrive whole, however far ranks run ahead") {
        auto const seed = 20251U;
        CAPTURE(seed);
        test::for_each_way(test::all_ways(), [&](MpiCommunicator& comm) {
            std::mt19937 same(seed);
            std::mt19937 own(seed + 1 + static_cast<unsigned>(comm.rank()));
            std::vector<std::unique_ptr<Replayed>> bound;
            for (int i = 0; i != 6; ++i) bound.push_back(std::make_unique<Replayed>(comm, same, i % 3 != 2));
            std::uint64_t wrong = 0;
            for (std::uint64_t round = 1; round != 400; ++round) {
                if (own() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
                Replayed& one = *bound[same() % bound.size()];
                Replayed& other = *bound[same() % bound.size()];
                one.start(round);
                if (same() % 4 == 0 && &one != &other) {
                    other.start(round);
                    wrong += other.finish(round);
                }
                wrong += one.finish(round);
                if (same() % 8 == 0) barrier(comm);
            }
            CHECK(wrong == 0);
        });
    }

    TEST_CASE("MpiCommunicator: a rank that replays another exchange is found out by the next call") {
        for (auto options : test::all_ways()) {
            for (bool repeats : {false, true}) {
                CAPTURE(options.ranks_per_node);
                CAPTURE(static_cast<int>(options.path));
                CAPTURE(repeats);
                options.deadline = 20s;
                MpiCommunicator comm(MPI_COMM_WORLD, options);
                if (comm.size() < 2) return;
                int value = 1;
                int got = 0;
                transport::Send const send{1, reinterpret_cast<std::byte const*>(&value), test::box_of(4, {})};
                transport::Receive const receive{0, reinterpret_cast<std::byte*>(&got), test::box_of(4, {})};
                auto full = comm.bind({&send, comm.rank() == 0 ? 1U : 0U}, {&receive, comm.rank() == 1 ? 1U : 0U});
                auto empty = comm.bind({}, {});
                ErrorCode code = ErrorCode::none;
                try {
                    for (auto* exchange : {&full, &empty, &full}) {
                        exchange->start();
                        exchange->wait();  // a late rank may hear of the failure here
                    }
                    auto& stray = comm.rank() == 0 ? full : empty;
                    stray.start();
                    stray.wait();
                    if (repeats) {
                        full.start();  // rank 1 may have fetched this before rank 0 asks for what it did not
                        if (comm.rank() == 0) std::this_thread::sleep_for(5ms);
                        full.wait();
                    }
                    barrier(comm);
                    barrier(comm);
                } catch (Error const& error) {
                    code = error.code();
                }
                CHECK(code == (comm.rank() < 2 ? ErrorCode::mismatch : ErrorCode::peer_failed));
                MPI_Barrier(MPI_COMM_WORLD);
            }
        }
    }

    TEST_CASE("MpiCommunicator: what a rank has sent arrives though it is gone") {
        test::for_each_way(test::all_ways(), [](MpiCommunicator& comm) {
            for (int round = 0; round != 5; ++round) {
                MpiCommunicator child = comm.split(0, 0);
                test::BoundRing ring(child);
                ring.start(child, 1);
                ring.exchange.wait();
                bool const leaves = comm.rank() == round % comm.size();
                if (!leaves) std::this_thread::sleep_for(std::chrono::milliseconds(3));
                ring.start(child, 2);
                ring.exchange.wait();
                CHECK(ring.is_right(2));
                if (leaves) MpiCommunicator const gone = std::move(child);
            }
        });
    }

    TEST_CASE("MpiCommunicator: an exchange that is repeated allocates nothing") {
        test::for_each_way(test::all_ways(), [&](MpiCommunicator& comm) {
            RandomExchange exchange(comm, 5U, 2'000'000, false);
            for (int round = 0; round != 3; ++round) exchange.run(comm);
            allocations = 0;
            counting = true;
            for (int round = 0; round != 3; ++round) exchange.run(comm);
            counting = false;
            CHECK(allocations == 0);
            CHECK(exchange.wrong() == 0);
        });
    }

    TEST_CASE(
        "MpiCommunicator: between nodes short transfers share a message, and long ones that nobody packs take few") {
        MpiOptions options;
        options.ranks_per_node = 1;
        MpiCommunicator comm(MPI_COMM_WORLD, options);
        int const next = (comm.rank() + 1) % comm.size();
        int const previous = (comm.rank() + comm.size() - 1) % comm.size();
        constexpr Index mebi = 1 << 20;
        std::vector<std::byte> from(20 * mebi);
        std::vector<std::byte> to(from.size());
        for (std::size_t i = 0; i != from.size(); ++i)
            from[i] = test::mark(comm.rank(), next, 0, static_cast<Index>(i));
        std::vector<transport::Send> sends;
        std::vector<transport::Receive> receives;
        auto const add = [&](Index from_at, transport::StridedBox const& box_from, Index to_at,
                             transport::StridedBox const& box_to) {
            sends.push_back({next, from.data() + from_at, box_from});
            receives.push_back({previous, to.data() + to_at, box_to});
        };
        auto const messages = [&] {  // of all that was added
            Traffic const before = comm.traffic();
            comm.exchange(sends, receives).wait();
            sends.clear();
            receives.clear();
            Traffic const moved = comm.traffic() - before;
            return moved.messages_sent == moved.messages_received ? moved.messages_sent : Index{-1};
        };
        Index const far = comm.size() == 1 ? 0 : 1;  // to itself a rank sends none
        auto const dense = [](Index bytes) { return test::box_of(1, {{bytes, 1}}); };
        auto const arrived = [&](Index from_at, Index to_at, Index bytes) {
            Index wrong = 0;
            for (Index i = 0; i != bytes; ++i) {
                std::byte const want = test::mark(previous, comm.rank(), 0, from_at + i);
                wrong += to[static_cast<std::size_t>(to_at + i)] == want ? 0 : 1;
            }
            return wrong == 0;
        };

        for (Index k = 0; k != 1000; ++k) add(k * 8, test::box_of(8, {}), k * 8, test::box_of(8, {}));
        CHECK(messages() == far);
        CHECK(arrived(0, 0, 8000));

        struct {
            Index rows, length, pitch_from, pitch_to, messages;
        } const transfers[] = {
            {1, 2 * mebi, 0, 0, 4},  // is on its way before anybody has said anything
            {1, 3 * mebi, 0, 0, 1},       {1, 20 * mebi, 0, 0, 3},
            {3072, 1024, 1024, 1536, 1},                              // rows that MPI is told of
            {10240, 1024, 1536, 1024, 2}, {12288, 256, 256, 512, 6},  // the receiver packs
            {12288, 256, 512, 256, 6},                                // the sender does
        };
        for (auto const& one : transfers) {
            CAPTURE(one.rows);
            CAPTURE(one.length);
            CAPTURE(one.pitch_from);
            std::fill(to.begin(), to.end(), std::byte{});
            add(0, test::box_of(1, {{one.rows, one.pitch_from}, {one.length, 1}}), 0,
                test::box_of(1, {{one.rows, one.pitch_to}, {one.length, 1}}));
            CHECK(messages() == far * one.messages);
            bool right = true;
            for (Index row = 0; row != one.rows; ++row)
                right = arrived(row * one.pitch_from, row * one.pitch_to, one.length) && right;
            CHECK(right);
        }

        // A long one is alone; those before it share a message, and so do those behind it.
        std::fill(to.begin(), to.end(), std::byte{});
        Index at = 0;
        for (Index bytes : {Index{8}, 3 * mebi, Index{8}, Index{16}, 9 * mebi, 3 * mebi}) {
            add(at, dense(bytes), at, dense(bytes));
            at += bytes;
        }
        CHECK(messages() == far * (1 + 1 + 1 + 2 + 1));
        CHECK(arrived(0, 0, at));

        // Values that the receiver converts: it packs.
        constexpr Index values = 3 * mebi / 4;
        std::vector<float> const floats(values, static_cast<float>(comm.rank()) + 0.5F);
        std::vector<double> doubles(values);
        sends.push_back({next,
                         reinterpret_cast<std::byte const*>(floats.data()),
                         test::box_of(4, {{values, 4}}),
                         {DType::f32, DType::f32, 1.0, transport::convert}});
        receives.push_back({previous,
                            reinterpret_cast<std::byte*>(doubles.data()),
                            test::box_of(8, {{values, 8}}),
                            {DType::f64, DType::f32, 1.0, transport::convert}});
        CHECK(messages() == far * 24);
        CHECK(doubles == std::vector<double>(values, previous + 0.5));
    }

    TEST_CASE("MpiCommunicator: a rank that waits for long leaves its processor to others") {
        auto const used = [] {  // by this thread, in seconds
            timespec time{};
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
            return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
        };
        for (int ranks_per_node : {0, 1}) {
            CAPTURE(ranks_per_node);
            MpiOptions options;
            options.ranks_per_node = ranks_per_node;
            MpiCommunicator comm(MPI_COMM_WORLD, options);
            if (comm.size() == 1) return;
            test::BoundRing ring(comm);
            barrier(comm);
            if (comm.rank() == 0) std::this_thread::sleep_for(500ms);
            double const before = used();
            ring.start(comm, 1);
            ring.exchange.wait();
            barrier(comm);
            CHECK(used() - before < 0.25);
        }
    }

    TEST_CASE("MpiBuffer: owns memory that is zero, aligned and usable by views; ranks may have different sizes") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        auto buffer = comm.allocate<float>(100 * (comm.rank() + 1));
        CHECK(buffer.size() == 100 * (comm.rank() + 1));
        CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096 == 0);
        for (float value : buffer.span()) CHECK(value == 0.0F);
        CHECK(buffer.view(Shape{10, 10}).data() == buffer.data());
        CHECK_THROWS_AS(static_cast<void>(buffer.view(Shape{100, 100})), BufferError);
        auto moved = std::move(buffer);
        CHECK(buffer.data() == nullptr);
        CHECK(moved.span().size() == static_cast<std::size_t>(100 * (comm.rank() + 1)));
        CHECK(comm.allocate<float>(0).size() == 0);
    }

    TEST_CASE("MpiBuffer: what one rank cannot have is an error on all, and poisons nothing") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        int const last = comm.size() - 1;
        CHECK_THROWS_AS(static_cast<void>(comm.allocate<double>(comm.rank() == last ? Index{1} << 55 : 8)),
                        OutOfMemory);
        CHECK_THROWS_AS(static_cast<void>(comm.allocate<double>(comm.rank() == last ? -1 : 8)), BufferError);
        CHECK_THROWS_AS(static_cast<void>(comm.allocate<double>(INT64_MAX)), BufferError);
        CHECK_THROWS_AS(static_cast<void>(comm.allocate<std::byte>(INT64_MAX)), BufferError);
        test::sends_one_value_to_each_peer(comm);
    }

    TEST_CASE("MpiBuffer: where a rank may open no more files it is ordinary memory, or an error on all that says so") {
        for (int ranks_per_node : {1, 0}) {
            MpiOptions options;
            options.ranks_per_node = ranks_per_node;
            MpiCommunicator comm(MPI_COMM_WORLD, options);
            barrier(comm);
            rlimit before{};
            REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
            rlimit const none{0, before.rlim_max};
            bool const last = comm.rank() == comm.size() - 1;
            std::string said;
            std::size_t got = 0;
            if (last) ::setrlimit(RLIMIT_NOFILE, &none);
            try {
                auto buffer = comm.allocate<int>(3);
                for (int value : buffer.span()) got += value == 0 ? 1 : 0;
            } catch (OutOfMemory const& error) {
                said = error.message();
            }
            if (last) ::setrlimit(RLIMIT_NOFILE, &before);
            bool const shares = ranks_per_node == 0 && comm.size() > 1;
            CHECK(got == (shares ? 0 : 3));
            CHECK((said.find("(ulimit -n)") != std::string::npos) == shares);
            test::sends_one_value_to_each_peer(comm);
        }
    }

    TEST_CASE("MpiBuffer: what a rank has freed, peers let go of as well") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        Index const bytes = Index{4} << 20;
        auto const next = (comm.rank() + 1) % comm.size();
        auto const previous = (comm.rank() + comm.size() - 1) % comm.size();
        std::vector<std::byte> to(static_cast<std::size_t>(bytes));
        auto const mapped = [] {  // of memory that processes share, in bytes
            std::ifstream maps("/proc/self/maps");
            Index sum = 0;
            for (std::string line; std::getline(maps, line);) {
                if (line.find("memfd:reshard") == std::string::npos) continue;
                std::uint64_t first = 0;
                std::uint64_t last = 0;
                std::sscanf(line.c_str(), "%lx-%lx", &first, &last);
                sum += static_cast<Index>(last - first);
            }
            return sum;
        };
        Index const before = mapped();
        for (int i = 0; i < 8; ++i) {
            auto const from = comm.allocate<std::byte>(bytes);
            static_cast<void>(comm.allocate<std::byte>(0));  // lets go of what it maps of others
            transport::Send const send{next, from.data(), test::box_of(1, {{bytes, 1}})};
            transport::Receive const receive{previous, to.data(), test::box_of(1, {{bytes, 1}})};
            comm.exchange({&send, 1}, {&receive, 1}).wait();
        }
        static_cast<void>(comm.allocate<std::byte>(0));
        CHECK(mapped() - before < 2 * bytes);
    }

    TEST_CASE("MpiCommunicator: ranks of which one splits first and then meets the others are told so") {
        for (int const near : {0, 1}) {  // as many ranks of a node as there are, or one
            MpiOptions options;
            options.ranks_per_node = near;
            MpiCommunicator comm(MPI_COMM_WORLD, options);
            if (comm.size() == 1) return;
            barrier(comm);
            barrier(comm);
            std::string said;
            try {
                if (comm.rank() == 0) barrier(comm);
                static_cast<void>(comm.split(0, 0));
                if (comm.rank() != 0) barrier(comm);
            } catch (MismatchError const& error) {
                said = error.message();
            }
            // Who sees others wait may be first to find it out, by what they have called.
            CHECK(said.find("split") != std::string::npos);
            CHECK(said.find("make all ranks call the same things in the same order") != std::string::npos);
            if (near == 0) continue;
            CHECK(said.find("is in split(), but rank 0 is in barrier(). Fix: ") != std::string::npos);
            test::sends_one_value_to_each_peer(comm);  // all know, and go on
            std::string other;
            try {
                if (comm.rank() == 0) static_cast<void>(comm.allocate<int>(1));
                static_cast<void>(comm.split(0, 0));
            } catch (MismatchError const& error) {
                other = error.message();
            }
            CHECK(other.find("make all ranks call the same things in the same order") != std::string::npos);
        }
    }

    TEST_CASE(
        "MpiBuffer: what each rank could have, but not all of a node together, is an error before it is touched") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        if (comm.size() == 1) return;
        Index const half_more = detail::available_memory() / comm.size() / 2 * 3;
        CHECK_THROWS_AS(static_cast<void>(comm.allocate<std::byte>(half_more)), OutOfMemory);
        CHECK(comm.allocate<int>(5).size() == 5);
        test::sends_one_value_to_each_peer(comm);
    }

    TEST_CASE("MpiBuffer: a rank may let go of its buffer while others still send from theirs") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        MpiCommunicator child = comm.split(0, 0);
        auto buffer = comm.allocate<int>(5);
        int const root = comm.size() - 1;
        if (comm.rank() != root) buffer = {};
        for (int round = 0; round != 2; ++round) {
            for (int i = 0; i != 5 && comm.rank() == root; ++i) buffer.data()[i] = 10 * round + i;
            int got[5] = {};
            std::vector<transport::Send> sends;
            for (int r = 0; r != comm.size() && comm.rank() == root; ++r) {
                sends.push_back({r, reinterpret_cast<std::byte const*>(buffer.data()), test::box_of(4, {{5, 4}})});
            }
            transport::Receive const receive{root, reinterpret_cast<std::byte*>(got), test::box_of(4, {{5, 4}})};
            (round == 0 ? comm : child).exchange(sends, {&receive, 1}).wait();
            for (int i = 0; i != 5; ++i) CHECK(got[i] == 10 * round + i);
        }
    }

    TEST_CASE("MpiCommunicator: shares no messages with the communicator it was made from") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        int result = MPI_UNEQUAL;
        MPI_Comm_compare(comm.native(), MPI_COMM_WORLD, &result);
        CHECK(result == MPI_CONGRUENT);
        MPI_Comm half = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, comm.rank() % 2, 0, &half);
        {
            MpiCommunicator part(half);
            test::sends_one_value_to_each_peer(part);
        }
        MPI_Comm_free(&half);  // the duplicate has a life of its own, and so has the original
        test::sends_one_value_to_each_peer(comm);
    }

    TEST_CASE("MpiCommunicator: options that are not the same on every rank are an error on all, not a hang") {
        int ranks = 0;
        int rank = 0;
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (ranks < 2) return;
        for (int differing : {0, ranks - 1}) {
            MpiOptions options;
            if (rank == differing) options.path = MpiPath::attach;
            CHECK_THROWS_WITH_AS(MpiCommunicator(MPI_COMM_WORLD, options), doctest::Contains("Fix: give every rank"),
                                 MismatchError);
            options = {};
            if (rank == differing) options.ranks_per_node = 1;
            CHECK_THROWS_WITH_AS(MpiCommunicator(MPI_COMM_WORLD, options), doctest::Contains("ranks_per_node"),
                                 MismatchError);
            options = {};
            for (auto other : {70'000ms, 0ms}) {
                options.deadline = rank == differing ? other : 60s;
                CHECK_THROWS_WITH_AS(MpiCommunicator(MPI_COMM_WORLD, options), doctest::Contains("a deadline of "),
                                     MismatchError);
            }
        }
        MpiOptions late;
        late.deadline = 0ms;
        CHECK_THROWS_WITH_AS(MpiCommunicator(MPI_COMM_WORLD, late), doctest::Contains("deadline is 0 ms. Fix: "),
                             BufferError);
        MpiCommunicator comm(MPI_COMM_WORLD);
        test::sends_one_value_to_each_peer(comm);
    }

    TEST_CASE("MpiCommunicator: a rank whose program says so leaves its wait, and the others are told") {
        static bool enough = false;
        static std::byte got{};
        transport::Receive const receive{0, &got, test::box_of(1, {})};
        for (auto options : test::all_ways()) {
            options.deadline = 1h;
            options.interrupted = [] { return enough; };
            for (bool exchanges : {false, true}) {
                CAPTURE(options.ranks_per_node);
                CAPTURE(exchanges);
                MpiCommunicator comm(MPI_COMM_WORLD, options);
                if (comm.size() < 2) return;
                bool const first = comm.rank() == 0;
                if (first) MPI_Barrier(MPI_COMM_WORLD);  // it comes when the others have left
                enough = comm.rank() == 1;
                auto const wait = [&] {
                    exchanges && !first ? comm.exchange({}, {&receive, 1}).wait() : barrier(comm);
                };
                if (enough) {
                    CHECK_THROWS_WITH_AS(wait(), doctest::Contains("reshard::MpiCommunicator: interrupted() of its"),
                                         UserError);
                } else {
                    CHECK_THROWS_WITH_AS(wait(), doctest::Contains("rank 1 failed: reshard::MpiCommunicator: inter"),
                                         PeerFailed);
                }
                enough = false;
                if (!first) MPI_Barrier(MPI_COMM_WORLD);
                MPI_Barrier(MPI_COMM_WORLD);
            }
        }
    }

    TEST_CASE("MpiCommunicator: what is started between nodes arrives while its sender is busy elsewhere") {
        MpiOptions options;
        options.ranks_per_node = 1;
        options.deadline = 20s;
        for (Index bytes : {Index{100}, Index{1} << 20}) {
            CAPTURE(bytes);
            MpiCommunicator comm(MPI_COMM_WORLD, options);
            if (comm.size() < 2) return;
            std::vector<std::byte> const from(static_cast<std::size_t>(bytes), std::byte{7});
            std::vector<std::byte> to(from.size());
            transport::Send const send{1, from.data(), test::box_of(1, {{bytes, 1}})};
            transport::Receive const receive{0, to.data(), test::box_of(1, {{bytes, 1}})};
            auto request = comm.exchange({&send, comm.rank() == 0 ? 1U : 0U}, {&receive, comm.rank() == 1 ? 1U : 0U});
            if (comm.rank() != 0) request.wait();
            MPI_Barrier(MPI_COMM_WORLD);  // of MPI: reshard does nothing for rank 0 meanwhile
            request.wait();
            CHECK((comm.rank() != 1 || to == from));
        }
    }

    TEST_CASE("MpiCommunicator: what cannot be a communicator is refused on every rank") {
        CHECK_THROWS_WITH_AS(MpiCommunicator(MPI_COMM_NULL), doctest::Contains("MPI_COMM_NULL"), TransportError);
        int ranks = 0;
        int rank = 0;
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (ranks < 2) return;
        MPI_Comm side = MPI_COMM_NULL;
        MPI_Comm both = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &side);
        MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, 1 - rank % 2, 9, &both);
        CHECK_THROWS_WITH_AS(MpiCommunicator{both}, doctest::Contains("MPI_Intercomm_merge"), TransportError);
        MPI_Comm_free(&both);
        MPI_Comm_free(&side);
    }

    TEST_CASE("MpiCommunicator: path() says how ordinary memory is reached, and attach is an error where it is not") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        MpiOptions options;
        options.path = MpiPath::messages;
        CHECK(MpiCommunicator(MPI_COMM_WORLD, options).path() == MpiPath::messages);
        options.path = MpiPath::attach;
        if (comm.size() == 1 || comm.path() == MpiPath::attach) {
            MpiCommunicator attached(MPI_COMM_WORLD, options);
            test::sends_one_value_to_each_peer(attached);
        }
        options.ranks_per_node = 1;  // nobody to attach to
        if (comm.size() > 1)
            CHECK_THROWS_WITH_AS(MpiCommunicator(MPI_COMM_WORLD, options), doctest::Contains("attach"), TransportError);
        test::sends_one_value_to_each_peer(comm);
    }

    TEST_CASE("MpiCommunicator: an exchange out of order, or one that is under way, is refused") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        std::byte byte{};
        transport::Send const beyond{comm.size(), &byte, test::box_of(1, {})};
        CHECK_THROWS_WITH_AS(comm.exchange({&beyond, 1}, {}).wait(), doctest::Contains("sort transfers by peer"),
                             TransportError);
        MpiCommunicator other(MPI_COMM_WORLD);
        auto first = other.exchange({}, {});
        CHECK_THROWS_WITH_AS(first.start(), doctest::Contains("under way"), TransportError);
        first.wait();
        MpiCommunicator moved = std::move(other);
        test::sends_one_value_to_each_peer(moved);
    }

    TEST_CASE("MpiCommunicator: abort in a split child poisons the whole family, wherever the others wait") {
        test::for_each_way(test::all_ways(), [](MpiCommunicator& comm) {
            MpiCommunicator child = comm.split(0, 0);
            MpiCommunicator grandchild = child.split(comm.rank() % 2, 0);
            int const culprit = comm.size() - 1;
            std::string text;
            try {
                if (comm.rank() == culprit) grandchild.abort(ErrorCode::format, "bad header");
                // Two communicators: ranks that make different calls on one would be a mismatch of their own.
                static_cast<void>((comm.rank() % 2 == 0 ? comm : child).agree({}));
                barrier(grandchild);
            } catch (PeerFailed const& error) {
                text = error.message();
            }
            CAPTURE(text);
            CHECK(text.find(errors::concat("rank ", culprit, " failed: bad header")) != std::string::npos);
            CHECK_THROWS_AS(comm.exchange({}, {}).wait(), PeerFailed);
            CHECK_THROWS_AS(static_cast<void>(child.split(0, 0)), PeerFailed);
            MPI_Barrier(MPI_COMM_WORLD);
        });
    }

    TEST_CASE("MpiCommunicator: a rank without memory for a part is OutOfMemory on all, and nobody waits for it") {
        test::for_each_way(test::all_ways(), [](MpiCommunicator& comm) {
            if (comm.rank() == comm.size() - 1) refused_from = 60'000;
            CHECK_THROWS_AS(static_cast<void>(comm.split(0, 0)), OutOfMemory);
            refused_from = SIZE_MAX;
            CHECK(comm.split(0, 0).size() == comm.size());
        });
    }

    TEST_CASE(
        "MpiCommunicator: what a rank tells of a failure once others have gone meets no communicator made later") {
        int const rank = detail::mpi_rank(MPI_COMM_WORLD);
        for (int again = 0; again < 2; ++again) {
            auto failing = std::make_unique<MpiCommunicator>(MPI_COMM_WORLD);
            barrier(*failing);
            if (rank != 1) failing.reset();
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 1) failing->abort(ErrorCode::user, "too late");
            failing.reset();
            MPI_Barrier(MPI_COMM_WORLD);
            MpiCommunicator comm(MPI_COMM_WORLD);
            for (int turn = 0; turn < 3; ++turn) {  // parts without the rank that failed
                MpiCommunicator part = comm.split(rank == 1 ? 1 : 0, rank);
                int const mine = rank;
                std::vector<int> all(static_cast<std::size_t>(part.size()));
                all_gather(part, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
                CHECK(all[static_cast<std::size_t>(part.rank())] == rank);
            }
            barrier(comm);
        }
    }

    TEST_CASE("MpiCommunicator: a thread that MPI was not initialised for may use it only if MPI allows") {
        int level = MPI_THREAD_SINGLE;
        MPI_Query_thread(&level);
        bool refused = false;
        std::thread([&] {
            try {
                detail::check_mpi_environment(MPI_COMM_WORLD);
            } catch (TransportError const&) {
                refused = true;
            }
        }).join();
        CHECK(refused == (level < MPI_THREAD_SERIALIZED));
    }
}
