// SPDX-License-Identifier: Apache-2.0
// How checkpoint/consolidate.hpp is done.
#pragma once

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/detail/consolidate_session.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/core/detail/explain_text.hpp>
#include <reshard/plan/topology.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE RewriteReport consolidate(std::string from, std::string to, CommunicatorRef comm,
                                         ConsolidateOptions const& options) {
    detail::RewriteSession session(std::move(from), std::move(to), comm, options, detail::index_name);
    return session.run(
        [&] { return detail::text_of(options); },
        [&](Catalogue const& catalogue, std::string const& id) { return detail::full_output(catalogue, options, id); });
}

RESHARD_INLINE RewriteReport consolidate(std::string from, std::string to, ConsolidateOptions const& options) {
    SelfCommunicator alone;
    return consolidate(std::move(from), std::move(to), alone, options);
}

RESHARD_INLINE RewriteReport consolidate(SaveRequest& saving, std::string from, std::string to, CommunicatorRef comm,
                                         ConsolidateOptions const& options) {
    static_cast<void>(saving.wait());
    return consolidate(std::move(from), std::move(to), comm, options);
}

RESHARD_INLINE RewriteReport shard_checkpoint(std::string from, std::string to, PlaceTensor const& place,
                                              CommunicatorRef comm, ShardOptions const& options) {
    detail::RewriteSession session(std::move(from), std::move(to), comm, options, manifest_name);
    return session.run([&] { return detail::text_of(options); },
                       [&](Catalogue const& catalogue, std::string const& id) {
                           return detail::shard_output(catalogue, place, options, id);
                       });
}

RESHARD_INLINE RewriteReport shard_checkpoint(std::string from, std::string to, PlaceTensor const& place,
                                              ShardOptions const& options) {
    SelfCommunicator alone;
    return shard_checkpoint(std::move(from), std::move(to), place, alone, options);
}

RESHARD_INLINE std::string explain(RewriteReport const& report) {
    using detail::append, detail::bytes_text, detail::count_text;
    std::string text = errors::concat(count_text(detail::as_index(report.written.tensors.size()), "tensor"), ", ",
                                      bytes_text(report.bytes_total), " in ",
                                      count_text(detail::as_index(report.written.files.size()), "file"),
                                      ", by all ranks\n  collectives: ", to_string(report.collectives), "\n");
    append(text, {"  wrote ", bytes_text(report.bytes_written), " in ", count_text(report.writes, "write"), "\n"});
    append(text, {"  read ", bytes_text(report.bytes_read), " in ", count_text(report.reads, "read"), ", ",
                  count_text(report.files_opened, "open file"), "; all ranks verified ",
                  bytes_text(report.bytes_verified), "\n"});
    append(text, {"  memory for bytes in flight: ", bytes_text(report.extra_bytes), "\n  ",
                  detail::seconds_text(report.seconds), "\n"});
    append(text, {detail::kind_note(report.kind), detail::unlisted_text(report.unlisted)});
    return text;
}

RESHARD_INLINE PlaceTensor placed_as(std::string_view notation) {
    return [rule = PlacementRule(notation)](StoredTensor const& tensor) { return rule.of(tensor.shape, tensor.dtype); };
}

RESHARD_INLINE std::vector<std::pair<std::string, std::string>> read_weight_map(std::string const& index) {
    auto map = detail::parse_weight_map(detail::read_json_text(index, max_safetensors_header_bytes), index);
    std::vector<std::pair<std::string, std::string>> pairs;
    for (auto& [tensor, leaf] : map.tensors) pairs.emplace_back(std::move(tensor), map.leaves[leaf]);
    return pairs;
}

}  // namespace reshard::inline v0_1
