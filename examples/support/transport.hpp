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

/// A communicator for plans, and memory that it and this rank's processor both reach: here, any. Outlives its tensors.
class Transport {
public:
    /// \pre `comm` outlives this.
    explicit Transport(reshard::CommunicatorRef comm) : comm_(comm) {}
    Transport(Transport const&) = delete;
    Transport& operator=(Transport const&) = delete;
    virtual ~Transport() = default;

    [[nodiscard]] virtual reshard::CommunicatorRef comm() { return comm_; }
    /// Returns when what comm() was asked for is done, so that the processor may look at it.
    virtual void finish() {}
    /// Of zeros.
    template <class T>
    [[nodiscard]] reshard::Tensor<T> tensor(reshard::DynamicShape const& shape) {
        Memory const memory = allocate(static_cast<std::size_t>(shape.size()) * sizeof(T));
        reshard::Tensor<T> tensor = memory.data == nullptr
                                        ? reshard::Tensor<T>(shape)
                                        : reshard::Tensor<T>(static_cast<T*>(memory.data), shape, memory.release);
        std::fill_n(tensor.data(), tensor.size(), T{0});
        return tensor;
    }

protected:
    struct Memory {
        void* data = nullptr;  ///< null: a tensor's own will do
        void (*release)(void*) noexcept = nullptr;
    };
    [[nodiscard]] virtual Memory allocate(std::size_t) { return {}; }

private:
    reshard::CommunicatorRef comm_;
};

/// Collective over `host`: memory that CUDA manages, moved and summed by the GPU of each rank over NCCL. Throws the
/// same error on every rank where that cannot be: a node has fewer GPUs than ranks, or the program was built without.
#ifdef RESHARD_EXAMPLES_GPUS
std::unique_ptr<Transport> gpu_transport(reshard::CommunicatorRef host);
#else
inline std::unique_ptr<Transport> gpu_transport(reshard::CommunicatorRef) {
    reshard::errors::raise(
        reshard::ErrorCode::user,
        "--gpus: built without device code. Fix: build with CUDA and NCCL, and cmake -DRESHARD_CUDA=ON.");
}
#endif

}  // namespace demo
