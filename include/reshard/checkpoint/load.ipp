// SPDX-License-Identifier: Apache-2.0
// How checkpoint/load.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/load_choice.hpp>
#include <reshard/checkpoint/detail/replica_value.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/plan/plan.hpp>

#include <algorithm>  // any_of
#include <chrono>     // steady_clock
#include <optional>   // optional

namespace reshard::inline v0_1 {

namespace detail {

using LoadClock = std::chrono::steady_clock;
[[nodiscard]] inline double seconds_since(LoadClock::time_point start) {
    return std::chrono::duration<double>(LoadClock::now() - start).count();
}

/// What one rank reads for itself, and nothing else. Opens the files.
[[nodiscard]] inline ReadPlan plan_direct(LoadFiles& files, std::span<WantedExtent const> wanted,
                                          std::span<ReadBox const> boxes, ReadOptions const& reads,
                                          LoadOptions const& options) {
    ReadPlan plan = plan_reads(files.catalogue(), wanted, boxes, reads, options);
    for (PlannedRead const& read : plan.reads()) files.open(read.file);
    files.count_sums(summed_runs(files.catalogue(), wanted, plan.reads(), options));
    return plan;
}
/// Once all is read. Throws IoError for files that have changed meanwhile, FormatError for bytes with other sums.
inline void accept(LoadFiles const& files, SumVerdict const& sum, LoadReport& report) {
    report.bytes_verified += sum.bytes;
    files.check_unchanged();
    refuse_wrong(files.catalogue(), sum.wrong);
}
inline void read_direct(LoadFiles& files, ReadPlan const& plan, LoadReport& report) {
    add_reads(report, files.read(plan));
    report.bytes_loaded += plan.totals().bytes_wanted;
    report.read_directly = true;
    accept(files, files.sum(), report);
}

/// What all ranks must say alike of a load.
[[nodiscard]] inline TensorTask task_of(LoadTerms const& terms) {
    static constexpr std::string_view checks[] = {"none", "whole_blocks", "touched_blocks"};
    std::string text = options_text({{"strategy", quote_name(terms.strategy)},
                                     {"root", terms.root},
                                     {"window_bytes", terms.window_bytes},
                                     {"verify_checksums", checks[static_cast<int>(terms.options.verify_checksums)]},
                                     {"replica_axes", axes_text(terms.options.replica_axes)},
                                     {"rename", renames_text(terms.options.rename)}});
    if (terms.chooser != nullptr) {
        static constexpr std::string_view choices[] = {"by_model", "always", "never"};
        LoadModel const& model = terms.chooser->model;
        auto const number = [](double value) { return number_text(value, 17); };
        text = options_text({{"cooperation", choices[static_cast<int>(terms.cooperation)]},
                             {"reads.in_flight", terms.reads.in_flight},
                             {"model.storage_bandwidth", number(model.storage_bandwidth)},
                             {"model.rank_bandwidth", number(model.rank_bandwidth)},
                             {"model.read_latency", number(model.read_latency)},
                             {"model.exchange_bandwidth", number(model.exchange_bandwidth)},
                             {"model.exchange_latency", number(model.exchange_latency)},
                             {"model.copy_bandwidth", number(model.copy_bandwidth)}},
                            std::move(text));
    }
    return {"load", "loads", std::move(text)};
}

/// The parts of a load that all strategies with a communicator share.
class LoadSession {
public:
    /// Collective. Rank terms.root looks at the path and tells the others; all check the list. \pre all that is given
    /// outlives this. (Nothing is copied before the first agreement: there may be no memory.)
    LoadSession(std::string const& path, std::span<LocalTensor const> tensors, CommunicatorRef comm,
                LoadTerms const& terms)
        : comm_(comm), tensors_(tensors), terms_(terms), start_(LoadClock::now()), before_(comm.traffic()) {
        report_.collectives.agreements = 2;
        report_.collectives.broadcasts = 2;
        auto const task = [&] { return task_of(terms); };
        agree_on_tensors(comm, tensors, task, [&] {
            check_root(terms.root, comm.size());
            check_window(terms.window_bytes);
            check(terms.reads);
            check_apart(tensors, comm.rank(), "load");
            check_identities(tensors, comm.rank(), comm.memory());
            lists_.make_room(comm.size());
            shares_.resize(as_size(comm.size()));
            if (comm.rank() == terms.root) files_ = look_at(path);
        });
        share_list(files_, path, comm, terms.root, lists_, pending_);
        pending_.attempt([&] {
            wanted_ = match(catalogue(), tensors, terms.options, &report_.not_listed);
            add_touched_blocks(catalogue(), wanted_, terms.options);
            report_.lists_opened = comm.rank() == terms.root ? lists_opened(catalogue()) : 0;
            report_.tensors = as_index(tensors.size());
            report_.files_digest = catalogue().digest();
            report_.save_id = catalogue().manifest().save;
        });
    }

