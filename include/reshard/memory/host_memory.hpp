// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/host_memory.hpp
/// \brief  Memory as a policy: who allocates, copies, folds and fills where a plan's tensors lie. HostMemory: the host.
/// \depends core; memory/deliver.hpp, memory/device_memory.hpp, memory/fold.hpp; <span>, <vector>.
///
/// A communicator says where the tensors of its plans lie by a member memory(), which returns a value of such a type
/// (transport::memory_of() asks it, through policies); one that has none means the host. Prepared plans do everything
/// by it that is no exchange. memory/on_device.cuh has the one for devices, comm/detail/device_or_host_memory.cuh the
/// one where each tensor lies on either side.
///
/// Syntax                               | Meaning
/// -------------------------------------|-----------------------------------------------------------------------------
/// M::computes                          | false: deliver() copies, and the other operations do not exist; then
///                                      | M::remedy, a text, ends the message that refuses plans that need them
/// m.check(what, memory, alignment)     | throws BufferError for memory that m cannot work on; `what` names it
/// M::workspace_type, m.allocate(bytes) | scratch memory, aligned to 64: movable, has data(). Only in prepare()
/// m.deliver(sends, receives)           | send k into receive k: copied, or converted as both conversions say. All
///                                      | sends lie in one tensor, all receives in one
/// m.fold(...), m.fill_identity(...)    | as the functions of memory/fold.hpp; the last arguments have no default
/// m.scale(...)                         | likewise
/// m.fold_into(...)                     | optional: fold() into a Receive, and its results converted as that says
/// m.check_scratch(memory)              | optional: check() of scratch memory that the caller gives
///
/// An operation may return before its work is done, as those of a stream do; then whoever states m sees to the order:
/// an exchange reads what was asked of m before it, and what is asked of m after wait() finds what has arrived.
/// Operations allocate nothing. They may throw: what they throw on one rank poisons the communicator.
#pragma once

#include <reshard/memory/deliver.hpp>
#include <reshard/memory/device_memory.hpp>
#include <reshard/memory/fold.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0 {

/// \concept MemoryPolicy
template <class M>
concept MemoryPolicy = std::copyable<M> && requires(M const& m, Index bytes) {
    { M::computes } -> std::convertible_to<bool>;
    { m.allocate(bytes) } -> std::same_as<typename M::workspace_type>;
};

/// `Byte` is std::byte: a template, so that only files that prepare a plan compile the kernels of all types.
template <class Byte>
class BasicHostMemory {
public:
    using workspace_type = std::vector<Byte>;
    static constexpr bool computes = true;

    static void check(std::string_view what, void const* memory, Index) {
        if (!is_device_memory(memory)) return;
        raise(ErrorCode::buffer, concat("reshard: the ", what,
                                        " lies in memory of a CUDA device, where the host cannot work. Fix: copy it to "
                                        "the host first, or pass a communicator for devices, or without one a "
                                        "DeviceMemory."));
    }
    [[nodiscard]] static workspace_type allocate(Index bytes) {
        return workspace_type(static_cast<std::size_t>(bytes));
    }

    static void deliver(std::span<Transfer<Byte const> const> sends,
                        std::span<Transfer<Byte> const> receives) noexcept {
        for (std::size_t k = 0; k < sends.size(); ++k) reshard::deliver(sends[k], receives[k]);
    }
    static void fold(Reduce op, DType dtype, Byte const* slots, Index slot_bytes, Index count,
                     StridedBox const& slot_box, Byte* to, StridedBox const& to_box, Index divisor) noexcept {
        reshard::fold(op, dtype, slots, slot_bytes, count, slot_box, to, to_box, divisor);
    }
    static void fill_identity(Reduce op, DType dtype, Byte* to, StridedBox const& box) noexcept {
        reshard::fill_identity(op, dtype, to, box);
    }
    static void scale(DType dtype, Byte* to, StridedBox const& box, Index multiply, Index divide) noexcept {
        reshard::scale(dtype, to, box, multiply, divide);
    }
};
using HostMemory = BasicHostMemory<std::byte>;

}  // namespace reshard::inline v0
