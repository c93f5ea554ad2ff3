// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_files.hpp
/// \brief  The tables of a folder and the files they lie in: a checkpoint of today, one that was consolidated, or a
///         folder of tables alone as older releases made them. Slots of a tensor are read by their numbers.
/// \depends mch/detail/checkpoint_old, checkpoint/{checkpoint_reader,old_tables}.
#pragma once

#include <reshard/checkpoint/checkpoint_reader.hpp>
#include <reshard/checkpoint/old_tables.hpp>
#include <reshard/mch/detail/checkpoint_old.hpp>

namespace reshard::inline v0_1::detail {

/// Each file is opened when something of it is read, or said to be.
class MchFiles : public CheckpointReader {
public:
    /// `sealed`: what the tables' text says of ids has a checksum. Throws FormatError for tensors that are not what
    /// their table says.
    MchFiles(std::string folder, std::vector<MchSavedTable> tables, CheckpointReader reader, bool sealed)
        : CheckpointReader(std::move(reader)), folder_(std::move(folder)), tables_(std::move(tables)), sealed_(sealed) {
        for (MchSavedTable& one : tables_) {
            check_tensors(one);
            one.table.save = catalogue().manifest().save;
        }
    }

    [[nodiscard]] std::string const& folder() const noexcept { return folder_; }
    [[nodiscard]] std::vector<MchSavedTable> const& tables() const noexcept { return tables_; }
    [[nodiscard]] bool sealed() const noexcept { return sealed_; }
    [[nodiscard]] DType dtype(std::string_view tensor) const { return catalogue().find(tensor)->dtype; }

    /// The path of the file that has a slot of a tensor, for messages.
    [[nodiscard]] std::string path_of(std::string const& tensor, Index slot) {
        std::string file = path();
        for_each_run(tensor, {slot, slot + 1},
                     [&, this](Extent const& extent, Interval) { file = CheckpointReader::path_of(extent.file); });
        return file;
    }
    /// Sees that what holds these slots of a tensor is there and what it should be. Throws IoError, FormatError,
    /// MismatchError for files of another save.
    void open(std::string const& tensor, Interval slots) {
        for_each_run(tensor, slots, [&, this](Extent const& extent, Interval) { CheckpointReader::open(extent.file); });
    }
    /// These slots of a tensor, `width` bytes each, which were opened. Returns how many bytes were read, for checksums
    /// also more than these. Throws IoError; FormatError for bytes that are not those that were saved.
    Index read(std::string const& tensor, Index width, Interval slots, std::byte* to) {
        Index bytes = 0;
        for_each_run(tensor, slots, [&, this](Extent const& extent, Interval part) {
            Index const first = extent.box.begin(0);
            bytes += read_part(extent, (part.begin - first) * width, (part.end - first) * width,
                               to + (part.begin - slots.begin) * width);
        });
        return bytes;
    }

private:
    [[noreturn]] void refuse(std::string_view what) const {
        refuse_mch_file(path(), what, ". Fix: restore the file of this save, or load another save.");
    }
    void check_tensors(MchSavedTable const& saved) const {
        MchTable const& table = saved.table;
        Index const slots = table.size();
        if (slots == 0) return;
        for_each_tensor(saved, [&, this](std::string const& name, MchColumn const* column, MchRowsInfo const* rows) {
            StoredTensor const* const tensor = catalogue().find(name);
            if (tensor == nullptr) refuse(concat("it has no tensor ", quote_name(name)));
            auto const is =
                concat("tensor ", quote_name(name), " is ", enums::name(tensor->dtype), " ", to_string(tensor->shape));
            if (!is_byte_sized(tensor->dtype)) refuse(concat(is, ", which has no whole bytes"));
            if (tensor->shape.rank() == 0 || tensor->shape.extent(0) != slots)
                refuse(concat(is, ", but table ", quote_name(table.name), " has ", slots, " slots"));
            for (std::size_t const e : catalogue().extents_of(place_of(*tensor))) {
                Box const& box = catalogue().extents()[e].box;
                for (int d = 1; d < box.rank(); ++d) {
                    if (box.empty() || box[d] == Interval{0, tensor->shape.extent(d)}) continue;
                    refuse_mch_file(path(), is, ", cut along dimension ", d,
                                    "; tables are cut by slots. Fix: consolidate() first, which makes it whole.");
                }
            }
            if (rows != nullptr) {
                Indices shape{slots};
                for (Index extent : rows->row_shape) shape.push_back(extent);
                if (tensor->dtype == rows->dtype && tensor->shape.extents() == shape) return;
                refuse(concat(is, ", not ", enums::name(rows->dtype), " ", to_string(shape)));
            }
            Index const width = tensor->shape.size() / slots * bytes(tensor->dtype);
            bool const integers = column == nullptr || column->name == mch_counts || column->name == mch_last_access;
            if (integers && (tensor->dtype != DType::i64 || width != 8))
                refuse(concat(is, ", not I64 of one number a slot"));
            if (column != nullptr && width != column->bytes)
                refuse(concat(is, ", not of ", column->bytes, " bytes a slot"));
        });
    }
    [[nodiscard]] std::size_t place_of(StoredTensor const& tensor) const noexcept {
        return as_size(&tensor - catalogue().tensors().data());
    }
    /// Calls f(extent, slots of it) for all that hold some of these slots, in any order.
    template <class F>
    void for_each_run(std::string const& tensor, Interval slots, F&& f) {
        if (slots.empty()) return;  // of a table without slots nobody has looked for the tensors
        StoredTensor const& whole = *catalogue().find(tensor);
        Box rows(whole.shape);
        rows.set(0, slots);
        // Cut by slots alone (check_tensors): that is the dimension by which they are near.
        catalogue().for_each_near(place_of(whole), rows, [&, this](std::size_t e) {
            Extent const& extent = catalogue().extents()[e];
            if (extent.replica != 0 || extent.box.empty()) return;
            Interval const part = intersect(slots, extent.box[0]);
            if (!part.empty()) f(extent, part);
        });
    }

