// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/boxes.hpp
/// \brief  redistribute() between lists of boxes, for shards that no placement describes.
/// \depends exec/{box_move,local_tensor,prepare}. Opt-in: not part of the umbrella.
///
///     Shape const shape{100, 64};
///     BoxTable const before(shape, {{0, Box{{0, 30}, {0, 64}}}, {1, Box{{30, 100}, {0, 64}}}});  // on every rank
///     auto const columns = distribution(mesh, shape, "S1");
///     redistribute(before, BoxTable(columns), DType::f32, comm, mine, box_views(columns, comm.rank(), shard));
///
/// A rank passes a view for each of its boxes, in the order of boxes_of(rank): the boxes lie anywhere in its memory,
/// and each is one tensor of the box's shape.
#pragma once

#include <reshard/exec/box_move.hpp>
#include <reshard/exec/local_tensor.hpp>
#include <reshard/exec/prepare.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

namespace detail {
template <class List>
consteval bool check_box_sources() {
    constexpr bool is_const = std::is_void_v<List>;  // never
    static_assert(is_const,
                  "reshard: the sources of boxes are a list of DynamicView. Fix: make it one of ConstDynamicView; "
                  "std::vector<ConstDynamicView>(views.begin(), views.end()) is one.");
    return true;
}
}  // namespace detail

/// Collective over `comm`, as prepare() of a plan: checks, agrees among all ranks, allocates; the same error
/// everywhere. All tensors travel in one exchange, a message a peer where the transport joins them. The same tensors in
/// the same order on every rank.
///
/// Throws ShapeError, PlacementError (an element that a rank needs and none holds; boxes of `from` that overlap, are
/// not equal and not folded), MeshError (ranks that the communicator does not have), BufferError (number of views,
/// shape, null, overlap), DTypeError, TransitionError (a fold, and a communicator that only copies), MismatchError
/// where ranks give other tables, naming the first box that differs, OutOfMemory: a fold needs scratch memory for what
/// arrives, and for the addends of all elements that have several.
[[nodiscard]] PreparedPlan prepare(std::span<BoxMove const> moves, CommunicatorRef comm);
/// The same of one tensor.
[[nodiscard]] inline PreparedPlan prepare(BoxTable const& from, BoxTable const& to, DType dtype, CommunicatorRef comm,
                                          std::span<ConstDynamicView const> source,
                                          std::span<DynamicView const> destination, std::optional<BoxFold> fold = {}) {
    BoxMove const alone{from, to, dtype, source, destination, {}, fold};
    return prepare({&alone, 1}, comm);
}

/// prepare + run. Collective over `comm`.
inline void redistribute(std::span<BoxMove const> moves, CommunicatorRef comm) { prepare(moves, comm).run(); }
inline void redistribute(BoxTable const& from, BoxTable const& to, DType dtype, CommunicatorRef comm,
                         std::span<ConstDynamicView const> source, std::span<DynamicView const> destination,
                         std::optional<BoxFold> fold = {}) {
    prepare(from, to, dtype, comm, source, destination, fold).run();
}

/// Refuse, in words, sources that could be written: a list of other views is no list of ConstDynamicView.
template <std::convertible_to<std::span<DynamicView const>> List>
void prepare(BoxTable const&, BoxTable const&, DType, CommunicatorRef, List const&, std::span<DynamicView const>,
             std::optional<BoxFold> = {}) {
    static_assert(detail::check_box_sources<List>());
}
template <std::convertible_to<std::span<DynamicView const>> List>
void redistribute(BoxTable const&, BoxTable const&, DType, CommunicatorRef, List const&, std::span<DynamicView const>,
                  std::optional<BoxFold> = {}) {
    static_assert(detail::check_box_sources<List>());
}

/// A rank's part of a distributed tensor as views of its boxes in BoxTable(distribution): where one of two tables is a
/// distribution. A view that is not of local_shape(rank) comes back as it is, for prepare() to refuse on all ranks. As
/// a source give a view of const elements, or a ConstDynamicView.
[[nodiscard]] std::vector<ConstDynamicView> box_views(DynamicDistribution const& distribution, Index rank,
                                                      ConstDynamicView const& local);
[[nodiscard]] std::vector<DynamicView> box_views(DynamicDistribution const& distribution, Index rank,
                                                 DynamicView const& local);

/// The same of a typed view, or of a tensor that owns its memory.
template <detail::Viewed Local>
[[nodiscard]] auto box_views(DynamicDistribution const& distribution, Index rank, Local&& local) {
    constexpr bool is_const = std::is_const_v<detail::ElementOf<Local>>;
    using View = std::conditional_t<is_const, ConstDynamicView, DynamicView>;
    return box_views(distribution, rank, View(detail::as_view(local)));
}

/// The boxes of a table as a list of tensors, to load, save or initialise what ranks hold of the tensor of that name:
/// an entry for each box, on the ranks that have it. The same list on every rank; `views` are this rank's, as in
/// BoxMove. Throws BufferError for another number of them, PlacementError for a box that a rank has twice; views that
/// do not fit are for the function that the list is given to. O(n log n) for n boxes.
[[nodiscard]] std::vector<LocalTensor> box_tensors(std::string_view name, BoxTable const& table, DType dtype,
                                                   Index rank, std::span<DynamicView const> views);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/exec/boxes.ipp>
#endif
