// SPDX-License-Identifier: Apache-2.0
// How reshard/comm/detail/mpi_team.hpp is done.
#pragma once

#include <reshard/comm/detail/mpi_team.hpp>

namespace reshard::inline v0::detail {

inline Verdict MpiTeam::agree(Verdict const& mine) {
    Verdict joint;
    guarded([&] {
        joint = agree_in_words(
            mine, size_, [&](std::uint64_t const(&words)[5]) { return maximum(words); },
            [&](std::uint64_t const(&words)[3]) { return gather(words); },
            [&](std::string const& text, int root, std::uint64_t length) { return spread(text, root, length); });
    });
    return joint;
}

inline void MpiTeam::share_node(MpiOptions const& options) {
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

inline void MpiTeam::demand_same(MpiOptions const& options) {
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

inline void MpiTeam::demand_attach() {
    int all = attach_ || (!node_ && size_ == 1) ? 1 : 0;
    mpi_check(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
    if (all != 0 || scope_ != 0) return;
    MPI_Comm_free(&comm_);  // of all ranks: there is no object whose destructor would do it
    raise(ErrorCode::transport,
          "reshard::MpiCommunicator: MpiPath::attach was asked for, but process_vm_readv between the ranks of a node "
          "does not work here. Fix: use MpiPath::automatic, or let the system allow it (kernel.yama.ptrace_scope = "
          "0, "
          "CAP_SYS_PTRACE for containers).");
}

inline std::uint64_t const* MpiTeam::maximum(std::uint64_t const (&words)[5]) {
    std::memcpy(agreement_->own, words, sizeof(words));
    if (node_ && node_->ranks() == size_) {
        find_maximum_here();
    } else {
        meet(
            "MPI_Iallreduce",
            [&](MPI_Request* request) {
                return MPI_Iallreduce(agreement_->own, agreement_->all, 5, MPI_UINT64_T, MPI_MAX, comm_, request);
            },
            patience(agreement_patience));
    }
    return agreement_->all;
}

inline void MpiTeam::find_maximum_here() {
    // Two places, in turn: who says the next word may be ahead of those who read this one, by one and no more.
    Agreement& place = *agreement_;
    std::uint64_t const nth = ++agreements_;
    std::memcpy(node_->own().words[nth % 2], place.own, sizeof(place.own));
    node_->own().agreed.store(nth, std::memory_order_release);
    int come = 0;
    auto const has_come = [&](int l) { return node_->seat(l).agreed.load(std::memory_order_acquire) >= nth; };
    await(
        [&] {
            while (come < size_ && has_come(come)) ++come;
            return come == size_ ? MpiStep::complete : MpiStep::idle;
        },
        [&](auto&& visit) {
            for (int l = come; l < size_; ++l)
                if (!has_come(l)) visit(rank_of_local(l));
        },
        patience(agreement_patience));
    std::memset(place.all, 0, sizeof(place.all));
    for (int l = 0; l < size_; ++l) {
        for (int i = 0; i < 5; ++i) place.all[i] = larger(place.all[i], node_->seat(l).words[nth % 2][i]);
    }
}

inline std::uint64_t const* MpiTeam::gather(std::uint64_t const (&words)[3]) {
    Agreement& place = *agreement_;
    std::memcpy(place.line, words, sizeof(words));
    place.lines.resize(3 * static_cast<std::size_t>(size_));
    meet(
        "MPI_Iallgather",
        [&](MPI_Request* request) {
            return MPI_Iallgather(place.line, 3, MPI_UINT64_T, place.lines.data(), 3, MPI_UINT64_T, comm_, request);
        },
        patience(verdict_patience));
    return place.lines.data();
}

inline std::string MpiTeam::spread(std::string const& mine, int root, std::uint64_t length) {
    agreement_->text = mine;
    agreement_->text.resize(static_cast<std::size_t>(length));
    if (length != 0) {
        meet(
            "MPI_Ibcast",
            [&](MPI_Request* request) {
                return MPI_Ibcast(agreement_->text.data(), static_cast<int>(length), MPI_CHAR, root, comm_, request);
            },
            patience(verdict_patience));
    }
    return agreement_->text;
}

inline void MpiTeam::abandon(ErrorCode code, std::string_view reason) noexcept {
    if (!family_->poisoned()) poison(code, reason);
    if (!node_) return;
    // Nobody may read this rank's memory once its owner is told that the exchange is over.
    auto const limit = std::chrono::steady_clock::now() + patience(std::chrono::seconds(2));
    for (int l = 0; l < node_->ranks(); ++l) {
        MpiSeat const& seat = node_->seat(l);
        while (l != node_->me() && seat.reading.load(std::memory_order_seq_cst) != 0 && process_lives(seat.pid) &&
               std::chrono::steady_clock::now() < limit) {
            sched_yield();
        }
    }
}

template <class Missing>
void MpiTeam::look_for_the_lost(Missing&& missing) {
    missing([&](int rank) {
        int const pid = process(rank);
        bool const lives = pid == 0 || process_lives(pid);
        if (!lives && is_dead_for_long(std::chrono::steady_clock::now())) raise_death(rank, pid);
        int const there = local(rank);
        if (there < 0) return;
        MpiSeat const& seat = node_->seat(there);
        std::uint32_t const left = seat.left.load(std::memory_order_acquire);  // before what it did until then
        std::uint64_t const entered = seat.entered.load(std::memory_order_acquire);
        auto const theirs = static_cast<TeamCall>(entered & 0xffU);
        if (entered >> 8U == calls_ && theirs != call_) {
            raise_mismatch(-1, -1,
                           concat("reshard::MpiCommunicator: rank ", rank_, " called ", name(call_), " while rank ",
                                  rank, " called ", name(theirs), transport::other_call));
        }
        if (entered >> 8U >= calls_ || !absence_.is_final(left)) return;
        family_->poison(failure_record(ErrorCode::peer_failed, member(rank), scope_, -1, -1, left_text(rank)));
        raise_failure();
    });
}

template <class Missing>
MpiTeam::Suspects MpiTeam::suspects(Missing&& missing) const {
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
    if (call_ != TeamCall::exchange) return {};
    return {those([&](int rank) { return awaited[static_cast<std::size_t>(rank)]; }), ""};
}

template <class Missing>
void MpiTeam::raise_deadline(Missing&& missing) {
    Suspects const found = suspects(missing);
    std::string who;
    for (int rank : found.ranks) who = who.empty() ? concat(" for rank ", rank) : concat(who, ", ", rank);
    if (who.empty()) {
        bool const all_here = std::count(processes_.begin(), processes_.end(), 0) == 0;
        who = all_here ? " although all ranks have come" : " for ranks of other nodes";
    }
    std::string const text =
        concat("reshard::MpiCommunicator: waited ", static_cast<Index>(family_->options().deadline.count()), " ms in ",
               name(call_), who, found.why, ". Fix: find out why it does not come, or raise MpiOptions::deadline.");
    int const culprit = found.ranks.empty() ? -1 : member(found.ranks.front());
    family_->poison(failure_record(ErrorCode::deadline, culprit, scope_, -1, -1, text));
    raise_failure();
}

inline std::shared_ptr<MpiTeam> MpiTeam::split(int colour, int key) {
    std::shared_ptr<MpiTeam> child;
    guarded([&] {
        // Nobody enters a call that cannot be given up before all are there.
        static_cast<void>(maximum({}));
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
