// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/communicator.hpp
/// \brief  What a transport is: the Communicator concept, its table (the porting guide) and the values it speaks in.
/// \depends core, algebra/mesh.hpp, comm/detail/runs.hpp, <span>, <vector>. No transport, no threads.
#pragma once

#include <reshard/algebra/mesh.hpp>
#include <reshard/comm/detail/runs.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/transfer.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1 {

class MemoryPolicy;  // memory/memory_policy.hpp

/// What a rank has moved since its communicator was made. Local bytes are a rank's transfers to itself; they are
/// counted nowhere else. On every communicator the sent and the received bytes of all ranks are equal. Bytes are those
/// of the payload on the wire; messages are what the transport sends: transfers that share one count once, a transfer
/// that travels in pieces counts once per piece.
struct Traffic {
    Index messages_sent = 0;
    Index bytes_sent = 0;
    Index messages_received = 0;
    Index bytes_received = 0;
    Index bytes_local = 0;

    constexpr Traffic& operator+=(Traffic const& more) noexcept {
        messages_sent += more.messages_sent;
        bytes_sent += more.bytes_sent;
        messages_received += more.messages_received;
        bytes_received += more.bytes_received;
        bytes_local += more.bytes_local;
        return *this;
    }
    [[nodiscard]] friend constexpr Traffic operator-(Traffic const& later, Traffic const& earlier) noexcept {
        return {later.messages_sent - earlier.messages_sent, later.bytes_sent - earlier.bytes_sent,
                later.messages_received - earlier.messages_received, later.bytes_received - earlier.bytes_received,
                later.bytes_local - earlier.bytes_local};
    }
    [[nodiscard]] friend constexpr bool operator==(Traffic const&, Traffic const&) = default;
};

namespace transport {
/// What one rank thinks of a matter that all must agree on; what agree() returns to all of them.
/// `digest` is a hash of whatever must be equal everywhere (a plan); 0: there is nothing to compare. `rank` is filled
/// in by the transport.
struct Verdict {
    ErrorCode code = ErrorCode::none;
    int rank = -1;
    std::string reason;  ///< may list options, each behind a next_option: tell_difference() makes a sentence of it
    std::uint64_t digest = 0;
    /// Makes the reason where somebody must be told, perhaps in the thread of another rank: it takes longer than to
    /// agree. Counts while `reason` is empty, and until agree() has returned.
    std::string (*words)(void const* about) = nullptr;
    void const* about = nullptr;
    /// The call that a rank is in, "save": others are told of it, also where one fails. Until agree() has returned.
    std::string_view call{};
    bool apart = false;  ///< of all: some are in other calls, so that none of these goes on to further agreements

    [[nodiscard]] bool ok() const noexcept { return code == ErrorCode::none; }
    [[nodiscard]] std::string said() const { return reason.empty() && words != nullptr ? words(about) : reason; }
    /// What is alike where ranks agree.
    [[nodiscard]] std::uint64_t mark() const noexcept { return digest ^ detail::Digest{}.add_text(call).value(); }
    /// For who outlives what it is about.
    void settle() {
        reason = said();
        words = nullptr;
    }
};
}  // namespace transport
namespace detail {
using transport::Verdict;
}  // namespace detail

/// One rank's part in an exchange, bound to its transfers, to be carried out as often as wanted. Move-only; a
/// moved-from one is done, and so is one made from nothing.
///
/// Syntax (checked)    | Meaning (promised)
/// --------------------|--------------------------------------------------------------------------------------------
/// e.start()           | collective: all ranks start the same exchanges in the same order. Others may be under way,
///                     | and it may wait for those; the same one is a TransportError
/// e.wait()            | returns when every transfer is complete and nobody needs this rank's memory any more; throws
///                     | the typed error otherwise; returns at once where nothing was started since
/// e.test()            | makes progress without blocking on other ranks; whether the exchange is complete; throws like
///                     | wait
/// k.done()            | whether wait() would return at once; makes no progress
/// ~E()                | waits like wait(), at most the deadline; never throws
template <class E>
concept BoundExchange =
    std::movable<E> && !std::copyable<E> && std::default_initializable<E> && std::is_nothrow_move_constructible_v<E> &&
    std::is_nothrow_destructible_v<E> && requires(E & e, E const& k) {
    { e.start() } -> std::same_as<void>;
    { e.wait() } -> std::same_as<void>;
    { e.test() } -> std::same_as<bool>;
    { k.done() }
    noexcept->std::same_as<bool>;
};

