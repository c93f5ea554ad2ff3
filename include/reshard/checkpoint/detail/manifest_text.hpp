// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/manifest_text.hpp
/// \brief  The manifest as JSON, written the same way everywhere.
/// \depends checkpoint/{checksum,manifest}, checkpoint/detail/whole_files. No I/O. The rules: docs/manifest.md.
#pragma once

#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/detail/whole_files.hpp>
#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/text.hpp>

#include <algorithm>  // any_of
#include <charconv>   // to_chars

namespace reshard::inline v0_1 {
namespace detail {

inline constexpr std::string_view manifest_format = "reshard-checkpoint";
inline constexpr Index manifest_version = 2;

inline void append_manifest_text(std::string& json, std::string_view text) {
    if (!is_utf8(text)) {
        raise(ErrorCode::format, "reshard::Manifest: the text ", quote_name(text),
              " is not UTF-8. Fix: encode names and metadata before saving.");
    }
    append_json_string(json, text);
}

inline void append_extent(std::string& json, StoredTensor const& tensor, Extent const& extent) {
    auto const number = [&](std::string_view before, Index value) {  // of millions: append() takes thrice as long
        char digits[20];
        json += before;
        json.append(digits, std::to_chars(digits, std::end(digits), value).ptr);
    };
    number("{\"file\": ", extent.file);
    number(", \"begin\": ", extent.begin);
    json += ", \"box\": [";
    for (int d = 0; d < extent.box.rank(); ++d) {
        number(d == 0 ? "[" : ",[", extent.box.begin(d));
        number(",", extent.box.end(d));
        json += ']';
    }
    json += ']';
    if (tensor.replicas > 1) number(", \"replica\": ", extent.replica);
    if (!extent.key.empty()) {
        json += ", \"key\": ";
        append_manifest_text(json, extent.key);
    }
    if (extent.has_checksum) {
        json += ", \"crc32c\": \"";
        json += hex_text(extent.crc32c, 8);
        json += '"';
    }
    if (!extent.block_sums.empty()) {
        json += ", \"crc32c_blocks\": \"";
        for (std::uint32_t const sum : extent.block_sums) json += hex_text(sum, 8);
        json += '"';
    }
    json += '}';
}

/// In front of the tensors: no text of JSON has such a line.
inline constexpr std::string_view manifest_tensors = "\n  \"tensors\": [";
/// How a manifest ends: with the sum of all that stands before.
inline constexpr std::string_view manifest_sum = ",\n  \"crc32c\": \"";
inline constexpr std::string_view manifest_end = "\"\n}\n";

[[nodiscard]] inline std::string manifest_seal(std::uint32_t sum) {
    return concat(manifest_sum, hex_text(sum, 8), manifest_end);
}
[[nodiscard]] inline std::string manifest_seal(std::string_view json) {
    return manifest_seal(crc32c(std::as_bytes(std::span(json))));
}

/// The text of a manifest with the extents that `extents_of` gives, whatever list it has itself: take(piece) for one
/// piece after the other, of a quarter of a MiB or so. `has_blocks`: some extents have block sums. Throws as to_json(),
/// which may be when all but the last piece were taken.
inline void write_manifest(Manifest const& manifest, bool has_blocks, ExtentsOf extents_of,
                           FunctionRef<void(std::string_view)> take, Index most_bytes = max_manifest_bytes) {
    constexpr std::size_t piece = std::size_t{1} << 18;
    std::uint32_t sum = 0;
    Index size = 0;
    std::size_t boxes = 0;
    std::string json =
        concat("{\n  \"format\": \"", manifest_format, "\",\n  \"version\": ", manifest_version, ",\n  \"save\": ");
    auto const pass_on = [&] {
        size += std::ssize(json);
        if (size <= most_bytes) take(json);
        json.clear();
    };
    auto const add_to_sum = [&] { sum = crc32c(std::as_bytes(std::span(std::as_const(json))), sum); };
    append_manifest_text(json, manifest.save);
    append(json, {",\n  \"world_size\": ", manifest.world_size, ",\n  \"metadata\": {"});
    for (auto const& [key, value] : manifest.metadata) {
        json += json.back() == '{' ? "\n    " : ",\n    ";
        append_manifest_text(json, key);
        json += ": ";
        append_manifest_text(json, value);
    }
    json += manifest.metadata.empty() ? "}" : "\n  }";
    if (!manifest.format.empty()) {
        json += ",\n  \"file_format\": ";
        append_manifest_text(json, manifest.format);
    }
    if (has_blocks || manifest.block_bytes != default_block_bytes)
        append(json, {",\n  \"block_bytes\": ", manifest.block_bytes});
    json += ",\n  \"files\": [";
    for (CheckpointFile const& file : manifest.files) {
        append(json, {json.back() == '[' ? "\n    " : ",\n    ", "{\"name\": "});
        append_manifest_text(json, file.leaf);
        append(json,
               {", \"bytes\": ", file.file_bytes, ", \"header_digest\": \"", hex_text(file.header_digest, 16), "\""});
        if (file.writer >= 0) append(json, {", \"writer\": ", file.writer});
        json += '}';
    }
    append(json, {manifest.files.empty() ? "]," : "\n  ],", manifest_tensors});
    for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
        StoredTensor const& tensor = manifest.tensors[t];
        append(json, {json.back() == '[' ? "\n    " : ",\n    ", "{\"name\": "});
        append_manifest_text(json, tensor.name);
        append(json, {", \"dtype\": \"", name(tensor.dtype), "\", \"shape\": ", to_string(tensor.shape),
                      ", \"replicas\": ", tensor.replicas, ", \"distribution\": "});
        append_manifest_text(json, tensor.distribution);
        json += ", \"extents\": [";
        char const* line = "\n      ";
        for (Extent const* const extent : extents_of(t)) {
            json += line;
            append_extent(json, tensor, *extent);
            line = ",\n      ";
            ++boxes;
            if (json.size() < piece) continue;
            add_to_sum();
            pass_on();
        }
        json += "]}";
    }
    json += manifest.tensors.empty() ? "]" : "\n  ]";
    add_to_sum();
    json += manifest_seal(sum);
    pass_on();
    if (size > most_bytes) {
        raise(ErrorCode::format, "reshard::Manifest: the manifest of ", boxes, " boxes takes ", size,
              " bytes, more than the ", most_bytes,
              " that readers take. Fix: save fewer, larger boxes, shorter names or "
              "less metadata; or in several folders.");
    }
}

}  // namespace detail

/// The manifest's file: equal manifests give equal texts, one line per file and per extent. Throws FormatError for text
/// that is not UTF-8, and for more of it than readers take. \pre as for a manifest that was read: places exist, boxes
/// lie inside their tensors.
[[nodiscard]] inline std::string to_json(Manifest const& manifest, Index most_bytes = max_manifest_bytes) {
    bool const has_blocks = std::any_of(manifest.extents.begin(), manifest.extents.end(),
                                        [](Extent const& extent) { return !extent.block_sums.empty(); });
    std::string json;
    detail::write_manifest(
        manifest, has_blocks, detail::ExtentsByTensor(manifest), [&](std::string_view piece) { json += piece; },
        most_bytes);
    return json;
}

}  // namespace reshard::inline v0_1
