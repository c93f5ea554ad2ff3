// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/any_communicator.hpp: a communicator of any type is a communicator, and says what the
// one inside would say.
#include <reshard/comm/any_communicator.hpp>

#include <reshard/comm/abort_on_failure.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/staged.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/comm/traced.hpp>
#include <reshard/exec/redistribute.hpp>

#include "conformance.hpp"
#include "support/allocations.hpp"
#include "support/thrown.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

namespace {
using namespace reshard;

static_assert(Communicator<AnyCommunicator>);
static_assert(BoundExchange<AnyExchange>);
static_assert(std::is_convertible_v<ThreadCommunicator&, CommunicatorRef>);
static_assert(std::is_convertible_v<AnyCommunicator&, CommunicatorRef>);
static_assert(!std::is_convertible_v<TensorView<float>&, CommunicatorRef>);  // overloads without a communicator take it
// What else is none is refused in words: tests/fail/communicator_*.cpp.
static_assert(std::is_trivially_copyable_v<CommunicatorRef> && sizeof(CommunicatorRef) == 2 * sizeof(void*));
// Nothing is allocated for an exchange, through all policies.
static_assert(sizeof(Composed<ThreadCommunicator, Staged, Traced, AbortOnFailure>::exchange_type) <= AnyExchange::room);

/// An exchange as large as none of ours, which counts how many of it there are.
struct LargeExchange {
    static inline int alive = 0;
    std::byte much[4 * AnyExchange::room];
    int* waits = nullptr;

    LargeExchange() { ++alive; }
    explicit LargeExchange(int& count) : waits(&count) { ++alive; }
    LargeExchange(LargeExchange&& other) noexcept : waits(std::exchange(other.waits, nullptr)) { ++alive; }
    LargeExchange& operator=(LargeExchange&& other) noexcept {
        std::swap(waits, other.waits);
        return *this;
    }
    ~LargeExchange() { --alive; }
    void start() {}
    void wait() {
        if (waits != nullptr) ++*std::exchange(waits, nullptr);
    }
    bool test() {
        wait();
        return true;
    }
    [[nodiscard]] bool done() const noexcept { return waits == nullptr; }
};

/// A transport whose buffers the peers read in place, and whose process ends in a way of its own.
class Sharing : public CommunicatorBase<Sharing> {
public:
    static constexpr std::string_view name = "sharing";
    using exchange_type = transport::InOrder;
    using CommunicatorBase<Sharing>::split;
    [[nodiscard]] int rank() const noexcept { return self_.rank(); }
    [[nodiscard]] int size() const noexcept { return self_.size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return self_.traffic(); }
    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        return self_.bind(sends, receives);
    }
    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) { return self_.agree(std::move(mine)); }
    [[nodiscard]] Sharing split(int, int) { return {}; }
    void abort(ErrorCode code, std::string_view reason) noexcept { self_.abort(code, reason); }
    template <class T>
    [[nodiscard]] std::vector<T> allocate(Index elements) {
        ++allocations;
        return std::vector<T>(static_cast<std::size_t>(elements), T{7});
    }
    static inline int allocations = 0;

private:
    SelfCommunicator self_;
};
}  // namespace

