// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/tensor.hpp
/// \brief  A dense row-major tensor that owns its memory: what overloads without a destination return.
/// \depends core only.
#pragma once

#include <reshard/core/large_memory.hpp>
#include <reshard/core/tensor_view.hpp>

namespace reshard::inline v0_1 {

namespace detail {
/// For the elements of a tensor.
[[nodiscard, gnu::noinline]] inline HostBlock tensor_memory(DynamicShape const& shape, Index element_bytes) {
    Index bytes = 0;
    if (!multiply_fits(shape.size(), element_bytes, bytes)) {
        raise(ErrorCode::shape, "reshard::Tensor: the bytes of shape ", to_string(shape),
              " do not fit 64 bits. Fix: check the extents for a wrong unit.");
    }
    return allocate_host(as_size(bytes));
}
}  // namespace detail

/// Move-only; elements are not initialised; memory is aligned to 64 bytes. From 4 MiB on it asks for large pages, and a
/// thread keeps what it freed last for the next tensor of about that size, until the system wants the pages back
/// (core/large_memory.hpp). By default, and once moved from, of shape [0].
template <Element T>
class Tensor {
    static_assert(std::is_trivially_copyable_v<T>, "reshard::Tensor: elements are moved as bytes.");

public:
    Tensor() = default;
    explicit Tensor(DynamicShape const& shape) : Tensor(detail::tensor_memory(shape, sizeof(T)), shape) {}
    template <std::integral First, std::integral... Extents>
    explicit Tensor(First, Extents...) {
        static_assert(!std::integral<First>,
                      "reshard::Tensor: extents are given as a shape. Fix: Tensor<float>(Shape{64, 32}).");
    }
    /// Takes over memory from elsewhere (managed, pinned, shared): shape.size() elements, which release(data) frees.
    Tensor(T* data, DynamicShape const& shape, void (*release)(void*) noexcept) noexcept
        : data_(data), shape_(shape), release_(release) {}
    Tensor(Tensor&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          shape_(std::exchange(other.shape_, nothing)),
          release_(other.release_) {}
    Tensor& operator=(Tensor&& other) noexcept {
        Tensor taken(std::move(other));
        std::swap(data_, taken.data_);
        std::swap(shape_, taken.shape_);
        std::swap(release_, taken.release_);
        return *this;
    }
    ~Tensor() {
        if (data_ != nullptr) release_(data_);
    }

    [[nodiscard]] T* data() noexcept { return data_; }
    [[nodiscard]] T const* data() const noexcept { return data_; }
    [[nodiscard]] DynamicShape const& shape() const& noexcept { return shape_; }
    [[nodiscard]] DynamicShape shape() && noexcept { return shape_; }
    [[nodiscard]] Index extent(int dim) const noexcept { return shape_.extent(dim); }
    [[nodiscard]] Index size() const noexcept { return shape_.size(); }
    [[nodiscard]] TensorView<T> view() noexcept { return {data_, shape_}; }
    [[nodiscard]] TensorView<T const> view() const noexcept { return {data_, shape_}; }
    /// Wherever its view is taken, a tensor with a name is.
    operator DynamicView() & noexcept { return view(); }
    operator DynamicView() && = delete;
    operator ConstDynamicView() const& noexcept { return view(); }
    operator ConstDynamicView() const&& = delete;
    template <std::integral... Integers>
    [[nodiscard]] T& operator()(Integers... index) noexcept {
        return view()(index...);
    }
    template <std::integral... Integers>
    [[nodiscard]] T const& operator()(Integers... index) const noexcept {
        return view()(index...);
    }

private:
    Tensor(detail::HostBlock const& block, DynamicShape const& shape) noexcept
        : Tensor(static_cast<T*>(block.data), shape, block.release) {}

    static constexpr DynamicShape nothing{Indices{0}};

    T* data_ = nullptr;
    DynamicShape shape_ = nothing;
    void (*release_)(void*) noexcept = nullptr;
};

}  // namespace reshard::inline v0_1
