// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_team.hpp
/// \brief  One communicator: its ranks, how they wait for each other and fail together, agreement and splitting.
/// \depends comm/detail/{agree_in_words,mpi_family,mpi_greetings,mpi_processes}.hpp.
#pragma once

#include <reshard/comm/detail/agree_in_words.hpp>
#include <reshard/comm/detail/mpi_family.hpp>
#include <reshard/comm/detail/mpi_greetings.hpp>
#include <reshard/comm/detail/mpi_processes.hpp>

#include <algorithm>  // count, min
#include <cstring>    // memcpy
#include <thread>     // hardware_concurrency

namespace reshard::inline v0::detail {

enum class MpiCall : std::uint8_t { none, exchange, agree, split, allocate };

[[nodiscard]] constexpr std::string_view name(MpiCall call) noexcept {
    constexpr std::string_view names[] = {"nothing", "exchange", "agree", "split", "allocate"};
    return names[static_cast<int>(call)];
}

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
        if (node_) node_->own().left.store(1, std::memory_order_release);
    }

    // ---- Calls and waits -------------------------------------------------------------------------------------

    /// Every collective call starts here.
    void enter(MpiCall call) {
        // Thoroughly where peers are far: who has failed may have given up memory that this call would have MPI use.
        if (family_->hear(greetings_.any_far())) raise_failure(false);
        listen();
        call_ = call;
        ++calls_;
        dead_since_ = {};
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

    void greet(std::span<Send const> sends, std::span<Receive const> receives) {
        surprised(greetings_.begin(sends, receives, [&](int rank) { return rank != rank_ && local(rank) < 0; }));
    }
    /// Throws MismatchError when a peer sends, or expects, what this rank knows nothing of.
    void listen() { surprised(greetings_.listen()); }
    /// The same for one who makes no further call: the others are told.
    [[nodiscard]] bool is_surprised() noexcept {
        try {
            listen();
        } catch (...) {
            return true;
        }
        return false;
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
    void surprised(std::optional<MpiSurprise> const& what) {
        if (what) raise_mismatch(what->first, what->second, what->text);
    }
    bool poison(ErrorCode code, std::string_view reason) noexcept {
        return family_->poison(failure_record(code, family_->rank(), scope_, rank_, rank_, reason));
    }
    /// Runs a part of a collective. If it throws, the others hear of it.
    template <class Body>
    void guarded(Body&& body) {
        try {
            body();
        } catch (Error const& error) {
            abandon(error.code(), error.what());
            throw;
        } catch (std::bad_alloc const& error) {
            abandon(ErrorCode::out_of_memory, error.what());
            throw;
        } catch (std::exception const& error) {
            abandon(ErrorCode::user, error.what());
            throw;
        }
    }

    // ---- Agreement -------------------------------------------------------------------------------------------

    [[nodiscard]] Verdict agree(Verdict const& mine) {
        Verdict joint;
        guarded([&] {
            joint = agree_in_words(
                mine, size_,
                [&](std::uint64_t const(&words)[5]) {
                    std::memcpy(agreement_->own, words, sizeof(words));
                    meet(
                        "MPI_Iallreduce",
                        [&](MPI_Request* request) {
                            return MPI_Iallreduce(agreement_->own, agreement_->all, 5, MPI_UINT64_T, MPI_MAX, comm_,
                                                  request);
                        },
                        first_patience());
                    return agreement_->all;
                },
                [&](std::uint64_t const(&words)[3]) { return gather(words); },
                [&](std::string const& text, int root, std::uint64_t length) { return spread(text, root, length); });
        });
        return joint;
    }

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
        std::string const reason = concat("rank ", rank, " (process ", pid,
                                          ") has died while others wait for it. Fix: look for what ended it: a "
                                          "signal, a lack of memory, an exit in the middle.");
        family_->poison(failure_record(ErrorCode::peer_failed, member(rank), scope_, -1, -1, reason));
    }

    void share_node(MpiOptions const& options) {
        MPI_Comm here = MPI_COMM_NULL;
        mpi_check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &here), "MPI_Comm_split_type");
        auto const group = mpi_processes_of_node(here, rank_, options.ranks_per_node);
        processes_.assign(static_cast<std::size_t>(size_), 0);
        for (MpiProcess const& each : group) processes_[static_cast<std::size_t>(each.rank)] = each.pid;
        MPI_Comm node = MPI_COMM_NULL;
        mpi_check(MPI_Comm_split(here, group.front().rank, rank_, &node), "MPI_Comm_split");
        node_ = MpiNode::make(node);
        if (node_) {
            ranks_here_.resize(static_cast<std::size_t>(node_->ranks()));
            mpi_check(MPI_Allgather(&rank_, 1, MPI_INT, ranks_here_.data(), 1, MPI_INT, node), "MPI_Allgather");
            locals_.assign(static_cast<std::size_t>(size_), -1);
            for (int l = 0; l < node_->ranks(); ++l) locals_[static_cast<std::size_t>(rank_of_local(l))] = l;
        }
        crowded_ = static_cast<unsigned>(mpi_size(here)) > std::thread::hardware_concurrency();
        mpi_check(MPI_Comm_free(&node), "MPI_Comm_free");
        mpi_check(MPI_Comm_free(&here), "MPI_Comm_free");
        agreement_ = std::make_shared<Agreement>();
    }
    /// Before anything that takes ranks through other calls of MPI, which would wait for one another for ever.
    void demand_same(MpiOptions const& options) {
        int const mine[2] = {static_cast<int>(options.path), options.ranks_per_node};
        int most[4] = {mine[0], -mine[0], mine[1], -mine[1]};
        mpi_check(MPI_Allreduce(MPI_IN_PLACE, most, 4, MPI_INT, MPI_MAX, comm_), "MPI_Allreduce");
        if (most[0] == -most[1] && most[2] == -most[3]) return;
        MPI_Comm_free(&comm_);
        constexpr std::string_view paths[] = {"automatic", "messages", "attach"};
        raise(ErrorCode::mismatch, concat("reshard::MpiCommunicator: rank ", rank_, " of ", size_,
                                          " was given MpiOptions with path ", paths[mine[0]], " and ranks_per_node ",
                                          mine[1], ", another rank others. Fix: give every rank the same options."));
    }
    void demand_attach() {
        int all = attach_ || (!node_ && size_ == 1) ? 1 : 0;
        mpi_check(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
        if (all != 0 || scope_ != 0) return;
        MPI_Comm_free(&comm_);  // of all ranks: there is no object whose destructor would do it
        raise(
            ErrorCode::transport,
            "reshard::MpiCommunicator: MpiPath::attach was asked for, but process_vm_readv between the ranks of a node "
            "does not work here. Fix: use MpiPath::automatic, or let the system allow it (kernel.yama.ptrace_scope = "
            "0, "
            "CAP_SYS_PTRACE for containers).");
    }

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
    [[nodiscard]] std::chrono::milliseconds first_patience() const noexcept {
        return std::min<std::chrono::milliseconds>(family_->options().deadline, std::chrono::milliseconds(100));
    }
    /// Who has heard the verdict first throws it, and so may fail while others are still hearing it: they must get the
    /// same error, not PeerFailed.
    [[nodiscard]] std::chrono::milliseconds verdict_patience() const noexcept {
        return std::min<std::chrono::milliseconds>(family_->options().deadline, std::chrono::seconds(1));
    }

    [[nodiscard]] std::uint64_t const* gather(std::uint64_t const (&words)[3]) {
        Agreement& place = *agreement_;
        std::memcpy(place.line, words, sizeof(words));
        place.lines.resize(3 * static_cast<std::size_t>(size_));
        meet(
            "MPI_Iallgather",
            [&](MPI_Request* request) {
                return MPI_Iallgather(place.line, 3, MPI_UINT64_T, place.lines.data(), 3, MPI_UINT64_T, comm_, request);
            },
            verdict_patience());
        return place.lines.data();
    }
    [[nodiscard]] std::string spread(std::string const& mine, int root, std::uint64_t length) {
        agreement_->text = mine;
        agreement_->text.resize(static_cast<std::size_t>(length));
        if (length != 0) {
            meet(
                "MPI_Ibcast",
                [&](MPI_Request* request) {
                    return MPI_Ibcast(agreement_->text.data(), static_cast<int>(length), MPI_CHAR, root, comm_,
                                      request);
                },
                verdict_patience());
        }
        return agreement_->text;
    }

    /// Throws if one of those we wait for has died, left, or is busy with another call.
    template <class Missing>
    void look_for_the_lost(Missing&& missing) {
        missing([&](int rank) {
            if (int const pid = process(rank); pid != 0 && !process_lives(pid)) raise_death_soon(rank, pid);
            int const there = local(rank);
            if (there < 0) return;
            MpiSeat const& seat = node_->seat(there);
            std::uint64_t const entered = seat.entered.load(std::memory_order_acquire);
            auto const theirs = static_cast<MpiCall>(entered & 0xffU);
            std::string reason;
            if (seat.left.load(std::memory_order_acquire) != 0 && entered >> 8U < calls_) {
                reason = concat("rank ", rank,
                                " has left while others wait for it. Fix: make every rank take part in every "
                                "collective call.");
            } else if (entered >> 8U == calls_ && theirs != call_) {
                raise_mismatch(-1, -1,
                               concat("reshard::MpiCommunicator: rank ", rank_, " called ", name(call_), " while rank ",
                                      rank, " called ", name(theirs), transport::other_call));
            } else {
                return;
            }
            family_->poison(failure_record(ErrorCode::peer_failed, member(rank), scope_, -1, -1, reason));
            raise_failure();
        });
    }
    /// What the dead one has sent before may be all that is still waited for: it has a moment to arrive.
    void raise_death_soon(int rank, int pid) {
        if (is_dead_for_long(std::chrono::steady_clock::now())) raise_death(rank, pid);
    }
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
    [[nodiscard]] Suspects suspects(Missing&& missing) const {
        std::vector<bool> awaited(static_cast<std::size_t>(size_), false);
        missing([&](int rank) { awaited[static_cast<std::size_t>(rank)] = true; });
        auto const those = [&](auto&& is_one) {
            std::vector<int> found;
            for (int rank = 0; rank < size_; ++rank)
                if (rank != rank_ && is_one(rank)) found.push_back(rank);
            return found;
        };
        // Of those who have not come, the ones furthest behind: others may be waiting for them in turn. First of those
        // we wait for, then of all: whom we wait for may wait for somebody else.
        for (bool all : {false, true}) {
            auto const counts = [&](int rank) { return all || awaited[static_cast<std::size_t>(rank)]; };
            std::uint64_t furthest = calls_;
            for (int rank = 0; rank < size_; ++rank)
                if (rank != rank_ && counts(rank)) furthest = smaller(furthest, calls_of(rank));
            if (furthest == calls_) continue;
            return {those([&](int rank) { return counts(rank) && calls_of(rank) == furthest; }), ""};
        }
        if (auto found = those([&](int rank) { return process(rank) != 0 && process_is_stopped(process(rank)); });
            !found.empty()) {
            return {std::move(found), " (it has come, but is stopped)"};
        }
        // A collective call of MPI does not say whom it waits for.
        if (call_ != MpiCall::exchange) return {};
        return {those([&](int rank) { return awaited[static_cast<std::size_t>(rank)]; }), ""};
    }
    template <class Missing>
    [[noreturn]] void raise_deadline(Missing&& missing) {
        Suspects const found = suspects(missing);
        std::string who;
        for (int rank : found.ranks) who = who.empty() ? concat(" for rank ", rank) : concat(who, ", ", rank);
        if (who.empty()) {
            bool const all_here = std::count(processes_.begin(), processes_.end(), 0) == 0;
            who = all_here ? " although all ranks have come" : " for ranks of other nodes";
        }
        std::string const text = concat(
            "reshard::MpiCommunicator: waited ", static_cast<Index>(family_->options().deadline.count()), " ms in ",
            name(call_), who, found.why, ". Fix: find out why it does not come, or raise MpiOptions::deadline.");
        int const culprit = found.ranks.empty() ? -1 : member(found.ranks.front());
        family_->poison(failure_record(ErrorCode::deadline, culprit, scope_, -1, -1, text));
        raise_failure();
    }
    void abandon(ErrorCode code, char const* reason) noexcept {
        if (!family_->poisoned()) poison(code, reason);
        if (!node_) return;
        // Nobody may read this rank's memory once its owner is told that the exchange is over.
        auto const limit = std::chrono::steady_clock::now() +
                           std::min<std::chrono::milliseconds>(family_->options().deadline, std::chrono::seconds(2));
        for (int l = 0; l < node_->ranks(); ++l) {
            MpiSeat const& seat = node_->seat(l);
            while (l != node_->me() && seat.reading.load(std::memory_order_seq_cst) != 0 && process_lives(seat.pid) &&
                   std::chrono::steady_clock::now() < limit) {
                sched_yield();
            }
        }
    }

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
    std::uint64_t calls_ = 0;
    std::uint64_t splits_ = 0;
    unsigned glances_ = 0;
    MpiCall call_ = MpiCall::none;
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

inline std::shared_ptr<MpiTeam> MpiTeam::split(int colour, int key) {
    std::shared_ptr<MpiTeam> child;
    guarded([&] {
        // Nobody enters a call that cannot be given up before all are there.
        agreement_->own[0] = 0;
        meet("MPI_Iallreduce", [&](MPI_Request* request) {
            return MPI_Iallreduce(agreement_->own, agreement_->all, 1, MPI_UINT64_T, MPI_MAX, comm_, request);
        });
        ++splits_;
        MPI_Comm made = MPI_COMM_NULL;
        mpi_check(MPI_Comm_split(comm_, colour < 0 ? MPI_UNDEFINED : colour, key, &made), "MPI_Comm_split");
        if (colour < 0) mpi_check(MPI_Comm_dup(MPI_COMM_SELF, &made), "MPI_Comm_dup");
        // The same number on all ranks of the child, another one for every other communicator of the family.
        std::uint64_t const scope =
            Digest{}.add(scope_).add(splits_).add_signed(colour < 0 ? -1 - rank_ : colour).value();
        child = make_mpi_team(made, family_, scope, family_->options());
    });
    return child;
}

}  // namespace reshard::inline v0::detail
