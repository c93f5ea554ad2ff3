// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/device_change.hpp
/// \brief  What became of one rank's shard on a device: numbers on the host, lists where they were made.
/// \depends mch/transition, cuda/work.
#pragma once

#include <reshard/cuda/work.hpp>
#include <reshard/mch/transition.hpp>

namespace reshard::inline v0 {

namespace detail {
/// What becomes of a shard, as the receiver finds it.
template <class Work>
struct MchDeviceLists {
    MchChange numbers;
    WorkList<MchRowMove, Work> moves;
    WorkList<Index, Work> left_out;
    WorkList<Index, Work> evicted;
};
}  // namespace detail

/// An MchChange whose lists lie in memory of the device: they may be as long as the table. Their memory is given back
/// in the order of the stream, which has to outlive this.
template <class Work>
class BasicMchDeviceChange {
public:
    BasicMchDeviceChange(Work const& work, detail::MchDeviceLists<Work>&& lists)
        : work_(work), lists_(std::move(lists)) {}

    /// Its lists are empty.
    [[nodiscard]] MchChange const& numbers() const noexcept { return lists_.numbers; }
    /// Moves into this rank's slots, by ascending id: what apply_row_moves_on_device() takes.
    [[nodiscard]] std::span<MchRowMove const> moves() const noexcept { return span(lists_.moves); }
    /// Ids this rank had and sent nowhere: MchChange::left_out.
    [[nodiscard]] std::span<Index const> left_out() const noexcept { return span(lists_.left_out); }
    /// Ids that found no slot on it, lowest score first: MchChange::evicted.
    [[nodiscard]] std::span<Index const> evicted() const noexcept { return span(lists_.evicted); }

    /// All of it, as redistribute() returns it. Copies the lists, and waits for them.
    [[nodiscard]] MchChange on_host() {
        MchChange change = lists_.numbers;
        change.moves = lists_.moves.host(work_);
        change.left_out = lists_.left_out.host(work_);
        change.evicted = lists_.evicted.host(work_);
        return change;
    }

private:
    template <class T>
    [[nodiscard]] static std::span<T const> span(detail::WorkList<T, Work> const& list) noexcept {
        return {list.data(), static_cast<std::size_t>(list.size())};
    }

    Work work_;
    detail::MchDeviceLists<Work> lists_;
};

}  // namespace reshard::inline v0
