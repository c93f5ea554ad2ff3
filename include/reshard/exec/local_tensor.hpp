// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/local_tensor.hpp
/// \brief  LocalTensor: one rank's part of a named, distributed tensor. What is loaded, initialised, synchronised and
///         verified is a list of them. What is saved may be a list of ConstLocalTensor. Within: a box of a larger
///         tensor.
/// \depends algebra/transition.hpp, exec/detail/check.hpp, memory/device_memory.hpp, <span>, <vector>.
/// Opt-in: not part of the umbrella.
#pragma once

#include <reshard/algebra/transition.hpp>
#include <reshard/exec/detail/check.hpp>
#include <reshard/memory/device_memory.hpp>

#include <span>    // span
#include <vector>  // vector

namespace reshard::inline v0_1 {

/// That a tensor of a list is a box of a larger one, which has the name: a third of a fused projection, one expert of
/// many, a shard that no placement describes. The box is distributed as if it were a tensor.
///
///     LocalTensor{"attn.qkv.weight", rows_on(mesh), k, {.shape = Shape{12288, 4096}, .begin = {4096, 0}}}
struct Within {
    DynamicShape shape{};  ///< of the larger tensor; without dimensions: the tensor is whole
    Indices begin{};       ///< where the box begins in it

    [[nodiscard]] bool is_whole() const noexcept { return shape.rank() == 0; }
    friend bool operator==(Within const&, Within const&) = default;
};

/// One rank's part of a distributed tensor that is only read: of const tensors and views.
struct ConstLocalTensor {
    std::string name;
    DynamicDistribution distribution;
    ConstDynamicView view;  ///< as in LocalTensor
    Within within{};
};

/// One rank's part of a distributed tensor, under the name that all ranks know it by.
struct LocalTensor {
    std::string name;
    DynamicDistribution distribution;
    DynamicView view;  ///< of shape distribution.local_shape(rank); outside the mesh only the element type counts
    Within within{};   ///< for a box of a larger tensor

