// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_family.hpp
/// \brief  What ranks share beside MPI: those of one node a seat each, lists of sends, a record of the first failure;
///         all communicators split from one their options, how a failure is told, shared buffers.
/// \depends comm/detail/{mpi_call,mpi_roll_call,process,team}.hpp, core/detail/waiting.hpp, <atomic>, <memory>,
/// <vector>.
///
/// A failure is told twice: to the ranks of the node through the shared block, at once, also by a process that is about
/// to die; to every rank by a message on a communicator of its own.
///
/// Epochs count the exchanges of a communicator. Rank s writes its sends into its own list and stores published = 2e;
/// rank r, which receives from s, waits for that, compares, copies, and stores pulled(r, s) = e; s leaves the exchange
/// when every rank it sends to has done so. While s writes the list of epoch e + 1, published is 2e + 1: whoever comes
/// late and finds more than 2e knows that s had nothing for it.
///
/// Short lists go into one of two slots, of odd epochs and of even ones, which all ranks have mapped. A slot says of
/// which epoch it is. When such a list holds all that s sends and is a replay, s leaves without waiting: it waits at
/// the end of epoch e + 1 for those that have not fetched what it had in e. So a slot is written when nobody reads it.
#pragma once

#include <reshard/comm/detail/mpi_call.hpp>
#include <reshard/comm/detail/mpi_roll_call.hpp>
#include <reshard/comm/detail/process.hpp>
#include <reshard/comm/detail/team.hpp>
#include <reshard/core/detail/waiting.hpp>

#include <sched.h>  // sched_yield

#include <atomic>  // atomic
#include <memory>  // shared_ptr
#include <new>     // launder
#include <span>
#include <vector>

namespace reshard::inline v0_1::detail {

/// One rank's place on its node. Written by its owner, read by all.
struct alignas(no_false_sharing) MpiSeat : Attendance {
    std::atomic<std::uint64_t> published{0};  ///< see above
    std::atomic<std::uint64_t> finished{0};   ///< the last epoch in which this rank has pulled everything
    std::atomic<Index> list_bytes{0};         ///< size of the list's file
    std::atomic<std::uint64_t> agreed{0};     ///< agreements in which its words stand
    int pid = 0;
    int list_file = 0;
    std::uint64_t cookie = 0;  ///< the value at cookie_address in the owner's memory: trial of attach
    std::uint64_t cookie_address = 0;
    Index offer_bytes = 0;  ///< what MpiCommunicator::allocate() passes around
    std::uint64_t offer_segment = 0;
    int offer_file = 0;
    std::uint64_t words[2][most_words] =
        {};  ///< of even agreements and odd ones: who writes the next may be ahead by one
};

struct MpiNodeHeader {
    std::uint64_t nonce = 0;
    SharedFailure failure{};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free &&
                  std::atomic<Index>::is_always_lock_free,
              "reshard: atomics in memory shared by processes must not need a lock.");

struct MpiProcess {
    std::uint64_t space = 0;  ///< where its number means something, see process_space()
    int pid = 0;
    int rank = 0;
};

/// Collective over `here`, ranks of one machine, among them `rank` of a communicator. Those of this rank's node, itself
/// included, in the order of `here`; at most `most` of them, if that is not 0, and then the same ones on all of them.
[[nodiscard]] inline std::vector<MpiProcess> mpi_processes_of_node(MPI_Comm here, int rank, int most) {
    MpiProcess const own{process_space(), own_pid(), rank};
    std::vector<MpiProcess> all(as_size(mpi_size(here)));
    auto const bytes = static_cast<int>(sizeof(own));
    mpi_check(MPI_Allgather(&own, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, here), "MPI_Allgather");
    std::vector<MpiProcess> node;
    std::size_t place = 0;
    for (MpiProcess const& each : all) {
        if (each.rank == rank) place = node.size();
        if (each.rank == rank || (each.space == own.space && own.space != 0)) node.push_back(each);
    }
    if (most <= 0) return node;
    std::size_t const first = place / as_size(most) * as_size(most);
    std::size_t const last = smaller(first + as_size(most), node.size());
    return {node.begin() + static_cast<std::ptrdiff_t>(first), node.begin() + static_cast<std::ptrdiff_t>(last)};
}

/// The shared block of the ranks of one communicator on one node.
class MpiNode {
public:
    /// Collective over `node`, whose ranks can share memory. Null, on all of them, where the system does not let them.
    [[nodiscard]] static std::shared_ptr<MpiNode> make(MPI_Comm node) {
        int const ranks = mpi_size(node);
        int const me = mpi_rank(node);
        if (ranks == 1) return nullptr;
        auto made = std::make_shared<MpiNode>();
        made->ranks_ = ranks;
        made->me_ = me;
        bool const good = made->meet(node) && made->sit_down();
        int all = good ? 1 : 0;
        mpi_check(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, node), "MPI_Allreduce");
        if (all == 0) return nullptr;
        made->memory_.close_file();
        int attach = made->try_attach() ? 1 : 0;
        mpi_check(MPI_Allreduce(MPI_IN_PLACE, &attach, 1, MPI_INT, MPI_MIN, node), "MPI_Allreduce");
        made->attach_ = attach != 0;
        return made;
    }

