// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/any_communicator.hpp
/// \brief  A communicator as a value: CommunicatorRef refers to one of any type, AnyCommunicator owns one.
/// \depends comm/{communicator,detail/element_buffer}.hpp, memory/memory_policy.hpp, <new>.
///
///     AnyCommunicator comm{MpiCommunicator{MPI_COMM_WORLD}};         // a transport that is picked at run time
///     redistribute(plan, comm, source, destination);                // whatever takes a communicator takes it
///
/// Everything behind the public functions of this library takes a CommunicatorRef, to which every communicator
/// converts: an indirect call per exchange, and nothing is compiled again for each transport.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/comm/detail/element_buffer.hpp>
#include <reshard/memory/memory_policy.hpp>

#include <new>  // placement new

namespace reshard::inline v0_1 {

namespace detail {

/// What can be asked of an exchange of a type that only its maker knows.
struct ExchangeTable {
    void (*start)(void* exchange);
    void (*wait)(void* exchange);
    bool (*test)(void* exchange);
    bool (*done)(void const* exchange) noexcept;
    void (*become_part_of)(void* exchange, transport::BoundTransfers const& whole) noexcept;
    void (*move)(void* from, void* to) noexcept;  ///< makes *to, ends *from
    void (*end)(void* exchange) noexcept;
};
/// Where an exchange is that is larger than the room for it. (<memory> would cost every program that includes this.)
template <class E>
class FarExchange {
public:
    explicit FarExchange(E exchange) : exchange_(new E(std::move(exchange))) {}
    FarExchange(FarExchange&& other) noexcept : exchange_(std::exchange(other.exchange_, nullptr)) {}
    FarExchange& operator=(FarExchange&&) = delete;
    ~FarExchange() { delete exchange_; }
    void start() { exchange_->start(); }
    void wait() { exchange_->wait(); }
    [[nodiscard]] bool test() { return exchange_->test(); }
    [[nodiscard]] bool done() const noexcept { return exchange_->done(); }
    void become_part_of(transport::BoundTransfers const& whole) noexcept {
        transport::become_part_of(whole, *exchange_);
    }

private:
    E* exchange_;
};
/// `Held`: an exchange, or a FarExchange.
template <class Held>
inline constexpr ExchangeTable exchange_table{
    [](void* held) { static_cast<Held*>(held)->start(); },
    [](void* held) { static_cast<Held*>(held)->wait(); },
    [](void* held) { return static_cast<Held*>(held)->test(); },
    [](void const* held) noexcept { return static_cast<Held const*>(held)->done(); },
    [](void* held, transport::BoundTransfers const& whole) noexcept {
        transport::become_part_of(whole, *static_cast<Held*>(held));
    },
    [](void* from, void* to) noexcept {
        ::new (to) Held(std::move(*static_cast<Held*>(from)));
        static_cast<Held*>(from)->~Held();
    },
    [](void* held) noexcept { static_cast<Held*>(held)->~Held(); },
};

}  // namespace detail

/// An exchange of any communicator. Nothing is allocated for exchanges of up to `room` bytes, which those of every
/// transport of this library are, and of all policies around one.
class [[nodiscard]] AnyExchange {
public:
    static constexpr std::size_t room = 192;

    AnyExchange() = default;
    template <class E>
        requires(!std::same_as<E, AnyExchange> && BoundExchange<E>)
    explicit AnyExchange(E exchange) : table_(&detail::exchange_table<Held<E>>) {
        ::new (static_cast<void*>(room_)) Held<E>(std::move(exchange));
    }
    AnyExchange(AnyExchange&& other) noexcept { take(other); }
    AnyExchange& operator=(AnyExchange&& other) noexcept {
        if (this == &other) return *this;
        end();
        take(other);
        return *this;
    }
    ~AnyExchange() { end(); }

    void start() {
        if (table_ == nullptr) return transport::InOrder().start();  // says what is wrong
        table_->start(room_);
    }
    void wait() {
        if (table_ != nullptr) table_->wait(room_);
    }
    [[nodiscard]] bool test() { return table_ == nullptr || table_->test(room_); }
    [[nodiscard]] bool done() const noexcept { return table_ == nullptr || table_->done(room_); }
    /// As transport::InOrder.
    void become_part_of(transport::BoundTransfers const& whole) noexcept {
        if (table_ != nullptr) table_->become_part_of(room_, whole);
    }

private:
    template <class E>
    using Held =
        std::conditional_t<sizeof(E) <= room && alignof(E) <= alignof(std::max_align_t), E, detail::FarExchange<E>>;

