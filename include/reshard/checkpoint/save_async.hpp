// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/save_async.hpp
/// \brief  start_save(): a snapshot is taken, the trainer goes on, the files are written behind it.
/// \depends checkpoint/save_options, comm/any_communicator, exec/local_tensor. Link reshard::save.
///
///     auto saving = start_save("checkpoint", tensors, comm);
///     ... train; the tensors may change ...
///     SaveReport const report = saving.wait();                 // before the next save, and before the end
#pragma once

#include <reshard/checkpoint/save_options.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/exec/local_tensor.hpp>

#include <memory>  // unique_ptr
#include <span>    // span

namespace reshard::inline v0_1 {

namespace detail {
class SaveBehind;
}  // namespace detail

/// A save under way. Move-only. The folder is this save's until wait() has returned, or the handle is gone.
///
/// Dropped without wait() it stops writing and removes what it wrote: the save before stays. That is no collective
/// call, so if other ranks wait() for theirs, they wait for this rank, as in any collective. \pre the communicator
/// outlives it and stays where it is; calls of others on it may come between.
class [[nodiscard]] SaveRequest {
public:
    SaveRequest() noexcept = default;
    explicit SaveRequest(detail::SaveBehind* save) noexcept : save_(save) {}  // whose it is from here on

    /// Whether this rank's bytes are written, or will never be: wait() then waits for other ranks only. Never blocks.
    [[nodiscard]] bool test() const noexcept;

    /// Collective: when all ranks have written, the save becomes the folder's. Throws what save() throws once lists are
    /// agreed on, the same on every rank; the save before is whole then, or the error says that this one may be there.
    /// BufferError without a save: the handle is empty, moved from, or has been waited for.
    /// Of several saves that are under way all ranks wait for the same one: MismatchError, and both go, where they do
    /// not.
    SaveReport wait();

private:
    struct Drop {
        void operator()(detail::SaveBehind* save) const noexcept;
    };
    std::unique_ptr<detail::SaveBehind, Drop> save_;
};

/// Collective over `comm`, as save(), but returns when this rank's bytes are copied: lists are agreed on, copies are
/// compared and the folder is claimed here; writing goes on in threads that use no communicator. The snapshot takes as
/// much memory as this rank writes, or SaveOptions::snapshot_bytes (64 bytes at least), in which case the call returns
/// when all but these are written.
///
/// Throws what save() throws before its first write, the same on every rank: also IoError, naming the folder, while
/// another save into it is under way; OutOfMemory when a rank has no room for its snapshot. What goes wrong with this
/// rank's file is told by wait().
SaveRequest start_save(std::string folder, std::span<LocalTensor const> tensors, CommunicatorRef comm,
                       SaveOptions const& options = {});
/// The same for tensors that are const here.
SaveRequest start_save(std::string folder, std::span<ConstLocalTensor const> tensors, CommunicatorRef comm,
                       SaveOptions const& options = {});

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/save_async.ipp>
#endif