    [[nodiscard]] int ranks() const noexcept { return ranks_; }
    [[nodiscard]] int me() const noexcept { return me_; }
    [[nodiscard]] bool attach() const noexcept { return attach_; }
    [[nodiscard]] MpiNodeHeader& header() const noexcept {
        return *std::launder(reinterpret_cast<MpiNodeHeader*>(memory_.data()));
    }
    [[nodiscard]] MpiSeat& seat(int local) const noexcept {
        return std::launder(reinterpret_cast<MpiSeat*>(memory_.data() + seats_at))[local];
    }
    [[nodiscard]] MpiSeat& own() const noexcept { return seat(me_); }
    /// Epoch, of those that are odd as `epoch` is or even, in which `receiver` has last pulled all that `sender` had
    /// for it. Written by the receiver.
    [[nodiscard]] std::atomic<std::uint64_t>& pulled(int receiver, int sender, std::uint64_t epoch) const noexcept {
        Index const row = 2 * receiver + as_index(epoch % 2);
        return atomic_at(pulled_at(ranks_) + row * pulled_row(ranks_) + 8 * sender);
    }

    /// Room for a short list.
    static constexpr Index slot_bytes = Index{64} << 10;
    [[nodiscard]] std::byte* slot(int local, std::uint64_t epoch) const noexcept {
        return memory_.data() + slot_at(local, epoch) + no_false_sharing;
    }
    /// The epoch whose list it holds; 0 while it is written.
    [[nodiscard]] std::atomic<std::uint64_t>& slot_epoch(int local, std::uint64_t epoch) const noexcept {
        return atomic_at(slot_at(local, epoch));
    }

    /// Room for `bytes` in the own list. Throws OutOfMemory.
    [[nodiscard]] std::byte* own_list(Index bytes) {
        SharedMemory& list = lists_[as_size(me_)];
        if (bytes > list.bytes()) {
            if (!list.grow(larger(bytes, 2 * list.bytes()))) {
                raise(ErrorCode::out_of_memory, "reshard::MpiCommunicator: no shared memory for a list of ", bytes,
                      " bytes. Fix: move fewer tensors at once, or give the process more memory.");
            }
            own().list_bytes.store(list.bytes(), std::memory_order_release);
        }
        return list.data();
    }
    /// The list of a rank of this node; null when it cannot be opened.
    [[nodiscard]] std::byte const* list_of(int local) {
        SharedMemory& list = lists_[as_size(local)];
        Index const bytes = seat(local).list_bytes.load(std::memory_order_acquire);
        if (list.bytes() < bytes) {
            list = SharedMemory::open(seat(local).pid, seat(local).list_file, bytes);
        }
        return list.data();
    }

private:
    static constexpr Index first_list_bytes = 16384;
    static constexpr Index seats_at = 2048;
    static constexpr Index slot_stride = slot_bytes + as_index(no_false_sharing);
    static_assert(sizeof(MpiNodeHeader) <= 2048);

