// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/load.hpp
/// \brief  Loads a checkpoint onto any mesh and placements. How is a type: see load_strategy.hpp.
/// \depends checkpoint/{checkpoint,load_strategy}, comm/any_communicator, exec/local_tensor. Link reshard::checkpoint.
///
///     load(checkpoint, tensors, rank);                           // every rank has the file: nothing is sent
///     load(path, tensors, comm);                                 // all have it; each byte read once where that pays
///     load(path, tensors, comm, EachRankReadsItsBoxes{});        // all have it, and agree
///     load(path, tensors, comm, OneRankReads{});                 // one rank has it, and scatters
///
/// All leave the same bits in the same tensors. Tensors of the checkpoint that are not in the list stay where they are
/// (LoadReport::not_listed). No two of the list share memory: of tied weights one is listed.
/// A tensor of 4- or 6-bit elements is loaded as its bytes: U8, of shape [bytes]. Over a communicator of devices that
/// moves memory of the host too, tensors may lie on either side.
#pragma once

#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/exec/local_tensor.hpp>

#include <span>  // span

namespace reshard::inline v0_1 {

/// Loads this rank's part of the tensors from a checkpoint that this rank has. Communicates nothing: a rank that fails
/// throws alone. Throws IoError, FormatError (TensorNotFound; bytes that are not those that were saved), MismatchError
/// (shape or element type), ShapeError (a box that is none of its tensor), BufferError, DTypeError and TransitionError
/// (a Partial without identity); once reading has begun the message says that the tensors are partly filled. The files
/// are read, not mapped, also when the checkpoint is mapped.
LoadReport load(Checkpoint const& checkpoint, std::span<LocalTensor const> tensors, int rank,
                EveryRankReads const& strategy = {});

/// The part of a tensor that this rank holds under a distribution, as a window into the map of the file: no copy, no
/// communicator, no memory but the page cache. Throws BufferError unless the checkpoint was opened with Access::mmap,
/// FormatError for a name it does not have, or has in boxes, as save() leaves them (consolidate() makes full files),
/// MismatchError for another shape, TransitionError for placements that no window has (block-cyclic, Partial). Its
/// address is aligned only as well as the file was written.
[[nodiscard]] ConstDynamicView local_view(Checkpoint const& checkpoint, std::string_view tensor,
                                          DynamicDistribution const& distribution, int rank);

/// Collective, after load() of EveryRankReads on all ranks: returns when all have loaded, throws MismatchError on all
/// when they loaded from files that differ in names, sizes or headers, or, without a manifest, in samples of their
/// data. A rank whose load threw does not come here: the others get PeerFailed, as from any collective.
void agree_loaded(CommunicatorRef comm, LoadReport const& report);

namespace detail {
LoadReport load_by(std::string const& path, std::span<LocalTensor const> tensors, CommunicatorRef comm,
                   LoadTerms const& terms);
}  // namespace detail

/// Collective over `comm`. How is the strategy:
/// - OneRankReads: rank strategy.root reads `path` (see Checkpoint::open) and passes it on; other ranks need no file.
/// - EachRankReadsItsBoxes: every rank has the files; each reads its own part.
/// - CooperativeRead: every wanted byte is read once, by contiguous spans of (file, offset) order, then exchanged; or
///   read directly, where the model says that this is faster: what is done where no strategy is named.
///
/// All ranks list the same tensors in the same order, and the same options; what differs is the memory.
///
/// Throws the same error on every rank, naming the rank it belongs to: IoError, FormatError (TensorNotFound),
/// MismatchError (lists that differ; shape or element type other than the file's; ranks that see different versions of
/// a file), ShapeError, BufferError, MeshError, DTypeError, TransitionError, OutOfMemory; until the first read nothing
/// is touched, and later the message says that the tensors are partly filled. Errors of the transport as from any
/// collective. When a save into the folder has removed files before they were open, all ranks start again, with the new
/// ones, a few times; then that is an IoError.
template <class Strategy = CooperativeRead>
    requires(Strategy::communicates)
LoadReport load(std::string const& path, std::span<LocalTensor const> tensors, CommunicatorRef comm,
                Strategy const& strategy = {}) {
    return detail::load_by(path, tensors, comm, detail::terms_of(strategy));
}

// What is no load. Of these no strategy is deduced from `{.options = ...}`: with a path that is a CooperativeRead.

/// Every rank has the data: there is nothing to send, and so nothing to pass a communicator for.
template <Communicator C, class Strategy>
    requires(!Strategy::communicates)
LoadReport load(std::string const&, std::span<LocalTensor const>, C&, Strategy const&) {
    static_assert(!Communicator<C>,
                  "reshard::load: with EveryRankReads every rank has the checkpoint, so that nothing is sent. "
                  "Fix: pass the rank instead of the communicator: load(checkpoint, tensors, comm.rank()).");
    return {};
}
template <Communicator C, class Strategy = EveryRankReads>
LoadReport load(Checkpoint const&, std::span<LocalTensor const> tensors, C& comm, Strategy const& strategy = {}) {
    static_assert(!Strategy::communicates,
                  "reshard::load: ranks that read together open the files together, too. Fix: pass the path instead of "
                  "the checkpoint: load(path, tensors, comm, strategy).");
    if constexpr (!Strategy::communicates) return load(std::string(), tensors, comm, strategy);
    return {};
}
/// Who has a path has nothing open.
template <class Rank, class Strategy = EveryRankReads>
    requires std::is_integral_v<Rank> LoadReport load(std::string const&, std::span<LocalTensor const>, Rank,
                                                      Strategy const& = {}) {
        static_assert(
            !std::is_integral_v<Rank>,
            "reshard::load: a rank that reads for itself has opened the checkpoint. Fix: pass it instead of its "
            "path: load(Checkpoint::open(path), tensors, rank); or a communicator instead of the rank: "
            "load(path, tensors, comm).");
        return {};
    }

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/load.ipp>
#endif