/// \concept Communicator
/// \brief   One rank's handle on a group of ranks that can move strided boxes. The whole contract of a transport.
///
/// Syntax (checked)             | Meaning (promised; tests/comm/conformance.hpp tries it)
/// -----------------------------|-----------------------------------------------------------------------------------
/// C::name                      | what traces and messages call this transport
/// c.rank(), c.size()           | 0 <= rank < size, the same on every call
/// c.bind(sends, receives)      | a C::exchange_type: checks and prepares what does not depend on values; asks no other
///                              | rank, but all bind the same exchanges in the same order between two agreements, and
///                              | start them in the same order: a rank that starts another one is a MismatchError.
///                              | No tags: the k-th send s->d meets the k-th receive d<-s, and both list the same
///                              | extents. Both spans are sorted by peer, ascending. Transfers to oneself are
///                              | legal. Transfers of size zero never appear. Sizes are 64-bit. Spans and memory stay
///                              | valid as long as the result; what starts it allocates nothing once it has run.
///                              | Payloads that differ are a MismatchError that names both ranks and sizes, on both;
///                              | PeerFailed for the others. A rank whose own part was over before it could know has
///                              | the same error from its next call on the communicator; the two never both succeed,
///                              | but where ranks replay what was started before, and not the same: then the next
///                              | exchange or agreement of one of them fails. What bind() itself throws poisons nothing
/// c.exchange(sends, receives)  | derived: bind, start, abort() if they throw; ranks that move nothing give empty spans
/// c.agree(verdict)             | collective; every rank gets the same verdict, joint_verdict() of all: the failing one
///                              | of the lowest rank; else where calls or, in one call, digests differ, `mismatch`,
///                              | naming the lowest rank that differs from rank 0; else the verdict of rank 0
/// c.split(colour, key)         | collective; ranks of one colour form a group, ordered by (key, rank). A negative
///                              | colour means no group: a communicator of size 1 that holds only its own rank
/// c.split(mesh, axes)          | collective; derived
/// c.abort(code, reason)        | poisons: current and later calls of every other rank end with PeerFailed that names
///                              | this rank and the reason, on this communicator and all that were split from it
/// c.traffic()                  | cumulative; moves when an exchange completes
/// c.check_memory(pointer)      | throws BufferError for memory it cannot reach, before anything moves: prepare() makes
///                              | of it the same error on all ranks
/// c.memory()                   | where the tensors of plans lie, and who works on them; null: the host's
/// c.terminate()                | ends the process, and all others where it can; does not return
///
/// What most transports have in common they inherit: CommunicatorBase<C> derives exchange() and split(mesh, axes),
/// keeps the runs of prepared plans that are under way (without it all ranks wait for them in the order of their
/// start), and says that memory is the host's, all of it, and that the process ends by std::abort. Calls while
/// exchanges are under way complete those first, as transport::InOrder does for its transports.
///
/// The two sides of a transfer also agree on element_bytes, or, where they convert, on the type on the wire; a box
/// without dimensions is one element. What a rank says to the others (what differs, whose verdict counts) is in
/// namespace `transport`; deliver() of memory/copy.hpp copies, or converts, a box into a box. How a deadline is set is
/// the transport's own matter; PeerFailed names the rank in the numbering of the outermost communicator. A communicator
/// may move between calls, not while an exchange or prepared plan refers to it.
///
/// Every wait has a deadline (DeadlineExceeded, naming who is missing). After an error the communicator is poisoned,
/// sources are untouched and destinations unspecified; a rank leaves an exchange, also a failed one, only when
/// nobody reads its memory any more. A communicator is used by one thread at a time and outlives its exchanges.
template <class C>
concept Communicator =
    std::movable<C> && !std::copyable<C> && BoundExchange<typename C::exchange_type> &&
    requires(C & c, C const& k, std::span<transport::Send const> sends, std::span<transport::Receive const> receives,
             transport::Verdict verdict, DynamicMesh const& mesh, std::string_view reason, void const* memory) {
    { C::name } -> std::convertible_to<std::string_view>;
    { k.rank() }
    noexcept->std::same_as<int>;
    { k.size() }
    noexcept->std::same_as<int>;
    { c.bind(sends, receives) } -> std::same_as<typename C::exchange_type>;
    { c.exchange(sends, receives) } -> std::same_as<typename C::exchange_type>;
    { c.agree(std::move(verdict)) } -> std::same_as<transport::Verdict>;
    { c.split(0, 0) } -> std::same_as<C>;
    { c.split(mesh, 0) } -> std::same_as<C>;
    { c.abort(ErrorCode::user, reason) }
    noexcept->std::same_as<void>;
    { k.traffic() }
    noexcept->std::same_as<Traffic>;
    { c.check_memory(memory) } -> std::same_as<void>;
    { c.memory() } -> std::convertible_to<MemoryPolicy const*>;
    { c.terminate() }
    noexcept->std::same_as<void>;
};

