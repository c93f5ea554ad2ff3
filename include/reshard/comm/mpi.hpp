// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/mpi.hpp
/// \brief  Ranks that are MPI processes: MpiCommunicator, memory they share on a node, run_on_mpi() which runs a
///         program.
/// \depends comm/detail/{element_buffer,group_engine}.hpp, comm/mpi_options.hpp, core/function_ref.hpp, <memory>. Needs
/// exceptions. Link reshard::mpi.
///
/// Between nodes boxes travel as MPI messages; two ranks with transfers first tell each other what they are, in one
/// small message each way, so that payloads that differ are an error there as well. On a node the receiver copies
/// straight from buffers of allocate(); from other memory it reads long rows by process_vm_readv, where the system
/// allows it, and takes short ones as messages. Transfers of a few kilobytes are copied through memory the ranks of the
/// node share.
#pragma once

#include <reshard/comm/detail/element_buffer.hpp>
#include <reshard/comm/detail/group_engine.hpp>
#include <reshard/comm/mpi_options.hpp>
#include <reshard/core/function_ref.hpp>

#include <memory>  // shared_ptr, unique_ptr
#include <span>    // span

namespace reshard::inline v0_1 {

class MpiCommunicator;

namespace detail {

class MpiExchange;
class MpiFamily;
int run_on_mpi(MpiOptions const& options, FunctionRef<void(MpiCommunicator&)> body);

/// Frees the memory of an MpiBuffer. Blocks nobody.
struct MpiRelease {
    std::shared_ptr<MpiFamily> family;
    std::uint64_t key = 0;

    void operator()(std::byte* memory) const noexcept;
};
using MpiMemory = std::unique_ptr<std::byte, MpiRelease>;

}  // namespace detail

/// Memory that the ranks of a node read in place. Made by MpiCommunicator::allocate(); each rank owns its own part and
/// frees it without waiting for the others. Move-only; all elements are zero bytes; aligned to a page.
template <Element T>
using MpiBuffer = detail::ElementBuffer<T, detail::MpiMemory>;

/// A rank among MPI processes. Used by one thread at a time; must be gone before MPI_Finalize.
///
/// A split waits for all ranks as long as the deadline; MPI_Comm_split itself cannot be given up, so a rank that dies
/// inside it is the launcher's business. Memory of a device is a BufferError: this transport moves the host's.
class MpiCommunicator : public detail::GroupCommunicator<MpiCommunicator> {
public:
    static constexpr std::string_view name = "mpi";
    using detail::GroupCommunicator<MpiCommunicator>::GroupCommunicator;

    /// Collective over `comm`, of which it takes a private duplicate: no message of the program can meet one of its
    /// own. Throws MismatchError on every rank when path, ranks_per_node or deadline are not the same everywhere;
    /// TransportError: MPI not initialised or already finalised, MPI_COMM_NULL, an inter-communicator, a thread MPI was
    /// not initialised for, attach where it does not work.
    explicit MpiCommunicator(MPI_Comm comm, MpiOptions const& options = {});

    /// The private duplicate. For other libraries make one more (MPI_Comm_dup): their messages would meet its own.
    /// Errors return.
    [[nodiscard]] MPI_Comm native() const noexcept;
    /// How the ranks of this node reach each other's ordinary memory: attach or messages.
    [[nodiscard]] MpiPath path() const noexcept;

    /// What is bound, when it is started, lays the transfers out for the ranks of this node, starts messages to the
    /// others (of more than 2 MiB a transfer, once they have said how they take them) and from those that have said
    /// what they send, and returns; it never blocks. The rest is moved in wait() and test(), so one of them must be
    /// called. Memory is the host's (prepare() asks check_memory()). After a failure the end of an exchange does not
    /// wait: buffers of the communicator that MPI may still use are kept for good; memory of the caller that MPI has
    /// still is named by the error of wait(), which a destructor cannot do: see docs/failures.md. Throws TransportError
    /// for transfers out of order or elements of more than 512 KiB.
    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives);

    /// Ends the program on all ranks by MPI_Abort: what AbortOnFailure does in the end.
    [[noreturn]] void terminate() noexcept;

    /// Collective: `elements` elements on this rank (other ranks may ask for another number) that the ranks of its node
    /// read in place. Where the system lets processes share nothing, ordinary memory. Throws OutOfMemory on every rank
    /// if one has too little, or all of a node together, by what the machine and their control groups have left.
    /// Freeing is local, but peers may be reading: keep the buffer while an exchange uses it.
    template <Element T>
    [[nodiscard]] MpiBuffer<T> allocate(Index elements) {
        static_assert(std::is_trivially_copyable_v<T>, "reshard::MpiCommunicator: elements are moved as bytes.");
        return MpiBuffer<T>(allocate_bytes(elements, detail::as_index(sizeof(T))), elements);
    }

private:
    [[nodiscard]] detail::MpiExchange& engine() const noexcept;
    [[nodiscard]] detail::MpiMemory allocate_bytes(Index elements, Index element_bytes);
};

static_assert(Communicator<MpiCommunicator>);

/// Runs body(MpiCommunicator&) on every process that mpirun started and returns this process's exit code; to be called
/// once, where main() would do its work. Initialises MPI, and finalises it, unless the program has done so.
///
/// A failure is printed once: an exception by the rank it belongs to, each that fails by itself; what a rank cannot
/// tell itself, because it has died, has left or sleeps, by the rank that saw it first. The others get PeerFailed,
/// which names rank and reason, from their current or next call. Then the program ends by MPI_Abort, after all ranks
/// have had a moment (2 s, or the deadline) to report.
template <class F>
int run_on_mpi(MpiOptions const& options, F&& body) {
    return detail::run_on_mpi(options, [&](MpiCommunicator& comm) { body(comm); });
}
template <class F>
int run_on_mpi(F&& body) {
    return run_on_mpi(MpiOptions{}, body);
}

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MPI)
#include <reshard/comm/mpi.ipp>
#endif
