// SPDX-License-Identifier: Apache-2.0
// How memory/fold.hpp is done.
#pragma once

#include <reshard/memory/detail/arithmetic.hpp>
#include <reshard/memory/fold.hpp>
#include <reshard/memory/loop_nest.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#define RESHARD_FOLDS_WIDE 1
#endif

namespace reshard::inline v0 {

namespace detail {

// ---- Runs of elements, block by block --------------------------------------------------------------------------
//
// Sums of floats by AVX2 and F16C where the processor has them. Every element is folded by itself, in the order of the
// slots: the same bits by whatever instructions.

/// How far apart things are while a run of elements is folded, in bytes.
struct FoldRun {
    Index extent = 1;       ///< elements
    Index from = 0;         ///< between elements of a slot
    Index to = 0;           ///< between elements of the destination
    Index slot_stride = 0;  ///< between addends of one element
    Index slots = 1;
    Index divisor = 1;
};
using FoldKernel = void (*)(FoldRun const&, std::byte const*, std::byte*) noexcept;

/// Folds n elements, of which the accumulators stay in the first cache.
template <class T, Reduce Op, bool Dense>
[[gnu::always_inline]] inline void fold_block(FoldRun const& run, Index n, std::byte const* source,
                                              std::byte* destination, Accumulator<T>* sums) noexcept {
    Index const from_step = Dense ? Index{sizeof(T)} : run.from;
    Index const to_step = Dense ? Index{sizeof(T)} : run.to;
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
    for (Index i = 0; i < n; ++i) store_element<T>(destination + i * to_step, sums[i]);
}

/// Blocks whose length the compiler knows become vector instructions, without -O3 too.
template <class T, Reduce Op, bool Dense>
[[gnu::always_inline]] inline void fold_blocks(FoldRun const& run, std::byte const* from, std::byte* to) noexcept {
    constexpr Index block = 64;
    Index const from_step = Dense ? Index{sizeof(T)} : run.from;
    Index const to_step = Dense ? Index{sizeof(T)} : run.to;
    Accumulator<T> sums[block];
    Index start = 0;
    for (; start + block <= run.extent; start += block) {
        fold_block<T, Op, Dense>(run, block, from + start * from_step, to + start * to_step, sums);
    }
    fold_block<T, Op, Dense>(run, run.extent - start, from + start * from_step, to + start * to_step, sums);
}

#if defined(RESHARD_FOLDS_WIDE)

template <class T>
[[gnu::target("avx2")]] void sum_wide(FoldRun const& run, std::byte const* from, std::byte* to) noexcept {
    fold_blocks<T, Reduce::sum, true>(run, from, to);
}
/// Halves, eight at a time. (What is no number keeps the same bits of its payload as by Float16.) By the compilers' own
/// names: <immintrin.h> costs every file that includes it half a second.
[[gnu::target("avx2,f16c")]] inline void sum_halves(FoldRun const& run, std::byte const* from, std::byte* to) noexcept {
    constexpr Index lanes = 8;
    constexpr Index size = sizeof(Float16);
    using Halves [[gnu::vector_size(lanes * size)]] = short;
    using Floats [[gnu::vector_size(lanes * sizeof(float))]] = float;
    auto const divisor = static_cast<float>(run.divisor);
    Index i = 0;
    for (; i + lanes <= run.extent; i += lanes) {
        std::byte const* source = from + i * size;
        Floats sums{};
        for (Index k = 0; k < run.slots; ++k, source += run.slot_stride) {
            Halves addends;
            std::memcpy(&addends, source, sizeof addends);
            Floats const wide = __builtin_ia32_vcvtph2ps256(addends);
            sums = k == 0 ? wide : sums + wide;
        }
        if (run.divisor != 1) sums /= divisor;
        Halves const rounded = __builtin_ia32_vcvtps2ph256(sums, 0);  // to the nearest, ties to even
        std::memcpy(to + i * size, &rounded, sizeof rounded);
    }
    FoldRun rest = run;
    rest.extent -= i;
    fold_blocks<Float16, Reduce::sum, true>(rest, from + i * size, to + i * size);
}

/// Null where the processor or the op has none.
template <class T>
[[nodiscard]] FoldKernel wide_sums(Reduce op) noexcept {
    if (op != Reduce::sum && op != Reduce::avg) return nullptr;
    if (!__builtin_cpu_supports("avx2")) return nullptr;  // what has it has F16C
    return std::is_same_v<T, Float16> ? sum_halves : sum_wide<T>;
}

#else

template <class T>
[[nodiscard]] FoldKernel wide_sums(Reduce) noexcept {
    return nullptr;
}

#endif

// ---- Boxes -----------------------------------------------------------------------------------------------------

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
    LoopDim const inner = take_inner(nest);
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
    detail::LoopDim const inner = detail::take_inner(nest);
    detail::FoldRun const run{inner.extent, inner.from, inner.to, slot_stride_bytes, count, divisor};
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
