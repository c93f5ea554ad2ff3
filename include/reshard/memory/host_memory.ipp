// SPDX-License-Identifier: Apache-2.0
// How memory/host_memory.hpp is done.
#pragma once

#include <reshard/core/tensor.hpp>
#include <reshard/memory/convert.hpp>
#include <reshard/memory/copy.hpp>
#include <reshard/memory/device_memory.hpp>
#include <reshard/memory/fold.hpp>
#include <reshard/memory/host_memory.hpp>

namespace reshard::inline v0_1 {

namespace detail {

class HostPlaces : public MemoryPolicy {
public:
    void check(std::string_view what, void const* memory, Index) const override {
        if (!is_device_memory(memory)) return;
        raise(ErrorCode::buffer, "reshard: the ", what,
              " lies in memory of a CUDA device, where the host cannot work. Fix: copy it to "
              "the host first, or pass a communicator for devices, or without one a "
              "DeviceMemory.");
    }
    [[nodiscard]] Workspace allocate(Index bytes) const override {
        return Workspace(Tensor<std::byte>(DynamicShape{Indices{bytes}}));
    }
    void deliver(std::span<Send const> sends, std::span<Receive const> receives) const override {
        for (std::size_t k = 0; k < sends.size(); ++k) transport::deliver(sends[k], receives[k]);
    }

protected:
    ~HostPlaces() = default;
};

class HostCopies final : public HostPlaces {
    [[nodiscard]] std::string_view copies_only() const noexcept override { return "use host_memory()."; }
};

class HostWork final : public HostPlaces {
public:
    void fold(FoldWork const& work) const override {
        bool const plain = work.to.conversion.is_plain();
        Receive const& result = plain ? work.to : work.folded;
        transport::fold(work.op, work.dtype, work.slots.base, work.slot_bytes, work.addends, work.slots.box,
                        result.base, result.box, work.divisor);
        if (plain) return;
        Conversion const as_folded{work.dtype, work.dtype, 1.0, work.to.conversion.convert};
        transport::deliver({0, result.base, result.box, as_folded}, work.to);
    }
    void fill_identity(Reduce op, DType dtype, std::byte* to, StridedBox const& box) const override {
        transport::fill_identity(op, dtype, to, box);
    }
    void scale(DType dtype, std::byte* to, StridedBox const& box, Index multiply, Index divide) const override {
        transport::scale(dtype, to, box, multiply, divide);
    }
    [[nodiscard]] std::string_view copies_only() const noexcept override { return {}; }
};

}  // namespace detail

RESHARD_INLINE HostMemory host_memory() noexcept {
    static detail::HostWork const memory;
    return {memory, transport::convert};
}
RESHARD_INLINE HostMemory host_copies() noexcept {
    static detail::HostCopies const memory;
    return {memory};
}

}  // namespace reshard::inline v0_1
