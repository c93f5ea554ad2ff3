// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/json.hpp
/// \brief  Reads JSON as a stream of events. The only place that includes nlohmann-json.
/// \depends checkpoint/tensor_info.hpp, nlohmann/json.hpp. Its errors do not get out: they become the handler's.
#pragma once

#include <reshard/checkpoint/tensor_info.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>      // uint64_t
#include <string>       // string
#include <string_view>  // string_view

namespace reshard::inline v0 {
namespace detail {

enum class JsonKind : int { null, boolean, unsigned_integer, other_number, text };

/// A value that is neither an object nor an array.
struct JsonScalar {
    JsonKind kind = JsonKind::null;
    std::uint64_t integer = 0;    ///< exact, for unsigned_integer; other_number is negative, fractional or too large
    std::string* text = nullptr;  ///< for text; may be moved from
};

/// Containers nested deeper than this are refused: no header needs more than 3, and serde_json stops here too.
inline constexpr int max_json_depth = 128;

/// nlohmann's SAX interface over a handler with `value(JsonScalar const&)`, `key(std::string&)`,
/// `open(bool is_object)`, `close()` and `[[noreturn]] fail(std::string const&)`. A handler may throw.
template <class Handler>
class JsonEvents {
public:
    explicit JsonEvents(Handler& handler) noexcept : handler_(handler) {}

    bool null() { return scalar({}); }
    bool boolean(bool) { return scalar({JsonKind::boolean, 0, nullptr}); }
    bool number_integer(nlohmann::json::number_integer_t) { return scalar({JsonKind::other_number, 0, nullptr}); }
    bool number_unsigned(nlohmann::json::number_unsigned_t number) {
        return scalar({JsonKind::unsigned_integer, number, nullptr});
    }
    bool number_float(nlohmann::json::number_float_t, std::string const&) {
        return scalar({JsonKind::other_number, 0, nullptr});
    }
    bool string(std::string& text) { return scalar({JsonKind::text, 0, &text}); }
    bool binary(nlohmann::json::binary_t&) { return false; }  // only binary formats have it
    bool key(std::string& text) {
        handler_.key(text);
        return true;
    }
    bool start_object(std::size_t) { return open(true); }
    bool start_array(std::size_t) { return open(false); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool parse_error(std::size_t position, std::string const&, nlohmann::json::exception const& error) {
        handler_.fail(concat("not JSON at byte ", position, ": ", quote_name(error.what())));
        return false;
    }

private:
    bool scalar(JsonScalar const& value) {
        handler_.value(value);
        return true;
    }
    bool open(bool is_object) {
        if (++depth_ > max_json_depth) handler_.fail(concat("nested deeper than ", max_json_depth, " levels"));
        handler_.open(is_object);
        return true;
    }
    bool close() {
        --depth_;
        handler_.close();
        return true;
    }

    Handler& handler_;
    int depth_ = 0;
};

/// Feeds one JSON text (whitespace around it allowed) to `handler`; every fault ends in `handler.fail(why)`.
template <class Handler>
void read_json(std::string_view text, Handler& handler) {
    // nlohmann skips a byte order mark and takes a zero byte for the end of the text; JSON allows neither.
    if (text.substr(0, 3) == "\xef\xbb\xbf") handler.fail("not JSON at byte 1: a byte order mark");
    if (auto const at = text.find('\0'); at != std::string_view::npos) {
        handler.fail(concat("not JSON at byte ", at + 1, ": a zero byte"));
    }
    JsonEvents<Handler> events(handler);
#if defined(__cpp_exceptions)
    try {
#endif
        if (!nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &events)) handler.fail("not JSON");
#if defined(__cpp_exceptions)
    } catch (nlohmann::json::exception const& error) {
        handler.fail(concat("not JSON: ", quote_name(error.what())));
    }
#endif
}

}  // namespace detail
}  // namespace reshard::inline v0
