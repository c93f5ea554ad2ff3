// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_files.hpp
/// \brief  The files of a catalogue, opened by the ranks that read them and checked to be the ones that were meant;
///         and the CRC-32C of extents, summed up from whatever runs of them are read, by whichever threads and ranks.
/// \depends checkpoint/{catalogue,checksum,ranged_read}.hpp, checkpoint/detail/file_list.hpp, <mutex>.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/detail/file_list.hpp>
#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/ranged_read.hpp>
#include <reshard/core/sorting.hpp>

#include <mutex>
#include <optional>

namespace reshard::inline v0::detail {

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
    return summed_bytes(catalogue.manifest(), catalogue.extents()[static_cast<std::size_t>(run.extent)], run.begin);
}
/// All of the extents at these places that have a checksum, each once.
[[nodiscard]] inline std::vector<ExtentRun> whole_runs(Catalogue const& catalogue, std::vector<std::size_t> places) {
    sort_list(places);
    places.erase(std::unique(places.begin(), places.end()), places.end());
    std::vector<ExtentRun> runs;
    for (std::size_t const i : places) {
        Extent const& extent = catalogue.extents()[i];
        if (extent.has_checksum) runs.push_back({static_cast<Index>(i), 0, catalogue.extent_bytes(extent), 0});
    }
    return runs;
}

/// What the runs come to.
struct SumVerdict {
    Index bytes = 0;               ///< compared with a sum that was saved
    std::vector<ExtentRun> wrong;  ///< the first of each extent with another sum than was saved, with the one it has
    std::vector<ExtentRun> parts;  ///< runs of what was not summed up from end to end, joined where they touch
};

/// Sums up. `runs` in any order, also several times the same bytes; none is of two blocks.
[[nodiscard]] inline SumVerdict sum_up(Catalogue const& catalogue, std::vector<ExtentRun> runs) {
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
            bool goes_on = false;
            for (ExtentRun& before : joined) {
                if (before.end != run.begin) continue;
                auto const sum = crc32c_combine(static_cast<std::uint32_t>(before.crc32c),
                                                static_cast<std::uint32_t>(run.crc32c), run.end - run.begin);
                before = {number, before.begin, run.end, Index{sum}};
                goes_on = true;
                break;
            }
            if (!goes_on) joined.push_back(run);
        }
        auto const all = std::find_if(joined.begin(), joined.end(), [&](ExtentRun const& run) {
            return run.begin == saved.begin && run.end == saved.end;
        });
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

/// Collects the sums of what one rank reads. \pre the catalogue outlives it
class ExtentSums {
public:
    /// `counted`: of what it does, sorted and apart.
    ExtentSums(Catalogue const& catalogue, std::vector<ExtentRun> counted)
        : catalogue_(&catalogue), counted_(std::move(counted)) {}

    /// Bytes of the data section of a file, just read. From several threads at once.
    void add(int file, Index begin, std::span<std::byte const> bytes) {
        Index const end = begin + static_cast<Index>(bytes.size());
        auto const all = catalogue_->extents();
        auto const extent_of = [&](ExtentRun const& run) -> Extent const& {
            return all[static_cast<std::size_t>(run.extent)];
        };
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
                run.end = smaller(to, summed_bytes(*catalogue_, run).end);
                run.crc32c = crc32c(bytes.subspan(static_cast<std::size_t>(offset + run.begin - begin),
                                                  static_cast<std::size_t>(run.end - run.begin)));
                std::lock_guard<std::mutex> const lock(guard_);
                runs_.push_back(run);
            }
        }
    }
    /// \pre no reads are under way
    [[nodiscard]] std::vector<ExtentRun> const& runs() const noexcept { return runs_; }

private:
    Catalogue const* catalogue_;
    std::vector<ExtentRun> counted_;
    std::mutex guard_;
    std::vector<ExtentRun> runs_;
};