/// For authors of transports: what every transport must say and decide alike.
namespace transport {

/// What one rank moves in an exchange. The spans are the caller's.
struct BoundTransfers {
    std::span<Send const> sends;
    std::span<Receive const> receives;
    Index send_bytes = 0;
    Index receive_bytes = 0;
    std::uint64_t number = 0;           ///< what ranks know it by: of what matches the same on all
    bool is_replay = false;             ///< it has been started before
    std::vector<int>* notes = nullptr;  ///< what its engine writes down when it is first started, for replays
};

/// Looks at both lists and adds up their bytes. Throws TransportError for peers out of range or order; `who` is named.
[[nodiscard]] BoundTransfers bound_transfers(std::string_view who, std::span<Send const> sends,
                                             std::span<Receive const> receives, int ranks);

/// What InOrder counts of an engine. (A friend of a class with virtual functions could delete it: -Wnon-virtual-dtor.)
class EngineCounts {
    friend class Engine;
    friend class InOrder;
    std::uint64_t meetings_ = 0;  ///< calls of finish()
    std::uint64_t bound_ = 0;     ///< exchanges, since the last of them
    std::uint64_t started_ = 0;   ///< exchanges, so far
    std::uint64_t failed_ = 0;    ///< the first that did not succeed; 0: none
    bool under_way_ = false;      ///< the last that was started
    ErrorCode code_ = ErrorCode::none;
    std::string reason_;
};

/// How a rank of a transport carries out one exchange after the other. For transport::InOrder, which calls start() when
/// the one before is over, and advance() until it is; if one of them throws, it is over as well.
class Engine : public EngineCounts {
public:
    virtual void start(BoundTransfers const& transfers) = 0;  ///< never waits for other ranks where that can be
    /// A step towards the end; whether that is reached. Waits for what comes next only if it may block.
    [[nodiscard]] virtual bool advance(bool may_block) = 0;
    virtual void check_process() const {}  ///< throws in a child that was forked and has no part in it

