// SPDX-License-Identifier: Apache-2.0
// How checkpoint/load_forecast.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/load_forecaster.hpp>
#include <reshard/checkpoint/load_forecast.hpp>
#include <reshard/plan/explain_text.hpp>
#include <reshard/plan/topology.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE LoadForecast detail::forecast_from_one(Catalogue const& catalogue, std::span<PlacedTensor const> targets,
                                                      int ranks, OneReader const& strategy, LoadModel const& model) {
    check_source(strategy.source, ranks);
    check_window(strategy.window_bytes);
    LoadForecaster forecaster(catalogue, targets, ranks, strategy.reads, strategy.options, strategy.name);
    forecaster.add_session(true);
    forecaster.read_staged(one_reads(forecaster.wanted(), strategy.source, strategy.window_bytes), spread_of(strategy),
                           model);
    return forecaster.result();
}

RESHARD_INLINE LoadForecast forecast_load(Catalogue const& catalogue, std::span<PlacedTensor const> targets, int ranks,
                                          EveryRankReads const& strategy, LoadModel const& model) {
    detail::LoadForecaster forecaster(catalogue, targets, ranks, strategy.reads, strategy.options,
                                      EveryRankReads::name);
    forecaster.read_directly(forecaster.direct_reads(), model);
    return forecaster.result();
}

RESHARD_INLINE LoadForecast forecast_load(Catalogue const& catalogue, std::span<PlacedTensor const> targets, int ranks,
                                          EachRankReadsItsBoxes const& strategy, LoadModel const& model) {
    detail::LoadForecaster forecaster(catalogue, targets, ranks, strategy.reads, strategy.options,
                                      EachRankReadsItsBoxes::name);
    forecaster.add_session(false);
    forecaster.read_directly(forecaster.direct_reads(), model);
    return forecaster.result();
}

RESHARD_INLINE LoadForecast forecast_load(Catalogue const& catalogue, std::span<PlacedTensor const> targets, int ranks,
                                          CooperativeRead const& strategy) {
    detail::check_window(strategy.window_bytes);
    detail::LoadForecaster forecaster(catalogue, targets, ranks, strategy.reads, strategy.options,
                                      CooperativeRead::name);
    forecaster.add_session(false);
    auto const schedule =
        detail::cooperative_reads(catalogue, forecaster.wanted(), forecaster.targets(), ranks, strategy.window_bytes);
    std::vector<detail::ReadTotals> direct;
    if (strategy.cooperation != Cooperation::always) direct = forecaster.direct_reads();
    bool together = strategy.cooperation == Cooperation::always;
    if (strategy.cooperation == Cooperation::by_model) {
        std::vector<detail::LoadShare> shares;
        shares.reserve(direct.size());
        for (int rank = 0; rank < ranks; ++rank) {
            shares.push_back(detail::share_of(direct[static_cast<std::size_t>(rank)], schedule, forecaster.wanted(),
                                              forecaster.targets(), rank));
        }
        forecaster.add_shares();
        together = detail::exchange_pays(shares, schedule.windows, strategy.reads.in_flight, strategy.model);
    }
    if (together) {
        forecaster.read_staged(schedule, detail::Spread::exchange, strategy.model);
    } else {
        forecaster.read_directly(direct, strategy.model);
    }
    return forecaster.result();
}

RESHARD_INLINE std::string explain(LoadForecast const& forecast) {
    using detail::bytes_text;
    using detail::count_text;
    std::string text = concat(forecast.strategy, ": ", count_text(forecast.tensors, "tensor"), ", ",
                              bytes_text(forecast.bytes_in_files), " in files, ", bytes_text(forecast.bytes_loaded),
                              " on ", count_text(forecast.ranks, "rank"), "\n");
    text += concat("  collectives: ", to_string(forecast.collectives), "\n");
    text += concat("  pass ", bytes_text(forecast.bytes_passed), " of tensors, of which ",
                   bytes_text(forecast.bytes_on_wire), " cross ranks in ", count_text(forecast.messages, "message"),
                   "; lists of tensors and figures ", bytes_text(forecast.bytes_of_lists), "\n");
    text += concat("  reads ", bytes_text(forecast.bytes_read), " in ", count_text(forecast.reads, "read"), ", ",
                   count_text(forecast.files_opened, "open file"), " and ", forecast.lists_opened,
                   " for lists; a rank at most ", bytes_text(forecast.most_bytes_read), " in ",
                   count_text(forecast.most_reads, "read"), "\n");
    text += concat("  memory beyond the local tensors: at most ", bytes_text(forecast.extra_bytes), " on a rank\n");
    text += concat("  about ", detail::seconds_text(forecast.seconds), " by the model\n");
    return text;
}

}  // namespace reshard::inline v0
