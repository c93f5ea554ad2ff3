// SPDX-License-Identifier: Apache-2.0
// How checkpoint/save_plan.hpp is done.
#pragma once

#include <reshard/algebra/box_cover.hpp>
#include <reshard/algebra/notation.hpp>
#include <reshard/checkpoint/detail/file_entries.hpp>
#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/detail/save_extents.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>
#include <reshard/checkpoint/save_plan.hpp>
#include <reshard/core/detail/explain_text.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // find, lower_bound

namespace reshard::inline v0_1 {

namespace detail {

/// Throws BufferError for options that mean nothing.
inline void check(SaveOptions const& options) {
    check_option("SaveOptions", "in_flight", options.in_flight, 1, "allow at least one write.");
    check_option("SaveOptions", "window_bytes", options.window_bytes, 1, "allow 4 KiB or more.");
    check_option("SaveOptions", "min_slice_bytes", options.min_slice_bytes, 1, "a slice has bytes.");
    check_option("SaveOptions", "small_bytes", options.small_bytes, 0, "0 means that nothing is small.");
    check_option("SaveOptions", "vote_bytes", options.vote_bytes, 1, "millions of bytes between two votes.");
    check_option("SaveOptions", "snapshot_bytes", options.snapshot_bytes, 0, "0 means room for all bytes.");
}

class SavePlanner {
public:
    SavePlanner(std::span<PlacedTensor const> sources, int ranks, SaveOptions const& options)
        : sources_(sources), options_(options) {
        plan_.dedup = options.dedup;
        plan_.ranks = ranks;
    }

    /// With the extents of `only`, or of all (-1).
    [[nodiscard]] SavePlan run(int only) {
        if (plan_.ranks < 1) raise(ErrorCode::mesh, "reshard::plan_save: ", plan_.ranks, " ranks. Fix: at least one.");
        check(options_);
        dealer_ = SaveDealer(plan_.ranks, options_);
        sort_names();
        take_metadata();
        for (std::size_t place : order_) add(sources_[place]);
        check_sources();
        check_axes();
        dealer_.deal();
        plan_.bytes_busiest = dealer_.most();
        list(only);
        plan_.manifest.world_size = plan_.ranks;
        plan_.manifest.block_bytes = block_bytes_for(plan_.bytes_written);
        return std::move(plan_);
    }
    /// After run(): who writes what.
    [[nodiscard]] SaveDealer dealt() noexcept { return std::move(dealer_); }

private:
    void take_metadata() {
        Metadata& metadata = plan_.manifest.metadata;
        metadata = options_.metadata;
        sort_metadata(metadata);
        for (auto const& [key, value] : metadata) {
            if (is_of_file(key)) {
                raise(ErrorCode::buffer, "reshard::SaveOptions: metadata has ", quote_name(key),
                      ", which says something else in the files. Fix: another name.");
            }
            if (key.starts_with(mch_table_key) &&
                find_by_name(sources_, order_, concat(key.substr(mch_table_key.size()), ".ids")) == nullptr) {
                raise(ErrorCode::buffer, "reshard::SaveOptions: metadata has ", quote_name(key),
                      ", as managed-collision tables are saved under, without their tensors. "
                      "Fix: another name, or save(folder, tensors, tables, comm).");
            }
        }
    }
    void sort_names() {
        order_ = places_by_name(sources_);
        std::vector<std::string_view> names;
        names.reserve(sources_.size());
        PlacedTensor const* before = nullptr;
        for (std::size_t place : order_) {
            PlacedTensor const& source = sources_[place];
            if (!is_next_of(std::exchange(before, &source), source)) names.push_back(source.name);
        }
        check_saved_names(names);
    }
    /// Whether it is one more box of the same larger tensor.
    [[nodiscard]] static bool is_next_of(PlacedTensor const* before, PlacedTensor const& source) noexcept {
        return before != nullptr && before->name == source.name && !before->within.is_whole() &&
               !source.within.is_whole();
    }
    [[noreturn]] static void refuse(PlacedTensor const& source, ErrorCode code, std::string_view why) {
        raise(code, "reshard::save: tensor ", quote_name(source.name), " under ", brief(source.distribution), " of ",
              to_string(source.distribution.shape()), text_of(source.within), " ", why);
    }
    /// Boxes make up their tensors, each element once.
    void check_sources() const {
        std::vector<Box> boxes;
        for (auto at = order_.begin(); at != order_.end();) {
            PlacedTensor const& first = sources_[*at];
            Box const whole(whole_shape(first));
            boxes.clear();
            do {
                boxes.push_back(box_in_whole(sources_[*at++]));
            } while (at != order_.end() && is_next_of(&first, sources_[*at]));
            if (first.within.is_whole() || whole.empty()) continue;
            CoverFault const fault = find_cover_fault(whole, boxes);
            if (fault.held == 1) continue;
            std::string const box = concat("reshard::save: tensor ", quote_name(first.name), ": box ",
                                           to_string(fault.box), " of ", to_string(whole.shape()));
            if (fault.held == 0) raise(ErrorCode::placement, box, " is in none of the list. Fix: list all its boxes.");
            raise(ErrorCode::placement, box, " is in several of the list, ", to_string(boxes[fault.a]), " and ",
                  to_string(boxes[fault.b]), ". Fix: list ranks with copies of a box as a mesh of one axis that is R.");
        }
    }
    void check_axes() const {
        for (int axis : options_.replica_axes) {
            if (axis >= 0 && (axis < most_axes_ || sources_.empty())) continue;
            raise(ErrorCode::mesh, "reshard::SaveOptions: replica_axes names axis ", axis,
                  ", which no tensor's mesh has. Fix: mesh axes count from 0.");
        }
    }