    [[nodiscard]] static Index pulled_at(int ranks) noexcept {
        return seats_at + as_index(ranks) * as_index(sizeof(MpiSeat));
    }
    [[nodiscard]] static Index pulled_row(int ranks) noexcept { return ceil_div(ranks, 16) * 128; }
    [[nodiscard]] static Index slots_at(int ranks) noexcept { return pulled_at(ranks) + 2 * ranks * pulled_row(ranks); }
    [[nodiscard]] Index slot_at(int local, std::uint64_t epoch) const noexcept {
        return slots_at(ranks_) + (2 * local + as_index(epoch % 2)) * slot_stride;
    }
    [[nodiscard]] std::atomic<std::uint64_t>& atomic_at(Index offset) const noexcept {
        return *std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(memory_.data() + offset));
    }

    /// Everybody maps the block that the first rank of the node makes.
    [[nodiscard]] bool meet(MPI_Comm node) {
        struct Address {
            std::uint64_t nonce;
            int pid;
            int file;
        } place{0, own_pid(), -1};
        Index const bytes = slots_at(ranks_) + 2 * ranks_ * slot_stride;
        if (me_ == 0) {
            memory_ = SharedMemory::create(bytes);
            if (memory_) {
                place.file = memory_.file();
                // Tells this block from anything another process may have open under the same numbers.
                // All else is zero, which is what seats, slots and the failure begin as.
                header().nonce = place.nonce = unique_number();
            }
        }
        mpi_check(MPI_Bcast(&place, static_cast<int>(sizeof(place)), MPI_BYTE, 0, node), "MPI_Bcast");
        if (me_ != 0 && place.file >= 0) {
            memory_ = SharedMemory::open(place.pid, place.file, bytes, SharedMemory::Access::write);
        }
        return memory_ && header().nonce == place.nonce;
    }
    [[nodiscard]] bool sit_down() {
        lists_.resize(as_size(ranks_));
        SharedMemory& list = lists_[as_size(me_)];
        list = SharedMemory::create(first_list_bytes);
        if (!list) return false;
        MpiSeat& mine = own();
        mine.pid = own_pid();
        mine.list_file = list.file();
        mine.list_bytes.store(list.bytes(), std::memory_order_relaxed);
        cookie_ = header().nonce ^ static_cast<std::uint64_t>(me_);
        mine.cookie = cookie_;
        mine.cookie_address = reinterpret_cast<std::uintptr_t>(&cookie_);
        return true;
    }
    /// Whether this rank can read ordinary memory of every other one. Their cookies stay until all have tried.
    [[nodiscard]] bool try_attach() const noexcept {
        for (int r = 0; r < ranks_; ++r) {
            std::uint64_t found = 0;
            AttachReader reader(seat(r).pid);
            auto const* const there = reinterpret_cast<std::byte const*>(seat(r).cookie_address);
            if (!reader.add(there, reinterpret_cast<std::byte*>(&found), 8) || !reader.flush()) return false;
            if (found != seat(r).cookie) return false;
        }
        return true;
    }

    SharedMemory memory_;
    std::vector<SharedMemory> lists_;
    std::uint64_t cookie_ = 0;
    int ranks_ = 0;
    int me_ = 0;
    bool attach_ = false;
};

// ---- Families --------------------------------------------------------------------------------------------------

/// Memory of MpiCommunicator::allocate(): made by this process, or mapped from another one.
struct MpiSegment {
    int pid = 0;
    std::uint64_t number = 0;      ///< counts the segments of a process: never used twice
    std::uint64_t allocation = 0;  ///< the number of this process's own segment of the same allocation
    SharedMemory memory;
};

class MpiFamily : public TeamFamily {
public:
    /// `control` becomes this object's. The node's block is where its ranks look for failures; it may be null.
    MpiFamily(MPI_Comm control, std::shared_ptr<MpiNode> node, MpiOptions const& its_options)
        : options(its_options),
          roll_call(control),
          control_(control),
          node_(std::move(node)),
          size_(mpi_size(control)) {
        deadline = comparable(options.deadline);
        interruption.asked = options.interrupted;
        rank = mpi_rank(control);
        if (node_) shared = &node_->header().failure;
    }
    MpiFamily& operator=(MpiFamily&&) = delete;
    ~MpiFamily() {
        // After a failure messages may still be on their way, or come later: what MPI writes to or reads from must
        // stay, and a communicator to which MPI gave the same number would take them for its own.
        if (is_ours() && !TeamFamily::hear() && !roll_call.was_used() && mpi_is_usable()) MPI_Comm_free(&control_);
    }

    [[nodiscard]] MPI_Comm control() const noexcept { return control_; }
    [[nodiscard]] std::shared_ptr<MpiNode> const& node() const noexcept { return node_; }

    /// Whether the family has failed. Cheap: looks at shared memory, and rarely at messages.
    [[nodiscard]] bool hear(bool thoroughly = false) noexcept {
        if (TeamFamily::hear()) return true;
        // Looking for messages is also what drives MPI: messages it holds back for a full queue move on.
        if (!thoroughly && ++hearings_ % 32 != 0) return false;
        FailureRecord heard;
        if (!receive(heard)) return false;
        record(heard);
        return true;
    }

