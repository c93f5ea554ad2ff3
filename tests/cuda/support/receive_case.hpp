// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/support/receive_case.hpp
/// \brief  Blocks that a rank receives, and the shard it should make of them: shared by host and device tests.
#pragma once

#include "support/random.hpp"

#include <reshard/cuda/detail/receive_kernels.hpp>

#include <algorithm>  // shuffle, stable_sort
#include <map>
#include <set>
#include <vector>

namespace reshard::test {

struct ReceiveCase {
    int columns = 2;
    Index first = 0;
    Index slots = 0;
    std::vector<Index> begins{0};
    std::vector<Index> words;                 ///< packed blocks
    std::vector<std::vector<Index>> entries;  ///< [arrival][column]
    [[nodiscard]] Index count() const { return static_cast<Index>(entries.size()); }
};

/// Distinct ids and slots; `faulty` spoils some.
inline ReceiveCase random_receive(Random& random, Index slots, Index entries, int sources, int columns,
                                  std::uint64_t id_mask, bool faulty) {
    ReceiveCase made;
    made.columns = columns;
    made.first = random.between(0, 1000);
    made.slots = slots;
    std::vector<Index> free;
    for (Index s = 0; s < slots; ++s) free.push_back(made.first + s);
    std::shuffle(free.begin(), free.end(), random.engine());
    std::set<Index> used{INT64_MAX};
    std::vector<Index> counts(static_cast<std::size_t>(sources), 0);
    for (Index i = 0; i < entries; ++i) {
        Index id = INT64_MAX;
        for (int tries = 0; used.count(id) != 0; ++tries) {
            id = static_cast<Index>(random.engine()() & (tries < 50 ? id_mask : ~std::uint64_t{0}));
        }
        used.insert(id);
        std::vector<Index> entry{id, free[static_cast<std::size_t>(i)]};
        for (int c = 2; c < columns; ++c) entry.push_back(random.between(-9, 9));
        if (faulty && random.chance(5))
            entry[1] = random.pick(std::vector<Index>{-1, made.first - 1, made.first + slots});
        if (faulty && random.chance(5)) entry[1] = free[0];
        if (faulty && random.chance(3)) entry[0] = INT64_MAX;
        made.entries.push_back(entry);
        ++counts[static_cast<std::size_t>(random.between(0, sources - 1))];
    }
    Index arrival = 0;
    for (Index count : counts) {
        for (int c = 0; c < columns; ++c) {
            for (Index row = 0; row < count; ++row) {
                made.words.push_back(
                    made.entries[static_cast<std::size_t>(arrival + row)][static_cast<std::size_t>(c)]);
            }
        }
        arrival += count;
        made.begins.push_back(arrival);
    }
    return made;
}

/// The shard, one column after the other.
inline std::vector<std::vector<Index>> receive_oracle(ReceiveCase const& given) {
    auto entries = given.entries;
    std::stable_sort(entries.begin(), entries.end(), [](auto const& a, auto const& b) { return a[0] < b[0]; });
    std::set<Index> taken;
    for (auto const& entry : entries) taken.insert(entry[1]);
    for (Index s = given.first; s < given.first + given.slots; ++s) {
        if (taken.count(s) != 0) continue;
        std::vector<Index> empty(static_cast<std::size_t>(given.columns), 0);
        empty[0] = INT64_MAX;
        empty[1] = s;
        entries.push_back(empty);
    }
    std::vector<std::vector<Index>> shard(static_cast<std::size_t>(given.columns));
    for (auto const& entry : entries) {
        for (std::size_t c = 0; c != shard.size(); ++c) shard[c].push_back(entry[c]);
    }
    return shard;
}

inline detail::ReceiveFaults receive_faults(ReceiveCase const& given) {
    detail::ReceiveFaults faults;
    std::set<Index> taken;
    for (auto const& entry : given.entries) {
        faults.ids_or |= static_cast<unsigned long long>(entry[0]);
        faults.ids_and &= static_cast<unsigned long long>(entry[0]);
        faults.empty_ids += entry[0] == INT64_MAX ? 1 : 0;
        if (entry[1] < given.first || entry[1] >= given.first + given.slots) {
            ++faults.slots_out_of_range;
        } else if (!taken.insert(entry[1]).second) {
            ++faults.duplicate_slots;
        }
    }
    return faults;
}

}  // namespace reshard::test