    /// Collective, as all that follows.
    [[nodiscard]] LoadReport run() {
        ReadSchedule schedule;
        pending_.attempt([&, this] { schedule = schedule_of(catalogue(), wanted_, tensors_, comm_.size(), terms_); });
        bool together = terms_.cooperation == Cooperation::always;
        if (terms_.cooperation == Cooperation::by_model) {
            LoadShare mine;
            pending_.attempt([&, this] {
                ReadPlan const direct = plan_reads(catalogue(), wanted_, needs(), terms_.reads, terms_.options);
                mine = share_of(direct.totals(), schedule, wanted_, tensors_, comm_.rank());
            });
            together =
                exchange_pays(gather_shares(mine), schedule.windows, terms_.reads.in_flight, terms_.chooser->model);
        }
        together ? read_staged(schedule) : read_directly();
        report_.strategy = terms_.strategy;
        report_.files_opened = files_.count();
        report_.metadata = files_.take_metadata();
        report_.traffic = comm_.traffic() - before_;
        report_.seconds = seconds_since(start_);
        return std::move(report_);
    }

private:
    [[nodiscard]] Catalogue const& catalogue() const noexcept { return files_.catalogue(); }
    [[nodiscard]] std::vector<ReadBox> needs() const {
        return needed_boxes(wanted_, tensors_, comm_.rank(), comm_.memory());
    }

    /// The shares of all ranks. A rank that has failed has none to tell; then all end here.
    [[nodiscard]] std::span<LoadShare const> gather_shares(LoadShare mine) {
        if (!pending_.ok()) mine.direct_reads = -1;
        all_gather(comm_, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(shares_)), lists_);
        ++report_.collectives.exchanges;
        if (std::any_of(shares_.begin(), shares_.end(), [](LoadShare const& one) { return one.direct_reads < 0; })) {
            agree();
        }
        return shares_;
    }

    /// Each rank reads what it needs.
    void read_directly() {
        std::optional<ReadPlan> plan;
        pending_.attempt([&, this] { plan = plan_direct(files_, wanted_, needs(), terms_.reads, terms_.options); });
        agree();
        pending_.attempt([&] {
            fill_identities(tensors_, comm_.rank(), comm_.memory());
            read_direct(files_, *plan, report_);
        });
        agree_partly();
    }

