// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/checkpoint.hpp
/// \brief  Reads a checkpoint of one or many safetensors files as one list of tensors.
/// \depends checkpoint/safetensors.hpp, POSIX.
#pragma once

#include <reshard/checkpoint/detail/weight_map.hpp>
#include <reshard/checkpoint/safetensors.hpp>

#include <dirent.h>

namespace reshard::inline v0 {

/// Open files and the tensors in them. Move-only; reads from several threads are safe.
class Checkpoint {
public:
    Checkpoint(Checkpoint&&) noexcept = default;
    Checkpoint& operator=(Checkpoint&&) noexcept = default;

    /// `path` is a `.safetensors` file, a `.json` index, or a folder with (looked for in this order)
    /// `model.safetensors.index.json`, `model.safetensors`, or exactly one other `*.safetensors`.
    /// A folder with both of the first two is refused unless the index names that very file.
    ///
    /// With an index, the files are the ones it names (file names mean nothing by themselves), each tensor must
    /// be in the file it names, and tensors it does not name are not part of the checkpoint.
    /// Throws IoError (naming what is missing), FormatError.
    [[nodiscard]] static Checkpoint open(std::string const& path, Access access = Access::pread) {
        using detail::PathKind;
        Checkpoint result;
        switch (detail::path_kind(path)) {
            case PathKind::missing: detail::raise_io(path, "cannot open the checkpoint", ENOENT, "check the path.");
            case PathKind::file:
                if (path.ends_with(".json")) {
                    result.open_index(path, access);
                } else {
                    result.open_file(path, access);
                }
                break;
            case PathKind::folder: result.open_folder(path, access); break;
        }
        result.by_name_.resize(result.tensors_.size());
        for (std::size_t i = 0; i < result.by_name_.size(); ++i) result.by_name_[i] = i;
        std::sort(result.by_name_.begin(), result.by_name_.end(),
                  [&](std::size_t a, std::size_t b) { return result.tensors_[a].name < result.tensors_[b].name; });
        return result;
    }

    /// Sorted by file, then by position in it.
    [[nodiscard]] std::span<CheckpointTensor const> tensors() const noexcept { return tensors_; }
    /// What the files' names are relative to; empty for the working folder.
    [[nodiscard]] std::string const& folder() const noexcept { return folder_; }
    /// Sorted by name, where an index named them.
    [[nodiscard]] std::span<SafetensorsFile const> files() const noexcept { return files_; }
    [[nodiscard]] SafetensorsFile const& file_of(CheckpointTensor const& tensor) const {
        if (tensor.file < 0 || tensor.file >= static_cast<int>(files_.size())) {
            raise(ErrorCode::buffer,
                  concat("reshard::Checkpoint: it has no file ", tensor.file, " for tensor ",
                         detail::quote_name(tensor.name), ". Fix: pass a tensor of this checkpoint."));
        }
        return files_[static_cast<std::size_t>(tensor.file)];
    }
    /// Bytes of all tensors.
    [[nodiscard]] Index total_bytes() const noexcept {
        Index sum = 0;
        for (CheckpointTensor const& tensor : tensors_) sum += tensor.bytes();
        return sum;
    }

    /// The tensor of that name, or null. Logarithmic in the number of tensors.
    [[nodiscard]] CheckpointTensor const* find(std::string_view tensor) const noexcept {
        auto const at = std::lower_bound(by_name_.begin(), by_name_.end(), tensor,
                                         [&](std::size_t i, std::string_view text) { return tensors_[i].name < text; });
        if (at == by_name_.end() || tensors_[*at].name != tensor) return nullptr;
        return &tensors_[*at];
    }
    /// The tensor of that name. Throws FormatError (TensorNotFound).
    [[nodiscard]] CheckpointTensor const& at(std::string_view tensor) const {
        CheckpointTensor const* const found = find(tensor);
        if (found == nullptr) {
            detail::raise_rule(SafetensorsRule::tensor_not_found,
                               concat("none of the ", tensors_.size(), " tensors of the checkpoint is called ",
                                      detail::quote_name(tensor), ". Fix: check the name against tensors()."));
        }
        return *found;
    }

