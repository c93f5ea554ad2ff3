// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_files.hpp
/// \brief  The files of a catalogue, opened by the ranks that read them and checked to be the ones that were meant.
/// \depends checkpoint/catalogue.hpp, checkpoint/detail/extent_sums.hpp.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/detail/extent_sums.hpp>
#include <reshard/checkpoint/detail/file_list.hpp>

#include <optional>

namespace reshard::inline v0::detail {

/// Files that a rank has open already, by their place in the catalogue.
using OpenFiles = std::vector<std::optional<SafetensorsFile>>;

/// Looked at by who opens a file only: others may have none. `path` is as in Checkpoint::open().
[[nodiscard]] inline std::string folder_with_files(std::string const& path) {
    if (path_kind(path) == PathKind::folder) return path;
    return path.find('/') == std::string::npos ? std::string() : folder_of(path);
}

/// Files are opened before the first read; reads from several threads are safe.
class LoadFiles {
public:
    /// For a rank that has opened the whole checkpoint. \pre it outlives this.
    explicit LoadFiles(Checkpoint const& checkpoint) : checkpoint_(&checkpoint), opened_(checkpoint.files().size()) {}
    /// For a rank that knows the catalogue only. `path` is as in Checkpoint::open(). \pre the catalogue outlives this.
    LoadFiles(Catalogue const& catalogue, std::string path, OpenFiles open_files = {})
        : catalogue_(&catalogue),
          path_(std::move(path)),
          own_(std::move(open_files)),
          opened_(catalogue.files().size()) {
        own_.resize(catalogue.files().size());
    }

    /// Throws IoError or FormatError as SafetensorsFile::open(), MismatchError for another version of the file;
    /// FormatError where the manifest contradicts its header, unless `entries` are looked at by the caller.
    void open(int file, bool entries = true) {
        auto const i = static_cast<std::size_t>(file);
        if (checkpoint_ == nullptr && !own_[i]) {
            own_[i] = open_listed(folder_with_files(path_), catalogue_->manifest(), i, catalogue_->kind(), entries);
        }
        if (!opened_[i]) ++count_;
        opened_[i] = true;
    }
    [[nodiscard]] bool is_open(int file) const noexcept { return opened_[static_cast<std::size_t>(file)]; }
    [[nodiscard]] SafetensorsHeader const& header(int file) const { return at(file).header(); }
    void read(int file, Index begin, std::span<std::byte> out) const {
        at(file).read_data(begin, out);
        if (sums_ != nullptr) sums_->add(file, begin, out);
    }
    /// All that is read from now on is summed up. \pre it outlives the reads.
    void sum_up(ExtentSums& sums) noexcept { sums_ = &sums; }
    [[nodiscard]] Index count() const noexcept { return count_; }
    /// Throws IoError if a file that was opened has changed since.
    void check_unchanged() const {
        for (std::size_t i = 0; i < opened_.size(); ++i)
            if (opened_[i]) at(static_cast<int>(i)).check_unchanged();
    }

    /// \pre open(file)
    [[nodiscard]] SafetensorsFile const& at(int file) const {
        auto const i = static_cast<std::size_t>(file);
        return checkpoint_ != nullptr ? checkpoint_->files()[i] : *own_[i];
    }

private:
    Checkpoint const* checkpoint_ = nullptr;
    Catalogue const* catalogue_ = nullptr;
    std::string path_;
    OpenFiles own_;
    std::vector<bool> opened_;
    Index count_ = 0;
    ExtentSums* sums_ = nullptr;
};

}  // namespace reshard::inline v0::detail
