// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_files.hpp
/// \brief  The files of a catalogue, opened by the ranks that read them and checked to be the ones that were meant;
///         the CRC-32C of extents, summed up from whatever runs of them are read, by whichever threads and ranks; and
///         how ranks come to one catalogue: one looks at the path, and tells the others.
/// \depends checkpoint/{catalogue,checksum,ranged_read}, checkpoint/detail/{catalogue_bytes,listed_files},
/// comm/collectives, <mutex>.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/detail/catalogue_bytes.hpp>
#include <reshard/checkpoint/detail/listed_files.hpp>
#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/ranged_read.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/core/sorting.hpp>

#include <algorithm>  // count, equal, find, lower_bound
#include <iterator>   // ssize
#include <memory>     // unique_ptr
#include <mutex>      // mutex

namespace reshard::inline v0_1::detail {

/// The sum of a run of an extent. Ranks tell them each other as they are.
struct ExtentRun {
    Index extent = -1;  ///< place in the catalogue; -1: nothing
    Index begin = 0;    ///< bytes from the extent's first
    Index end = 0;
    Index crc32c = 0;
    friend bool operator==(ExtentRun const&, ExtentRun const&) = default;
};

/// What has a sum where a run begins: a block of its extent, or all of it.
[[nodiscard]] inline SummedBytes summed_bytes(Catalogue const& catalogue, ExtentRun const& run) noexcept {
    return summed_bytes(catalogue.manifest(), catalogue.extents()[as_size(run.extent)], run.begin);
}
/// All extents that have a checksum.
[[nodiscard]] inline std::vector<ExtentRun> whole_runs(Catalogue const& catalogue) {
    std::vector<ExtentRun> runs;
    for (std::size_t i = 0; i < catalogue.extents().size(); ++i) {
        Extent const& extent = catalogue.extents()[i];
        if (extent.has_checksum) runs.push_back({as_index(i), 0, catalogue.extent_bytes(extent), 0});
    }
    return runs;
}

/// What the runs come to.
struct SumVerdict {
    Index bytes = 0;               ///< compared with a sum that was saved
    std::vector<ExtentRun> wrong;  ///< the first of each extent with another sum than was saved, with the one it has
    std::vector<ExtentRun> parts;  ///< runs of what was not summed up from end to end, joined where they touch
};

/// Sums up. `runs` in any order, also several times the same bytes; none is of two blocks. Those of nothing count for
/// nothing.
[[nodiscard]] inline SumVerdict sum_up(Catalogue const& catalogue, std::vector<ExtentRun> runs) {
    std::erase_if(runs, [](ExtentRun const& run) { return run.extent < 0; });
    sort_list(runs, [](ExtentRun const& a, ExtentRun const& b) {
        return std::tie(a.extent, a.begin, a.end) < std::tie(b.extent, b.begin, b.end);
    });
    runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
    SumVerdict verdict;
    std::vector<ExtentRun> joined;  // each reaches from a place where some run begins; all of one block
    for (std::size_t i = 0; i < runs.size();) {
        SummedBytes const saved = summed_bytes(catalogue, runs[i]);
        Index const number = runs[i].extent;
        joined.clear();
        for (; i < runs.size() && runs[i].extent == number && runs[i].begin < saved.end; ++i) {
            ExtentRun const& run = runs[i];
            auto const before = std::ranges::find(joined, run.begin, &ExtentRun::end);
            if (before == joined.end()) {
                joined.push_back(run);
                continue;
            }
            auto const sum = crc32c_combine(static_cast<std::uint32_t>(before->crc32c),
                                            static_cast<std::uint32_t>(run.crc32c), run.end - run.begin);
            *before = {number, before->begin, run.end, Index{sum}};
        }
        auto const all = std::ranges::find_if(
            joined, [&](ExtentRun const& run) { return run.begin == saved.begin && run.end == saved.end; });
        if (all == joined.end()) {
            verdict.parts.insert(verdict.parts.end(), joined.begin(), joined.end());
            continue;
        }
        verdict.bytes += saved.end - saved.begin;
        bool const listed = !verdict.wrong.empty() && verdict.wrong.back().extent == number;
        if (all->crc32c != Index{saved.crc32c} && !listed) verdict.wrong.push_back(*all);
    }
    return verdict;
}

/// Collects the sums of what one rank reads.
class ExtentSums {
public:
    /// `counted`: of what it does, sorted and apart.
    explicit ExtentSums(std::vector<ExtentRun> counted) : counted_(std::move(counted)) {}

