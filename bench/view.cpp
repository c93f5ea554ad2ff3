// SPDX-License-Identifier: Apache-2.0
// Question: what does a view cost, when nothing about it is known ahead?
// Floor: copying the view that was given, which is as large as the result.
#include "support/view_case.hpp"

namespace {

using namespace reshard;
using namespace reshard::bench;

template <class Case>
void floor(benchmark::State& state, Case make) {
    auto view = make();
    for (auto _ : state) view.floor();
}
template <class Case>
void view(benchmark::State& state, Case make) {
    auto view = make();
    for (auto _ : state) view.view();
}

BENCHMARK_CAPTURE(floor, copy_of_a_view, view_of_one_axis);
BENCHMARK_CAPTURE(view, one_axis, view_of_one_axis);
BENCHMARK_CAPTURE(view, two_axes, view_of_two_axes);
BENCHMARK_CAPTURE(view, second_cut, view_of_second_cut);
BENCHMARK_CAPTURE(view, one_axis_untyped, [] { return untyped(view_of_one_axis()); });
BENCHMARK_CAPTURE(view, two_axes_untyped, [] { return untyped(view_of_two_axes()); });

}  // namespace

BENCHMARK_MAIN();
