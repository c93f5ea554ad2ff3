// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_json.hpp
/// \brief  JSON of saved folders: read as a tree, with errors in the words of this room, and written.
/// \depends checkpoint/json_tree.hpp. No I/O.
#pragma once

#include <reshard/checkpoint/json_tree.hpp>

#include <string>  // string
#include <vector>  // vector

namespace reshard::inline v0::detail {

[[noreturn]] inline void refuse_mch_file(std::string_view file, std::string_view what, std::string_view fix) {
    raise(ErrorCode::format, concat("reshard::mch: ", file, ": ", what, ". Fix: ", fix));
}

/// Throws FormatError for what is not one JSON text. `where` begins the names of keys in messages.
[[nodiscard]] inline JsonTree parse_mch_json(std::string_view json, std::string_view file,
                                             std::string_view where = {}) {
    constexpr RefuseFile refuse = [](std::string_view name, std::string_view what) {
        refuse_mch_file(name, what, "restore the file, or save anew.");
    };
    return {json, file, refuse, where};
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