    /// A tensor, or one box of a larger one: a group of ranks for each part and each copy that is kept apart.
    void add(PlacedTensor const& source) {
        DynamicDistribution const& from = source.distribution;
        DynamicMesh const& mesh = from.mesh();
        auto const refuse = [&](ErrorCode code, std::string_view why) { SavePlanner::refuse(source, code, why); };
        check_within(from.shape(), source.within, [&](std::string const& why) { refuse(ErrorCode::shape, why); });
        if (mesh.last_rank() >= plan_.ranks) {
            refuse(ErrorCode::mesh, concat("needs rank ", mesh.last_rank(), ", there are only ", plan_.ranks,
                                           " ranks. Fix: use a mesh of ranks that exist."));
        }
        most_axes_ = larger(most_axes_, mesh.axes());
        StoredTensor stored{source.name, source.dtype, whole_shape(source), 1, {}};
        if (source.within.is_whole()) stored.distribution = to_string(from);
        Index const own_bytes = stored_bytes({source.name, source.dtype, from.shape()});
        Index const whole_bytes = stored_bytes({source.name, source.dtype, stored.shape});
        bool const is_cut = whole_bytes != own_bytes;
        unsigned free = 0;
        unsigned apart = 0;
        auto const refuse_cut = [&] {
            if (is_byte_sized(source.dtype) || own_bytes == 0) return;
            refuse(ErrorCode::dtype,
                   concat("has elements of ", name(source.dtype), ", smaller than a byte, which cannot be cut. ",
                          "Fix: replicate it, or view the storage as U8."));
        };
        if (is_cut) refuse_cut();
        for (int axis = 0; axis < mesh.axes(); ++axis) {
            PlacementForm const& placement = from.signature()[axis];
            bool const kept_apart = std::ranges::find(options_.replica_axes, axis) != options_.replica_axes.end();
            if (mesh.extent(axis) == 1) {
                free |= 1U << axis;  // one addend, one part, one copy
            } else if (placement.is_partial()) {
                refuse(ErrorCode::transition,
                       concat("is Partial along mesh axis ", axis, ": no rank has its values, only addends. ",
                              "Fix: reduce it first, for example redistribute it to Replicate or Shard."));
            } else if (placement.is_replicate() && kept_apart && whole_bytes > 0) {
                apart |= 1U << axis;
            } else if (placement.is_replicate()) {
                free |= 1U << axis;
            } else {
                refuse_cut();
            }
        }
        AxisSubset const replicas(mesh, apart);
        stored.replicas = static_cast<int>(replicas.size());
        bool const is_next = is_next_of(std::exchange(before_, &source), source);
        if (!is_next) {
            dealer_.next_tensor();
            plan_.manifest.tensors.push_back(std::move(stored));
        } else if (StoredTensor const& first = plan_.manifest.tensors.back(); !(first == stored)) {
            refuse(ErrorCode::mismatch,
                   concat("is a box of ", name(stored.dtype), " elements in ", stored.replicas,
                          " copies that are kept apart, the one before it is of ", to_string(first.shape), ", ",
                          name(first.dtype), " in ", first.replicas, ". Fix: list boxes of one tensor alike."));
        }

        unsigned const alike = own_bytes == 0 ? (1U << mesh.axes()) - 1U : free;
        SaveFamily const& groups = dealer_.add_tensor(source, alike, apart);
        // A tensor without elements has no bytes, but it has a name and a shape: the lowest rank keeps them.
        if (own_bytes == 0 && (is_next || is_cut)) return;
        if (own_bytes == 0) return dealer_.add(0, 0);
        Index const line = shortest_line();
        for (Index g = 0; g < groups.groups(); ++g) {
            Indices const at = mesh.coordinates(mesh.rank_at(groups.first[as_size(g)]));
            Index bytes = bits(source.dtype);
            Index count = 1;
            for (int dim = 0; dim < from.shape().rank(); ++dim) {
                IndexSet const set = from.index_set(at, dim);
                bytes *= set.size();
                if (!multiply_fits(count, set.segments(), count) || count > max_manifest_bytes)
                    count = max_manifest_bytes;
            }
            if (bytes == 0) continue;
            bytes /= 8;
            boxes_ += count;
            if (count > (max_manifest_bytes - text_) / line) {
                refuse(ErrorCode::placement,
                       concat("brings this save to ", boxes_, " boxes or more, of ", line,
                              " bytes or more each in the manifest, of which readers take ", max_manifest_bytes,
                              ". Fix: redistribute block-cyclic tensors to contiguous shards before they are saved."));
            }
            text_ += count * line;
            plan_.bytes_held += bytes * as_index(groups.group_size());
            plan_.bytes_written += bytes;
            dealer_.add(g, bytes);
        }
    }
    /// What the manifest has of a box of the last tensor, at least: more than readers take is not even listed.
    [[nodiscard]] Index shortest_line() const {
        StoredTensor const& tensor = plan_.manifest.tensors.back();
        Extent extent;
        for (int dim = 0; dim < tensor.shape.rank(); ++dim) extent.box.push_back({0, 1});
        extent.has_checksum = true;
        std::string json = ",\n      ";
        append_extent(json, tensor, extent);
        return std::ssize(json);
    }

