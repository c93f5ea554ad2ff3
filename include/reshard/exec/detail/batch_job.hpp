// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/batch_job.hpp
/// \brief  The jobs of many plans run as one: round after round, one exchange for all tensors of a round and phase.
/// \depends comm/{agree,any_communicator}.hpp, exec/detail/job.hpp.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/core/detail/keep_for_good.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/exec/detail/job.hpp>

#include <atomic>  // atomic

namespace reshard::inline v0_1::detail {

/// What a prepared plan runs. One plan is a batch of one.
class BatchJob : public Run {
public:
    using Round = std::vector<std::size_t>;

    /// One job. Its exchanges are bound to `comm`.
    BatchJob(CommunicatorRef comm, Job&& alone, Workspace&& workspace)
        : over_(comm), jobs_(1), order_(1, 0), steps_(as_size(alone.phases())), workspace_(std::move(workspace)) {
        for (int phase = 0; phase < phases(); ++phase) {
            Step& step = steps_[as_size(phase)];
            step.transfers = alone.take_exchange(phase);
            step.last = 1;
            step.phase = phase;
            step.bind(comm);
        }
        travelling_ = steps_.empty() ? 0 : 1;
        jobs_[0] = std::move(alone);
    }
    /// `rounds` names the jobs that travel together; jobs in no round are local.
    BatchJob(CommunicatorRef comm, std::vector<Job>&& jobs, std::span<Round const> rounds, Workspace&& workspace)
        : over_(comm), jobs_(std::move(jobs)), workspace_(std::move(workspace)) {
        std::vector<char> travels(jobs_.size(), false);
        for (Round const& round : rounds) {
            for (std::size_t i : round) travels[i] = true;
            add_round(comm, round);
        }
        travelling_ = order_.size();
        for (std::size_t i = 0; i < jobs_.size(); ++i) {
            if (!travels[i]) order_.push_back(i);
        }
    }

