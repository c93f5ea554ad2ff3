// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/detail/batch_job.hpp: what the exchanges of a round hold, and in which order.
#include <reshard/exec/detail/batch_job.hpp>

#include <reshard/memory/host_memory.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {
using namespace reshard;
using detail::Job;

/// Rank 1 of 3 turns rows into columns, tensor by tensor; both sides lie in `memory`, at their tensor's number.
struct Side {
    std::vector<std::vector<double>> memory;
    std::vector<Job> jobs;

    explicit Side(int rank, int tensors) : memory(static_cast<std::size_t>(2 * tensors), std::vector<double>(27)) {
        for (int i = 0; i < tensors; ++i) {
            Plan<> const move = plan(parse("(3):(S0)", Shape{9, 9}), parse("(3):(S1)", Shape{9, 9}));
            auto const t = static_cast<std::size_t>(2 * i);
            ConstDynamicView const source(memory[t].data(), DType::f64, move.from().local_shape(rank));
            DynamicView const destination(memory[t + 1].data(), DType::f64, move.to().local_shape(rank));
            detail::RankSteps const mine({move.value(), rank, source, destination}, move.steps(), {}, nullptr);
            jobs.emplace_back(mine, std::span<std::byte>{}, host_memory().policy);
        }
    }
    /// The number of the tensor a transfer is of.
    [[nodiscard]] std::size_t tensor_of(std::byte const* base) const {
        for (std::size_t i = 0; i < memory.size(); ++i) {
            auto const* const begin = reinterpret_cast<std::byte const*>(memory[i].data());
            if (begin <= base && base < begin + 27 * 8) return i / 2;
        }
        return memory.size();
    }
    template <class Transfers>
    [[nodiscard]] std::vector<std::pair<int, std::size_t>> order(Transfers const& transfers) const {
        std::vector<std::pair<int, std::size_t>> result;
        for (auto const& each : transfers) result.emplace_back(each.peer, tensor_of(each.base));
        return result;
    }
};

/// Rank 1 of 3, which keeps what is bound.
struct Listening : CommunicatorBase<Listening> {
    static constexpr std::string_view name = "listening";
    using exchange_type = transport::InOrder;
    using CommunicatorBase<Listening>::split;
    Listening() = default;
    Listening(Listening&&) = default;
    Listening& operator=(Listening&&) = default;
    ~Listening() = default;
    [[nodiscard]] int rank() const noexcept { return 1; }
    [[nodiscard]] int size() const noexcept { return 3; }
    [[nodiscard]] Traffic traffic() const noexcept { return {}; }
    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        bound.push_back(transport::bound_transfers(name, sends, receives, 3));
        return {};
    }
    transport::Verdict agree(transport::Verdict mine) { return mine; }
    Listening split(int, int) { return {}; }
    void abort(ErrorCode, std::string_view) noexcept {}

    std::vector<transport::BoundTransfers> bound;
};
}  // namespace

TEST_SUITE("exec/detail/batch_job") {
    TEST_CASE("one exchange holds all transfers of a round, by peer and then in the order of the round") {
        using Order = std::vector<std::pair<int, std::size_t>>;
        Side side(1, 4);
        Listening comm;
        std::vector<detail::BatchJob::Round> const rounds{{3}, {0, 1, 2}};
        detail::BatchJob const job(comm, std::move(side.jobs), rounds, {});
        REQUIRE(job.phases() == 2);
        REQUIRE(comm.bound.size() == 2);
        Order const alone{{0, 3}, {1, 3}, {2, 3}};
        CHECK(side.order(comm.bound[0].sends) == alone);
        CHECK(side.order(comm.bound[0].receives) == alone);
        Order const shared{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}, {2, 2}};
        CHECK(side.order(comm.bound[1].sends) == shared);
        CHECK(side.order(comm.bound[1].receives) == shared);
    }
    TEST_CASE("no rounds, no exchanges: every job is local") {
        Listening comm;
        detail::BatchJob const job(comm, {}, {}, {});
        CHECK(comm.bound.empty());
        CHECK(job.phases() == 0);
        job.begin();
    }
}
