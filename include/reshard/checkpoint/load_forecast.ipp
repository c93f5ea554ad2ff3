// SPDX-License-Identifier: Apache-2.0
// How checkpoint/load_forecast.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/load_choice.hpp>
#include <reshard/checkpoint/load_forecast.hpp>
#include <reshard/core/detail/explain_text.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/plan/topology.hpp>

#include <algorithm>  // unique
#include <bit>        // bit_cast

namespace reshard::inline v0_1 {

namespace detail {

/// Of memory that nobody reads: plans of reads look at addresses only.
[[nodiscard]] inline std::byte* some_address() noexcept { return std::bit_cast<std::byte*>(std::uintptr_t{1} << 20U); }

/// Adds up what the ranks would do.
class LoadForecaster {
public:
    LoadForecaster(Catalogue const& catalogue, std::span<PlacedTensor const> targets, int ranks, LoadTerms const& terms,
                   LoadModel const& model)
        : catalogue_(catalogue), terms_(terms), model_(model) {
        if (ranks < 1) {
            raise(ErrorCode::mesh, "reshard::forecast_load: ", ranks, " ranks. Fix: name at least one.");
        }
        check(terms.reads);
        targets_.reserve(targets.size());
        for (PlacedTensor const& target : targets) {
            check_mesh(target.distribution.mesh(), ranks, "reshard::load: tensor ", quote_name(target.name), ": ");
            targets_.push_back(
                {target.name, target.distribution, DynamicView(nullptr, target.dtype, Shape{0}), target.within});
        }
        wanted_ = match(catalogue, targets_, terms.options, &result_.not_listed);
        add_touched_blocks(catalogue, wanted_, terms.options);
        result_.strategy = terms.strategy;
        result_.ranks = ranks;
        result_.tensors = as_index(targets.size());
        for (WantedExtent const& extent : wanted_) result_.bytes_in_files += extent.bytes();
        reports_.resize(as_size(ranks));
    }

    [[nodiscard]] LoadForecast run() {
        if (terms_.communicates) add_session();
        ReadSchedule const schedule = schedule_of(catalogue_, wanted_, targets_, result_.ranks, terms_);
        bool together = terms_.cooperation == Cooperation::always;
        std::vector<LoadShare> shares;
        for (int rank = 0; rank < result_.ranks && !together; ++rank)
            shares.push_back(share_of(read_directly(rank), schedule, wanted_, targets_, rank));
        if (terms_.cooperation == Cooperation::by_model) {
            ++result_.collectives.exchanges;
            result_.bytes_of_lists += bytes_to_all(sizeof(LoadShare));
            together = exchange_pays(shares, schedule.windows, terms_.reads.in_flight, model_);
        }
        result_.read_directly = !together;
        Index const busiest = together ? read_staged(schedule) : 0;
        for (LoadFigures const& report : reports_) {
            for (Index LoadFigures::*figure :
                 {&LoadFigures::bytes_loaded, &LoadFigures::bytes_read, &LoadFigures::reads, &LoadFigures::files_opened,
                  &LoadFigures::bytes_verified})
                result_.*figure += report.*figure;
            result_.most_bytes_read = larger(result_.most_bytes_read, report.bytes_read);
            result_.most_reads = larger(result_.most_reads, report.reads);
            result_.extra_bytes = larger(result_.extra_bytes, report.extra_bytes);
        }
        result_.seconds =
            together ? staged_seconds(result_.bytes_read, result_.most_bytes_read, schedule.windows, busiest, model_)
                     : direct_seconds(result_.bytes_read, result_.most_bytes_read, result_.most_reads,
                                      terms_.reads.in_flight, model_);
        return std::move(result_);
    }

private:
    /// One agreement about the list, and the catalogue; one before the first read and one after the last, whether
    /// staged or not.
    void add_session() {
        result_.collectives.broadcasts = 2;
        result_.collectives.agreements = 4;
        result_.bytes_of_lists = (result_.ranks - 1) * as_index(sizeof(Index) + list_text(catalogue_).size());
        result_.lists_opened = lists_opened(catalogue_);
    }
    /// What crosses ranks where each tells all others so much.
    [[nodiscard]] Index bytes_to_all(std::size_t bytes) const noexcept {
        return Index{result_.ranks} * (result_.ranks - 1) * as_index(bytes);
    }

    /// A rank reads what it needs.
    ReadTotals read_directly(int rank) {
        std::byte* next = some_address();  // no two tensors touch
        for (LocalTensor& target : targets_) {
            if (!target.distribution.contains(rank)) continue;
            target.view = DynamicView(next, target.view.dtype(), target.distribution.local_shape(rank));
            next += target.view.size() * bytes(target.view.dtype()) + 64;
        }
        ReadPlan const plan =
            plan_reads(catalogue_, wanted_, needed_boxes(wanted_, targets_, rank), terms_.reads, terms_.options);
        LoadFigures& report = reports_[as_size(rank)];
        add_reads(report, plan.totals());
        report.bytes_loaded = plan.totals().bytes_wanted;
        report.files_opened = plan.totals().files;
        report.bytes_verified = sum_of(summed_runs(catalogue_, wanted_, plan.reads(), terms_.options));
        return plan.totals();
    }

