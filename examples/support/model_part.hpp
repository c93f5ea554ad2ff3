// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/model_part.hpp
/// \brief  One rank's part of a model that is loaded, its memory, and whether it is what the files hold.
/// \depends reshard/checkpoint/{checkpoint,placed_tensor}.hpp.
#pragma once

#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/placed_tensor.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace demo {

/// Local tensors, each apart from the others.
class ModelPart {
public:
    ModelPart(std::vector<reshard::PlacedTensor> const& targets, int rank) : rank_(rank) {
        reshard::Index size = 0;
        std::vector<reshard::Index> places;
        auto const shape_of = [&](reshard::PlacedTensor const& target) {
            return target.distribution.contains(rank) ? target.distribution.local_shape(rank)
                                                      : reshard::DynamicShape(reshard::Shape{0});
        };
        for (reshard::PlacedTensor const& target : targets) {
            places.push_back(size);
            size += reshard::detail::ceil_div(shape_of(target).size() * reshard::enums::bytes(target.dtype),
                                              reshard::Index{64}) *
                        64 +
                    64;
        }
        memory_.resize(static_cast<std::size_t>(size / 8));
        auto* const base = reinterpret_cast<std::byte*>(memory_.data());
        for (std::size_t i = 0; i < targets.size(); ++i) {
            tensors_.push_back({targets[i].name, targets[i].distribution,
                                reshard::DynamicView(base + places[i], targets[i].dtype, shape_of(targets[i])),
                                targets[i].within});
        }
    }

    [[nodiscard]] std::span<reshard::LocalTensor const> tensors() const noexcept { return tensors_; }
    /// Other values, as a step of training leaves them.
    void change() {
        for (std::uint64_t& word : memory_) word += 0x0001000100010001U;
    }
    void forget() { std::fill(memory_.begin(), memory_.end(), 0xdeadbeefdeadbeefU); }
    /// Of every byte, in order.
    [[nodiscard]] std::uint64_t hash() const noexcept {
        std::uint64_t hash = 0;
        for (std::uint64_t const word : memory_) {
            hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
            hash ^= hash >> 29U;
        }
        return hash;
    }

    /// Throws for the first row that is not the file's.
    void compare(reshard::Checkpoint const& checkpoint) const {
        std::vector<std::byte> whole;
        for (reshard::LocalTensor const& tensor : tensors_) {
            reshard::DynamicDistribution const& to = tensor.distribution;
            if (!to.contains(rank_)) continue;
            reshard::CheckpointTensor const& stored = checkpoint.at(tensor.name);
            whole.resize(static_cast<std::size_t>(stored.bytes()));
            checkpoint.read(stored, whole);
            for (reshard::Box const& box : to.boxes(rank_)) compare_box(tensor, box, whole.data());
        }
    }

private:
    /// Row by row of the last dimension.
    void compare_box(reshard::LocalTensor const& tensor, reshard::Box const& box, std::byte const* whole) const {
        reshard::DynamicDistribution const& to = tensor.distribution;
        reshard::Indices const coordinates = to.mesh().coordinates(rank_);
        bool owes = false;  // identities, which no file has
        for (int axis = 0; axis < to.mesh().axes(); ++axis) {
            owes = owes || (to.placement(axis).is_partial() && coordinates[axis] != 0);
        }
        if (box.empty() || owes) return;
        reshard::Index const width = reshard::enums::bytes(tensor.view.dtype());
        int const last = box.rank() - 1;
        reshard::Index const run = last < 0 ? width : box.extent(last) * width;
        reshard::Indices at;
        for (int dim = 0; dim < box.rank(); ++dim) at.push_back(box.begin(dim));
        for (;;) {
            reshard::Index in_file = 0;
            reshard::Index in_memory = 0;
            for (int dim = 0; dim < box.rank(); ++dim) {
                in_file = in_file * to.shape().extent(dim) + at[dim];
                in_memory = in_memory * tensor.view.extent(dim) + to.index_set(coordinates, dim).local_index(at[dim]);
            }
            if (std::memcmp(tensor.view.data() + in_memory * width, whole + in_file * width,
                            static_cast<std::size_t>(run)) != 0) {
                reshard::errors::raise(reshard::ErrorCode::user,
                                       reshard::errors::concat("rank ", rank_, ": '", tensor.name,
                                                               "' is not the file's at ", reshard::to_string(at)));
            }
            int dim = last - 1;
            while (dim >= 0 && ++at[dim] == box.end(dim)) {
                at[dim] = box.begin(dim);
                --dim;
            }
            if (dim < 0) return;
        }
    }

    int rank_;
    std::vector<std::uint64_t> memory_;
    std::vector<reshard::LocalTensor> tensors_;
};

}  // namespace demo
