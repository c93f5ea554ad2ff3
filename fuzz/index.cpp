// SPDX-License-Identifier: Apache-2.0
// model.safetensors.index.json.
#include <reshard/checkpoint/detail/file_list.hpp>

#include "support.hpp"

void fuzz::index(std::uint8_t const* data, std::size_t size) {
    reshard::detail::WeightMap map;
    if (!fuzz::answers([&] { map = reshard::detail::parse_weight_map(fuzz::text_of(data, size), "index"); })) return;
    for (std::size_t i = 0; i < map.tensors.size(); ++i) {
        fuzz::expect(i == 0 || map.tensors[i - 1].first < map.tensors[i].first, "tensors that are not sorted");
        fuzz::expect(map.tensors[i].second < map.leaves.size(), "a file that is not listed");
    }
    for (std::size_t i = 0; i < map.leaves.size(); ++i) {
        fuzz::expect(i == 0 || map.leaves[i - 1] < map.leaves[i], "files that are not sorted");
        fuzz::expect(reshard::detail::stays_in_folder(map.leaves[i]), "a file outside the folder");
    }
}