    /// The readers read and pass on. Returns the bytes that the busiest rank sends, or receives.
    [[nodiscard]] Index read_staged(ReadSchedule const& schedule) {
        Spread const spread = terms_.spread;
        Index const others = result_.ranks - 1;
        std::vector<Index> staging;   // of each rank
        std::vector<Index> received;  // from others
        for (int rank = 0; rank <= others; ++rank) {
            LoadFigures& report = reports_[as_size(rank)] = {};
            report.bytes_loaded = loaded_by(rank);
            received.push_back(report.bytes_loaded);
            staging.push_back(staging_bytes(schedule, spread, rank));
            add_reads(report, {}, staging.back());
        }
        Index busiest = 0;
        Needs scratch;
        std::vector<std::pair<int, Index>> pairs;  // of a window: from, to
        for_each_window(schedule, [&](std::span<Piece const> pieces) {
            pairs.clear();
            for (std::size_t i = 0; i < pieces.size();) {
                int const reader = pieces[i].reader;
                std::size_t const first = i;
                for (; i < pieces.size() && pieces[i].reader == reader; ++i) {
                    if (spread == Spread::broadcast) continue;
                    Box const& box = pieces[i].box;
                    for_each_wanting(wanted_, pieces[i], [&, this](WantedExtent const& extent) {
                        LocalTensor const& target = targets_[extent.target];
                        received[as_size(reader)] -= needed_bytes(box, extent, target, reader, scratch);
                        for_each_needing(extent, box, target, [&](Index rank) {
                            if (rank != reader) pairs.emplace_back(reader, rank);
                        });
                    });
                }
                auto const boxes = staging_boxes(pieces.subspan(first, i - first), wanted_, reader, some_address());
                add_reads(reports_[as_size(reader)], count_reads(boxes, terms_.reads), staging[as_size(reader)]);
            }
            sort_list(pairs);
            result_.messages += std::unique(pairs.begin(), pairs.end()) - pairs.begin();
            if (spread == Spread::broadcast) {
                Index const bytes = pieces.back().place + pieces.back().bytes;
                bool const in_shares = goes_in_shares(bytes, result_.ranks);
                result_.messages += in_shares ? others * others : others;
                busiest += in_shares ? 2 * (bytes - bytes / result_.ranks) : bytes * others;
            }
        });
        result_.files_opened = opens(schedule, wanted_);
        passes_of(result_.collectives, spread) += schedule.windows;
        result_.collectives.agreements += 1 + schedule.windows;  // about the staging memory, and about each window
        std::vector<ExtentRun> const summed = summed_runs(catalogue_, wanted_, terms_.options);
        result_.bytes_verified = sum_of(summed);
        if (spread == Spread::exchange && !summed.empty()) {
            ++result_.collectives.exchanges;
            result_.bytes_of_lists += bytes_to_all(sizeof(ExtentParts));
        }
        if (spread == Spread::broadcast) {
            result_.bytes_passed = result_.bytes_in_files * result_.ranks;
            result_.bytes_on_wire = result_.bytes_in_files * others;
            return busiest;
        }
        for (std::size_t rank = 0; rank < received.size(); ++rank) {
            result_.bytes_passed += reports_[rank].bytes_loaded;
            result_.bytes_on_wire += received[rank];
            busiest = larger(busiest, received[rank]);
        }
        return spread == Spread::scatter ? result_.bytes_on_wire : busiest;
    }

    [[nodiscard]] Index loaded_by(int rank) const {
        Index sum = 0;
        for (LocalTensor const& target : targets_) {
            DynamicDistribution const& to = target.distribution;
            if (!to.contains(rank) || !partial_part(to, to.mesh().coordinates(rank)).has_values) continue;
            sum += to.local_shape(rank).size() * bytes(target.view.dtype());
        }
        return sum;
    }
    [[nodiscard]] static Index sum_of(std::span<ExtentRun const> runs) noexcept {
        Index sum = 0;
        for (ExtentRun const& run : runs) sum += run.end - run.begin;
        return sum;
    }

    Catalogue const& catalogue_;
    LoadTerms terms_;
    LoadModel const& model_;
    std::vector<LocalTensor> targets_;
    std::vector<WantedExtent> wanted_;
    std::vector<LoadFigures> reports_;  ///< of all ranks
    LoadForecast result_;
};

}  // namespace detail

RESHARD_INLINE LoadForecast detail::forecast_by(Catalogue const& catalogue, std::span<PlacedTensor const> targets,
                                                int ranks, LoadTerms const& terms, LoadModel const& model) {
    if (terms.spread != Spread::exchange) check_root(terms.root, ranks);
    check_window(terms.window_bytes);
    return LoadForecaster(catalogue, targets, ranks, terms, model).run();
}

RESHARD_INLINE std::string explain(LoadForecast const& forecast) {
    using detail::append, detail::bytes_text, detail::count_text;
    std::string text = errors::concat(
        forecast.strategy, ": ", count_text(forecast.tensors, "tensor"), ", ", bytes_text(forecast.bytes_in_files),
        " in files, ", bytes_text(forecast.bytes_loaded), " on ", count_text(forecast.ranks, "rank"), "\n");
    append(text, {"  collectives: ", to_string(forecast.collectives), "\n"});
    append(text, {"  pass ", bytes_text(forecast.bytes_passed), " of tensors, of which ",
                  bytes_text(forecast.bytes_on_wire), " cross ranks in ", count_text(forecast.messages, "message"),
                  "; lists of tensors and figures ", bytes_text(forecast.bytes_of_lists), "\n"});
    std::string const busiest = errors::concat("a rank at most ", bytes_text(forecast.most_bytes_read), " in ",
                                               count_text(forecast.most_reads, "read"), "\n  ");
    append(text, {"  reads ", detail::reads_text(forecast, busiest), "  memory beyond the local tensors: at most ",
                  bytes_text(forecast.extra_bytes), " on a rank\n"});
    append(text, {"  about ", detail::seconds_text(forecast.seconds), " by the model\n"});
    return text;
}

}  // namespace reshard::inline v0_1
