// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/watch/blocks.hpp
/// \brief  The blocks of launches, watched: what BasicHostWork and EmulatedKernels run kernel bodies by.
#pragma once

#include "cuda/support/host_work.hpp"
#include "cuda/watch/watch.hpp"

#include <algorithm>  // shuffle
#include <numeric>    // iota
#include <string>
#include <vector>

namespace reshard::test::watch {

/// HostBlock, watched.
template <class BlockState>
class Block : public HostBlock<BlockState> {
public:
    using Base = HostBlock<BlockState>;
    using State = BlockState;
    Block(Launch& launch, ThreadOrder order, std::uint64_t seed) : Base(order, seed), launch_(&launch) {}

    template <class F>
    void each(F&& f) {
        Base::each([&](int thread, State& state) {
            Thread const watched(thread, &state, sizeof(State));
            f(thread, state);
        });
        launch_->barrier();
    }
    void sync() { launch_->barrier(); }

    template <class Key, class Read, class Write>
    void match(int bits, Key&& key, Read&& read, Write&& write) {
        Base::match(
            bits, key,
            [&](int thread, State& state, std::uint32_t peers) {
                Thread const watched(thread, &state, sizeof(State));
                read(thread, state, peers);
            },
            [&](int thread, State& state, std::uint32_t peers) {
                Thread const watched(thread, &state, sizeof(State), 1);
                write(thread, state, peers);
            });
        launch_->warp_barrier();
    }
    template <class Value, class Take>
    void scan(Value&& value, Take&& take) {
        launch_->barrier();
        Base::scan(value, [&](int thread, State& state, Index before, Index total) {
            Thread const watched(thread, &state, sizeof(State));
            take(thread, state, before, total);
        });
        launch_->barrier();
    }

    template <class Value, class Combine, class Take>
    void fold(Value&& value, Combine&& combine, Take&& take) {
        launch_->barrier();
        Base::fold(value, combine, [&](Index total) {
            State none{};
            Thread const watched(0, &none, sizeof(State));
            take(total);
        });
        launch_->barrier();
    }

    template <class T>
    T add(T* to, T value) {
        Atomic const atomic(to, sizeof(T));
        return Base::add(to, value);
    }
    template <class T>
    void lower(T* to, T value) {
        Atomic const atomic(to, sizeof(T));
        Base::lower(to, value);
    }
    template <class T>
    void higher(T* to, T value) {
        Atomic const atomic(to, sizeof(T));
        Base::higher(to, value);
    }
    template <class T>
    T fetch_or(T* to, T value) {
        Atomic const atomic(to, sizeof(T));
        return Base::fetch_or(to, value);
    }

private:
    Launch* launch_;
};

/// The blocks of launches, for BasicHostWork and EmulatedKernels; in an order of their own for each number of them and
/// each RESHARD_TEST_SEED.
struct Blocks {
    ThreadOrder order = ThreadOrder::shuffled;
    bool bits_suffice = true;
    HostDevice const* device = nullptr;
    std::string kernel{};  ///< of the next launch; empty: the name of its State

    template <class State, class Shared, class Body>
    void tiles(Index count, Body const& body) {
        Launch launch(kernel.empty() ? type_name(typeid(State)) : kernel, device);
        std::vector<Index> numbers(static_cast<std::size_t>(count));
        std::iota(numbers.begin(), numbers.end(), Index{0});
        Random random(seeds(1).front() - 1 + static_cast<std::uint64_t>(count));
        std::shuffle(numbers.begin(), numbers.end(), random.engine());
        for (Index number : numbers) {
            Block<State> block(launch, order, static_cast<std::uint64_t>(number) + 1);
            Garbage<Shared> shared;
            launch.begin_block(number, &*shared, sizeof(Shared));
            body(block, *shared, number);
            launch.end_block();
            bits_suffice = bits_suffice && block.bits_suffice();
        }
    }
};
using Work = BasicHostWork<Blocks>;

}  // namespace reshard::test::watch
