// SPDX-License-Identifier: Apache-2.0
/// \file   examples/trainer/embedding.hpp
/// \brief  An embedding table behind managed collision: this rank's ids, the slots they have, and the rows there.
/// \depends reshard/mch/{checkpoint_types,routing,state,transition}.hpp, reshard/init/philox.hpp.
///
/// Every rank sees all ids of a batch and answers those that are looked up on it; for the others it has zeros. So what
/// all of them have together is a Partial tensor, and plans do the rest.
#pragma once

#include <reshard/init/initialize.hpp>
#include <reshard/mch/checkpoint_types.hpp>
#include <reshard/mch/routing.hpp>
#include <reshard/mch/state.hpp>
#include <reshard/mch/transition.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace trainer {
using reshard::Index;

class Embedding {
public:
    Embedding(std::string name, Index slots, Index width, int ranks, int rank, std::uint64_t seed)
        : table_(reshard::mch_table(std::move(name), reshard::Mesh{ranks}, slots, reshard::MchEviction::lfu)),
          router_(table_),
          rank_(rank),
          width_(width),
          seed_(seed) {
        for (int r = 0; r < ranks; ++r) {
            if (table_.range(r).size() >= 2) continue;
            reshard::errors::raise(
                reshard::ErrorCode::shape,
                reshard::errors::concat("--slots ", slots, ": rank ", r, " of ", ranks, " would have ",
                                        table_.range(r).size(),
                                        ", but needs one for an id and one for those that find none. Fix: at least ",
                                        2 * ranks * ranks, "."));
        }
        // The ranks' iterations are the trainer's steps; LFU counts, and how long ago breaks its ties.
        table_.metadata.push_back({std::string(reshard::mch_last_access)});
        auto const entries = static_cast<std::size_t>(table_.range(rank).size());
        ids_.assign(entries, reshard::empty_id(table_.layout));
        slots_.assign(entries, 0);
        counts_.assign(entries, 0);
        last_.assign(entries, 0);
        rows_.assign(entries * static_cast<std::size_t>(width), 0.0F);
        adagrad_.assign(entries, 0.0F);
        gradient_.assign(rows_.size(), 0.0F);
        touched_.assign(entries, false);
        for (Index i = 0; i <= 1024; ++i) segments_.push_back(table_.segment(i));  // room for tables of as many ranks
        for (std::size_t i = 0; i < entries; ++i) slots_[i] = first_slot() + static_cast<Index>(i);
    }

    /// Into row `i` of `out` the row of id `i`, where it is this rank's to look up, and otherwise zeros. Ids without a
    /// row get one, and where none is left, that of the id seen least often: never of one that this batch needs.
    void look_up(std::vector<Index> const& ids, Index step, float* out) {
        iteration_ = step;
        places_.clear();
        for (Index id : ids) {
            bool const here = table_.slots.mesh().rank_at(router_.part_of_id(id)) == rank_;
            places_.push_back(here ? row_of(id) : -1);
            for (Index j = 0; j < width_; ++j, ++out) *out = here ? rows_[at(places_.back(), j)] : -0.0F;
        }
    }
    /// Row-wise Adagrad with the gradient of every row that was looked up, added up in the order of the batch.
    void update(float const* gradient, double rate) {
        std::vector<Index> rows;
        for (Index place : places_) {
            for (Index j = 0; place >= 0 && j < width_; ++j) gradient_[at(place, j)] += gradient[j];
            gradient += width_;
            if (place < 0 || touched_[static_cast<std::size_t>(place)]) continue;
            touched_[static_cast<std::size_t>(place)] = true;
            rows.push_back(place);
        }
        for (Index row : rows) {
            double squares = 0;
            for (Index j = 0; j < width_; ++j) {
                auto const g = static_cast<double>(gradient_[at(row, j)]);
                squares += g * g;
            }
            float& state = adagrad_[static_cast<std::size_t>(row)];
            state = static_cast<float>(static_cast<double>(state) + squares / static_cast<double>(width_));
            double const scale = rate / (std::sqrt(static_cast<double>(state)) + 1e-10);
            for (Index j = 0; j < width_; ++j) {
                float& value = rows_[at(row, j)];
                float& g = gradient_[at(row, j)];
                value = static_cast<float>(static_cast<double>(value) - scale * static_cast<double>(g));
                g = 0;
            }
            touched_[static_cast<std::size_t>(row)] = false;
        }
    }

