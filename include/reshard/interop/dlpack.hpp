// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/interop/dlpack.hpp
/// \brief  Tensors of PyTorch, NumPy, JAX, CuPy as views, and views as theirs, by DLPack: no element is copied.
/// \depends core, <memory>. No dlpack.h is included: any copy of it will do, 0.x or 1.x; include yours before you call.
/// Source: github.com/dmlc/dlpack, include/dlpack/dlpack.h (v1.1: layouts, numbers of types and devices, flags).
#pragma once

#include <reshard/core/tensor_view.hpp>

#include <memory>  // unique_ptr

namespace reshard::inline v0_1 {
namespace dlpack {

/// DLTensor. Its types are the caller's, so that this header and theirs need not be of one version.
template <class T>
concept Tensor = requires(T& tensor) {
    tensor.data;
    tensor.device.device_type;
    tensor.device.device_id;
    tensor.ndim;
    tensor.dtype.code;
    tensor.dtype.bits;
    tensor.dtype.lanes;
    tensor.shape;
    tensor.strides;
    tensor.byte_offset;
};

/// DLManagedTensor or DLManagedTensorVersioned: a DLTensor and how to let go of it.
template <class M>
concept Managed = requires(M& managed) {
    managed.dl_tensor;
    managed.manager_ctx;
    managed.deleter(&managed);
};

/// DLManagedTensorVersioned: it knows whether it may be written to.
template <class M>
concept Versioned = Managed<M> && requires(M& managed) {
    managed.version.major;
    managed.flags;
};

/// Where memory lies, in DLPack's numbers: {2, 0} is the first GPU of CUDA, {10, 0} that of ROCm.
struct Device {
    int type = 1;  ///< kDLCPU
    int id = 0;
    friend constexpr bool operator==(Device, Device) = default;
};
inline constexpr Device host{};
[[nodiscard]] constexpr Device cuda(int id) noexcept { return {2, id}; }
template <Tensor T>
[[nodiscard]] Device device_of(T const& tensor) noexcept {
    return {static_cast<int>(tensor.device.device_type), static_cast<int>(tensor.device.device_id)};
}

/// DLPack's name of an element type: code and bits, one lane.
struct Type {
    int code;
    int bits;
};

namespace detail {
// In DType's order. The types of 4 and 6 bits are left out: their elements have no address.
inline constexpr Type types[dtype_count] = {
    {6, 8},  {-1, 0}, {-1, 0}, {-1, 0}, {1, 8},  {0, 8},  {12, 8}, {10, 8}, {14, 8}, {11, 8}, {13, 8},
    {0, 16}, {1, 16}, {2, 16}, {4, 16}, {0, 32}, {1, 32}, {2, 32}, {5, 64}, {2, 64}, {0, 64}, {1, 64},
};

[[nodiscard]] constexpr bool reaches_host(int device_type) noexcept {
    // CPU; pinned memory of CUDA and ROCm; memory that CUDA manages
    return device_type == 1 || device_type == 3 || device_type == 11 || device_type == 13;
}

struct DeleteManaged {
    template <class M>
    void operator()(M* managed) const noexcept {
        if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
    }
};

template <class M>
void check_version(M const& managed) {
    if (managed.version.major > 1) {
        errors::raise(ErrorCode::format, "reshard::dlpack: the tensor is of DLPack ", managed.version.major, ".",
                      managed.version.minor,
                      ", 1.x is understood. Fix: ask its producer for "
                      "max_version=(1, 1).");
    }
}

/// Refuses memory that is not at `where`, and none where there are elements.
inline void check_memory(void const* data, DynamicShape const& shape, Device found, Device where) {
    bool const there = where == host ? reaches_host(found.type) : found == where;
    if (!there) {
        errors::raise(ErrorCode::buffer, "reshard::dlpack::view: the tensor lies on device (", found.type, ", ",
                      found.id, "), the view asked for is of (", where.type, ", ", where.id,
                      "). Fix: pass dlpack::Device{", found.type, ", ", found.id,
                      "} and a communicator that reaches it, or copy the tensor first.");
    }
    if (data == nullptr && shape.size() > 0) {
        errors::raise(ErrorCode::buffer, "reshard::dlpack::view: a tensor of shape ", to_string(shape),
                      " has no memory. Fix: hand over one that is not meta or fake.");
    }
}

/// Refuses strides whose last element lies further from the first than 64 bits count in bytes. Where no second index
/// is, a stride moves nothing, whatever a producer says: one that is too large to be counted with becomes 1.
inline void check_reach(DynamicShape const& shape, Indices& strides, DType dtype) {
    for (int dim = 0; dim < shape.rank(); ++dim) {
        bool const moves = shape.size() > 0 && shape.extent(dim) > 1;
        if (!moves && !reshard::detail::strides_fit(Shape{1}, {strides[dim]}, dtype)) strides[dim] = 1;
    }
    if (reshard::detail::strides_fit(shape, strides, dtype)) return;
    errors::raise(ErrorCode::shape, "reshard::dlpack::view: a tensor of shape ", to_string(shape), " with strides ",
                  to_string(strides), " reaches beyond 64 bits. Fix: check its producer.");
}

/// Shape and strides of a DLTensor as a view. No strides are row-major ones; the memory starts byte_offset behind data.
template <class T>
DynamicView view_of(T const& tensor, DType dtype, Device where) {
    DynamicShape const shape(tensor.shape, static_cast<int>(tensor.ndim));
    Indices strides = row_major_strides(shape);
    for (int dim = 0; dim < shape.rank() && tensor.strides != nullptr; ++dim) strides[dim] = tensor.strides[dim];
    check_reach(shape, strides, dtype);
    check_memory(tensor.data, shape, device_of(tensor), where);
    auto* const bytes = static_cast<std::byte*>(tensor.data);
    return {bytes == nullptr ? nullptr : bytes + tensor.byte_offset, dtype, shape, strides};
}

/// A managed tensor and all it points at, in one piece of memory.
template <class M, class Owner>
struct Shared {
    Owner owner;
    M managed{};
    Index shape[max_dims] = {};
    Index strides[max_dims] = {};

