// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/exchange_handle.hpp
/// \brief  The request of a transport whose exchanges live in an object of their own.
/// \depends core/detail/watched.hpp, <utility>.
#pragma once

#include <reshard/core/detail/watched.hpp>

#include <utility>  // exchange

namespace reshard::inline v0::detail {

/// `Exchange` has wait() and test(), which is true when it is complete. If one of them throws, the exchange is over.
template <class Exchange>
class [[nodiscard]] ExchangeHandle {
public:
    ExchangeHandle() = default;
    explicit ExchangeHandle(Exchange& exchange) noexcept : exchange_(&exchange) {}
    ExchangeHandle(ExchangeHandle&& other) noexcept : exchange_(std::exchange(other.exchange_, nullptr)) {}
    ExchangeHandle& operator=(ExchangeHandle&& other) noexcept {
        if (this == &other) return *this;
        quietly([&] { wait(); });
        exchange_ = std::exchange(other.exchange_, nullptr);
        return *this;
    }
    ExchangeHandle(ExchangeHandle const&) = delete;
    ExchangeHandle& operator=(ExchangeHandle const&) = delete;
    ~ExchangeHandle() {
        quietly([&] { wait(); });
    }

    void wait() {
        if (auto* const exchange = std::exchange(exchange_, nullptr)) exchange->wait();
    }
    [[nodiscard]] bool test() {
        auto* const exchange = std::exchange(exchange_, nullptr);
        if (exchange == nullptr || exchange->test()) return true;
        exchange_ = exchange;
        return false;
    }
    [[nodiscard]] bool done() const noexcept { return exchange_ == nullptr; }

private:
    Exchange* exchange_ = nullptr;
};

}  // namespace reshard::inline v0::detail
