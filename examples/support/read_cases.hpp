// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/read_cases.hpp
/// \brief  Checkpoints of 2000 shards, without bytes, and the numbers of ranks that read them: how many opens are that?
/// \depends reshard/checkpoint/catalogue.hpp.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>

#include <algorithm>  // min_element, stable_sort
#include <string>     // string
#include <vector>     // vector

namespace demo {

/// 2000 shards of a transformer: five kinds of weights and two of norms, layer by layer, in units of a kilobyte.
inline std::vector<reshard::Index> shard_sizes() {
    using reshard::Index;
    std::vector<Index> sizes;
    for (Index const unit : {4096, 1024, 1024, 4096, 14336, 14336, 14336, 4, 4}) sizes.push_back(unit);
    std::vector<Index> all;
    for (std::size_t i = 0; i < 2000; ++i) all.push_back(sizes[i % sizes.size()] * 1000 + static_cast<Index>(i % 7));
    return all;
}

/// The shards in the files that file_of(i) names, as rank `file` wrote them.
template <class FileOf>
reshard::Catalogue saved_as_shards(int files, FileOf&& file_of) {
    using namespace reshard;
    auto const sizes = shard_sizes();
    Manifest manifest;
    manifest.save = "0123456789abcdef";
    manifest.world_size = files;
    std::vector<Index> ends(static_cast<std::size_t>(files));
    for (int f = 0; f < files; ++f) manifest.files.push_back({errors::concat("file", f), 0, 0, f});
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        manifest.tensors.push_back({errors::concat("t", 10000 + i), DType::u8, Shape{sizes[i]}, 1, ""});
        int const file = file_of(i);
        Index& end = ends[static_cast<std::size_t>(file)];
        manifest.extents.push_back({i, 0, file, end, Box(Shape{sizes[i]})});
        end += sizes[i];
    }
    std::stable_sort(manifest.extents.begin(), manifest.extents.end(), [](Extent const& a, Extent const& b) {
        return a.file != b.file ? a.file < b.file : a.begin < b.begin;
    });
    return Catalogue(manifest);
}
/// Saved by as many ranks as files, largest shard first, each to the rank with the fewest bytes.
inline reshard::Catalogue saved_by_size(int files) {
    using namespace reshard;
    auto const sizes = shard_sizes();
    std::vector<std::size_t> order(sizes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
    std::vector<int> file_of(sizes.size());
    std::vector<Index> load(static_cast<std::size_t>(files));
    for (std::size_t i : order) {
        auto const least = std::min_element(load.begin(), load.end());
        file_of[i] = static_cast<int>(least - load.begin());
        *least += sizes[i];
    }
    return saved_as_shards(files, [&](std::size_t i) { return file_of[i]; });
}
/// In the order of their names, in files of about the same size.
inline reshard::Catalogue saved_in_order(int files) {
    using namespace reshard;
    auto const sizes = shard_sizes();
    Index total = 0;
    for (Index bytes : sizes) total += bytes;
    std::vector<int> file_of;
    Index before = 0;
    for (Index bytes : sizes) {
        file_of.push_back(static_cast<int>((before + bytes / 2) * files / total));
        before += bytes;
    }
    return saved_as_shards(files, [&](std::size_t i) { return file_of[i]; });
}

struct ReadCase {
    std::string text;
    reshard::Catalogue catalogue;
    int ranks = 0;
};
/// As many ranks as there were, more, fewer, and files that no rank wrote for itself.
inline std::vector<ReadCase> read_cases() {
    return {{"8 ranks' files, read by 8", saved_by_size(8), 8},
            {"8 ranks' files, read by 32", saved_by_size(8), 32},
            {"64 ranks' files, read by 8", saved_by_size(64), 8},
            {"30 files in order, read by 8", saved_in_order(30), 8}};
}

}  // namespace demo
