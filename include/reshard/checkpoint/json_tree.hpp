// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/json_tree.hpp
/// \brief  JSON as a tree, for the files that say what a folder holds, with errors that name the file and the key.
/// \depends checkpoint/text.hpp, checkpoint/tensor_info.hpp, nlohmann/json.hpp (how it is done; its errors
/// do not get out). No I/O. Private to the library.
#pragma once

#include <reshard/checkpoint/tensor_info.hpp>
#include <reshard/checkpoint/text.hpp>
#include <reshard/core/function_ref.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// How a room says that a file is not what it claims to be: throws FormatError with a remedy.
using RefuseFile = void (*)(std::string_view file, std::string_view what);

/// Containers nested deeper than this are refused: no header needs more than 3, and serde_json stops here too.
inline constexpr int max_json_depth = 128;

/// All values of a text in its order, each with what it contains behind it: 24 bytes a value, whatever the text. Long
/// lists are taken item by item.
class JsonTree {
public:
    /// An integer is exact; `other` is a boolean, or a number that is negative, fractional or too large.
    enum class Kind : std::uint8_t { other, null, integer, text, list, object };

    /// Asked of each list and object as soon as it is whole, with the tree so far: one that it has read (true) goes
    /// from the tree, which so stays small; whether its key is given twice is left to who took it. `parents`: what it
    /// is in, from the whole on.
    using Take = FunctionRef<bool(JsonTree const& tree, std::uint32_t node, std::span<std::uint32_t const> parents)>;

    /// Throws through `refuse` what is not one JSON text (whitespace around it allowed); through `twice`, where it is
    /// given, an object that has a key twice. `where` begins the names of keys.
    JsonTree(
        std::string_view json, std::string_view file, RefuseFile refuse, std::string_view where = {},
        RefuseFile twice = nullptr, Take take = [](auto const&...) { return false; });

    /// \name The values, by number; the whole is 0.
    ///@{
    [[nodiscard]] Kind kind(std::uint32_t node) const noexcept { return nodes_[node].kind; }
    [[nodiscard]] std::uint64_t integer(std::uint32_t node) const noexcept { return nodes_[node].value; }
    [[nodiscard]] std::string_view text(std::uint32_t node) const noexcept {
        return text_at(nodes_[node].value >> 32U, nodes_[node].value & 0xffffffffU);
    }
    [[nodiscard]] std::string_view key(std::uint32_t node) const noexcept {
        return text_at(nodes_[node].key, nodes_[node].key_size);
    }
    /// The value after this one and all that is in it; of one that is not whole yet, the end so far.
    [[nodiscard]] std::uint32_t next(std::uint32_t node) const noexcept {
        return smaller(nodes_[node].next, static_cast<std::uint32_t>(nodes_.size()));
    }
    /// Calls f(item) for what a list or an object has.
    template <class F>
    void for_each(std::uint32_t node, F&& f) const {
        for (std::uint32_t item = node + 1; item < next(node); item = next(item)) f(item);
    }
    /// The member of that name; 0 when there is none.
    [[nodiscard]] std::uint32_t find(std::uint32_t node, std::string_view name) const noexcept {
        if (kind(node) != Kind::object) return 0;
        for (std::uint32_t member = node + 1; member < next(node); member = next(member))
            if (key(member) == name) return member;
        return 0;
    }
    ///@}

    /// `tensors[layer.0.weight].extents[2]`: items that have a name go by it.
    [[nodiscard]] std::string path(std::uint32_t node) const {
        std::string result(where_);
        for (std::uint32_t at = 0; at != node;) {
            std::uint32_t child = at + 1;
            std::size_t place = kind(at) == Kind::list ? nodes_[at].value : 0;
            for (; next(child) <= node; child = next(child)) ++place;
            if (kind(at) == Kind::object) {
                result += concat(result.empty() ? "" : ".", key(child));
            } else {
                std::uint32_t const name = find(child, "name");
                bool const named = name != 0 && kind(name) == Kind::text;
                result += concat("[", named ? std::string(text(name)) : std::to_string(place), "]");
            }
            at = child;
        }
        return result;
    }

    [[noreturn]] void fail(std::string_view what) const {
        refuse_(file_, what);
        std::abort();  // it throws
    }

private:
    struct Node {
        Kind kind = Kind::other;
        std::uint32_t next = 0;  // of what is not whole yet: UINT32_MAX
        std::uint32_t key = 0;   // where it begins in texts_, and what it contains behind it
        std::uint32_t key_size = 0;
        std::uint64_t value = 0;  // of a text: where it begins in texts_, and in the lower half its size; of a list:
                                  // how many were taken
    };
    // A text has fewer values than bytes, and its texts are no longer when their escapes are read.
    static constexpr std::size_t most_bytes = UINT32_MAX;

    struct Events;  // nlohmann's SAX interface

