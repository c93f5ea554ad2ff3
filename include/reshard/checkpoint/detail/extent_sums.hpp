// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/extent_sums.hpp
/// \brief  The CRC-32C of extents, summed up from whatever runs of them are read, by whichever threads and ranks.
/// \depends checkpoint/{catalogue,checksum}.hpp, <mutex>. No I/O, no communication.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/detail/manifest_json.hpp>

#include <mutex>

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
    std::sort(runs.begin(), runs.end(), [](ExtentRun const& a, ExtentRun const& b) {
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
    [[nodiscard]] bool empty() const noexcept { return extents_.empty(); }
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

}  // namespace reshard::inline v0::detail
