// SPDX-License-Identifier: Apache-2.0
// How mch/checkpoint.hpp is done.
#pragma once

#include <reshard/checkpoint/file.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/mch/checkpoint.hpp>
#include <reshard/mch/detail/checkpoint_load.hpp>
#include <reshard/mch/detail/checkpoint_route.hpp>

#include <algorithm>  // any_of, sort
#include <cstring>    // memset

namespace reshard::inline v0_1 {

namespace detail {
/// "save 0123456789abcdef"
[[nodiscard]] inline std::string which_save(std::string_view id) {
    return id.empty() ? "files without the id of a save" : concat("save ", id);
}
}  // namespace detail

RESHARD_INLINE MchCheckpoint MchCheckpoint::open(std::string folder, std::string const& save) {
    std::string const manifest = detail::join_path(folder, manifest_name);
    bool const is_old = detail::path_kind(manifest) == detail::PathKind::missing;
    std::string const index = is_old ? detail::join_path(folder, detail::mch_old_index) : manifest;
    MchCheckpoint opened = detail::read_saved(
        index, [&] { return MchCheckpoint(std::make_shared<detail::MchFiles>(detail::open_tables(folder))); });
    if (save.empty() || opened.save_id() == save) return opened;
    errors::raise(ErrorCode::mismatch, "reshard::MchCheckpoint: ", folder, " holds ",
                  detail::which_save(opened.save_id()), ", not ", detail::which_save(save),
                  ", of which the rest is. Fix: load all of it again, and let saves and loads of one folder take "
                  "turns.");
}

RESHARD_INLINE MchCheckpoint MchCheckpoint::open(std::string const& folder, CommunicatorRef comm,
                                                 std::string const& save) {
    for (int overtaken = 1;; ++overtaken) {
        MchCheckpoint opened(nullptr);
        std::string words;
        std::uint64_t digest = 0;
        auto mine = detail::verdict_of(
            [&] {
                opened = open(folder, save);
                words = errors::concat("sees ", detail::which_save(opened.save_id()), " in ", folder);
                digest = opened.files_->catalogue().digest();
            },
            "MchCheckpoint::open");
        if (mine.ok()) {
            mine.digest = digest;
            mine.reason = std::move(words);
        }
        auto all = detail::agreed(comm, std::move(mine));
        if (all.ok()) return opened;
        if (all.code == ErrorCode::mismatch && !all.apart && overtaken < detail::most_overtakings) continue;
        detail::raise_agreed(std::move(all), comm.size());
    }
}

RESHARD_INLINE std::string const& MchCheckpoint::folder() const& noexcept { return files_->folder(); }

RESHARD_INLINE std::string const& MchCheckpoint::save_id() const& noexcept {
    return files_->catalogue().manifest().save;
}

RESHARD_INLINE Index MchCheckpoint::ranks() const noexcept { return files_->catalogue().manifest().world_size; }

RESHARD_INLINE std::vector<std::string> MchCheckpoint::names() const {
    std::vector<std::string> list;
    for (detail::MchSavedTable const& one : files_->tables()) list.push_back(one.table.name);
    return list;
}

RESHARD_INLINE MchTable const& MchCheckpoint::table(std::string_view name) const& { return find(name).table; }

RESHARD_INLINE Index MchCheckpoint::iteration(std::string_view name) const { return find(name).iteration; }

RESHARD_INLINE std::vector<MchRowsInfo> const& MchCheckpoint::rows(std::string_view name) const& {
    return find(name).rows;
}

RESHARD_INLINE std::vector<MchIdBounds> const& MchCheckpoint::ids(std::string_view name) const& {
    return find(name).ids;
}

RESHARD_INLINE MchLoadResult MchCheckpoint::load(std::string_view name, MchTable const& current, Index rank,
                                                 MchState const& state, std::span<MchRows const> rows,
                                                 MchLoadOptions const& options) {
    detail::MchSavedTable const& saved = find(name);
    detail::MchReader reader(*files_, saved, current, rank, state, rows, options);
    MchShard const& shard = reader.shard();
    if (shard.segments != nullptr) {
        detail::MchBuffers(current, rank).check_segments(shard.segment_count, saved.table, "that were saved");
    }
    MchLoadResult loaded{reader.adapted(), saved.iteration};
    std::vector<MchRead> const overlaps = detail::overlaps_of(saved.table, shard.range());
    for (MchRead const& one : overlaps) reader.check_part(one.part);
    for (MchRead const& one : overlaps) {
        Index const to = saved.table.part_range(one.part).begin + one.begin - shard.offset;
        MchShard columns = shard;
        columns.ids += to;
        if (shard.slots != nullptr) columns.slots += to;
        for (std::size_t c = 0; c < shard.metadata.size(); ++c) columns.metadata[c] += to * current.metadata[c].bytes;
        loaded.live += reader.read_entries(one, columns, shard.entries, [](Index, Index) {}).live;
    }
    for (MchRows const& one : rows) reader.read_rows_in_place(one);
    files_->check_unchanged();
    shard.write_constants(saved.table, saved.iteration);
    loaded.bytes_read = reader.bytes_read();
    loaded.shards_read = detail::as_index(overlaps.size());
    return loaded;
}

RESHARD_INLINE MchLoadedChange MchCheckpoint::load_redistributed(std::string_view name, MchTable const& current,
                                                                 Index rank, MchState const& state,
                                                                 std::span<MchRows const> rows, MchOptions const& mode,
                                                                 MchLoadOptions const& options) {
    detail::check_threads(mode);
    MchLoadedChange result;
    MchChange& change = result.change;
    detail::MchSavedTable const& saved = find(name);
    bool const resize = options.resize && current.layout == MchLayout::sorted;
    if (resize && mode.mode != MchMode::route && saved.table.size() != current.size()) {
        detail::refuse_table(ErrorCode::mismatch, current,
                             "slots of another number have no saved owner. Fix: MchMode::route, or the saved size.");
    }
    detail::MchReader reader(*files_, saved, current, rank, state, rows, options, resize);
    reader.check_rows_given(rows);
    if (current.layout == MchLayout::buckets) {
        result.loaded = load(name, current, rank, state, rows, options);
        Reach const here = reach(current, state, rank);
        change.live_before = change.live_after = here.live;
        change.unreachable = here.unreachable;
        return result;
    }
    MchShard const& shard = reader.shard();
    result.loaded = {reader.adapted(), saved.iteration};
    auto const reads = plan_reads(reader.adapted(), current, rank, mode.mode, saved.ids);
    std::vector<char> touched(detail::as_size(saved.table.parts()));
    for (MchRead const& read : reads) touched[detail::as_size(read.part)] = 1;
    for (MchRead const& one : detail::overlaps_of(saved.table, shard.range())) {
        if (!rows.empty()) touched[detail::as_size(one.part)] = 1;
    }
    Index const part = current.slots.mesh().ordinal(rank);
    auto const miss = detail::miss_move(saved.table, current, part);
    if (miss && !rows.empty()) touched[detail::as_size(SlotRouter(saved.table.slots)(miss->from))] = 1;
    for (std::size_t p = 0; p < touched.size(); ++p) {
        if (touched[p] == 0) continue;
        reader.check_part(detail::as_index(p));
        ++result.loaded.shards_read;
    }

    detail::MchPicker picker(saved, current, rank, mode);
    for (MchRead const& read : reads) {
        result.loaded.live += saved.ids[detail::as_size(read.part)].live;
        picker.pick(reader, read);
    }
    // What bounds without a checksum say of other shards may be wrong unnoticed.
    for (Index p = 0; !files_->sealed() && p < saved.table.parts(); ++p) {
        bool const picked = std::any_of(reads.begin(), reads.end(), [&](auto const& one) { return one.part == p; });
        if (!picked) picker.check(reader, p);
    }
    change.live_before = change.received = picker.entries();
    change.left_out = std::move(picker.left_out());
    std::vector<std::byte> block = picker.packed();
    detail::MchIncoming incoming(current, shard, mode.threads);
    incoming.expect(static_cast<int>(rank), change.received, saved.iteration, block.data());
    incoming.arrange(mode.mode, change);
    bool const was_saved = part >= 0 && part < saved.table.parts();
    incoming.list_rows(saved.table, part, was_saved ? saved.ids[detail::as_size(part)].live : 0, change);
    std::vector<MchRowMove> moves = change.moves;
    std::sort(moves.begin(), moves.end(), [](MchRowMove const& a, MchRowMove const& b) { return a.from < b.from; });
    for (MchRows const& one : rows) {
        Index const bytes = one.view.shape().size() * enums::bytes(one.view.dtype());
        bool const clears = shard.entries != 0 && saved.table.size() != current.size();
        if (clears && bytes != 0) std::memset(one.view.data(), 0, detail::as_size(bytes));
        reader.read_rows_in_place(one);
        detail::read_moved_rows(reader, saved.table, one, shard.offset, moves);
    }
    files_->check_unchanged();
    Router const router(current);
    incoming.commit();  // from here on nothing throws
    change.live_after = incoming.live();
    change.unreachable = incoming.strays(router, part);
    result.loaded.bytes_read = reader.bytes_read();
    return result;
}

RESHARD_INLINE detail::MchSavedTable const& MchCheckpoint::find(std::string_view name) const {
    for (detail::MchSavedTable const& one : files_->tables())
        if (one.table.name == name) return one;
    errors::raise(ErrorCode::mismatch, "reshard::mch: ", folder(), " holds no table '", name,
                  "'; it holds: ", detail::list_of(names()), ". Fix: correct the name, or map it with match_tables().");
}

}  // namespace reshard::inline v0_1