    /// What a checkpoint has of it, and what a load writes to; settle() comes after a load.
    [[nodiscard]] reshard::MchState state() {
        auto const list = [](std::vector<Index>& one) {
            return reshard::TensorView<Index>(one.data(), reshard::Shape{static_cast<Index>(one.size())});
        };
        reshard::MchState state;
        state.ids = list(ids_);
        state.slots = list(slots_);
        state.metadata = {{std::string(reshard::mch_counts), list(counts_)},
                          {std::string(reshard::mch_last_access), list(last_)}};
        state.segments = list(segments_);
        state.iteration = reshard::TensorView<Index>(&iteration_, reshard::Shape{1});
        return state;
    }
    [[nodiscard]] std::vector<reshard::MchRows> rows() {
        auto const entries = static_cast<Index>(ids_.size());
        return {{"weights", reshard::TensorView<float>(rows_.data(), reshard::Shape{entries, width_})},
                {"adagrad", reshard::TensorView<float>(adagrad_.data(), reshard::Shape{entries})}};
    }
    /// Behind the ids that were loaded come the slots that none of them has.
    void settle(reshard::MchChange const& change) {
        live_ = static_cast<std::size_t>(change.live_after);
        std::vector<bool> taken(slots_.size());
        for (std::size_t i = 0; i < live_; ++i) taken[static_cast<std::size_t>(slots_[i] - first_slot())] = true;
        std::size_t next = live_;
        for (std::size_t row = 0; row < taken.size(); ++row) {
            if (!taken[row]) slots_[next++] = first_slot() + static_cast<Index>(row);
        }
    }

    [[nodiscard]] reshard::MchTable const& table() const noexcept { return table_; }
    [[nodiscard]] Index live() const noexcept { return static_cast<Index>(live_); }

private:
    [[nodiscard]] Index first_slot() const noexcept { return table_.range(rank_).begin; }
    [[nodiscard]] std::size_t at(Index row, Index j) const noexcept {
        return static_cast<std::size_t>(row * width_ + j);
    }

    /// The row of an id within this shard. The last slot is the row of those that find no other.
    Index row_of(Index id) {
        auto const last_slot = static_cast<Index>(slots_.size()) - 1;
        auto place = static_cast<std::size_t>(std::lower_bound(ids_.begin(), ids_.begin() + live(), id) - ids_.begin());
        if (place == live_ || ids_[place] != id) {
            if (live_ + 1 >= ids_.size() && !evict()) return last_slot;
            place = static_cast<std::size_t>(std::lower_bound(ids_.begin(), ids_.begin() + live(), id) - ids_.begin());
            admit(id, static_cast<std::ptrdiff_t>(place));
        }
        ++counts_[place];
        last_[place] = iteration_;
        return slots_[place] - first_slot();
    }
    /// Free slots stand behind the live ones, the last slot of all at the end.
    void admit(Index id, std::ptrdiff_t place) {
        auto const free = static_cast<std::ptrdiff_t>(live_);
        for (std::vector<Index>* column : {&ids_, &slots_, &counts_, &last_}) {
            std::rotate(column->begin() + place, column->begin() + free, column->begin() + free + 1);
        }
        ids_[static_cast<std::size_t>(place)] = id;
        counts_[static_cast<std::size_t>(place)] = 0;
        ++live_;
        Index const row = slots_[static_cast<std::size_t>(place)] - first_slot();
        adagrad_[static_cast<std::size_t>(row)] = 0;
        for (Index j = 0; j < width_; ++j) rows_[at(row, j)] = first_value(id, j);
    }
    bool evict() {
        std::size_t worst = live_;
        for (std::size_t i = 0; i < live_; ++i) {
            if (last_[i] == iteration_) continue;
            if (worst == live_ || std::pair(counts_[i], last_[i]) < std::pair(counts_[worst], last_[worst])) worst = i;
        }
        if (worst == live_) return false;
        auto const place = static_cast<std::ptrdiff_t>(worst);
        auto const end = static_cast<std::ptrdiff_t>(live_);
        for (std::vector<Index>* column : {&ids_, &slots_, &counts_, &last_}) {
            std::rotate(column->begin() + place, column->begin() + place + 1, column->begin() + end);
        }
        --live_;
        ids_[live_] = reshard::empty_id(table_.layout);
        counts_[live_] = last_[live_] = 0;
        return true;
    }
    /// A row starts as its id says, wherever it lies.
    [[nodiscard]] float first_value(Index id, Index j) const {
        auto const block = static_cast<std::uint64_t>(id) * 64 + static_cast<std::uint64_t>(j) / 4;
        auto const words = reshard::philox4x32(block, reshard::name_stream(table_.name), seed_);
        return static_cast<float>((words.words[j % 4] / 4294967296.0 - 0.5) / std::sqrt(static_cast<double>(width_)));
    }

    reshard::MchTable table_;
    reshard::Router router_;
    int rank_;
    Index width_;
    std::uint64_t seed_;
    std::vector<Index> ids_, slots_, counts_, last_, segments_;
    Index iteration_ = 0;
    std::size_t live_ = 0;
    std::vector<float> rows_, adagrad_;
    std::vector<float> gradient_;  ///< of the rows this batch has touched
    std::vector<bool> touched_;
    std::vector<Index> places_;  ///< the row of every id of the batch; -1: another rank's
};

}  // namespace trainer