/// Which extent it is and what is wrong with it.
[[nodiscard]] inline std::string describe_wrong(Catalogue const& catalogue, ExtentRun const& wrong) {
    Extent const& extent = catalogue.extents()[static_cast<std::size_t>(wrong.extent)];
    Index const whole = catalogue.extent_bytes(extent);
    std::string const bytes =
        wrong.end - wrong.begin == whole ? concat(whole, " bytes") : concat("bytes ", wrong.begin, " to ", wrong.end);
    return concat(describe(catalogue.manifest(), extent), ", in ",
                  quote_name(catalogue.files()[static_cast<std::size_t>(extent.file)].leaf), " at byte ", extent.begin,
                  " of its data: the CRC-32C of its ", bytes, " is 0x",
                  hex_text(static_cast<std::uint64_t>(wrong.crc32c), 8), ", but was 0x",
                  hex_text(summed_bytes(catalogue, wrong).crc32c, 8), " when it was saved");
}
/// Throws FormatError for the first of them, if any.
inline void refuse_wrong(Catalogue const& catalogue, std::span<ExtentRun const> wrong) {
    if (wrong.empty()) return;
    std::string const more =
        wrong.size() == 1 ? std::string() : concat(" (and ", wrong.size() - 1, " more extents are wrong)");
    raise(ErrorCode::format, concat("reshard::load: ", describe_wrong(catalogue, wrong.front()), more,
                                    ". Fix: fetch the file again, or load another checkpoint; verify_checksums = false "
                                    "loads it as it is."));
}

/// Files that a rank has open already, by their place in the catalogue.
using OpenFiles = std::vector<std::optional<SafetensorsFile>>;

/// Looked at by who opens a file only: others may have none. `path` is as in Checkpoint::open().
[[nodiscard]] inline std::string folder_with_files(std::string const& path) {
    return path_kind(path) == PathKind::folder ? path : folder_or_none(path);
}

/// Files are opened before the first read; reads from several threads are safe.
class LoadFiles {
public:
    /// For a rank that has opened the whole checkpoint. \pre it outlives this.
    explicit LoadFiles(Checkpoint const& checkpoint) : checkpoint_(&checkpoint), files_(checkpoint.files().size()) {}
    /// For a rank that knows the catalogue only. `path` is as in Checkpoint::open(). \pre the catalogue outlives this.
    LoadFiles(Catalogue const& catalogue, std::string path, OpenFiles open_files = {})
        : catalogue_(&catalogue),
          path_(std::move(path)),
          own_(std::move(open_files)),
          files_(catalogue.files().size()) {
        own_.resize(files_.size());
    }

    /// Throws IoError or FormatError as SafetensorsFile::open(), MismatchError for another version of the file;
    /// FormatError where the manifest contradicts its header, unless `entries` are looked at by the caller.
    void open(int file, bool entries = true) {
        auto const i = static_cast<std::size_t>(file);
        if (files_[i] != nullptr) return;
        if (checkpoint_ == nullptr && !own_[i])
            own_[i] = open_listed(folder_with_files(path_), catalogue_->manifest(), i, catalogue_->kind(), entries);
        files_[i] = checkpoint_ != nullptr ? &checkpoint_->files()[i] : &*own_[i];
        ++count_;
    }
    [[nodiscard]] bool is_open(int file) const noexcept { return files_[static_cast<std::size_t>(file)] != nullptr; }
    [[nodiscard]] SafetensorsHeader const& header(int file) const { return at(file).header(); }
    void read(int file, Index begin, std::span<std::byte> out) {
        at(file).read_data(begin, out);
        if (sums_) sums_->add(file, begin, out);
    }
    /// Boxes of them: see read_boxes().
    ReadTotals read(ReadPlan const& plan, std::byte* scratch = nullptr) {
        auto const read_at = [&, this](int file, Index begin, std::span<std::byte> out) { read(file, begin, out); };
        return read_boxes(plan, read_at, scratch);
    }
    /// What is read from now on of `counted`, sorted and apart, is summed up. \pre the catalogue outlives this
    void sum_up(Catalogue const& catalogue, std::vector<ExtentRun> counted) {
        sums_.emplace(catalogue, std::move(counted));
    }
    /// \pre sum_up(), and no reads are under way
    [[nodiscard]] std::vector<ExtentRun> const& sums() const noexcept { return sums_->runs(); }
    [[nodiscard]] Index count() const noexcept { return count_; }
    /// Throws IoError if a file that was opened has changed since.
    void check_unchanged() const {
        for (SafetensorsFile const* file : files_)
            if (file != nullptr) file->check_unchanged();
    }

private:
    /// \pre open(file)
    [[nodiscard]] SafetensorsFile const& at(int file) const noexcept { return *files_[static_cast<std::size_t>(file)]; }

    Checkpoint const* checkpoint_ = nullptr;
    Catalogue const* catalogue_ = nullptr;
    std::string path_;
    OpenFiles own_;
    std::vector<SafetensorsFile const*> files_;  ///< those that are open here
    Index count_ = 0;
    std::optional<ExtentSums> sums_;
};

}  // namespace reshard::inline v0::detail
