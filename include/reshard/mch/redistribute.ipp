// SPDX-License-Identifier: Apache-2.0
// How mch/redistribute.hpp is done.
#pragma once

#include <reshard/comm/collectives.hpp>
#include <reshard/mch/detail/agree_after.hpp>
#include <reshard/mch/detail/passages.hpp>
#include <reshard/mch/redistribute.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE std::vector<MchChange> redistribute(std::span<MchTransition const> tables, CommunicatorRef comm,
                                                   MchOptions const& options) {
    int const rank = comm.rank();
    auto const ranks = static_cast<std::size_t>(comm.size());
    detail::MchPassages passages;
    Digest digest;
    digest.add(tables.size()).add(static_cast<std::uint64_t>(options.mode)).add(options.drop_unreachable ? 1 : 0);
    digest.add(options.accept_strays ? 1 : 0);
    for (MchTransition const& one : tables) {
        reshard::digest(digest, one.saved);
        reshard::digest(digest, one.current);
    }
    std::vector<detail::MchArrival> to;
    std::vector<detail::MchArrival> from;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    detail::agree_after(comm, digest.value(), [&] {
        passages.begin(tables, options, rank, comm.size());
        to = passages.headers(ranks);
        from = to;
        detail::list_all_to_all(std::as_bytes(std::span(to)), std::as_writable_bytes(std::span(from)), comm.size(),
                                sends, receives);
    });
    if (ranks != 1) comm.exchange(sends, receives).wait();

    detail::agree_after(comm, digest.value(), [&] {
        sends.clear();
        receives.clear();
        passages.pack(from, rank, comm.size());
        passages.list_transfers(rank, sends, receives);
    });
    if (ranks != 1) comm.exchange(sends, receives).wait();

    detail::agree_after(comm, digest.value(), [&] { passages.arrange(options.mode); });
    return passages.commit(options);
}

RESHARD_INLINE MchChange redistribute(MchTable const& saved, MchTable const& current, MchState const& state,
                                      CommunicatorRef comm, MchOptions const& options) {
    std::vector<MchTransition> table;
    detail::attempt_before_agreement(comm, [&] { table.push_back({saved, current, state}); });
    return std::move(redistribute(std::span<MchTransition const>(table), comm, options)[0]);
}

}  // namespace reshard::inline v0
