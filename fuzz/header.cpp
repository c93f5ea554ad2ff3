// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: of the input as a whole file, and of its JSON text alone, so that a change of the
// text need not fit a length in front of it.
#include <reshard/checkpoint/safetensors_header.hpp>

#include "support.hpp"

namespace {

void check(reshard::SafetensorsHeader const& header) {
    reshard::Index end = 0;
    for (reshard::TensorInfo const& tensor : header.tensors()) {
        fuzz::expect(tensor.begin == end && tensor.end >= tensor.begin, "tensors that overlap or leave holes");
        end = tensor.end;
        reshard::TensorInfo const* const found = header.find(tensor.name);
        fuzz::expect(found != nullptr && *found == tensor, "a tensor that is not found by its name");
        fuzz::expect(reshard::stored_bytes({tensor.name, tensor.dtype, tensor.shape}) == tensor.bytes(),
                     "a size of its own");
    }
    fuzz::expect(end == header.data_bytes(), "data that no tensor has");
}

}  // namespace

void fuzz::header(std::uint8_t const* data, std::size_t size) {
    using namespace reshard;
    SafetensorsHeader header;
    auto const file_bytes = static_cast<Index>(size);
    auto const parse_file = [&] {
        Index const length = safetensors_header_length(std::as_bytes(std::span(data, size)), file_bytes);
        header = parse_safetensors_json(fuzz::text_of(data + 8, static_cast<std::size_t>(length)), file_bytes);
    };
    if (fuzz::answers(parse_file)) check(header);
    if (size == 0) return;
    Index const data_bytes = data[0];  // in front of the text: how many bytes follow it
    std::string_view const json = fuzz::text_of(data + 1, size - 1);
    auto const parse = [&] { header = parse_safetensors_json(json, 8 + static_cast<Index>(json.size()) + data_bytes); };
    if (fuzz::answers(parse)) check(header);
}
