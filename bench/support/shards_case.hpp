// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/shards_case.hpp
/// \brief  A model of 2 GB in eight shards as PyTorch's DCP writes them, and whether full files have all of it.
#pragma once

#include "save_case.hpp"

#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>

#include <map>  // map

namespace reshard::bench {

/// Element `at` of the tensor of that name says where it belongs.
[[nodiscard]] inline std::uint32_t mark_of(std::string_view name, Index at) noexcept {
    std::uint32_t number = 2166136261U;
    for (char const c : name) number = (number ^ static_cast<unsigned char>(c)) * 16777619U;
    return static_cast<std::uint32_t>(at) * 2654435761U + number;
}

/// \pre `count` divides the first extent of every tensor
inline void write_shards(std::string const& folder, std::vector<TensorSpec> const& list, int count) {
    for (int shard = 0; shard < count; ++shard) {
        std::vector<TensorSpec> parts;
        std::map<std::string, Index> first;  // element of the whole tensor that the part begins with
        std::string info = "{";
        for (TensorSpec const& tensor : list) {
            Indices extents = tensor.shape.extents();
            extents[0] /= count;
            parts.push_back({tensor.name, tensor.dtype, DynamicShape(extents)});
            first[tensor.name] = parts.back().shape.size() * shard;
            info += errors::concat(info.size() > 1 ? "," : "", "\"", tensor.name, "\":{\"saved_offsets\":[",
                                   extents[0] * shard, extents.size() == 2 ? ",0" : "", "]}");
        }
        write_safetensors(errors::concat(folder, "/shard-0000", shard + 1, "-model-00001-of-00001.safetensors"), parts,
                          [&](TensorInfo const& tensor, Index begin, std::span<std::byte> out) {
                              auto* element = reinterpret_cast<std::uint32_t*>(out.data());
                              Index at = first[tensor.name] + begin / 4;
                              for (std::size_t i = 0; i < out.size() / 4; ++i) element[i] = mark_of(tensor.name, at++);
                          },
                          {{"DCP_SHARDING_INFO", info + "}"}, {"DCP_VERSION", "1.0"}, {"format", "pt"}});
    }
}

[[nodiscard]] inline bool holds_marks(std::string const& folder, std::vector<TensorSpec> const& list) {
    Checkpoint const checkpoint = Checkpoint::open(folder);
    std::vector<std::uint32_t> memory(std::size_t{1} << 20U);
    for (TensorSpec const& spec : list) {
        CheckpointTensor const& tensor = checkpoint.at(spec.name);
        if (!(tensor.shape == spec.shape) || tensor.dtype != spec.dtype) return false;
        for (Index at = 0; at < spec.shape.size();) {
            auto const count = detail::smaller(static_cast<Index>(memory.size()), spec.shape.size() - at);
            auto const piece = std::span(memory).first(static_cast<std::size_t>(count));
            checkpoint.read_range(tensor, at * 4, (at + count) * 4, std::as_writable_bytes(piece));
            for (std::uint32_t const element : piece)
                if (element != mark_of(spec.name, at++)) return false;
        }
    }
    return checkpoint.tensors().size() == list.size();
}

}  // namespace reshard::bench
