// SPDX-License-Identifier: Apache-2.0
// How checkpoint/safetensors_header.hpp is done.
#pragma once

#include <reshard/checkpoint/json_tree.hpp>
#include <reshard/checkpoint/safetensors_header.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // find, lower_bound, adjacent_find
#include <iterator>   // begin, end
#include <tuple>      // tie
#include <utility>    // exchange

namespace reshard::inline v0 {

namespace detail {

/// A tensor entry before anything about it is believed.
struct RawEntry {
    std::string name;
    DType dtype = DType::u8;
    InlineList<std::uint64_t, max_rank> shape;
    std::uint64_t offsets[2] = {0, 0};
};

[[noreturn]] inline void refuse_header(SafetensorsRule rule, std::string_view file, std::string_view why) {
    raise_rule(rule, concat(file, ": ", why, ". Fix: write the file anew with a safetensors library."));
}

/// An entry as the text has it. Unknown fields are skipped with all they contain, as safetensors does.
[[nodiscard]] inline RawEntry entry_from(JsonTree const& tree, std::uint32_t node, std::string_view file) {
    using Kind = JsonTree::Kind;
    RawEntry entry{std::string(tree.key(node)), DType::u8, {}, {0, 0}};
    auto const refuse = [&](std::string_view why) {
        refuse_header(SafetensorsRule::invalid_header_deserialization, file,
                      concat("tensor ", quote_name(entry.name), " ", why));
    };
    auto const each_number = [&](std::uint32_t list, std::string_view what, auto&& take) {
        if (tree.kind(list) != Kind::list) refuse("has a field of the wrong type");
        tree.for_each(list, [&](std::uint32_t item) {
            if (tree.kind(item) == Kind::list || tree.kind(item) == Kind::object) refuse("has a list inside a list");
            if (tree.kind(item) != Kind::integer || !take(tree.integer(item))) refuse(what);
        });
    };
    constexpr std::string_view fields[] = {"dtype", "shape", "data_offsets"};
    bool seen[] = {false, false, false};
    tree.for_each(node, [&](std::uint32_t member) {
        auto const field = std::find(std::begin(fields), std::end(fields), tree.key(member)) - std::begin(fields);
        if (field == 3) return;
        if (std::exchange(seen[field], true)) {
            refuse_header(SafetensorsRule::duplicate_key, file,
                          concat("tensor ", quote_name(entry.name), " has ", quote_name(fields[field]), " twice"));
        }
        if (field == 0) {
            if (tree.kind(member) != Kind::text) refuse("has a field of the wrong type");
            std::string_view const dtype = tree.text(member);
            if (!parse_dtype(dtype, entry.dtype)) refuse(concat("has the unknown dtype ", quote_name(dtype)));
        } else if (field == 1) {
            each_number(member, "has an extent that is not an integer >= 0", [&](std::uint64_t extent) {
                if (entry.shape.size() == max_rank) {
                    raise_rule(SafetensorsRule::too_many_dimensions,
                               concat(file, ": tensor ", quote_name(entry.name), " has more than ", max_rank,
                                      " dimensions. Fix: merge dimensions before saving."));
                }
                entry.shape.push_back(extent);
                return true;
            });
        } else {
            std::size_t count = 0;
            each_number(member, "has data_offsets that are not two integers >= 0", [&](std::uint64_t offset) {
                if (count == 2) return false;
                entry.offsets[count++] = offset;
                return true;
            });
            if (count != 2) refuse("has data_offsets that are not [begin, end]");
        }
    });
    if (!(seen[0] && seen[1] && seen[2])) refuse("lacks one of dtype, shape and data_offsets");
    return entry;
}

/// What `__metadata__` has; null is the same as none.
[[nodiscard]] inline Metadata metadata_from(JsonTree const& tree, std::uint32_t node, std::string_view file) {
    Metadata metadata;
    if (tree.kind(node) == JsonTree::Kind::null) return metadata;
    tree.for_each(node, [&](std::uint32_t member) {
        if (tree.kind(member) != JsonTree::Kind::text) {
            refuse_header(SafetensorsRule::invalid_header_deserialization, file,
                          concat("__metadata__ has a value at ", quote_name(tree.key(member)), " that is not text"));
        }
        metadata.emplace_back(tree.key(member), tree.text(member));
    });
    return metadata;
}

/// Shape, size and place of one entry; `previous_end` is where the data so far stops.
inline TensorInfo check_entry(RawEntry&& entry, std::uint64_t previous_end, std::string_view file) {
    auto const fail = [&](SafetensorsRule rule, std::string_view why) {
        raise_rule(rule, concat(file, ": tensor ", quote_name(entry.name), " ", why));
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
        extents.push_back(static_cast<Index>(extent));
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
    info.begin = static_cast<Index>(begin);  // in range: the caller checks the last end against the file's size
    info.end = static_cast<Index>(end);
    info.name = std::move(entry.name);
    return info;
}

}  // namespace detail

RESHARD_INLINE SafetensorsHeader::SafetensorsHeader(std::vector<TensorInfo> tensors, Metadata metadata,
                                                    Index data_offset)
    : tensors_(std::move(tensors)), metadata_(std::move(metadata)), data_offset_(data_offset) {
    by_name_ = detail::places_by_name(tensors_);
}

RESHARD_INLINE TensorInfo const* SafetensorsHeader::find(std::string_view tensor) const& noexcept {
    return detail::find_by_name(tensors_, by_name_, tensor);
}

RESHARD_INLINE Index safetensors_header_length(std::span<std::byte const> first_bytes, Index file_bytes,
                                               std::string_view file) {
    using detail::raise_rule;
    if (file_bytes < 8 || first_bytes.size() < 8) {
        raise_rule(SafetensorsRule::header_too_small,
                   concat(file, ": the file has ", file_bytes,
                          " bytes; its header length alone takes 8. Fix: fetch it again."));
    }
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(first_bytes[i]) << (8 * i);
    if (length > static_cast<std::uint64_t>(max_safetensors_header_bytes)) {
        raise_rule(SafetensorsRule::header_too_large,
                   concat(file, ": the header claims ", length, " bytes, more than the ", max_safetensors_header_bytes,
                          " allowed. Fix: check that this is a safetensors file."));
    }
    if (static_cast<Index>(length) > file_bytes - 8) {
        raise_rule(SafetensorsRule::invalid_header_length,
                   concat(file, ": the header claims ", length, " bytes but only ", file_bytes - 8,
                          " follow its length. Fix: the file is cut short; fetch it again."));
    }
    return static_cast<Index>(length);
}

RESHARD_INLINE std::uint64_t safetensors_header_digest(std::string_view json) noexcept {
    return Digest{}.add_text(json).value();
}

RESHARD_INLINE SafetensorsHeader parse_safetensors_json(std::string_view json, Index file_bytes,
                                                        std::string_view file) {
    using detail::quote_name;
    using detail::raise_rule;
    if (!detail::is_utf8(json)) {
        raise_rule(SafetensorsRule::invalid_header,
                   concat(file, ": the header is not UTF-8. Fix: check that this is a safetensors file."));
    }
    constexpr auto deserialization = SafetensorsRule::invalid_header_deserialization;
    constexpr detail::RefuseFile refuse = [](std::string_view name, std::string_view why) {
        detail::refuse_header(deserialization, name, why);
    };
    detail::JsonTree const tree(json, file, refuse, {}, detail::JsonTwins::keep);
    if (tree.kind(0) != detail::JsonTree::Kind::object)
        detail::refuse_header(deserialization, file, "the header is not a JSON object");
    std::vector<detail::RawEntry> entries;
    Metadata metadata;
    bool has_metadata = false;
    std::size_t count = 0;
    tree.for_each(0, [&](std::uint32_t) { ++count; });
    entries.reserve(count);
    tree.for_each(0, [&](std::uint32_t member) {
        bool const is_metadata = tree.key(member) == "__metadata__";
        if (is_metadata && std::exchange(has_metadata, true))
            detail::refuse_header(SafetensorsRule::duplicate_key, file, "'__metadata__' is given twice");
        bool const is_none = is_metadata && tree.kind(member) == detail::JsonTree::Kind::null;
        if (tree.kind(member) != detail::JsonTree::Kind::object && !is_none) {
            detail::refuse_header(deserialization, file,
                                  concat("the value of ", quote_name(tree.key(member)), " is not an object"));
        }
        if (is_metadata) {
            metadata = detail::metadata_from(tree, member, file);
        } else {
            entries.push_back(detail::entry_from(tree, member, file));
        }
    });
    auto const refuse_twice = [&](auto& list, auto const& key) {
        detail::sort_list(list, [&](auto const& a, auto const& b) { return key(a) < key(b); });
        detail::refuse_twice(list, key, concat(file, ": "), "write the file anew.");
    };
    refuse_twice(metadata, [](auto const& item) -> std::string const& { return item.first; });
    refuse_twice(entries, [](auto const& item) -> std::string const& { return item.name; });

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
    Index const data_offset = 8 + static_cast<Index>(json.size());
    if (last_end != static_cast<std::uint64_t>(file_bytes - data_offset)) {
        raise_rule(SafetensorsRule::metadata_incomplete_buffer,
                   concat(file, ": its tensors take ", last_end, " bytes but ", file_bytes - data_offset,
                          " follow the header. Fix: the file is cut short or has bytes appended; fetch it again."));
    }
    return {std::move(tensors), std::move(metadata), data_offset};
}

RESHARD_INLINE SafetensorsHeader parse_safetensors_header(std::span<std::byte const> start, Index file_bytes,
                                                          std::string_view file) {
    Index const length = safetensors_header_length(start, file_bytes, file);
    if (static_cast<Index>(start.size()) - 8 < length) {
        raise(ErrorCode::buffer,
              concat("reshard::parse_safetensors_header: ", start.size(), " bytes given, the header takes ", length + 8,
                     ". Fix: pass the whole header."));
    }
    std::string_view const json(reinterpret_cast<char const*>(start.data()) + 8, static_cast<std::size_t>(length));
    return parse_safetensors_json(json, file_bytes, file);
}

}  // namespace reshard::inline v0
