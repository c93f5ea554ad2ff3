// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/mpi.hpp
/// \brief  Ranks that are MPI processes: MpiCommunicator, memory they share on a node, run_on_mpi() which runs a
///         program.
/// \depends comm/communicator.hpp, memory, MPI 3.1 (C interface). Needs exceptions. Link reshard::mpi.
///
/// Between nodes boxes travel as MPI messages; two ranks with transfers first tell each other what they are, in one
/// small message each way, so that payloads that differ are an error there as well. On a node the receiver copies
/// straight from buffers of allocate(); from other memory it reads long rows by process_vm_readv, where the system
/// allows it, and takes short ones as messages. Transfers of a few kilobytes are copied through memory the ranks of the
/// node share.
#pragma once

#include <reshard/comm/detail/mpi_exchange.hpp>
#include <reshard/comm/detail/mpi_run.hpp>
#include <reshard/comm/detail/mpi_shared.hpp>
#include <reshard/core/tensor_view.hpp>
#include <reshard/memory/device_memory.hpp>

namespace reshard::inline v0 {

class MpiCommunicator;
namespace detail {
template <class F>
int run_ranks(MpiOptions const& options, F& body);
}

/// An exchange among MPI processes. Does its part in wait() or test(), so one of them must be called.
class [[nodiscard]] MpiRequest {
public:
    MpiRequest() = default;
    MpiRequest(MpiRequest&& other) noexcept : exchange_(std::exchange(other.exchange_, nullptr)) {}
    MpiRequest& operator=(MpiRequest&& other) noexcept {
        if (this == &other) return *this;
        finish_quietly();
        exchange_ = std::exchange(other.exchange_, nullptr);
        return *this;
    }
    MpiRequest(MpiRequest const&) = delete;
    MpiRequest& operator=(MpiRequest const&) = delete;
    /// After a failure it does not wait: buffers of the communicator that MPI may still use are kept for good. Memory of
    /// the caller is named by the error of wait() where MPI has it still, which this cannot do: see docs/failures.md.
    ~MpiRequest() { finish_quietly(); }

    void wait() {
        if (auto* const exchange = std::exchange(exchange_, nullptr)) exchange->wait();
    }
    [[nodiscard]] bool test() {
        auto* const exchange = std::exchange(exchange_, nullptr);  // if this throws, the exchange is over
        if (exchange == nullptr || exchange->test()) return true;
        exchange_ = exchange;
        return false;
    }
    [[nodiscard]] bool done() const noexcept { return exchange_ == nullptr; }

private:
    friend class MpiCommunicator;
    explicit MpiRequest(detail::MpiExchange& exchange) noexcept : exchange_(&exchange) {}
    void finish_quietly() noexcept {
        try {
            wait();
        } catch (...) {  // the other ranks know; this one asks the communicator again, or never
        }
    }

    detail::MpiExchange* exchange_ = nullptr;
};

/// Memory that the ranks of a node read in place. Made by MpiCommunicator::allocate(); each rank owns its own part and
/// frees it without waiting for the others. Move-only; all elements are zero bytes; aligned to a page.
template <Element T>
class MpiBuffer {
public:
    MpiBuffer() = default;
    MpiBuffer(MpiBuffer&& other) noexcept
        : family_(std::move(other.family_)),
          data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)),
          key_(other.key_) {}
    MpiBuffer& operator=(MpiBuffer&& other) noexcept {
        if (this == &other) return *this;
        release();
        family_ = std::move(other.family_);
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
        key_ = other.key_;
        return *this;
    }
    ~MpiBuffer() { release(); }

    [[nodiscard]] T* data() noexcept { return data_; }
    [[nodiscard]] T const* data() const noexcept { return data_; }
    [[nodiscard]] Index size() const noexcept { return size_; }
    [[nodiscard]] std::span<T> span() noexcept { return {data_, static_cast<std::size_t>(size_)}; }
    [[nodiscard]] std::span<T const> span() const noexcept { return {data_, static_cast<std::size_t>(size_)}; }
    /// A dense row-major tensor in it. Throws BufferError for a shape with more elements than the buffer has.
    [[nodiscard]] TensorView<T> view(DynamicShape const& shape) {
        check(shape);
        return {data_, shape};
    }
    [[nodiscard]] TensorView<T const> view(DynamicShape const& shape) const {
        check(shape);
        return {data_, shape};
    }

