// SPDX-License-Identifier: Apache-2.0
// How checkpoint/safetensors_header.hpp is done.
#pragma once

#include <reshard/checkpoint/json_tree.hpp>
#include <reshard/checkpoint/safetensors_header.hpp>
#include <reshard/core/sorting.hpp>

#include <tuple>  // tie

namespace reshard::inline v0_1 {

namespace detail {

/// A tensor entry before anything about it is believed.
struct RawEntry {
    std::string name;
    DType dtype = DType::u8;
    InlineList<std::uint64_t, max_dims> shape;
    std::uint64_t offsets[2] = {0, 0};
};

/// How JsonTree refuses a header.
template <SafetensorsRule rule>
[[noreturn]] inline void refuse_header(std::string_view file, std::string_view why) {
    raise_rule(rule, file, ": ", why, ". Fix: write the file anew with a safetensors library.");
}

/// An entry as the text has it. Unknown fields are skipped with all they contain, as safetensors does.
[[nodiscard]] inline RawEntry entry_from(std::string&& name, JsonReader const& json, std::string_view file) {
    RawEntry entry{std::move(name), DType::u8, {}, {0, 0}};
    JsonReader const dtype = json.at("dtype");
    if (!parse_dtype(dtype.text_view(), entry.dtype)) {
        raise_rule(SafetensorsRule::unknown_dtype, file, ": tensor ", quote_name(entry.name), " is of dtype ",
                   quote_name(dtype.text_view()),
                   ", and this library reads none of that name. Fix: store its bytes as U8, or leave it out.");
    }
    json.at("shape").for_each([&](JsonReader const& extent) {
        if (entry.shape.size() == max_dims) {
            raise_rule(SafetensorsRule::too_many_dimensions, file, ": tensor ", quote_name(entry.name),
                       " has more than ", max_dims,
                       " dimensions, and this library reads no more. Fix: merge dimensions before saving.");
        }
        entry.shape.push_back(extent.unsigned_integer());
    });
    JsonReader const offsets = json.at("data_offsets");
    std::size_t count = 0;
    offsets.for_each([&](JsonReader const& offset) {
        if (count == 2) offsets.fail("is not [begin, end]");
        entry.offsets[count++] = offset.unsigned_integer();
    });
    if (count != 2) offsets.fail("is not [begin, end]");
    return entry;
}

/// Shape, size and place of one entry; `previous_end` is where the data so far stops.
inline TensorInfo check_entry(RawEntry&& entry, std::uint64_t previous_end, std::string_view file) {
    auto const fail = [&](SafetensorsRule rule, std::string_view why) {
        raise_rule(rule, file, ": tensor ", quote_name(entry.name), " ", why);
    };
    auto const [begin, end] = entry.offsets;
    if (begin != previous_end || end < begin) {
        fail(SafetensorsRule::invalid_offset,
             concat("claims bytes [", begin, ", ", end, ") but the tensor before it ends at ", previous_end,
                    ": tensors may not overlap or leave holes. Fix: write the file anew."));
    }
    TensorInfo info;
    Indices extents;
    for (std::uint64_t const extent : entry.shape) {
        if (extent > static_cast<std::uint64_t>(INT64_MAX)) {
            fail(SafetensorsRule::validation_overflow,
                 concat("has the extent ", extent, ", above 2^63 - 1. Fix: correct the shape."));
        }
        extents.push_back(as_index(extent));
    }
    Index byte_count = 0;
    auto const rule = count_stored_bytes(entry.dtype, extents, byte_count);
    if (rule != SafetensorsRule::none) {
        raise_stored_bytes(rule, concat(file, ": tensor ", quote_name(entry.name)), entry.dtype, extents);
    }
    info.shape = DynamicShape(extents);
    info.dtype = entry.dtype;
    auto const bytes = static_cast<std::uint64_t>(byte_count);
    if (end - begin != bytes) {
        fail(SafetensorsRule::tensor_invalid_info,
             concat("of shape ", to_string(info.shape), " and dtype ", name(info.dtype), " takes ", bytes,
                    " bytes, but its data_offsets span ", end - begin, ". Fix: write the file anew."));
    }
    info.begin = as_index(begin);  // in range: the caller checks the last end against the file's size
    info.end = as_index(end);
    info.name = std::move(entry.name);
    return info;
}

}  // namespace detail

RESHARD_INLINE Index safetensors_header_length(std::span<std::byte const> first_bytes, Index file_bytes,
                                               std::string_view file) {
    using detail::raise_rule;
    if (file_bytes < 8 || first_bytes.size() < 8) {
        raise_rule(SafetensorsRule::header_too_small, file, ": the file has ", file_bytes,
                   " bytes; its header length alone takes 8. Fix: fetch it again.");
    }
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(first_bytes[i]) << (8 * i);
    constexpr std::uint64_t git_lfs = 0x206e'6f69'7372'6576;  // "version ", as such a pointer begins
    if (length > static_cast<std::uint64_t>(max_safetensors_header_bytes)) {
        raise_rule(SafetensorsRule::header_too_large, file, ": the header claims ", length, " bytes, more than the ",
                   max_safetensors_header_bytes, " allowed. Fix: ",
                   length == git_lfs ? "this is a pointer of Git LFS; fetch the file: git lfs pull."
                                     : "check that this is a safetensors file.");
    }
    if (detail::as_index(length) > file_bytes - 8) {
        raise_rule(SafetensorsRule::invalid_header_length, file, ": the header claims ", length, " bytes but only ",
                   file_bytes - 8, " follow its length. Fix: the file is cut short; fetch it again.");
    }
    return detail::as_index(length);
}

RESHARD_INLINE std::uint64_t safetensors_header_digest(std::string_view json) noexcept {
    return detail::Digest{}.add_text(json).value();
}

RESHARD_INLINE SafetensorsHeader parse_safetensors_json(std::string_view json, Index file_bytes,
                                                        std::string_view file) {
    using detail::raise_rule;
    if (!detail::is_utf8(json)) {
        raise_rule(SafetensorsRule::invalid_header, file,
                   ": the header is not UTF-8. Fix: check that this is a safetensors file.");
    }
    std::vector<detail::RawEntry> entries;
    constexpr auto refuse = detail::refuse_header<SafetensorsRule::invalid_header_deserialization>;
    constexpr auto twice = detail::refuse_header<SafetensorsRule::duplicate_key>;
    auto const take = [&](detail::JsonTree const& all, std::uint32_t node, std::span<std::uint32_t const> parents) {
        bool const is_entry =
            parents.size() == 1 && all.kind(0) == detail::JsonTree::Kind::object && all.key(node) != "__metadata__";
        if (!is_entry) return false;
        try {
            entries.push_back(detail::entry_from(std::string(all.key(node)), detail::JsonReader(all, node), file));
        } catch (FormatError const&) {  // a text that is damaged says so, not that it has something unknown
            static_cast<void>(detail::JsonTree(json, file, refuse, {}, twice));
            throw;
        }
        return true;
    };
    detail::JsonTree const tree(json, file, refuse, {}, twice, take);
    Metadata metadata;
    detail::JsonReader(tree).for_each_member([&](std::string name, detail::JsonReader const& value) {
        if (name != "__metadata__") {  // no object
            entries.push_back(detail::entry_from(std::move(name), value, file));
        } else if (!value.is_null()) {  // which is the same as none
            value.for_each_member([&](std::string key, detail::JsonReader const& text) {
                metadata.emplace_back(std::move(key), text.text());
            });
        }
    });
    detail::sort_list(metadata);
    {
        std::vector<std::string_view> names;
        for (auto const& entry : entries) names.push_back(entry.name);
        std::string_view const twin = detail::twin_of(names);
        if (twin.data() != nullptr) twice(file, errors::concat(detail::quote_name(twin), " is given twice"));
    }
    detail::sort_list(entries, [](auto const& a, auto const& b) {
        return std::tie(a.offsets[0], a.offsets[1], a.name) < std::tie(b.offsets[0], b.offsets[1], b.name);
    });
    std::vector<TensorInfo> tensors;
    tensors.reserve(entries.size());
    std::uint64_t last_end = 0;
    for (auto& entry : entries) {
        std::uint64_t const end = entry.offsets[1];
        tensors.push_back(detail::check_entry(std::move(entry), last_end, file));
        last_end = end;
    }
    Index const data_offset = 8 + detail::as_index(json.size());
    if (last_end != static_cast<std::uint64_t>(file_bytes - data_offset)) {
        raise_rule(SafetensorsRule::metadata_incomplete_buffer, file, ": its tensors take ", last_end, " bytes but ",
                   file_bytes - data_offset,
                   " follow the header. Fix: the file is cut short or has bytes appended; fetch it again.");
    }
    return {std::move(tensors), std::move(metadata), data_offset};
}

}  // namespace reshard::inline v0_1
