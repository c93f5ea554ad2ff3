// SPDX-License-Identifier: Apache-2.0
// How checkpoint/safetensors_header.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/json.hpp>
#include <reshard/checkpoint/detail/json_text.hpp>
#include <reshard/checkpoint/detail/stored_order.hpp>
#include <reshard/checkpoint/safetensors_header.hpp>

#include <algorithm>  // sort, lower_bound, adjacent_find
#include <tuple>      // tie

namespace reshard::inline v0 {

namespace detail {

/// A tensor entry before anything about it is believed.
struct RawEntry {
    std::string name;
    DType dtype = DType::u8;
    InlineList<std::uint64_t, max_rank> shape;
    std::uint64_t offsets[2] = {0, 0};
};

/// Builds the entries from the events of the JSON text.
class SafetensorsHeaderHandler {
public:
    explicit SafetensorsHeaderHandler(std::string_view file) noexcept : file_(file) {}

    std::vector<RawEntry> entries;
    Metadata metadata;

    [[noreturn]] void fail(std::string const& why) const { fail(SafetensorsRule::invalid_header_deserialization, why); }

    void open(bool is_object) {
        if (ignoring()) {
            ++ignored_depth_;
            return;
        }
        switch (place_) {
            case Place::outside:
                if (!is_object) fail("the header is not a JSON object");
                place_ = Place::header;
                return;
            case Place::header:
                if (!is_object) fail(concat("the value of ", quote_name(key_), " is not an object"));
                if (key_ == "__metadata__") {
                    place_ = Place::metadata;
                } else {
                    place_ = Place::entry;
                    entries.push_back({key_, DType::u8, {}, {0, 0}});
                    seen_ = 0;
                    field_ = Field::unknown;
                }
                return;
            case Place::entry:
                if (is_object || field_ == Field::dtype) fail_entry("has a field of the wrong type");
                place_ = field_ == Field::shape ? Place::shape : Place::offsets;
                offset_count_ = 0;
                return;
            case Place::metadata: fail(concat("__metadata__ has a value at ", quote_name(key_), " that is not text"));
            case Place::shape:
            case Place::offsets: fail_entry("has a list inside a list");
        }
    }

    void close() {
        if (ignored_depth_ > 0) {
            --ignored_depth_;
            return;
        }
        switch (place_) {
            case Place::offsets:
                if (offset_count_ != 2) fail_entry("has data_offsets that are not [begin, end]");
                place_ = Place::entry;
                return;
            case Place::shape: place_ = Place::entry; return;
            case Place::entry:
                if (seen_ != 7U) fail_entry("lacks one of dtype, shape and data_offsets");
                place_ = Place::header;
                return;
            case Place::metadata: place_ = Place::header; return;
            case Place::header:
            case Place::outside: place_ = Place::outside; return;
        }
    }

    void key(std::string& text) {
        if (ignored_depth_ > 0) return;
        if (place_ != Place::entry) {
            key_ = text;  // a copy: the parser's memory for texts stays as large as it has grown
            if (place_ == Place::header && key_ == "__metadata__") {
                if (metadata_seen_) fail(SafetensorsRule::duplicate_key, "'__metadata__' is given twice");
                metadata_seen_ = true;
            }
            return;
        }
        field_ = text == "dtype"          ? Field::dtype
                 : text == "shape"        ? Field::shape
                 : text == "data_offsets" ? Field::offsets
                                          : Field::unknown;
        auto const bit = static_cast<unsigned>(field_);
        if ((seen_ & bit) != 0) {
            fail(SafetensorsRule::duplicate_key,
                 concat("tensor ", quote_name(entries.back().name), " has ", quote_name(text), " twice"));
        }
        seen_ |= bit;
    }

