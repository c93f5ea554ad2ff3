// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_files.hpp
/// \brief  The files of a catalogue, opened by the ranks that read them and checked to be the ones that were meant.
/// \depends checkpoint/catalogue.hpp.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>

#include <optional>

namespace reshard::inline v0::detail {

/// Files are opened before the first read; reads from several threads are safe.
class LoadFiles {
public:
    /// For a rank that has opened the whole checkpoint. \pre it outlives this.
    explicit LoadFiles(Checkpoint const& checkpoint) : checkpoint_(&checkpoint), opened_(checkpoint.files().size()) {}
    /// For a rank that knows the catalogue only. `path` is as in Checkpoint::open(). \pre the catalogue outlives this.
    LoadFiles(Catalogue const& catalogue, std::string path)
        : catalogue_(&catalogue),
          path_(std::move(path)),
          own_(catalogue.files().size()),
          opened_(catalogue.files().size()) {}

    /// Throws IoError or FormatError as SafetensorsFile::open(), MismatchError for another version of the file.
    void open(int file) {
        auto const i = static_cast<std::size_t>(file);
        if (!opened_[i]) ++count_;
        opened_[i] = true;
        if (checkpoint_ != nullptr || own_[i]) return;
        CheckpointFile const& meant = catalogue_->files()[i];
        own_[i] = SafetensorsFile::open(join_path(folder(), meant.leaf));
        if (own_[i]->file_bytes() == meant.file_bytes && own_[i]->header_digest() == meant.header_digest) return;
        raise(ErrorCode::mismatch,
              concat("reshard::load: ", own_[i]->path(), " has ", own_[i]->file_bytes(),
                     " bytes, but the rank that read the list of tensors saw another version of it, with ",
                     meant.file_bytes, ". Fix: give every rank the same files."));
    }
    void read(int file, Index begin, std::span<std::byte> out) const { at(file).read_data(begin, out); }
    [[nodiscard]] Index count() const noexcept { return count_; }
    /// Throws IoError if a file that was opened has changed since.
    void check_unchanged() const {
        for (std::size_t i = 0; i < opened_.size(); ++i)
            if (opened_[i]) at(static_cast<int>(i)).check_unchanged();
    }

private:
    /// Looked at by who opens a file only: others may have none.
    [[nodiscard]] std::string folder() const {
        if (path_kind(path_) == PathKind::folder) return path_;
        return path_.find('/') == std::string::npos ? std::string() : folder_of(path_);
    }
    [[nodiscard]] SafetensorsFile const& at(int file) const {
        auto const i = static_cast<std::size_t>(file);
        return checkpoint_ != nullptr ? checkpoint_->files()[i] : *own_[i];
    }

    Checkpoint const* checkpoint_ = nullptr;
    Catalogue const* catalogue_ = nullptr;
    std::string path_;
    std::vector<std::optional<SafetensorsFile>> own_;
    std::vector<bool> opened_;
    Index count_ = 0;
};

}  // namespace reshard::inline v0::detail
