// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/batch.hpp
/// \brief  Many tensors of any element types in one prepared plan: one agreement, few exchanges, large messages.
/// \depends exec/prepare. Opt-in: not part of the umbrella.
///
/// Tensors travel in rounds. A round is one exchange per phase, which holds the transfers of all its tensors: a
/// transport sends one message per peer, or copies from peer to peer between one pair of barriers. Small tensors share
/// rounds, large ones have a round of their own (plan/batch.hpp has the rule). Views and local copies need no round.
#pragma once

#include <reshard/exec/prepare.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

/// The first two must be the same on every rank.
struct BatchOptions {
    /// Tensors share a round while a rank's share of them is at most this many bytes. 0: every tensor alone.
    Index bucket_bytes = Index{1} << 20;
    /// No round needs more scratch memory than this on any rank; rounds follow each other in the same memory. Only
    /// folds need any. A tensor that needs more by itself is a BufferError.
    Index max_workspace_bytes = INT64_MAX;
    /// Scratch memory of workspace_bytes(batch, comm, options) bytes or more that outlives the prepared plan and its
    /// runs, where the tensors lie; allocated when empty.
    std::span<std::byte> workspace{};
};

/// A tensor of a batch, as one rank sees it. On ranks outside the plan's meshes only the element type counts:
/// `DynamicView(nullptr, dtype, Shape{0})`.
struct BatchTensor {
    Plan<> plan;
    ConstDynamicView source;
    DynamicView destination;
    std::string name;  ///< for messages; part of the agreement, so that tensors listed in another order are noticed
    PrepareOptions options{};  ///< factor and cast; the workspace is the batch's
};

/// A list of tensors to move together. The same tensors in the same order on every rank.
class Batch {
public:
    /// `options` cast or scale this tensor, as for prepare of one plan; its workspace is not used.
    void add(Plan<> const& plan, ConstDynamicView const& source, DynamicView const& destination, std::string name = {},
             PrepareOptions const& options = {}) {
        tensors_.push_back({plan, source, destination, std::move(name), options});
    }
    /// The same for typed views, and tensors that own their memory. Different element types compile with Casting only.
    template <class From, class To, detail::Viewed S, detail::Viewed T,
              std::derived_from<PrepareOptions> Options = PrepareOptions>
    void add(Plan<From, To> const& plan, S&& source, T&& destination, std::string name = {},
             Options const& options = {}) {
        static_assert(detail::check_types<From, To, detail::ElementOf<S>, detail::ElementOf<T>, Options>());
        add(static_cast<Plan<> const&>(Plan<>(plan)), ConstDynamicView(detail::as_view(source)),
            DynamicView(detail::as_view(destination)), std::move(name), static_cast<PrepareOptions const&>(options));
    }
    void reserve(std::size_t tensors) { tensors_.reserve(tensors); }

    [[nodiscard]] std::span<BatchTensor const> tensors() const noexcept { return tensors_; }
    [[nodiscard]] std::size_t size() const noexcept { return tensors_.size(); }
    [[nodiscard]] bool empty() const noexcept { return tensors_.empty(); }

private:
    std::vector<BatchTensor> tensors_;
};

/// The tensors of each round, by their number in the batch; views and local copies are in none. The same on every rank.
/// Throws BufferError for a tensor that needs more scratch memory than a round may use.
[[nodiscard]] std::vector<std::vector<std::size_t>> rounds(Batch const& batch, int rank,
                                                           BatchOptions const& options = {});
/// The same where the tensors of `comm` lie: on a device all addends are folded at once by default.
[[nodiscard]] std::vector<std::vector<std::size_t>> rounds(Batch const& batch, CommunicatorRef comm,
                                                           BatchOptions const& options = {});

/// Bytes of scratch memory one rank needs for a batch: of the round that needs most.
[[nodiscard]] Index workspace_bytes(Batch const& batch, int rank, BatchOptions const& options = {});
[[nodiscard]] Index workspace_bytes(Batch const& batch, CommunicatorRef comm, BatchOptions const& options = {});

namespace detail {
/// Checks, allocates and binds one rank's side of a batch, by `new`. Communicates nothing. `current` is the tensor at
/// work.
[[nodiscard]] BatchJob* bind_batch(Batch const& batch, CommunicatorRef comm, BatchOptions const& options,
                                   std::size_t& current);
}  // namespace detail

/// Collective over `comm`: checks every tensor, agrees once among all ranks (the same error everywhere, naming rank and
/// tensor) and allocates; until then nothing is touched. The memory and the communicator must outlive the result; the
/// batch need not. The empty batch is legal.
///
/// Throws what prepare of one plan throws, its message led by the tensor's number and name; BufferError also when two
/// tensors share memory that one of them writes, and for scratch memory beyond options.max_workspace_bytes;
/// MismatchError when ranks list different tensors or options, naming the first that differs.
[[nodiscard]] PreparedPlan prepare(Batch const& batch, CommunicatorRef comm, BatchOptions const& options = {});

/// prepare + run. Collective over `comm`.
inline void redistribute(Batch const& batch, CommunicatorRef comm, BatchOptions const& options = {}) {
    prepare(batch, comm, options).run();
}

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/exec/batch.ipp>
#endif
