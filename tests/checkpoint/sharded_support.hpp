// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/sharded_support.hpp
/// \brief  Checkpoints on disk whose tensors are cut into boxes and stored in replicas, with all that describes them.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>

#include "load_support.hpp"
#include "manifest_support.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace checkpoint_test {

/// Copies that are stored apart are told apart by their bytes.
inline std::string content_of(std::string const& tensor, int replica, int replicas) {
    return replicas == 1 ? tensor : errors::concat(tensor, " copy ", replica);
}

/// The bytes of a box of a tensor, packed.
inline std::vector<std::byte> bytes_of_box(std::string const& content, DType dtype, DynamicShape const& shape,
                                           Box const& box) {
    std::vector<std::byte> result(static_cast<std::size_t>(stored_bytes_of(dtype, box)));
    ExpectedBytes const expected(content);
    std::byte* out = result.data();
    if (!is_byte_sized(dtype)) {  // never cut
        for (Index k = 0; out != result.data() + result.size(); ++k) *out++ = expected.at(k);
        return result;
    }
    Index const width = bytes(dtype);
    each_run(box, shape, [&](Index position, Index count) {
        for (Index b = position * width; b < (position + count) * width; ++b) *out++ = expected.at(b);
    });
    return result;
}

/// A tensor to save: as it is stored, in how many copies and in which boxes.
struct Saved {
    TensorSpec spec;
    int replicas = 1;
    struct Part {
        int replica = 0;
        int file = 0;
        Box box;
    };
    std::vector<Part> parts;
};

/// Which words say what is where.
enum class Described { by_manifest, by_shards };

/// Writes the files and what describes them. Files without a part are not written. Blocks of `block_bytes` have sums.
inline Manifest write_sharded(std::string const& folder, std::vector<Saved> const& list, int files, Described how,
                              bool checksums = true, Index block_bytes = default_block_bytes) {
    struct Entry {
        std::size_t tensor;
        Saved::Part part;
        std::vector<std::byte> bytes;
    };
    std::vector<std::map<std::string, Entry>> entries(static_cast<std::size_t>(files));
    for (std::size_t t = 0; t < list.size(); ++t) {
        for (Saved::Part const& part : list[t].parts) {
            Saved const& saved = list[t];
            auto& file = entries[static_cast<std::size_t>(part.file)];
            std::string const plain =
                saved.replicas == 1 ? saved.spec.name : errors::concat(saved.spec.name, ".__tp_replica_", part.replica);
            std::string key = plain;
            for (int k = 1; file.contains(key); ++k) key = errors::concat(plain, ".__box_", k);
            std::string const content = content_of(saved.spec.name, part.replica, saved.replicas);
            file[key] = {t, part, bytes_of_box(content, saved.spec.dtype, saved.spec.shape, part.box)};
        }
    }
    Manifest manifest;
    manifest.save = "0123456789abcdef";
    manifest.world_size = files;
    manifest.block_bytes = block_bytes;
    for (Saved const& saved : list) {
        manifest.tensors.push_back({saved.spec.name, saved.spec.dtype, saved.spec.shape, saved.replicas, ""});
    }
    for (int f = 0; f < files; ++f) {
        auto const& mine = entries[static_cast<std::size_t>(f)];
        if (mine.empty()) continue;
        auto const number = [](int n) { return errors::concat(n < 10 ? "0000" : "000", n); };
        std::string const leaf =
            how == Described::by_manifest
                ? errors::concat("shard-", number(f + 1), "-of-", number(files), ".", manifest.save, ".safetensors")
                : errors::concat("shard-", number(f + 1), "-model-00001-of-00001.safetensors");
        std::vector<TensorSpec> specs;
        std::string info = "{";
        for (auto const& [key, entry] : mine) {
            specs.push_back({key, list[entry.tensor].spec.dtype, entry.part.box.shape()});
            info += errors::concat(info.size() > 1 ? "," : "", "\"", key, "\":{\"saved_offsets\":[");
            for (int dim = 0; dim < entry.part.box.rank(); ++dim) {
                info += errors::concat(dim == 0 ? "" : ",", entry.part.box.begin(dim));
            }
            info += key == list[entry.tensor].spec.name
                        ? std::string("]}")
                        : errors::concat("],\"logical_fqn\":\"", list[entry.tensor].spec.name, "\"}");
        }
        Metadata metadata{{"DCP_SHARDING_INFO", info + "}"}, {"format", "pt"}};
        if (how == Described::by_manifest) metadata.emplace_back("reshard_save", manifest.save);
        std::string const path = folder + "/" + leaf;
        write_safetensors(
            path, specs,
            [&](TensorInfo const& tensor, Index begin, std::span<std::byte> out) {
                auto const& from = mine.at(tensor.name).bytes;
                std::copy_n(from.begin() + begin, out.size(), out.begin());
            },
            metadata);
        SafetensorsFile const file = SafetensorsFile::open(path);
        for (TensorInfo const& tensor : file.tensors()) {
            Entry const& entry = mine.at(tensor.name);
            Extent extent{entry.tensor, entry.part.replica, static_cast<int>(manifest.files.size()), tensor.begin,
                          entry.part.box};
            if (tensor.name != list[entry.tensor].spec.name) extent.key = tensor.name;
            extent.has_checksum = checksums;
            if (checksums) {
                std::span const bytes(entry.bytes);
                extent.crc32c = crc32c(bytes);
                auto const block = static_cast<std::size_t>(block_bytes);
                for (std::size_t begin = 0; bytes.size() > block && begin < bytes.size(); begin += block)
                    extent.block_sums.push_back(
                        crc32c(bytes.subspan(begin, detail::smaller(block, bytes.size() - begin))));
            }
            manifest.extents.push_back(extent);
        }
        manifest.files.push_back({leaf, file.file_bytes(), file.header_digest(), f});
    }
    if (how == Described::by_manifest) {
        write_text(folder + "/" + std::string(manifest_name), reshard::to_json(manifest));
    }
    return manifest;
}

/// Every replica cut at random, its boxes in any file. Tensors in the order of their names.
inline std::vector<Saved> saved_at_random(std::vector<Goal> const& goals, reshard::test::Random& random, int files,
                                          int most_replicas) {
    std::vector<Saved> list;
    for (Goal const& goal : goals) {
        Saved saved{goal.stored, static_cast<int>(random.between(1, most_replicas)), {}};
        for (int r = 0; r < saved.replicas; ++r) {
            for (Box const& box : guillotine(random, Box(goal.stored.shape), static_cast<int>(random.between(0, 8)))) {
                saved.parts.push_back({r, static_cast<int>(random.between(0, files - 1)), box});
            }
        }
        list.push_back(saved);
    }
    return list;
}

}  // namespace checkpoint_test
