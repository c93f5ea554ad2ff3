// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_old.hpp
/// \brief  Folders of tables as older releases saved them, versions 1 and 2: read, and never written. They become a
///         manifest in memory, and nothing else knows of them.
/// \depends mch/detail/checkpoint_text, checkpoint/{checkpoint_reader,text}. The format: docs/mch-format.md.
#pragma once

#include <reshard/checkpoint/checkpoint_reader.hpp>
#include <reshard/checkpoint/text.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/mch/detail/checkpoint_text.hpp>

namespace reshard::inline v0_1::detail {

inline constexpr Index mch_old_version = 2;  ///< 1 has no checksums
inline constexpr Index mch_old_block_bytes = Index{1} << 16U;

/// What the index says.
struct MchIndex {
    Index version = mch_old_version;
    std::string save;                ///< id of the save
    std::vector<std::string> files;  ///< of each rank
    std::vector<MchSavedTable> tables;
};

/// `mch-0123456789abcdef-00002-of-00004.safetensors`: ranks count from 0.
[[nodiscard]] inline std::string mch_file_name(std::string_view save, Index rank, Index ranks) {
    return concat("mch-", save, "-", decimal_text(rank, 5), "-of-", decimal_text(ranks, 5), ".safetensors");
}

/// How the text of an index of version 2 ends: with the sum of all that stands before.
[[nodiscard]] inline std::string index_end(std::string_view before) {
    return concat(",\"crc32c\":\"", hex_text(crc32c(std::as_bytes(std::span(before))), 8), "\"}\n");
}
/// Whether the index is what was written. \pre of `version`.
inline void check_index_sum(std::string_view text, JsonReader const& json, Index version) {
    if (version == 1) {
        if (json.has("crc32c")) json.at("crc32c").fail("is there, which version 1 does not have");
        return;
    }
    std::string const was = json.at("crc32c").text();
    std::size_t const end = index_end({}).size();
    std::string_view const before = text.substr(0, text.size() - smaller(end, text.size()));
    if (std::string const wanted = index_end(before); text.substr(before.size()) != wanted) {
        json.at("crc32c").fail("is ", quote_name(was),
                               ", but the text before it has another sum: ", quote_name(wanted.substr(11, 8)));
    }
}

/// Throws FormatError for a text that is not an index of this version, for files that are not of all ranks, and for
/// tables that make no sense.
[[nodiscard]] inline MchIndex index_from(std::string_view text, std::string_view file) {
    JsonTree const tree = parse_mch_json(text, file);
    JsonReader const json(tree);
    if (json.at("format").text() != "reshard-mch") json.at("format").fail("is not 'reshard-mch'");
    Index const version = json.at("version").integer();
    if (version < 1 || version > mch_old_version) {
        refuse_mch_file(file, "it is of version ", version, ", this library reads 1 to ", mch_old_version,
                        ". Fix: use the release of reshard that saved it, or a newer one.");
    }
    check_index_sum(text, json, version);
    MchIndex index;
    index.version = version;
    index.save = json.at("save").text();
    static_cast<void>(hex_from(json.at("save"), 16));  // it is part of the names of files
    json.at("files").for_each([&](JsonReader const& item) { index.files.push_back(item.text()); });
    auto const world = as_index(index.files.size());
    for (Index rank = 0; rank < world; ++rank) {
        std::string const expected = mch_file_name(index.save, rank, world);
        std::string const& found = index.files[as_size(rank)];
        if (found == expected) continue;
        json.at("files").fail("has a gap: of rank ", rank, " of ", world, " it should have ", quote_name(expected),
                              ", it has ", quote_name(found));
    }
    if (index.files.empty()) json.at("files").fail("is empty");
    JsonReader const ids = json.at("ids");
    json.at("tables").for_each_member([&](std::string const& name, JsonReader const& item) {
        index.tables.push_back(table_from(name, item, world));
        index.tables.back().ids = id_bounds_from(ids.at(name), index.tables.back().table);
    });
    sort_list(index.tables, [](MchSavedTable const& a, MchSavedTable const& b) { return a.table.name < b.table.name; });
    return index;
}

/// The index, where all files that it names are there. Throws IoError, FormatError.
[[nodiscard]] inline MchIndex read_old_index(std::string const& folder) {
    std::string const path = join_path(folder, mch_old_index);
    MchIndex index = index_from(read_json_text(path, max_safetensors_header_bytes), path);
    refuse_missing(path, folder, index.files);
    return index;
}

template <class... Parts>
[[noreturn]] void refuse_old_file(SafetensorsFile const& file, Parts const&... parts) {
    refuse_mch_file(file.path(), parts..., ". Fix: restore the file of this save, or load another save.");
}
[[nodiscard]] inline std::string const& old_metadata(SafetensorsFile const& file, std::string_view key) {
    std::string const* const text = find_metadata(file.metadata(), key);
    if (text == nullptr) refuse_old_file(file, "its metadata has no ", quote_name(key));
    return *text;
}

/// Where a file's metadata has the sums of a tensor.
[[nodiscard]] inline std::string sums_key(std::string_view tensor) { return concat("crc32c.", tensor); }

/// The sums of every 64 KiB of a tensor. Throws FormatError for a file that has none of it, or not one for each.
[[nodiscard]] inline std::vector<std::uint32_t> old_sums_of(SafetensorsFile const& file, TensorInfo const& tensor) {
    std::string const key = sums_key(tensor.name);
    std::string const& text = old_metadata(file, key);
    Index const blocks = ceil_div(tensor.bytes(), mch_old_block_bytes);
    std::vector<std::uint32_t> sums;
    if (!parse_sums(text, as_size(blocks), sums)) {
        refuse_old_file(file, "its metadata has for ", quote_name(key), " not 8 hexadecimal digits for each of ",
                        blocks, " runs");
    }
    return sums;
}

/// Opens the file of a rank and checks that it is the one the index means. Throws IoError when it cannot be read,
/// FormatError when it is another file or a damaged one.
[[nodiscard]] inline SafetensorsFile open_shard(std::string const& path, MchIndex const& index, Index rank) {
    SafetensorsFile file = SafetensorsFile::open(path);
    auto const expect = [&](std::string const& key, std::string const& found, std::string const& wanted) {
        if (found == wanted) return;
        refuse_old_file(file, "its metadata says ", quote_name(key), " is ", quote_name(found), ", the index says ",
                        quote_name(wanted));
    };
    auto const world = as_index(index.files.size());
    std::pair<char const*, std::string> const said[] = {{"mch.version", std::to_string(index.version)},
                                                        {"mch.save", index.save},
                                                        {"mch.ranks", std::to_string(world)},
                                                        {"mch.rank", std::to_string(rank)}};
    for (auto const& [key, wanted] : said) expect(key, old_metadata(file, key), wanted);
    for (MchSavedTable const& saved : index.tables) {
        MchTable const& table = saved.table;
        std::string const key = concat("table.", table.name);
        std::string const& text = old_metadata(file, key);
        if (std::string const wanted = to_json(saved); text != wanted) {  // others may write the same with spaces
            JsonTree const tree = parse_mch_json(text, path, key);
            expect(key, to_json(table_from(table.name, JsonReader(tree), world)), wanted);
        }
    }
    return file;
}

/// Adds what the files of all ranks have of a tensor. Throws FormatError for parts that are not there, not as long as
/// the shard, or of different types.
inline void add_old_tensor(Manifest& manifest, OpenFiles const& files, std::string const& name, MchTable const& table,
                           bool sums) {
    std::size_t const place = manifest.tensors.size();
    for (Index p = 0; p < table.parts(); ++p) {
        Interval const slots = table.part_range(p);
        if (slots.empty()) continue;
        auto const rank = static_cast<int>(table.slots.mesh().rank_at(p));
        SafetensorsFile const& file = *files[as_size(rank)];
        TensorInfo const* const found = file.find(name);
        if (found == nullptr) refuse_old_file(file, "it has no tensor ", quote_name(name));
        TensorInfo const& part = *found;
        if (part.shape.rank() == 0 || part.shape.extent(0) != slots.size()) {
            refuse_old_file(file, "tensor ", quote_name(name), " has shape ", to_string(part.shape),
                            ", but the shard has ", slots.size(), " slots");
        }
        Indices extents = part.shape.extents();
        extents[0] = table.size();
        if (Index bytes = 0; count_stored_bytes(part.dtype, extents, bytes) != SafetensorsRule::none) {
            refuse_mch_file(file.path(), "tensor ", quote_name(name), " would be ", enums::name(part.dtype), " ",
                            to_string(extents), " in all, beyond 64 bits. Fix: restore the index.");
        }
        StoredTensor const whole{name, part.dtype, DynamicShape(extents), 1, ""};
        if (place == manifest.tensors.size()) manifest.tensors.push_back(whole);
        if (StoredTensor const& known = manifest.tensors[place]; known != whole) {
            refuse_mch_file(file.path(), "tensor ", quote_name(name), " is ", enums::name(part.dtype), " ",
                            to_string(part.shape), ", other ranks have ", enums::name(known.dtype), " ",
                            to_string(known.shape), " in all. Fix: restore the files of one save.");
        }
        Extent extent{place, 0, rank, part.begin, Box(part.shape)};
        extent.box.set(0, slots);
        if (sums && part.bytes() > 0) {
            std::vector<std::uint32_t> blocks = old_sums_of(file, part);
            extent.has_checksum = true;
            for (std::size_t b = 0; b < blocks.size(); ++b) {
                Index const begin = as_index(b) * mch_old_block_bytes;
                extent.crc32c =
                    crc32c_combine(extent.crc32c, blocks[b], smaller(mch_old_block_bytes, part.bytes() - begin));
            }
            if (blocks.size() > 1) extent.block_sums = std::move(blocks);
        }
        manifest.extents.push_back(std::move(extent));
    }
}

/// The folder as if it were a checkpoint of today, its files open.
[[nodiscard]] inline CheckpointReader reader_of(MchIndex const& index, std::string const& folder) {
    Manifest manifest;
    OpenFiles files;
    manifest.save = index.save;
    manifest.world_size = static_cast<int>(index.files.size());
    manifest.block_bytes = mch_old_block_bytes;
    for (int rank = 0; rank < manifest.world_size; ++rank) {
        std::string const& leaf = index.files[as_size(rank)];
        std::string const path = join_path(folder, leaf);
        files.emplace_back(open_saved(
            path, [&] { return open_shard(path, index, rank); }, [] {}));
        manifest.files.push_back({leaf, files.back()->file_bytes(), files.back()->header_digest(), rank});
    }
    for (MchSavedTable const& saved : index.tables) {
        for_each_tensor(saved, [&](std::string const& tensor, auto...) {
            add_old_tensor(manifest, files, tensor, saved.table, index.version > 1);
        });
    }
    sort_tensors(manifest);
    std::string source = join_path(folder, mch_old_index);
    sort_extents(manifest, source);
    return CheckpointReader(std::move(source), Catalogue(std::move(manifest)), std::move(files));
}

}  // namespace reshard::inline v0_1::detail
