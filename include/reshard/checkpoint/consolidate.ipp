// SPDX-License-Identifier: Apache-2.0
// How checkpoint/consolidate.hpp is done.
#pragma once

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/detail/consolidate_session.hpp>
#include <reshard/comm/self.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE RewriteReport consolidate(std::string from, std::string to, CommunicatorRef comm,
                                         ConsolidateOptions const& options) {
    detail::RewriteSession session(std::move(from), std::move(to), comm, options, detail::index_name);
    Digest digest;
    digest.add_signed(options.max_file_bytes);
    for (auto const& [tensor, file] : options.weight_map) digest.add_text(tensor).add_text(file);
    return session.run(digest.value(), [&](Catalogue const& catalogue, std::string const&) {
        if (options.max_file_bytes < 0) {
            raise(ErrorCode::buffer, concat("reshard::ConsolidateOptions: max_file_bytes is ", options.max_file_bytes,
                                            ". Fix: 0 means one file."));
        }
        return detail::full_output(catalogue, options);
    });
}

RESHARD_INLINE RewriteReport consolidate(std::string from, std::string to, ConsolidateOptions const& options) {
    SelfCommunicator alone;
    return consolidate(std::move(from), std::move(to), alone, options);
}

RESHARD_INLINE RewriteReport consolidate(SaveHandle& saving, std::string from, std::string to, CommunicatorRef comm,
                                         ConsolidateOptions const& options) {
    static_cast<void>(saving.wait());
    return consolidate(std::move(from), std::move(to), comm, options);
}

RESHARD_INLINE RewriteReport shard_checkpoint(std::string from, std::string to, PlaceTensor const& place,
                                              CommunicatorRef comm, ShardOptions const& options) {
    detail::RewriteSession session(std::move(from), std::move(to), comm, options, manifest_name);
    Digest digest;
    digest.add(static_cast<std::uint64_t>(options.dedup));
    for (int const axis : options.replica_axes) digest.add_signed(axis);
    return session.run(digest.value(), [&](Catalogue const& catalogue, std::string const& id) {
        return detail::shard_output(catalogue, place, options, id);
    });
}

RESHARD_INLINE RewriteReport shard_checkpoint(std::string from, std::string to, PlaceTensor const& place,
                                              ShardOptions const& options) {
    SelfCommunicator alone;
    return shard_checkpoint(std::move(from), std::move(to), place, alone, options);
}

RESHARD_INLINE PlaceTensor placed_as(std::string_view notation) {
    return [rule = PlacementRule(notation)](StoredTensor const& tensor) { return rule.of(tensor.shape, tensor.dtype); };
}

RESHARD_INLINE std::vector<std::pair<std::string, std::string>> read_weight_map(std::string const& index) {
    return detail::parse_weight_map(detail::read_json_text(index, max_safetensors_header_bytes), index);
}

}  // namespace reshard::inline v0
