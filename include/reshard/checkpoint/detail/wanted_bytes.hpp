// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/wanted_bytes.hpp
/// \brief  Wanted extents as bytes: what the rank with the files tells those that only receive from it.
/// \depends checkpoint/detail/{catalogue_bytes,read_schedule}, exec/local_tensor.hpp. Both ends are the same program.
#pragma once

#include <reshard/checkpoint/detail/catalogue_bytes.hpp>
#include <reshard/checkpoint/detail/read_schedule.hpp>
#include <reshard/exec/local_tensor.hpp>

namespace reshard::inline v0::detail {

/// What an extent has beside its tensor's number: most are a whole tensor right behind the one before.
struct WantedForm {
    static constexpr std::int64_t has_place = 1;     ///< file, position and number
    static constexpr std::int64_t has_box = 2;       ///< else the whole tensor
    static constexpr std::int64_t has_replicas = 4;  ///< else all ranks read it
    static constexpr int bits = 3;
};

/// \pre wanted is what match() found for the targets, in its order; those of a reader differ in memory only
template <class Io>
void pass(Io& io, typename Io::template Ref<std::vector<WantedExtent>> wanted, std::span<LocalTensor const> targets) {
    io.size(wanted);
    WantedExtent next;  // where an extent lies that needs no place
    for (auto& one : wanted) {
        std::int64_t head = 0;
        if constexpr (Io::writes) {
            bool const goes_on = one.file == next.file && one.begin == next.begin && one.extent == next.extent;
            bool const is_whole = one.box == Box(targets[one.target].distribution.shape());
            bool const is_for_all = one.replica == 0 && one.replicas == 1 && one.replica_axes == 0;
            head = static_cast<std::int64_t>(one.target) << WantedForm::bits | (goes_on ? 0 : WantedForm::has_place) |
                   (is_whole ? 0 : WantedForm::has_box) | (is_for_all ? 0 : WantedForm::has_replicas);
        }
        io.number(head);
        if constexpr (!Io::writes) {
            one = next;
            one.target = static_cast<std::size_t>(head >> WantedForm::bits);
            LocalTensor const& target = targets[one.target];
            one.dtype = target.view.dtype();  // match() has seen that it is the file's
            one.box = Box(target.distribution.shape());
        }
        if ((head & WantedForm::has_place) != 0) {
            io.number(one.file);
            io.number(one.begin);
            io.number(one.extent);
        }
        if ((head & WantedForm::has_box) != 0) io.box(one.box);
        if ((head & WantedForm::has_replicas) != 0) {
            io.number(one.replica);
            io.number(one.replicas);
            io.number(one.replica_axes);
        }
        next.file = one.file;
        next.begin = one.begin + one.bytes();
        next.extent = one.extent + 1;
    }
}

}  // namespace reshard::inline v0::detail
