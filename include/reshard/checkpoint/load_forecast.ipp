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
        for (int rank = 0; rank < ranks; ++rank) {
            loaded_.push_back(loaded_by(rank));
            result_.bytes_loaded += loaded_.back();
        }
    }

    [[nodiscard]] LoadForecast run() {
        if (terms_.communicates) add_session();
        ReadSchedule const schedule = schedule_of(catalogue_, wanted_, targets_, result_.ranks, terms_);
        bool together = terms_.cooperation == Cooperation::always;
        std::vector<DirectReads> direct;
        if (!together) direct = direct_reads();
        if (terms_.cooperation == Cooperation::by_model) {
            std::vector<LoadShare> shares;
            for (DirectReads const& one : direct) {
                auto const rank = static_cast<int>(shares.size());
                shares.push_back(share_of(one.totals, schedule, wanted_, targets_, rank));
            }
            ++result_.collectives.exchanges;
            result_.bytes_of_lists += Index{result_.ranks} * (result_.ranks - 1) * as_index(sizeof(LoadShare));
            together = exchange_pays(shares, schedule.windows, terms_.reads.in_flight, model_);
        }
        together ? read_staged(schedule) : read_directly(direct);
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

    /// What a rank would read by itself, and compare of it.
    struct DirectReads {
        ReadTotals totals;
        Index bytes_verified = 0;
    };
    [[nodiscard]] std::vector<DirectReads> direct_reads() {
        std::vector<DirectReads> result;
        for (int rank = 0; rank < result_.ranks; ++rank) {
            std::byte* next = some_address();  // no two tensors touch
            for (LocalTensor& target : targets_) {
                if (!target.distribution.contains(rank)) continue;
                target.view = DynamicView(next, target.view.dtype(), target.distribution.local_shape(rank));
                next += target.view.size() * bytes(target.view.dtype()) + 64;
            }
            ReadPlan const plan =
                plan_reads(catalogue_, wanted_, needed_boxes(wanted_, targets_, rank), terms_.reads, terms_.options);
            result.push_back({plan.totals(), sum_of(summed_runs(catalogue_, wanted_, plan.reads(), terms_.options))});
        }
        return result;
    }

    /// Each rank reads what it needs.
    void read_directly(std::span<DirectReads const> ranks) {
        for (auto const& [totals, bytes_verified] : ranks) {
            add_reads(totals.bytes_read, totals.reads);
            result_.files_opened += totals.files;
            result_.extra_bytes = larger(result_.extra_bytes, totals.scratch_bytes);
            result_.bytes_verified += bytes_verified;
        }
        result_.read_directly = true;
        result_.seconds = direct_seconds(result_.bytes_read, result_.most_bytes_read, result_.most_reads,
                                         terms_.reads.in_flight, model_);
    }

    /// The readers read and pass on.
    void read_staged(ReadSchedule const& schedule) {
        Spread const spread = terms_.spread;
        auto const ranks = as_size(result_.ranks);
        std::vector<Index> reads(ranks);
        std::vector<Index> bytes_read(ranks);
        std::vector<Index> kept(ranks);
        Needs scratch;
        std::vector<std::pair<int, Index>> pairs;  // of a window: from, to
        Index staged = 0;
        Index busiest = 0;           // bytes that one rank sends, or receives
        std::vector<Index> staging;  // of each rank
        for (int rank = 0; rank < result_.ranks; ++rank) {
            staging.push_back(staging_bytes(schedule, spread, rank));
            result_.extra_bytes = larger(result_.extra_bytes, staging.back());
        }
        for_each_window(schedule, [&](std::span<Piece const> pieces) {
            pairs.clear();
            for (std::size_t i = 0; i < pieces.size();) {
                int const reader = pieces[i].reader;
                std::size_t end = i;
                for (; end < pieces.size() && pieces[end].reader == reader; ++end) {
                    Box const& box = pieces[end].box;
                    staged += pieces[end].bytes;
                    for_each_wanting(wanted_, pieces[end], [&, this](WantedExtent const& extent) {
                        LocalTensor const& target = targets_[extent.target];
                        kept[as_size(reader)] += needed_bytes(box, extent, target, reader, scratch);
                        if (spread == Spread::broadcast) return;
                        for_each_needing(extent, box, target, [&](Index rank) {
                            if (rank != reader) pairs.emplace_back(reader, rank);
                        });
                    });
                }
                ReadTotals const totals = count_reads(
                    staging_boxes(pieces.subspan(i, end - i), wanted_, reader, some_address()), terms_.reads);
                reads[as_size(reader)] += totals.reads;
                bytes_read[as_size(reader)] += totals.bytes_read;
                result_.extra_bytes = larger(result_.extra_bytes, staging[as_size(reader)] + totals.scratch_bytes);
                i = end;
            }
            sort_list(pairs);
            result_.messages += std::unique(pairs.begin(), pairs.end()) - pairs.begin();
            if (spread == Spread::broadcast) {
                Index const others = result_.ranks - 1;
                Index const bytes = pieces.back().place + pieces.back().bytes;
                bool const in_shares = goes_in_shares(bytes, result_.ranks);
                result_.messages += in_shares ? others * others : others;
                busiest += in_shares ? 2 * (bytes - bytes / result_.ranks) : bytes * others;
            }
        });
        for (std::size_t rank = 0; rank < ranks; ++rank) add_reads(bytes_read[rank], reads[rank]);
        result_.files_opened = opens(schedule, wanted_);
        passes_of(result_.collectives, spread) += schedule.windows;
        result_.collectives.agreements += 1 + schedule.windows;  // about the staging memory, and about each window
        std::vector<ExtentRun> const summed = summed_runs(catalogue_, wanted_, terms_.options);
        result_.bytes_verified = sum_of(summed);
        if (spread == Spread::exchange && !summed.empty()) {
            ++result_.collectives.exchanges;
            result_.bytes_of_lists += Index{result_.ranks} * (result_.ranks - 1) * as_index(sizeof(ExtentParts));
        }

        if (spread == Spread::broadcast) {
            result_.bytes_passed = staged * result_.ranks;
            result_.bytes_on_wire = staged * (result_.ranks - 1);
        } else {
            result_.bytes_passed = result_.bytes_loaded;
            for (std::size_t rank = 0; rank < ranks; ++rank) {
                result_.bytes_on_wire += loaded_[rank] - kept[rank];
                busiest = larger(busiest, loaded_[rank] - kept[rank]);
            }
            if (spread == Spread::scatter) busiest = result_.bytes_on_wire;
        }
        result_.seconds =
            staged_seconds(result_.bytes_read, result_.most_bytes_read, schedule.windows, busiest, model_);
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
    void add_reads(Index bytes_read, Index reads) noexcept {
        result_.bytes_read += bytes_read;
        result_.most_bytes_read = larger(result_.most_bytes_read, bytes_read);
        result_.reads += reads;
        result_.most_reads = larger(result_.most_reads, reads);
    }

    Catalogue const& catalogue_;
    LoadTerms terms_;
    LoadModel const& model_;
    std::vector<LocalTensor> targets_;
    std::vector<WantedExtent> wanted_;
    std::vector<Index> loaded_;
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
    append(text, {"  reads ", bytes_text(forecast.bytes_read), " in ", count_text(forecast.reads, "read"), ", ",
                  count_text(forecast.files_opened, "open file"), " and ", forecast.lists_opened,
                  " for lists; a rank at most ", bytes_text(forecast.most_bytes_read), " in ",
                  count_text(forecast.most_reads, "read"), "\n  ",
                  detail::verified_text(forecast.bytes_read, forecast.bytes_verified), "\n",
                  detail::not_listed_text(forecast.not_listed)});
    append(text, {"  memory beyond the local tensors: at most ", bytes_text(forecast.extra_bytes), " on a rank\n"});
    append(text, {"  about ", detail::seconds_text(forecast.seconds), " by the model\n"});
    return text;
}

}  // namespace reshard::inline v0_1
