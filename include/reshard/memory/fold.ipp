// SPDX-License-Identifier: Apache-2.0
// How memory/fold.hpp is done.
#pragma once

#include <reshard/memory/detail/fold_blocks.hpp>
#include <reshard/memory/fold.hpp>
#include <reshard/memory/loop_nest.hpp>

namespace reshard::inline v0 {

namespace detail {

template <class T, Reduce Op, bool Dense>
void fold_run(FoldRun const& run, std::byte const* from, std::byte* to) noexcept {
    fold_blocks<T, Op, Dense>(run, from, to);
}

template <class T, bool Dense>
FoldKernel fold_kernel(Reduce op) noexcept {
    // Sums, products and bits of integers do not depend on the sign, so signed types borrow the unsigned kernels.
    constexpr bool floating = std::is_floating_point_v<Accumulator<T>>;
    using Unsigned = typename std::conditional_t<floating, std::type_identity<T>, std::make_unsigned<T>>::type;
    if constexpr (floating && Dense) {
        if (FoldKernel const wide = wide_sums<T>(op); wide != nullptr) return wide;
    }
    return with_op<Accumulator<T>>(op, [&]<Reduce Op>() -> FoldKernel {
        return fold_run<std::conditional_t<is_ordered(Op), T, Unsigned>, Op, Dense>;
    });
}

/// A nest over one box, visited as its own destination.
template <class Body>
void for_each_run(std::byte* base, StridedBox const& box, Body&& body) noexcept {
    LoopNest nest = loop_nest(box, box);
    if (nest.empty) return;
    LoopDim inner{1, 0, 0};
    if (!nest.dims.empty()) {
        inner = nest.dims.back();
        nest.dims.pop_back();
    }
    std::byte* first = base + nest.to_offset;
    for_each_origin(nest, nest.dims.size(), first, first, [&](std::byte*, std::byte* to) { body(to, inner); });
}

}  // namespace detail

RESHARD_INLINE void fold(Reduce op, DType dtype, std::byte const* sources, Index slot_stride_bytes, Index count,
                         StridedBox const& slot_box, std::byte* destination, StridedBox const& destination_box,
                         Index divisor) noexcept {
    if (dtype == DType::c64) {
        return fold(op, DType::f32, sources, slot_stride_bytes, count, floats_of(slot_box), destination,
                    floats_of(destination_box), divisor);
    }
    detail::LoopNest nest = detail::loop_nest(slot_box, destination_box);
    if (nest.empty || count < 1) return;
    detail::FoldRun run;
    run.slot_stride = slot_stride_bytes;
    run.slots = count;
    run.divisor = divisor;
    if (!nest.dims.empty()) {
        run.extent = nest.dims.back().extent;
        run.from = nest.dims.back().from;
        run.to = nest.dims.back().to;
        nest.dims.pop_back();
    }
    bool const dense = run.from == bytes(dtype) && run.to == bytes(dtype);
    detail::FoldKernel kernel = nullptr;
    detail::with_number(dtype, [&]<class T>() {
        kernel = dense ? detail::fold_kernel<T, true>(op) : detail::fold_kernel<T, false>(op);
    });
    if (kernel == nullptr) return;
    detail::for_each_origin(nest, nest.dims.size(), sources + nest.from_offset, destination + nest.to_offset,
                            [&](std::byte const* from, std::byte* to) { kernel(run, from, to); });
}

RESHARD_INLINE void fill_identity(Reduce op, DType dtype, std::byte* base, StridedBox const& box) noexcept {
    if (dtype == DType::c64) return fill_identity(op, DType::f32, base, floats_of(box));
    detail::with_number(dtype, [&]<class T>() {
        T value = static_cast<T>(detail::identity_of<detail::Accumulator<T>>(op));
        if (dtype == DType::boolean && op == Reduce::band) value = static_cast<T>(1);
        detail::for_each_run(base, box, [&](std::byte* to, detail::LoopDim const& inner) {
            for (Index i = 0; i < inner.extent; ++i) std::memcpy(to + i * inner.to, &value, sizeof(T));
        });
    });
}

RESHARD_INLINE void scale(DType dtype, std::byte* base, StridedBox const& box, Index multiply, Index divide) noexcept {
    if (dtype == DType::c64) return scale(DType::f32, base, floats_of(box), multiply, divide);
    detail::with_number(dtype, [&]<class T>() {
        using A = detail::Accumulator<T>;
        if constexpr (std::is_floating_point_v<A>) {
            auto const factor = static_cast<A>(multiply);
            auto const divisor = static_cast<A>(divide);
            detail::for_each_run(base, box, [&](std::byte* to, detail::LoopDim const& inner) {
                for (Index i = 0; i < inner.extent; ++i) {
                    std::byte* const at = to + i * inner.to;
                    detail::store_element<T>(at, detail::load_element<T>(at) * factor / divisor);
                }
            });
        }
    });
}

}  // namespace reshard::inline v0
