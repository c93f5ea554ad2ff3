// SPDX-License-Identifier: Apache-2.0
// What a manifest says of a managed-collision table, and the index of a folder that an older release wrote. A table
// that is read can be written and read again.
#include <reshard/mch/detail/checkpoint_old.hpp>

#include "support.hpp"

void fuzz::mch(std::uint8_t const* data, std::size_t size) {
    using namespace reshard;
    std::string const text(fuzz::text_of(data, size));
    auto const tables_of = [](std::string const& table) {
        return detail::tables_from({{"mch.table.t", table}}, "manifest");
    };
    fuzz::answers([&] {
        std::string const first = detail::table_text(tables_of(text).at(0));
        fuzz::expect(detail::table_text(tables_of(first).at(0)) == first, "a table that changes when written");
    });
    fuzz::answers([&] { static_cast<void>(detail::index_from(text, "index")); });
    if (text.empty()) return;
    std::string const before = text.substr(0, text.size() - 1);  // with the sum that it should have
    fuzz::answers([&] { static_cast<void>(detail::index_from(before + detail::index_end(before), "index")); });
}
