// SPDX-License-Identifier: Apache-2.0
// Short texts: the note in a folder's lock, which says what is removed, and a shape and the notation of a distribution,
// in a line each. What is read can be printed and read again.
#include <reshard/algebra/notation.hpp>
#include <reshard/checkpoint/detail/consolidate_folder.hpp>

#include <optional>

#include "support.hpp"

namespace {

void read_note(std::string_view text) {
    using namespace reshard;
    auto const files = detail::files_of_note(text);
    for (detail::NotedFile const& file : files) {
        bool const ours = file.leaf == detail::index_name || file.leaf == manifest_name ||
                          (file.leaf.ends_with(".safetensors") && detail::is_output_leaf(file.leaf));
        fuzz::expect(ours, "a file that no run gives its name");
        fuzz::expect(file.leaf.find('/') == std::string::npos, "a file outside the folder");
        fuzz::expect(file.stamp.bytes >= 0, "a size below nothing");
    }
    fuzz::expect(detail::files_of_note(detail::note_of(files)) == files, "a note that changes when written");
}

void read_notation(std::string_view text) {
    using namespace reshard;
    std::size_t const end = text.find('\n');
    if (end == std::string_view::npos) return;
    std::optional<DynamicDistribution> read;
    bool const is_read = fuzz::answers(
        [&] {
            DynamicShape const shape = parse_shape(text.substr(0, end));
            read = parse(text.substr(end + 1), shape);
        },
        {ErrorCode::notation, ErrorCode::shape, ErrorCode::mesh, ErrorCode::placement});
    if (!is_read) return;
    fuzz::expect(parse_shape(to_string(read->shape())) == read->shape(), "a shape that changes when printed");
    std::string const printed = to_string(*read);
    DynamicDistribution const again = parse(printed, read->shape());
    fuzz::expect(again == *read && to_string(again) == printed, "a distribution that changes when printed");
}

}  // namespace

void fuzz::texts(std::uint8_t const* data, std::size_t size) {
    std::string_view const text = fuzz::text_of(data, size);
    read_note(text);
    read_notation(text);
}
