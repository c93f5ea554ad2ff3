// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/tensor_view.hpp
/// \brief  A strided window on memory somebody else owns: typed (`TensorView<T>`) or with its dtype as a value.
/// \depends core only. No allocation, no ownership, no access to the memory itself except operator().
#pragma once

#include <reshard/core/dtype.hpp>
#include <reshard/core/shape.hpp>

namespace reshard::inline v0_1 {

/// Strides in elements of a dense row-major tensor. Zero-size extents count as one, so strides stay usable.
[[nodiscard]] constexpr Indices row_major_strides(DynamicShape const& shape) noexcept {
    Indices strides = shape.extents();
    Index step = 1;
    for (int d = shape.rank() - 1; d >= 0; --d) {
        strides[d] = step;
        step *= detail::larger<Index>(shape.extent(d), 1);
    }
    return strides;
}

namespace detail {
/// Whether 64 bits count, in bytes, each stride and what lies from the first element to the last. \pre elements of
/// whole bytes.
[[nodiscard]] constexpr bool strides_fit(DynamicShape const& shape, Indices const& strides, DType dtype) noexcept {
    Index reach = bytes(dtype);
    for (int dim = 0; dim < shape.rank(); ++dim) {
        Index const stride = strides[dim];
        Index step = 0;
        if (stride == INT64_MIN || !multiply_fits(stride < 0 ? -stride : stride, bytes(dtype), step)) return false;
        bool const moves = shape.size() != 0 && shape.extent(dim) > 1;
        if (moves && !add_fits(reach, step, shape.extent(dim) - 1)) return false;
    }
    return true;
}

/// Where the elements of a view lie, counted from its data and in elements.
class ViewShape {
public:
    [[nodiscard]] constexpr int rank() const noexcept { return shape_.rank(); }
    [[nodiscard]] constexpr Index extent(int dim) const noexcept { return shape_.extent(dim); }
    [[nodiscard]] constexpr Index stride(int dim) const noexcept { return strides_[dim]; }
    [[nodiscard]] constexpr Index size() const noexcept { return shape_.size(); }
    [[nodiscard]] constexpr DynamicShape const& shape() const& noexcept { return shape_; }
    [[nodiscard]] constexpr Indices const& strides() const& noexcept { return strides_; }
    [[nodiscard]] constexpr DynamicShape shape() && noexcept { return shape_; }
    [[nodiscard]] constexpr Indices strides() && noexcept { return strides_; }

protected:
    constexpr ViewShape() = default;
    constexpr explicit ViewShape(DynamicShape const& shape) noexcept
        : shape_(shape), strides_(row_major_strides(shape)) {}
    constexpr ViewShape(std::string_view who, DynamicShape const& shape, Indices const& strides)
        : shape_(shape), strides_(strides) {
        if (strides.size() == shape.rank()) return;
        raise(ErrorCode::shape, "reshard::", who, ": shape ", to_string(shape), " needs ", shape.rank(),
              " strides, got ", strides.size(), ". Fix: give one stride (in elements) per dimension.");
    }
    /// Leaves of every dimension the indices part(dim) = {begin, end}, or part[dim]; returns how many elements the
    /// first one moves: none when nothing is left. Number by number, because a list just written is slow to copy as a
    /// whole.
    template <class Part>
    constexpr Index narrow(Part&& part) noexcept {
        Index offset = 0;
        bool empty = false;
        for (int dim = 0; dim < strides_.size(); ++dim) {
            auto const [begin, end] = [&] {
                if constexpr (requires { part[dim]; })
                    return part[dim];
                else
                    return part(dim);
            }();
            shape_.narrow(dim, end - begin);
            offset += begin * strides_[dim];
            empty = empty || begin == end;
        }
        return empty ? 0 : offset;
    }

    DynamicShape shape_;
    Indices strides_;
};
}  // namespace detail

/// Elements `T` at `data + sum(index[d] * stride(d))`; strides in elements, zero or negative allowed.
/// Throws ShapeError when the number of strides differs from the rank.
template <Element T>
class TensorView : public detail::ViewShape {
public:
    using element_type = T;

