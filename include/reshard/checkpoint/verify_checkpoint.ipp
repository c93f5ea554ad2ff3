// SPDX-License-Identifier: Apache-2.0
// How checkpoint/verify_checkpoint.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/load_choice.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // all_of, unique
#include <optional>   // optional

namespace reshard::inline v0_1 {

namespace detail {

/// Faults that are listed one by one in a message.
inline constexpr std::size_t listed_faults = 20;

/// One rank's part of the work. \pre the files outlive it
struct CheckpointCheck {
    LoadFiles& files;
    std::vector<WantedExtent> wanted = all_extents(files.catalogue());
    std::vector<bool> usable = std::vector<bool>(files.catalogue().files().size(), true);
    std::vector<VerifyFault> faults{};
    Index bytes_read = 0;

    /// Local, on rank 0: 1 for each file that is not as large as a manifest claims, which is noted as a fault; else 0.
    [[nodiscard]] std::vector<std::byte> other_sizes() {
        std::vector<std::byte> out(usable.size());
        auto const listed = files.catalogue().files();
        for (std::size_t i = 0; i < listed.size() && files.catalogue().kind() == CheckpointKind::manifest; ++i) {
            int const file = static_cast<int>(i);
            auto const there = stamp_at(files.path_of(file));
            if ((!there || there->bytes != listed[i].file_bytes) && !can_use(file)) out[i] = std::byte{1};
        }
        return out;
    }
    /// Nothing is read of these, on all ranks: the pieces of what is only claimed may be more than memory has room for.
    void leave_out(std::span<std::byte const> other_sizes) {
        std::erase_if(wanted, [&](WantedExtent const& one) { return other_sizes[as_size(one.file)] != std::byte{0}; });
    }
    /// Opens a file and compares its header with what the catalogue says of it.
    void check_file(int file) {
        if (!can_use(file)) return;
        auto const tell = [&, this](std::string const& what) {
            faults.push_back({concat(what, "the manifest says"), false, leaf_of(file)});
        };
        attempt([&, this] { files.compare_entries(file, tell); }, file);
    }
    /// Reads this rank's pieces of a window, or notes why not.
    void read(std::span<Piece const> pieces, int rank, ReadOptions const& options, std::span<std::byte> staging) {
        std::vector<Piece> mine;
        for (Piece const& piece : pieces)
            if (can_use(wanted[piece.wanted].file)) mine.push_back(piece);
        attempt([&, this] {
            auto const boxes = staging_boxes(mine, wanted, rank, staging.data());
            auto const read_some = [&, this](std::span<ReadBox const> some) {
                bytes_read += files.read(ReadPlan(some, options)).bytes_read;
            };
            try {
                return read_some(boxes);
            } catch (Error const&) {  // one by one: the first that fails must not hide what is wrong with the others
            }
            for (ReadBox const& box : boxes) attempt([&] { read_some(std::span(&box, 1)); }, box.file);
        });
    }
    /// Notes what fails as a fault, of that file where it is of one. Whether nothing has.
    template <class Do>
    bool attempt(Do&& work, int file = -1) {
        try {
            work();
            return true;
        } catch (Error const& error) {
            bool const unread = error.code() == ErrorCode::io && file >= 0 && is_whole(file);
            faults.push_back({error.message(), unread, leaf_of(file)});
        }
        return false;
    }
    /// The name of a file, by its number; empty for -1.
    [[nodiscard]] std::string leaf_of(int file) const {
        return file < 0 ? std::string() : files.catalogue().files()[as_size(file)].leaf;
    }

private:
    [[nodiscard]] bool can_use(int file) {
        auto const i = as_size(file);
        return usable[i] = usable[i] && attempt([&, this] { files.open(file, false); }, file);
    }
    /// Whether a file is there, as large as it should be, as far as anybody can tell.
    [[nodiscard]] bool is_whole(int file) const {
        bool whole = true;
        static_cast<void>(verdict_of([&, this] {
            auto const status = status_at(files.path_of(file));
            whole = status && S_ISREG(status->st_mode) &&
                    as_index(status->st_size) == files.catalogue().files()[as_size(file)].file_bytes;
        }));
        return whole;
    }
};

[[nodiscard]] inline std::string describe_faults(std::string const& path, std::span<VerifyFault const> faults,
                                                 bool unread) {
    std::string list;
    for (std::size_t i = 0; i < faults.size() && i < listed_faults; ++i)
        list += concat("\n  ", i + 1, ". ", faults[i].text);
    if (faults.size() > listed_faults) list += concat("\n  and ", faults.size() - listed_faults, " more");
    std::string_view const one = unread ? " read failed, of what could be read nothing is wrong:" : " fault:";
    std::string_view const more = unread ? " reads failed, of what could be read nothing is wrong:" : " faults:";
    return concat("reshard::verify_checkpoint: ", path, ": ", faults.size(), faults.size() == 1 ? one : more, list,
                  unread ? "\nFix: let this process read what is named, then verify again."
                         : "\nFix: fetch the files that are named again, or use another checkpoint.");
}

/// Collective. The faults of all ranks as one error, the same on all: IoError where nothing is wrong and something
/// could not be read, else FormatError; returns where there are none.
inline void raise_faults(CommunicatorRef comm, std::string const& path, std::span<VerifyFault const> mine,
                         GatheredLists<std::byte>& room, PendingVerdict& pending, std::vector<VerifyFault>* found) {
    std::vector<std::byte> text;
    pending.attempt([&] {
        ByteWriter out;
        for (VerifyFault const& fault : mine) {
            out.text(fault.text);
            out.number(fault.unread);
            out.text(fault.file);
        }
        text = out.take();
    });
    room.gather(comm, text, pending);
    if (room.all.empty()) return;
    std::string words;
    bool unread = false;
    pending.attempt([&] {
        std::vector<VerifyFault> faults;
        for (int rank = 0; rank < comm.size(); ++rank) {
            ByteReader in(room.of(rank));
            while (!in.at_end()) {
                VerifyFault& fault = faults.emplace_back();
                in.text(fault.text);
                in.number(fault.unread);
                in.text(fault.file);
            }
        }
        sort_list(faults);  // two ranks may find the same fault of a file
        faults.erase(std::unique(faults.begin(), faults.end()), faults.end());
        unread = std::ranges::all_of(faults, &VerifyFault::unread);
        words = describe_faults(path, faults, unread);
        if (found != nullptr) *found = std::move(faults);
    });
    pending.agree(comm);
    raise_agreed(unread ? ErrorCode::io : ErrorCode::format, std::move(words));
}

/// As verify_checkpoint(), but once: a save may overtake it.
[[nodiscard]] inline VerifyReport verify_once(std::string const& path, CommunicatorRef comm, ReadOptions const& reads,
                                              Index window_bytes, std::function<void(Index, Index)> const& progress,
                                              std::vector<VerifyFault>* faults) {
    GatheredLists<std::byte> room;
    GatheredLists<ExtentRun> parts;  // of extents that several ranks read
    PendingVerdict pending("verify_checkpoint");
    pending.attempt([&] {
        room.make_room(comm.size());
        parts.make_room(comm.size());
        check_window(window_bytes);
        check(reads);
    });
    LoadFiles files = look_together(path, comm, room.lists, pending);
    Catalogue const& catalogue = files.catalogue();

    VerifyReport report;
    std::optional<CheckpointCheck> check;
    ReadSchedule schedule;
    std::vector<std::byte> staging;
    std::vector<std::byte> left_out;
    pending.attempt([&] {
        report.unlisted = with_unlisted(catalogue.manifest().files);
        check.emplace(CheckpointCheck{files});
        if (comm.rank() == 0) left_out = check->other_sizes();
    });
    broadcast_text(comm, 0, left_out, room.lists, pending);
    pending.attempt([&] {
        check->leave_out(left_out);
        schedule = spans_read(check->wanted, comm.size(), window_bytes);
        std::erase_if(schedule.pieces, [&](Piece const& piece) { return piece.reader != comm.rank(); });
        files.count_sums(summed_runs(catalogue, check->wanted, LoadOptions{}));
        staging.resize(as_size(staging_bytes(schedule, Spread::scatter, comm.rank())));
    });
    pending.agree(comm);

    SumVerdict sum;
    pending.attempt([&] {
        for (auto file = as_size(comm.rank()); file < catalogue.files().size(); file += as_size(comm.size())) {
            check->check_file(static_cast<int>(file));
        }
        Index total = 0;
        for (Piece const& piece : schedule.pieces) total += piece.bytes;
        Index done = 0;
        for_each_window(schedule, [&](std::span<Piece const> pieces) {
            check->read(pieces, comm.rank(), reads, staging);
            for (Piece const& piece : pieces) done += piece.bytes;
            if (progress && total > 0) progress(done, total);
        });
        check->attempt([&] { files.check_unchanged(); });
        sum = files.sum();
    });
    parts.gather(comm, sum.parts, pending);
    pending.attempt([&] {
        auto const tell = [&](SumVerdict const& found) {
            for (ExtentRun const& wrong : found.wrong)
                check->faults.push_back({describe_wrong(catalogue, wrong), false,
                                         check->leaf_of(catalogue.extents()[as_size(wrong.extent)].file)});
        };
        tell(sum);
        if (comm.rank() == 0) tell(sum_up(catalogue, std::move(parts.all)));
    });
    raise_faults(comm, path, check->faults, room, pending, faults);

    report.kind = catalogue.kind();
    auto const of_save = [](CheckpointFile const& file) { return is_shard_file(file.leaf); };
    report.full = !catalogue.files().empty() && std::ranges::none_of(catalogue.files(), of_save);
    report.files = as_index(catalogue.files().size());
    report.tensors = as_index(catalogue.tensors().size());
    report.extents = as_index(catalogue.extents().size());
    report.bytes_read = check->bytes_read;
    for (Extent const& extent : catalogue.extents()) {
        report.bytes += catalogue.extent_bytes(extent);
        if (!extent.has_checksum) ++report.extents_without_checksum;
    }
    return report;
}

}  // namespace detail

RESHARD_INLINE VerifyReport verify_checkpoint(std::string const& path, CommunicatorRef comm, ReadOptions const& reads,
                                              Index window_bytes, std::function<void(Index, Index)> const& progress,
                                              std::vector<VerifyFault>* faults) {
    return detail::load_saved([&] {
        if (faults != nullptr) faults->clear();
        return detail::verify_once(path, comm, reads, window_bytes, progress, faults);
    });
}

}  // namespace reshard::inline v0_1
