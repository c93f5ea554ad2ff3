// SPDX-License-Identifier: Apache-2.0
// The conformance suite over NcclCommunicator and the test double of NCCL, in every way it is configured.
#include "../alike.hpp"
#include "gpus.hpp"
#include "support/random.hpp"

#include <reshard/comm/staged.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace {
using namespace reshard;
using test::check_none;
using test::on_gpus;
namespace fake = test::fake_nccl;

/// Packs as comm/nccl.cuh does, but for the kernel: boxes are listed, and copied when the batch ends, by one task of
/// the stream that reads a list nobody changes any more.
class ListedCopies {
public:
    using Memory = detail::CopiedMemory;
    static constexpr bool converts = false;
    ListedCopies(StagingOptions const&, StagingOptions const&) noexcept {}
    [[nodiscard]] bool reserve(Index copies) {
        copies_left_ = copies;
        return true;
    }
    static bool takes(transport::Send const& from, transport::Receive const& to) noexcept {
        return detail::StridedCopies::takes(from, to);
    }
    static void check_alignment(std::byte const*, transport::StridedBox const&) noexcept {}
    void add(transport::Send const& from, transport::Receive const& to, cudaStream_t) {
        CHECK(copies_left_-- > 0);
        list_.push_back({from, to});
    }
    void flush(cudaStream_t stream) {
        if (list_.empty()) return;
        auto* const batch = new std::vector<Copy>(std::exchange(list_, {}));
        CHECK(cudaLaunchHostFunc(
                  stream,
                  [](void* data) {
                      std::unique_ptr<std::vector<Copy>> const owned(static_cast<std::vector<Copy>*>(data));
                      for (Copy const& each : *owned)
                          transport::copy(each.from.base, each.from.box, each.to.base, each.to.box);
                  },
                  batch) == cudaSuccess);
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
}  // namespace

TEST_SUITE("comm/nccl") {
    TEST_CASE("NcclCommunicator: keeps the contract on 1, 2, 3, 4 and 5 ranks, and leaves nothing behind") {
        fake::reset();
        for (int ranks : {1, 2, 3, 4, 5}) {
            if (test::fewer_seeds() && ranks > 3) continue;
            CAPTURE(ranks);
            check_none(on_gpus(ranks, {}, [](NcclCommunicator& comm) { test::conforms(comm); }));
        }
        fake::Counts const counts = fake::counts();
        CHECK(counts.mismatches == 0);
        CHECK(counts.misused == 0);
        CHECK(counts.default_stream == 0);
        CHECK(counts.aborted == 0);
        CHECK(counts.largest_group <= 1024);
        CHECK(fake::live_communicators() == 0);
        CHECK(fake::live_allocations() == 0);
    }

    TEST_CASE("NcclCommunicator: keeps the contract when peers are trusted, and when the window is small") {
        for (bool compare : {true, false}) {
            for (Index window : {Index{256} << 20, Index{4096}}) {
                CAPTURE(compare);
                CAPTURE(window);
                NcclOptions options;
                options.compare = compare;
                options.window_bytes = window;
                check_none(on_gpus(3, options, [](NcclCommunicator& comm) { test::conforms(comm); }));
            }
        }
    }

    TEST_CASE("BasicNcclCommunicator: keeps the contract when boxes are packed a batch at a time") {
        using Listed = BasicNcclCommunicator<ListedCopies>;
        static_assert(Communicator<Listed>);
        for (bool compare : {true, false}) {
            for (Index window : {Index{256} << 20, Index{4096}}) {
                CAPTURE(compare);
                CAPTURE(window);
                NcclOptions options;
                options.compare = compare;
                options.window_bytes = window;
                check_none(
                    test::on_devices(test::fewer_seeds() ? 3 : 4, [&](ThreadCommunicator& host, cudaStream_t stream) {
                        auto comm = nccl_from<Listed>(host, stream, options);
                        test::conforms(comm);
                    }));
                check_none(test::on_devices(8, [&](ThreadCommunicator& host, cudaStream_t stream) {
                    auto comm = nccl_from<Listed>(host, stream, options);
                    test::moves_among(comm, test::has_link, 3000);
                }));
            }
        }
        CHECK(fake::live_communicators() == 0);
        CHECK(fake::live_allocations() == 0);
    }
}