    std::string folder_;
    std::vector<MchSavedTable> tables_;
    bool sealed_;
};

/// The tables of a folder. Throws IoError where there is no save, FormatError, MismatchError.
[[nodiscard]] inline MchFiles open_tables(std::string const& folder) {
    bool const has_old = path_kind(join_path(folder, mch_old_index)) != PathKind::missing;
    if (!has_old || path_kind(join_path(folder, manifest_name)) != PathKind::missing) {
        // Read before the manifest: what replaces them has its manifest before it removes them.
        std::optional<std::string> const old = has_old ? old_tables_in(folder) : std::string();
        CheckpointReader reader(list_files(folder));
        Manifest const& manifest = reader.catalogue().manifest();
        auto tables = tables_from(manifest.metadata, reader.path());
        std::string const* const replaced = find_metadata(manifest.metadata, mch_replaced_key);
        bool const counts = old ? old->empty() || (replaced != nullptr && *replaced == *old) : !tables.empty();
        if (!counts && !tables.empty()) {
            refuse_mch_file(join_path(folder, mch_old_index), "its tables, of save ", *old,
                            ", lie beside those of save ", manifest.save, " in ", manifest_name,
                            ", and which is newer nothing says. Fix: remove this file to have those of the manifest, "
                            "or the manifest to have these; the next save removes both.");
        }
        // Otherwise an older release saved tables beside dense tensors, in the same folder.
        if (counts) {
            bool const sealed =
                reader.catalogue().kind() == CheckpointKind::manifest;  // headers of files have no checksums
            return MchFiles(folder, std::move(tables), std::move(reader), sealed);
        }
    }
    MchIndex index = read_old_index(folder);
    CheckpointReader reader = reader_of(index, folder);
    return MchFiles(folder, std::move(index.tables), std::move(reader), index.version > 1);
}

}  // namespace reshard::inline v0_1::detail
