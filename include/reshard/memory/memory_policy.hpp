// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/memory_policy.hpp
/// \brief  Memory as a policy: who allocates, copies, folds and fills where the tensors of a plan lie.
/// \depends core, memory/device_memory.hpp; <span>.
///
/// A communicator says where the tensors of its plans lie by a member memory(), a pointer to a MemoryPolicy that lives
/// as long as it does (policies around it pass the question on); one that has none means the host.
/// Prepared plans do everything by it that is no exchange. memory/host_memory.hpp is the host's, memory/on_device.cuh
/// has the one for devices, comm/detail/device_or_host_memory.cuh the one where each tensor lies on either side.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/reduce.hpp>
#include <reshard/core/transfer.hpp>
#include <reshard/memory/device_memory.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

/// Scratch memory, aligned to 64 bytes where it matters, freed by whoever made it. Move-only.
class Workspace {
public:
    Workspace() = default;
    /// Keeps `holder`, which has data() and frees the memory in its destructor.
    template <class Holder>
    explicit Workspace(Holder holder)
        : holder_(new Holder(std::move(holder))),
          data_(static_cast<Holder*>(holder_)->data()),
          release_([](void* kept) noexcept { delete static_cast<Holder*>(kept); }) {}
    Workspace(Workspace&& other) noexcept { *this = std::move(other); }
    Workspace& operator=(Workspace&& other) noexcept {
        std::swap(holder_, other.holder_);
        std::swap(data_, other.data_);
        std::swap(release_, other.release_);
        return *this;
    }
    ~Workspace() {
        if (holder_ != nullptr) release_(holder_);
    }

    [[nodiscard]] std::byte* data() const noexcept { return data_; }

private:
    void* holder_ = nullptr;
    std::byte* data_ = nullptr;
    void (*release_)(void* holder) noexcept = nullptr;
};

/// Addends that become one: `addends` boxes, `slot_bytes` apart, of which the first is `slots`.
struct FoldWork {
    Reduce op = Reduce::sum;
    DType dtype = DType::u8;  ///< of the addends
    Index addends = 1;
    Index divisor = 1;          ///< of averages
    Index slot_bytes = 0;       ///< from one addend to the next
    transport::Send slots;      ///< the first addend
    transport::Receive folded;  ///< scratch memory for the result, of the addends' type, where `to` converts
    transport::Receive to;      ///< where the result goes, converted as it says
};

/// What is asked of memory. An operation may return before its work is done, as those of a stream do; then whoever
/// states the policy sees to the order: an exchange reads what was asked before it, and what is asked after wait()
/// finds what has arrived. Operations allocate nothing. They may throw: what they throw on one rank poisons the
/// communicator.
class MemoryPolicy {
public:
    /// Whether it is out of the host's reach: this policy brings it there and back. Those who read and write files ask.
    [[nodiscard]] virtual bool holds(void const* memory) const noexcept { return is_device_memory(memory); }
    /// Throws BufferError for memory that cannot be worked on; `what` names it. `alignment` in bytes.
    virtual void check(std::string_view what, void const* memory, Index alignment) const = 0;
    /// The same for scratch memory that the caller gives.
    virtual void check_scratch(void const* memory) const { check("workspace", memory, 1); }
    /// Only in prepare(). Throws OutOfMemory.
    [[nodiscard]] virtual Workspace allocate(Index bytes) const = 0;
    /// Memory of the host from which deliver() is quicker than from any other; empty where there is none.
    [[nodiscard]] virtual Workspace allocate_on_host(Index /*bytes*/) const { return {}; }

    /// Send k into receive k: copied, or converted as both conversions say. All sends lie in one tensor, all receives
    /// in one.
    virtual void deliver(std::span<transport::Send const> sends,
                         std::span<transport::Receive const> receives) const = 0;
    virtual void fold(FoldWork const& /*work*/) const {}
    virtual void fill_identity(Reduce /*op*/, DType /*dtype*/, std::byte* /*to*/,
                               transport::StridedBox const& /*box*/) const {}
    /// Every element times multiply / divide.
    virtual void scale(DType /*dtype*/, std::byte* /*to*/, transport::StridedBox const& /*box*/, Index /*multiply*/,
                       Index /*divide*/) const {}

    /// Empty, or: this memory is only copied, and plans that need one of the three above are refused, with this remedy.
    [[nodiscard]] virtual std::string_view copies_only() const noexcept { return {}; }

protected:
    MemoryPolicy() = default;
    MemoryPolicy(MemoryPolicy const&) = default;
    MemoryPolicy& operator=(MemoryPolicy const&) = default;
    ~MemoryPolicy() = default;
};

}  // namespace reshard::inline v0_1