    void value(JsonScalar const& scalar) {
        if (ignoring()) return;
        switch (place_) {
            case Place::outside: fail("the header is not a JSON object");
            case Place::header:
                if (key_ == "__metadata__" && scalar.kind == JsonKind::null) return;  // the same as none
                fail(concat("the value of ", quote_name(key_), " is not an object"));
            case Place::metadata:
                if (scalar.kind != JsonKind::text)
                    fail(concat("__metadata__ has a value at ", quote_name(key_), " that is not text"));
                metadata.emplace_back(std::move(key_), std::move(*scalar.text));
                return;
            case Place::entry:
                if (field_ != Field::dtype || scalar.kind != JsonKind::text)
                    fail_entry("has a field of the wrong type");
                if (!parse_dtype(*scalar.text, entries.back().dtype))
                    fail_entry(concat("has the unknown dtype ", quote_name(*scalar.text)));
                return;
            case Place::shape:
                if (scalar.kind != JsonKind::unsigned_integer) fail_entry("has an extent that is not an integer >= 0");
                if (entries.back().shape.size() == max_rank) {
                    raise_rule(SafetensorsRule::too_many_dimensions,
                               concat(file_, ": tensor ", quote_name(entries.back().name), " has more than ", max_rank,
                                      " dimensions. Fix: merge dimensions before saving."));
                }
                entries.back().shape.push_back(scalar.integer);
                return;
            case Place::offsets:
                if (scalar.kind != JsonKind::unsigned_integer || offset_count_ == 2)
                    fail_entry("has data_offsets that are not two integers >= 0");
                entries.back().offsets[offset_count_++] = scalar.integer;
                return;
        }
    }

private:
    enum class Place : int { outside, header, metadata, entry, shape, offsets };
    enum class Field : unsigned { unknown = 0, dtype = 1, shape = 2, offsets = 4 };

    /// Unknown fields of an entry are skipped with all they contain, as safetensors does.
    [[nodiscard]] bool ignoring() const noexcept {
        return ignored_depth_ > 0 || (place_ == Place::entry && field_ == Field::unknown);
    }
    [[noreturn]] void fail(SafetensorsRule rule, std::string_view why) const {
        raise_rule(rule, concat(file_, ": ", why, ". Fix: write the file anew with a safetensors library."));
    }
    [[noreturn]] void fail_entry(std::string_view why) const {
        fail(concat("tensor ", quote_name(entries.back().name), " ", why));
    }

    std::string_view file_;
    std::string key_;
    Place place_ = Place::outside;
    Field field_ = Field::unknown;
    unsigned seen_ = 0;
    int offset_count_ = 0;
    int ignored_depth_ = 0;
    bool metadata_seen_ = false;
};

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
    auto const at = std::lower_bound(by_name_.begin(), by_name_.end(), tensor,
                                     [&](std::size_t i, std::string_view text) { return tensors_[i].name < text; });
    if (at == by_name_.end() || tensors_[*at].name != tensor) return nullptr;
    return &tensors_[*at];
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
    detail::SafetensorsHeaderHandler handler(file);
    detail::read_json(json, handler);

    auto& entries = handler.entries;
    auto const refuse_twice = [&](auto& list, auto const& key) {
        detail::sort_unless_sorted(list, [&](auto const& a, auto const& b) { return key(a) < key(b); });
        auto const twin = std::adjacent_find(list.begin(), list.end(),
                                             [&](auto const& a, auto const& b) { return key(a) == key(b); });
        if (twin != list.end()) {
            raise_rule(SafetensorsRule::duplicate_key,
                       concat(file, ": ", quote_name(key(*twin)), " is given twice. Fix: write the file anew."));
        }
    };
    refuse_twice(handler.metadata, [](auto const& item) -> std::string const& { return item.first; });
    refuse_twice(entries, [](auto const& item) -> std::string const& { return item.name; });

    detail::sort_unless_sorted(entries, [](auto const& a, auto const& b) {
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
    return {std::move(tensors), std::move(handler.metadata), data_offset};
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