    /// Whether this rank is the one who tells the user what failed. Ranks of several nodes may each have thought they
    /// were the first: then their letters are on the way, and the lowest of them speaks. \pre poisoned.
    [[nodiscard]] bool is_teller() noexcept {
        bool const alone = holds_still_ || is_alone();
        auto const limit = Clock::now() + std::chrono::milliseconds(100);
        while (!alone && failure.teller == rank && mpi_is_usable() && Clock::now() < limit) {
            FailureRecord other;
            if (receive(other) && other.teller < rank) failure.teller = other.teller;
            sched_yield();
        }
        return failure.teller == rank;
    }

    /// MPI still has memory that its owner may free from now on: no call may let it go on. \pre poisoned.
    void hold_still() noexcept {
        static_cast<void>(is_teller());
        holds_still_ = true;
    }
    [[nodiscard]] bool holds_still() const noexcept { return holds_still_; }

    /// As TeamFamily, and tells other nodes.
    bool poison(FailureRecord mine) noexcept {
        if (hear(true)) return false;
        mine.teller = rank;
        if (!record(mine)) return false;
        if (is_alone()) return true;
        // Kept for ever: nobody can say when they are no longer needed.
        auto* const letter = new (std::nothrow) FailureRecord(mine);
        if (letter == nullptr || !mpi_is_usable()) return true;
        for (int r = 0; r < size_; ++r)
            if (r != rank && !mpi_post(letter, sizeof(*letter), r, tag, control_)) break;
        return true;
    }
    /// Whether all ranks see what fails, and who waits, in memory that they share.
    [[nodiscard]] bool is_alone() const noexcept { return size_ == 1 || (node_ && node_->ranks() == size_); }

    MpiOptions const options;
    MpiRollCall roll_call;

    // ---- Shared buffers --------------------------------------------------------------------------------------

    std::vector<MpiSegment> own_segments;
    std::vector<MpiSegment> peer_segments;

    /// The segments of one allocation, this rank's and those it mapped. Blocks nobody.
    void release(std::uint64_t allocation) noexcept {
        for (auto* list : {&own_segments, &peer_segments})
            std::erase_if(*list, [&](MpiSegment const& each) { return each.allocation == allocation; });
    }
    /// The shared segment of this process that holds all of it, or null.
    [[nodiscard]] MpiSegment const* segment_with(std::span<std::byte const> memory) const noexcept {
        for (auto const& segment : own_segments) {
            if (segment.memory.file() < 0) continue;  // ordinary memory: nobody else can open it
            std::byte const* const begin = segment.memory.data();
            if (memory.data() >= begin && memory.data() + memory.size() <= begin + segment.memory.bytes())
                return &segment;
        }
        return nullptr;
    }
    /// Memory of peers that this rank opened again: its owners may have freed it since.
    void forget_reopened() noexcept { reopened_.clear(); }
    /// Where a segment of another process lies in this one's memory. A segment this rank has already let go of is
    /// opened again; of those the last few stay. Null when that fails.
    [[nodiscard]] std::byte const* peer_memory(int pid, std::uint64_t number, int file, Index bytes) {
        for (auto const* list : {&peer_segments, &reopened_}) {
            for (auto const& segment : *list)
                if (segment.pid == pid && segment.number == number) return segment.memory.data();
        }
        MpiSegment again{pid, number, 0, SharedMemory::open(pid, file, bytes)};
        if (!again.memory) return nullptr;
        if (reopened_.size() == 16) reopened_.erase(reopened_.begin());
        reopened_.push_back(std::move(again));
        return reopened_.back().memory.data();
    }
    /// Segments are numbered per process, because a node's processes know each other by process.
    [[nodiscard]] static std::uint64_t next_segment() noexcept {
        static std::atomic<std::uint64_t> made{0};
        return ++made;
    }

private:
    static constexpr int tag = 1;

    /// Whether a letter has come.
    [[nodiscard]] bool receive(FailureRecord& letter) noexcept { return mpi_fetch(letter, tag, control_); }

    MPI_Comm control_;
    std::shared_ptr<MpiNode> node_;
    int size_;
    unsigned hearings_ = 0;
    bool holds_still_ = false;
    std::vector<MpiSegment> reopened_;
};

}  // namespace reshard::inline v0_1::detail