    void list(int only) {
        for (int rank = 0; rank < plan_.ranks; ++rank)
            if (dealer_.file(rank) >= 0) plan_.manifest.files.push_back({{}, 0, 0, rank});
        std::vector<DealtExtent> extents;
        for (std::size_t t = 0; t < plan_.manifest.tensors.size(); ++t)
            dealer_.for_each_extent(t, only, [&](DealtExtent const& extent) { extents.push_back(extent); });
        plan_.manifest.extents.reserve(extents.size());
        plan_.sources.reserve(extents.size());
        int file = -1;
        Index at = 0;
        lay_out(plan_.manifest, extents, [&, this](DealtExtent& extent) {
            if (std::exchange(file, extent.file) != extent.file) at = 0;
            extent.begin = at;
            at += plan_.bytes_of(extent);
            plan_.sources.push_back(order_[extent.source]);
            plan_.manifest.extents.push_back(std::move(extent));
        });
    }

    std::span<PlacedTensor const> sources_;
    SaveOptions const& options_;
    std::vector<std::size_t> order_;  ///< places in the list, by name
    SavePlan plan_;
    SaveDealer dealer_;
    Index boxes_ = 0;
    Index text_ = 0;  ///< bytes of the manifest that they take at least
    int most_axes_ = 0;
    PlacedTensor const* before_ = nullptr;  ///< that was added last
};

}  // namespace detail

RESHARD_INLINE int SavePlan::file_of(int rank) const noexcept {
    auto const at = std::ranges::lower_bound(manifest.files, rank, {}, &CheckpointFile::writer);
    if (at == manifest.files.end() || at->writer != rank) return -1;
    return static_cast<int>(at - manifest.files.begin());
}

RESHARD_INLINE std::span<Extent const> SavePlan::extents_of(int rank) const noexcept {
    return detail::extents_in(manifest, file_of(rank));
}

RESHARD_INLINE Index SavePlan::bytes_of(int rank) const noexcept {
    std::span<Extent const> const extents = extents_of(rank);
    return extents.empty() ? 0 : extents.back().begin + bytes_of(extents.back());
}

RESHARD_INLINE SavePlan plan_save(std::span<PlacedTensor const> tensors, int ranks, SaveOptions const& options) {
    return detail::SavePlanner(tensors, ranks, options).run(-1);
}

RESHARD_INLINE SavePlan detail::plan_save_of_rank(std::span<PlacedTensor const> tensors, int ranks, int rank,
                                                  SaveOptions const& options, SaveDealer* dealt) {
    SavePlanner planner(tensors, ranks, options);
    SavePlan plan = planner.run(rank);
    if (dealt != nullptr) *dealt = planner.dealt();
    return plan;
}

RESHARD_INLINE std::string explain(SavePlan const& plan, std::size_t most) {
    using detail::append, detail::bytes_text, detail::count_text;
    auto const count = [](std::size_t n) { return detail::as_index(n); };
    Manifest const& manifest = plan.manifest;
    std::string text =
        errors::concat("save ", count_text(count(manifest.tensors.size()), "tensor"), " as ",
                       count_text(count(manifest.extents.size()), "extent"), " in ",
                       count_text(count(manifest.files.size()), "file"), " of ", count_text(plan.ranks, "rank"), ", ",
                       name(plan.dedup), "\n  ", bytes_text(plan.bytes_held), " held, ", bytes_text(plan.bytes_written),
                       " written, ", bytes_text(plan.bytes_held - plan.bytes_written), " of copies left out\n");
    if (plan.bytes_written > 0) {
        Index const hundredths = static_cast<Index>(100.0 * static_cast<double>(plan.bytes_busiest) * plan.ranks /
                                                    static_cast<double>(plan.bytes_written));
        append(text, {"  busiest rank ", bytes_text(plan.bytes_busiest), ", ", hundredths / 100, ".",
                      hundredths / 10 % 10, hundredths % 10, " times the mean of all ranks\n"});
    }
    for (std::size_t f = 0; f < manifest.files.size() && f < most; ++f) {
        int const rank = manifest.files[f].writer;
        append(text, {"  rank ", rank, ": ", count_text(count(plan.extents_of(rank).size()), "extent"), ", ",
                      bytes_text(plan.bytes_of(rank)), "\n"});
    }
    if (manifest.files.size() > most) append(text, {"  and ", manifest.files.size() - most, " more ranks\n"});
    return text;
}

}  // namespace reshard::inline v0_1