    /// Before any other collective call: completes what is under way. Throws its error.
    void finish() {
        ++meetings_;
        bound_ = 0;  // ranks of which one could not bind everything count alike again
        complete();
    }
    /// These are InOrder's.
    void complete();
    bool go_on(bool may_block);

protected:
    Engine() = default;
    Engine(Engine&&) = default;
    Engine& operator=(Engine&&) = default;
    ~Engine() = default;
};

/// The exchanges of transports that carry out one after the other, as most do: several may be under way, and starting
/// one completes those before it.
class [[nodiscard]] InOrder {
public:
    InOrder() = default;
    /// \pre `engine` outlives this.
    InOrder(Engine& engine, BoundTransfers const& transfers) noexcept : engine_(&engine), transfers_(transfers) {
        transfers_.number = detail::Digest{}.add_word(engine.meetings_).add_word(++engine.bound_).value();
    }
    InOrder(InOrder&& other) noexcept { static_cast<void>(*this = std::move(other)); }  // for nvcc 13
    InOrder& operator=(InOrder&& other) noexcept;
    ~InOrder();

    /// It is a part of that one, of a transport on top of this one.
    void become_part_of(BoundTransfers const& whole) noexcept { transfers_.number = whole.number; }
    void start();
    void wait() { static_cast<void>(advance(true)); }
    [[nodiscard]] bool test() { return advance(false); }
    [[nodiscard]] bool done() const noexcept {
        return number_ == 0 || number_ < engine_->started_ || !engine_->under_way_;
    }

private:
    bool advance(bool may_block);

    Engine* engine_ = nullptr;
    BoundTransfers transfers_;
    std::vector<int> notes_;
    std::uint64_t number_ = 0;  ///< of the start that nobody has waited for
};

/// Of an exchange of any type; one that has no number to take stays as it is.
template <class E>
void become_part_of(BoundTransfers const& whole, E& part) noexcept {
    if constexpr (requires { part.become_part_of(whole); }) part.become_part_of(whole);
}
/// What a transport on top of C starts to carry out `whole`, or a part of it.
template <class C>
[[nodiscard]] typename C::exchange_type exchange_for(BoundTransfers const& whole, C& comm, std::span<Send const> sends,
                                                     std::span<Receive const> receives) {
    auto part = comm.bind(sends, receives);
    become_part_of(whole, part);
    part.start();
    return part;
}

/// Where a rank stands when a communicator is split along mesh axes: the part it is in, its place there.
struct MeshLine {
    int colour = -1;
    int key = 0;
};

/// Throws MeshError, on every rank alike, for an axis the mesh does not have or a mesh that exceeds the group.
[[nodiscard]] MeshLine mesh_line(DynamicMesh const& mesh, MeshAxes const& axes, int rank, int ranks);

/// Whether element k of one box is element k of the other: a copy between them means something.
[[nodiscard]] constexpr bool same_extents(StridedBox const& a, StridedBox const& b) noexcept {
    if (a.element_bytes != b.element_bytes || a.dims.size() != b.dims.size()) return false;
    for (int d = 0; d < a.dims.size(); ++d)
        if (a.dims[d].extent != b.dims[d].extent) return false;
    return true;
}

/// The same for the two sides of a transfer: also, values travel as the same type, or as they lie in memory on both.
template <class A, class B>
[[nodiscard]] constexpr bool same_extents(Transfer<A> const& a, Transfer<B> const& b) noexcept {
    if (a.conversion.is_active() != b.conversion.is_active()) return false;
    if (!a.conversion.is_active()) return same_extents(a.box, b.box);
    StridedBox box = a.box;
    box.element_bytes = b.box.element_bytes;
    return a.conversion.wire == b.conversion.wire && same_extents(box, b.box);
}

/// What the message of a mismatch says of one side of a transfer.
struct TransferSide {
    Index bytes = -1;  ///< on the wire; -1: there is none
    int wire = -1;     ///< the type on the way (DType, as a number); -1: elements travel as they are
};
template <class Byte>
[[nodiscard]] constexpr TransferSide side_of(Transfer<Byte> const* transfer) noexcept {
    if (transfer == nullptr) return {};
    Conversion const& change = transfer->conversion;
    return {transfer->payload_bytes(), change.is_active() ? static_cast<int>(change.wire) : -1};
}
/// The message of a payload mismatch, the same words on both ranks and on every transport.
[[nodiscard]] std::string mismatch_text(int sender, TransferSide sent, int receiver, TransferSide expected, int nth);
/// The same of the first of all transfers between two ranks that do not fit; empty: they do.
[[nodiscard]] std::string mismatch_text(int sender, std::span<Send const> sends, int receiver,
                                        std::span<Receive const> receives);

/// How a message ends where ranks are in different calls of a transport: with same_calls, and this.
inline constexpr std::string_view who_agrees =
    " (barrier(), prepare(), save() and load() call agree; wait for a ProgressThread before.)";
/// The message of ranks that have started exchanges which were bound in different places.
[[nodiscard]] std::string order_text(int rank, int other);
/// What is said of a rank that differs where neither it nor rank 0 has said what it has in hand.
inline constexpr std::string_view differs = "disagrees with rank 0. Fix: give every rank the same arguments.";

/// Stands in front of each option in the words of a rank that has several in hand. Of two that differ, each says the
/// first that does and what stands in front of all.
inline constexpr std::string_view next_option = "\x1f";

/// Makes of a verdict that of all, where `other`, of rank `its_rank`, differs: in its call, or in what it has in hand.
[[gnu::cold]] void tell_difference(Verdict& joint, Verdict const& other, int its_rank);

/// The verdict of all, given each rank's own: the one place that knows the rule. `get(r)` is the verdict of rank r.
template <class Get>
[[nodiscard, gnu::cold]] Verdict joint_verdict(int ranks, Get const& get) {
    int first = 0;
    while (first < ranks && get(first).ok()) ++first;
    bool const fails = first < ranks;
    if (!fails) first = 0;
    int other = 0;  // who is elsewhere comes before who differs: that decides whether ranks go on to agree
    while (other < ranks && get(other).call == get(first).call) ++other;
    if (other == ranks && !fails)
        for (other = 0; other < ranks && get(other).digest == get(0).digest;) ++other;
    Verdict joint = get(first);
    joint.rank = first;
    if (fails && other == ranks) joint.settle();
    if (other < ranks) tell_difference(joint, get(other), other);
    joint.words = nullptr;
    joint.call = {};
    return joint;
}

}  // namespace transport

