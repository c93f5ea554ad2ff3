// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/manifest_json.hpp
/// \brief  The manifest as JSON, read with every rule checked.
/// \depends checkpoint/{json_tree,detail/manifest_text}, algebra/notation. No I/O.
/// The rules: docs/manifest.md.
#pragma once

#include <reshard/algebra/notation.hpp>
#include <reshard/checkpoint/detail/manifest_text.hpp>
#include <reshard/checkpoint/json_tree.hpp>
#include <reshard/core/sorting.hpp>

#include <tuple>  // tuple

namespace reshard::inline v0_1 {
namespace detail {

/// For messages: which extent is meant.
[[nodiscard]] inline std::string describe(Manifest const& manifest, Extent const& extent) {
    return concat("box ", to_string(extent.box), " of tensor ", quote_name(manifest.tensors[extent.tensor].name),
                  ", replica ", extent.replica);
}

/// What the sum is of; nothing where the text is too short to have one.
[[nodiscard]] inline std::string_view before_seal(std::string_view json) noexcept {
    std::size_t const size = manifest_sum.size() + 8 + manifest_end.size();
    return json.substr(0, json.size() - smaller(size, json.size()));
}
/// Throws FormatError unless the text ends as manifests do, with its own sum.
inline void check_manifest_seal(std::string_view json, std::string_view file) {
    std::string_view const sealed = before_seal(json);
    if (sealed.empty() || json.substr(sealed.size()) != manifest_seal(sealed))
        refuse_manifest(file, "its bytes are not those that were written: 'crc32c' at its end is another sum");
}

/// Exactly `digits` hexadecimal digits, in lower case.
[[nodiscard]] inline std::uint64_t hex_from(JsonReader const& json, std::size_t digits) {
    std::uint64_t value = 0;
    if (parse_hex(json.text_view(), digits, value)) return value;
    json.fail("is ", quote_name(json.text_view()), ", not ", digits, " hexadecimal digits in lower case");
}
[[nodiscard]] inline std::vector<std::uint32_t> sums_from(JsonReader const& json, Index count) {
    std::string_view const text = json.text_view();
    if (text.size() != 8 * as_size(count))
        json.fail("has ", text.size(), " digits, not 8 for each of ", count, " blocks");
    std::vector<std::uint32_t> sums;
    if (parse_sums(text, as_size(count), sums)) return sums;
    json.fail("has ", quote_name(text.substr(8 * sums.size(), 8)), " for block ", sums.size(),
              ", which is not 8 hexadecimal digits in lower case");
}

[[nodiscard]] inline CheckpointFile file_from(JsonReader const& json, int world_size) {
    CheckpointFile file;
    file.leaf = json.at("name").text();
    if (!stays_in_folder(file.leaf, true) || file.leaf == manifest_name) {
        json.at("name").fail("is ", quote_name(file.leaf), ", which is no data file inside the folder");
    }
    file.file_bytes = json.at("bytes").integer();
    file.header_digest = hex_from(json.at("header_digest"), 16);
    if (json.has("writer")) file.writer = static_cast<int>(json.at("writer").integer(world_size - 1));
    return file;
}

[[nodiscard]] inline Box box_from(JsonReader const& json, StoredTensor const& tensor) {
    Box box;
    json.for_each([&](JsonReader const& item) {
        int const dim = box.rank();
        std::vector<Index> const ends = item.integers();
        if (dim == tensor.shape.rank()) json.fail("has more dimensions than ", to_string(tensor.shape));
        if (ends.size() != 2 || ends[0] > ends[1] || ends[1] > tensor.shape.extent(dim)) {
            item.fail("is no [begin, end] within the extent ", tensor.shape.extent(dim));
        }
        box.push_back({ends[0], ends[1]});
    });
    if (box.rank() != tensor.shape.rank()) json.fail("has fewer dimensions than ", to_string(tensor.shape));
    if (!is_byte_sized(tensor.dtype) && box != Box(tensor.shape)) {
        json.fail("is a part of the tensor, but ", name(tensor.dtype), " tensors cannot be cut");
    }
    return box;
}

[[nodiscard]] inline Extent extent_from(JsonReader const& json, StoredTensor const& tensor,
                                        std::vector<CheckpointFile> const& files, Index block_bytes) {
    Extent extent;
    auto const file = as_size(json.at("file").integer());
    if (file >= files.size()) json.at("file").fail("is ", file, ", but there are ", files.size(), " files");
    extent.file = static_cast<int>(file);
    extent.begin = json.at("begin").integer();
    extent.box = box_from(json.at("box"), tensor);
    Index const bytes = stored_bytes_of(tensor.dtype, extent.box);
    // In front of the data stand at least a length of 8 bytes and the JSON text "{}".
    if (bytes > files[file].file_bytes - 10 || extent.begin > files[file].file_bytes - 10 - bytes) {
        json.fail("takes ", bytes, " bytes from ", extent.begin, " on, beyond the end of ",
                  quote_name(files[file].leaf), " of ", files[file].file_bytes, " bytes");
    }
    if (json.has("replica")) extent.replica = static_cast<int>(json.at("replica").integer(tensor.replicas - 1));
    if (json.has("key")) {
        extent.key = json.at("key").text();
        if (extent.key.empty() || extent.key == "__metadata__") json.at("key").fail("is no name of a tensor");
        if (extent.key == tensor.name) extent.key.clear();
    }
    extent.has_checksum = json.has("crc32c");
    if (extent.has_checksum) extent.crc32c = static_cast<std::uint32_t>(hex_from(json.at("crc32c"), 8));
    if (json.has("crc32c_blocks")) {
        if (block_bytes == 0) json.at("crc32c_blocks").fail("is there, but the manifest has no block_bytes");
        if (!extent.has_checksum) json.at("crc32c_blocks").fail("is there, but the extent has no crc32c");
        extent.block_sums = sums_from(json.at("crc32c_blocks"), block_count(bytes, block_bytes));
    }
    return extent;
}

[[nodiscard]] inline StoredTensor tensor_from(JsonReader const& json) {
    StoredTensor tensor;
    tensor.name = json.at("name").text();
    if (tensor.name == "__metadata__") json.fail("has a name that no tensor may have");
    std::string const dtype = json.at("dtype").text();
    if (!parse_dtype(dtype, tensor.dtype)) json.fail("has the unknown dtype ", quote_name(dtype));
    Indices extents;
    json.at("shape").for_each([&](JsonReader const& item) {
        if (extents.size() == max_dims) json.fail("has more than ", max_dims, " dimensions");
        extents.push_back(item.integer());
    });
    Index byte_count = 0;
    if (count_stored_bytes(tensor.dtype, extents, byte_count) != SafetensorsRule::none) {
        json.fail("of shape ", to_string(extents), " and dtype ", dtype,
                  " takes more bits than a 64-bit integer counts, or does not fill its last byte");
    }
    tensor.shape = DynamicShape(extents);
    tensor.replicas = static_cast<int>(json.at("replicas").integer(INT32_MAX));
    if (tensor.replicas == 0) json.at("replicas").fail("is 0: there is at least one");
    tensor.distribution = json.at("distribution").text();
    if (tensor.distribution.empty()) return tensor;
    try {
        static_cast<void>(parse(std::string_view(tensor.distribution), tensor.shape));
    } catch (Error const& error) {
        std::string_view const why = error.message();
        json.at("distribution")
            .fail("is not the notation of one: ", why.substr(0, smaller(why.find(". Fix: "), std::size_t{400})));
    }
    return tensor;
}

/// No byte of a file belongs to two extents, no name stands for two. Sorts the extents: (file, begin).
inline void sort_extents(Manifest& manifest, std::string_view file) {
    auto const place = [&](Extent const& extent) {
        return std::tuple(extent.file, extent.begin, extent_bytes(manifest, extent), extent.tensor, extent.replica);
    };
    sort_list(manifest.extents, [&](Extent const& a, Extent const& b) { return place(a) < place(b); });
    for (std::size_t e = 1; e < manifest.extents.size(); ++e) {
        Extent const& before = manifest.extents[e - 1];
        Extent const& extent = manifest.extents[e];
        if (before.file != extent.file || extent.begin - before.begin >= extent_bytes(manifest, before)) continue;
        refuse_manifest(file, concat("byte ", extent.begin, " of the data of ",
                                     quote_name(manifest.files[as_size(extent.file)].leaf), " belongs to two extents: ",
                                     describe(manifest, before), ", and ", describe(manifest, extent)));
    }
    std::vector<std::string_view> keys;
    for (std::size_t f = 0; f < manifest.files.size(); ++f) {
        keys.clear();
        for (Extent const& extent : extents_in(manifest, static_cast<int>(f))) keys.push_back(key_of(manifest, extent));
        std::string_view const twin = twin_of(keys);
        if (twin.data() == nullptr) continue;
        refuse_manifest(
            file, concat("two extents have the name ", quote_name(twin), " in ", quote_name(manifest.files[f].leaf)));
    }
}

/// manifest_from(). `in_order`: all else stands before the tensors, each of which goes from the tree when it is read.
[[nodiscard]] inline Manifest read_manifest(std::string_view json_text, std::string_view file, bool in_order) {
    Manifest manifest;
    bool blocks = false;
    bool has_begun = false;
    auto const begin = [&](JsonReader const& json) {  // all but the tensors
        has_begun = true;
        if (json.at("format").text_view() != detail::manifest_format)
            json.at("format").fail("is not '", detail::manifest_format, "'");
        Index const version = json.at("version").integer();
        if (version > detail::manifest_version) {
            detail::raise_rule(SafetensorsRule::later_version, file, ": it is of version ", version,
                               ", this library reads versions up to ", detail::manifest_version,
                               ". Fix: load it with the release of reshard that saved it, or a newer one.");
        }
        if (version < 1) json.at("version").fail("is 0: the first is 1");
        if (version > 1) detail::check_manifest_seal(json_text, file);

        static_cast<void>(detail::hex_from(json.at("save"), 16));
        manifest.save = json.at("save").text();
        manifest.world_size = static_cast<int>(json.at("world_size").integer(INT32_MAX));
        if (manifest.world_size == 0) json.at("world_size").fail("is 0: at least one rank saved");
        json.at("metadata").for_each_member([&](std::string const& key, JsonReader const& value) {
            manifest.metadata.emplace_back(key, value.text());
        });
        detail::sort_list(manifest.metadata);
        if (json.has("file_format")) manifest.format = json.at("file_format").text();

        blocks = json.has("block_bytes");
        if (blocks) manifest.block_bytes = json.at("block_bytes").integer();
        if (manifest.block_bytes < 1) json.at("block_bytes").fail("is 0: a block has bytes");
        json.at("files").for_each(
            [&](JsonReader const& item) { manifest.files.push_back(detail::file_from(item, manifest.world_size)); });
    };
    auto const add_tensor = [&](JsonReader const& item) {
        manifest.tensors.push_back(detail::tensor_from(item));
        item.at("extents").for_each([&](JsonReader const& extent) {
            manifest.extents.push_back(detail::extent_from(extent, manifest.tensors.back(), manifest.files,
                                                           blocks ? manifest.block_bytes : 0));
            manifest.extents.back().tensor = manifest.tensors.size() - 1;
        });
    };
    detail::JsonTree const tree(
        json_text, file, detail::refuse_manifest, {}, nullptr,
        [&](detail::JsonTree const& all, std::uint32_t node, std::span<std::uint32_t const> parents) {
            bool const is_tensor = in_order && parents.size() == 2 && all.key(parents[1]) == "tensors";
            if (!is_tensor || all.find(0, "files") == 0) return false;
            if (!has_begun) begin(JsonReader(all));
            add_tensor(JsonReader(all, node));
            return true;
        });
    JsonReader const json(tree);
    if (!has_begun) begin(json);
    json.at("tensors").for_each(add_tensor);
    if (in_order) {  // what stands behind the tensors was not there when the rest was read
        std::uint32_t const last = tree.next(tree.find(0, "tensors"));
        if (last != tree.next(0) && tree.key(last) != "crc32c") json.fail("has more behind its tensors");
    }
    auto const refuse_twins = [&](std::string_view key, auto const& list, auto const& name_of) {
        std::vector<std::string_view> names;
        names.reserve(list.size());
        for (auto const& item : list) names.push_back(item.*name_of);
        std::string_view const twin = detail::twin_of(names);
        if (twin.data() != nullptr) json.at(key).fail("has ", quote_name(twin), " twice");
    };
    refuse_twins("files", manifest.files, &CheckpointFile::leaf);
    refuse_twins("tensors", manifest.tensors, &StoredTensor::name);
    detail::sort_tensors(manifest);
    detail::sort_extents(manifest, file);
    return manifest;
}
}  // namespace detail

/// The manifest that a text of `file` describes. Throws FormatError naming the file, the tensor and what is wrong with
/// it. What it does not check: that the extents cover their tensors (check_coverage), and that the files are as said.
[[nodiscard]] inline Manifest manifest_from(std::string_view json_text, std::string_view file) {
    if (json_text.size() > detail::as_size(max_manifest_bytes)) {
        detail::refuse_manifest(file,
                                errors::concat("it has ", json_text.size(), " bytes, more than ", max_manifest_bytes));
    }
    try {  // as we write it
        if (detail::before_seal(json_text).ends_with(']')) return detail::read_manifest(json_text, file, true);
    } catch (FormatError const&) {  // in another order, or wrong: which, the whole says
    }
    return detail::read_manifest(json_text, file, false);
}

}  // namespace reshard::inline v0_1
