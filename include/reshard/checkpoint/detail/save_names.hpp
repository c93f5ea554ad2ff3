// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/save_names.hpp
/// \brief  The names that a save gives: of files, of replicas and boxes inside them; which files are its own; and its
///         options in words, for ranks that give others.
/// \depends checkpoint/{manifest,tensor_info,text}. No I/O.
#pragma once

#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/tensor_info.hpp>
#include <reshard/checkpoint/text.hpp>

#include <algorithm>  // sort, binary_search
#include <span>       // span
#include <vector>     // vector

namespace reshard::inline v0_1::detail {

/// A path of a file that stays in its folder: not empty, not absolute, no "..", no zero byte. Sub-folders are fine.
/// `is_plain`: in the one spelling that no other path has.
[[nodiscard]] inline bool stays_in_folder(std::string_view path, bool is_plain = false) noexcept {
    if (path.starts_with('/') || path.find('\0') != std::string_view::npos) return false;
    for (;;) {
        std::size_t const slash = path.find('/');
        std::string_view const part = path.substr(0, slash);
        if (part == ".." || (is_plain && (part.empty() || part == "."))) return false;
        if (slash == std::string_view::npos) return !part.empty();
        path.remove_prefix(slash + 1);
    }
}

/// The lock of who gives a folder the index `index`: a manifest, or that of full files.
[[nodiscard]] inline std::string lock_name(std::string_view index) { return concat(".", index, ".lock"); }

/// Reads a text from the left, as far as it is what is expected.
class NameReader {
public:
    explicit NameReader(std::string_view text) noexcept : rest_(text) {}
    [[nodiscard]] bool word(std::string_view expected) noexcept {
        if (rest_.substr(0, expected.size()) != expected) return false;
        rest_.remove_prefix(expected.size());
        return true;
    }
    /// From `fewest` to `most` characters of `alphabet`, as many as there are.
    [[nodiscard]] bool run(std::string_view alphabet, std::size_t fewest, std::size_t most) noexcept {
        std::size_t count = 0;
        while (count < most && count < rest_.size() && alphabet.find(rest_[count]) != std::string_view::npos) ++count;
        rest_.remove_prefix(count);
        return count >= fewest;
    }
    [[nodiscard]] bool digits(std::size_t fewest, std::size_t most) noexcept { return run("0123456789", fewest, most); }
    /// A number of up to nine digits.
    [[nodiscard]] bool number(int& value) noexcept {
        std::string_view const text = rest_;
        if (!digits(1, 9)) return false;
        value = 0;
        for (char const digit : text.substr(0, text.size() - rest_.size())) value = 10 * value + (digit - '0');
        return true;
    }
    [[nodiscard]] bool at_end() const noexcept { return rest_.empty(); }

private:
    std::string_view rest_;
};

/// Whether a TemporaryFile of a file that `is_ours` accepts has such names: `.NAME.tmp.PID.N`.
template <class IsOurs>
[[nodiscard]] bool is_temporary_of(std::string_view leaf, IsOurs const& is_ours) {
    auto const mark = leaf.rfind(".tmp.");
    if (leaf.substr(0, 1) != "." || mark == std::string_view::npos || mark == 0) return false;
    NameReader in(leaf.substr(mark));
    if (!in.word(".tmp.") || !in.digits(1, 10) || !in.word(".") || !in.digits(1, 10) || !in.at_end()) return false;
    return is_ours(leaf.substr(1, mark - 1));
}

inline constexpr std::string_view replica_suffix = ".__tp_replica_";
inline constexpr std::string_view box_suffix = ".__box_";
/// Of copies, as we and as others spell it, and of boxes.
inline constexpr std::string_view name_suffixes[] = {replica_suffix, "._tp_replica", box_suffix};

/// A name without a number at its end and one of `suffixes` in front of that; empty where it has none.
[[nodiscard]] inline std::string_view before_suffix(std::string_view name,
                                                    std::span<std::string_view const> suffixes) noexcept {
    std::string_view const head = name.substr(0, name.find_last_not_of("0123456789") + 1);
    for (std::string_view const suffix : suffixes) {
        if (head.size() < name.size() && head.ends_with(suffix)) return head.substr(0, head.size() - suffix.size());
    }
    return {};
}

/// What a box is stored under: replica `replica` of `replicas`, and the box's number among those of its file.
[[nodiscard]] inline std::string stored_key(std::string_view tensor, int replicas, int replica, Index box) {
    std::string key(tensor);
    if (replicas > 1) key += concat(replica_suffix, replica);
    if (box > 0) key += concat(box_suffix, box);
    return key;
}

/// `shard-00002-of-00004.0123456789abcdef.safetensors`. `rank` counts from 0.
[[nodiscard]] inline std::string shard_file_name(int rank, int ranks, std::string_view save) {
    return concat("shard-", decimal_text(rank + 1, 5), "-of-", decimal_text(ranks, 5), ".", save, ".safetensors");
}

/// Whether shard_file_name() makes such names.
[[nodiscard]] inline bool is_shard_file(std::string_view leaf) noexcept {
    NameReader in(leaf);
    return in.word("shard-") && in.digits(5, 10) && in.word("-of-") && in.digits(5, 10) && in.word(".") &&
           in.run("0123456789abcdef", 16, 16) && in.word(".safetensors") && in.at_end();
}

/// Names of files that a weight_map may have: each is one, in the folder itself, and opens by its name.
[[nodiscard]] inline bool is_output_leaf(std::string_view leaf) {
    bool const plain = stays_in_folder(leaf) && leaf.find('/') == std::string_view::npos && leaf.front() != '.';
    return plain && leaf.ends_with(".safetensors") && is_utf8(leaf);
}

/// Whether save() has files of that name while it writes, and only then.
[[nodiscard]] inline bool is_temporary_of_save(std::string_view leaf) {
    return is_temporary_of(leaf, [](std::string_view name) { return name == manifest_name || is_shard_file(name); });
}

/// Long texts by their digest.
[[nodiscard]] inline std::string metadata_text(Metadata const& metadata) {
    std::string texts;
    for (auto const& [key, value] : metadata) {
        bool const is_short = value.size() <= 40;
        texts += concat(texts.empty() ? "" : ", ", quote_name(key), " ", is_short ? quote_name(value) : std::string());
        if (!is_short) texts += concat(value.size(), " bytes of digest ", Digest().add_text(value).value());
    }
    return concat("[", texts, "]");
}
[[nodiscard]] inline std::string axes_text(std::span<int const> axes) {
    std::string text;
    for (int axis : axes) text += concat(text.empty() ? "" : ",", axis);
    return concat("[", text, "]");
}

/// Throws FormatError for names that a file could not have or that two tensors would share. \pre sorted.
inline void check_saved_names(std::vector<std::string_view> const& names) {
    for (std::size_t i = 0; i < names.size(); ++i) {
        auto const refuse = [&](SafetensorsRule rule, std::string_view why) {
            raise_rule(rule, "reshard::save: tensor ", quote_name(names[i]), " ", why);
        };
        if (!is_utf8(names[i])) refuse(SafetensorsRule::invalid_header, "is not UTF-8. Fix: encode its name.");
        if (names[i] == "__metadata__") {
            refuse(SafetensorsRule::invalid_header_deserialization, "cannot have this name in a file. Fix: rename it.");
        }
        if (i > 0 && names[i - 1] == names[i]) {
            refuse(SafetensorsRule::duplicate_key,
                   "is given twice. Fix: give every tensor a name of its own (a table NAME has the names NAME.*); of "
                   "boxes of one tensor, say of each in LocalTensor::within where it lies.");
        }
        std::string_view base = before_suffix(names[i], name_suffixes);
        for (; !base.empty(); base = before_suffix(base, name_suffixes)) {
            if (!std::binary_search(names.begin(), names.end(), base)) continue;
            refuse(SafetensorsRule::duplicate_key,
                   concat("has a name that copies or boxes of tensor ", quote_name(base),
                          " are stored under. Fix: rename one of the two."));
        }
    }
}

}  // namespace reshard::inline v0_1::detail
