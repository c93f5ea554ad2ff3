// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/mch_shard.hpp
/// \brief  What a trainer has of one managed-collision table on one rank: the columns of its ids, and their rows.
/// \depends reshard/mch/checkpoint.hpp, reshard/mch/checkpoint_save.hpp.
#pragma once

#include <reshard/mch/checkpoint.hpp>
#include <reshard/mch/checkpoint_save.hpp>

#include "hash_zch.hpp"

#include <cstring>
#include <random>

namespace demo {

/// Memory for one rank's shard of a table: buffers as TorchRec's modules have them, and any rows that go with its
/// slots. A rank outside the table's mesh has none.
class MchShard {
public:
    MchShard(reshard::MchTable const& table, std::vector<reshard::MchRowsInfo> const& rows, int rank)
        : table_(table), rank_(rank) {
        auto const entries = static_cast<std::size_t>(table.range(rank).size());
        bool const sorted = table.layout == reshard::MchLayout::sorted;
        ids_.resize(entries);
        if (sorted) slots_.resize(entries);
        for (reshard::MchColumn const& column : table.metadata) {
            metadata_.emplace_back(entries * static_cast<std::size_t>(column.bytes));
        }
        if (sorted && table.slots.mesh().contains(rank)) {
            segments_.assign(1025, -1);
            iteration_.assign(1, 0);
        }
        for (reshard::MchRowsInfo const& one : rows) {
            rows_.push_back({one, std::vector<std::byte>(entries * static_cast<std::size_t>(one.row_bytes()))});
        }
    }
    /// The rows of these programs: four weights a row, and a state of the optimizer (row-wise Adagrad), one number.
    MchShard(reshard::MchTable const& table, int rank)
        : MchShard(table,
                   {{"weights", reshard::DType::f32, reshard::Indices{4}},
                    {"adagrad", reshard::DType::f32, reshard::Indices{}}},
                   rank) {}

    /// What training has left: the simulated buffers, and rows that only their id explains. Rows of slots without an
    /// id hold what earlier ids left behind.
    void fill(torchrec::Module const& module) {
        ids_ = module.raw;
        slots_ = module.mapping;
        std::size_t c = 0;
        for (torchrec::Ids const* column : {&module.counts, &module.last}) {
            if (!column->empty() && c < metadata_.size()) copy_bytes(*column, metadata_[c++]);
        }
        segments_ = module.segments;
        iteration_ = module.iteration;
        train_rows();
    }
    void fill(torchrec::Ids const& identities, std::vector<std::int32_t> const& hours) {
        ids_ = identities;
        copy_bytes(hours, metadata_[0]);
        train_rows();
    }

    [[nodiscard]] reshard::MchState state() {
        using namespace reshard;
        MchState state;
        Index const entries = size();
        auto const list = [](std::vector<Index>& memory) {
            return DynamicView(TensorView<Index>(memory.data(), Shape{static_cast<Index>(memory.size())}));
        };
        if (!table_.slots.mesh().contains(rank_)) return state;
        state.ids = list(ids_);
        for (std::size_t c = 0; c < metadata_.size(); ++c) {
            MchColumn const& column = table_.metadata[c];
            bool const integers = column.bytes == 4 || column.bytes == 8;
            DType const type = column.bytes == 8 ? DType::i64 : column.bytes == 4 ? DType::i32 : DType::u8;
            DynamicShape const shape = integers ? DynamicShape(Shape{entries}) : Shape{entries, column.bytes};
            state.metadata.push_back({column.name, DynamicView(metadata_[c].data(), type, shape)});
        }
        if (table_.layout == MchLayout::buckets) return state;
        state.slots = list(slots_);
        state.segments = list(segments_);
        state.iteration = list(iteration_);
        return state;
    }
    /// What follows the ids to other slots, with names for files, and without.
    [[nodiscard]] std::vector<reshard::MchRows> named_rows() {
        std::vector<reshard::MchRows> list;
        for (Rows& one : rows_) {
            reshard::Indices shape{size()};
            for (reshard::Index extent : one.info.row_shape) shape.push_back(extent);
            list.push_back({one.info.name, {one.memory.data(), one.info.dtype, reshard::DynamicShape(shape)}});
        }
        return list;
    }
    [[nodiscard]] std::vector<reshard::DynamicView> rows() {
        std::vector<reshard::DynamicView> list;
        for (reshard::MchRows const& one : named_rows()) list.push_back(one.view);
        return list;
    }

    [[nodiscard]] reshard::MchTable const& table() const noexcept { return table_; }
    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] std::vector<reshard::MchRowsInfo> rows_info() const {
        std::vector<reshard::MchRowsInfo> list;
        for (Rows const& one : rows_) list.push_back(one.info);
        return list;
    }
    [[nodiscard]] reshard::Index size() const noexcept { return static_cast<reshard::Index>(ids_.size()); }
    [[nodiscard]] reshard::Index first() const noexcept { return table_.range(rank_).begin; }
    [[nodiscard]] std::vector<reshard::Index> const& ids() const noexcept { return ids_; }
    [[nodiscard]] std::vector<reshard::Index> const& slots() const noexcept { return slots_; }

    /// All bytes of the row at a place of this shard, as one number to compare.
    [[nodiscard]] std::uint64_t row(reshard::Index place) const {
        reshard::detail::Digest digest;
        for (Rows const& one : rows_) {
            auto const bytes = static_cast<std::size_t>(one.info.row_bytes());
            for (std::size_t i = 0; i < bytes; ++i) {
                digest.add(static_cast<std::uint64_t>(one.memory[static_cast<std::size_t>(place) * bytes + i]));
            }
        }
        return digest.value();
    }

private:
    struct Rows {
        reshard::MchRowsInfo info;
        std::vector<std::byte> memory;
    };

    template <class T>
    static void copy_bytes(std::vector<T> const& from, std::vector<std::byte>& to) {
        if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
    }
    void train_rows() {
        reshard::Index const none = reshard::empty_id(table_.layout);
        for (std::size_t i = 0; i < ids_.size(); ++i) {
            auto const place = slots_.empty() ? i : static_cast<std::size_t>(slots_[i] - first());
            auto const key = static_cast<std::uint64_t>(ids_[i] == none ? static_cast<reshard::Index>(i) : ids_[i]);
            std::mt19937 random(static_cast<std::uint32_t>(key ^ (key >> 32)));
            for (Rows& one : rows_) {
                auto const bytes = static_cast<std::size_t>(one.info.row_bytes());
                for (std::size_t at = 0; at + 4 <= bytes; at += 4) {
                    float const value = static_cast<float>(random()) / 4294967296.0F - 0.5F;
                    std::memcpy(one.memory.data() + place * bytes + at, &value, 4);
                }
            }
        }
    }

    reshard::MchTable table_;
    int rank_;
    std::vector<reshard::Index> ids_;
    std::vector<reshard::Index> slots_;
    std::vector<std::vector<std::byte>> metadata_;
    std::vector<reshard::Index> segments_;
    std::vector<reshard::Index> iteration_;
    std::vector<Rows> rows_;
};

}  // namespace demo
