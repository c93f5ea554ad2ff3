// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/made_checkpoint.hpp
/// \brief  A checkpoint to try things on, for who brings none: the tensors of Qwen2.5-0.5B, the same bytes every time.
/// \depends reshard/checkpoint/{checkpoint,safetensors_writer}.hpp.
#pragma once

#include "model_lists.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "temporary_folder.hpp"

#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>

#include <algorithm>
#include <cstring>
#include <string>

namespace demo {

/// What a checkpoint that is made for a demo holds: every run and every machine makes the same file.
inline void fill_made(reshard::TensorInfo const& tensor, reshard::Index begin, std::span<std::byte> out) {
    std::uint64_t const seed = reshard::detail::Digest{}.add_text(tensor.name).value();
    for (std::size_t i = 0; i < out.size(); i += 8) {  // splitmix64 of name and position
        std::uint64_t x = seed + static_cast<std::uint64_t>(begin) + i;
        x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
        x ^= x >> 31U;
        std::memcpy(out.data() + i, &x, std::min<std::size_t>(8, out.size() - i));
    }
}

/// Writes it, with `layers` of the model's 24, its sizes divided by `scale`, and shows how far it is.
inline void make_checkpoint(std::string const& folder, int layers, reshard::Index scale) {
    auto const list = model_list(scaled(qwen2_5_0_5b(layers), scale));
    Progress progress(total_bytes(list));
    reshard::Index done = 0;
    reshard::write_checkpoint(
        folder, list, [&](reshard::CheckpointTensor const& tensor, reshard::Index begin, std::span<std::byte> out) {
            fill_made(tensor, begin, out);
            done += static_cast<reshard::Index>(out.size());
            progress.update(done, "writing " + tensor.name);
        });
}

/// The path of the checkpoint to work on, on every rank: `given`, or, where it is empty, of one that rank 0 makes. Rank
/// 0's `made` removes it when it goes, also after an error, unless it is to be kept.
inline std::string given_or_made(reshard::CommunicatorRef comm, std::string const& given, TemporaryFolder& made,
                                 bool keep, int layers, reshard::Index scale = 1) {
    if (!given.empty()) return given;
    if (comm.rank() == 0) {
        made.make(keep);
        make_checkpoint(made.path(), layers, scale);
    }
    return share_text(comm, made.path());
}

/// For programs that work with whole tensors: throws where none lies whole in a file, as after a save of many ranks.
inline reshard::Checkpoint open_whole(std::string const& path, reshard::Access access = reshard::Access::pread) {
    reshard::Checkpoint checkpoint = reshard::Checkpoint::open(path, access);
    if (checkpoint.tensors().empty()) {
        reshard::errors::raise(
            reshard::ErrorCode::user,
            reshard::errors::concat(path, ": no tensor lies whole in a file. Fix: reshard consolidate ", path,
                                    " FULL, and name FULL."));
    }
    return checkpoint;
}

}  // namespace demo
