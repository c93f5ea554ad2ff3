// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/damaged.hpp
/// \brief  Saved folders changed behind the library's back: with sums that fit, or as version 1 wrote them.
#pragma once

#include <reshard/checkpoint/safetensors_writer.hpp>
#include <reshard/mch/detail/checkpoint_text.hpp>

#include <mch/support/saved.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace reshard::test::torchrec {

/// An index of which something was changed, with the sum that it should have now.
inline std::string sealed(std::string text) {
    auto const end = text.rfind(",\"crc32c\":");
    if (end == std::string::npos) return text;
    text.resize(end);
    return text + reshard::detail::index_end(text);
}

/// A file written anew, after `change(TensorSpec&, std::vector<std::byte>&, Metadata&)` has had its hands on tensors
/// and metadata; its sums fit, if it had any. A tensor whose name is taken away is left out.
template <class Change>
void rewrite(std::string const& path, Change const& change) {
    struct Tensor {
        TensorSpec spec;
        std::vector<std::byte> bytes;
    };
    std::vector<Tensor> tensors;
    Metadata metadata;
    {
        SafetensorsFile const file = SafetensorsFile::open(path);
        metadata = file.metadata();
        for (TensorInfo const& info : file.tensors()) {
            tensors.push_back(
                {{info.name, info.dtype, info.shape}, std::vector<std::byte>(static_cast<std::size_t>(info.bytes()))});
            file.read(info, tensors.back().bytes);
        }
    }
    for (Tensor& tensor : tensors) change(tensor.spec, tensor.bytes, metadata);
    std::erase_if(tensors, [](Tensor const& tensor) { return tensor.spec.name.empty(); });
    bool const summed = std::erase_if(metadata, [](auto const& item) { return item.first.starts_with("crc32c."); }) > 0;
    std::vector<TensorSpec> specs;
    for (Tensor const& tensor : tensors) {
        specs.push_back(tensor.spec);
        if (!summed) continue;
        metadata.emplace_back(reshard::detail::sums_key(tensor.spec.name), reshard::detail::sums_text(tensor.bytes));
    }
    std::filesystem::remove(path);
    write_safetensors(
        path, specs,
        [&](TensorInfo const& info, Index begin, std::span<std::byte> out) {
            for (Tensor const& tensor : tensors) {
                if (tensor.spec.name != info.name) continue;
                std::copy_n(tensor.bytes.begin() + begin, out.size(), out.begin());
            }
        },
        metadata);
}

/// A folder as version 1 has it: the same without any sums.
inline void make_version_1(checkpoint_test::TempFolder const& folder) {
    for (std::string const& leaf : folder.leaves()) {
        std::string const path = folder / leaf;
        if (leaf != reshard::detail::mch_index_name) {
            rewrite(path, [](TensorSpec&, std::vector<std::byte>&, Metadata& metadata) {
                std::erase_if(metadata, [](auto const& item) { return item.first.starts_with("crc32c."); });
                for (auto& [key, value] : metadata)
                    if (key == "mch.version") value = "1";
            });
            continue;
        }
        std::string text = checkpoint_test::read_text(path);
        std::string const version = "\"version\":2";
        text.replace(text.find(version), version.size(), "\"version\":1");
        text.resize(text.rfind(",\"crc32c\":"));
        checkpoint_test::write_text(path, text + "}\n");
    }
}

}  // namespace reshard::test::torchrec
