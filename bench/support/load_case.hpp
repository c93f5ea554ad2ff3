// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/load_case.hpp
/// \brief  A checkpoint in a temporary folder, rows of every tensor on every rank, and the ways to load it.
#pragma once

#include "../../examples/support/made_checkpoint.hpp"
#include "../../examples/support/model_lists.hpp"
#include "../../examples/support/model_part.hpp"
#include "../../examples/support/redundant_scatter.hpp"

#include <reshard/algebra/notation.hpp>

namespace reshard::bench {

/// Every extent divided, down to 1: the number of tensors stays, and most of their bytes go.
[[nodiscard]] inline std::vector<TensorSpec> divided(std::vector<TensorSpec> list, Index by) {
    for (TensorSpec& tensor : list) {
        Indices extents;
        for (Index extent : tensor.shape.extents()) extents.push_back(detail::larger<Index>(extent / by, 1));
        tensor.shape = DynamicShape(extents);
    }
    return list;
}

/// The files go with their owner. They have just been written, so that reading them is copying from the page cache.
class MadeCheckpoint {
public:
    explicit MadeCheckpoint(std::vector<TensorSpec> const& list) {
        folder_.make(false);
        write_checkpoint(folder_.path(), list, demo::fill_made);
    }
    [[nodiscard]] std::string const& path() const noexcept { return folder_.path(); }

private:
    demo::TemporaryFolder folder_;
};

/// `(ranks):(S0)` for every tensor.
[[nodiscard]] inline std::vector<PlacedTensor> rows_of(std::vector<TensorSpec> const& list, int ranks) {
    std::vector<PlacedTensor> targets;
    for (TensorSpec const& tensor : list) {
        targets.push_back({tensor.name, distribution(DynamicMesh(Mesh{ranks}), tensor.shape, "S0"), tensor.dtype});
    }
    return targets;
}

/// One rank of a load, with whichever strategy. Every call opens the files anew.
template <Communicator C>
class Loader {
public:
    Loader(C& comm, std::string path, std::vector<TensorSpec> const& list)
        : comm_(comm), path_(std::move(path)), part_(rows_of(list, comm.size()), comm.rank()) {}

    void redundant_scatter() { demo::redundant_scatter(path_, part_.tensors(), comm_); }
    void operator()(EveryRankReads const& strategy) {
        load(Checkpoint::open(path_), part_.tensors(), comm_.rank(), strategy);
    }
    template <class Strategy>
    void operator()(Strategy const& strategy) {
        load(path_, part_.tensors(), comm_, strategy);
    }
    /// Whether the task leaves the bytes of the files in this rank's tensors.
    template <class Task>
    [[nodiscard]] bool is_right(Task&& task) {
        part_.forget();
        task();
        try {
            part_.compare(Checkpoint::open(path_));
        } catch (Error const&) {
            return false;
        }
        return true;
    }

private:
    C& comm_;
    std::string path_;
    demo::ModelPart part_;
};

}  // namespace reshard::bench
