// SPDX-License-Identifier: Apache-2.0
/// \file   tests/comm/lost.hpp
/// \brief  A transport of one rank that gives up every exchange, and may still write to what it receives into.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/comm/staged.hpp>

namespace reshard::test {

class LostExchange {
public:
    explicit LostExchange(bool starts = true) noexcept : starts_(starts) {}
    LostExchange(LostExchange&&) = default;
    LostExchange& operator=(LostExchange&&) = default;

    void start() const {
        if (!starts_) give_up();
    }
    void wait() const { give_up(); }
    [[nodiscard]] bool test() const { give_up(); }
    [[nodiscard]] bool done() const noexcept { return true; }

private:
    [[noreturn]] static void give_up() {
        errors::raise(ErrorCode::deadline, "it may still write to the destination. Fix: keep that memory.");
    }

    bool starts_;
};

class LostCommunicator : public CommunicatorBase<LostCommunicator> {
public:
    static constexpr std::string_view name = "lost";
    using exchange_type = LostExchange;
    using CommunicatorBase<LostCommunicator>::split;

    explicit LostCommunicator(bool starts) noexcept : starts_(starts) {}

    [[nodiscard]] int rank() const noexcept { return 0; }
    [[nodiscard]] int size() const noexcept { return 1; }
    [[nodiscard]] Traffic traffic() const noexcept { return {}; }
    [[nodiscard]] exchange_type bind(std::span<transport::Send const>, std::span<transport::Receive const>) const {
        return exchange_type(starts_);
    }
    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) const { return mine; }
    [[nodiscard]] LostCommunicator split(int, int) const { return LostCommunicator(starts_); }
    void abort(ErrorCode, std::string_view) noexcept {}

private:
    bool starts_;
};

/// Staging memory that is never freed, so that what keeps it is no leak; whether it was given back.
struct WatchedMemory {
    static inline int released = 0;
    alignas(StagingOptions::alignment) static inline std::byte memory[4096];
    static StagingOptions options() {
        released = 0;
        StagingOptions options;
        options.allocate = [](Index bytes) noexcept { return bytes <= Index{sizeof(memory)} ? memory : nullptr; };
        options.release = [](std::byte*, Index) noexcept { ++released; };
        return options;
    }
};

}  // namespace reshard::test