    /// Bytes of the data section of a file, just read. From several threads at once.
    void add(Catalogue const& catalogue, int file, Index begin, std::span<std::byte const> bytes) {
        Index const end = begin + as_index(bytes.size());
        auto const all = catalogue.extents();
        auto const extent_of = [&](ExtentRun const& run) -> Extent const& { return all[as_size(run.extent)]; };
        auto at = std::lower_bound(counted_.begin(), counted_.end(), begin, [&](ExtentRun const& run, Index position) {
            Extent const& extent = extent_of(run);
            return extent.file != file ? extent.file < file : extent.begin + run.end <= position;
        });
        for (; at != counted_.end() && extent_of(*at).file == file; ++at) {
            Index const offset = extent_of(*at).begin;
            if (offset + at->begin >= end) break;
            ExtentRun run = *at;
            run.begin = larger(begin - offset, at->begin);
            Index const to = smaller(end - offset, at->end);
            for (; run.begin < to; run.begin = run.end) {
                run.end = smaller(to, summed_bytes(catalogue, run).end);
                run.crc32c = crc32c(bytes.subspan(as_size(offset + run.begin - begin), as_size(run.end - run.begin)));
                std::lock_guard<std::mutex> const lock(guard_);
                runs_.push_back(run);
            }
        }
    }
    /// \pre no reads are under way
    [[nodiscard]] std::vector<ExtentRun> const& runs() const noexcept { return runs_; }

private:
    std::vector<ExtentRun> counted_;
    std::mutex guard_;
    std::vector<ExtentRun> runs_;
};

/// Which extent it is and what is wrong with it.
[[nodiscard]] inline std::string describe_wrong(Catalogue const& catalogue, ExtentRun const& wrong) {
    Extent const& extent = catalogue.extents()[as_size(wrong.extent)];
    Index const whole = catalogue.extent_bytes(extent);
    std::string const bytes =
        wrong.end - wrong.begin == whole ? concat(whole, " bytes") : concat("bytes ", wrong.begin, " to ", wrong.end);
    return concat(describe(catalogue.manifest(), extent), ", in ",
                  quote_name(catalogue.files()[as_size(extent.file)].leaf), " at byte ", extent.begin,
                  " of its data: the CRC-32C of its ", bytes, " is 0x",
                  hex_text(static_cast<std::uint64_t>(wrong.crc32c), 8), ", but was 0x",
                  hex_text(summed_bytes(catalogue, wrong).crc32c, 8), " when it was saved");
}
/// Throws FormatError for the first of them, if any. `who` reads says what takes them as they are.
inline void refuse_wrong(Catalogue const& catalogue, std::span<ExtentRun const> wrong,
                         std::string_view who = "reshard::load",
                         std::string_view fix =
                             "fetch the file again, or load another checkpoint; verify_checksums = "
                             "Checksums::none loads it as it is.") {
    if (wrong.empty()) return;
    std::vector<Index> extents;  // an extent may be there twice: what this rank has read, and what several have
    for (ExtentRun const& run : wrong) extents.push_back(run.extent);
    sort_list(extents);
    auto const count = std::unique(extents.begin(), extents.end()) - extents.begin();
    std::string const more = count == 1 ? std::string() : concat(" (and ", count - 1, " more extents are wrong)");
    raise(ErrorCode::format, who, ": ", describe_wrong(catalogue, wrong.front()), more, ". Fix: ", fix);
}

/// Throws MismatchError where this rank has full files of its own and a manifest of its own with other sums: of another
/// training, headers and sizes are equal. What one run has written is known by its id, without the rest of the text.
inline void check_own_manifest(std::string const& folder, Manifest const& told) {
    std::string const path = join_path(folder, manifest_name);
    if (path_kind(path) == PathKind::missing) return;
    Index bytes = 0;
    FileDescriptor const file = open_for_reading(path, bytes);
    std::string head(as_size(smaller<Index>(bytes, 256)), '\0');
    read_fully(file, path, 0, std::as_writable_bytes(std::span(head)));
    if (head.find(concat("\"save\": \"", told.save, "\"")) != std::string::npos) return;

    Manifest const own = manifest_from(read_json_text(path, max_manifest_bytes), path);
    auto const alike = [](Extent const& a, Extent const& b) {
        bool const summed = a.has_checksum && b.has_checksum;
        return a.begin == b.begin && (!summed || a.crc32c == b.crc32c);
    };
    for (int i = 0; as_size(i) < told.files.size(); ++i) {
        std::string const& leaf = told.files[as_size(i)].leaf;
        auto at = own.files.begin() + smaller(Index{i}, std::ssize(own.files));  // most likely
        if (at == own.files.end() || at->leaf != leaf) at = std::ranges::find(own.files, leaf, &CheckpointFile::leaf);
        if (at == own.files.end()) continue;
        auto const same = static_cast<int>(at - own.files.begin());
        if (std::ranges::equal(extents_in(told, i), extents_in(own, same), alike)) continue;
        raise(ErrorCode::mismatch, "reshard: ", join_path(folder, leaf), " has other data, as the checksums in the ",
              manifest_name, " beside it say, but the rank that read the list of tensors saw another version of it",
              ". Fix: give every rank the files of one save.");
    }
}

/// The catalogue of a checkpoint, and the files of it that this rank opens: before the first read; reads from several
/// threads are safe.
class LoadFiles {
public:
    LoadFiles() = default;
    /// What a list says is there. Throws as Checkpoint::open().
    explicit LoadFiles(FileList list) : path_(list.source) {
        CheckpointKind const kind = list.kind;
        catalogue_ = Catalogue(read_headers(std::move(list), own_, false), kind);
        make_room();
    }
    /// What somebody else has found. `path` is as in Checkpoint::open(); files that are `open` stay so.
    LoadFiles(std::string path, Catalogue catalogue, OpenFiles open = {})
        : path_(std::move(path)), catalogue_(std::move(catalogue)), told_(true), own_(std::move(open)) {
        make_room();
    }
    /// For a rank that has opened the whole checkpoint. \pre it outlives this.
    explicit LoadFiles(Checkpoint const& checkpoint) : catalogue_(checkpoint), checkpoint_(&checkpoint) { make_room(); }

