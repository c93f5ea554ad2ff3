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

/// What the runs come to.
struct SumVerdict {
    Index extents = 0;             ///< summed up from end to end
    Index bytes = 0;               ///< of those
    std::vector<ExtentRun> wrong;  ///< extents whose sum is not the one that was saved, with the sum that they have
    std::vector<ExtentRun> parts;  ///< runs of extents that were not summed up from end to end, joined where they touch
};

/// Sums up. `runs` in any order, also several times the same bytes.
[[nodiscard]] inline SumVerdict sum_up(Catalogue const& catalogue, std::vector<ExtentRun> runs) {
    sort_list(runs, [](ExtentRun const& a, ExtentRun const& b) {
        return std::tie(a.extent, a.begin, a.end) < std::tie(b.extent, b.begin, b.end);
    });
    runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
    SumVerdict verdict;
    std::vector<ExtentRun> joined;  // each reaches from a place where some run begins; all of one extent
    for (std::size_t i = 0; i < runs.size();) {
        Extent const& extent = catalogue.extents()[static_cast<std::size_t>(runs[i].extent)];
        Index const whole = catalogue.extent_bytes(extent);
        Index const number = runs[i].extent;
        joined.clear();
        for (; i < runs.size() && runs[i].extent == number; ++i) {
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
        auto const all = std::find_if(joined.begin(), joined.end(),
                                      [&](ExtentRun const& run) { return run.begin == 0 && run.end == whole; });
        if (all == joined.end()) {
            verdict.parts.insert(verdict.parts.end(), joined.begin(), joined.end());
            continue;
        }
        ++verdict.extents;
        verdict.bytes += whole;
        if (all->crc32c != Index{extent.crc32c}) verdict.wrong.push_back(*all);
    }
    return verdict;
}

/// Collects the sums of what one rank reads. \pre the catalogue outlives it
class ExtentSums {
public:
    /// `extents` are the places of those that count, sorted; those without a checksum do not.
    ExtentSums(Catalogue const& catalogue, std::vector<std::size_t> extents)
        : catalogue_(&catalogue), extents_(std::move(extents)) {
        auto const unknown = [&](std::size_t i) { return !catalogue.extents()[i].has_checksum; };
        extents_.erase(std::remove_if(extents_.begin(), extents_.end(), unknown), extents_.end());
        extents_.erase(std::unique(extents_.begin(), extents_.end()), extents_.end());
    }

    /// Bytes of the data section of a file, just read. From several threads at once.
    void add(int file, Index begin, std::span<std::byte const> bytes) {
        Index const end = begin + static_cast<Index>(bytes.size());
        auto const all = catalogue_->extents();
        auto at = std::lower_bound(extents_.begin(), extents_.end(), begin, [&](std::size_t i, Index position) {
            if (all[i].file != file) return all[i].file < file;
            return all[i].begin + catalogue_->extent_bytes(all[i]) <= position;
        });
        for (; at != extents_.end() && all[*at].file == file && all[*at].begin < end; ++at) {
            Extent const& extent = all[*at];
            Index const from = larger(begin, extent.begin);
            Index const to = smaller(end, extent.begin + catalogue_->extent_bytes(extent));
            if (from >= to) continue;
            auto const part =
                bytes.subspan(static_cast<std::size_t>(from - begin), static_cast<std::size_t>(to - from));
            ExtentRun const run{static_cast<Index>(*at), from - extent.begin, to - extent.begin, Index{crc32c(part)}};
            std::lock_guard<std::mutex> const lock(guard_);
            runs_.push_back(run);
        }
    }
    /// \pre no reads are under way
    [[nodiscard]] std::vector<ExtentRun> const& runs() const noexcept { return runs_; }

private:
    Catalogue const* catalogue_;
    std::vector<std::size_t> extents_;
    std::mutex guard_;
    std::vector<ExtentRun> runs_;
};

/// Which extent it is and what is wrong with it.
[[nodiscard]] inline std::string describe_wrong(Catalogue const& catalogue, ExtentRun const& wrong) {
    Extent const& extent = catalogue.extents()[static_cast<std::size_t>(wrong.extent)];
    return concat(describe(catalogue.manifest(), extent), ", in ",
                  quote_name(catalogue.files()[static_cast<std::size_t>(extent.file)].leaf), " at byte ", extent.begin,
                  " of its data: the CRC-32C of its ", wrong.end, " bytes is 0x",
                  hex_text(static_cast<std::uint64_t>(wrong.crc32c), 8), ", but was 0x", hex_text(extent.crc32c, 8),
                  " when it was saved");
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
    ReadTotals read(std::span<ReadBox const> boxes, ReadOptions const& options, std::byte* scratch = nullptr) {
        auto const read_at = [&](int file, Index begin, std::span<std::byte> out) { read(file, begin, out); };
        return read_boxes(boxes, options, read_at, scratch);
    }
    /// What is read from now on of `extents`, sorted, is summed up. \pre the catalogue outlives this
    void sum_up(Catalogue const& catalogue, std::vector<std::size_t> extents) {
        sums_.emplace(catalogue, std::move(extents));
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
