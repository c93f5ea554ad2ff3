// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_shared.hpp
/// \brief  What is behind MpiCommunicator::allocate(): each rank makes a segment, the others of its node map it.
/// \depends comm/detail/mpi_team.hpp.
#pragma once

#include <reshard/comm/detail/mpi_team.hpp>

namespace reshard::inline v0::detail {

struct MpiAllocation {
    std::byte* data = nullptr;
    std::uint64_t key = 0;
};

/// The segments of one allocation, this rank's and those it mapped. Blocks nobody.
inline void release_segments(MpiFamily& family, std::uint64_t key) noexcept {
    for (auto* list : {&family.own_segments(), &family.peer_segments()}) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < list->size(); ++i) {
            if ((*list)[i].allocation == key) continue;
            if (kept != i) (*list)[kept] = std::move((*list)[i]);
            ++kept;
        }
        while (list->size() > kept) list->pop_back();
    }
}

/// Collective. `mine` says what is wrong with the arguments of this rank, if anything.
[[nodiscard]] inline MpiAllocation allocate_shared(MpiTeam& team, Index bytes, Verdict mine) {
    MpiFamily& family = *team.family();
    MpiAllocation result;
    result.key = family.next_segment();
    auto const out_of_memory = [&](std::string_view what) {
        mine.code = ErrorCode::out_of_memory;
        mine.reason = concat("reshard::MpiCommunicator: ", what, " for a buffer of ", bytes,
                             " bytes. Fix: allocate less, or give the process more memory.");
    };
    auto const settle = [&] {
        Verdict const joint = team.agree(mine);
        if (joint.ok()) return;
        release_segments(family, result.key);
        raise(joint.code, concat("rank ", joint.rank, " of ", team.size(), ": ", joint.reason));
    };
    MpiNode* const node = team.node().get();
    Index const padded = larger<Index>(ceil_div(bytes, 4096) * 4096, 4096);  // empty ones have an address as well
    if (mine.ok()) {
        try {
            family.own_segments().push_back({own_pid(), result.key, result.key, SharedMemory::create(padded)});
            result.data = family.own_segments().back().memory.data();
            if (result.data == nullptr) out_of_memory("no memory");
        } catch (std::bad_alloc const&) {
            out_of_memory("no memory");
        }
    }
    if (node != nullptr && mine.ok()) {
        node->own().offer_bytes = padded;
        node->own().offer_segment = result.key;
        node->own().offer_file = family.own_segments().back().memory.file();
    }
    settle();
    for (int l = 0; node != nullptr && l < node->ranks() && mine.ok(); ++l) {
        if (l == node->me()) continue;
        MpiSeat const& seat = node->seat(l);
        try {
            family.peer_segments().push_back({seat.pid, seat.offer_segment, result.key,
                                              SharedMemory::open(seat.pid, seat.offer_file, seat.offer_bytes)});
            if (!family.peer_segments().back().memory) out_of_memory("no address space, or too many open files,");
        } catch (std::bad_alloc const&) {
            out_of_memory("no memory");
        }
    }
    settle();
    return result;
}

}  // namespace reshard::inline v0::detail
