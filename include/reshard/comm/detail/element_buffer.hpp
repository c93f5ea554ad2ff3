// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/element_buffer.hpp
/// \brief  Elements in memory that somebody else made: what allocate() of a communicator returns.
/// \depends core/{error,tensor_view}; <span>.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/tensor_view.hpp>

#include <span>  // span

namespace reshard::inline v0_1::detail {

/// Owns its memory, whose holder frees it; each rank its own part, without waiting for the others. Move-only.
template <Element T, class Memory>
class ElementBuffer {
public:
    ElementBuffer() = default;
    ElementBuffer(Memory memory, Index size) noexcept : memory_(std::move(memory)), size_(size) {}

    [[nodiscard]] T* data() noexcept { return elements(); }
    [[nodiscard]] T const* data() const noexcept { return elements(); }
    [[nodiscard]] Index size() const noexcept { return elements() == nullptr ? 0 : size_; }
    [[nodiscard]] std::span<T> span() noexcept { return {elements(), as_size(size())}; }
    [[nodiscard]] std::span<T const> span() const noexcept { return {elements(), as_size(size())}; }
    /// A dense row-major tensor in it. Throws BufferError for a shape with more elements than the buffer has.
    [[nodiscard]] TensorView<T> view(DynamicShape const& shape) { return {room_for(shape), shape}; }
    [[nodiscard]] TensorView<T const> view(DynamicShape const& shape) const { return {room_for(shape), shape}; }

private:
    [[nodiscard]] T* elements() const noexcept {
        if constexpr (requires { memory_.get(); }) {
            return reinterpret_cast<T*>(memory_.get());
        } else {
            return reinterpret_cast<T*>(memory_.data());
        }
    }
    [[nodiscard]] T* room_for(DynamicShape const& shape) const {
        if (shape.size() <= size()) return elements();
        raise(ErrorCode::buffer, "reshard::allocate: a view of shape ", to_string(shape), " in a buffer of ", size(),
              " elements. Fix: allocate as many as the shape has.");
    }

    Memory memory_{};
    Index size_ = 0;
};

}  // namespace reshard::inline v0_1::detail
