// SPDX-License-Identifier: Apache-2.0
/// \file   examples/trainer/placement.hpp
/// \brief  From placement strings to the distributions of a layer: what the trainer knows of parallelism.
/// \depends reshard/algebra, reshard/checkpoint/placed_tensor.hpp.
///
/// A layer computes y = x W^T with W [out, in], and each mesh axis cuts one of the three dimensions of that product.
/// How W is placed while it is multiplied says which:
///
///     W     cuts            x     y     the usual name
///     R     the batch       S0    S0    data parallel
///     S0    out features    R     S1    column parallel
///     S1    in features     S1    P+    row parallel
///
/// Gradients are placed by adjoint(): R and P+ change places. So the gradient of W is Partial along the axes that cut
/// the batch, and that of x along those that cut out features.
#pragma once

#include <reshard/checkpoint/placed_tensor.hpp>
#include <reshard/plan/plan.hpp>

#include <string>
#include <vector>

namespace trainer {
using reshard::DynamicDistribution;
using reshard::DynamicMesh;
using reshard::DynamicShape;
using reshard::ErrorCode;
using reshard::Index;
using reshard::Placement;
using reshard::PlacementRule;
using reshard::Placements;
using reshard::Shape;
using reshard::errors::concat;

[[noreturn]] inline void refuse(ErrorCode code, std::string const& what) { reshard::errors::raise(code, what); }

/// Placements as flags give them; empty: the default that stands behind it.
struct PlacementFlags {
    std::string compute;      ///< mesh and, for each layer in turn, how W is multiplied: "(2,2):(R,S0),(R,S1)"
    std::string weights;      ///< how W rests between steps: as it is multiplied
    std::string optimizer;    ///< which part of W a rank updates, and keeps the optimizer's state of: what rests there
    std::string activations;  ///< between layers: "S0" on every axis
};

class Layout {
public:
    Layout(PlacementFlags const& flags, int ranks) {
        std::string const text = flags.compute.empty() ? concat("(", ranks, "):(R)") : flags.compute;
        compute_ = lists_of(text);
        for (std::string const& one : compute_) check_compute(one);
        mesh_ = PlacementRule(compute_.front()).mesh();
        std::string const mesh = to_string(mesh_);
        if (mesh_.size() != ranks || mesh_.last_rank() + 1 != ranks) {
            refuse(ErrorCode::mesh, concat("--place ", text, ": the mesh has ", mesh_.size(), " ranks from rank ",
                                           mesh_.rank_at(0), ", but ", ranks, " take part. Fix: start ", mesh_.size(),
                                           " (mpirun -n ", mesh_.size(), ", or --ranks), or name another mesh."));
        }
        auto const placed = [&](std::string const& given) {
            return given.empty() ? std::string() : concat(mesh, ":(", given, ")");
        };
        weights_ = placed(flags.weights);
        optimizer_ = placed(flags.optimizer);
        activations_ = placed(flags.activations);
        if (activations_.empty()) return;
        DynamicDistribution const rows = PlacementRule(activations_).of(Shape{1, 1}, reshard::DType::f32);
        for (int axis = 0; axis < mesh_.axes(); ++axis) {
            if (rows.placement(axis).is_shard()) continue;
            refuse(ErrorCode::placement,
                   concat("--activations ", flags.activations, ": axis ", axis,
                          " copies activations, so that its ranks would all do the same. Fix: S0 or S1."));
        }
    }