private:
    friend class MpiCommunicator;
    void check(DynamicShape const& shape) const {
        if (shape.size() <= size_) return;
        raise(ErrorCode::buffer, concat("reshard::MpiBuffer: a view of shape ", to_string(shape), " in a buffer of ",
                                        size_, " elements. Fix: allocate as many as the shape has."));
    }
    void release() noexcept {
        if (family_) detail::release_segments(*family_, key_);
        family_.reset();
        data_ = nullptr;
        size_ = 0;
    }

    std::shared_ptr<detail::MpiFamily> family_;
    T* data_ = nullptr;
    Index size_ = 0;
    std::uint64_t key_ = 0;
};

/// A rank among MPI processes. Used by one thread at a time; must be gone before MPI_Finalize.
class MpiCommunicator : public MeshSplit<MpiCommunicator> {
public:
    static constexpr std::string_view name = "mpi";
    using request_type = MpiRequest;
    using MeshSplit<MpiCommunicator>::split;

    /// Collective over `comm`, of which it takes a private duplicate: no message of the program can meet one of its
    /// own. Throws MismatchError on every rank when path or ranks_per_node are not the same everywhere; TransportError:
    /// MPI not initialised or already finalised, MPI_COMM_NULL, an inter-communicator, a thread MPI was not initialised
    /// for, attach where it does not work.
    explicit MpiCommunicator(MPI_Comm comm, MpiOptions const& options = {}) {
        detail::check_mpi_environment(comm);
        MPI_Comm own = MPI_COMM_NULL;
        detail::mpi_check(MPI_Comm_dup(comm, &own), "MPI_Comm_dup");
        exchange_ = detail::make_mpi_exchange(detail::make_mpi_team(own, nullptr, 0, options));
    }
    MpiCommunicator(MpiCommunicator&&) noexcept = default;
    MpiCommunicator& operator=(MpiCommunicator&&) noexcept = default;
    MpiCommunicator(MpiCommunicator const&) = delete;
    MpiCommunicator& operator=(MpiCommunicator const&) = delete;
    ~MpiCommunicator() = default;

    [[nodiscard]] int rank() const noexcept { return team().rank(); }
    [[nodiscard]] int size() const noexcept { return team().size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return exchange_->traffic(); }
    /// The private duplicate, for other libraries that need a communicator of these ranks. Errors return.
    [[nodiscard]] MPI_Comm native() const noexcept { return team().comm(); }
    /// How the ranks of this node reach each other's ordinary memory: attach or messages.
    [[nodiscard]] MpiPath path() const noexcept { return team().attach() ? MpiPath::attach : MpiPath::messages; }

    /// Lays the transfers out for the ranks of this node, starts messages to the others and from those that have said
    /// what they send, and returns; never blocks. The rest of what comes is received in wait() and test().
    /// Memory is the host's (prepare() asks check_memory()). Throws TransportError for transfers out of order or an
    /// exchange already under way.
    MpiRequest exchange(std::span<Send const> sends, std::span<Receive const> receives) {
        enter(detail::MpiCall::exchange);
        exchange_->start(sends, receives);
        return MpiRequest(*exchange_);
    }

    [[nodiscard]] Verdict agree(Verdict const& mine) {
        enter(detail::MpiCall::agree);
        return team().agree(mine);
    }

    /// Collective. Ranks of one colour >= 0, ordered by (key, rank). The new communicator shares the fate of this one:
    /// poison in one is poison in both. The wait for all ranks has the deadline; MPI_Comm_split itself cannot be given
    /// up, so a rank that dies inside it is the launcher's business.
    [[nodiscard]] MpiCommunicator split(int colour, int key) {
        enter(detail::MpiCall::split);
        return MpiCommunicator(detail::make_mpi_exchange(team().split(colour, key)));
    }

    /// Throws BufferError for memory of a device: this transport moves the host's.
    void check_memory(void const* memory) const { refuse_device_memory(name, memory); }

    void abort(ErrorCode code, std::string_view reason) noexcept { team().poison(code, reason); }
    /// Ends the program on all ranks by MPI_Abort: what AbortOnFailure does in the end.
    [[noreturn]] static void terminate() noexcept {
        std::fflush(nullptr);
        MPI_Abort(MPI_COMM_WORLD, 1);
        std::abort();  // MPI_Abort does not return, but MPI does not say so
    }

