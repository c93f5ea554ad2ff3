// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/redundant_scatter.hpp
/// \brief  How not to load weights: every rank reads every tensor, and rank 0 scatters what all have already.
/// \depends reshard/checkpoint/{load,load_forecast}.hpp.
///
/// A baseline, kept as it was found: torch's distribute_tensor(tensor, mesh, [Shard(0)]) takes rank 0's copy unless it
/// is told not to (src_data_rank=None, PyTorch 2.6), so a loop over a state dict that every rank has read is a scatter
/// per tensor. ByteDance-Seed/VeOmni issue #637 describes it, pull request #648 removes it.
#pragma once

#include <reshard/checkpoint/detail/load_choice.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/load_forecast.hpp>

#include <chrono>
#include <optional>

namespace demo {

inline constexpr std::string_view redundant_scatter_name = "redundant scatter";

namespace detail {
inline bool is_cut(reshard::DynamicDistribution const& distribution) {
    bool cut = false;
    for (int axis = 0; axis < distribution.mesh().axes(); ++axis) {
        cut = cut || distribution.placement(axis).is_shard();
    }
    return cut;
}
/// One collective per tensor: a scatter, or a broadcast of what no axis cuts.
inline reshard::Collectives one_per_tensor(std::span<reshard::LocalTensor const> tensors) {
    reshard::Collectives collectives;
    for (reshard::LocalTensor const& tensor : tensors) {
        ++(is_cut(tensor.distribution) ? collectives.scatters : collectives.broadcasts);
    }
    collectives.agreements = 1;
    return collectives;
}
}  // namespace detail

/// Collective. All is done to make it fast that does not take away what it is: the reads are those of the strategies,
/// memory is of one tensor, and a scatter is one exchange without another word. Throws as load(); a read that fails
/// throws on its rank alone.
inline reshard::LoadReport redundant_scatter(std::string const& path, std::span<reshard::LocalTensor const> tensors,
                                             reshard::CommunicatorRef comm, reshard::ReadOptions const& reads = {}) {
    using namespace reshard;
    namespace parts = reshard::detail;
    auto const start = std::chrono::steady_clock::now();
    Traffic const before = comm.traffic();
    std::optional<Checkpoint> checkpoint;
    std::vector<parts::WantedExtent> wanted;
    auto const task = [] { return TensorTask{redundant_scatter_name, "scatters"}; };
    agree_on_tensors(comm, tensors, task, [&] {
        parts::check_apart(tensors, comm.rank(), redundant_scatter_name);
        for (LocalTensor const& tensor : tensors) {
            if (tensor.within.is_whole()) continue;
            errors::raise(ErrorCode::shape, redundant_scatter_name, ": '", tensor.name,
                          "' is a box. Fix: list all of it.");
        }
        checkpoint.emplace(Checkpoint::open(path));
        wanted = parts::match(Catalogue(*checkpoint), tensors);
    });

    LoadReport report;
    report.strategy = redundant_scatter_name;
    report.tensors = static_cast<Index>(tensors.size());
    report.collectives = detail::one_per_tensor(tensors);
    parts::LoadFiles files(*checkpoint);
    Index largest = 0;
    for (parts::WantedExtent const& extent : wanted) {
        largest = reshard::detail::larger(largest, extent.bytes());
        if (extent.bytes() != 0) files.open(extent.file);
    }
    Workspace const memory = comm.allocate(largest);
    std::byte* const whole = memory.data();
    report.extra_bytes = largest;
    parts::fill_identities(tensors, comm.rank());

    parts::Needs needs;
    std::vector<transport::Send> sends;
    std::vector<transport::Receive> receives;
    for (parts::WantedExtent const& extent : wanted) {
        transport::StridedBox const run = parts::byte_box(extent.bytes());
        parts::ReadBox const box{extent.file, extent.begin, run, whole, run};
        parts::ReadTotals const totals =
            parts::read_boxes(parts::ReadPlan(std::span(&box, 1), reads),
                              [&](int file, Index begin, std::span<std::byte> out) { files.read(file, begin, out); });
        report.reads += totals.reads;
        report.bytes_read += totals.bytes_read;

        LocalTensor const& target = tensors[extent.target];
        DynamicDistribution const& to = target.distribution;
        Box const& all = extent.box;
        sends.clear();
        receives.clear();
        for (Index i = 0; comm.rank() == 0 && i < to.mesh().size(); ++i) {
            Index const rank = to.mesh().rank_at(i);
            if (!parts::find_needs(needs, extent, all, target, rank)) continue;
            needs.for_each_in(extent.dtype, [&](parts::MessagePart const& part) {
                sends.push_back({static_cast<int>(rank), whole + part.offset, part.box});
            });
        }
        if (parts::find_needs(needs, extent, all, target, comm.rank())) {
            needs.for_each_in(target, [&](parts::MessagePart const& part) {
                receives.push_back({0, target.view.data() + part.offset, part.box});
                report.bytes_loaded += part.box.payload_bytes();
            });
        }
        comm.exchange(sends, receives).wait();
    }
    report.files_opened = files.count();
    report.traffic = comm.traffic() - before;
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return report;
}

/// What redundant_scatter comes to: one rank that scatters every tensor by itself, but that all ranks read.
inline reshard::LoadForecast forecast_redundant_scatter(reshard::Catalogue const& catalogue,
                                                        std::span<reshard::PlacedTensor const> targets, int ranks,
                                                        reshard::LoadModel const& model = {}) {
    using namespace reshard;
    OneRankReads<Scatter> one_by_one;
    one_by_one.window_bytes = 0;
    LoadForecast forecast = forecast_load(catalogue, targets, ranks, one_by_one, model);
    std::vector<LocalTensor> tensors;
    for (PlacedTensor const& target : targets) tensors.push_back({target.name, target.distribution, {}});
    forecast.strategy = redundant_scatter_name;
    forecast.collectives = detail::one_per_tensor(tensors);
    forecast.bytes_of_lists = 0;  // all ranks read it
    forecast.bytes_read *= ranks;
    forecast.reads *= ranks;
    forecast.files_opened *= ranks;
    forecast.seconds = reshard::detail::staged_seconds(forecast.bytes_read, forecast.most_bytes_read, forecast.tensors,
                                                       forecast.bytes_on_wire, model);
    return forecast;
}

}  // namespace demo