    /// What the mesh of --place needs. Throws NotationError.
    [[nodiscard]] static int ranks_of(std::string const& compute) {
        return static_cast<int>(PlacementRule(lists_of(compute).front()).mesh().size());
    }
    [[nodiscard]] std::string text() const {
        std::string result = compute_.front();
        for (std::size_t i = 1; i < compute_.size(); ++i) result += "," + compute_[i].substr(compute_[i].find(':') + 1);
        return result;
    }
    /// W of a layer as it is multiplied.
    [[nodiscard]] DynamicDistribution compute(int layer, DynamicShape const& shape) const {
        return reshard::parse(compute_[static_cast<std::size_t>(layer) % compute_.size()], shape);
    }
    /// A parameter between steps, where it is used as `used`.
    [[nodiscard]] DynamicDistribution resting(DynamicDistribution const& used) const {
        return weights_.empty() ? used : PlacementRule(weights_).of(used.shape(), reshard::DType::f32);
    }
    [[nodiscard]] DynamicDistribution optimizer(DynamicDistribution const& resting) const {
        return optimizer_.empty() ? resting : PlacementRule(optimizer_).of(resting.shape(), reshard::DType::f32);
    }
    /// [batch, features] between layers.
    [[nodiscard]] DynamicDistribution activations(DynamicShape const& shape) const {
        if (!activations_.empty()) return PlacementRule(activations_).of(shape, reshard::DType::f32);
        return everywhere(shape, Placement::shard(0));
    }
    /// The same placement on every axis.
    [[nodiscard]] DynamicDistribution everywhere(DynamicShape const& shape, Placement const& placement) const {
        Placements all;
        for (int axis = 0; axis < mesh_.axes(); ++axis) all.push_back(placement);
        return DynamicDistribution(mesh_, shape, all);
    }

private:
    /// "(2,2):(R,S0),(R,S1)" as "(2,2):(R,S0)" and "(2,2):(R,S1)".
    static std::vector<std::string> lists_of(std::string const& text) {
        if (text.find('@') != std::string::npos) {
            refuse(ErrorCode::notation, concat("--place ", text,
                                               ": a cutting order is not for layers, whose "
                                               "dimensions are cut in the order of the axes. Fix: leave @... out."));
        }
        std::vector<std::string> lists;
        std::size_t const colon = text.find(':');
        std::size_t at = colon;
        while (at < text.size()) {  // at a colon or a comma
            std::size_t const end = std::min(text.find(')', at), text.size() - 1) + 1;
            lists.push_back(concat(text.substr(0, colon), ":", text.substr(at + 1, end - at - 1)));
            at = end;
        }
        if (lists.empty()) lists.push_back(text);  // its reader says what is wrong
        return lists;
    }
    static void check_compute(std::string const& text) {
        DynamicDistribution const weight = reshard::parse(text, Shape{1, 1});
        for (int axis = 0; axis < weight.mesh().axes(); ++axis) {
            if (!weight.placement(axis).is_partial()) continue;
            refuse(ErrorCode::placement,
                   concat("--place ", text, ": axis ", axis, " makes a weight ", to_string(weight.placement(axis)),
                          ", which nothing can be multiplied with. Fix: R, S0 or S1."));
        }
    }

    std::vector<std::string> compute_;
    std::string weights_;
    std::string optimizer_;
    std::string activations_;
    DynamicMesh mesh_;
};

/// What multiplying needs and leaves: see the table above.
struct Product {
    DynamicDistribution x;
    DynamicDistribution y;
};
inline Product product_of(DynamicDistribution const& weight, Index batch) {
    Placements x;
    Placements y;
    for (int axis = 0; axis < weight.mesh().axes(); ++axis) {
        Placement const placement = weight.placement(axis);
        bool const shard = placement.is_shard();
        bool const out = shard && placement.dim() == 0;
        x.push_back(!shard ? Placement::shard(0) : out ? Placement::replicate() : placement);
        y.push_back(!shard ? Placement::shard(0)
                    : out  ? Placement::shard(1, placement.rule())
                           : Placement::partial(reshard::Reduce::sum));
    }
    DynamicShape const& shape = weight.shape();
    return {DynamicDistribution(weight.mesh(), Shape{batch, shape.extent(1)}, x),
            DynamicDistribution(weight.mesh(), Shape{batch, shape.extent(0)}, y)};
}

/// A bias where it is added to activations: cut where these are cut by features.
inline DynamicDistribution bias_of(DynamicDistribution const& activations) {
    Placements placements;
    for (int axis = 0; axis < activations.mesh().axes(); ++axis) {
        Placement const placement = activations.placement(axis);
        bool const features = placement.is_shard() && placement.dim() == 1;
        placements.push_back(features ? Placement::shard(0, placement.rule()) : Placement::replicate());
    }
    return DynamicDistribution(activations.mesh(), Shape{activations.shape().extent(1)}, placements);
}

}  // namespace trainer
