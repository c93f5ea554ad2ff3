// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/saved_old.hpp
/// \brief  Folders of tables alone, as releases wrote them before tables were part of checkpoints: versions 1 and 2.
#pragma once

#include <reshard/checkpoint/safetensors_writer.hpp>
#include <reshard/mch/detail/checkpoint_old.hpp>

#include <mch/support/damaged.hpp>

#include <string>
#include <vector>

namespace reshard::test::torchrec {

/// An index of which something was changed, with the sum that it should have now.
inline std::string sealed(std::string text) {
    auto const end = text.rfind(",\"crc32c\":");
    if (end == std::string::npos) return text;
    text.resize(end);
    return text + reshard::detail::index_end(text);
}

/// The table 'user' of a world, with the rows of saved.hpp, as version 2.
inline void save_old(std::string const& folder, World& world, std::uint64_t id = 0xabc) {
    namespace in = reshard::detail;
    in::MchSavedTable saved;
    saved.table = table_of(world);
    saved.iteration = world.ranks[0].iteration[0];
    saved.rows = {{"weights", DType::f32, {2}}, {"momentum", DType::f64, {}}};
    auto const ranks = static_cast<Index>(world.ranks.size());
    std::string const save = in::hex_text(id, 16);
    std::string files;
    std::string bounds;
    std::filesystem::create_directories(folder);
    for (Index rank = 0; rank < ranks; ++rank) {
        Module& module = world.ranks[static_cast<std::size_t>(rank)];
        Rows rows(module);
        struct Tensor {
            TensorSpec spec;
            std::span<std::byte const> bytes;
        };
        std::vector<Tensor> tensors;
        auto const add = [&](std::string const& name, DType dtype, DynamicShape const& shape, auto const& from) {
            if (module.z > 0) tensors.push_back({{"user." + name, dtype, shape}, std::as_bytes(std::span(from))});
        };
        add("ids", DType::i64, Shape{module.z}, module.raw);
        add("slots", DType::i64, Shape{module.z}, module.mapping);
        for (MchColumn const& column : saved.table.metadata) {
            add("metadata." + column.name, DType::i64, Shape{module.z},
                column.name == mch_counts ? module.counts : module.last);
        }
        add("rows.weights", DType::f32, Shape{module.z, 2}, rows.weights);
        add("rows.momentum", DType::f64, Shape{module.z}, rows.momenta);
        Metadata metadata{{"format", "pt"},
                          {"mch.version", "2"},
                          {"mch.save", save},
                          {"mch.rank", std::to_string(rank)},
                          {"mch.ranks", std::to_string(ranks)},
                          {"table.user", in::to_json(saved)}};
        std::vector<TensorSpec> specs;
        for (Tensor const& tensor : tensors) {
            metadata.emplace_back(in::sums_key(tensor.spec.name), old_sums_text(tensor.bytes));
            specs.push_back(tensor.spec);
        }
        std::string const leaf = in::mch_file_name(save, rank, ranks);
        write_safetensors(
            folder + "/" + leaf, specs,
            [&](TensorInfo const& info, Index begin, std::span<std::byte> out) {
                for (Tensor const& tensor : tensors) {
                    if (tensor.spec.name == info.name)
                        std::copy_n(tensor.bytes.begin() + begin, out.size(), out.begin());
                }
            },
            metadata);
        MchIdBounds const ids = id_bounds(MchLayout::sorted, module.raw);
        files += errors::concat(rank == 0 ? "\"" : ",\"", leaf, "\"");
        bounds += errors::concat(rank == 0 ? "[" : ",[", ids.live, ",", ids.negative);
        if (ids.highest >= 0) bounds += errors::concat(",", ids.lowest, ",", ids.highest);
        bounds += "]";
    }
    std::string const text =
        errors::concat("{\"format\":\"reshard-mch\",\"version\":2,\"save\":\"", save, "\",\"files\":[", files,
                       "],\"tables\":{\"user\":", in::to_json(saved), "},\"ids\":{\"user\":[", bounds, "]}");
    checkpoint_test::write_text(folder + "/mch.index.json", text + in::index_end(text));
}

/// A folder of version 2 as version 1 had it: the same without any sums.
inline void make_version_1(checkpoint_test::TempFolder const& folder) {
    for (std::string const& leaf : folder.leaves()) {
        std::string const path = folder / leaf;
        if (leaf != reshard::detail::mch_old_index) {
            rewrite(path, [](TensorSpec&, std::vector<std::byte>&, Metadata& metadata) {
                std::erase_if(metadata, [](auto const& item) { return item.first.starts_with("crc32c."); });
                for (auto& [key, value] : metadata)
                    if (key == "mch.version") value = "1";
            });
            continue;
        }
        std::string text = checkpoint_test::read_text(path);
        std::string const version = "\"version\":2";
        text.replace(text.find(version), version.size(), "\"version\":1");
        text.resize(text.rfind(",\"crc32c\":"));
        checkpoint_test::write_text(path, text + "}\n");
    }
}

}  // namespace reshard::test::torchrec