    /// Of a text that lies in another, `where` says which it is.
    [[noreturn]] void fail_text(std::string_view what) const {
        fail(where_.empty() ? std::string(what) : concat(quote_name(where_), ": ", what));
    }
    [[nodiscard]] std::string_view text_at(std::uint64_t begin, std::uint64_t size) const noexcept {
        return std::string_view(texts_).substr(begin, size);
    }
    bool add(Kind kind, std::uint64_t value) {
        auto const key = key_size_ == 0 ? static_cast<std::uint32_t>(texts_.size()) : key_;
        nodes_.push_back(
            {kind, static_cast<std::uint32_t>(nodes_.size()) + 1, key, std::exchange(key_size_, 0), value});
        return true;
    }
    bool open(Kind kind) {
        if (open_.size() == max_json_depth) fail_text(concat("nested deeper than ", max_json_depth, " levels"));
        open_.push_back(static_cast<std::uint32_t>(nodes_.size()));
        add(kind, 0);
        nodes_.back().next = UINT32_MAX;
        return true;
    }
    bool close(Take take) {
        std::uint32_t const node = open_.back();
        nodes_[node].next = static_cast<std::uint32_t>(nodes_.size());
        open_.pop_back();
        if (kind(node) == Kind::object) refuse_twins(node);
        if (!take(*this, node, open_)) return true;
        texts_.resize(nodes_[node].key);
        nodes_.resize(node);
        ++nodes_[open_.back()].value;
        return true;
    }
    void refuse_twins(std::uint32_t object) {
        keys_.clear();
        for_each(object, [&](std::uint32_t member) { keys_.push_back(key(member)); });
        std::string_view const twin = twin_of(keys_);
        if (twin.data() != nullptr) twice_(file_, concat(quote_name(twin), " is given twice"));
    }

    std::vector<Node> nodes_;
    std::string texts_;
    std::string_view file_;
    std::string_view where_;
    RefuseFile refuse_;
    RefuseFile twice_;
    std::vector<std::uint32_t> open_;
    std::vector<std::string_view> keys_;
    std::uint32_t key_ = 0;
    std::uint32_t key_size_ = 0;
};

/// A value that is read with expectations: every way to ask throws FormatError, naming the file and the key, when the
/// value is something else. \pre the tree, and the file's name, outlive it.
class JsonReader {
public:
    explicit JsonReader(JsonTree const& tree, std::uint32_t node = 0) noexcept : tree_(&tree), node_(node) {}

    [[nodiscard]] JsonReader at(std::string_view name) const {
        std::uint32_t const found = tree_->find(expect(JsonTree::Kind::object, "an object"), name);
        if (found == 0) fail("has no '", name, "'");
        return JsonReader(*tree_, found);
    }
    [[nodiscard]] bool is_null() const noexcept { return tree_->kind(node_) == JsonTree::Kind::null; }
    [[nodiscard]] bool has(std::string_view name) const noexcept { return tree_->find(node_, name) != 0; }
    [[nodiscard]] std::uint64_t unsigned_integer() const {
        return tree_->integer(expect(JsonTree::Kind::integer, "an integer of 0 or more"));
    }
    /// An integer from 0 to `most`.
    [[nodiscard]] Index integer(Index most = INT64_MAX) const {
        std::uint64_t const value = unsigned_integer();
        if (value > static_cast<std::uint64_t>(most)) {
            fail("is ", value, ", above ", most == INT64_MAX ? std::string("2^63 - 1") : std::to_string(most));
        }
        return as_index(value);
    }
    [[nodiscard]] std::string text() const { return std::string(text_view()); }
    [[nodiscard]] std::string_view text_view() const { return tree_->text(expect(JsonTree::Kind::text, "text")); }
    /// Calls f(JsonReader) for every item of a list.
    template <class F>
    void for_each(F&& f) const {
        tree_->for_each(expect(JsonTree::Kind::list, "a list"),
                        [&](std::uint32_t item) { f(JsonReader(*tree_, item)); });
    }
    /// Calls f(std::string key, JsonReader) for every member of an object.
    template <class F>
    void for_each_member(F&& f) const {
        tree_->for_each(expect(JsonTree::Kind::object, "an object"),
                        [&](std::uint32_t member) { f(std::string(tree_->key(member)), JsonReader(*tree_, member)); });
    }
    [[nodiscard]] std::vector<Index> integers() const {
        std::vector<Index> list;
        for_each([&](JsonReader const& item) { list.push_back(item.integer()); });
        return list;
    }
    /// Says of this value what the parts are, put together.
    template <class... Parts>
    [[noreturn]] void fail(Parts... what) const {
        fail_with({what...});
    }

private:
    [[noreturn]] void fail_with(std::initializer_list<Part> what) const {
        std::string const path = tree_->path(node_);
        std::string text = concat(path.empty() ? "it" : quote_name(path), " ");
        append(text, what);
        tree_->fail(text);
    }
    [[nodiscard]] std::uint32_t expect(JsonTree::Kind kind, std::string_view what) const {
        if (tree_->kind(node_) != kind) fail("is not ", what);
        return node_;
    }
    JsonTree const* tree_;
    std::uint32_t node_;
};

}  // namespace reshard::inline v0_1::detail

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/json_tree.ipp>
#endif
