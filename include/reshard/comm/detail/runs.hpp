// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/runs.hpp
/// \brief  Which runs of prepared plans are under way over a communicator, and in which order they started.
/// \depends <utility>.
#pragma once

#include <utility>  // exchange

namespace reshard::inline v0_1::detail {

/// A run of a prepared plan, in the list of those that are under way.
struct Run {
    Run* later = nullptr;
};
/// The runs that are under way over a communicator, in the order in which they started. They stay with it where it is:
/// whoever moves a communicator has prepared nothing over it.
class RunsUnderWay {
public:
    RunsUnderWay() = default;
    RunsUnderWay(RunsUnderWay&&) noexcept {}
    RunsUnderWay& operator=(RunsUnderWay&&) noexcept { return *this; }

    [[nodiscard]] Run* first() const noexcept { return first_; }
    void add(Run& run) noexcept {
        Run** end = &first_;
        while (*end != nullptr) end = &(*end)->later;
        *end = &run;
    }
    void remove(Run& run) noexcept {
        Run** at = &first_;
        while (*at != nullptr && *at != &run) at = &(*at)->later;
        if (*at != nullptr) *at = std::exchange(run.later, nullptr);
    }

private:
    Run* first_ = nullptr;
};

}  // namespace reshard::inline v0_1::detail
