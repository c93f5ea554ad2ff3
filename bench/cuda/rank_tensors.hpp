// SPDX-License-Identifier: Apache-2.0
/// \file   bench/cuda/rank_tensors.hpp
/// \brief  Tensors of ranks on devices, pinned or pageable, whose values say where they belong.
#pragma once

#include "cuda/ranks_of_gpu.hpp"

#include <reshard/exec/local_tensor.hpp>

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace reshard::bench {

inline void copy(void* to, void const* from, Index bytes, cudaStream_t stream) {
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

enum class Place { device, pinned, pageable };

/// Memory that frees itself.
class Memory {
public:
    Memory(Place place, Index bytes) : place_(place), bytes_(bytes) {
        auto const size = static_cast<std::size_t>(bytes);
        if (place == Place::device) check(cudaMalloc(&memory_, size), "cudaMalloc");
        if (place == Place::pinned) check(cudaMallocHost(&memory_, size), "cudaMallocHost");
        if (place == Place::pageable) memory_ = ::operator new(size);
    }
    Memory(Memory const&) = delete;
    Memory& operator=(Memory const&) = delete;
    ~Memory() {
        if (place_ == Place::device) static_cast<void>(cudaFree(memory_));
        if (place_ == Place::pinned) static_cast<void>(cudaFreeHost(memory_));
        if (place_ == Place::pageable) ::operator delete(memory_);
    }
    [[nodiscard]] Index bytes() const { return bytes_; }
    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(memory_); }
    [[nodiscard]] bool on_host() const { return place_ != Place::device; }

private:
    Place place_;
    void* memory_ = nullptr;
    Index bytes_;
};

/// A rank's parts of so many tensors of size x size float32, one after the other in one piece of memory. Which values
/// they have says tensor and place, so that a wrong offset shows.
class Tensors {
public:
    Tensors(Place place, int count, Index size, char const* placement, int rank, int ranks, cudaStream_t stream)
        : size_(size),
          where_(distribution(Mesh{ranks}, Shape{size, size}, placement)),
          by_rows_(std::string_view(placement) == "S0"),
          begin_(rank * (size / ranks)),
          rows_(by_rows_ ? size / ranks : size),
          width_(by_rows_ ? size : size / ranks),
          memory_(place, 4 * rows_ * width_ * count),
          host_(static_cast<std::size_t>(rows_ * width_)),
          stream_(stream) {
        for (int t = 0; t < count; ++t) {
            list_.push_back({errors::concat("layers.", t, ".weight"), where_,
                             DynamicView(memory_.data() + t * part_bytes(), DType::f32, Shape{rows_, width_})});
        }
    }
    [[nodiscard]] std::span<LocalTensor const> list() const { return list_; }
    [[nodiscard]] DynamicDistribution const& where() const { return where_; }
    [[nodiscard]] Memory const& memory() const { return memory_; }

    void fill() {
        for (std::size_t t = 0; t < list_.size(); ++t) {
            visit(t, [](std::uint32_t& is, std::uint32_t should) { is = should; });
            if (memory_.on_host()) {
                std::memcpy(part(t), host_.data(), static_cast<std::size_t>(part_bytes()));
            } else {
                copy(part(t), host_.data(), part_bytes(), stream_);
                wait(stream_);
            }
        }
    }
    /// Puts there what is nobody's value.
    void wipe() {
        auto const bytes = static_cast<std::size_t>(memory_.bytes());
        if (memory_.on_host()) {
            std::memset(memory_.data(), 0xff, bytes);
        } else {
            check(cudaMemsetAsync(memory_.data(), 0xff, bytes, stream_), "cudaMemsetAsync");
            wait(stream_);
        }
    }
    [[nodiscard]] bool right() {
        std::uint32_t differences = 0;
        for (std::size_t t = 0; t < list_.size(); ++t) {
            if (memory_.on_host()) {
                std::memcpy(host_.data(), part(t), static_cast<std::size_t>(part_bytes()));
            } else {
                copy(host_.data(), part(t), part_bytes(), stream_);
                wait(stream_);
            }
            visit(t, [&](std::uint32_t is, std::uint32_t should) { differences |= is ^ should; });
        }
        return differences == 0;
    }

private:
    [[nodiscard]] Index part_bytes() const { return 4 * rows_ * width_; }
    [[nodiscard]] std::byte* part(std::size_t t) const { return memory_.data() + static_cast<Index>(t) * part_bytes(); }
    /// visitor(element of host_, its value) for the part of tensor t.
    template <class Visitor>
    void visit(std::size_t t, Visitor const& visitor) {
        std::uint32_t* element = host_.data();
        for (Index i = 0; i < rows_; ++i) {
            Index const at = by_rows_ ? (begin_ + i) * size_ : i * size_ + begin_;
            for (Index j = 0; j < width_; ++j) {
                // Other values everywhere, and 0xffffffff nowhere.
                auto const number = static_cast<std::uint32_t>(at + j) * 16U + static_cast<std::uint32_t>(t);
                visitor(*element++, number * 0x9e3779b1U);
            }
        }
    }

    Index size_;
    DynamicDistribution where_;
    bool by_rows_;
    Index begin_;
    Index rows_;
    Index width_;
    Memory memory_;
    std::vector<std::uint32_t> host_;
    cudaStream_t stream_;
    std::vector<LocalTensor> list_;
};

}  // namespace reshard::bench