    /// As SafetensorsFile, for the file the tensor lies in.
    void read(CheckpointTensor const& tensor, std::span<std::byte> out) const { file_of(tensor).read(tensor, out); }
    void read_range(CheckpointTensor const& tensor, Index byte_begin, Index byte_end, std::span<std::byte> out) const {
        file_of(tensor).read_range(tensor, byte_begin, byte_end, out);
    }
    [[nodiscard]] ConstDynamicView view(CheckpointTensor const& tensor) const { return file_of(tensor).view(tensor); }

private:
    static constexpr std::string_view index_name = "model.safetensors.index.json";
    static constexpr std::string_view single_name = "model.safetensors";

    Checkpoint() = default;

    void open_file(std::string const& path, Access access) {
        folder_ = path.find('/') == std::string::npos ? "" : detail::folder_of(path);
        files_.push_back(SafetensorsFile::open(path, access));
        for (TensorInfo const& tensor : files_.back().tensors()) tensors_.push_back({tensor, 0});
    }

    void open_folder(std::string const& folder, Access access) {
        std::string const index = detail::join_path(folder, index_name);
        std::string const single = detail::join_path(folder, single_name);
        bool const has_single = detail::path_kind(single) != detail::PathKind::missing;
        if (detail::path_kind(index) != detail::PathKind::missing) {
            open_index(index, access);
            bool named = false;
            for (SafetensorsFile const& file : files_) named = named || file.path() == single;
            if (has_single && !named) {
                detail::raise_rule(
                    SafetensorsRule::invalid_index,
                    concat(
                        folder, ": both ", index_name, " and ", single_name,
                        " are there, and may be two checkpoints. Fix: name one of the two files, or remove the stale "
                        "one."));
            }
            return;
        }
        open_file(has_single ? single : detail::join_path(folder, only_file(folder)), access);
    }

    /// The one `*.safetensors` of a folder.
    static std::string only_file(std::string const& folder) {
        DIR* const handle = ::opendir(folder.c_str());
        if (handle == nullptr) detail::raise_io(folder, "cannot list the folder", errno, "check its permissions.");
        std::vector<std::string> found;
        while (::dirent const* const entry = ::readdir(handle)) {
            std::string_view const leaf = entry->d_name;
            if (leaf.ends_with(".safetensors") && leaf.front() != '.') found.emplace_back(leaf);
        }
        static_cast<void>(::closedir(handle));
        std::sort(found.begin(), found.end());
        // One file of several whose index is missing must not pass for a whole checkpoint.
        if (found.size() == 1 && !is_one_of_several(found.front())) return found.front();
        std::string list;
        for (std::size_t i = 0; i < found.size() && i < 4; ++i) list += concat(i == 0 ? " (" : ", ", found[i]);
        if (!list.empty()) list += found.size() > 4 ? ", ...)" : ")";
        raise(ErrorCode::io, concat("IoError: ", folder, ": no checkpoint: looked for ", index_name, ", ", single_name,
                                    " or exactly one whole *.safetensors, found ", found.size(), " *.safetensors", list,
                                    ". Fix: add the index, or name one file."));
    }

    /// `...-00001-of-00005.safetensors`.
    static bool is_one_of_several(std::string_view leaf) noexcept {
        auto const digits = [](std::string_view text) {
            return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
        };
        leaf.remove_suffix(std::string_view(".safetensors").size());
        auto const of = leaf.rfind("-of-");
        if (of == std::string_view::npos || !digits(leaf.substr(of + 4))) return false;
        std::string_view const head = leaf.substr(0, of);
        auto const dash = head.rfind('-');
        bool const numbered = dash != std::string_view::npos && digits(head.substr(dash + 1));
        bool const alone = leaf.find_first_not_of('0', of + 4) == leaf.size() - 1 && leaf.back() == '1';
        return numbered && !alone;
    }

