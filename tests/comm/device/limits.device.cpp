// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/staged_on_host.hpp and device_threads.hpp: plans whose sizes lie around windows, of
// devices, pinned and pageable memory.
#include "devices.hpp"

#include <reshard/comm/staged_on_host.hpp>

#include "support/moves_around.hpp"

#include <list>
#include <memory>
#include <mutex>

namespace {
using namespace reshard;
using test::check_none;
using test::check_nothing_left;
namespace fake = test::fake;

/// Memory that lies somewhere, by turns, until it is taken back.
std::mutex mutex;
std::list<std::unique_ptr<std::byte[]>> given;
std::byte* somewhere(Index bytes) {
    std::lock_guard const lock(mutex);
    auto const turn = given.size() % 5;
    auto const size = static_cast<std::size_t>(bytes);
    std::byte* const memory = given.emplace_back(new std::byte[size]).get();
    fake::claim(memory, size, turn == 1 ? fake::pageable_host : turn == 3 ? fake::pinned_host : 0);
    return memory;
}

/// Runs body(moves, host, stream) on some ranks, which share device 0.
template <class Body>
void run_around(std::uint64_t seed, Index window, Body const& body) {
    test::Random random(seed);
    int const ranks = static_cast<int>(random.between(2, 4));
    test::AroundOptions options;
    options.limits = {64, window / 2, window, window / ranks, 4096};
    options.rows = {64, 128, 512};
    options.most_bytes = 1 << 15;
    options.most_tensors = 3;
    options.partial = false;  // there are no kernels
    options.allocate = somewhere;
    test::Around const moves(seed, ranks, options);
    CAPTURE(window);
    fake::reset();
    fake::set_elsewhere(fake::Elsewhere::pageable);
    std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
    check_none(test::on_devices(ranks, 1, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
        auto const me = static_cast<std::size_t>(host.rank());
        wrong[me] = body(moves, host, stream);
    }));
    for (std::string const& text : wrong) CHECK(text == "");
    given.clear();
    fake::reset();
    check_nothing_left();
}
}  // namespace

TEST_SUITE("comm/device") {
    TEST_CASE("law.meaning around windows of StagedOnHost, down to one byte: casts, strided, batches, in rounds") {
        for (Index window : {Index{1}, Index{256}, Index{1000}, Index{4096}, Index{1} << 20}) {
            for (std::uint64_t seed : test::seeds(5)) {
                run_around(seed, window, [&](test::Around const& moves, ThreadCommunicator& host, cudaStream_t stream) {
                    StagedOnHostOptions options(stream);
                    options.window_bytes = window;
                    auto comm = compose<StagedOnHost>(std::move(host), options);
                    return moves.wrong(comm);
                });
            }
        }
    }

    TEST_CASE("law.meaning around windows of DeviceThreadCommunicator, down to one element: casts, strided, batches") {
        for (Index window : {Index{144}, Index{300}, Index{1000}, Index{4096}, Index{16} << 20}) {
            for (std::uint64_t seed : test::seeds(5)) {
                run_around(seed, window, [&](test::Around const& moves, ThreadCommunicator& host, cudaStream_t stream) {
                    DeviceThreadOptions options;
                    options.window_bytes = window;
                    DeviceThreadCommunicator comm(std::move(host), stream, options);
                    return moves.wrong(comm);
                });
            }
        }
    }
}
