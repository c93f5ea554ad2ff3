// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/prepare_check.hpp
/// \brief  What prepare() asks of memory, and how ranks agree.
/// \depends comm/any_communicator, exec/detail/check, memory/host_memory.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/exec/detail/check.hpp>
#include <reshard/memory/host_memory.hpp>

namespace reshard::inline v0_1::detail {

[[nodiscard]] inline Index padded_bytes(Index elements, DType dtype) {
    constexpr Index padding = 192;  // each of at most three areas starts on a cache line
    Index count = 0;
    if (!multiply_fits(elements, bytes(dtype), count) || count > INT64_MAX - padding) {
        raise(ErrorCode::shape, "reshard::prepare: a workspace of ", elements, " elements does not fit 64-bit ",
              "sizes. Fix: check the shape for a wrong unit.");
    }
    return count == 0 ? 0 : count + padding;
}

/// Where the tensors of plans over `comm` lie.
[[nodiscard]] inline MemoryPolicy const& memory_of(CommunicatorRef comm, HostMemory const& host) {
    MemoryPolicy const* const memory = comm.memory();
    return memory != nullptr ? *memory : host.policy;
}

/// Throws BufferError for views of memory that `memory` cannot work on.
inline void check_views(MemoryPolicy const& memory, RankMove const& mine) {
    auto const check = [&](std::string_view what, ConstDynamicView const& view) {
        if (view.size() != 0) memory.check(what, view.data(), bytes(view.dtype()));
    };
    if (mine.gives()) check("source", mine.source);
    if (mine.takes()) check("destination", mine.destination);
}

/// Throws BufferError for views of memory that the transport cannot reach.
[[gnu::cold]] inline void check_memory(CommunicatorRef comm, MemoryPolicy const& memory, RankMove const& mine) {
    if (mine.gives() && mine.source.size() != 0) comm.check_memory(mine.source.data());
    if (mine.takes() && mine.destination.size() != 0) comm.check_memory(mine.destination.data());
    check_views(memory, mine);
}

/// How many addends are folded at a time where nobody said. What only one rank has, as its workspace, has no say: the
/// ranks would cut into different numbers of exchanges.
[[nodiscard]] inline PrepareOptions chunked(PrepareOptions options, bool on_device) noexcept {
    if (options.fold_elements <= 0 && on_device) options.fold_elements = INT64_MAX;
    return options;
}
inline void check_fold(PrepareOptions const& options) {
    if (options.fold_elements >= 0) return;
    raise(ErrorCode::buffer, "reshard::prepare: fold_elements is ", options.fold_elements,
          ". Fix: 0 or more; 0 leaves the choice to prepare().");
}
[[nodiscard]] inline bool is_on_device(CommunicatorRef comm) noexcept { return comm.memory() != nullptr; }

/// Bytes of scratch memory of one rank.
[[nodiscard]] inline Index scratch_bytes(RankSteps const& mine) {
    return padded_bytes(scratch_elements(mine.steps, mine.rank), mine.change.from);
}

/// What this rank brings to the agreement on one tensor.
inline void digest(Digest& digest, PlanValue const& plan, ValueChange const& change, PrepareOptions const& options) {
    digest.add(hash_of(plan)).add(static_cast<std::uint64_t>(change.from)).add_signed(options.fold_elements);
    if (!change.is_active()) return;
    digest.add(static_cast<std::uint64_t>(change.to)).add(__builtin_bit_cast(std::uint64_t, options.factor));
}
/// "(4):(S0) -> (4):(R) of (8,8) F32 as BF16 times 0.5"
[[nodiscard, gnu::cold]] inline std::string move_text(PlanValue const& plan, ValueChange const& change,
                                                      PrepareOptions const& options, int rank) {
    std::string text = to_string(plan.from);
    append(text, {" -> ", to_string(plan.to), " of ", to_string(plan.from.shape()), " ", name(change.from)});
    if (change.to != change.from) append(text, {" as ", name(change.to)});
    if (plan.ranks_per_node > 0) append(text, {", relayed between nodes of ", plan.ranks_per_node});
    if (plan.ranks_per_node < 0) append(text, {", folded in one shot"});
    if (options.factor != 1.0) append(text, {" times ", number_text(options.factor, 9)});
    if (options.fold_elements == INT64_MAX) {
        append(text, {", folding all addends at once"});
    } else if (options.fold_elements > 0) {
        append(text, {", folding ", options.fold_elements, " addends at a time"});
    }
    // DynamicView() is one of U8, which who gives it may not know.
    if (!plan.from.contains(rank) && !plan.to.contains(rank))
        append(text,
               {" (outside the meshes only the type of the views counts: DynamicView(nullptr, dtype, Shape{0}))"});
    return text;
}

/// Throws BufferError for scratch memory that the caller gave and that a tensor lies in.
[[gnu::cold]] inline void check_apart(std::span<std::byte> scratch, ConstDynamicView const& view,
                                      std::string_view which) {
    ConstDynamicView const memory(scratch.data(), DType::u8, Shape{scratch.size()});
    if (!overlap(memory, view)) return;
    raise(ErrorCode::buffer, "reshard::prepare: the workspace and the ", which,
          " overlap. Fix: give the workspace memory of its own.");
}
inline void check_apart(std::span<std::byte> scratch, RankMove const& mine) {
    if (mine.gives()) check_apart(scratch, mine.source, "source");
    if (mine.takes()) check_apart(scratch, mine.destination, "destination");
}

/// Scratch memory of `needed` bytes: what the caller gave, or `own`, which is allocated. `fix` says how to ask for its
/// size. Throws BufferError where there is too little, or the wrong kind, OutOfMemory.
[[nodiscard]] inline std::span<std::byte> workspace_for(CommunicatorRef comm, MemoryPolicy const& memory,
                                                        std::span<std::byte> given, Index needed, Workspace& own,
                                                        std::string_view what, std::string_view fix) {
    if (needed == 0) return given;
    if (given.empty()) {
        own = memory.allocate(needed);
        return {own.data(), as_size(needed)};
    }
    if (as_index(given.size()) < needed) {
        raise(ErrorCode::buffer, "reshard::prepare: the workspace of rank ", comm.rank(), " has ", given.size(),
              " bytes, the ", what, " needs ", needed, ". Fix: ask ", fix, ".");
    }
    comm.check_memory(given.data());
    memory.check_scratch(given.data());
    return given;
}

}  // namespace reshard::inline v0_1::detail
