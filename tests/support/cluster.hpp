// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/cluster.hpp
/// \brief  Random meshes whose ranks sit in nodes so that every axis has a part inside nodes and a part between them.
#pragma once

#include "support/random.hpp"

#include <algorithm>
#include <vector>

namespace reshard::test {

/// Per axis a divisor of its extent stays inside a node. Nodes and the ranks within them come in order or in any order.
struct Cluster {
    DynamicMesh mesh;
    Index ranks_per_node = 1;

    explicit Cluster(Random& random) {
        DynamicMesh const plain = random.mesh();
        Indices inner;
        Index filled = 1;
        bool const in_order = random.chance(50);  // trailing axes inside, as launchers number ranks
        bool whole = true;
        for (int axis = plain.axes() - 1; axis >= 0; --axis) {
            Index const extent = plain.extent(axis);
            Index divisor = in_order && !whole ? 1 : random.between(1, extent);
            while (extent % divisor != 0) --divisor;
            whole = whole && divisor == extent;
            inner.push_back(divisor);  // backwards
            filled *= divisor;
        }
        ranks_per_node = filled + (in_order ? 0 : random.between(0, 1));
        if (in_order) {
            mesh = DynamicMesh(plain.extents(), first_rank(random.between(0, 2) * filled));
            return;
        }
        std::vector<Index> node_names;
        std::vector<Index> seats;
        for (Index i = 0; i < plain.size() / filled + 1; ++i) node_names.push_back(i);
        for (Index i = 0; i < ranks_per_node; ++i) seats.push_back(i);
        std::shuffle(node_names.begin(), node_names.end(), random.engine());
        std::shuffle(seats.begin(), seats.end(), random.engine());
        std::vector<Index> ranks;
        for (Index ordinal = 0; ordinal < plain.size(); ++ordinal) {
            Index node = 0;
            Index seat = 0;
            Index node_radix = 1;
            Index seat_radix = 1;
            Index rest = ordinal;
            for (int axis = plain.axes() - 1; axis >= 0; --axis) {
                Index const coordinate = rest % plain.extent(axis);
                Index const divisor = inner[plain.axes() - 1 - axis];
                rest /= plain.extent(axis);
                node += coordinate / divisor * node_radix;
                seat += coordinate % divisor * seat_radix;
                node_radix *= plain.extent(axis) / divisor;
                seat_radix *= divisor;
            }
            ranks.push_back(node_names[static_cast<std::size_t>(node)] * ranks_per_node +
                            seats[static_cast<std::size_t>(seat)]);
        }
        mesh = DynamicMesh(plain.extents(), RankList{0, IndexList(ranks.data(), plain.size())});
    }
};

}  // namespace reshard::test
