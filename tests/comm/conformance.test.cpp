// SPDX-License-Identifier: Apache-2.0
// The conformance suite itself: transports that break a promise are found, each of them. Without doctest, so that a
// broken promise is an error here and not a failure.
#define RESHARD_CONFORMANCE_WITHOUT_DOCTEST
#include "conformance.hpp"

#include <reshard/comm/policy.hpp>
#include <reshard/comm/threads.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "../support/allocations.hpp"
#include "../support/random.hpp"

namespace {
using namespace reshard;
using namespace std::chrono_literals;

enum class Broken {
    nothing,
    test_blocks,
    groups_negative_colours,
    allocates,
    keeps_sends,
    hides_mismatches,
    nests,
    any_order,
    loses_words
};

template <Broken how>
class BrokenCommunicator;

template <Broken how>
class BrokenExchange {
public:
    BrokenExchange() = default;
    BrokenExchange(BrokenCommunicator<how>& comm, transport::InOrder inner, std::span<transport::Send const> sends,
                   std::span<transport::Receive const> receives) noexcept
        : comm_(&comm), inner_(std::move(inner)), sends_(sends), receives_(receives) {}
    void start() {
        if (comm_ == nullptr) return inner_.start();
        comm_->flush();
        if (how == Broken::allocates)
            waste_ = std::make_unique<std::vector<transport::Send>>(sends_.begin(), sends_.end());
        keeps_ = how == Broken::keeps_sends && receives_.empty() && !sends_.empty();
        if (keeps_) inner_ = comm_->bind_kept(sends_);  // the caller's list may be gone when the others read it
        if (how == Broken::nests && !inner_.done()) return;
        inner_.start();
    }
    void wait() {
        if (keeps_ && !inner_.done()) return comm_->keep(std::move(inner_));
        try {
            inner_.wait();
        } catch (Error const&) {
            if (how != Broken::hides_mismatches) throw;
        }
    }
    [[nodiscard]] bool test() {
        if (how != Broken::test_blocks) return inner_.test();
        inner_.wait();
        return true;
    }
    [[nodiscard]] bool done() const noexcept { return inner_.done(); }

private:
    BrokenCommunicator<how>* comm_ = nullptr;
    transport::InOrder inner_;
    std::span<transport::Send const> sends_;
    std::span<transport::Receive const> receives_;
    std::unique_ptr<std::vector<transport::Send>> waste_;
    bool keeps_ = false;
};

/// Threads, but for one promise.
template <Broken how>
class BrokenCommunicator : public PolicyBase<BrokenCommunicator<how>, ThreadCommunicator> {
    using Base = PolicyBase<BrokenCommunicator, ThreadCommunicator>;

public:
    using exchange_type = BrokenExchange<how>;
    using Base::split;
    explicit BrokenCommunicator(ThreadCommunicator inner) noexcept : Base(std::move(inner)) {}

    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        return {*this, numbered(this->inner_.bind(sends, receives)), sends, receives};
    }
    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) {
        flush();
        if (how == Broken::loses_words) mine.words = nullptr;  // as one that sends the rest to another process
        return Base::agree(std::move(mine));
    }
    [[nodiscard]] BrokenCommunicator split(int colour, int key) {
        flush();
        int const group = how == Broken::groups_negative_colours && colour < 0 ? 1000 - colour : colour;
        return BrokenCommunicator(this->inner_.split(group, key));
    }

    transport::InOrder bind_kept(std::span<transport::Send const> sends) {
        kept_sends_ = std::make_unique<std::vector<transport::Send>>(sends.begin(), sends.end());
        return numbered(this->inner_.bind(*kept_sends_, {}));
    }
    void keep(transport::InOrder exchange) { *kept_ = std::move(exchange); }
    void flush() { kept_->wait(); }

private:
    [[nodiscard]] static transport::InOrder numbered(transport::InOrder bound) {
        // all have the same number; here too it is only one rank that binds again
        if (how == Broken::any_order || how == Broken::keeps_sends) bound.become_part_of({});
        return bound;
    }

    std::unique_ptr<std::vector<transport::Send>> kept_sends_;  // outlives the exchange that others read it for
    std::unique_ptr<transport::InOrder> kept_ = std::make_unique<transport::InOrder>();
};
static_assert(Communicator<BrokenCommunicator<Broken::nothing>>);

/// What the suite says of it, or nothing.
template <Broken how>
std::string verdict(int ranks) {
    try {
        run_on_threads(ranks, {.deadline = 20s}, [](ThreadCommunicator& plain) {
            BrokenCommunicator<how> comm(std::move(plain));
            test::conforms(comm);
            test::refuses_a_second_start(comm);
            test::exchanges_without_allocating(comm, [](auto const& body) { return test::allocations_in(body); });
        });
        for (test::Payloads const& one : test::different_payloads) {
            run_on_threads(ranks, {.deadline = 20s}, [&](ThreadCommunicator& plain) {
                BrokenCommunicator<how> comm(std::move(plain));
                test::notices_different_payloads(comm, one);
            });
        }
        for (bool again : {false, true}) {
            run_on_threads(ranks, {.deadline = 20s}, [&](ThreadCommunicator& plain) {
                BrokenCommunicator<how> comm(std::move(plain));
                test::notices_another_order(comm, again);
            });
        }
    } catch (std::exception const& error) {
        return error.what();
    }
    return {};
}
bool holds(std::string const& text, std::string_view part) { return text.find(part) != std::string::npos; }
}  // namespace

TEST_SUITE("comm/conformance") {
    TEST_CASE("conforms: passes a transport that keeps its promises") {
        for (int ranks : {2, 3}) CHECK(verdict<Broken::nothing>(ranks).empty());
    }

    TEST_CASE("conforms: finds each transport that breaks one, and says where") {
        auto const found = [](std::string const& text, std::string_view part) {
            CAPTURE(text);
            CHECK(holds(text, "conformance.hpp:"));
            CHECK(holds(text, part));
        };
        found(verdict<Broken::test_blocks>(3), "all_returned");
        found(verdict<Broken::groups_negative_colours>(3), "alone.size() == 1");
        found(verdict<Broken::allocates>(3), "allocations_in(run) == 0");
#if !defined(RESHARD_TEST_SANITIZED)  // they see first that memory is read which is gone
        found(verdict<Broken::keeps_sends>(3), "this is not so");
#endif
        found(verdict<Broken::hides_mismatches>(3), "this is not so");
        found(verdict<Broken::nests>(3), "throws TransportError");
        found(verdict<Broken::loses_words>(3), "in words");
        found(verdict<Broken::any_order>(3), "code == ErrorCode::mismatch");
    }

    TEST_CASE("an error of another type is a broken promise too: where, which, and the error") {
        auto const words = [] { errors::raise(ErrorCode::mismatch, "transfer 0 does not fit"); };
        try {
            RESHARD_CHECK_THROWS(words(), PeerFailed);
            CHECK(false);
        } catch (Error const& error) {
            CHECK(holds(error.message(), "conformance.test.cpp:"));
            CHECK(holds(error.message(), "this is not so: words() throws PeerFailed, but: "));
            CHECK(holds(error.message(), "transfer 0 does not fit"));
        }
    }
}
