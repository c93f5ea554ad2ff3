// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/transport.hpp
/// \brief  What moves a rank's tensors, and the memory they lie in: the processor's, or a GPU's over NCCL.
/// \depends reshard/comm/any_communicator.hpp, reshard/core/tensor.hpp.
#pragma once

#include <reshard/comm/any_communicator.hpp>
#include <reshard/core/tensor.hpp>

#include <algorithm>
#include <memory>

namespace demo {

/// A communicator for plans, and memory that it and this rank's processor both reach. Outlives its tensors.
class Transport {
public:
    using Release = void (*)(void*) noexcept;
    explicit Transport(Release release) : release_(release) {}
    Transport(Transport const&) = delete;
    Transport& operator=(Transport const&) = delete;
    virtual ~Transport() = default;

    [[nodiscard]] virtual reshard::CommunicatorRef comm() = 0;
    /// Returns when what comm() was asked for is done, so that the processor may look at it.
    virtual void finish() {}
    /// Of zeros.
    template <class T>
    [[nodiscard]] reshard::Tensor<T> tensor(reshard::DynamicShape const& shape) {
        reshard::Tensor<T> tensor(static_cast<T*>(allocate(static_cast<std::size_t>(shape.size()) * sizeof(T))), shape,
                                  release_);
        std::fill_n(tensor.data(), tensor.size(), T{0});
        return tensor;
    }

protected:
    /// At least one byte, aligned to 64.
    [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;

private:
    Release release_;
};

/// Memory of the processor, moved by a communicator that outlives this.
class HostTransport final : public Transport {
public:
    explicit HostTransport(reshard::CommunicatorRef comm)
        : Transport([](void* memory) noexcept { ::operator delete(memory, alignment); }), comm_(comm) {}
    [[nodiscard]] reshard::CommunicatorRef comm() override { return comm_; }

private:
    static constexpr std::align_val_t alignment{64};
    [[nodiscard]] void* allocate(std::size_t bytes) override { return ::operator new(bytes, alignment); }

    reshard::CommunicatorRef comm_;
};

/// Collective over `host`: memory that CUDA manages, moved and summed by the GPU of each rank over NCCL. Throws the
/// same error on every rank where that cannot be: a node has fewer GPUs than ranks, or the program was built without.
#ifdef RESHARD_EXAMPLES_GPUS
std::unique_ptr<Transport> gpu_transport(reshard::CommunicatorRef host);
#else
inline std::unique_ptr<Transport> gpu_transport(reshard::CommunicatorRef) {
    reshard::raise(reshard::ErrorCode::user,
                   "--gpus: built without device code. Fix: build with CUDA and NCCL, and cmake -DRESHARD_CUDA=ON.");
}
#endif

}  // namespace demo
