// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_json.hpp
/// \brief  JSON as a tree, for indexes of a few kilobytes, with errors that name the file and the key.
/// \depends checkpoint/safetensors_header (its stream of JSON events). No I/O.
#pragma once

#include <reshard/checkpoint/safetensors_header.hpp>

#include <string>   // string
#include <utility>  // move
#include <vector>   // vector

namespace reshard::inline v0::detail {

[[noreturn]] inline void refuse_mch_file(std::string_view file, std::string_view what, std::string_view fix) {
    raise(ErrorCode::format, concat("reshard::mch: ", file, ": ", what, ". Fix: ", fix));
}

/// One value. Members of an object are items with a key each.
struct JsonNode {
    enum class Kind : int { other, integer, text, list, object };

    Kind kind = Kind::other;
    std::string key;  ///< in an object
    std::uint64_t integer = 0;
    std::string text;
    std::vector<JsonNode> items;

    [[nodiscard]] JsonNode const* find(std::string_view name) const noexcept {
        for (JsonNode const& item : items)
            if (item.key == name) return &item;
        return nullptr;
    }
};

/// Builds the tree from the events of the text.
class JsonTreeHandler {
public:
    explicit JsonTreeHandler(std::string_view file) noexcept : file_(file) {}

    JsonNode root;

    [[noreturn]] void fail(std::string const& why) const {
        refuse_mch_file(file_, why, "restore the file, or save anew.");
    }
    void open(bool is_object) {
        JsonNode& node = next();
        node.kind = is_object ? JsonNode::Kind::object : JsonNode::Kind::list;
        open_.push_back(&node);
    }
    void close() { open_.pop_back(); }
    void key(std::string& text) {
        if (open_.back()->find(text) != nullptr) fail(concat(quote_name(text), " is given twice"));
        key_ = std::move(text);
    }
    void value(JsonScalar const& scalar) {
        JsonNode& node = next();
        if (scalar.kind == JsonKind::unsigned_integer) {
            node.kind = JsonNode::Kind::integer;
            node.integer = scalar.integer;
        } else if (scalar.kind == JsonKind::text) {
            node.kind = JsonNode::Kind::text;
            node.text = std::move(*scalar.text);
        }
    }

private:
    /// The nodes that are open stay where they are: only closed ones have neighbours that are added.
    JsonNode& next() {
        if (open_.empty()) return root;
        JsonNode& node = open_.back()->items.emplace_back();
        node.key = std::move(key_);
        key_.clear();
        return node;
    }

    std::string_view file_;
    std::string key_;
    std::vector<JsonNode*> open_;
};

/// A value that is read with expectations: every way to ask throws FormatError, naming the file and the key, when the
/// value is something else.
class JsonReader {
public:
    JsonReader(JsonNode const& node, std::string_view file, std::string where)
        : node_(&node), file_(file), where_(std::move(where)) {}

    [[nodiscard]] JsonReader at(std::string_view name) const {
        JsonNode const* const found = of_kind(JsonNode::Kind::object, "an object").node_->find(name);
        if (found == nullptr) fail(concat("has no '", name, "'"));
        return {*found, file_, inside(name)};
    }
    [[nodiscard]] bool has(std::string_view name) const { return node_->find(name) != nullptr; }
    [[nodiscard]] std::uint64_t unsigned_integer() const {
        return of_kind(JsonNode::Kind::integer, "an integer of 0 or more").node_->integer;
    }
    [[nodiscard]] Index integer() const {
        std::uint64_t const value = unsigned_integer();
        if (value > static_cast<std::uint64_t>(INT64_MAX)) fail(concat("is ", value, ", above 2^63 - 1"));
        return static_cast<Index>(value);
    }
    [[nodiscard]] std::string const& text() const { return of_kind(JsonNode::Kind::text, "text").node_->text; }
    /// Calls f(JsonReader) for every item of a list.
    template <class F>
    void for_each(F&& f) const {
        static_cast<void>(of_kind(JsonNode::Kind::list, "a list"));
        for (JsonNode const& item : node_->items) f(JsonReader(item, file_, inside("[]")));
    }
    /// Calls f(key, JsonReader) for every member of an object.
    template <class F>
    void for_each_member(F&& f) const {
        static_cast<void>(of_kind(JsonNode::Kind::object, "an object"));
        for (JsonNode const& item : node_->items) f(item.key, JsonReader(item, file_, inside(item.key)));
    }
    [[nodiscard]] std::vector<Index> integers() const {
        std::vector<Index> list;
        for_each([&](JsonReader const& item) { list.push_back(item.integer()); });
        return list;
    }
    [[noreturn]] void fail(std::string_view what) const {
        refuse_mch_file(file_, concat(where_.empty() ? "it" : quote_name(where_), " ", what),
                        "restore the file, or save anew.");
    }

private:
    [[nodiscard]] JsonReader const& of_kind(JsonNode::Kind kind, std::string_view what) const {
        if (node_->kind != kind) fail(concat("is not ", what));
        return *this;
    }
    [[nodiscard]] std::string inside(std::string_view name) const {
        return where_.empty() ? std::string(name) : concat(where_, ".", name);
    }

    JsonNode const* node_;
    std::string_view file_;
    std::string where_;
};

/// Throws FormatError for what is not one JSON text.
[[nodiscard]] inline JsonNode parse_json(std::string_view json, std::string_view file) {
    JsonTreeHandler handler(file);
    if (!is_utf8(json)) handler.fail("it is not UTF-8");
    read_json(json, handler);
    return std::move(handler.root);
}

/// Lists and members with commas between them.
class JsonWriter {
public:
    JsonWriter& open(char bracket) {
        separate();
        text_ += bracket;
        fresh_ = true;
        return *this;
    }
    JsonWriter& close(char bracket) {
        text_ += bracket;
        fresh_ = false;
        return *this;
    }
    JsonWriter& key(std::string_view name) {
        value(name);
        text_ += ':';
        fresh_ = true;
        return *this;
    }
    JsonWriter& value(std::string_view text) {
        separate();
        append_json_string(text_, text);
        return *this;
    }
    JsonWriter& value(Index number) { return raw(std::to_string(number)); }
    JsonWriter& values(std::vector<Index> const& list) {
        open('[');
        for (Index one : list) value(one);
        return close(']');
    }
    JsonWriter& raw(std::string_view json) {
        separate();
        text_ += json;
        return *this;
    }
    [[nodiscard]] std::string const& text() const noexcept { return text_; }

private:
    void separate() {
        if (!fresh_) text_ += ',';
        fresh_ = false;
    }

    std::string text_;
    bool fresh_ = true;
};

}  // namespace reshard::inline v0::detail