    /// Collective: `elements` elements on this rank (other ranks may ask for another number) that the ranks of its node
    /// read in place. Where the system lets processes share nothing, ordinary memory. Throws OutOfMemory on every rank
    /// if one has too little. Freeing is local, but peers may be reading: keep the buffer while an exchange uses it.
    template <Element T>
    [[nodiscard]] MpiBuffer<T> allocate(Index elements) {
        static_assert(std::is_trivially_copyable_v<T>, "reshard::MpiCommunicator: elements are moved as bytes.");
        enter(detail::MpiCall::allocate);
        MpiBuffer<T> buffer;
        Index bytes = 0;
        Verdict mine;
        if (elements < 0 || !multiply_fits(elements, static_cast<Index>(sizeof(T)), bytes)) {
            mine.code = ErrorCode::buffer;
            mine.reason = concat("reshard::MpiCommunicator: a buffer of ", elements, " elements of ", sizeof(T),
                                 " bytes. Fix: check the count.");
            bytes = 0;
        }
        auto const [data, key] = detail::allocate_shared(team(), bytes, std::move(mine));
        buffer.family_ = team().family();
        buffer.data_ = reinterpret_cast<T*>(data);
        buffer.size_ = elements;
        buffer.key_ = key;
        return buffer;
    }

private:
    template <class F>
    friend int detail::run_ranks(MpiOptions const& options, F& body);
    explicit MpiCommunicator(std::shared_ptr<detail::MpiExchange> exchange) noexcept : exchange_(std::move(exchange)) {}

    [[nodiscard]] detail::MpiTeam& team() const noexcept { return *exchange_->team(); }
    void enter(detail::MpiCall call) {
        if (exchange_->busy()) {
            raise(ErrorCode::transport,
                  "reshard::MpiCommunicator: an exchange is under way. Fix: wait() for its request first, or split the "
                  "communicator.");
        }
        team().enter(call);
    }

    std::shared_ptr<detail::MpiExchange> exchange_;
};

static_assert(Communicator<MpiCommunicator>);

namespace detail {

template <class F>
int run_ranks(MpiOptions const& options, F& body) {
    std::shared_ptr<MpiTeam> team;
    bool well = false;
    try {
        MpiCommunicator comm(MPI_COMM_WORLD, options);
        team = comm.exchange_->team();
        try {
            body(comm);
            well = true;
            team->leave();
        } catch (Error const& error) {
            report_end(*team, error.code(), error.message());
        } catch (std::exception const& error) {
            report_end(*team, ErrorCode::user, error.what());
        } catch (...) {
            report_end(*team, ErrorCode::user, "an exception that is not a std::exception");
        }
    } catch (std::exception const& error) {  // from the constructor
        std::fprintf(stderr, "reshard: %s\n", error.what());
        std::fflush(nullptr);
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    if (all_ended_well(*team, well)) return 0;
    // MPI_Finalize waits for messages that will never come.
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

}  // namespace detail

/// Runs body(MpiCommunicator&) on every process that mpirun started and returns this process's exit code; to be called
/// once, where main() would do its work. Initialises MPI, and finalises it, unless the program has done so.
///
/// A failure is printed once: an exception by the rank it belongs to; what a rank cannot tell itself, because it has
/// died, has left or sleeps, by the rank that saw it first. The others get PeerFailed, which names rank and reason,
/// from their current or next call. Then the program ends by MPI_Abort, after all ranks have had a moment (2 s, or the
/// deadline) to report.
template <class F>
int run_on_mpi(MpiOptions const& options, F&& body) {
    bool const ours = !detail::mpi_is_initialised();
    if (ours) {
        int level = 0;
        if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
            std::fputs("reshard: MPI_Init_thread failed.\n", stderr);
            return 1;
        }
    }
    int const code = detail::run_ranks(options, body);
    if (ours && code == 0 && !detail::mpi_is_finalised()) MPI_Finalize();
    return code;
}
template <class F>
int run_on_mpi(F&& body) {
    return run_on_mpi(MpiOptions{}, body);
}

}  // namespace reshard::inline v0
