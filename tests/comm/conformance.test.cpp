// SPDX-License-Identifier: Apache-2.0
// The conformance suite itself: transports that break a promise are found, each of them. Without doctest, so that a
// broken promise is an error here and not a failure.
#define RESHARD_CONFORMANCE_WITHOUT_DOCTEST
#include "conformance.hpp"

#include <reshard/comm/threads.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../support/allocations.hpp"
#include "../support/random.hpp"

namespace {
using namespace reshard;
using namespace std::chrono_literals;

enum class Broken { nothing, test_blocks, groups_negative_colours, allocates, keeps_sends, hides_mismatches, nests };

template <Broken how>
class BrokenRequest {
public:
    BrokenRequest() = default;
    BrokenRequest(ThreadRequest request, std::optional<ThreadRequest>* kept) noexcept
        : request_(std::move(request)), kept_(kept) {}
    void wait() {
        if (how == Broken::keeps_sends && kept_ != nullptr) {
            kept_->emplace(std::move(request_));
            kept_ = nullptr;
            return;
        }
        try {
            request_.wait();
        } catch (Error const&) {
            if (how != Broken::hides_mismatches) throw;
        }
    }
    [[nodiscard]] bool test() {
        if (how != Broken::test_blocks) return request_.test();
        request_.wait();
        return true;
    }
    [[nodiscard]] bool done() const noexcept { return request_.done(); }

private:
    ThreadRequest request_;
    std::optional<ThreadRequest>* kept_ = nullptr;
};

/// Threads, but for one promise.
template <Broken how>
class BrokenCommunicator : public MeshSplit<BrokenCommunicator<how>> {
public:
    static constexpr std::string_view name = "broken";
    using request_type = BrokenRequest<how>;
    using MeshSplit<BrokenCommunicator>::split;
    explicit BrokenCommunicator(ThreadCommunicator inner) noexcept : inner_(std::move(inner)) {}

    [[nodiscard]] int rank() const noexcept { return inner_.rank(); }
    [[nodiscard]] int size() const noexcept { return inner_.size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return inner_.traffic(); }
    request_type exchange(std::span<Send const> sends, std::span<Receive const> receives) {
        flush();
        if (how == Broken::allocates) waste_ = std::make_unique<std::vector<Send>>(sends.begin(), sends.end());
        if (how == Broken::nests) {
            try {
                return request_type(inner_.exchange(sends, receives), nullptr);
            } catch (TransportError const&) {
                return request_type();
            }
        }
        bool const keeps = how == Broken::keeps_sends && receives.empty() && !sends.empty();
        if (keeps) {  // the caller's list may be gone when the others read it
            kept_sends_ = std::make_unique<std::vector<Send>>(sends.begin(), sends.end());
            sends = *kept_sends_;
        }
        return request_type(inner_.exchange(sends, receives), keeps ? kept_.get() : nullptr);
    }
    [[nodiscard]] Verdict agree(Verdict mine) {
        flush();
        return inner_.agree(std::move(mine));
    }
    [[nodiscard]] BrokenCommunicator split(int colour, int key) {
        flush();
        int const group = how == Broken::groups_negative_colours && colour < 0 ? 1000 - colour : colour;
        return BrokenCommunicator(inner_.split(group, key));
    }
    void abort(ErrorCode code, std::string_view reason) noexcept { inner_.abort(code, reason); }

private:
    void flush() {
        if (*kept_) kept_->value().wait();
        kept_->reset();
    }
    ThreadCommunicator inner_;
    std::unique_ptr<std::vector<Send>> kept_sends_;  // outlives the request that others read it for
    std::unique_ptr<std::optional<ThreadRequest>> kept_ = std::make_unique<std::optional<ThreadRequest>>();
    std::unique_ptr<std::vector<Send>> waste_;
};
static_assert(Communicator<BrokenCommunicator<Broken::nothing>>);

/// What the suite says of it, or nothing.
template <Broken how>
std::string verdict(int ranks) {
    try {
        run_on_threads(ranks, {.deadline = 20s}, [](ThreadCommunicator& plain) {
            BrokenCommunicator<how> comm(std::move(plain));
            test::conforms(comm);
            test::refuses_a_second_exchange(comm);
            test::exchanges_without_allocating(comm, [](auto const& body) { return test::allocations_in(body); });
        });
        for (test::Payloads const& one : test::different_payloads) {
            run_on_threads(ranks, {.deadline = 20s}, [&](ThreadCommunicator& plain) {
                BrokenCommunicator<how> comm(std::move(plain));
                test::notices_different_payloads(comm, one);
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
    }
}
