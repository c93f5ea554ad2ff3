// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_shard.hpp
/// \brief  What one rank's file holds: tensors from memory on the way out, checked places of them on the way in.
/// \depends mch/detail/{buffers,checkpoint_text,scan}, checkpoint/{safetensors,safetensors_writer}.
#pragma once

#include <reshard/checkpoint/file.hpp>
#include <reshard/checkpoint/safetensors.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>
#include <reshard/mch/detail/buffers.hpp>
#include <reshard/mch/detail/checkpoint_text.hpp>
#include <reshard/mch/detail/scan.hpp>

namespace reshard::inline v0 {

namespace detail {

/// All of a file of text, which an index is. Throws IoError; FormatError when it is too large for one.
[[nodiscard]] inline std::string read_text_file(std::string const& path) {
    Index bytes = 0;
    FileDescriptor const file = open_for_reading(path, bytes);
    if (bytes > max_safetensors_header_bytes) {
        refuse_mch_file(path, concat("it has ", bytes, " bytes, more than an index has"), "check the path.");
    }
    std::string text(static_cast<std::size_t>(bytes), '\0');
    read_fully(file, path, 0, std::as_writable_bytes(std::span(text)));
    return text;
}

/// A tensor of the file and where its bytes are.
struct MchTensor {
    TensorSpec spec;
    std::byte const* data = nullptr;
};

/// The column of that name in a state, or null.
[[nodiscard]] inline MchColumnView const* find_column(MchState const& state, std::string_view name) noexcept {
    for (MchColumnView const& column : state.metadata)
        if (column.name == name) return &column;
    return nullptr;
}

/// Throws BufferError and DTypeError for rows that are not [z, ...], dense, in memory of the host.
inline void check_rows(MchTable const& table, Index rank, MchRows const& rows) {
    MchBuffers buffers(table, rank);
    std::string const what = concat("rows '", rows.name, "'");
    if (!is_byte_sized(rows.view.dtype())) {
        buffers.refuse(ErrorCode::dtype, what, " of ", name(rows.view.dtype()),
                       " have no addressable elements. Fix: view them as U8.");
    }
    if (rows.view.rank() == 0) {
        buffers.refuse(ErrorCode::buffer, what,
                       " have no shape. Fix: pass [z, ...], also where a rank has no slots: the others have rows.");
    }
    Index row_bytes = bytes(rows.view.dtype());
    for (int d = 1; d < rows.view.rank(); ++d) row_bytes *= rows.view.extent(d);
    static_cast<void>(buffers.column(rows.view, what, table.range(rank).size(), row_bytes));
    if (is_device_memory(rows.view.data())) {
        buffers.refuse(ErrorCode::buffer, what, " lie in device memory. Fix: copy them to the host.");
    }
}

[[nodiscard]] inline MchRowsInfo info_of(MchRows const& rows) {
    MchRowsInfo info{rows.name, rows.view.dtype(), {}};
    for (int d = 1; d < rows.view.rank(); ++d) info.row_shape.push_back(rows.view.extent(d));
    return info;
}

/// The tensors of one table in the file of a rank: none where it has no slots.
inline void add_tensors(std::vector<MchTensor>& tensors, MchTable const& table, MchState const& state,
                        MchShard const& shard, std::span<MchRows const> rows) {
    if (shard.entries == 0) return;
    auto const add = [&](std::string name, DType dtype, DynamicShape const& shape, void const* data) {
        tensors.push_back({{std::move(name), dtype, shape}, static_cast<std::byte const*>(data)});
    };
    DynamicShape const column = Shape{shard.entries};
    add(ids_tensor(table.name), DType::i64, column, shard.ids);
    if (shard.slots != nullptr) add(slots_tensor(table.name), DType::i64, column, shard.slots);
    for (MchColumn const& one : table.metadata) {
        DynamicView const& view = find_column(state, one.name)->view;
        add(column_tensor(table.name, one.name), view.dtype(), view.shape(), view.data());
    }
    for (MchRows const& one : rows) {
        add(rows_tensor(table.name, one.name), one.view.dtype(), one.view.shape(), one.view.data());
    }
}

/// Writes all of a file but its last name.
[[nodiscard]] inline SafetensorsWriter write_shard(std::string path, std::vector<MchTensor>& tensors,
                                                   Metadata metadata) {
    std::vector<TensorSpec> specs;
    specs.reserve(tensors.size());
    for (MchTensor const& tensor : tensors) specs.push_back(tensor.spec);
    for (MchTensor const& tensor : tensors) {
        auto const bytes = static_cast<std::size_t>(stored_bytes(tensor.spec));
        metadata.emplace_back(sums_key(tensor.spec.name), sums_text({tensor.data, bytes}));
    }
    std::sort(tensors.begin(), tensors.end(),
              [](MchTensor const& a, MchTensor const& b) { return a.spec.name < b.spec.name; });
    auto writer = SafetensorsWriter::create(std::move(path), std::move(specs), std::move(metadata));
    for (TensorInfo const& info : writer.tensors()) {
        auto const at = std::lower_bound(tensors.begin(), tensors.end(), info.name,
                                         [](MchTensor const& a, std::string const& b) { return a.spec.name < b; });
        writer.write({at->data, static_cast<std::size_t>(info.bytes())});
    }
    writer.finish();
    return writer;
}

/// `__metadata__` of a rank's file.
[[nodiscard]] inline Metadata shard_metadata(std::string const& save, Index rank, Index ranks,
                                             std::vector<MchSavedTable> const& tables) {
    Metadata metadata = default_metadata();
    metadata.emplace_back("mch.version", std::to_string(mch_format_version));
    metadata.emplace_back("mch.save", save);
    metadata.emplace_back("mch.rank", std::to_string(rank));
    metadata.emplace_back("mch.ranks", std::to_string(ranks));
    for (MchSavedTable const& saved : tables) metadata.emplace_back(concat("table.", saved.table.name), to_json(saved));
    return metadata;
}

/// Opens the file of a rank and checks that it is the one the index means, with every tensor it should have. Throws
/// IoError when it cannot be read, FormatError when it is another file or a damaged one.
[[nodiscard]] inline SafetensorsFile open_shard(std::string const& path, MchIndex const& index, Index rank) {
    SafetensorsFile file = SafetensorsFile::open(path);
    auto const refuse = [&](auto const&... parts) {
        refuse_mch_file(path, concat(parts...), "restore the file of this save, or load another save.");
    };
    auto const metadata = [&](std::string const& key) -> std::string const& {
        auto const at = std::find_if(file.metadata().begin(), file.metadata().end(),
                                     [&](auto const& item) { return item.first == key; });
        if (at == file.metadata().end()) refuse("its metadata has no ", quote_name(key));
        return at->second;
    };
    auto const expect = [&](std::string const& key, std::string const& wanted) {
        std::string const& found = metadata(key);
        if (found == wanted) return;
        refuse("its metadata says ", quote_name(key), " is ", quote_name(found), ", the index says ",
               quote_name(wanted));
    };
    auto const world = static_cast<Index>(index.files.size());
    expect("mch.version", std::to_string(index.version));
    expect("mch.save", index.save);
    expect("mch.ranks", std::to_string(world));
    expect("mch.rank", std::to_string(rank));
    for (MchSavedTable const& saved : index.tables) {
        MchTable const& table = saved.table;
        std::string const key = concat("table.", table.name);
        std::string const& text = metadata(key);
        if (std::string const wanted = to_json(saved); text != wanted) {  // others may write the same with spaces
            JsonTree const tree = parse_mch_json(text, path, key);
            std::string const found = to_json(table_from(table.name, JsonReader(tree), world));
            if (found != wanted) {
                refuse("its metadata says ", quote_name(key), " is ", quote_name(found), ", the index says ",
                       quote_name(wanted));
            }
        }
        Index const entries = table.range(rank).size();
        if (entries == 0) continue;
        auto const find = [&](std::string const& name) -> TensorInfo const& {
            TensorInfo const* const tensor = file.find(name);
            if (tensor == nullptr) refuse("it has no tensor ", quote_name(name));
            if (!is_byte_sized(tensor->dtype)) {
                refuse("tensor ", quote_name(name), " is ", reshard::name(tensor->dtype), ", which has no whole bytes");
            }
            if (tensor->shape.rank() == 0 || tensor->shape.extent(0) != entries) {
                refuse("tensor ", quote_name(name), " has shape ", to_string(tensor->shape), ", but the shard has ",
                       entries, " slots");
            }
            if (index.version > 1) static_cast<void>(MchSums(file, *tensor));
            return *tensor;
        };
        auto const integers = [&](std::string const& name) {
            TensorInfo const& tensor = find(name);
            if (tensor.dtype == DType::i64 && tensor.bytes() == entries * 8) return;
            refuse("tensor ", quote_name(name), " is ", reshard::name(tensor.dtype), " ", to_string(tensor.shape),
                   ", not I64 of one number a slot");
        };
        integers(ids_tensor(table.name));
        if (table.layout == MchLayout::sorted) integers(slots_tensor(table.name));
        for (MchColumn const& column : table.metadata) {
            std::string const name = column_tensor(table.name, column.name);
            if (column.name == mch_counts || column.name == mch_last_access) integers(name);
            Index const width = find(name).bytes() / entries;
            if (width != column.bytes) {
                refuse("tensor ", quote_name(name), " has ", width, " bytes a slot, the index says ", column.bytes);
            }
        }
        for (MchRowsInfo const& rows : saved.rows) {
            std::string const name = rows_tensor(table.name, rows.name);
            TensorInfo const& tensor = find(name);
            Indices shape{entries};
            for (Index extent : rows.row_shape) shape.push_back(extent);
            if (tensor.dtype == rows.dtype && tensor.shape.extents() == shape) continue;
            refuse("tensor ", quote_name(name), " is ", reshard::name(tensor.dtype), " ", to_string(tensor.shape),
                   ", the index says ", reshard::name(rows.dtype), " ", to_string(DynamicShape(shape)));
        }
    }
    return file;
}

}  // namespace detail

}  // namespace reshard::inline v0