TEST_SUITE("comm/any_communicator") {
    TEST_CASE("a communicator of any type keeps every promise of the one inside") {
        AnyCommunicator self{SelfCommunicator()};
        test::conforms(self);
        for (int const ranks : {2, 3, 4}) {
            CAPTURE(ranks);
            run_on_threads(ranks, [](ThreadCommunicator& threads) {
                Trace trace;
                AnyCommunicator comm(Traced<ThreadCommunicator>(threads.split(0, threads.rank()), trace));
                test::conforms(comm);
            });
        }
    }

    TEST_CASE("what takes a communicator takes one of any type, and policies go around it") {
        run_on_threads(2, [](ThreadCommunicator& threads) {
            Trace trace;
            Traced<AnyCommunicator> comm(AnyCommunicator(threads.split(0, threads.rank())), trace);
            auto const rows = distribution<Shard<0>>(Mesh{2}, Shape{4, 4});
            auto const columns = distribution<Shard<1>>(Mesh{2}, Shape{4, 4});
            Tensor<int> mine(rows.local_shape(comm.rank()));
            for (Index i = 0; i < mine.size(); ++i) mine.data()[i] = static_cast<int>(8 * comm.rank() + i);
            Tensor<int> const turned = redistribute(plan(rows, columns), comm, mine.view());
            for (Index i = 0; i < 4; ++i) {
                for (Index j = 0; j < 2; ++j) {
                    CHECK(turned.view()(i, j) == static_cast<int>(4 * i + 2 * comm.rank() + j));
                }
            }
            CHECK(comm.size() == 2);
            CHECK(!trace.records().empty());
        });
    }

    TEST_CASE("an exchange: moved, waited for, dropped; of any size") {
        int waits = 0;
        {
            AnyExchange request{LargeExchange(waits)};
            CHECK(!request.done());
            AnyExchange moved(std::move(request));
            CHECK(request.done());  // NOLINT: moved-from requests are done
            CHECK(request.test());
            moved.wait();
            CHECK(waits == 1);
            CHECK(moved.done());
            moved = AnyExchange{LargeExchange(waits)};
            CHECK(moved.test());
            CHECK(waits == 2);
            AnyExchange empty;
            empty.wait();
            CHECK(empty.done());
        }
        CHECK(LargeExchange::alive == 0);
    }

    TEST_CASE("an exchange through a reference allocates nothing") {
        SelfCommunicator self;
        CommunicatorRef const comm = self;
        int const value = 3;
        int got = 0;
        transport::Send const send{0, reinterpret_cast<std::byte const*>(&value), test::box_of(4, {})};
        transport::Receive const receive{0, reinterpret_cast<std::byte*>(&got), test::box_of(4, {})};
        CHECK(test::allocations_in([&] { comm.exchange({&send, 1}, {&receive, 1}).wait(); }) == 0);
        CHECK(got == 3);
    }

    TEST_CASE("memory of any element type, as the communicator of a transport has it") {
        AnyCommunicator self{SelfCommunicator()};
        auto doubles = self.allocate<double>(6);
        CHECK(doubles.size() == 6);
        for (double& value : doubles.span()) CHECK(std::exchange(value, 3.0) == 0.0);
        CHECK(doubles.view(Shape{2, 3})(1, 2) == 3.0);
        CHECK_THROWS_AS(static_cast<void>(doubles.view(Shape{7})), BufferError);
        auto const moved = std::move(doubles);
        CHECK(doubles.data() == nullptr);  // NOLINT: moved-from buffers have nothing
        CHECK(moved.span().back() == 3.0);
        CHECK(self.allocate<std::byte>(0).size() == 0);
        Sharing::allocations = 0;
        Trace trace;
        Traced<AnyCommunicator> traced(AnyCommunicator(Sharing()), trace);
        CHECK(traced.allocate<BFloat16>(4).size() == 4);
        CHECK(Sharing::allocations == 1);
        run_on_threads(2, [](ThreadCommunicator& threads) {
            AnyCommunicator comm(threads.split(0, threads.rank()));
            CHECK(comm.allocate<std::int16_t>(3 * comm.rank()).size() == 3 * comm.rank());
            CHECK_THROWS_AS(static_cast<void>(comm.allocate<float>(comm.rank() == 1 ? -1 : 8)), BufferError);
            CHECK_THROWS_AS(static_cast<void>(comm.allocate<float>(comm.rank() == 1 ? INT64_MAX / 2 : 8)), BufferError);
        });
    }

    TEST_CASE("memory that peers read in place comes from the transport that has it, else from the heap") {
        Sharing::allocations = 0;
        Sharing sharing;
        Workspace const theirs = CommunicatorRef(sharing).allocate(16);
        CHECK(Sharing::allocations == 1);
        CHECK(theirs.data()[15] == std::byte{7});
        Trace trace;  // also through policies
        AbortOnFailure<Traced<Sharing>> watched(Traced<Sharing>(Sharing(), trace));
        CHECK(CommunicatorRef(watched).allocate(16).data()[15] == std::byte{7});
        Traced<AnyCommunicator> any(AnyCommunicator(Sharing()), trace);
        CHECK(CommunicatorRef(any).allocate(16).data()[15] == std::byte{7});
        CHECK(Sharing::allocations == 3);
        auto const thrown = test::thrown_by(3, [](ThreadCommunicator& comm) {
            Workspace const plain = CommunicatorRef(comm).allocate(comm.rank() * 8);
            CHECK((comm.rank() == 0 || plain.data() != nullptr));
            // One rank without memory is an error of all.
            static_cast<void>(CommunicatorRef(comm).allocate(comm.rank() == 1 ? INT64_MAX / 4 : 8));
        });
        for (auto const& each : thrown) {
            CHECK(each.code != ErrorCode::none);
            CHECK(each.message.find("rank 1 of 3: ") != std::string::npos);
        }
    }

    TEST_CASE("a communicator that is moved from is nobody's any more") {
        AnyCommunicator first{SelfCommunicator()};
        AnyCommunicator second(std::move(first));
        CHECK(second.rank() == 0);
        first = AnyCommunicator(SelfCommunicator());  // NOLINT: assigned after the move
        CHECK(first.size() == 1);
    }
}