/// What follows from the rest of a communicator, and what most have in common. Inherit it, and say
/// `using CommunicatorBase<Derived>::split;` beside your split(colour, key).
template <class Derived>
class CommunicatorBase {
public:
    CommunicatorBase() = default;
    CommunicatorBase(CommunicatorBase&&) noexcept = default;  // and so no copies, of whatever inherits it
    CommunicatorBase& operator=(CommunicatorBase&&) noexcept = default;

    /// The ranks of mesh.along(axes, rank), in its order: `split(mesh, "tp")`, `split(mesh, {"dp", "tp"})`,
    /// `split(mesh, 1)`. Ranks outside the mesh get a communicator of size 1. Throws MeshError for an axis that the
    /// mesh does not have, or a mesh with ranks the communicator does not have.
    [[nodiscard]] Derived split(DynamicMesh const& mesh, MeshAxes const& axes) {
        auto& self = static_cast<Derived&>(*this);
        auto const [colour, key] = transport::mesh_line(mesh, axes, self.rank(), self.size());
        return self.split(colour, key);
    }
    /// An exchange that is run once: what wait() of the result completes.
    auto exchange(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        auto& self = static_cast<Derived&>(*this);
        return detail::or_abort(self, [&] {
            auto bound = self.bind(sends, receives);
            bound.start();
            return bound;
        });
    }
    void check_memory(void const*) const noexcept {}
    [[nodiscard]] constexpr std::nullptr_t memory() const noexcept { return nullptr; }
    [[noreturn]] void terminate() noexcept { std::abort(); }
    /// For prepared plans: whoever waits for one run ends those that started before.
    [[nodiscard]] detail::RunsUnderWay& runs_under_way() noexcept { return runs_; }

private:
    detail::RunsUnderWay runs_;
};

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/comm/communicator.ipp>
#endif
