// SPDX-License-Identifier: Apache-2.0
// How checkpoint/save_async.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/save_behind.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/comm/agree.hpp>

#include <new>  // nothrow

namespace reshard::inline v0 {

RESHARD_INLINE SaveHandle::SaveHandle() noexcept = default;
RESHARD_INLINE SaveHandle::SaveHandle(std::unique_ptr<detail::SaveBehind> save) noexcept : save_(std::move(save)) {}
RESHARD_INLINE SaveHandle::SaveHandle(SaveHandle&&) noexcept = default;
RESHARD_INLINE SaveHandle& SaveHandle::operator=(SaveHandle&&) noexcept = default;
RESHARD_INLINE SaveHandle::~SaveHandle() = default;

RESHARD_INLINE bool SaveHandle::test() const noexcept { return save_ == nullptr || save_->is_written(); }

RESHARD_INLINE SaveReport SaveHandle::wait() {
    if (save_ == nullptr) {
        raise(ErrorCode::buffer,
              "reshard::SaveHandle: wait() without a save under way. Fix: wait once for each start_save().");
    }
    auto const save = std::exchange(save_, nullptr);  // whatever comes, it is over
    return save->finish();
}

RESHARD_INLINE SaveHandle start_save(std::string folder, std::span<LocalTensor const> tensors, CommunicatorRef comm,
                                     SaveOptions const& options) {
    std::unique_ptr<detail::SaveBehind> save(new (std::nothrow)
                                                 detail::SaveBehind(std::move(folder), tensors, comm, options));
    // The others begin with an agreement, too.
    if (save == nullptr) detail::agree_or_raise(comm, {ErrorCode::out_of_memory, -1, {}, 0});
    return SaveHandle(std::move(save));
}
RESHARD_INLINE SaveHandle start_save(std::string folder, std::span<ConstLocalTensor const> tensors,
                                     CommunicatorRef comm, SaveOptions const& options) {
    auto const list = detail::tensors_to_save(tensors, comm);
    return start_save(std::move(folder), std::span<LocalTensor const>(list), comm, options);
}

}  // namespace reshard::inline v0
