// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/detail/fold_blocks.hpp
/// \brief  Runs of elements, folded block by block; sums of floats by AVX2 and F16C where the processor has them.
/// \depends memory/detail/arithmetic.
///
/// Every element is folded by itself, in the order of the slots: the same bits by whatever instructions.
#pragma once

#include <reshard/memory/detail/arithmetic.hpp>

#if defined(__x86_64__) && defined(__GNUC__)
#define RESHARD_FOLDS_WIDE 1
#endif

namespace reshard::inline v0::detail {

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

}  // namespace reshard::inline v0::detail
