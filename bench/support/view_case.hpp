// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/view_case.hpp
/// \brief  Views whose every input is opaque to the optimiser: nothing can be computed ahead of the call.
#pragma once

#include <benchmark/benchmark.h>
#include <reshard/reshard.hpp>

#include <array>  // array

namespace reshard::bench {

inline constexpr Shape<dynamic, dynamic> view_shape() { return {8192, 1024}; }

/// A plan that is a view, and what it is asked about. The memory is never touched, so there is none.
template <class Plan>
class ViewCase {
public:
    ViewCase(Plan const& plan, Index rank)
        : plan_(plan), full_(reinterpret_cast<float*>(memory_.data()), plan.from().local_shape(rank)), rank_(rank) {}

    /// One call.
    void view() {
        forget();
        TensorView<float> result = plan_.view(full_, rank_);
        benchmark::DoNotOptimize(&result);
        benchmark::ClobberMemory();
    }
    /// The same without the call: what the measurement itself costs.
    void floor() {
        forget();
        TensorView<float> result = full_;
        benchmark::DoNotOptimize(&result);
        benchmark::ClobberMemory();
    }
    /// Whether the result is a window of the memory that was given.
    [[nodiscard]] bool is_window() {
        TensorView<float> const result = plan_.view(full_, rank_);
        Index const offset = result.data() - full_.data();
        return offset >= 0 && offset < full_.size() && result.strides() == full_.strides();
    }

    [[nodiscard]] Plan const& plan() const noexcept { return plan_; }
    [[nodiscard]] Index rank() const noexcept { return rank_; }

private:
    void forget() {
        benchmark::DoNotOptimize(&plan_);
        benchmark::DoNotOptimize(&full_);
        benchmark::DoNotOptimize(rank_);
        benchmark::ClobberMemory();
    }

    alignas(64) std::array<std::byte, 64> memory_{};
    Plan plan_;
    TensorView<float> full_;
    Index rank_;
};

[[nodiscard]] inline auto view_of_one_axis() {
    Mesh const mesh{8};
    return ViewCase(plan(distribution<Replicate>(mesh, view_shape()), distribution<Shard<0>>(mesh, view_shape())), 5);
}
[[nodiscard]] inline auto view_of_two_axes() {
    Mesh const mesh{2, 4};
    return ViewCase(plan(distribution<Replicate, Replicate>(mesh, view_shape()),
                         distribution<Shard<1>, Shard<0>>(mesh, view_shape())),
                    5);
}
/// Both axes cut one dimension, and one of them has cut it already.
[[nodiscard]] inline auto view_of_second_cut() {
    Mesh const mesh{2, 4};
    return ViewCase(plan(distribution<Shard<0>, Replicate>(mesh, view_shape()),
                         distribution<Shard<0>, Shard<0>>(mesh, view_shape())),
                    5);
}
/// The same plan, known at run time only.
template <class Plan>
[[nodiscard]] auto untyped(ViewCase<Plan> const& typed) {
    return ViewCase<reshard::Plan<>>(typed.plan(), typed.rank());
}

}  // namespace reshard::bench
