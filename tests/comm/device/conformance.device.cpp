// SPDX-License-Identifier: Apache-2.0
// The conformance suite over what moves memory of devices, with the double of the CUDA runtime: wherever memory lies.
#include "../conformance.hpp"
#include "../../support/random.hpp"
#include "devices.hpp"

#include <reshard/comm/abort_on_failure.hpp>
#include <reshard/comm/staged_on_host.hpp>
#include <reshard/comm/traced.hpp>

#include <atomic>
#include <utility>
#include <vector>

namespace {
using namespace reshard;
using test::check_none;
using test::check_nothing_left;
using test::check_only_windows_left;
using test::on_devices;
namespace fake = test::fake;

/// Copies as comm/device_threads.cuh does, but for the kernel: boxes are listed, and copied when the batch ends, by one
/// task of the stream that reads a list nobody changes any more. Changes values, too.
class ListedCopies {
public:
    using MixedMemory = detail::CopiedMemory;
    static inline std::atomic<int> converted{0};

    ListedCopies(StagingOptions const&, StagingOptions const&) noexcept {}
    [[nodiscard]] bool reserve(Index copies) {
        copies_left_ = copies;
        return true;
    }
    void add(transport::Send const& from, transport::Receive const& to, cudaStream_t) {
        CHECK(copies_left_-- > 0);
        if (!from.conversion.is_plain() || !to.conversion.is_plain()) ++converted;
        list_.push_back({from, to});
    }
    static bool takes(transport::Send const&, transport::Receive const&) noexcept { return true; }
    static void check_alignment(std::byte const* base, transport::StridedBox const& box) {
        CHECK(reinterpret_cast<std::uintptr_t>(base) % static_cast<std::uintptr_t>(box.element_bytes) == 0);
    }
    void flush(cudaStream_t stream) {
        if (list_.empty()) return;
        fake::add_task(stream, [list = std::exchange(list_, {})] {
            for (Copy const& each : list) transport::deliver(each.from, each.to);
            return true;
        });
    }
    void close(bool) noexcept { CHECK(list_.empty()); }

private:
    struct Copy {
        transport::Send from;
        transport::Receive to;
    };
    std::vector<Copy> list_;
    Index copies_left_ = 0;
};

/// Where fewer cases are tried: no 4 ranks, and other ranks have the one window with one place of memory, the other
/// window with the next.
bool is_left_out(fake::Elsewhere where, int ranks, bool large_window) {
    return test::fewer_seeds() && (ranks == 4 || (static_cast<int>(where) + ranks) % 2 == (large_window ? 0 : 1));
}

template <class Comm>
void conforms_on_devices(int ranks, int gpus, DeviceThreadOptions const& options) {
    check_none(on_devices(ranks, gpus, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
        Comm comm(std::move(host), stream, options);
        CHECK(comm.device() == comm.rank() % gpus);
        CHECK(comm.stream() == stream);
        test::conforms(comm);
    }));
}
}  // namespace

