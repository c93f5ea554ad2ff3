// SPDX-License-Identifier: Apache-2.0
// How mch/routing.hpp is done.
#pragma once

#include <reshard/mch/routing.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE Router::Router(MchTable const& table, Index const* offsets) {
    check_table(table);
    *this = Router(table.slots, table.hash_size, table.buckets,
                   table.layout == MchLayout::buckets ? table.size() / table.buckets : 0, offsets);
}

RESHARD_INLINE void detail::check_list_of_parts(MchTable const& table, std::size_t entries, std::size_t room,
                                                std::uint64_t most, std::size_t bytes) {
    if (entries != room) {
        refuse_table(ErrorCode::buffer, table,
                     concat("a list of ", room, " parts for ", entries, " entries. Fix: one part per entry."));
    }
    if (static_cast<std::uint64_t>(table.parts() - 1) > most) {
        refuse_table(ErrorCode::buffer, table,
                     concat("parts up to ", table.parts() - 1, " do not fit ", bytes, " bytes. Fix: a wider type."));
    }
}

RESHARD_INLINE void detail::refuse_unknown_slot(MchTable const& table, std::size_t entry, Index slot) {
    refuse_table(ErrorCode::mismatch, table,
                 concat("entry ", entry, " has slot ", slot, " of ", table.size(),
                        ". Fix: the state is corrupt, or not of this table."));
}

}  // namespace reshard::inline v0
