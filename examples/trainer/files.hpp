// SPDX-License-Identifier: Apache-2.0
/// \file   examples/trainer/files.hpp
/// \brief  A model into a folder and back, on any ranks: weights, optimizer, table and rows by one commit.
/// \depends model.hpp, reshard/mch/checkpoint*.hpp, reshard/checkpoint/{load,save,consolidate}.hpp.
#pragma once

#include "../support/ranks.hpp"
#include "../support/redundant_scatter.hpp"
#include "model.hpp"

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/mch/checkpoint.hpp>
#include <reshard/mch/checkpoint_save.hpp>

namespace trainer {

/// Collective, all or nothing.
template <class Sum>
reshard::SaveReport save(std::string const& folder, Model<Sum>& model, CommunicatorRef comm,
                         reshard::SaveOptions const& options) {
    Embedding& embedding = model.embedding();
    reshard::MchTableToSave const table{embedding.table(), embedding.state(), embedding.rows()};
    return reshard::save(folder, model.tensors(), {&table, 1}, comm, options);
}

/// How weights come from files to ranks. All leave the same bits.
inline std::vector<std::string> const ways_to_load{"windows", "every-rank", "cooperative",
                                                   "scatter", "broadcast",  "redundant-scatter"};

/// Every rank maps the file and copies its window of each tensor: no communicator is passed. The tensors lie whole in
/// the files, as consolidate() leaves them. Returns which save was read.
inline std::string load_windows(std::string const& path, std::span<LocalTensor const> tensors, int rank) {
    auto const checkpoint = reshard::Checkpoint::open(path, reshard::Access::mmap);
    for (LocalTensor const& tensor : tensors) {
        auto const window = local_view(checkpoint, tensor.name, tensor.distribution, rank);
        redistribute(plan(tensor.distribution, tensor.distribution), window, tensor.view, rank);
    }
    return checkpoint.manifest().save;
}
/// Every rank reads its parts by itself.
inline std::string load_alone(std::string const& path, std::span<LocalTensor const> tensors, int rank) {
    auto const checkpoint = reshard::Checkpoint::open(path);
    reshard::load(checkpoint, tensors, rank);
    return checkpoint.manifest().save;
}

/// Collective. A checkpoint of any number of ranks and any placements.
template <class Sum>
void load(std::string const& folder, std::string const& way, Model<Sum>& model, CommunicatorRef comm) {
    std::vector<LocalTensor> const tensors = model.tensors();
    int const rank = comm.rank();
    reshard::LoadReport report;
    if (way == "cooperative") {
        report = reshard::load(folder, tensors, comm);
    } else if (way == "scatter") {
        report = reshard::load(folder, tensors, comm, reshard::OneRankReads<reshard::Scatter>{});
    } else if (way == "broadcast") {
        report = reshard::load(folder, tensors, comm, reshard::OneRankReads<reshard::Broadcast>{});
    } else if (way == "redundant-scatter") {
        demo::redundant_scatter(folder, tensors, comm);
    }
    std::string& save = report.save_id;  // of the weights; of plain files nothing
    reshard::agree_on_errors(comm, [&] {
        if (way == "windows") save = load_windows(folder, tensors, rank);
        if (way == "every-rank") save = load_alone(folder, tensors, rank);
    });
    auto files = reshard::MchCheckpoint::open(folder, comm, save);  // of one save with the weights, on all ranks
    reshard::agree_on_errors(comm, [&] {
        Embedding& embedding = model.embedding();
        auto const rows = embedding.rows();
        reshard::MchTable const& table = embedding.table();
        auto const loaded = files.load_redistributed(table.name, table, rank, embedding.state(), rows);
        embedding.settle(loaded.change);
    });
}

}  // namespace trainer