    void take(AnyExchange& other) noexcept {
        table_ = std::exchange(other.table_, nullptr);
        if (table_ != nullptr) table_->move(other.room_, room_);
    }
    void end() noexcept {
        if (table_ != nullptr) std::exchange(table_, nullptr)->end(room_);
    }

    detail::ExchangeTable const* table_ = nullptr;
    alignas(std::max_align_t) std::byte room_[room];
};

namespace detail {

template <class C>
[[nodiscard]] constexpr auto allocates() noexcept -> Workspace (*)(void* comm, Index bytes) {
    if constexpr (requires(C & comm, Index bytes) { comm.template allocate<std::byte>(bytes); }) {
        return [](void* comm, Index bytes) {
            return Workspace(static_cast<C*>(comm)->template allocate<std::byte>(bytes));
        };
    } else {
        return nullptr;
    }
}

/// Null: a type that is no CommunicatorBase keeps none.
template <class C>
[[nodiscard]] RunsUnderWay* runs_of(void* comm) noexcept {
    if constexpr (requires(C & c) { c.runs_under_way(); }) {
        return &static_cast<C*>(comm)->runs_under_way();
    } else {
        return nullptr;
    }
}

/// What can be asked of a communicator of a type that only its owner knows.
struct CommunicatorTable {
    std::string_view name;
    int (*rank)(void const* comm) noexcept;
    int (*size)(void const* comm) noexcept;
    Traffic (*traffic)(void const* comm) noexcept;
    AnyExchange (*bind)(void* comm, std::span<Send const> sends, std::span<Receive const> receives);
    Verdict (*agree)(void* comm, Verdict mine);
    void* (*split)(void* comm, int colour, int key);  ///< a new communicator of the same type
    void (*abort)(void* comm, ErrorCode code, std::string_view reason) noexcept;
    void (*check_memory)(void* comm, void const* memory);
    MemoryPolicy const* (*memory)(void* comm);
    Workspace (*allocate)(void* comm, Index bytes);  ///< null: peers read no memory in place
    void (*terminate)(void* comm) noexcept;
    RunsUnderWay* (*runs)(void* comm) noexcept;
    void (*end)(void* comm) noexcept;
};
template <class C>
inline constexpr CommunicatorTable communicator_table{
    C::name,
    [](void const* comm) noexcept { return static_cast<C const*>(comm)->rank(); },
    [](void const* comm) noexcept { return static_cast<C const*>(comm)->size(); },
    [](void const* comm) noexcept { return static_cast<C const*>(comm)->traffic(); },
    [](void* comm, std::span<Send const> sends, std::span<Receive const> receives) {
        return AnyExchange(static_cast<C*>(comm)->bind(sends, receives));
    },
    [](void* comm, Verdict mine) { return static_cast<C*>(comm)->agree(std::move(mine)); },
    [](void* comm, int colour, int key) -> void* {
        C part = static_cast<C*>(comm)->split(colour, key);  // first: others wait for this rank there
        return new C(std::move(part));
    },
    [](void* comm, ErrorCode code, std::string_view reason) noexcept { static_cast<C*>(comm)->abort(code, reason); },
    [](void* comm, void const* memory) { static_cast<C*>(comm)->check_memory(memory); },
    [](void* comm) -> MemoryPolicy const* { return static_cast<C*>(comm)->memory(); },
    allocates<C>(),
    [](void* comm) noexcept { static_cast<C*>(comm)->terminate(); },
    runs_of<C>,
    [](void* comm) noexcept { delete static_cast<C*>(comm); },
};

/// Says what a type lacks that is meant as a communicator: the first row of the concept's table that it does not have.
template <class C>
consteval bool check_communicator_rows() {
    constexpr bool named = requires { std::string_view(C::name); };
    static_assert(named, "reshard: this communicator has no name. Fix: add `static constexpr std::string_view name`.");
    constexpr bool moves = named && std::movable<C> && !std::copyable<C>;
    static_assert(!named || moves,
                  "reshard: this communicator is not move-only. Fix: delete its copies, keep its moves.");
    constexpr bool exchanges = moves && requires { requires BoundExchange<typename C::exchange_type>; };
    static_assert(!moves || exchanges,
                  "reshard: this communicator has no exchange_type that is a BoundExchange. "
                  "Fix: name one, such as transport::InOrder.");
    constexpr bool has_rank = exchanges && requires(C const& c) {
        { c.rank() }
        noexcept->std::same_as<int>;
    };
    static_assert(!exchanges || has_rank,
                  "reshard: this communicator has no `int rank() const noexcept`. Fix: declare it so.");
    constexpr bool has_size = has_rank && requires(C const& c) {
        { c.size() }
        noexcept->std::same_as<int>;
    };
    static_assert(!has_rank || has_size,
                  "reshard: this communicator has no `int size() const noexcept`. Fix: declare it so.");
    constexpr bool binds = has_size && requires(C & c, std::span<Send const> sends, std::span<Receive const> receives) {
        { c.bind(sends, receives) } -> std::same_as<typename C::exchange_type>;
    };
    static_assert(!has_size || binds,
                  "reshard: this communicator has no `exchange_type bind(std::span<transport::Send const>, "
                  "std::span<transport::Receive const>)`. Fix: declare it so.");
    constexpr bool derives = binds && requires(C & c, std::span<Send const> none, void const* memory) {
        { c.exchange(none, std::span<Receive const>()) } -> std::same_as<typename C::exchange_type>;
        { c.check_memory(memory) } -> std::same_as<void>;
        { c.memory() } -> std::convertible_to<MemoryPolicy const*>;
        c.terminate();
    };
    static_assert(!binds || derives,
                  "reshard: this communicator has no exchange(), check_memory(), memory() or terminate(). "
                  "Fix: inherit CommunicatorBase<C>, which has them.");
    constexpr bool agrees = derives && requires(C & c, Verdict mine) {
        { c.agree(std::move(mine)) } -> std::same_as<Verdict>;
    };
    static_assert(!derives || agrees,
                  "reshard: this communicator has no `transport::Verdict agree(transport::Verdict)`. "
                  "Fix: declare it so.");
    constexpr bool splits = agrees && requires(C & c, DynamicMesh const& mesh) {
        { c.split(0, 0) } -> std::same_as<C>;
        { c.split(mesh, 0) } -> std::same_as<C>;
    };
    static_assert(!agrees || splits,
                  "reshard: this communicator has no `C split(int colour, int key)`, or not both. Fix: inherit "
                  "CommunicatorBase<C>, declare it so, and say `using CommunicatorBase<C>::split;`.");
    static_assert(!splits,
                  "reshard: this communicator has no `Traffic traffic() const noexcept`, or abort() or terminate() is "
                  "missing or not noexcept. Fix: declare them as the concept Communicator lists them.");
    return true;
}
/// Says why what was given where a communicator belongs cannot be one.
template <class Given>
consteval bool check_communicator() {
    using C = std::remove_cvref_t<Given>;
    if constexpr (Communicator<C>) {
        constexpr bool is_const = std::is_const_v<std::remove_reference_t<Given>>;
        static_assert(!is_const,
                      "reshard: this communicator is const, and what it does changes it. "
                      "Fix: pass it, and take it, without const.");
        static_assert(is_const,
                      "reshard: this communicator is a temporary, and what is prepared or under way refers to it. "
                      "Fix: give it a name and pass that.");
    } else {
        constexpr bool ranks = requires { typename C::exchange_type; }
        || requires(C & c) {
            c.rank();
            c.size();
        };
        static_assert(ranks,
                      "reshard: this is no communicator, it has no rank() and size(). Fix: pass a SelfCommunicator, "
                      "ThreadCommunicator, MpiCommunicator or NcclCommunicator, not a pointer to one.");
        if constexpr (ranks) return check_communicator_rows<C>();
    }
    return true;
}

}  // namespace detail

class AnyCommunicator;

/// Refers to a communicator, which must outlive it and stay where it is. Two words, passed by value; functions of this
/// library take it, so that they are ordinary functions. Its members are those of the concept Communicator.
class CommunicatorRef {
public:
    template <class C>
        requires(!std::same_as<std::remove_const_t<C>, CommunicatorRef> && !std::same_as<C, AnyCommunicator> &&
                 Communicator<C>)
    CommunicatorRef(C& comm)
    noexcept : comm_(&comm), table_(&detail::communicator_table<C>) {}
    inline CommunicatorRef(AnyCommunicator& comm) noexcept;
    /// Refuses, in words, what is no communicator that can be referred to. Tensors go to overloads without one.
    template <class Given>
        requires(!std::same_as<std::remove_cvref_t<Given>, CommunicatorRef> &&
                 !requires(Given & given) { given.shape(); })
    // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): it hides no copy, the requirement sees to that
    CommunicatorRef(Given&&) : comm_(nullptr), table_(nullptr) { static_assert(detail::check_communicator<Given>()); }

