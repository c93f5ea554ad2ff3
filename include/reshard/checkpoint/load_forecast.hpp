// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/load_forecast.hpp
/// \brief  A dry run: what a load would read, send and hold, without data, without files and without ranks.
/// \depends checkpoint/{catalogue,load_strategy,placed_tensor}.
/// Link reshard::checkpoint.
///
///     auto catalogue = Catalogue::of(specs);                        // or Catalogue(checkpoint): headers only
///     LoadForecast f = forecast_load(catalogue, targets, 64);       // as load(path, tensors, comm)
///     f = forecast_load(catalogue, targets, 64, OneRankReads<Scatter>{});
///     explain(f);                                                   // a string
///
/// The figures are those of the LoadReports of all ranks, added up: the load and its forecast share the schedule, the
/// rules for reads and the choice of CooperativeRead. Local tensors are taken to be dense, each in memory of its own.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/checkpoint/placed_tensor.hpp>

namespace reshard::inline v0_1 {

namespace detail {
[[nodiscard]] LoadForecast forecast_by(Catalogue const& catalogue, std::span<PlacedTensor const> targets, int ranks,
                                       LoadTerms const& terms, LoadModel const& model);
}  // namespace detail

/// What a load comes to: load(checkpoint, tensors, rank) on ranks 0 to ranks - 1, or one over a communicator of `ranks`
/// ranks. Throws what a load throws before it reads: FormatError (TensorNotFound), MismatchError, ShapeError,
/// MeshError, BufferError for options that mean nothing, DTypeError, TransitionError.
template <class Strategy>
    requires(!std::is_base_of_v<CooperativeRead, Strategy>)
[[nodiscard]] LoadForecast forecast_load(Catalogue const& catalogue, std::span<PlacedTensor const> targets, int ranks,
                                         Strategy const& strategy, LoadModel const& model = {}) {
    return detail::forecast_by(catalogue, targets, ranks, detail::terms_of(strategy), model);
}
/// With the choice that the load would make, by strategy.model: what is foretold where no strategy is named.
[[nodiscard]] inline LoadForecast forecast_load(Catalogue const& catalogue, std::span<PlacedTensor const> targets,
                                                int ranks, CooperativeRead const& strategy = {}) {
    return detail::forecast_by(catalogue, targets, ranks, detail::terms_of(strategy), strategy.model);
}

/// A forecast in words.
[[nodiscard]] std::string explain(LoadForecast const& forecast);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/load_forecast.ipp>
#endif