    /// The readers read and pass on.
    void read_staged(ReadSchedule const& schedule) {
        bool cut = false;  // ranks that read spans may have parts of what is summed up, which have to meet
        ExtentParts mine{};
        std::vector<ExtentRun> all_parts;
        pending_.attempt([&] {
            for (Piece const& piece : schedule.pieces) {
                if (piece.reader == comm_.rank()) files_.open(wanted_[piece.wanted].file);
            }
            std::vector<ExtentRun> summed = summed_runs(catalogue(), wanted_, terms_.options);
            cut = terms_.spread == Spread::exchange && !summed.empty();
            files_.count_sums(std::move(summed));
            if (cut) all_parts.resize(mine.size() * as_size(comm_.size()));
        });
        agree();
        StagedLoad staged(comm_, wanted_, tensors_, schedule, terms_.spread, report_);
        try {
            staged.run(files_, terms_.reads);
        } catch (Error const& error) {
            raise_with(error, partly_filled);
        }
        SumVerdict sum;
        pending_.attempt([&] {
            staged.finish();
            fill_identities(tensors_, comm_.rank(), comm_.memory());
            sum = files_.sum();
        });
        if (cut) {
            for (std::size_t i = 0; i < mine.size() && i < sum.parts.size(); ++i) mine[i] = sum.parts[i];
            all_gather(comm_, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all_parts)), lists_);
            ++report_.collectives.exchanges;
        }
        pending_.attempt([&] {
            if (cut) join_parts(catalogue(), mine, std::move(all_parts), sum);
            accept(files_, sum, report_);
        });
        agree_partly();
    }

    void agree() {
        ++report_.collectives.agreements;
        pending_.agree(comm_);
    }
    void agree_partly() {
        try {
            agree();
        } catch (Error const& error) {
            raise_with(error, partly_filled);
        }
    }

    CommunicatorRef comm_;
    std::span<LocalTensor const> tensors_;
    LoadTerms terms_;
    LoadClock::time_point start_;
    Traffic before_;
    PendingVerdict pending_{"load"};
    TransferLists lists_;
    std::vector<LoadShare> shares_;  ///< of all ranks, where they tell them
    LoadFiles files_;
    std::vector<WantedExtent> wanted_;
    LoadReport report_;
};

}  // namespace detail

RESHARD_INLINE LoadReport detail::load_by(std::string const& path, std::span<LocalTensor const> tensors,
                                          CommunicatorRef comm, LoadTerms const& terms) {
    return load_saved([&] { return LoadSession(path, tensors, comm, terms).run(); });
}

RESHARD_INLINE LoadReport load(Checkpoint const& checkpoint, std::span<LocalTensor const> tensors, int rank,
                               EveryRankReads const& strategy) {
    auto const start = detail::LoadClock::now();
    LoadReport report;
    report.strategy = EveryRankReads::name;
    report.tensors = detail::as_index(tensors.size());
    detail::LoadFiles files(checkpoint);
    report.files_digest = files.catalogue().digest();
    report.save_id = files.catalogue().manifest().save;
    for (LocalTensor const& tensor : tensors) {
        detail::check_local_tensor(tensor, rank, "load");
        detail::check_on_host(tensor, rank, "load");
    }
    detail::check_apart(tensors, rank, "load");
    auto const wanted = detail::match(files.catalogue(), tensors, strategy.options, &report.not_listed);
    auto const plan = detail::plan_direct(files, wanted, detail::needed_boxes(wanted, tensors, rank), strategy.reads,
                                          strategy.options);
    try {
        detail::fill_identities(tensors, rank);
        detail::read_direct(files, plan, report);
    } catch (Error const& error) {
        detail::raise_with(error, detail::partly_filled);
    }
    report.files_opened = files.count();
    report.metadata = files.take_metadata();
    report.seconds = detail::seconds_since(start);
    return report;
}

RESHARD_INLINE ConstDynamicView local_view(Checkpoint const& checkpoint, std::string_view tensor,
                                           DynamicDistribution const& distribution, int rank) {
    ConstDynamicView const whole = checkpoint.view(checkpoint.at(tensor));
    return plan(replicated(distribution.mesh(), whole.shape()), distribution).view(whole, rank);
}

RESHARD_INLINE void agree_loaded(CommunicatorRef comm, LoadReport const& report) {
    transport::Verdict mine;
    mine.call = "agree_loaded";
    mine.digest = report.files_digest;
    mine.reason = errors::concat("loaded ", report.tensors, " tensors from files with digest ", report.files_digest);
    detail::agree_or_raise(comm, std::move(mine));
}

}  // namespace reshard::inline v0_1