    operator ConstLocalTensor() const { return {name, distribution, view, within}; }
};

namespace detail {

/// The shape of the tensor that has the name.
template <class Tensor>
[[nodiscard]] DynamicShape const& whole_shape(Tensor const& tensor) noexcept {
    return tensor.within.is_whole() ? tensor.distribution.shape() : tensor.within.shape;
}
/// A box of what a list has here, as one of that.
template <class Tensor>
[[nodiscard]] Box whole_box(Tensor const& tensor, Box box) noexcept {
    for (int dim = 0; dim < tensor.within.shape.rank(); ++dim) {
        Index const begin = tensor.within.begin[dim];
        box.set(dim, {begin + box.begin(dim), begin + box.end(dim)});
    }
    return box;
}
/// Which box of that a list has here. \pre it lies inside
template <class Tensor>
[[nodiscard]] Box box_in_whole(Tensor const& tensor) noexcept {
    return whole_box(tensor, Box(tensor.distribution.shape()));
}
/// A box of that, counted from where this one begins.
template <class Tensor>
[[nodiscard]] Box own_box(Tensor const& tensor, Box const& box) noexcept {
    return tensor.within.is_whole() ? box : relative_to(box_in_whole(tensor), box);
}
/// Completes a sentence that has told the tensor's own shape: " at [4096, 0] of [12288, 4096]".
[[nodiscard]] inline std::string text_of(Within const& within) {
    if (within.is_whole()) return {};
    return concat(" at ", to_string(within.begin), " of ", to_string(within.shape));
}
/// Calls refuse(why), which throws, for a box that is none of the larger tensor.
template <class Refuse>
void check_within(DynamicShape const& shape, Within const& within, Refuse const& refuse) {
    if (within.is_whole() && within.begin.size() != 0) {
        refuse(concat("begins at ", to_string(within.begin), " of no tensor. Fix: give the shape of the larger one."));
    }
    if (within.is_whole()) return;
    if (shape.rank() != within.shape.rank()) {
        refuse(concat("a box of shape ", to_string(shape), " is none of a tensor of shape ", to_string(within.shape),
                      ". Fix: give the box as many dimensions, of extent 1 where it has one index."));
    }
    bool fits = within.begin.size() == shape.rank();
    for (int dim = 0; fits && dim < shape.rank(); ++dim)
        fits = within.begin[dim] >= 0 && within.begin[dim] <= within.shape.extent(dim) - shape.extent(dim);
    if (fits) return;
    refuse(concat("a box of shape ", to_string(shape), " at ", to_string(within.begin),
                  " is none of a tensor of shape ", to_string(within.shape),
                  ". Fix: give a begin for each dimension, so that the box lies inside."));
}

/// The same tensors for functions that share their code with those that write, and write to none of these.
[[nodiscard]] inline std::vector<LocalTensor> only_read(std::span<ConstLocalTensor const> tensors) {
    std::vector<LocalTensor> list;
    list.reserve(tensors.size());
    for (ConstLocalTensor const& tensor : tensors) {
        ConstDynamicView const& view = tensor.view;
        list.push_back({tensor.name, tensor.distribution,
                        DynamicView(const_cast<std::byte*>(view.data()), view.dtype(), view.shape(), view.strides()),
                        tensor.within});
    }
    return list;
}

/// What a rank has of a tensor that is read or made whole, as plan(R, P) has it: on Partial axes coordinate 0 has the
/// values and the others the identity of `op`; where the op is idempotent (avg, min, max) all have the values.
struct PartialPart {
    bool has_values = true;
    Reduce op = Reduce::sum;  ///< of the axes along which others have identities
};
[[nodiscard]] inline PartialPart partial_part(DynamicDistribution const& distribution,
                                              Indices const& coordinates) noexcept {
    PartialPart part;
    for (int axis = 0; axis < distribution.mesh().axes(); ++axis) {
        PlacementForm const& placement = distribution.signature()[axis];
        if (!placement.is_partial()) continue;
        if (axis_change(Placement::replicate(), placement) != AxisChange::fill) continue;
        part.op = placement.op();
        part.has_values = part.has_values && coordinates[axis] == 0;
    }
    return part;
}

/// Calls refuse(why), which throws, where a tensor is Partial by an op that its element type does not have.
template <class Refuse>
void check_reductions(DynamicDistribution const& distribution, DType dtype, Refuse const& refuse) {
    for (PlacementForm const& placement : distribution.signature().placements) {
        if (!placement.is_partial() || supports(placement.op(), dtype)) continue;
        refuse(concat(name(placement.op()), " is not defined for ", name(dtype), ". Fix: use an op that it has (",
                      supported_ops(dtype), ")."));
    }
}

/// Throws ShapeError for a box that is none of the larger tensor, and BufferError unless the view is what the
/// distribution gives this rank: its shape, and memory behind it. Both name the tensor. `who` is the function that was
/// called.
inline void check_local_tensor(LocalTensor const& tensor, int rank, std::string_view who) {
    check_within(tensor.distribution.shape(), tensor.within, [&](std::string const& why) {
        raise(ErrorCode::shape, "reshard::", who, ": tensor '", tensor.name, "': ", why);
    });
    if (!tensor.distribution.contains(rank)) return;
    DynamicShape const wanted = tensor.distribution.local_shape(rank);
    std::string const fault =
        tensor.view.shape() != wanted
            ? concat(" has shape ", to_string(tensor.view.shape()), ", but ", to_string(tensor.distribution), " of ",
                     to_string(tensor.distribution.shape()), " has ", to_string(wanted),
                     " there. Fix: allocate local_shape(rank).")
            : memory_fault(tensor.view, false);
    if (fault.empty()) return;
    raise(ErrorCode::buffer, "reshard::", who, ": tensor '", tensor.name, "' on rank ", rank, ": the view", fault);
}
/// The same for who writes to it, where elements must not share memory.
inline void check_written(LocalTensor const& tensor, int rank, std::string_view who) {
    if (!tensor.distribution.contains(rank) || is_injective(tensor.view)) return;
    raise(ErrorCode::buffer, "reshard::", who, ": tensor '", tensor.name, "' on rank ", rank, ": the view",
          memory_fault(tensor.view, true));
}

/// For what the host itself reads or writes: throws BufferError, naming the tensor, for memory of a device.
inline void check_on_host(LocalTensor const& tensor, int rank, std::string_view who) {
    if (!tensor.distribution.contains(rank) || !is_device_memory(tensor.view.data())) return;
    raise(ErrorCode::buffer, "reshard::", who, ": tensor '", tensor.name, "' on rank ", rank,
          ": the view lies in memory of a CUDA device, where the host cannot work. Fix: pass memory of the "
          "host, and copy between the two, or load, save and verify over a communicator of devices.");
}

}  // namespace detail

}  // namespace reshard::inline v0_1
