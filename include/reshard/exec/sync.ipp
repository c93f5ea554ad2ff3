// SPDX-License-Identifier: Apache-2.0
// How exec/sync.hpp is done.
#pragma once

#include <reshard/exec/agree_tensors.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/exec/sync.hpp>
#include <reshard/plan/replicas.hpp>

namespace reshard::inline v0_1 {

namespace detail {

/// What only sync minds.
inline void check_sync(LocalTensor const& tensor, int root) {
    DynamicDistribution const& distribution = tensor.distribution;
    auto const refuse = [&](ErrorCode code, auto const&... parts) {
        raise(code, "reshard::sync: tensor '", tensor.name, "' ", parts...);
    };
    if (distribution.signature().axes_of(PlacementKind::partial) != 0) {
        refuse(ErrorCode::placement, "is ", brief(distribution),
               ": its ranks hold addends, which need not be equal. Fix: redistribute it to R or S first, or leave it "
               "out.");
    }
    if (has_replicas(distribution) && !distribution.contains(root)) {
        refuse(ErrorCode::mesh, "has no part on the root, rank ", root, ": its mesh is ", brief(distribution.mesh()),
               ". Fix: choose a root in the mesh, or sync such tensors on their own.");
    }
}

inline void check_options(SyncOptions const& options, int ranks) {
    if (options.root < 0 || options.root >= ranks) {
        raise(ErrorCode::mesh, "reshard::sync: the root is rank ", options.root, " of a communicator of ", ranks,
              " ranks. Fix: ranks count from 0.");
    }
    if (options.bucket_bytes < 0) {
        raise(ErrorCode::buffer, "reshard::sync: buckets of ", options.bucket_bytes,
              " bytes. Fix: no size is negative; 0 sends every tensor alone.");
    }
}

}  // namespace detail

RESHARD_INLINE void sync(std::span<LocalTensor const> tensors, CommunicatorRef comm, SyncOptions const& options) {
    int const rank = comm.rank();
    Batch batch;
    std::vector<detail::ViewUse> uses;
    PreparedPlan prepared;
    auto const task = [&] {
        return TensorTask{"sync", "syncs",
                          detail::options_text({{"root", options.root}, {"bucket_bytes", options.bucket_bytes}}),
                          false};
    };
    agree_on_tensors(comm, tensors, task, [&] {
        detail::check_options(options, comm.size());
        batch.reserve(tensors.size());
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            LocalTensor const& tensor = tensors[i];
            detail::check_sync(tensor, options.root);
            if (!detail::has_replicas(tensor.distribution)) continue;
            Plan<> const plan = detail::replica_plan(tensor.distribution, options.root);
            batch.add(plan, tensor.view, tensor.view, tensor.name);
            if (plan.from().contains(rank)) uses.push_back({tensor.view, i, false});
            if (plan.to().contains(rank)) uses.push_back({tensor.view, i, true});
        }
        detail::check_apart(tensors, uses, rank, "sync");
        std::size_t current = 0;
        BatchOptions const rounds{.bucket_bytes = options.bucket_bytes};
        prepared = PreparedPlan(detail::bind_batch(batch, comm, rounds, current));
    });
    prepared.run();
}

}  // namespace reshard::inline v0_1