    /// Where the list of tensors was found.
    [[nodiscard]] std::string const& path() const noexcept { return path_; }
    [[nodiscard]] Catalogue const& catalogue() const noexcept { return catalogue_; }
    /// Its tensors by other names. \pre files and extents stay where they are
    template <class Rename>
    void rename(Rename&& rename) {
        catalogue_ = rename(std::move(catalogue_));
    }
    [[nodiscard]] std::string path_of(int file) const {
        return join_path(folder(), catalogue_.files()[as_size(file)].leaf);
    }

    /// Throws IoError or FormatError as SafetensorsFile::open(), MismatchError for another version of the file;
    /// FormatError where the manifest contradicts its header, unless `entries` are looked at by the caller.
    SafetensorsFile const& open(int file, bool entries = true) {
        auto const i = as_size(file);
        if (files_[i] != nullptr) return *files_[i];
        if (checkpoint_ == nullptr && !own_[i]) {
            Manifest const& manifest = catalogue_.manifest();
            bool const compared = entries && catalogue_.kind() == CheckpointKind::manifest;  // others are the headers
            SafetensorsFile opened = compared ? open_compared(folder(), manifest, i, refuse_entry)
                                              : open_listed(folder(), manifest, i, catalogue_.kind(), false);
            // Files of a save have its id in their names: only full files may be another run's.
            if (told_ && catalogue_.kind() == CheckpointKind::manifest && !is_shard_file(manifest.files[i].leaf)) {
                check_own_manifest(folder(), manifest);
                told_ = false;
            }
            own_[i] = std::move(opened);
        }
        return *(files_[i] = checkpoint_ != nullptr ? &checkpoint_->files()[i] : &*own_[i]);
    }
    /// Calls tell(text) for what a manifest says is in a file and its header does not. Throws as open().
    template <class Tell>
    void compare_entries(int file, Tell&& tell) const {
        if (catalogue_.kind() != CheckpointKind::manifest) return;
        static_cast<void>(open_compared(folder(), catalogue_.manifest(), as_size(file), tell));
    }
    /// \pre open(file)
    void read(int file, Index begin, std::span<std::byte> out) {
        files_[as_size(file)]->read_data(begin, out);
        if (sums_ != nullptr) sums_->add(catalogue_, file, begin, out);
    }
    /// Boxes of them: see read_boxes().
    ReadTotals read(ReadPlan const& plan, std::byte* scratch = nullptr) {
        auto const read_at = [&, this](int file, Index begin, std::span<std::byte> out) { read(file, begin, out); };
        return read_boxes(plan, read_at, scratch);
    }
    /// What is read from now on of `counted`, sorted and apart, is summed up.
    void count_sums(std::vector<ExtentRun> counted) { sums_ = std::make_unique<ExtentSums>(std::move(counted)); }
    /// What that came to. \pre count_sums(), and no reads are under way
    [[nodiscard]] SumVerdict sum() const { return sum_up(catalogue_, sums_->runs()); }
    /// Files that were opened for their data.
    [[nodiscard]] Index count() const noexcept {
        return std::ssize(files_) - std::count(files_.begin(), files_.end(), nullptr);
    }
    /// The texts that were given to save(), at the end: the list of tensors goes with them.
    [[nodiscard]] Metadata take_metadata() noexcept {
        Metadata result = std::move(catalogue_).manifest().metadata;
        std::erase_if(result, [](auto const& item) {
            return item.first.starts_with(mch_table_key) || item.first == mch_replaced_key;
        });
        return result;
    }
    /// Throws IoError if a file that was opened has changed since.
    void check_unchanged() const {
        for (SafetensorsFile const* file : files_)
            if (file != nullptr) file->check_unchanged();
    }

private:
    void make_room() {
        files_.resize(catalogue_.files().size());
        own_.resize(files_.size());
    }
    /// Looked at by who opens a file only: others may have none. Where nothing is, a path is a file's by its name.
    [[nodiscard]] std::string folder() const {
        PathKind const kind = path_kind(path_);
        bool const is_file = kind == PathKind::file || path_.ends_with(".json") || path_.ends_with(".safetensors");
        return kind == PathKind::folder || !is_file ? path_ : folder_or_none(path_);
    }

