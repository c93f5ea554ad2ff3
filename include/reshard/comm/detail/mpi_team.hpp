// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_team.hpp
/// \brief  One communicator: its ranks, how they wait for each other and fail together, agreement and splitting.
/// \depends comm/detail/{agree_in_words,mpi_family,mpi_greetings}.hpp.
#pragma once

#include <reshard/comm/detail/agree_in_words.hpp>
#include <reshard/comm/detail/mpi_family.hpp>
#include <reshard/comm/detail/mpi_greetings.hpp>
#include <reshard/core/detail/watched.hpp>

#include <algorithm>  // count, min
#include <cstring>    // memcpy
#include <thread>     // hardware_concurrency, sleep_for

namespace reshard::inline v0::detail {

/// What a step towards the end of a wait did.
enum class MpiStep : std::uint8_t { idle, moved, complete };

class MpiTeam {
public:
    /// Collective over `comm`, which becomes this object's. A null family: this is the first of its family.
    MpiTeam(MPI_Comm comm, std::shared_ptr<MpiFamily> family, std::uint64_t scope, MpiOptions const& options)
        : comm_(comm), scope_(scope), rank_(mpi_rank(comm)), size_(mpi_size(comm)) {
        mpi_check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        if (!family) demand_same(options);
        share_node(options);
        if (family) {
            family_ = std::move(family);
        } else {
            MPI_Comm control = MPI_COMM_NULL;
            mpi_check(MPI_Comm_dup(comm_, &control), "MPI_Comm_dup");
            mpi_check(MPI_Comm_set_errhandler(control, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
            family_ = std::make_shared<MpiFamily>(control, node_, options);
        }
        members_.resize(static_cast<std::size_t>(size_));
        int const member = family_->rank();
        mpi_check(MPI_Allgather(&member, 1, MPI_INT, members_.data(), 1, MPI_INT, comm_), "MPI_Allgather");
        greetings_.open(comm_, rank_, size_ - (node_ ? node_->ranks() : 1));
        attach_ = node_ && node_->attach() && options.path != MpiPath::messages;
        if (options.path == MpiPath::attach) demand_attach();
    }
    MpiTeam(MpiTeam const&) = delete;
    MpiTeam& operator=(MpiTeam const&) = delete;
    ~MpiTeam() {
        leave();
        if (mpi_is_usable()) MPI_Comm_free(&comm_);
    }

    [[nodiscard]] MPI_Comm comm() const noexcept { return comm_; }
    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }
    [[nodiscard]] int member(int rank) const noexcept { return members_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] std::shared_ptr<MpiFamily> const& family() const noexcept { return family_; }
    /// Null when this rank is alone on its node, or cannot share memory.
    [[nodiscard]] std::shared_ptr<MpiNode> const& node() const noexcept { return node_; }
    [[nodiscard]] bool attach() const noexcept { return attach_; }
    /// The place of a rank on this rank's node, or -1.
    [[nodiscard]] int local(int rank) const noexcept { return node_ ? locals_[static_cast<std::size_t>(rank)] : -1; }
    [[nodiscard]] int rank_of_local(int local) const noexcept { return ranks_here_[static_cast<std::size_t>(local)]; }
    /// The process of a rank of this node, whether or not it shares memory; 0: of a rank that cannot be looked at.
    [[nodiscard]] int process(int rank) const noexcept { return processes_[static_cast<std::size_t>(rank)]; }

    /// This rank makes no further call: whoever waits for one need not.
    void leave() noexcept {
        if (node_) node_->own().left.store(departure(), std::memory_order_release);
    }

    // ---- Calls and waits -------------------------------------------------------------------------------------

    /// Every collective call starts here.
    void enter(TeamCall call) {
        check_mpi_thread();
        // Thoroughly where peers are far: who has failed may have given up memory that this call would have MPI use.
        if (family_->hear(greetings_.any_far())) raise_failure(false);
        listen();
        call_ = call;
        ++calls_;
        dead_since_ = {};
        absence_ = {};
        if (node_)
            node_->own().entered.store(calls_ << 8U | static_cast<std::uint64_t>(call), std::memory_order_release);
    }

    /// Calls step() until it is complete. `missing(visit)` visits the ranks it waits for, as far as this rank knows.
    /// Throws DeadlineExceeded when nothing moves for too long, PeerFailed when somebody fails, leaves or dies: then
    /// only after `patience`, for what may still complete although somebody has gone on and failed.
    template <class Step, class Missing>
    void await(Step&& step, Missing&& missing, std::chrono::milliseconds patience = {}) {
        using Clock = std::chrono::steady_clock;
        auto since = Clock::now();
        auto looked = since;
        std::chrono::milliseconds pause{2};     // between looks, which cost a few system calls per rank
        auto limit = Clock::time_point::max();  // of the patience
        int idle = 0;
        for (;;) {
            switch (step()) {
                case MpiStep::complete: return;
                case MpiStep::moved: idle = 0; break;
                case MpiStep::idle: ++idle; break;
            }
            if (family_->hear()) {
                if (limit == Clock::time_point::max()) limit = Clock::now() + patience;
                if (Clock::now() >= limit) raise_failure();
                sched_yield();
                continue;
            }
            if (idle == 0) {
                since = looked = Clock::now();
                pause = std::chrono::milliseconds(2);
                continue;
            }
            if (idle <= spins()) continue;
            sched_yield();
            if (idle % 16 != 0) continue;
            auto const now = Clock::now();
            // Who has waited for long has nothing to lose by a little more: the core is another's meanwhile.
            if (now - since >= std::chrono::milliseconds(2)) {
                std::this_thread::sleep_for(
                    std::min<Clock::duration>((now - since) / 64, std::chrono::milliseconds(1)));
            }
            if (now - looked < pause) continue;
            looked = now;
            listen();
            pause = std::min<std::chrono::milliseconds>(2 * pause, std::chrono::milliseconds(50));
            look_for_the_lost(missing);
            // + would overflow for the largest deadlines
            if (now - since >= family_->options().deadline) raise_deadline(missing);
        }
    }

    /// For those who come again and again instead of waiting: throws as await() does, but knows no deadline.
    template <class Missing>
    void glance(Missing&& missing) {
        if (family_->hear()) raise_failure();
        if (++glances_ % 256 == 0) look_for_the_lost(missing);
    }

    // ---- Exchanges with ranks of other nodes -------------------------------------------------------------------

    void greet(transport::BoundTransfers const& transfers) {
        surprised(greetings_.begin(transfers, [&](int rank) { return rank != rank_ && local(rank) < 0; }));
    }
    /// Throws MismatchError when a peer sends, or expects, what this rank knows nothing of.
    void listen() { surprised(greetings_.listen()); }
    /// The same for one who makes no further call: the others are told.
    [[nodiscard]] bool is_surprised() noexcept {
        bool expected = false;
        quietly([&] {
            listen();
            expected = true;
        });
        return !expected;
    }
    [[nodiscard]] MpiGreetings& greetings() noexcept { return greetings_; }

    /// Whether a process of this node has died; looks from time to time. The others are told who.
    [[nodiscard]] bool lost_somebody(std::chrono::steady_clock::time_point& looked,
                                     std::chrono::steady_clock::time_point now) noexcept {
        if (now - looked < std::chrono::milliseconds(20)) return false;
        looked = now;
        for (int rank = 0; rank < size_; ++rank) {
            if (process(rank) == 0 || process_lives(process(rank))) continue;
            if (!is_dead_for_long(now)) return false;
            poison_death(rank, process(rank));
            return true;
        }
        return false;
    }

    // ---- Failure ---------------------------------------------------------------------------------------------

    /// Throws the family's failure as this rank must see it: one who did not wait has exceeded no deadline.
    /// \pre the family is poisoned.
    [[noreturn]] void raise_failure(bool waiting = true) {
        detail::raise_failure(family_->failure(), "reshard::MpiCommunicator", rank_, scope_, waiting,
                              family_->reported());
    }
    /// Tells everybody that a process of this node has died, and throws.
    [[noreturn]] void raise_death(int rank, int pid) {
        poison_death(rank, pid);
        raise_failure();
    }
    /// Tells everybody that the payloads of two ranks differ, and throws.
    [[noreturn]] void raise_mismatch(int first, int second, std::string const& reason) {
        family_->poison(failure_record(ErrorCode::mismatch, family_->rank(), scope_, first, second, reason));
        raise_failure();
    }
    void surprised(std::optional<PairMismatch> const& what) {
        if (what) raise_mismatch(what->sender, what->receiver, what->text);
    }
    bool poison(ErrorCode code, std::string_view reason) noexcept {
        return family_->poison(failure_record(code, family_->rank(), scope_, rank_, rank_, reason));
    }
    /// Runs a part of a collective. If it throws, the others hear of it.
    template <class Body>
    void guarded(Body&& body) {
        watched(body, [&](ErrorCode code, std::string_view reason) noexcept { abandon(code, reason); });
    }

    /// As long as that, but no longer than the deadline.
    [[nodiscard]] std::chrono::milliseconds patience(std::chrono::milliseconds most) const noexcept {
        return std::min(family_->options().deadline, most);
    }

    // ---- Agreement -------------------------------------------------------------------------------------------

    [[nodiscard]] Verdict agree(Verdict const& mine);

    /// Returns the duplicate-free child, once all ranks have come. The split itself is a blocking call of MPI.
    [[nodiscard]] std::shared_ptr<MpiTeam> split(int colour, int key);

private:
    /// Buffers of collective calls that may outlive a failed wait.
    struct Agreement {
        std::uint64_t own[5];
        std::uint64_t all[5];
        std::uint64_t line[3];
        std::vector<std::uint64_t> lines;
        std::string text;
    };

    [[nodiscard]] int spins() const noexcept { return node_ && crowded_ ? 0 : 100; }
    void poison_death(int rank, int pid) {
        family_->poison(failure_record(ErrorCode::peer_failed, member(rank), scope_, -1, -1, died_text(rank, pid)));
    }

    void share_node(MpiOptions const& options);
    /// Before anything that takes ranks through other calls of MPI, which would wait for one another for ever.
    void demand_same(MpiOptions const& options);
    void demand_attach();

    /// A collective call of MPI that does not block, waited for as everything is.
    template <class Start>
    void meet(std::string_view what, Start&& start, std::chrono::milliseconds patience = {}) {
        MPI_Request request = MPI_REQUEST_NULL;
        mpi_check(start(&request), what);
        await(
            [&] {
                int done = 0;
                mpi_check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
                return done != 0 ? MpiStep::complete : MpiStep::idle;
            },
            // Who has entered is waited for as well: it may die, or stop, before it has done its part.
            [&](auto&& visit) {
                for (int rank = 0; rank < size_; ++rank)
                    if (rank != rank_ && process(rank) != 0) visit(rank);
            },
            patience);
    }
    /// Whoever failed may have left this very agreement before: then its end is on its way. If not, nobody waits long.
    static constexpr std::chrono::milliseconds agreement_patience{100};
    /// Who has heard the verdict first throws it, and so may fail while others are still hearing it: they must get the
    /// same error, not PeerFailed.
    static constexpr std::chrono::milliseconds verdict_patience{1000};

    /// The maximum of what all ranks say, each word for itself.
    [[nodiscard]] std::uint64_t const* maximum(std::uint64_t const (&words)[5]);
    /// The same among ranks of one node: they read it in each other's seats.
    void find_maximum_here();
    [[nodiscard]] std::uint64_t const* gather(std::uint64_t const (&words)[3]);
    [[nodiscard]] std::string spread(std::string const& mine, int root, std::uint64_t length);

    /// Throws if one of those we wait for has died, left, or is busy with another call.
    template <class Missing>
    void look_for_the_lost(Missing&& missing);
    /// What the dead one has sent before may be all that is still waited for: it has a moment to arrive.
    [[nodiscard]] bool is_dead_for_long(std::chrono::steady_clock::time_point now) noexcept {
        if (dead_since_ == std::chrono::steady_clock::time_point{}) dead_since_ = now;
        return now - dead_since_ >= std::chrono::milliseconds(100);
    }
    /// Calls a rank has made, as far as this one can see: of another node, as many as this one.
    [[nodiscard]] std::uint64_t calls_of(int rank) const noexcept {
        int const there = local(rank);
        return there < 0 ? calls_ : node_->seat(there).entered.load(std::memory_order_acquire) >> 8U;
    }
    /// Who keeps us waiting, as far as one can see, and why one thinks so.
    struct Suspects {
        std::vector<int> ranks;
        std::string_view why;
    };
    template <class Missing>
    [[nodiscard]] Suspects suspects(Missing&& missing) const;
    template <class Missing>
    [[noreturn]] void raise_deadline(Missing&& missing);
    void abandon(ErrorCode code, std::string_view reason) noexcept;

    MPI_Comm comm_;
    std::uint64_t scope_;
    int rank_;
    int size_;
    std::shared_ptr<MpiFamily> family_;
    std::shared_ptr<MpiNode> node_;
    std::shared_ptr<Agreement> agreement_;
    std::vector<int> members_;
    std::vector<int> locals_;
    std::vector<int> ranks_here_;
    std::vector<int> processes_;
    MpiGreetings greetings_;
    std::chrono::steady_clock::time_point dead_since_{};
    Absence absence_;
    std::uint64_t calls_ = 0;
    std::uint64_t agreements_ = 0;
    std::uint64_t splits_ = 0;
    unsigned glances_ = 0;
    TeamCall call_ = TeamCall::none;
    bool attach_ = false;
    bool crowded_ = false;
};

/// A team that is left alone once its family has failed: MPI may still hold its buffers.
[[nodiscard]] inline std::shared_ptr<MpiTeam> make_mpi_team(MPI_Comm comm, std::shared_ptr<MpiFamily> family,
                                                            std::uint64_t scope, MpiOptions const& options) {
    return {new MpiTeam(comm, std::move(family), scope, options), [](MpiTeam* team) {
                if (!team->family()->poisoned()) delete team;
            }};
}

}  // namespace reshard::inline v0::detail

#include <reshard/comm/detail/mpi_team.ipp>