    BatchJob& operator=(BatchJob&&) = delete;
    ~BatchJob() {
        if (failed_) keep_for_good(std::move(workspace_));
    }
    /// One more has it: who has prepared it, a run under way, a thread that is to run it. It goes with the last.
    void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept {
        if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    /// Binds everything anew, as so many exchanges; those that this rank has not itself move nothing.
    /// \pre exchanges >= phases(); nothing was started.
    void bind_again(CommunicatorRef comm, int exchanges) {
        steps_.resize(as_size(exchanges));
        for (Step& step : steps_) step.bind(comm);
    }

    [[nodiscard]] int phases() const noexcept { return static_cast<int>(steps_.size()); }
    [[nodiscard]] AnyExchange& exchange(int phase) noexcept { return steps_[as_size(phase)].exchange; }

    /// Begins a run: the rank's own work, and the first exchange. Whether there is one, which wait() ends.
    [[nodiscard]] bool start();
    /// Whether there is an exchange that has not been waited for.
    [[nodiscard]] bool is_under_way() const noexcept { return phase_ < phases(); }
    /// Makes progress with the exchange under way; whether that is complete. If it throws, the run is over.
    [[nodiscard]] bool test();
    /// Ends what started before over the same communicator, and then this run. Throws what went wrong in one of
    /// them. This is gone then if nobody else has it.
    void wait();

    /// What this does with an exchange. Once one has failed a transport may still write to the workspace.
    [[gnu::noinline]] void guarded(FunctionRef<void()> body) {
#if defined(__cpp_exceptions)
        try {
            watched(body, [this](ErrorCode, std::string_view) noexcept { failed_ = true; });
        } catch (PeerFailed const& error) {
            raise_with(error, unspecified);
        } catch (DeadlineExceeded const& error) {
            raise_with(error, unspecified);
        }
#else
        body();
#endif
    }

    void begin() const {
        for (std::size_t i = travelling_; i < order_.size(); ++i) jobs_[order_[i]].work(0);
        if (!steps_.empty()) work(steps_.front(), 0);
    }
    void after(int phase) const {
        work(step(phase), step(phase).phase + 1);
        bool const next_round = phase + 1 < phases() && step(phase + 1).phase == 0;
        if (next_round) work(step(phase + 1), 0);  // it takes over the workspace
    }

private:
    static constexpr std::string_view unspecified = "(What the destination holds is unspecified.)";

    /// One exchange: phase `phase` of the jobs order_[first, last).
    struct Step {
        JobTransfers transfers;
        AnyExchange exchange;
        std::size_t first = 0;
        std::size_t last = 0;
        int phase = 0;

        void bind(CommunicatorRef comm) {
            static_cast<void>(exchange = comm.bind(transfers.sends, transfers.receives));  // for nvcc 13
        }
    };

    /// What is left of the run under way; wait() throws what goes wrong in it.
    void finish() noexcept;
    /// Within a handler: the run is over, and all that are under way end with the same error.
    void fail() noexcept;
    /// The communicator's, which all ranks end in one order: that of their start, whoever is waited for first.
    [[nodiscard]] RunsUnderWay& runs_over_it() noexcept {
        RunsUnderWay* const shared = over_.runs_under_way();
        return shared != nullptr ? *shared : alone_;
    }
    [[nodiscard]] Step const& step(int phase) const noexcept { return steps_[as_size(phase)]; }
    [[gnu::noinline]] void work(Step const& step, int exchanges) const {
        for (std::size_t i = step.first; i < step.last; ++i) jobs_[order_[i]].work(exchanges);
    }

    void add_round(CommunicatorRef comm, Round const& round) {
        std::size_t const first = order_.size();
        order_.insert(order_.end(), round.begin(), round.end());
        int phases = 0;
        for (std::size_t i : round) phases = larger(phases, jobs_[i].phases());
        for (int phase = 0; phase < phases; ++phase) {
            std::vector<JobTransfers> parts(round.size());
            for (std::size_t k = 0; k < round.size(); ++k) {
                Job& job = jobs_[round[k]];
                if (phase < job.phases()) parts[k] = job.take_exchange(phase);
            }
            Step& step = steps_.emplace_back();
            step.first = first;
            step.last = order_.size();
            step.phase = phase;
            if (parts.size() == 1) {
                step.transfers = std::move(parts.front());
            } else {
                step.transfers.sends = join(parts, &JobTransfers::sends, comm.size());
                step.transfers.receives = join(parts, &JobTransfers::receives, comm.size());
            }
            step.bind(comm);
        }
    }

    /// All transfers, by peer, those with one peer in the order of the parts: the same order on both sides.
    template <class T>
    static std::vector<T> join(std::vector<JobTransfers>& parts, std::vector<T> JobTransfers::*side, int ranks) {
        std::vector<std::size_t> next(as_size(ranks) + 1, 0);  // where a peer's next transfer goes
        for (JobTransfers const& part : parts)
            for (T const& transfer : part.*side) ++next[as_size(transfer.peer) + 1];
        for (std::size_t peer = 1; peer < next.size(); ++peer) next[peer] += next[peer - 1];
        std::vector<T> result(next.back());
        for (JobTransfers& part : parts) {
            for (T const& transfer : part.*side) result[next[as_size(transfer.peer)]++] = transfer;
            part.*side = {};  // as much memory again
        }
        return result;
    }

    CommunicatorRef over_;  // what this is bound to
    RunsUnderWay alone_;    // for a communicator that keeps none
    std::vector<Job> jobs_;
    std::vector<std::size_t> order_;  ///< of the jobs: those that travel, round by round, then those that are local
    std::size_t travelling_ = 0;
    std::vector<Step> steps_;
    Workspace workspace_;
    std::atomic<int> holders_{1};
    int phase_ = 0;               ///< of the run
    bool runs_ = false;           ///< somebody is to wait for it
    bool failed_ = false;         ///< some run has
    std::exception_ptr failure_;  ///< of the run
};

}  // namespace reshard::inline v0_1::detail
