// SPDX-License-Identifier: Apache-2.0
// How memory/fold.hpp is done.
#pragma once

#include <reshard/memory/detail/arithmetic.hpp>
#include <reshard/memory/fold.hpp>
#include <reshard/memory/loop_nest.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#define RESHARD_FOLDS_WIDE 1
#endif

namespace reshard::inline v0_1 {

namespace detail {

// ---- Runs of elements, block by block --------------------------------------------------------------------------

/// How far apart things are while a run of elements is folded, in bytes.
struct FoldRun {
    Index extent = 1;       ///< elements
    Index from = 0;         ///< between elements of a slot
    Index to = 0;           ///< between elements of the destination
    Index slot_stride = 0;  ///< between addends of one element
    Index slots = 1;
    Index divisor = 1;
};

/// Elements that are folded at once: what they are accumulated in stays in the first cache.
inline constexpr Index fold_block = 64;

/// Calls body(i) for i of [0, n). Loops whose length the compiler knows become vector instructions, without -O3 too.
template <class Body>
[[gnu::always_inline]] inline void each_of_block(Index n, Body const& body) noexcept {
    if (n == fold_block) {
        for (Index i = 0; i < fold_block; ++i) body(i);
    } else {
        for (Index i = 0; i < n; ++i) body(i);
    }
}
template <class A>
[[nodiscard]] A carrier_at(std::byte const* list, Index i) noexcept {
    A value;
    std::memcpy(&value, list + i * Index{sizeof(A)}, sizeof(A));
    return value;
}
template <class A>
void set_carrier(std::byte* list, Index i, A value) noexcept {
    std::memcpy(list + i * Index{sizeof(A)}, &value, sizeof(A));
}

template <class T>
void load_block(std::byte const* __restrict from, Index step, Index n, std::byte* __restrict carriers) noexcept {
    auto const load = [&](Index i, Index apart) { set_carrier(carriers, i, load_element<T>(from + i * apart)); };
    if (step == Index{sizeof(T)}) {
        each_of_block(n, [&](Index i) { load(i, Index{sizeof(T)}); });
    } else {
        each_of_block(n, [&](Index i) { load(i, step); });
    }
}
template <class T>
void store_block(std::byte const* __restrict carriers, Index n, std::byte* __restrict to, Index step) noexcept {
    auto const store = [&](Index i, Index apart) {
        store_element<T>(to + i * apart, carrier_at<Accumulator<T>>(carriers, i));
    };
    if (step == Index{sizeof(T)}) {
        each_of_block(n, [&](Index i) { store(i, Index{sizeof(T)}); });
    } else {
        for (Index i = 0; i < n; ++i) store(i, step);
    }
}
template <class A, Reduce Op>
void combine_block(std::byte* __restrict sums, std::byte const* __restrict addends, Index n) noexcept {
    each_of_block(
        n, [&](Index i) { set_carrier(sums, i, combine<Op>(carrier_at<A>(sums, i), carrier_at<A>(addends, i))); });
}
template <class A>
void divide_block(std::byte* sums, Index n, Index divisor) noexcept {
    each_of_block(n, [&](Index i) { set_carrier(sums, i, carrier_at<A>(sums, i) / static_cast<A>(divisor)); });
}

/// A fold by steps that know what is loaded or how it is folded, not both: where one loop knew both, loops were a third
/// of the code of a program that reduces.
struct FoldSteps {
    void (*load)(std::byte const*, Index, Index, std::byte*) noexcept = nullptr;
    void (*store)(std::byte const*, Index, std::byte*, Index) noexcept = nullptr;
    void (*combine)(std::byte*, std::byte const*, Index) noexcept = nullptr;
    void (*divide)(std::byte*, Index, Index) noexcept = nullptr;  ///< floats
    Index element = 0;                                            ///< bytes
    bool as_it_is = false;                                        ///< elements are their own carriers

