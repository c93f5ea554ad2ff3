// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/kernels_on_host.hpp
/// \brief  Makes `kernel<<<...>>>(arguments)` of a .cu file a task of the double's stream that runs on the host.
///
///     run_on_host(detail::copy_boxes_kernel<detail::CopyBox>,           // from now on, in the whole program
///                 [](Launch const& launch, detail::CopyBox const* boxes, Index const* starts, int count) {
///                     launch.each_thread([&](Index block, int thread) { ... the kernel's body ... });
///                 });
///     CHECK(launches(detail::copy_boxes_kernel<detail::CopyBox>) == 1);
///
/// The body is called once per launch, when the stream gets there, with the arguments of the launch. Bodies that work
/// in phases are run by HostBlock (tests/cuda/support/host_block.hpp), one per block. A launch of a kernel that nobody
/// registered fails with cudaErrorInvalidDeviceFunction; unknown_kernels() has the names the compiler gave them.
///
/// Link support/kernels_on_host.cpp and support/fake_nccl.cpp in place of libcudart: no GPU, no driver.
#pragma once

#include "support/fake_nccl.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace reshard::test {

/// What stands between <<< and >>>.
struct Launch {
    dim3 grid;
    dim3 block;
    std::size_t shared = 0;
    cudaStream_t stream = nullptr;

    [[nodiscard]] long long blocks() const {
        return static_cast<long long>(grid.x) * static_cast<long long>(grid.y) * static_cast<long long>(grid.z);
    }
    [[nodiscard]] int threads() const { return static_cast<int>(block.x * block.y * block.z); }
    /// body(block), in descending order: no block may count on those before it.
    template <class Body>
    void each_block(Body&& body) const {
        for (long long b = blocks(); b-- > 0;) body(b);
    }
    /// body(block, thread): for kernels whose threads share nothing.
    template <class Body>
    void each_thread(Body&& body) const {
        each_block([&](long long b) {
            for (int thread = threads(); thread-- > 0;) body(b, thread);
        });
    }
};

namespace kernels {

/// Copies the arguments of a launch, which live no longer than the call, and returns what is to be done with them.
using Prepare = std::function<std::function<void()>(Launch const&, void** arguments)>;
void add(void const* kernel, Prepare prepare);
int launches(void const* kernel);

template <class... Args, class Body, std::size_t... I>
[[nodiscard]] Prepare prepare_of(Body body, std::index_sequence<I...>) {
    return [body](Launch const& launch, void** arguments) -> std::function<void()> {
        std::tuple<Args...> const copies(*static_cast<Args const*>(arguments[I])...);
        static_cast<void>(arguments);  // of a kernel without any
        return [body, launch, copies] { body(launch, std::get<I>(copies)...); };
    };
}

}  // namespace kernels

/// From now on, launches of this kernel are calls of body(launch, arguments...). The last one given counts.
template <class... Args, class Body>
void run_on_host(void (*kernel)(Args...), Body body) {
    kernels::add(reinterpret_cast<void const*>(kernel),
                 kernels::prepare_of<std::remove_cv_t<Args>...>(std::move(body), std::index_sequence_for<Args...>()));
}

/// Launches so far: of all kernels, of one.
[[nodiscard]] int launches();
template <class... Args>
[[nodiscard]] int launches(void (*kernel)(Args...)) {
    return kernels::launches(reinterpret_cast<void const*>(kernel));
}

/// Kernels that were launched though nobody had registered them, by their (mangled) names.
[[nodiscard]] std::vector<std::string> unknown_kernels();

/// The next launch by this thread, after `skipped` others, fails with this code, as cudaGetLastError() will say.
void fail_launch(cudaError_t code, int skipped = 0);

}  // namespace reshard::test
