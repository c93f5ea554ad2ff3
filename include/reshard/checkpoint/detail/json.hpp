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

/// The JSON that writers of checkpoints write: objects, lists, unsigned integers of up to 18 digits and texts of ASCII
/// without escapes. Headers of thousands of tensors are read several times faster than by a general parser.
template <class Handler>
class PlainJson {
public:
    /// Feeds `text` to the handler as the general parser does. False once it finds anything else, an error perhaps:
    /// then the handler has seen some of the events.
    [[nodiscard]] static bool read(std::string_view text, Handler& handler) {
        PlainJson json(text, handler);
        if (!json.value(0)) return false;
        static_cast<void>(json.next());
        return json.rest_.empty();
    }

private:
    static constexpr int max_depth = 8;

    PlainJson(std::string_view text, Handler& handler) noexcept : rest_(text), events_(handler) {}

    /// The first character that is no white space; 0 at the end.
    [[nodiscard]] char next() noexcept {
        while (!rest_.empty() &&
               (rest_.front() == ' ' || rest_.front() == '\n' || rest_.front() == '\t' || rest_.front() == '\r')) {
            rest_.remove_prefix(1);
        }
        return rest_.empty() ? '\0' : rest_.front();
    }
    [[nodiscard]] bool value(int depth) {
        switch (next()) {
            case '{': return depth < max_depth && object(depth + 1);
            case '[': return depth < max_depth && list(depth + 1);
            case '"': return text() && events_.string(text_);
            default: return number();
        }
    }
    [[nodiscard]] bool object(int depth) {
        rest_.remove_prefix(1);
        events_.start_object(0);
        for (bool first = true; next() != '}' || !first; first = false) {
            if (next() != '"' || !text()) return false;
            events_.key(text_);
            if (next() != ':') return false;
            rest_.remove_prefix(1);
            if (!value(depth)) return false;
            if (next() == '}') break;
            if (next() != ',') return false;
            rest_.remove_prefix(1);
        }
        rest_.remove_prefix(1);
        return events_.end_object();
    }
    [[nodiscard]] bool list(int depth) {
        rest_.remove_prefix(1);
        events_.start_array(0);
        for (bool first = true; next() != ']' || !first; first = false) {
            if (!value(depth)) return false;
            if (next() == ']') break;
            if (next() != ',') return false;
            rest_.remove_prefix(1);
        }
        rest_.remove_prefix(1);
        return events_.end_array();
    }
    [[nodiscard]] bool text() {
        for (std::size_t i = 1; i < rest_.size(); ++i) {
            auto const byte = static_cast<unsigned char>(rest_[i]);
            if (byte == '"') {
                text_.assign(rest_, 1, i - 1);
                rest_.remove_prefix(i + 1);
                return true;
            }
            if (byte < 0x20 || byte >= 0x80 || byte == '\\') return false;
        }
        return false;
    }
    [[nodiscard]] bool number() {
        std::uint64_t value = 0;
        std::size_t digits = 0;
        while (digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9') {
            value = 10 * value + static_cast<std::uint64_t>(rest_[digits++] - '0');
            if (digits > 18 || (digits > 1 && rest_.front() == '0')) return false;
        }
        char const after = digits < rest_.size() ? rest_[digits] : ' ';
        if (digits == 0 || after == '.' || after == 'e' || after == 'E') return false;
        rest_.remove_prefix(digits);
        return events_.number_unsigned(value);
    }

    std::string_view rest_;
    std::string text_;
    JsonEvents<Handler> events_;
};

/// Feeds one JSON text (whitespace around it allowed) to `handler`; every fault ends in `handler.fail(why)`.
/// \pre the handler has seen nothing yet.
template <class Handler>
void read_json(std::string_view text, Handler& handler) {
    // nlohmann skips a byte order mark and takes a zero byte for the end of the text; JSON allows neither.
    if (text.substr(0, 3) == "\xef\xbb\xbf") handler.fail("not JSON at byte 1: a byte order mark");
    if (auto const at = text.find('\0'); at != std::string_view::npos) {
        handler.fail(concat("not JSON at byte ", at + 1, ": a zero byte"));
    }
    Handler const fresh = handler;
    if (PlainJson<Handler>::read(text, handler)) return;
    handler = fresh;
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