    void operator()(FoldRun const& run, std::byte const* from, std::byte* to) const noexcept {
        alignas(64) std::byte sums[fold_block * 8];
        alignas(64) std::byte addends[fold_block * 8];
        bool const in_place = as_it_is && run.from == element;
        for (Index start = 0; start < run.extent; start += fold_block) {
            Index const n = smaller(fold_block, run.extent - start);
            std::byte const* source = from + start * run.from;
            load(source, run.from, n, sums);
            for (Index k = 1; k < run.slots; ++k) {
                source += run.slot_stride;
                if (in_place) {
                    combine(sums, source, n);
                } else {
                    load(source, run.from, n, addends);
                    combine(sums, addends, n);
                }
            }
            if (run.divisor != 1 && divide != nullptr) divide(sums, n, run.divisor);
            store(sums, n, to + start * run.to, run.to);
        }
    }
};

/// Sums, products and bits of integers do not depend on the sign.
template <class A>
using Wrapped =
    typename std::conditional_t<std::is_floating_point_v<A>, std::type_identity<A>, std::make_unsigned<A>>::type;

[[nodiscard]] inline FoldSteps fold_steps(Reduce op, DType dtype) noexcept {
    FoldSteps steps;
    with_number(dtype, [&]<class T>() {
        using A = Accumulator<T>;
        steps.load = load_block<T>;
        steps.store = store_block<T>;
        steps.element = sizeof(T);
        steps.as_it_is = std::is_same_v<T, A>;
        if constexpr (std::is_floating_point_v<A>) steps.divide = divide_block<A>;
        with_op<A>(op, [&]<Reduce Op>() {
            steps.combine = combine_block<std::conditional_t<is_ordered(Op), A, Wrapped<A>>, Op>;
        });
    });
    return steps;
}

// ---- Sums of floats by AVX2 and F16C, where the processor has them ---------------------------------------------
//
// Every element is folded by itself, in the order of the slots: the same bits by whatever instructions.

#if defined(RESHARD_FOLDS_WIDE)

using FoldKernel = void (*)(FoldRun const&, std::byte const*, std::byte*) noexcept;

/// Dense runs.
template <class T>
[[gnu::target("avx2")]] void sum_wide(FoldRun const& run, std::byte const* from, std::byte* to) noexcept {
    using A = Accumulator<T>;
    A sums[fold_block];
    auto const divisor = static_cast<A>(run.divisor);
    for (Index start = 0; start < run.extent; start += fold_block) {
        Index const n = smaller(fold_block, run.extent - start);
        std::byte const* source = from + start * Index{sizeof(T)};
        auto const addend = [&](Index i) { return load_element<T>(source + i * Index{sizeof(T)}); };
        each_of_block(n, [&](Index i) { sums[i] = addend(i); });
        for (Index k = 1; k < run.slots; ++k) {
            source += run.slot_stride;
            each_of_block(n, [&](Index i) { sums[i] += addend(i); });
        }
        if (run.divisor != 1) each_of_block(n, [&](Index i) { sums[i] /= divisor; });
        each_of_block(n, [&](Index i) { store_element<T>(to + (start + i) * Index{sizeof(T)}, sums[i]); });
    }
}
/// Halves, eight at a time. (What is no number keeps the same bits of its payload as by Float16.) By the compilers' own
/// names: <immintrin.h> costs every file that includes it half a second.
[[gnu::target("avx2,f16c")]] inline void sum_halves(FoldRun const& run, std::byte const* from, std::byte* to) noexcept {
    constexpr Index lanes = 8;
    constexpr Index size = sizeof(Float16);
    using Halves [[gnu::vector_size(lanes * size)]] = short;
    using Floats [[gnu::vector_size(lanes * sizeof(float))]] = float;
#if defined(__clang__)
    using Addends [[gnu::vector_size(lanes * size)]] = __fp16;
#else
    using Addends = Halves;
#endif
    auto const divisor = static_cast<float>(run.divisor);
    Index i = 0;
    for (; i + lanes <= run.extent; i += lanes) {
        std::byte const* source = from + i * size;
        Floats sums{};
        for (Index k = 0; k < run.slots; ++k, source += run.slot_stride) {
            Addends addends;
            std::memcpy(&addends, source, sizeof addends);
#if defined(__clang__)  // 22 and newer are without the function below
            Floats const wide = __builtin_convertvector(addends, Floats);
#else
            Floats const wide = __builtin_ia32_vcvtph2ps256(addends);
#endif
            sums = k == 0 ? wide : sums + wide;
        }
        if (run.divisor != 1) sums /= divisor;
        Halves const rounded = __builtin_ia32_vcvtps2ph256(sums, 0);  // to the nearest, ties to even
        std::memcpy(to + i * size, &rounded, sizeof rounded);
    }
    FoldRun rest = run;
    rest.extent -= i;
    sum_wide<Float16>(rest, from + i * size, to + i * size);
}

/// Null where the processor, the op or the type has none.
[[nodiscard]] inline FoldKernel wide_sums(Reduce op, DType dtype) noexcept {
    if (op != Reduce::sum && op != Reduce::avg) return nullptr;
    if (!__builtin_cpu_supports("avx2")) return nullptr;  // what has it has F16C
    switch (dtype) {
        case DType::f16: return sum_halves;
        case DType::bf16: return sum_wide<BFloat16>;
        case DType::f32: return sum_wide<float>;
        case DType::f64: return sum_wide<double>;
        default: return nullptr;
    }
}

#endif

// ---- Boxes -----------------------------------------------------------------------------------------------------

/// Calls body(address) for each element of a box.
template <class Body>
void for_each_address(std::byte* base, StridedBox const& box, Body&& body) noexcept {
    LoopNest nest = loop_nest(box, box);
    if (nest.empty) return;
    LoopDim const inner = take_inner(nest);
    std::byte* first = base + nest.to_offset;
    for_each_origin(nest, nest.dims.size(), first, first, [&](std::byte*, std::byte* to) {
        for (Index i = 0; i < inner.extent; ++i) body(to + i * inner.to);
    });
}

RESHARD_INLINE void fold_slots(Reduce op, DType dtype, std::byte const* sources, Index slot_stride_bytes, Index count,
                               StridedBox const& slot_box, std::byte* destination, StridedBox const& destination_box,
                               Index divisor, [[maybe_unused]] bool wide) noexcept {
    if (dtype == DType::c64) {
        return fold_slots(op, DType::f32, sources, slot_stride_bytes, count, floats_of(slot_box), destination,
                          floats_of(destination_box), divisor, wide);
    }
    LoopNest nest = loop_nest(slot_box, destination_box);
    if (nest.empty || count < 1) return;
    LoopDim const inner = take_inner(nest);
    FoldRun const run{inner.extent, inner.from, inner.to, slot_stride_bytes, count, divisor};
    auto const each = [&](auto const& kernel) {
        for_each_origin(nest, nest.dims.size(), sources + nest.from_offset, destination + nest.to_offset,
                        [&](std::byte const* from, std::byte* to) { kernel(run, from, to); });
    };
#if defined(RESHARD_FOLDS_WIDE)
    if (wide && run.from == bytes(dtype) && run.to == bytes(dtype)) {
        if (FoldKernel const kernel = wide_sums(op, dtype); kernel != nullptr) return each(kernel);
    }
#endif
    FoldSteps const steps = fold_steps(op, dtype);
    if (steps.load != nullptr) each(steps);
}

}  // namespace detail

RESHARD_INLINE void transport::fold(Reduce op, DType dtype, std::byte const* sources, Index slot_stride_bytes,
                                    Index count, transport::StridedBox const& slot_box, std::byte* destination,
                                    transport::StridedBox const& destination_box, Index divisor) noexcept {
    detail::fold_slots(op, dtype, sources, slot_stride_bytes, count, slot_box, destination, destination_box, divisor,
                       true);
}

RESHARD_INLINE void transport::fill_identity(Reduce op, DType dtype, std::byte* base,
                                             transport::StridedBox const& box) noexcept {
    if (dtype == DType::c64) return fill_identity(op, DType::f32, base, detail::floats_of(box));
    detail::with_number(dtype, [&]<class T>() {
        T const value = detail::identity_element<T>(op, dtype);
        detail::for_each_address(base, box, [&](std::byte* at) { std::memcpy(at, &value, sizeof(T)); });
    });
}

RESHARD_INLINE void transport::scale(DType dtype, std::byte* base, transport::StridedBox const& box, Index multiply,
                                     Index divide) noexcept {
    if (dtype == DType::c64) return scale(DType::f32, base, detail::floats_of(box), multiply, divide);
    detail::with_number(dtype, [&]<class T>() {
        using A = detail::Accumulator<T>;
        if constexpr (std::is_floating_point_v<A>) {
            auto const factor = static_cast<A>(multiply);
            auto const divisor = static_cast<A>(divide);
            detail::for_each_address(base, box, [&](std::byte* at) {
                detail::store_element<T>(at, detail::load_element<T>(at) * factor / divisor);
            });
        }
    });
}

}  // namespace reshard::inline v0_1
