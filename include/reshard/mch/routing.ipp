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

}  // namespace reshard::inline v0