TEST_SUITE("comm/device") {
    TEST_CASE("DeviceThreadCommunicator: keeps the contract on 1 to 5 ranks that share devices, wherever memory lies") {
        for (fake::Elsewhere where :
             {fake::Elsewhere::current_device, fake::Elsewhere::pageable, fake::Elsewhere::mixed}) {
            for (int ranks : {1, 2, 3, 4, 5}) {
                for (Index window : {Index{16} << 20, Index{512}}) {
                    if (is_left_out(where, ranks, window > 512)) continue;
                    CAPTURE(static_cast<int>(where));
                    CAPTURE(ranks);
                    CAPTURE(window);
                    fake::reset();
                    fake::set_elsewhere(where);
                    DeviceThreadOptions options;
                    options.window_bytes = window;
                    conforms_on_devices<DeviceThreadCommunicator>(ranks, ranks % 2 == 0 ? ranks : 1, options);
                    fake::Counts const counts = fake::counts();
                    CHECK(counts.default_stream == 0);
                    CHECK(counts.pinned_allocations == ranks);  // the windows
                    CHECK(counts.device_allocations == 0);
                    CHECK((counts.copies > 0) == (where != fake::Elsewhere::pageable));
                    CHECK(counts.opened_peers == (ranks % 2 == 0 ? ranks * (ranks - 1) : 0));
                    CHECK(counts.opened_pools >= counts.opened_peers);  // each communicator asks once
                    CHECK((counts.opened_pools > 0) == (counts.opened_peers > 0));
                    check_nothing_left();
                }
            }
        }
        fake::reset();
    }

    TEST_CASE("BasicDeviceThreadCommunicator: keeps the contract when boxes are copied a batch at a time") {
        static_assert(Communicator<BasicDeviceThreadCommunicator<ListedCopies>>);
        for (bool peer_access : {true, false}) {
            for (fake::Elsewhere where : {fake::Elsewhere::current_device, fake::Elsewhere::mixed}) {
                CAPTURE(peer_access);
                CAPTURE(static_cast<int>(where));
                fake::reset();
                fake::set_elsewhere(where);
                fake::set_peer_access(peer_access);
                ListedCopies::converted = 0;
                DeviceThreadOptions options;
                options.window_bytes = 4096;
                conforms_on_devices<BasicDeviceThreadCommunicator<ListedCopies>>(4, 2, options);
                CHECK(fake::counts().opened_peers == (peer_access ? 2 : 0));
                if (where == fake::Elsewhere::current_device) CHECK(ListedCopies::converted > 0);
                check_nothing_left();
            }
        }
        fake::reset();
    }

    TEST_CASE("communicators of devices: exchanges that are alike are not mixed up") {
        for (bool again : {false, true}) {
            CAPTURE(again);
            fake::reset();
            check_none(on_devices(3, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
                DeviceThreadCommunicator comm(std::move(host), stream, {});
                test::notices_another_order(comm, again);
            }));
            check_none(on_devices(3, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
                StagedOnHost<ThreadCommunicator> comm(std::move(host), StagedOnHostOptions(stream));
                test::notices_another_order(comm, again);
            }));
            check_none(on_devices(3, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
                StagedOnHost<AnyCommunicator> comm(AnyCommunicator(std::move(host)), StagedOnHostOptions(stream));
                test::notices_another_order(comm, again);
            }));
            check_only_windows_left(0, 6);
        }
        fake::reset();
    }

    TEST_CASE("StagedOnHost: keeps the contract over threads, wherever memory lies and through any window") {
        static_assert(Communicator<StagedOnHost<ThreadCommunicator>>);
        using Comm = Composed<ThreadCommunicator, StagedOnHost, Traced>;
        static_assert(std::is_same_v<Comm, Traced<StagedOnHost<ThreadCommunicator>>>);
        using Outer = Composed<ThreadCommunicator, StagedOnHost, Traced, AbortOnFailure>;
        static_assert(std::is_same_v<decltype(std::declval<Outer const&>().stream()), cudaStream_t>);
        for (fake::Elsewhere where :
             {fake::Elsewhere::current_device, fake::Elsewhere::pageable, fake::Elsewhere::mixed}) {
            for (int ranks : {1, 2, 3, 4, 5}) {
                for (Index window : {Index{64} << 20, Index{6} << 10}) {
                    if (is_left_out(where, ranks, window > 6 << 10)) continue;
                    CAPTURE(static_cast<int>(where));
                    CAPTURE(ranks);
                    CAPTURE(window);
                    fake::reset();
                    fake::set_elsewhere(where);
                    check_none(on_devices(ranks, 2, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
                        Trace trace(64);
                        StagedOnHostOptions options(stream);
                        options.window_bytes = window;
                        Comm comm = compose<Traced, StagedOnHost>(std::move(host), trace, options);
                        test::conforms(comm);
                        CHECK(comm.stream() == stream);
                        CHECK(comm.inner().device() == comm.rank() % 2);
                        CHECK(comm.inner().staging_bytes() <= window);
                    }));
                    CHECK(fake::counts().default_stream == 0);
                    CHECK(fake::counts().device_allocations == 0);
                    CHECK(fake::counts().host_functions == 0);
                    CHECK((fake::counts().copies > 0) == (where != fake::Elsewhere::pageable));
                    check_nothing_left();
                }
            }
        }
        fake::reset();
    }
}