    constexpr TensorView() = default;
    constexpr TensorView(T* data, DynamicShape const& shape) noexcept : ViewShape(shape), data_(data) {}
    constexpr TensorView(T* data, DynamicShape const& shape, Indices const& strides)
        : ViewShape("TensorView", shape, strides), data_(data) {}
    template <IntegerList List>
    constexpr TensorView(T* data, DynamicShape const& shape, List const& strides)
        : TensorView(data, shape, detail::indices_of(strides)) {}
    /// A view of T is a view of const T.
    template <class U>  // a template: otherwise it would stand in for the copy constructor of TensorView<U>
        requires(std::is_const_v<T>&& std::is_same_v<U, std::remove_const_t<T>>)
    constexpr TensorView(TensorView<U> const& other) noexcept : ViewShape(other), data_(other.data()) {}

    [[nodiscard]] constexpr T* data() const noexcept { return data_; }

    /// The element at one index per dimension. No bounds check: this is the inner loop of user code.
    template <std::integral... Integers>
    [[nodiscard]] constexpr T& operator()(Integers... index) const noexcept {
        Index position = 0;
        int dim = 0;
        ((position += detail::as_index(index) * strides_[dim++]), ...);
        return data_[position];
    }

    /// The window whose indices along every dimension are part(dim), or part[dim] of a Box: a half-open interval
    /// {begin, end} of this view's. The window of nothing starts where this view does.
    template <class Part>
    [[nodiscard]] constexpr TensorView window(Part&& part) const noexcept {
        TensorView result = *this;
        result.data_ += result.narrow(part);
        return result;
    }

private:
    T* data_ = nullptr;
};

/// The same window with the element type as a value: what files and C++ runtimes have.
/// `Byte` is std::byte or std::byte const.
template <class Byte>
class BasicDynamicView : public detail::ViewShape {
    using Void = std::conditional_t<std::is_const_v<Byte>, void const, void>;

public:
    constexpr BasicDynamicView() = default;
    BasicDynamicView(Void* data, DType dtype, DynamicShape const& shape)
        : ViewShape(shape), data_(static_cast<Byte*>(data)), dtype_(dtype) {}
    BasicDynamicView(Void* data, DType dtype, DynamicShape const& shape, Indices const& strides)
        : ViewShape("DynamicView", shape, strides), data_(static_cast<Byte*>(data)), dtype_(dtype) {}
    template <IntegerList List>
    BasicDynamicView(Void* data, DType dtype, DynamicShape const& shape, List const& strides)
        : BasicDynamicView(data, dtype, shape, detail::indices_of(strides)) {}
    template <class T>
        requires(std::is_const_v<Byte> || !std::is_const_v<T>)
    BasicDynamicView(TensorView<T> const& view)
    noexcept : ViewShape(view), data_(reinterpret_cast<Byte*>(view.data())), dtype_(dtype_of<T>) {}
    template <class Other>
        requires(std::is_const_v<Byte>&& std::is_same_v<Other, std::byte>)
    BasicDynamicView(BasicDynamicView<Other> const& other)
    noexcept : ViewShape(other), data_(other.data()), dtype_(other.dtype()) {}

    [[nodiscard]] Byte* data() const noexcept { return data_; }
    [[nodiscard]] DType dtype() const noexcept { return dtype_; }

    /// As TensorView::window. \pre elements of whole bytes.
    template <class Part>
    [[nodiscard]] BasicDynamicView window(Part&& part) const noexcept {
        BasicDynamicView result = *this;
        result.data_ += result.narrow(part) * bytes(dtype_);
        return result;
    }

private:
    Byte* data_ = nullptr;
    DType dtype_ = DType::u8;
};

using DynamicView = BasicDynamicView<std::byte>;
using ConstDynamicView = BasicDynamicView<std::byte const>;

}  // namespace reshard::inline v0_1
