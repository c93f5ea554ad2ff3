// SPDX-License-Identifier: Apache-2.0
// How checkpoint/json_tree.hpp is done. nlohmann/json.hpp is included nowhere else in this room.
#pragma once

#include <reshard/checkpoint/json_tree.hpp>

#include <nlohmann/json.hpp>

namespace reshard::inline v0_1::detail {

/// nlohmann's SAX interface.
struct JsonTree::Events {
    JsonTree& tree;
    Take take;

    bool null() { return tree.add(Kind::null, 0); }
    bool boolean(bool) { return tree.add(Kind::other, 0); }
    bool number_integer(nlohmann::json::number_integer_t) { return tree.add(Kind::other, 0); }
    bool number_unsigned(nlohmann::json::number_unsigned_t number) { return tree.add(Kind::integer, number); }
    bool number_float(nlohmann::json::number_float_t, std::string const&) { return tree.add(Kind::other, 0); }
    bool string(std::string const& text) {
        tree.add(Kind::text, (std::uint64_t{tree.texts_.size()} << 32U) | text.size());
        tree.texts_ += text;
        return true;
    }
    bool binary(nlohmann::json::binary_t&) { return false; }  // only binary formats have it
    bool key(std::string const& text) {
        tree.key_ = static_cast<std::uint32_t>(tree.texts_.size());
        tree.key_size_ = static_cast<std::uint32_t>(text.size());
        tree.texts_ += text;
        return true;
    }
    bool start_object(std::size_t) { return tree.open(Kind::object); }
    bool start_array(std::size_t) { return tree.open(Kind::list); }
    bool end_object() { return tree.close(take); }
    bool end_array() { return tree.close(take); }
    bool parse_error(std::size_t position, std::string const&, nlohmann::json::exception const& error) {
        tree.fail_text(concat("not JSON at byte ", position, ": ", quote_name(error.what())));
    }
};

RESHARD_INLINE JsonTree::JsonTree(std::string_view json, std::string_view file, RefuseFile refuse,
                                  std::string_view where, RefuseFile twice, Take take)
    : file_(file), where_(where), refuse_(refuse), twice_(twice != nullptr ? twice : refuse) {
    if (json.size() > most_bytes) fail_text(concat("it has ", json.size(), " bytes, more than ", most_bytes));
    if (!is_utf8(json)) fail_text("it is not UTF-8");
    // nlohmann skips a byte order mark and takes a zero byte for the end of the text; JSON allows neither.
    if (json.starts_with("\xef\xbb\xbf")) fail_text("not JSON at byte 1: a byte order mark");
    if (auto const at = json.find('\0'); at != std::string_view::npos)
        fail_text(concat("not JSON at byte ", at + 1, ": a zero byte"));
    Events events{*this, take};
    try {
        if (!nlohmann::json::sax_parse(json.data(), json.data() + json.size(), &events)) fail_text("not JSON");
    } catch (nlohmann::json::exception const& error) {
        fail_text(concat("not JSON: ", quote_name(error.what())));
    }
}

}  // namespace reshard::inline v0_1::detail
