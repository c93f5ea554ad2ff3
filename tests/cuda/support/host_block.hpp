// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/support/host_block.hpp
/// \brief  A block of threads on the host, phase by phase, its threads in an order of the test's choice.
///
/// What one thread writes and another reads in the same phase would depend on that order: tests run bodies in several
/// orders and compare.
#pragma once

#include <reshard/cuda/detail/block.hpp>

#include "cuda/support/host_device.hpp"
#include "support/random.hpp"

#include <algorithm>  // reverse, shuffle
#include <vector>

namespace reshard::test {

template <class BlockState>
class HostBlock {
public:
    using State = BlockState;
    explicit HostBlock(ThreadOrder order = ThreadOrder::up, std::uint64_t seed = 1)
        : states_(detail::block_threads), random_(seed), order_(order) {}

    template <class F>
    void each(F&& f) {
        for (int thread : threads(detail::block_threads)) f(thread, states_[static_cast<std::size_t>(thread)]);
    }
    void sync() {}

    template <class Key, class Read, class Write>
    void match(int bits, Key&& key, Read&& read, Write&& write) {
        for (int warp : threads(detail::block_warps)) {
            int const first = warp * detail::warp_threads;
            std::uint32_t keys[detail::warp_threads];
            for (int lane = 0; lane < detail::warp_threads; ++lane) {
                keys[lane] = key(states_[static_cast<std::size_t>(first + lane)]);
                bits_suffice_ = bits_suffice_ && keys[lane] >> static_cast<unsigned>(bits) == 0;
            }
            std::uint32_t peers[detail::warp_threads] = {};
            for (int a = 0; a < detail::warp_threads; ++a) {
                for (int b = 0; b < detail::warp_threads; ++b) {
                    if (keys[a] == keys[b]) peers[a] |= std::uint32_t{1} << static_cast<unsigned>(b);
                }
            }
            for (int lane : threads(detail::warp_threads)) {
                read(first + lane, states_[static_cast<std::size_t>(first + lane)], peers[lane]);
            }
            for (int lane : threads(detail::warp_threads)) {
                write(first + lane, states_[static_cast<std::size_t>(first + lane)], peers[lane]);
            }
        }
    }

    template <class Value, class Take>
    void scan(Value&& value, Take&& take) {
        std::vector<Index> before;
        Index total = 0;
        for (auto const& state : states_) {
            before.push_back(total);
            total += value(state);
        }
        for (int thread : threads(detail::block_threads)) {
            auto const t = static_cast<std::size_t>(thread);
            take(thread, states_[t], before[t], total);
        }
    }

    template <class Value, class Combine, class Take>
    void fold(Value&& value, Combine&& combine, Take&& take) {
        std::vector<int> const order = threads(detail::block_threads);
        Index total = value(states_[static_cast<std::size_t>(order[0])]);
        for (std::size_t i = 1; i < order.size(); ++i) {
            total = combine(total, value(states_[static_cast<std::size_t>(order[i])]));
        }
        take(total);
    }

    /// As atomicAdd: the number before.
    template <class T>
    T add(T* to, T value) {
        T const before = *to;
        *to += value;
        return before;
    }
    template <class T>
    void lower(T* to, T value) {
        if (value < *to) *to = value;
    }
    template <class T>
    void higher(T* to, T value) {
        if (value > *to) *to = value;
    }
    /// As atomicOr: the bits before.
    template <class T>
    T fetch_or(T* to, T value) {
        T const before = *to;
        *to |= value;
        return before;
    }

    /// Whether every key of match() fitted the bits that the body gave: the device looks at no others.
    [[nodiscard]] bool bits_suffice() const { return bits_suffice_; }

private:
    std::vector<int> threads(int count) {
        std::vector<int> list;
        for (int t = 0; t < count; ++t) list.push_back(t);
        if (order_ == ThreadOrder::down) std::reverse(list.begin(), list.end());
        if (order_ == ThreadOrder::shuffled) std::shuffle(list.begin(), list.end(), random_.engine());
        return list;
    }

    std::vector<State> states_;
    Random random_;
    ThreadOrder order_;
    bool bits_suffice_ = true;
};

}  // namespace reshard::test
