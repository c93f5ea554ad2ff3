// SPDX-License-Identifier: Apache-2.0
/// \file   bench/support/local_matrix.hpp
/// \brief  One rank's part of a float64 matrix whose every element is its own number in the whole matrix.
#pragma once

#include <reshard/reshard.hpp>

#include <vector>  // vector

namespace reshard::bench {

/// \pre `memory`, where given, has room for the local shape and outlives this; otherwise memory of its own. Either is
/// written here for the first time, by the rank that uses it.
class LocalMatrix {
public:
    LocalMatrix(DynamicDistribution const& distribution, int rank, double* memory = nullptr)
        : shape_(distribution.local_shape(rank)), width_(distribution.shape().extent(1)), data_(memory) {
        for (int dim = 0; dim < 2; ++dim) {
            IndexSet const held = distribution.index_set(distribution.mesh().coordinates(rank), dim);
            for (Index i = 0; i < held.segments(); ++i) {
                Interval const segment = held.segment(i);
                for (Index at = segment.begin; at < segment.end; ++at) global_[dim].push_back(at);
            }
        }
        if (data_ == nullptr) {
            own_ = Tensor<double>(shape_);
            data_ = own_.data();
        }
        spoil();
    }

    [[nodiscard]] TensorView<double> view() noexcept { return {data_, shape_}; }
    [[nodiscard]] double* data() noexcept { return data_; }

    void fill() {
        each([](double& element, double right) { element = right; });
    }
    /// Overwrites all of it, so that right values are the work of whoever comes next.
    void spoil() {
        each([](double& element, double) { element = -1; });
    }
    [[nodiscard]] bool is_right() {
        bool right = true;
        each([&](double& element, double wanted) { right = right && element == wanted; });
        return right;
    }

private:
    template <class Visit>
    void each(Visit&& visit) {
        double* element = data_;
        for (Index row : global_[0])
            for (Index column : global_[1]) visit(*element++, static_cast<double>(row * width_ + column));
    }

    DynamicShape shape_;
    Index width_;
    double* data_;
    Tensor<double> own_;
    std::vector<Index> global_[2];
};

}  // namespace reshard::bench
