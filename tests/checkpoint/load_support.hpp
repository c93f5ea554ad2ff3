// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/load_support.hpp
/// \brief  Local tensors with memory of their own, what they should hold, and checkpoints to load them from.
#pragma once

#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>

#include "../support/oracle.hpp"
#include "support.hpp"

#include <deque>
#include <string>
#include <vector>

namespace checkpoint_test {

/// A tensor to load: as it is stored, and where it goes.
struct Goal {
    TensorSpec stored;
    DynamicDistribution to;
};

inline Goal goal(std::string name, DType dtype, std::string const& to, DynamicShape const& shape) {
    return {{std::move(name), dtype, shape}, parse(to, shape)};
}

inline void write(std::string const& folder, std::vector<Goal> const& goals, Index max_file_bytes = 1 << 30) {
    std::vector<TensorSpec> specs;
    for (Goal const& goal : goals) specs.push_back(goal.stored);
    write_checkpoint(
        folder, specs,
        [](CheckpointTensor const& tensor, Index begin, std::span<std::byte> out) {
            fill_expected(tensor, begin, out);
        },
        max_file_bytes);
}

/// One rank's local tensors: dense, or with a gap after every row; every byte spoilt at first.
class LocalTensors {
public:
    LocalTensors(std::vector<Goal> const& goals, int rank, bool gaps = false) : goals_(&goals), rank_(rank) {
        for (Goal const& goal : goals) {
            DynamicShape const shape = goal.to.contains(rank) ? goal.to.local_shape(rank) : DynamicShape(Shape{0});
            Indices strides = row_major_strides(shape);
            if (gaps && shape.rank() >= 2) {
                strides[shape.rank() - 2] += 3;
                for (int dim = shape.rank() - 3; dim >= 0; --dim)
                    strides[dim] = strides[dim + 1] * (shape.extent(dim + 1) + 1);
            }
            Index reach = 1;
            for (int dim = 0; dim < shape.rank(); ++dim)
                reach += detail::larger<Index>(shape.extent(dim) - 1, 0) * strides[dim];
            memory_.emplace_back(static_cast<std::size_t>(reach * bytes(goal.stored.dtype)), std::byte{0xEE});
            list_.push_back(
                {goal.stored.name, goal.to, DynamicView(memory_.back().data(), goal.stored.dtype, shape, strides)});
        }
    }
    [[nodiscard]] std::vector<LocalTensor>& list() noexcept { return list_; }

    /// The values of the whole tensor that the placements give this rank, by the oracle; identities where others have
    /// the values.
    [[nodiscard]] std::string wrong() const {
        return wrong([](Goal const& goal) { return goal.stored.name; });
    }
    /// `content(goal)` names the bytes that the tensor should hold on this rank.
    template <class Content>
    [[nodiscard]] std::string wrong(Content&& content) const {
        for (std::size_t i = 0; i < list_.size(); ++i) {
            Goal const& goal = (*goals_)[i];
            if (!goal.to.contains(rank_)) continue;
            Index const width = bytes(goal.stored.dtype);
            bool const values = holds_values(goal.to);
            Reduce const op = oracle::owed(goal.to).op;
            ExpectedBytes const stored(content(goal));
            DynamicView const& view = list_[i].view;
            Index k = 0;
            Index bad = -1;  // the first wrong element
            oracle::each_element(goal.to, rank_, view.strides(), [&](Index position, Index offset) {
                std::byte const* const at = view.data() + offset * width;
                for (Index b = 0; b < width; ++b) {
                    std::byte const expected =
                        values ? stored.at(position * width + b) : identity_byte(op, goal.stored.dtype, b);
                    if (at[b] != expected && bad < 0) bad = k;
                }
                ++k;
            });
            if (bad >= 0) {
                return errors::concat("tensor ", i, " '", goal.stored.name, "' under ", to_string(goal.to), " of ",
                                      to_string(goal.stored.shape), " on rank ", rank_, ", local element ", bad);
            }
        }
        return {};
    }
    [[nodiscard]] bool untouched() const {
        for (auto const& memory : memory_)
            for (std::byte b : memory)
                if (b != std::byte{0xEE}) return false;
        return true;
    }
    [[nodiscard]] Index bytes_of_values() const {
        Index sum = 0;
        for (std::size_t i = 0; i < list_.size(); ++i) {
            DynamicDistribution const& to = (*goals_)[i].to;
            if (to.contains(rank_) && holds_values(to)) sum += list_[i].view.size() * bytes(list_[i].view.dtype());
        }
        return sum;
    }

private:
    [[nodiscard]] bool holds_values(DynamicDistribution const& to) const {
        switch (oracle::owed(to).op) {
            case Reduce::sum:
            case Reduce::product:
            case Reduce::bxor: return oracle::addend_of(to, rank_) == 0;
            default: return true;
        }
    }
    /// Of a sum -0.0, or 0 for integers; of a product 1; of an exclusive or 0. Little-endian.
    static std::byte identity_byte(Reduce op, DType dtype, Index b) {
        std::uint64_t const sign = is_floating(dtype) ? std::uint64_t{1} << (8 * bytes(dtype) - 1) : 0;
        std::uint64_t const one = dtype == DType::f64    ? 0x3ff0000000000000U
                                  : dtype == DType::f32  ? 0x3f800000U
                                  : dtype == DType::f16  ? 0x3c00U
                                  : dtype == DType::bf16 ? 0x3f80U
                                                         : 1;
        std::uint64_t const bits = op == Reduce::product ? one : op == Reduce::sum ? sign : 0;
        return static_cast<std::byte>((bits >> (8 * b)) & 0xffU);
    }

    std::vector<Goal> const* goals_;
    int rank_;
    std::deque<std::vector<std::byte>> memory_;
    std::vector<LocalTensor> list_;
};

}  // namespace checkpoint_test