    [[nodiscard]] std::string_view name() const noexcept { return table_->name; }
    [[nodiscard]] int rank() const noexcept { return table_->rank(comm_); }
    [[nodiscard]] int size() const noexcept { return table_->size(comm_); }
    [[nodiscard]] Traffic traffic() const noexcept { return table_->traffic(comm_); }
    AnyExchange bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) const {
        return table_->bind(comm_, sends, receives);
    }
    AnyExchange exchange(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) const {
        return detail::or_abort(*this, [&, this] {
            AnyExchange bound = bind(sends, receives);
            bound.start();
            return bound;
        });
    }
    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) const {
        return table_->agree(comm_, std::move(mine));
    }
    [[nodiscard]] inline AnyCommunicator split(int colour, int key) const;
    void abort(ErrorCode code, std::string_view reason) const noexcept { table_->abort(comm_, code, reason); }

    void check_memory(void const* memory) const { table_->check_memory(comm_, memory); }
    [[nodiscard]] MemoryPolicy const* memory() const { return table_->memory(comm_); }
    /// Collective: memory of so many bytes (each rank says how many), which the other ranks of a node read in place
    /// where the transport has such. A rank that has none left is an OutOfMemory on all.
    [[nodiscard]] Workspace allocate(Index bytes) const;
    [[noreturn]] void terminate() const noexcept {
        table_->terminate(comm_);
        std::abort();
    }

    /// As CommunicatorBase; null where the communicator is none.
    [[nodiscard]] detail::RunsUnderWay* runs_under_way() const noexcept { return table_->runs(comm_); }

