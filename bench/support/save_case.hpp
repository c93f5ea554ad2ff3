// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/save_case.hpp
/// \brief  A model of 2 GB in the memory of four ranks, folders to save it to, and the files a plain program writes.
#pragma once

#include "../../examples/support/model_lists.hpp"
#include "../../examples/support/model_part.hpp"

#include <reshard/checkpoint/file.hpp>

#include <dirent.h>

#include <algorithm>  // fill
#include <string>     // string
#include <vector>     // vector

namespace reshard::bench {

/// Qwen2.5-0.5B with elements of four bytes: 1.98 GB, in 290 tensors.
[[nodiscard]] inline std::vector<TensorSpec> model_of_2_gb() {
    demo::ModelConfig config = demo::qwen2_5_0_5b();
    config.dtype = DType::f32;
    return demo::model_list(config);
}

/// Matrices cut along `dim`, vectors along their only dimension, over so many ranks.
[[nodiscard]] inline std::vector<PlacedTensor> cut_along(int dim, std::vector<TensorSpec> const& list, int ranks) {
    std::vector<PlacedTensor> targets;
    for (TensorSpec const& tensor : list) {
        Placement const placement = Placement::shard(tensor.shape.rank() == 2 ? dim : 0);
        targets.push_back(
            {tensor.name, DynamicDistribution(DynamicMesh(Mesh{ranks}), tensor.shape, {placement}), tensor.dtype});
    }
    return targets;
}

/// One rank's part, whose elements say where in which tensor they belong.
class MarkedPart {
public:
    MarkedPart(std::vector<PlacedTensor> const& targets, int rank) : part_(targets, rank), rank_(rank) {
        part_.forget();
    }

    [[nodiscard]] std::span<LocalTensor const> tensors() const noexcept { return part_.tensors(); }
    void forget() { part_.forget(); }
    [[nodiscard]] Index bytes() const noexcept {
        Index sum = 0;
        for (LocalTensor const& tensor : tensors())
            sum += tensor.view.size() * reshard::enums::bytes(tensor.view.dtype());
        return sum;
    }
    void mark() {
        for_each([](std::uint32_t& element, std::uint32_t mark) { element = mark; });
    }
    [[nodiscard]] bool is_marked() {
        bool right = true;
        for_each([&](std::uint32_t element, std::uint32_t mark) { right = right && element == mark; });
        return right;
    }

private:
    /// visit(element, mark): rows of a matrix, or of a vector as one row.
    template <class Visit>
    void for_each(Visit&& visit) {
        std::uint32_t number = 0;
        for (LocalTensor const& tensor : tensors()) {
            ++number;
            Box const box = tensor.distribution.boxes(rank_).front();
            auto* element = reinterpret_cast<std::uint32_t*>(tensor.view.data());
            int const last = box.rank() - 1;
            Interval const rows = last == 0 ? Interval{0, 1} : box[0];
            for (Index row = rows.begin; row < rows.end; ++row) {
                for (Index i = box.begin(last); i < box.end(last); ++i) {
                    Index const at = row * tensor.distribution.shape().extent(last) + i;
                    visit(*element++, static_cast<std::uint32_t>(at) * 2654435761U + number);
                }
            }
        }
    }

    demo::ModelPart part_;
    int rank_;
};

/// A folder of `parent` that is there from begin() to end(), both outside of what is timed: to free 2 GB takes long.
class FreshFolder {
public:
    FreshFolder(std::string const& parent, std::string_view name)
        : path_(errors::concat(parent, "/", name, ".", ::getpid())) {}
    FreshFolder(FreshFolder const&) = delete;
    FreshFolder& operator=(FreshFolder const&) = delete;
    ~FreshFolder() { end(); }

    [[nodiscard]] std::string const& path() const noexcept { return path_; }
    void begin() {
        end();
        if (::mkdir(path_.c_str(), 0777) != 0) reshard::detail::raise_io(path_, "cannot create", errno, "pass --dir.");
    }
    void end() noexcept {
        for (std::string const& file : files()) static_cast<void>(::unlink(file.c_str()));
        static_cast<void>(::rmdir(path_.c_str()));
    }
    [[nodiscard]] std::vector<std::string> files() const {
        std::vector<std::string> found;
        DIR* const handle = ::opendir(path_.c_str());
        if (handle == nullptr) return found;
        while (::dirent const* const entry = ::readdir(handle)) {
            std::string const leaf = entry->d_name;
            if (leaf != "." && leaf != "..") found.push_back(errors::concat(path_, "/", leaf));
        }
        static_cast<void>(::closedir(handle));
        return found;
    }
    /// Nothing of it in the page cache.
    void cool() const {
        for (std::string const& path : files()) {
            Index bytes = 0;
            auto const file = reshard::detail::open_for_reading(path, bytes);
            static_cast<void>(::fdatasync(file.get()));
            static_cast<void>(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED));
        }
    }

private:
    std::string path_;
};

/// What a program does that has nothing to look after: a file per rank, 8 MiB a call, from and to one touched buffer.
class RawFile {
public:
    RawFile(std::string path, Index bytes) : path_(std::move(path)), memory_(static_cast<std::size_t>(bytes)) {
        std::fill(memory_.begin(), memory_.end(), std::byte{1});
    }

    void write(bool durable) {
        int const fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        reshard::detail::FileDescriptor const file(fd);
        if (fd < 0) reshard::detail::raise_io(path_, "cannot create", errno, "pass --dir.");
        for_each_call([&](Index begin, std::span<std::byte> piece) {
            if (::pwrite(file.get(), piece.data(), piece.size(), begin) == static_cast<ssize_t>(piece.size())) return;
            reshard::detail::raise_io(path_, "cannot write", errno, "free space.");
        });
        if (durable && ::fdatasync(file.get()) != 0)
            reshard::detail::raise_io(path_, "cannot sync", errno, "free space.");
    }
    void read() {
        Index bytes = 0;
        auto const file = reshard::detail::open_for_reading(path_, bytes);
        for_each_call(
            [&](Index begin, std::span<std::byte> piece) { reshard::detail::read_fully(file, path_, begin, piece); });
    }

private:
    template <class Call>
    void for_each_call(Call&& call) {
        constexpr std::size_t most = std::size_t{8} << 20;
        for (std::size_t begin = 0; begin < memory_.size(); begin += most) {
            call(static_cast<Index>(begin),
                 std::span(memory_).subspan(begin, detail::smaller(most, memory_.size() - begin)));
        }
    }

    std::string path_;
    std::vector<std::byte> memory_;
};

}  // namespace reshard::bench