    static void destroy(M* managed) { delete static_cast<Shared*>(managed->manager_ctx); }
};
}  // namespace detail

/// Keeps a tensor of somebody else alive, and calls its deleter in the end: what is in a capsule named "dltensor" or
/// "dltensor_versioned", once the capsule is renamed "used_...".
template <Managed M>
using Owned = std::unique_ptr<M, detail::DeleteManaged>;

/// The element type of a DLTensor. DTypeError for vector types (lanes), types of 4 and 6 bits, and those that
/// safetensors has no name for.
template <Tensor T>
[[nodiscard]] DType dtype_of(T const& tensor) {
    int const code = static_cast<int>(tensor.dtype.code);
    int const wide = static_cast<int>(tensor.dtype.bits);
    int const lanes = static_cast<int>(tensor.dtype.lanes);
    for (int i = 0; i < dtype_count && lanes == 1; ++i) {
        if (detail::types[i].code == code && detail::types[i].bits == wide) return static_cast<DType>(i);
    }
    errors::raise(ErrorCode::dtype, "reshard::dlpack: elements of type code ", code, ", ", wide, " bits, ", lanes,
                  " lanes have no DType of whole bytes. Fix: view them as integers, wide ones with one "
                  "dimension more, before they are handed over.");
}

/// The elements of `tensor`, which somebody else keeps alive. They must lie at `where`: a view does not say where its
/// memory is, so the caller does. By default that is memory the host reads (pinned and managed memory included);
/// BufferError for any other. ShapeError for extents or strides that do not fit.
template <Tensor T>
[[nodiscard]] DynamicView view(T const& tensor, Device where = host) {
    return detail::view_of(tensor, dtype_of(tensor), where);
}
/// The same of a managed tensor. BufferError when it is read-only or of a later major version than 1.
template <Managed M>
[[nodiscard]] DynamicView view(M const& managed, Device where = host) {
    if constexpr (Versioned<M>) {
        detail::check_version(managed);
        if ((managed.flags & 1U) != 0) {
            errors::raise(ErrorCode::buffer,
                          "reshard::dlpack::view: the tensor is read-only. Fix: use const_view, or hand over "
                          "a copy that may be written to.");
        }
    }
    return view(managed.dl_tensor, where);
}
/// For reading only.
template <Managed M>
[[nodiscard]] ConstDynamicView const_view(M const& managed, Device where = host) {
    if constexpr (Versioned<M>) detail::check_version(managed);
    return view(managed.dl_tensor, where);
}
/// With the element type in the view's type: `view<float>(tensor)`, `view<float const>(managed)`. DTypeError names both
/// when the tensor is of another one; BufferError where its memory is not aligned to elements (a DynamicView may be).
template <Element E, class T>
    requires(Tensor<T> || Managed<T>)
[[nodiscard]] TensorView<E> view(T const& tensor, Device where = host) {
    ConstDynamicView const bytes = [&]() -> ConstDynamicView {
        if constexpr (Managed<T> && std::is_const_v<E>) {
            return const_view(tensor, where);
        } else {
            return view(tensor, where);
        }
    }();
    if (bytes.dtype() != reshard::dtype_of<E>) {
        errors::raise(ErrorCode::dtype, "reshard::dlpack::view: the tensor is ", name(bytes.dtype()),
                      ", the view asked for is of ", name(reshard::dtype_of<E>),
                      ". Fix: view<T> with the T of its elements, or view without T.");
    }
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(E) != 0) {
        errors::raise(ErrorCode::buffer, "reshard::dlpack::view: memory that is not aligned to its elements, ",
                      name(bytes.dtype()), ". Fix: view it without a type, or copy it first.");
    }
    // What may be written to was checked above; the cast takes back the const of the one type both are held in.
    auto* const data = reinterpret_cast<E*>(const_cast<std::byte*>(bytes.data()));
    return {data, bytes.shape(), bytes.strides()};
}

/// A managed tensor over the elements of `view`, which lie at `where`. `owner` (a Tensor, a shared_ptr, whatever keeps
/// them alive) moves into it and goes when its consumer has done. For a capsule, pass `.release()` of what is returned.
/// Of const elements only a versioned one can say that they are read-only.
template <Managed M, class View, class Owner>
    requires std::is_constructible_v<ConstDynamicView, View const&>
[[nodiscard]] Owned<M> share(View const& view, Owner&& owner, Device where = host) {
    constexpr bool writable = std::is_constructible_v<DynamicView, View const&>;
    static_assert(
        writable || Versioned<M>,
        "reshard::dlpack::share: DLManagedTensor cannot say that its elements are const. Fix: share them as a "
        "DLManagedTensorVersioned, or give a view that may be written to.");
    ConstDynamicView const elements(view);
    Type const type = detail::types[static_cast<int>(elements.dtype())];
    if (type.code < 0) {
        errors::raise(ErrorCode::dtype, "reshard::dlpack::share: elements of ", name(elements.dtype()),
                      " have no address. Fix: share their bytes as U8.");
    }
    using Block = detail::Shared<M, std::remove_cvref_t<Owner>>;
    auto* const block = new Block{std::forward<Owner>(owner)};
    M& managed = block->managed;
    managed.manager_ctx = block;
    managed.deleter = &Block::destroy;
    if constexpr (Versioned<M>) {
        managed.version.major = 1;
        managed.version.minor = 1;
        managed.flags = writable ? 0U : 1U;
    }
    auto& tensor = managed.dl_tensor;
    tensor.data = const_cast<std::byte*>(elements.data());
    tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(where.type);
    tensor.device.device_id = where.id;
    tensor.ndim = elements.rank();
    tensor.dtype.code = static_cast<decltype(tensor.dtype.code)>(type.code);
    tensor.dtype.bits = static_cast<decltype(tensor.dtype.bits)>(type.bits);
    tensor.dtype.lanes = 1;
    tensor.shape = block->shape;
    tensor.strides = block->strides;
    tensor.byte_offset = 0;
    for (int dim = 0; dim < elements.rank(); ++dim) {
        block->shape[dim] = elements.extent(dim);
        block->strides[dim] = elements.stride(dim);
    }
    return Owned<M>(&managed);
}

}  // namespace dlpack
}  // namespace reshard::inline v0_1
