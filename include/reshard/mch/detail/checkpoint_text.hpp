// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_text.hpp
/// \brief  The words of a saved folder: names of files and tensors, tables as JSON, the index.
/// \depends mch/{checkpoint_types,id_bounds}, mch/detail/checkpoint_sums, checkpoint/{json_tree,name_reader},
/// comm/agree. No I/O.
/// The format: docs/mch-format.md.
#pragma once

#include <reshard/checkpoint/json_tree.hpp>
#include <reshard/checkpoint/name_reader.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/mch/checkpoint_types.hpp>
#include <reshard/mch/detail/checkpoint_sums.hpp>
#include <reshard/mch/id_bounds.hpp>

namespace reshard::inline v0 {

namespace detail {

inline constexpr Index mch_format_version = 2;  ///< what is written; 1, which has no checksums, is read
inline constexpr std::string_view mch_index_name = "mch.index.json";

/// All that is saved of a table but its buffers.
struct MchSavedTable {
    MchTable table;
    bool has_iteration = false;
    Index iteration = 0;
    std::vector<MchRowsInfo> rows;
    std::vector<MchIdBounds> ids;  ///< of each part; in the index only
};

/// What the index says.
struct MchIndex {
    Index version = mch_format_version;
    std::string save;                ///< id of the save
    std::vector<std::string> files;  ///< of each rank
    std::vector<MchSavedTable> tables;
};

/// Sixteen digits.
[[nodiscard]] inline std::string save_id_text(std::uint64_t id) {
    constexpr char const* digits = "0123456789abcdef";
    std::string text;
    for (int shift = 60; shift >= 0; shift -= 4) text += digits[(id >> static_cast<unsigned>(shift)) & 15U];
    return text;
}
/// `mch-0123456789abcdef-00002-of-00004.safetensors`: ranks count from 0.
[[nodiscard]] inline std::string mch_file_name(std::string_view save, Index rank, Index ranks) {
    auto const five = [](Index number) {
        std::string const digits = std::to_string(number);
        return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
    };
    return concat("mch-", save, "-", five(rank), "-of-", five(ranks), ".safetensors");
}

/// Whether mch_file_name() makes such names: no other file is a save's to read or to remove.
[[nodiscard]] inline bool is_mch_file(std::string_view leaf) noexcept {
    NameReader in(leaf);
    return in.word("mch-") && in.run("0123456789abcdef", 16, 16) && in.word("-") && in.digits(5, 10) &&
           in.word("-of-") && in.digits(5, 10) && in.word(".safetensors") && in.at_end();
}

[[nodiscard]] inline std::string ids_tensor(std::string_view table) { return concat(table, ".ids"); }
[[nodiscard]] inline std::string slots_tensor(std::string_view table) { return concat(table, ".slots"); }
[[nodiscard]] inline std::string column_tensor(std::string_view table, std::string_view column) {
    return concat(table, ".metadata.", column);
}
[[nodiscard]] inline std::string rows_tensor(std::string_view table, std::string_view rows) {
    return concat(table, ".rows.", rows);
}

/// Policies as files call them.
[[nodiscard]] constexpr std::string_view file_name_of(MchEviction eviction) noexcept {
    constexpr std::string_view names[] = {"none", "lfu", "lru", "distance_lfu"};
    return names[static_cast<int>(eviction)];
}

/// The slots cut at `offsets` on those ranks: by TorchRec's rule where the offsets are that rule's, so that a table
/// which was cut so is read back equal.
[[nodiscard]] inline DynamicDistribution mch_slots_of(std::vector<Index> const& ranks,
                                                      std::vector<Index> const& offsets) {
    auto const parts = static_cast<Index>(ranks.size());
    bool follow = true;
    for (std::size_t i = 1; i < ranks.size(); ++i) follow = follow && ranks[i] == ranks[0] + static_cast<Index>(i);
    DynamicMesh const mesh(Indices{parts}, follow ? first_rank(ranks[0]) : RankList{0, IndexList(ranks.data(), parts)});
    MchTable chunked;
    chunked.slots = mch_slots(mesh, offsets.back());
    if (chunked.offsets() == offsets) return chunked.slots;
    return mch_slots(mesh, IndexList(offsets.data(), parts + 1));
}

// JSON is written as text: trees of nlohmann's allocate also where they end, and a rank without memory would end there.

/// `"name":`, with what comes before it.
inline void append_json_key(std::string& json, char const* before, std::string_view key) {
    json += before;
    append_json_string(json, key);
    json += ':';
}
/// Calls append(item) for each, in brackets.
template <class List, class Append>
void append_json_list(std::string& json, List const& list, Append const& append) {
    char const* separator = "[";
    for (auto const& item : list) {
        json += separator;
        append(item);
        separator = ",";
    }
    json += *separator == '[' ? "[]" : "]";
}
inline void append_json_integers(std::string& json, std::span<Index const> list) {
    append_json_list(json, list, [&](Index number) { json += std::to_string(number); });
}

/// A table as files and the index have it. The same on all ranks, in every file. Throws FormatError for text that is
/// not UTF-8.
[[nodiscard]] inline std::string to_json(MchSavedTable const& saved) {
    MchTable const& table = saved.table;
    check_written_text("the hash function", table.hash_function);
    for (MchColumn const& column : table.metadata) check_written_text("the name of the column", column.name);
    for (MchRowsInfo const& rows : saved.rows) check_written_text("the name of the rows", rows.name);
    std::vector<Index> ranks;
    for (Index part = 0; part < table.parts(); ++part) ranks.push_back(table.slots.mesh().rank_at(part));
    std::string json = concat("{\"layout\":\"", name(table.layout), "\",\"eviction\":\"", file_name_of(table.eviction),
                              "\",\"offsets\":");
    append_json_integers(json, table.offsets());
    append_json_key(json, ",", "ranks");
    append_json_integers(json, ranks);
    json += concat(",\"hash_size\":", table.hash_size, ",\"hash_function\":");
    append_json_string(json, table.hash_function);
    json += concat(",\"buckets\":", table.buckets, ",\"columns\":");
    append_json_list(json, table.metadata, [&](MchColumn const& column) {
        append_json_key(json, "{", "name");
        append_json_string(json, column.name);
        json += concat(",\"bytes\":", column.bytes, ",\"empty\":", Index{column.empty}, "}");
    });
    if (saved.has_iteration) json += concat(",\"iteration\":", saved.iteration);
    append_json_key(json, ",", "rows");
    append_json_list(json, saved.rows, [&](MchRowsInfo const& rows) {
        append_json_key(json, "{", "name");
        append_json_string(json, rows.name);
        json += concat(",\"dtype\":\"", name(rows.dtype), "\",\"shape\":");
        append_json_integers(json, {rows.row_shape.begin(), rows.row_shape.end()});
        json += '}';
    });
    json += '}';
    return json;
}

[[nodiscard]] inline MchRowsInfo rows_from(JsonReader const& json) {
    MchRowsInfo rows;
    rows.name = json.at("name").text();
    std::string const dtype = json.at("dtype").text();
    if (!parse_dtype(dtype, rows.dtype) || !is_byte_sized(rows.dtype)) {
        json.fail(concat("has the dtype ", quote_name(dtype), ", which has no rows of whole bytes"));
    }
    Index row_bytes = bytes(rows.dtype);
    for (Index extent : json.at("shape").integers()) {
        if (rows.row_shape.size() == max_rank - 1) json.fail(concat("has rows of more than ", max_rank - 1, " axes"));
        if (!multiply_fits(row_bytes, larger<Index>(extent, 1), row_bytes)) json.fail("has rows beyond 64 bits");
        rows.row_shape.push_back(extent);
    }
    return rows;
}

[[nodiscard]] inline MchSavedTable table_from(std::string const& name, JsonReader const& json, Index world) {
    MchSavedTable saved;
    MchTable& table = saved.table;
    table.name = name;
    std::string const layout = json.at("layout").text();
    if (layout != "sorted" && layout != "buckets") json.fail(concat("has the layout ", quote_name(layout)));
    table.layout = layout == "sorted" ? MchLayout::sorted : MchLayout::buckets;
    std::string const policy = json.at("eviction").text();
    int eviction = 0;
    while (eviction < 4 && file_name_of(static_cast<MchEviction>(eviction)) != policy) ++eviction;
    if (eviction == 4) json.fail(concat("has the eviction policy ", quote_name(policy)));
    table.eviction = static_cast<MchEviction>(eviction);
    std::vector<Index> const offsets = json.at("offsets").integers();
    std::vector<Index> const ranks = json.at("ranks").integers();
    if (ranks.empty() || offsets.size() != ranks.size() + 1) {
        json.fail(concat("has ", offsets.size(), " offsets for ", ranks.size(), " ranks"));
    }
    for (std::size_t p = 0; p < ranks.size(); ++p) {
        if (offsets[p] > offsets[p + 1] || offsets[0] != 0) json.fail("has offsets that do not ascend from 0");
        if (ranks[p] >= world) json.fail(concat("is held by rank ", ranks[p], ", but only ", world, " ranks saved"));
    }
    table.hash_size = json.at("hash_size").integer();
    table.hash_function = json.at("hash_function").text();
    table.buckets = json.at("buckets").integer();
    table.metadata.clear();
    json.at("columns").for_each([&](JsonReader const& item) {
        Index const empty = item.at("empty").integer();
        if (empty > 255) item.fail("is empty by a byte above 255");
        table.metadata.push_back(
            {item.at("name").text(), item.at("bytes").integer(), static_cast<std::uint8_t>(empty)});
    });
    json.at("rows").for_each([&](JsonReader const& item) { saved.rows.push_back(rows_from(item)); });
    saved.has_iteration = table.layout == MchLayout::sorted;
    if (saved.has_iteration) saved.iteration = json.at("iteration").integer();
    Verdict const sound = verdict_of([&] {
        table.slots = mch_slots_of(ranks, offsets);
        check_table(table);
    });
    if (sound.code == ErrorCode::out_of_memory) raise(sound.code, std::string(words_of(sound)));
    if (!sound.ok()) json.fail(concat("is no table: ", sound.reason));
    return saved;
}

/// How the text of an index ends: with the sum of all that stands before.
[[nodiscard]] inline std::string index_end(std::string_view before) {
    return concat(",\"crc32c\":\"", sum_text(std::as_bytes(std::span<char const>(before.data(), before.size()))),
                  "\"}\n");
}

/// \pre its version is the one that is written. Throws FormatError for text that is not UTF-8.
[[nodiscard]] inline std::string to_json(MchIndex const& index) {
    std::string json = concat("{\"format\":\"reshard-mch\",\"version\":", index.version, ",\"save\":");
    append_json_string(json, index.save);
    append_json_key(json, ",", "files");
    append_json_list(json, index.files, [&](std::string const& file) { append_json_string(json, file); });
    append_json_key(json, ",", "tables");
    char const* separator = "";
    json += '{';
    for (MchSavedTable const& saved : index.tables) {
        check_written_text("the name of the table", saved.table.name);
        append_json_key(json, separator, saved.table.name);
        json += to_json(saved);
        separator = ",";
    }
    json += '}';
    append_json_key(json, ",", "ids");
    separator = "";
    json += '{';
    for (MchSavedTable const& saved : index.tables) {
        append_json_key(json, separator, saved.table.name);
        append_json_list(json, saved.ids, [&](MchIdBounds const& bounds) {
            Index const numbers[] = {bounds.live, bounds.negative, bounds.lowest, bounds.highest};
            append_json_integers(json, std::span(numbers).first(bounds.highest >= 0 ? 4 : 2));
        });
        separator = ",";
    }
    json += '}';
    return json + index_end(json);
}

[[nodiscard]] inline std::vector<MchIdBounds> id_bounds_from(JsonReader const& json, MchTable const& table) {
    std::vector<MchIdBounds> list;
    json.for_each([&](JsonReader const& item) {
        std::vector<Index> const numbers = item.integers();
        if (numbers.size() != 2 && numbers.size() != 4) item.fail("is not [live, negative] or those and two bounds");
        MchIdBounds bounds{numbers[0], 0, -1, numbers[1]};
        if (numbers.size() == 4) bounds = {numbers[0], numbers[2], numbers[3], numbers[1]};
        auto const part = static_cast<Index>(list.size());
        bool const fits = part >= table.parts() || bounds.live <= table.part_range(part).size();
        bool const some = bounds.negative < bounds.live;
        if (!fits || bounds.negative > bounds.live || some != (numbers.size() == 4) ||
            (some && bounds.lowest > bounds.highest)) {
            item.fail("contradicts itself, or has more ids than the shard has slots");
        }
        list.push_back(bounds);
    });
    if (static_cast<Index>(list.size()) != table.parts()) {
        json.fail(concat("has ", list.size(), " entries for ", table.parts(), " shards"));
    }
    return list;
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
        json.at("crc32c").fail(concat("is ", quote_name(was),
                                      ", but the text before it has another sum: ", quote_name(wanted.substr(11, 8))));
    }
}

/// Throws FormatError for a text that is not an index of this version, for files that are not of all ranks, and for
/// tables that make no sense.
[[nodiscard]] inline MchIndex index_from(std::string_view text, std::string_view file) {
    JsonTree const tree = parse_mch_json(text, file);
    JsonReader const json(tree);
    if (json.at("format").text() != "reshard-mch") json.at("format").fail("is not 'reshard-mch'");
    Index const version = json.at("version").integer();
    if (version < 1 || version > mch_format_version) {
        refuse_mch_file(file, concat("it is of version ", version, ", this library reads 1 to ", mch_format_version),
                        "use a newer library.");
    }
    check_index_sum(text, json, version);
    MchIndex index;
    index.version = version;
    index.save = json.at("save").text();
    if (!is_mch_file(mch_file_name(index.save, 0, 1))) {  // it becomes part of the names of files
        json.at("save").fail(concat("is ", quote_name(index.save), ", not 16 hexadecimal digits in lower case"));
    }
    json.at("files").for_each([&](JsonReader const& item) { index.files.push_back(item.text()); });
    auto const world = static_cast<Index>(index.files.size());
    for (Index rank = 0; rank < world; ++rank) {
        std::string const expected = mch_file_name(index.save, rank, world);
        std::string const& found = index.files[static_cast<std::size_t>(rank)];
        if (found == expected) continue;
        json.at("files").fail(concat("has a gap: of rank ", rank, " of ", world, " it should have ",
                                     quote_name(expected), ", it has ", quote_name(found)));
    }
    if (index.files.empty()) json.at("files").fail("is empty");
    JsonReader const ids = json.at("ids");
    json.at("tables").for_each_member([&](std::string const& name, JsonReader const& item) {
        index.tables.push_back(table_from(name, item, world));
        index.tables.back().ids = id_bounds_from(ids.at(name), index.tables.back().table);
    });
    return index;
}

}  // namespace detail

}  // namespace reshard::inline v0