private:
    friend class AnyCommunicator;
    CommunicatorRef(void* comm, detail::CommunicatorTable const* table) noexcept : comm_(comm), table_(table) {}

    void* comm_;
    detail::CommunicatorTable const* table_;
};

/// Owns a communicator of any type. A communicator itself: it can be split, wrapped in policies (Traced,
/// AbortOnFailure; a policy of memory goes inside), passed on. What it does is what a reference to the one inside does.
class AnyCommunicator : public CommunicatorBase<AnyCommunicator>, private CommunicatorRef {
public:
    static constexpr std::string_view name = "any";
    using exchange_type = AnyExchange;
    using CommunicatorBase<AnyCommunicator>::split, CommunicatorRef::split;
    using CommunicatorRef::rank, CommunicatorRef::size, CommunicatorRef::traffic, CommunicatorRef::bind,
        CommunicatorRef::exchange, CommunicatorRef::agree, CommunicatorRef::abort, CommunicatorRef::check_memory,
        CommunicatorRef::memory, CommunicatorRef::terminate, CommunicatorRef::runs_under_way;

    template <class C>
        requires(!std::same_as<C, AnyCommunicator> && Communicator<C>)
    explicit AnyCommunicator(C comm) : CommunicatorRef(new C(std::move(comm)), &detail::communicator_table<C>) {}
    AnyCommunicator(AnyCommunicator&& other) noexcept
        : CommunicatorRef(std::exchange(other.comm_, nullptr), other.table_) {}
    AnyCommunicator& operator=(AnyCommunicator&& other) noexcept {
        std::swap(comm_, other.comm_);
        std::swap(table_, other.table_);
        return *this;
    }
    ~AnyCommunicator() {
        if (comm_ != nullptr) table_->end(comm_);
    }

    /// CommunicatorRef::allocate() as transports have it, MpiCommunicator for one: `elements` elements, each rank as
    /// many as it says, of which the result has data(), size(), span() and view(shape).
    template <Element T>
    [[nodiscard]] auto allocate(Index elements) {
        static_assert(std::is_trivially_copyable_v<T>, "reshard::AnyCommunicator: elements are moved as bytes.");
        Index bytes = 0;  // a count that is none, or has too many bytes, is an error of all, not of this rank
        if (elements < 0 || !detail::multiply_fits(elements, detail::as_index(sizeof(T)), bytes)) bytes = -1;
        return detail::ElementBuffer<T, Workspace>(CommunicatorRef::allocate(bytes), elements);
    }

private:
    friend class CommunicatorRef;
    explicit AnyCommunicator(CommunicatorRef made) noexcept : CommunicatorRef(made) {}
};

inline CommunicatorRef::CommunicatorRef(AnyCommunicator& comm) noexcept : CommunicatorRef(comm.comm_, comm.table_) {}
inline AnyCommunicator CommunicatorRef::split(int colour, int key) const {
    return AnyCommunicator(CommunicatorRef(table_->split(comm_, colour, key), table_));
}

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/comm/any_communicator.ipp>
#endif
