// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_text.hpp
/// \brief  Tables as a checkpoint knows them: the names of their tensors, their rows, and a JSON text for each.
/// \depends mch/{checkpoint_types,state}, mch/detail/buffers, checkpoint/{json_tree,manifest,safetensors_layout},
///         comm/agree.
/// No I/O.
/// The format: docs/mch-format.md.
#pragma once

#include <reshard/checkpoint/json_tree.hpp>
#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/mch/checkpoint_types.hpp>
#include <reshard/mch/detail/buffers.hpp>
#include <reshard/mch/state.hpp>

#include <locale>   // locale
#include <sstream>  // istringstream

namespace reshard::inline v0_1::detail {

template <class... Parts>
[[noreturn]] void refuse_mch_file(std::string_view file, Parts... parts) {
    raise(ErrorCode::format, "reshard::mch: ", file, ": ", parts...);
}

/// Throws FormatError for what is not one JSON text. `where` begins the names of keys in messages.
[[nodiscard]] inline JsonTree parse_mch_json(std::string_view json, std::string_view file,
                                             std::string_view where = {}) {
    constexpr RefuseFile refuse = [](std::string_view name, std::string_view what) {
        refuse_mch_file(name, what, ". Fix: restore the file, or save anew.");
    };
    return {json, file, refuse, where};
}

/// Of the text of a table. 1 and 2 were folders of their own: detail/checkpoint_old.hpp.
inline constexpr Index mch_text_version = 3;

/// All that is saved of a table but its buffers.
struct MchSavedTable {
    MchTable table;
    Index iteration = 0;  ///< of a sorted table
    std::vector<MchRowsInfo> rows;
    std::vector<MchIdBounds> ids;  ///< of each part
};

/// Throws BufferError and DTypeError for rows that are not [z, ...], dense, in memory of the host and none of
/// `buffers`'.
inline void check_rows(MchRows const& rows, Index entries, MchBuffers& buffers) {
    std::string const what = concat("rows '", rows.name, "'");
    if (rows.view.rank() == 0) {
        buffers.refuse(ErrorCode::buffer, what,
                       " have no shape. Fix: pass [z, ...], also where a rank has no slots: the others have rows.");
    }
    static_cast<void>(buffers.column(rows.view, what, entries, entry_bytes(rows.view)));
}

/// Without the dimension that counts slots.
[[nodiscard]] inline Indices entry_shape(DynamicView const& view) {
    Indices shape;
    for (int d = 1; d < view.rank(); ++d) shape.push_back(view.extent(d));
    return shape;
}
[[nodiscard]] inline MchRowsInfo info_of(MchRows const& rows) {
    return {rows.name, rows.view.dtype(), entry_shape(rows.view)};
}

[[nodiscard]] inline std::string ids_tensor(std::string_view table) { return concat(table, ".ids"); }
[[nodiscard]] inline std::string slots_tensor(std::string_view table) { return concat(table, ".slots"); }
[[nodiscard]] inline std::string column_tensor(std::string_view table, std::string_view column) {
    return concat(table, ".metadata.", column);
}
[[nodiscard]] inline std::string rows_tensor(std::string_view table, std::string_view rows) {
    return concat(table, ".rows.", rows);
}

/// Calls f(name, column, rows) for the tensors of a table: ids, slots where there are any, columns, rows; null but for
/// the one it is of.
template <class F>
void for_each_tensor(MchSavedTable const& saved, F&& f) {
    std::string const& table = saved.table.name;
    f(ids_tensor(table), nullptr, nullptr);
    if (saved.table.layout == MchLayout::sorted) f(slots_tensor(table), nullptr, nullptr);
    for (MchColumn const& column : saved.table.metadata) f(column_tensor(table, column.name), &column, nullptr);
    for (MchRowsInfo const& rows : saved.rows) f(rows_tensor(table, rows.name), nullptr, &rows);
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
    auto const parts = as_index(ranks.size());
    bool follow = true;
    for (std::size_t i = 1; i < ranks.size(); ++i) follow = follow && ranks[i] == ranks[0] + as_index(i);
    DynamicMesh const mesh(Indices{parts}, follow ? first_rank(ranks[0]) : RankList{0, IndexList(ranks.data(), parts)});
    MchTable chunked;
    chunked.slots = mch_slots(mesh, offsets.back());
    if (chunked.offsets() == offsets) return chunked.slots;
    return mch_slots(mesh, IndexList(offsets.data(), parts + 1));
}

// JSON is written as text: trees of nlohmann's allocate also where they end, and a rank without memory would end there.

[[nodiscard]] inline std::string json_string(std::string_view text) {
    std::string json;
    append_json_string(json, text);
    return json;
}
/// item(one) of each, in brackets.
template <class List, class Item>
[[nodiscard]] std::string json_list(List const& list, Item const& item) {
    std::string json = "[";
    for (auto const& one : list) json += concat(json.size() == 1 ? "" : ",", item(one));
    return json + "]";
}
[[nodiscard]] inline std::string json_integers(std::span<Index const> list) {
    return json_list(list, [](Index number) { return std::to_string(number); });
}

/// A table as folders of version 1 and 2 have it in each file. Throws FormatError for text that is not UTF-8.
[[nodiscard]] inline std::string to_json(MchSavedTable const& saved) {
    MchTable const& table = saved.table;
    check_written_text("the hash function", table.hash_function);
    for (MchColumn const& column : table.metadata) check_written_text("the name of the column", column.name);
    for (MchRowsInfo const& rows : saved.rows) check_written_text("the name of the rows", rows.name);
    std::vector<Index> ranks;
    for (Index part = 0; part < table.parts(); ++part) ranks.push_back(table.slots.mesh().rank_at(part));
    std::string json = concat("{\"layout\":\"", name(table.layout), "\",\"eviction\":\"", file_name_of(table.eviction),
                              "\",\"offsets\":", json_integers(table.offsets()));
    if (table.decay_exponent != 1) json += concat(",\"decay_exponent\":\"", number_text(table.decay_exponent), "\"");
    json += concat(",\"ranks\":", json_integers(ranks), ",\"hash_size\":", table.hash_size,
                   ",\"hash_function\":", json_string(table.hash_function), ",\"buckets\":", table.buckets,
                   ",\"columns\":");
    json += json_list(table.metadata, [](MchColumn const& column) {
        return concat("{\"name\":", json_string(column.name), ",\"bytes\":", column.bytes,
                      ",\"empty\":", Index{column.empty}, "}");
    });
    if (table.layout == MchLayout::sorted) json += concat(",\"iteration\":", saved.iteration);
    json +=
        concat(",\"rows\":", json_list(saved.rows, [](MchRowsInfo const& rows) {
                   return concat("{\"name\":", json_string(rows.name), ",\"dtype\":\"", name(rows.dtype),
                                 "\",\"shape\":", json_integers({rows.row_shape.begin(), rows.row_shape.end()}), "}");
               }));
    return json + "}";
}

/// The text of a table in a checkpoint's metadata. Throws FormatError for text that is not UTF-8.
[[nodiscard]] inline std::string table_text(MchSavedTable const& saved) {
    check_written_text("the name of the table", saved.table.name);
    std::string json = concat("{\"version\":", mch_text_version, ",", to_json(saved).substr(1));
    json.back() = ',';
    return concat(json, "\"ids\":",
                  json_list(saved.ids,
                            [](MchIdBounds const& bounds) {
                                Index const numbers[] = {bounds.live, bounds.negative, bounds.lowest, bounds.highest};
                                return json_integers(std::span(numbers).first(bounds.highest >= 0 ? 4 : 2));
                            }),
                  "}");
}

[[nodiscard]] inline MchRowsInfo rows_from(JsonReader const& json) {
    MchRowsInfo rows;
    rows.name = json.at("name").text();
    std::string const dtype = json.at("dtype").text();
    if (!parse_dtype(dtype, rows.dtype) || !is_byte_sized(rows.dtype)) {
        json.fail("has the dtype ", quote_name(dtype), ", which has no rows of whole bytes");
    }
    Index row_bytes = bytes(rows.dtype);
    for (Index extent : json.at("shape").integers()) {
        if (rows.row_shape.size() == max_dims - 1) json.fail("has rows of more than ", max_dims - 1, " axes");
        if (!multiply_fits(row_bytes, larger<Index>(extent, 1), row_bytes)) json.fail("has rows beyond 64 bits");
        rows.row_shape.push_back(extent);
    }
    return rows;
}

/// By a stream, which reads what MchTable's own text has: libc++ has no from_chars of it before 20. Whether all is
/// read.
[[nodiscard]] inline bool read_number(std::string const& text, double& number) {
    if (text.find_first_not_of("+-.0123456789Ee") != std::string::npos) return false;
    std::istringstream stream(text);
    stream.imbue(std::locale::classic());
    return static_cast<bool>(stream >> number) && stream.peek() == std::istringstream::traits_type::eof();
}

[[nodiscard]] inline MchSavedTable table_from(std::string const& name, JsonReader const& json, Index world) {
    MchSavedTable saved;
    MchTable& table = saved.table;
    table.name = name;
    std::string const layout = json.at("layout").text();
    if (layout != "sorted" && layout != "buckets") json.fail("has the layout ", quote_name(layout));
    table.layout = layout == "sorted" ? MchLayout::sorted : MchLayout::buckets;
    std::string const policy = json.at("eviction").text();
    int eviction = 0;
    while (eviction < 4 && file_name_of(static_cast<MchEviction>(eviction)) != policy) ++eviction;
    if (eviction == 4) json.fail("has the eviction policy ", quote_name(policy));
    table.eviction = static_cast<MchEviction>(eviction);
    if (json.has("decay_exponent")) {
        std::string const text = json.at("decay_exponent").text();
        if (!read_number(text, table.decay_exponent)) json.fail("has the decay exponent ", quote_name(text));
    }
    std::vector<Index> const offsets = json.at("offsets").integers();
    std::vector<Index> const ranks = json.at("ranks").integers();
    if (ranks.empty() || offsets.size() != ranks.size() + 1) {
        json.fail("has ", offsets.size(), " offsets for ", ranks.size(), " ranks");
    }
    for (std::size_t p = 0; p < ranks.size(); ++p) {
        if (offsets[p] > offsets[p + 1] || offsets[0] != 0) json.fail("has offsets that do not ascend from 0");
        if (ranks[p] >= world) json.fail("is held by rank ", ranks[p], ", but only ", world, " ranks saved");
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
    if (table.layout == MchLayout::sorted) saved.iteration = json.at("iteration").integer();
    Verdict const sound = verdict_of([&] {
        table.slots = mch_slots_of(ranks, offsets);
        check_table(table);
    });
    if (sound.code == ErrorCode::out_of_memory) raise(sound.code, std::string(words_of(sound)));
    std::string_view const reason = sound.reason;
    if (!sound.ok()) json.fail("is no table: ", reason.substr(0, reason.rfind(". Fix: ")));  // one remedy, the file's
    return saved;
}

[[nodiscard]] inline std::vector<MchIdBounds> id_bounds_from(JsonReader const& json, MchTable const& table) {
    std::vector<MchIdBounds> list;
    json.for_each([&](JsonReader const& item) {
        std::vector<Index> const numbers = item.integers();
        if (numbers.size() != 2 && numbers.size() != 4) item.fail("is not [live, negative] or those and two bounds");
        MchIdBounds bounds{numbers[0], 0, -1, numbers[1]};
        if (numbers.size() == 4) bounds = {numbers[0], numbers[2], numbers[3], numbers[1]};
        auto const part = as_index(list.size());
        bool const fits = part >= table.parts() || bounds.live <= table.part_range(part).size();
        bool const some = bounds.negative < bounds.live;
        if (!fits || bounds.negative > bounds.live || some != (numbers.size() == 4) ||
            (some && bounds.lowest > bounds.highest)) {
            item.fail("contradicts itself, or has more ids than the shard has slots");
        }
        list.push_back(bounds);
    });
    if (as_index(list.size()) != table.parts()) {
        json.fail("has ", list.size(), " entries for ", table.parts(), " shards");
    }
    return list;
}

/// The tables that a checkpoint's metadata tells of. `source` is the text that has it, for
/// messages. Throws FormatError for tables that make no sense, and for versions that this library does not know.
[[nodiscard]] inline std::vector<MchSavedTable> tables_from(Metadata const& metadata, std::string_view source) {
    std::vector<MchSavedTable> tables;
    for (auto const& [key, text] : metadata) {
        if (!key.starts_with(mch_table_key)) continue;
        JsonTree const tree = parse_mch_json(text, source, key);
        JsonReader const json(tree);
        Index const version = json.at("version").integer();
        if (version != mch_text_version) {
            refuse_mch_file(source, quote_name(key), " is of version ", version, ", this library reads ",
                            mch_text_version, ". Fix: use the release of reshard that saved it, or a newer one.");
        }
        tables.push_back(table_from(key.substr(mch_table_key.size()), json, INT32_MAX));
        tables.back().ids = id_bounds_from(json.at("ids"), tables.back().table);
    }
    return tables;
}

}  // namespace reshard::inline v0_1::detail
