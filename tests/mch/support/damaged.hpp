// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/damaged.hpp
/// \brief  Saved folders changed behind the library's back, with sums that fit, and what loads say of them.
#pragma once

#include <reshard/checkpoint/safetensors_writer.hpp>
#include <reshard/mch/detail/checkpoint_old.hpp>

#include <mch/support/saved.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace reshard::test::torchrec {

/// Sums of every 64 KiB, as files of old releases have them in their metadata.
inline std::string old_sums_text(std::span<std::byte const> bytes) {
    std::string text;
    for (; !bytes.empty(); bytes = bytes.subspan(detail::smaller(bytes.size(), std::size_t{65536})))
        text += reshard::detail::hex_text(crc32c(bytes.first(detail::smaller(bytes.size(), std::size_t{65536}))), 8);
    return text;
}

/// A file of tensors written anew, after `change(TensorSpec&, std::vector<std::byte>&, Metadata&)` has had its hands on
/// tensors and metadata; sums in its metadata fit, if it had any. A tensor whose name is taken away is left out.
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
        metadata.emplace_back(reshard::detail::sums_key(tensor.spec.name), old_sums_text(tensor.bytes));
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

/// The same for a file of a save, and the manifest follows suit: places, sizes and sums are those of the new bytes.
template <class Change>
void rewrite(std::string const& folder, std::string const& leaf, Change const& change) {
    std::string const path = folder + "/" + leaf;
    rewrite(path, change);
    SafetensorsFile const file = SafetensorsFile::open(path);
    Manifest manifest = manifest_in(folder);
    for (std::size_t f = 0; f < manifest.files.size(); ++f) {
        if (manifest.files[f].leaf != leaf) continue;
        manifest.files[f].file_bytes = file.file_bytes();
        manifest.files[f].header_digest = file.header_digest();
        for (Extent& extent : manifest.extents) {
            if (extent.file != static_cast<int>(f)) continue;
            TensorInfo const& info = file.at(reshard::detail::key_of(manifest, extent));
            std::vector<std::byte> bytes(static_cast<std::size_t>(info.bytes()));
            file.read(info, bytes);
            extent.begin = info.begin;
            extent.crc32c = crc32c(bytes);
        }
    }
    checkpoint_test::write_text(folder + "/reshard.manifest.json", to_json(manifest));
}

/// A manifest of which something was changed, with the sum that it should have now.
inline std::string sealed_manifest(std::string text) {
    text.resize(text.rfind(",\n  \"crc32c\": "));
    return text + reshard::detail::manifest_seal(text);
}

/// What a load onto that many ranks said on rank 0: the error's type and text.
inline checkpoint_test::Caught load_error(std::string const& folder, World const& saved, Id count,
                                          MchLoadOptions const& options = {}, std::string const& name = "user") {
    World loaded = fresh_like(saved, count);
    return checkpoint_test::caught([&] {
        MchCheckpoint files = MchCheckpoint::open(folder);
        Rows rows(loaded.ranks[0]);
        files.load(name, table_of(loaded), 0, state_of(loaded.ranks[0]), rows.views(), options);
    });
}
inline void check_error(checkpoint_test::Caught const& error, ErrorCode code, std::vector<std::string> const& parts) {
    CAPTURE(error.message);
    CHECK(error.code == code);
    CHECK(checkpoint_test::contains(error.message, "Fix: "));
    for (std::string const& part : parts) {
        CAPTURE(part);
        CHECK(checkpoint_test::contains(error.message, part));
    }
}

/// Three ranks read what is theirs: what they have then, or the first error.
inline std::vector<Ids> load_apart(std::string const& folder, World const& saved) {
    World loaded = fresh_like(saved, 3);
    for (std::size_t r = 0; r < 3; ++r) {
        static_cast<void>(MchCheckpoint::open(folder).load_redistributed(
            "user", table_of(loaded), static_cast<Index>(r), state_of(loaded.ranks[r]), {}, {},
            MchLoadOptions{.leave_rows = {"weights", "momentum"}}));
    }
    return buffers(loaded);
}
/// As texts have them.
inline std::string text_of_bounds(MchIdBounds const& one) {
    return errors::concat("[", one.live, ",", one.negative, ",", one.lowest, ",", one.highest, "]");
}

}  // namespace reshard::test::torchrec