    void open_index(std::string const& index, Access access) {
        detail::WeightMap const map = detail::parse_weight_map(read_text(index), index);
        folder_ = index.find('/') == std::string::npos ? "" : detail::folder_of(index);

        std::vector<std::string> leaves;
        for (auto const& entry : map) leaves.push_back(entry.second);
        std::sort(leaves.begin(), leaves.end());
        leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
        refuse_missing(index, folder_, leaves);

        for (std::string const& leaf : leaves) {
            files_.push_back(SafetensorsFile::open(detail::join_path(folder_, leaf), access));
        }
        refuse_twice_stored(index, map, leaves);
        for (auto const& [tensor, leaf] : map) {
            auto const file = std::lower_bound(leaves.begin(), leaves.end(), leaf) - leaves.begin();
            TensorInfo const* const info = files_[static_cast<std::size_t>(file)].find(tensor);
            if (info == nullptr) {
                detail::raise_rule(
                    SafetensorsRule::tensor_not_found,
                    concat(index, ": tensor ", detail::quote_name(tensor), " is not in ", detail::quote_name(leaf),
                           ", where the index puts it. Fix: fetch the index and the files of one version."));
            }
            tensors_.push_back({*info, static_cast<int>(file)});
        }
        std::sort(tensors_.begin(), tensors_.end(), [](CheckpointTensor const& a, CheckpointTensor const& b) {
            return std::tie(a.file, a.begin, a.end, a.name) < std::tie(b.file, b.begin, b.end, b.name);
        });
    }

    static void refuse_missing(std::string const& index, std::string const& folder,
                               std::vector<std::string> const& leaves) {
        std::string list;
        int missing = 0;
        for (std::string const& leaf : leaves) {
            if (detail::path_kind(detail::join_path(folder, leaf)) != detail::PathKind::missing) continue;
            if (++missing <= 8) list += concat(missing == 1 ? "" : ", ", detail::quote_name(leaf));
        }
        if (missing == 0) return;
        if (missing > 8) list += ", ...";
        raise(ErrorCode::io, concat("IoError: ", index, ": ", missing, " of the ", leaves.size(),
                                    " files it names are missing: ", list, ". Fix: fetch them."));
    }

    /// A tensor of the index that a second of its files has as well: two versions in one folder, most likely.
    void refuse_twice_stored(std::string const& index, detail::WeightMap const& map,
                             std::vector<std::string> const& leaves) const {
        for (std::size_t file = 0; file < files_.size(); ++file) {
            for (TensorInfo const& tensor : files_[file].tensors()) {
                auto const entry = std::lower_bound(map.begin(), map.end(), tensor.name,
                                                    [](auto const& a, std::string const& b) { return a.first < b; });
                if (entry == map.end() || entry->first != tensor.name || entry->second == leaves[file]) continue;
                detail::raise_rule(
                    SafetensorsRule::invalid_index,
                    concat(index, ": tensor ", detail::quote_name(tensor.name), " is in ",
                           detail::quote_name(leaves[file]), " as well as in ", detail::quote_name(entry->second),
                           ", where the index puts it. Fix: fetch the index and the files of one version."));
            }
        }
    }

    static std::string read_text(std::string const& path) {
        Index bytes = 0;
        detail::FileDescriptor const file = detail::open_for_reading(path, bytes);
        if (bytes > max_safetensors_header_bytes) {
            detail::raise_rule(SafetensorsRule::invalid_index,
                               concat(path, ": the index has ", bytes, " bytes, more than the ",
                                      max_safetensors_header_bytes, " allowed. Fix: check that this is an index."));
        }
        std::string text(static_cast<std::size_t>(bytes), '\0');
        detail::read_fully(file, path, 0, std::as_writable_bytes(std::span(text)));
        return text;
    }

    std::string folder_;
    std::vector<SafetensorsFile> files_;
    std::vector<CheckpointTensor> tensors_;
    std::vector<std::size_t> by_name_;
};

}  // namespace reshard::inline v0
