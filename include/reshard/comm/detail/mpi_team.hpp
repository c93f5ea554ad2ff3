// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_team.hpp
/// \brief  One communicator of MPI: its ranks, which of them are near, agreement and splitting; how a program ends.
/// \depends comm/detail/{mpi_family,mpi_greetings,team,version_word}.hpp.
#pragma once

#include <reshard/comm/detail/mpi_family.hpp>
#include <reshard/comm/detail/mpi_greetings.hpp>
#include <reshard/comm/detail/team.hpp>
#include <reshard/comm/detail/version_word.hpp>

#include <algorithm>  // all_of, copy
#include <cerrno>     // errno
#include <thread>     // hardware_concurrency, sleep_for

namespace reshard::inline v0_1::detail {

class MpiTeam : public Team<MpiTeam, MpiFamily> {
public:
    static constexpr std::string_view name = "MpiCommunicator";
    static constexpr std::string_view settings = "MpiOptions";
    static constexpr std::chrono::seconds farewell{2};
    static constexpr bool knows_senders = true;

    /// Collective over `comm`, which becomes this object's. A null family: this is the first of its family.
    MpiTeam(MPI_Comm comm, std::shared_ptr<MpiFamily> family, std::uint64_t scope, MpiOptions const& options)
        : Team(std::move(family)), comm_(comm) {
        rank_ = mpi_rank(comm);
        size_ = mpi_size(comm);
        scope_ = scope;
        mpi_check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        if (!family_) demand_same(options);
        share_node(options);
        if (!family_) {
            MPI_Comm control = MPI_COMM_NULL;
            mpi_check(MPI_Comm_dup(comm_, &control), "MPI_Comm_dup");
            mpi_check(MPI_Comm_set_errhandler(control, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
            family_ = std::make_shared<MpiFamily>(control, node_, options);
        }
        members_.resize(as_size(size_));
        mpi_check(MPI_Allgather(&family_->rank, 1, MPI_INT, members_.data(), 1, MPI_INT, comm_), "MPI_Allgather");
        greetings_.open(comm_, rank_, size_ - (node_ ? node_->ranks() : 1));
        attach_ = node_ && node_->attach() && options.path != MpiPath::messages;
        if (options.path == MpiPath::attach) demand_attach();
    }
    ~MpiTeam() {
        leave();
        if (family_->TeamFamily::hear()) {  // messages may still come, and MPI goes on with an agreement that is left
            keep_for_good(std::move(words_));
        } else if (mpi_is_usable()) {
            MPI_Comm_free(&comm_);
        }
    }

    [[nodiscard]] MPI_Comm comm() const noexcept { return comm_; }
    /// Null when this rank is alone on its node, or cannot share memory.
    [[nodiscard]] std::shared_ptr<MpiNode> const& node() const noexcept { return node_; }
    [[nodiscard]] bool attach() const noexcept { return attach_; }
    /// The place of a rank on this rank's node, or -1.
    [[nodiscard]] int local(int rank) const noexcept { return node_ ? locals_[as_size(rank)] : -1; }
    [[nodiscard]] int rank_of_local(int local) const noexcept { return here_[as_size(local)].rank; }
    /// The process of a rank of this node, whether or not it shares memory; 0: of a rank that cannot be looked at.
    [[nodiscard]] int process(int rank) const noexcept { return processes_[as_size(rank)]; }

    [[nodiscard]] Attendance const* attendance(int rank) const noexcept {
        return local(rank) < 0 ? nullptr : &node_->seat(local(rank));
    }
    [[nodiscard]] Attendance* outermost_seat(int rank) const noexcept {
        MpiNode const* const node = family_->node().get();
        for (int l = 0; node != nullptr && l < node->ranks(); ++l)
            if (node->seat(l).pid == process(rank)) return &node->seat(l);
        return nullptr;
    }
    [[nodiscard]] static std::string_view silence() noexcept { return " although all ranks have come"; }
    void look_around() {
        listen();
        if (!family_->is_alone()) family_->roll_call.answer({scope_, calls_});
    }
    /// Not before ranks of other nodes were asked whether they wait, where one is to be named that this rank cannot see
    /// or that waits itself: who does not answer is late. Where all answer, somebody may know more, and has a while to
    /// say so.
    [[nodiscard]] bool may_name(Suspects& found, Clock::time_point since, Missing missing) {
        if (family_->is_alone()) return true;
        auto const is_seen = [&](int rank) { return attendance(rank) != nullptr; };
        bool const seen = !found.ranks.empty() && std::ranges::all_of(found.ranks, is_seen);
        if (seen && found.why != Suspects::wait_too) return true;
        constexpr std::chrono::milliseconds moment{500};  // however short the deadline is
        MpiRollCall& roll_call = family_->roll_call;
        auto const now = Clock::now();
        auto const awaited = awaited_of(missing);
        auto const far = [&](int rank) { return awaited[as_size(rank)] && !is_seen(rank); };
        if (std::exchange(asked_in_, since) != since) {
            asked_ = now;
            roll_call.begin();
            for (int rank : ranks_where(far)) roll_call.ask(member(rank));
        }
        if (now - asked_ < moment) return false;
        auto const answer = [&](int rank) { return roll_call.of(member(rank)); };
        using Answer = MpiRollCall::Answer;
        auto silent = ranks_where([&](int rank) { return far(rank) && answer(rank) == Answer::none; });
        if (!silent.empty()) return found = {std::move(silent), {}}, true;
        if (now - asked_ < 3 * moment) return false;
        if (seen) return true;
        if (call_ != TeamCall::exchange)
            found.ranks = ranks_where([&](int rank) { return far(rank) && answer(rank) == Answer::elsewhere; });
        if (!found.ranks.empty()) found.why = Suspects::wait_too;
        return true;
    }

    /// Runs a part of a collective. If it throws, the others hear of it.
    template <class Body>
    decltype(auto) guarded(Body&& body) {
        return watched(body, [&](ErrorCode code, std::string_view reason) noexcept { abandon(code, reason); });
    }

    /// Every collective call starts here.
    void enter(TeamCall call) {
        check_mpi_thread();
        // Thoroughly where peers are far: who has failed may have given up memory that this call would have MPI use.
        // One look may only let MPI move on. Who has been away for as long as others wait may have been given up, and
        // gives what they said of it time to arrive.
        auto const now = Clock::now();
        bool const was_away = now - entered_ >= family_->deadline;
        auto const most = was_away ? patience(std::chrono::milliseconds(100)) : std::chrono::milliseconds(0);
        bool const far = greetings_.any_far();
        do {
            if (family_->hear(far) || family_->hear(far)) raise_failure(false);
        } while (far && Clock::now() - now < most);
        entered_ = now;
        guarded([&] { listen(); });
        begin_call(call);
    }

    // ---- Exchanges with ranks of other nodes -------------------------------------------------------------------

    void greet(transport::BoundTransfers const& transfers) {
        surprised(greetings_.begin(transfers, [&](int rank) { return rank != rank_ && local(rank) < 0; }));
    }
    /// Throws MismatchError when a peer sends, or expects, what this rank knows nothing of.
    void listen() { surprised(greetings_.listen()); }
    [[nodiscard]] MpiGreetings& greetings() noexcept { return greetings_; }

    /// What a rank of this node has laid open cannot be reached: because it has died, or for a reason of its own.
    [[noreturn]] void raise_unreachable(int rank, std::string_view what, std::string_view fix) {
        if (family_->hear(true)) raise_failure();
        if (!process_lives(process(rank))) raise_death(rank);
        raise(ErrorCode::transport, "reshard::MpiCommunicator: ", what, " of rank ", rank, " (process ", process(rank),
              ") failed. Fix: ", fix, ".");
    }
    /// After a read of another process's memory, which fails with errno.
    void check_read(bool good, int rank) {
        if (good) return;
        int const error = errno;
        // A dying process gives up its memory before it counts as dead.
        if (error == ESRCH && !family_->hear(true)) raise_death(rank);
        raise_unreachable(rank, concat("reading (", std::strerror(error), ") the memory"), "use MpiPath::messages");
    }
    void surprised(std::optional<PairMismatch> const& what) {
        if (what) raise_mismatch(what->sender, what->receiver, what->text);
    }
    // ---- Agreement -------------------------------------------------------------------------------------------

    void maximum(std::span<std::uint64_t> words, std::chrono::milliseconds patience) {
        if (node_ && node_->ranks() == size_) return find_maximum_here(words, patience);
        std::uint64_t* const all = std::copy(words.begin(), words.end(), words_.get());
        MPI_Request request = MPI_REQUEST_NULL;
        mpi_check(
            MPI_Iallreduce(words_.get(), all, static_cast<int>(words.size()), MPI_UINT64_T, MPI_MAX, comm_, &request),
            "MPI_Iallreduce");
        await(
            [&] {
                int done = 0;
                mpi_check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Iallreduce");
                return done != 0;
            },
            everybody(), patience);
        std::copy_n(all, words.size(), words.begin());
    }

    /// Returns the duplicate-free child, once all ranks have come. The split itself is a blocking call of MPI.
    [[nodiscard]] std::shared_ptr<MpiTeam> split(int colour, int key) {
        std::string room;  // more than is made below, where no rank could tell of a lack of it
        Verdict mine = verdict_of([&] { room.reserve(as_size((Index{64} << 10) + 256 * size_)); }, "split");
        if (mine.ok()) mine.reason = std::move(room);
        agree_or_raise(*this, std::move(mine));
        return guarded([&] {
            ++splits_;
            MPI_Comm made = MPI_COMM_NULL;
            mpi_check(MPI_Comm_split(comm_, colour < 0 ? MPI_UNDEFINED : colour, key, &made), "MPI_Comm_split");
            if (colour < 0) mpi_check(MPI_Comm_dup(MPI_COMM_SELF, &made), "MPI_Comm_dup");
            // The same number on all ranks of the child, another one for every other communicator of the family.
            std::uint64_t const scope =
                Digest{}.add(scope_).add(splits_).add_signed(colour < 0 ? -1 - rank_ : colour).value();
            return std::make_shared<MpiTeam>(made, family_, scope, family_->options);
        });
    }

private:
    void share_node(MpiOptions const& options) {
        MPI_Comm here = MPI_COMM_NULL;
        mpi_check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &here), "MPI_Comm_split_type");
        here_ = mpi_processes_of_node(here, rank_, options.ranks_per_node);
        processes_.assign(as_size(size_), 0);
        for (MpiProcess const& each : here_) processes_[as_size(each.rank)] = each.pid;
        MPI_Comm node = MPI_COMM_NULL;
        mpi_check(MPI_Comm_split(here, here_.front().rank, rank_, &node), "MPI_Comm_split");
        node_ = MpiNode::make(node);
        bool const crowded = static_cast<unsigned>(mpi_size(here)) > std::thread::hardware_concurrency();
        spins_ = node_ && crowded ? 0 : 100;
        if (node_) {
            own_ = &node_->own();
            locals_.assign(as_size(size_), -1);
            for (int l = 0; l < node_->ranks(); ++l) locals_[as_size(rank_of_local(l))] = l;
        }
        mpi_check(MPI_Comm_free(&node), "MPI_Comm_free");
        mpi_check(MPI_Comm_free(&here), "MPI_Comm_free");
    }
    /// Before anything that takes ranks through other calls of MPI, which would wait for one another for ever.
    void demand_same(MpiOptions const& options) {
        // Who has the shortest deadline would end the others' waits, and none would know when it has been given up.
        // Six numbers, the first of which is of the version: so it must stay.
        auto const path = static_cast<std::size_t>(options.path);
        std::int64_t const mine[3] = {static_cast<std::int64_t>(version_word),
                                      static_cast<std::int64_t>(path << 32U) + options.ranks_per_node,
                                      comparable(options.deadline).count()};
        std::int64_t most[6] = {mine[0], -mine[0], mine[1], -mine[1], mine[2], -mine[2]};
        mpi_check(MPI_Allreduce(MPI_IN_PLACE, most, 6, MPI_INT64_T, MPI_MAX, comm_), "MPI_Allreduce");
        bool const same = most[0] == -most[1] && most[2] == -most[3] && most[4] == -most[5];
        if (same && options.deadline.count() > 0) return;
        MPI_Comm_free(&comm_);
        for (std::int64_t word : {most[0], -most[1]}) {
            if (word != mine[0])
                raise(ErrorCode::mismatch,
                      versions_differ_text(name, rank_, "another rank", static_cast<std::uint64_t>(word)));
        }
        if (same) check_deadline("MpiOptions", options.deadline);
        constexpr std::string_view paths[] = {"automatic", "messages", "attach"};
        raise(ErrorCode::mismatch, "reshard::MpiCommunicator: rank ", rank_, " of ", size_,
              " was given MpiOptions with path ", paths[path], ", ranks_per_node ", options.ranks_per_node,
              " and a deadline of ", mine[2], " ms, another rank others. Fix: give every rank the same options.");
    }
    void demand_attach() {
        int all = attach_ || (!node_ && size_ == 1) ? 1 : 0;
        mpi_check(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
        if (all != 0 || scope_ != 0) return;
        MPI_Comm_free(&comm_);  // of all ranks: there is no object whose destructor would do it
        raise(ErrorCode::transport,
              "reshard::MpiCommunicator: MpiPath::attach was asked for, but process_vm_readv between the ranks of a "
              "node does not work here, or some rank is alone on its node. Fix: use MpiPath::automatic, or let the "
              "system allow it (kernel.yama.ptrace_scope = 0, CAP_SYS_PTRACE for containers).");
    }
    /// maximum() among ranks of one node: they read the words in each other's seats.
    void find_maximum_here(std::span<std::uint64_t> words, std::chrono::milliseconds patience) {
        // Two places, in turn: who says the next words may be ahead of those who read these, by one and no more.
        std::uint64_t const nth = ++agreements_;
        std::copy(words.begin(), words.end(), node_->own().words[nth % 2]);
        node_->own().agreed.store(nth, std::memory_order_release);
        int come = 0;
        auto const has_come = [&](int l) { return node_->seat(l).agreed.load(std::memory_order_acquire) >= nth; };
        await(
            [&] {
                while (come < size_ && has_come(come)) ++come;
                return come == size_;
            },
            [&](FunctionRef<void(int)> visit) {
                for (int l = come; l < size_; ++l)
                    if (!has_come(l)) visit(rank_of_local(l));
            },
            patience);
        for (int l = 0; l < size_; ++l) {
            for (std::size_t i = 0; i < words.size(); ++i)
                words[i] = larger(words[i], node_->seat(l).words[nth % 2][i]);
        }
    }
    void abandon(ErrorCode code, std::string_view reason) noexcept {
        if (!family_->poisoned) poison(code, reason);
        if (!node_) return;
        // Nobody may read this rank's memory once its owner is told that the exchange is over.
        auto const limit = Clock::now() + patience(std::chrono::seconds(2));
        for (int l = 0; l < node_->ranks(); ++l) {
            MpiSeat const& seat = node_->seat(l);
            while (l != node_->me() && seat.reading.load(std::memory_order_seq_cst) != 0 && process_lives(seat.pid) &&
                   Clock::now() < limit) {
                sched_yield();
            }
        }
    }

    MPI_Comm comm_;
    std::shared_ptr<MpiNode> node_;
    /// Of an agreement, this rank's and those of all.
    std::unique_ptr<std::uint64_t[]> words_ = std::make_unique<std::uint64_t[]>(2 * most_words);
    std::vector<int> locals_;
    std::vector<MpiProcess> here_;  ///< ranks of this node, ascending
    std::vector<int> processes_;
    MpiGreetings greetings_;
    std::uint64_t agreements_ = 0;
    std::uint64_t splits_ = 0;
    bool attach_ = false;
    Clock::time_point entered_ = Clock::now();
    Clock::time_point asked_{};     ///< when the last roll call began,
    Clock::time_point asked_in_{};  ///< and since when nothing had moved
};

// ---- How a program ends when a rank fails ----------------------------------------------------------------------

/// The type of an error, by the number of its code.
[[nodiscard]] constexpr std::string_view error_name(ErrorCode code) noexcept {
    constexpr std::string_view names[] = {"exception",       "ShapeError",    "MeshError",        "PlacementError",
                                          "NotationError",   "MismatchError", "BufferError",      "DTypeError",
                                          "TransitionError", "PeerFailed",    "DeadlineExceeded", "TransportError",
                                          "FormatError",     "IoError",       "OutOfMemory"};
    auto const number = static_cast<std::size_t>(code);
    return names[number < std::size(names) ? number : 0];
}

/// Whether a text says of what type it is: "IoError: ...", "rank 0 of 2: IoError: ...".
[[nodiscard]] constexpr bool names_type(std::string_view text, std::string_view type) noexcept {
    constexpr std::string_view colon = ": ";
    for (std::size_t at = text.find(type); at != text.npos; at = text.find(type, at + 1)) {
        bool const begins = at == 0 || (at >= 2 && text.substr(at - 2, 2) == colon);
        if (begins && text.substr(at + type.size(), 2) == colon) return true;
    }
    return false;
}

inline void print_end(int rank, ErrorCode code, std::string_view text) noexcept {
    std::string_view const type = error_name(code);
    bool const named = names_type(text, type);
    std::fprintf(stderr, "reshard: rank %d: %.*s%s%.*s\n", rank, named ? 0 : static_cast<int>(type.size()), type.data(),
                 named ? "" : ": ", static_cast<int>(text.size()), text.data());
    std::fflush(stderr);
}

/// Tells the user what failed, if that is this rank's to tell: who has died, or sleeps, cannot do so himself.
inline void tell_failure(MpiFamily& family) noexcept {
    bool const nobody = family.failure.teller < 0;  // whoever saw it first has died
    if (!family.poisoned || !(nobody || family.is_teller())) return;
    FailureRecord const& failure = family.failure;
    print_end(family.rank, static_cast<ErrorCode>(failure.code), failure.reason);
}

/// Tells the others and, once, the user.
inline void report_end(MpiTeam& team, ErrorCode code, std::string_view text) noexcept {
    MpiFamily& family = *team.family();
    bool const first = team.poison(code, text);
    // The same failure, to which a rank may have added what concerns itself.
    std::string_view const reason = std::string_view(family.failure.reason).substr(0, 200);
    bool const known = code == ErrorCode::peer_failed || text.substr(0, reason.size()) == reason;
    if (first || !known) return print_end(family.rank, code, text);
    tell_failure(family);
}

/// The last thing all ranks do together: learn whether all of them are well. Somebody who failed waits only a moment.
[[nodiscard]] inline bool all_ended_well(MpiTeam& team, bool well) noexcept {
    MpiFamily& family = *team.family();
    if (family.holds_still()) {
        std::this_thread::sleep_for(team.patience(std::chrono::seconds(2)));
        return false;
    }
    auto* const words = new (std::nothrow) int[2]{well ? 0 : 1, 0};  // kept for ever if somebody never comes
    if (words == nullptr) return false;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Iallreduce(words, words + 1, 1, MPI_INT, MPI_MAX, family.control(), &request) != MPI_SUCCESS) return false;
    auto looked = Clock::now();
    auto const patience = team.patience(std::chrono::seconds(2));
    auto limit = looked + patience;
    for (int turn = 0;; ++turn) {
        int done = 0;
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (done != 0) break;
        auto const now = Clock::now();
        auto const look = [&] {
            team.listen();
            team.heed_interruption(now);
            if (now - looked < std::chrono::milliseconds(20)) return;
            looked = now;
            team.everybody()([&](int rank) { team.look_for_death(rank); });
        };
        if (well && (family.hear(true) || !quietly([&] { team.guarded(look); }))) {
            well = false;
            tell_failure(family);
            limit = Clock::now() + patience;
        }
        if (!well && now >= limit) return false;
        if (turn < 1000) {
            sched_yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds(200));  // others may work for hours
        }
    }
    bool const all = words[1] == 0 && well;
    delete[] words;
    return all;
}

}  // namespace reshard::inline v0_1::detail
