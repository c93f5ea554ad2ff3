// SPDX-License-Identifier: Apache-2.0
// How memory/fold.hpp is done.
#pragma once

#include <reshard/memory/detail/arithmetic.hpp>
#include <reshard/memory/fold.hpp>
#include <reshard/memory/loop_nest.hpp>

namespace reshard::inline v0 {

namespace detail {

/// How far apart things are while a run of elements is folded, in bytes.
struct FoldRun {
    Index extent = 1;       ///< elements
    Index from = 0;         ///< between elements of a slot
    Index to = 0;           ///< between elements of the destination
    Index slot_stride = 0;  ///< between addends of one element
    Index slots = 1;
    Index divisor = 1;
};

template <class T, Reduce Op, bool Dense>
void fold_run(FoldRun const& run, std::byte const* from, std::byte* to) noexcept {
    constexpr Index block =
        256;  // accumulators stay in the first cache, and the inner loops have something to vectorise
    constexpr Index size = sizeof(T);
    Accumulator<T> sums[block];
    for (Index start = 0; start < run.extent; start += block) {
        Index const n = smaller(block, run.extent - start);
        Index const from_step = Dense ? size : run.from;
        Index const to_step = Dense ? size : run.to;
        std::byte const* source = from + start * from_step;
        for (Index i = 0; i < n; ++i) sums[i] = load_element<T>(source + i * from_step);
        for (Index k = 1; k < run.slots; ++k) {
            source += run.slot_stride;
            for (Index i = 0; i < n; ++i) sums[i] = combine<Op>(sums[i], load_element<T>(source + i * from_step));
        }
        if constexpr (std::is_floating_point_v<Accumulator<T>>) {
            if (run.divisor != 1) {
                auto const divisor = static_cast<Accumulator<T>>(run.divisor);
                for (Index i = 0; i < n; ++i) sums[i] /= divisor;
            }
        }
        std::byte* destination = to + start * to_step;
        for (Index i = 0; i < n; ++i) store_element<T>(destination + i * to_step, sums[i]);
    }
}

using FoldKernel = void (*)(FoldRun const&, std::byte const*, std::byte*) noexcept;

template <class T, bool Dense>
FoldKernel fold_kernel(Reduce op) noexcept {
    // Sums, products and bits of integers do not depend on the sign, so signed types borrow the unsigned kernels.
    constexpr bool floating = std::is_floating_point_v<Accumulator<T>>;
    using Unsigned = typename std::conditional_t<floating, std::type_identity<T>, std::make_unsigned<T>>::type;
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
