// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/model_support.hpp
/// \brief  Models of megabytes: all of each tensor in one process, and what each rank holds of it.
#pragma once

#include <reshard/exec/local_tensor.hpp>

#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "../support/oracle.hpp"
#include "../support/random.hpp"
#include "support.hpp"

namespace checkpoint_test {

using Bytes = std::vector<std::byte>;

/// All of it in one process.
struct Whole {
    std::string name;
    DType dtype;
    DynamicShape shape;
    Bytes bytes;
};

struct Model {
    std::vector<Whole> tensors;
    std::vector<DynamicDistribution> places;
    [[nodiscard]] int ranks() const {
        Index last = 0;
        for (auto const& place : places) last = detail::larger(last, place.mesh().last_rank());
        return static_cast<int>(last) + 1;
    }
    void place_at_random(test::Random& random) {
        places.clear();
        auto const mesh = random.mesh();
        for (Whole const& whole : tensors)
            places.push_back(random.distribution(random.chance(70) ? mesh : random.mesh(), whole.shape));
    }
};

/// Random bytes.
inline void fill(Whole& whole, test::Random& random) {
    std::mt19937_64 values(random.engine()());
    for (std::size_t i = 0; i < whole.bytes.size(); i += 8) {
        std::uint64_t const next = values();
        std::memcpy(whole.bytes.data() + i, &next, detail::smaller<std::size_t>(8, whole.bytes.size() - i));
    }
}

/// What a rank holds of the whole tensor, by the oracle. \pre one dimension at least
inline Bytes part_of(Whole const& whole, DynamicDistribution const& place, int rank) {
    if (!place.contains(rank)) return {};
    Index const width = bytes(whole.dtype);
    auto const held = oracle::held_indices(place, rank);
    oracle::Elements rows{0};
    for (std::size_t dim = 0; dim + 1 < held.size(); ++dim) {
        oracle::Elements longer;
        for (Index const row : rows)
            for (Index const i : held[dim]) longer.push_back(row * whole.shape.extent(static_cast<int>(dim)) + i);
        rows.swap(longer);
    }
    std::vector<Interval> runs;  // of the last dimension
    for (Index const i : held.back()) {
        if (runs.empty() || runs.back().end != i) runs.push_back({i, i});
        ++runs.back().end;
    }
    Index const extent = whole.shape.extent(whole.shape.rank() - 1);
    Bytes result(static_cast<std::size_t>(std::ssize(rows) * std::ssize(held.back()) * width));
    std::byte* to = result.data();
    for (Index const row : rows) {
        for (Interval const& run : runs) {
            auto const count = static_cast<std::size_t>(run.size() * width);
            std::memcpy(to, whole.bytes.data() + (row * extent + run.begin) * width, count);
            to += count;
        }
    }
    return result;
}

/// How a rank's tensors lie in memory.
enum class Lies { dense, rows_apart, elements_apart, columns_first };

/// A rank's tensors: what the model says, or bytes that nobody saved. `lies`: of the tensors, round and round.
class Held {
public:
    Held(Model const& model, int rank, bool filled, std::vector<Lies> const& lies = {Lies::dense})
        : model_(&model), rank_(rank) {
        for (std::size_t t = 0; t != model.tensors.size(); ++t) {
            Whole const& whole = model.tensors[t];
            DynamicDistribution const& place = model.places[t];
            DynamicShape const shape = place.contains(rank) ? place.local_shape(rank) : DynamicShape(Shape{0});
            Indices const strides = strides_of(shape, lies[t % lies.size()]);
            Index reach = 1;
            for (int dim = 0; dim < shape.rank(); ++dim)
                reach += detail::larger<Index>(shape.extent(dim) - 1, 0) * strides[dim];
            memory_.emplace_back(static_cast<std::size_t>(reach * bytes(whole.dtype)), std::byte{0xEE});
            list_.push_back({whole.name, place, DynamicView(memory_.back().data(), whole.dtype, shape, strides)});
            if (!filled) continue;
            Bytes const part = part_of(whole, place, rank);
            each_row(t, [&](std::byte* row, Index begin, Index count) {
                std::memcpy(row, part.data() + begin, static_cast<std::size_t>(count));
            });
        }
    }
    [[nodiscard]] std::vector<LocalTensor>& list() noexcept { return list_; }
    /// The first tensor that is not what the model says.
    [[nodiscard]] std::string wrong() const {
        for (std::size_t t = 0; t != memory_.size(); ++t) {
            Bytes const part = part_of(model_->tensors[t], model_->places[t], rank_);
            bool same = true;
            each_row(t, [&](std::byte const* row, Index begin, Index count) {
                same = same && std::memcmp(row, part.data() + begin, static_cast<std::size_t>(count)) == 0;
            });
            if (same) continue;
            return errors::concat("'", model_->tensors[t].name, "' of ", to_string(model_->tensors[t].shape), " under ",
                                  to_string(model_->places[t]), " on rank ", rank_);
        }
        return {};
    }

private:
    [[nodiscard]] static Indices strides_of(DynamicShape const& shape, Lies lies) {
        Indices strides = row_major_strides(shape);
        Index step = 1;
        for (int dim = 0; dim < shape.rank(); ++dim) {
            bool const is_last = dim + 1 == shape.rank();
            if (lies == Lies::elements_apart || (lies == Lies::rows_apart && !is_last)) strides[dim] *= 2;
            if (lies == Lies::columns_first) strides[dim] = step;
            step *= detail::larger<Index>(shape.extent(dim), 1);
        }
        return strides;
    }
    /// visit(address, first of its bytes in the dense form, how many) for each run of a tensor's last dimension.
    template <class Visit>
    void each_row(std::size_t t, Visit&& visit) const {
        DynamicView const& view = list_[t].view;
        Index const width = bytes(view.dtype());
        int const last = view.rank() - 1;
        Index const run = view.stride(last) == 1 ? view.extent(last) : 1;
        for (Index k = 0, size = view.size(); k < size; k += run) {
            Index offset = 0;
            Index rest = k;
            for (int dim = last; dim >= 0; --dim) {
                offset += rest % view.extent(dim) * view.stride(dim);
                rest /= view.extent(dim);
            }
            visit(view.data() + offset * width, k * width, run * width);
        }
    }

    Model const* model_;
    int rank_;
    std::deque<Bytes> memory_;
    std::vector<LocalTensor> list_;
};

}  // namespace checkpoint_test