    std::string path_;
    Catalogue catalogue_;
    Checkpoint const* checkpoint_ = nullptr;
    bool told_ = false;  ///< another rank has read the manifest, and this one has not looked whether it has the same
    OpenFiles own_;
    std::vector<SafetensorsFile const*> files_;  ///< those that are open here for their data
    std::unique_ptr<ExtentSums> sums_;
};

/// What is at a path: with a manifest no file is open yet, without all are. Throws as Checkpoint::open().
[[nodiscard]] inline LoadFiles look_at(std::string const& path) {
    return read_list(path, [](FileList list) { return LoadFiles(std::move(list)); });
}

/// Files that are opened for such a list of tensors: manifest, index, and files for their headers.
[[nodiscard]] inline Index lists_opened(Catalogue const& catalogue) noexcept {
    CheckpointKind const kind = catalogue.kind();
    Index const headers = kind == CheckpointKind::manifest ? 0 : std::ssize(catalogue.files());
    return headers + (kind == CheckpointKind::manifest || kind == CheckpointKind::index ? 1 : 0);
}

/// Collective. Calls `load()`, and again where a save has overtaken it: all ranks have the same error then.
template <class Load>
auto load_saved(Load&& load) {
    for (int overtaken = 1; overtaken < most_overtakings; ++overtaken) {
        try {
            return load();
        } catch (Error const& error) {
            bool const lost = error.code() == ErrorCode::peer_failed;
            if (lost || std::string_view(error.message()).find(overtaken_words) == std::string_view::npos) throw;
        }
    }
    return load();
}

[[nodiscard]] inline std::vector<std::byte> list_text(Catalogue const& catalogue) {
    ByteWriter out;
    out.number(catalogue.kind());
    pass(out, catalogue.manifest());
    return out.take();
}
[[nodiscard]] inline Catalogue catalogue_from(std::span<std::byte const> text) {
    ByteReader in(text);
    CheckpointKind kind{};
    Manifest manifest;
    in.number(kind);
    pass(in, manifest);
    return Catalogue(std::move(manifest), kind);
}

/// The text of one rank becomes that of all. Collective: two broadcasts, and between them an agreement about what is
/// pending and about memory for the text.
inline void broadcast_text(CommunicatorRef comm, int root, std::vector<std::byte>& text, TransferLists& lists,
                           PendingVerdict& pending) {
    Index size = pending.ok() ? as_index(text.size()) : 0;
    broadcast(comm, std::as_writable_bytes(std::span(&size, 1)), root, lists);
    pending.attempt([&] { text.resize(as_size(size)); });
    pending.agree(comm);
    broadcast(comm, text, root, lists);
}

/// Collective. What rank `root` has found is what all know. Throws the same error on every rank; what fails at the
/// end is pending.
inline void share_list(LoadFiles& files, std::string const& path, CommunicatorRef comm, int root, TransferLists& lists,
                       PendingVerdict& pending) {
    bool const knows = comm.rank() == root;
    std::vector<std::byte> text;
    pending.attempt([&] {
        if (knows) text = list_text(files.catalogue());
    });
    broadcast_text(comm, root, text, lists, pending);
    pending.attempt([&] {
        if (!knows) files = LoadFiles(path, catalogue_from(text));
    });
}

/// Collective. What rank 0 finds at a path, on all ranks, about what is pending too; what fails at the end is pending.
[[nodiscard]] inline LoadFiles look_together(std::string const& path, CommunicatorRef comm, TransferLists& lists,
                                             PendingVerdict& pending) {
    LoadFiles files;
    pending.attempt([&] {
        if (comm.rank() == 0) files = look_at(path);
    });
    pending.agree(comm);
    share_list(files, path, comm, 0, lists, pending);
    return files;
}

}  // namespace reshard::inline v0_1::detail
