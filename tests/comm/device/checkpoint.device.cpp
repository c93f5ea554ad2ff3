// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/{load,save,save_async,verify_replicas}.hpp where tensors lie on devices: bytes get
// there, and back, by the communicator and by nothing else, because the host cannot touch what they lie in.
#include "checkpoint/load_support.hpp"
#include "devices.hpp"
#include "support/fake_cuda.hpp"

#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/checkpoint/verify_replicas.hpp>
#include <reshard/comm/staged_on_host.hpp>

#include <cstring>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace checkpoint_test;
using test::check_none;
using test::on_devices;
namespace fake = test::fake;

constexpr Index room = Index{1} << 16;  // of a rank on the device

std::vector<Goal> goals_of(int ranks) {
    std::string const mesh = errors::concat("(", ranks, "):(");
    return {goal("rows", DType::f32, mesh + "S0)", Shape{13, 40}),
            goal("columns", DType::f32, mesh + "S1)", Shape{9, 70}),
            goal("cyclic", DType::i64, mesh + "S0:cyc2)", Shape{23, 5}),
            goal("whole", DType::bf16, mesh + "R)", Shape{7, 3}),
            goal("few", DType::u8, mesh + "S0)", Shape{2, 11}),
            goal("host", DType::f32, mesh + "S1)", Shape{6, 8})};
}

/// A rank's tensors on the device, all but the last; and what is copied back of them.
class DeviceTensors {
public:
    DeviceTensors(std::vector<Goal> const& goals, int rank, std::byte* memory) : host_(goals, rank, true) {
        list_ = host_.list();
        for (std::size_t i = 0; i + 1 < list_.size(); ++i) {
            DynamicView const& view = list_[i].view;
            places_.push_back(memory);
            list_[i].view = DynamicView(memory, view.dtype(), view.shape(), view.strides());
            memory += (reach(view) + 63) / 64 * 64;
        }
    }
    [[nodiscard]] std::span<LocalTensor const> list() const { return list_; }
    /// Puts there what should be there.
    void fill(cudaStream_t stream, int rank) {
        for (LocalTensor const& tensor : host_.list()) {
            if (!tensor.distribution.contains(rank)) continue;
            DynamicView const& view = tensor.view;
            ExpectedBytes const expected(tensor.name);
            Index const width = bytes(view.dtype());
            oracle::each_element(tensor.distribution, rank, view.strides(), [&](Index position, Index offset) {
                for (Index b = 0; b < width; ++b) view.data()[offset * width + b] = expected.at(position * width + b);
            });
        }
        fake::finish(stream);
        fake::on_device([&] {
            for (std::size_t i = 0; i < places_.size(); ++i) {
                DynamicView const& view = host_.list()[i].view;
                if (view.size() != 0) std::memcpy(places_[i], view.data(), static_cast<std::size_t>(reach(view)));
            }
        });
    }
    /// A byte of a tensor on the device.
    [[nodiscard]] std::byte* at(std::size_t tensor, Index byte) const { return places_[tensor] + byte; }
    /// What is wrong with what lies on the device.
    [[nodiscard]] std::string wrong(cudaStream_t stream) {
        fake::finish(stream);
        fake::on_device([&] {
            for (std::size_t i = 0; i < places_.size(); ++i) {
                DynamicView const& view = host_.list()[i].view;
                if (view.size() != 0) std::memcpy(view.data(), places_[i], static_cast<std::size_t>(reach(view)));
            }
        });
        return host_.wrong();
    }

private:
    static Index reach(DynamicView const& view) {
        Index elements = 1;
        for (int dim = 0; dim < view.rank(); ++dim)
            elements += detail::larger<Index>(view.extent(dim) - 1, 0) * view.stride(dim);
        return elements * bytes(view.dtype());
    }
    LocalTensors host_;
    std::vector<LocalTensor> list_;
    std::vector<std::byte*> places_;
};

/// body(comm, stream, place) on `ranks` ranks with guarded memory of a device each. `make(host, stream)` makes comm.
template <class Make, class Body>
void on_guarded_devices(int ranks, Make const& make, Body const& body) {
    test::FakeCuda const driver;
    if (!driver.works()) return;
    fake::reset();
    fake::set_elsewhere(fake::Elsewhere::pageable);
    fake::guard_device_memory(true);
    void* memory = nullptr;
    auto const bytes = static_cast<std::size_t>(ranks * room);
    REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
    fake::claim(memory, bytes, 0);
    driver.claim(memory, bytes);
    check_none(on_devices(ranks, 1, {}, [&](ThreadCommunicator& host, cudaStream_t stream) {
        auto* const mine = static_cast<std::byte*>(memory) + host.rank() * room;
        auto comm = make(std::move(host), stream);
        body(comm, stream, mine);
    }));
    static_cast<void>(cudaFree(memory));
    fake::guard_device_memory(false);
    fake::reset();
    test::check_nothing_left();
}

template <class Make>
void check_every_strategy(int ranks, Make const& make) {
    CAPTURE(ranks);
    auto const goals = goals_of(ranks);
    TempFolder const folder;
    write(folder.path(), goals, 1000);
    ReadOptions reads;
    reads.in_flight = 3;
    reads.chunk_bytes = 300;
    auto const attempt = [&](auto const& strategy) {
        CAPTURE(strategy.name);
        on_guarded_devices(ranks, make, [&](auto& comm, cudaStream_t stream, std::byte* memory) {
            DeviceTensors tensors(goals, comm.rank(), memory);
            LoadReport const report = load(folder.path(), tensors.list(), comm, strategy);
            CHECK(tensors.wrong(stream) == "");
            CHECK(report.tensors == static_cast<Index>(goals.size()));
        });
    };
    attempt(EachRankReadsItsBoxes{});
    attempt(EachRankReadsItsBoxes{reads});
    for (Index window : {Index{500}, Index{1} << 20}) {
        attempt(OneRankReads<Scatter>{0, window});
        attempt(OneRankReads<Broadcast>{ranks - 1, window});
        CooperativeRead together;
        together.window_bytes = window;
        together.cooperation = Cooperation::always;
        attempt(together);
    }
}

/// Saved from devices by `save_them`, then loaded by ranks of the host.
template <class Make, class Save>
void check_saved(int ranks, Make const& make, Save const& save_them) {
    auto const goals = goals_of(ranks);
    TempFolder const folder;
    on_guarded_devices(ranks, make, [&](auto& comm, cudaStream_t stream, std::byte* memory) {
        DeviceTensors tensors(goals, comm.rank(), memory);
        tensors.fill(stream, comm.rank());
        save_them(folder.path(), tensors.list(), comm);
        CHECK(tensors.wrong(stream) == "");
    });
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        LocalTensors tensors(goals, comm.rank());
        load(folder.path(), tensors.list(), comm);
        CHECK(tensors.wrong() == "");
    });
}

auto const device_threads = [](ThreadCommunicator host, cudaStream_t stream) {
    return DeviceThreadCommunicator(std::move(host), stream);
};
auto const staged = [](ThreadCommunicator host, cudaStream_t stream) {
    return StagedOnHost<ThreadCommunicator>(std::move(host), StagedOnHostOptions(stream));
};

}  // namespace

TEST_SUITE("comm/device") {
    TEST_CASE("load places tensors on devices by the communicator, with every strategy") {
        for (int ranks : {1, 2, 3}) {
            check_every_strategy(ranks, device_threads);
            check_every_strategy(ranks, staged);
        }
    }

    TEST_CASE("load reads into pinned memory what it brings to a device, and into any other where there is none") {
        auto const goals = goals_of(1);
        TempFolder const folder;
        write(folder.path(), goals, 1000);
        auto const load_them = [&](Index chunk_bytes, bool refused) {
            ReadOptions reads;
            reads.in_flight = 2;
            reads.chunk_bytes = chunk_bytes;
            std::int64_t pinned = 0;
            on_guarded_devices(1, device_threads, [&](auto& comm, cudaStream_t stream, std::byte* memory) {
                DeviceTensors tensors(goals, comm.rank(), memory);
                std::int64_t const before = fake::counts().pinned_allocations;
                if (refused) fake::fail("cudaMallocHost", cudaErrorMemoryAllocation);
                load(folder.path(), tensors.list(), comm, EachRankReadsItsBoxes{reads});
                CHECK(tensors.wrong(stream) == "");
                pinned = fake::counts().pinned_allocations - before;
                if (pinned == 0) return;
                load(folder.path(), tensors.list(), comm, EachRankReadsItsBoxes{reads});  // the memory was kept
                CHECK(tensors.wrong(stream) == "");
                CHECK(fake::counts().pinned_allocations - before == pinned);
            });
            return pinned;
        };
        CHECK(load_them(300, false) == 1);
        CHECK(load_them(300, true) == 0);
        CHECK(load_them(Index{1} << 20, false) == 0);  // read once: as much memory as there are bytes
    }

    TEST_CASE("save writes tensors of devices, copies compared first, at once and behind the rank") {
        for (int ranks : {1, 3}) {
            CAPTURE(ranks);
            auto const at_once = [](std::string const& folder, auto tensors, auto& comm) {
                SaveReport const report = save(folder, tensors, comm);
                CHECK(report.bytes_deduplicated == (comm.size() - 1) * 42);  // `whole`
            };
            auto const in_small_pieces = [](std::string const& folder, auto tensors, auto& comm) {
                SaveOptions options;
                options.window_bytes = 1;
                options.in_flight = 3;
                save(folder, tensors, comm, options);
            };
            auto const behind = [](Index snapshot_bytes) {
                return [snapshot_bytes](std::string const& folder, auto tensors, auto& comm) {
                    SaveOptions options;
                    options.snapshot_bytes = snapshot_bytes;
                    auto saving = start_save(folder, tensors, comm, options);
                    saving.wait();
                };
            };
            check_saved(ranks, device_threads, at_once);
            check_saved(ranks, staged, at_once);
            check_saved(ranks, device_threads, in_small_pieces);
            check_saved(ranks, staged, behind(0));
            check_saved(ranks, device_threads, behind(1024));
        }
    }

    TEST_CASE("verify_replicas finds and mends a copy on a device that differs, and save refuses it") {
        std::vector<Goal> const goals{goal("weights", DType::f32, "(3):(R)", Shape{5, 40}),
                                      goal("host", DType::f32, "(3):(R)", Shape{4})};
        TempFolder const folder;
        auto const attempt = [&](auto const& make) {
            on_guarded_devices(3, make, [&](auto& comm, cudaStream_t stream, std::byte* memory) {
                DeviceTensors tensors(goals, comm.rank(), memory);
                tensors.fill(stream, comm.rank());
                CHECK(verify_replicas(tensors.list(), comm).equal());
                if (comm.rank() == 2) fake::on_device([&] { *tensors.at(0, 4 * (43 * 2 + 7)) ^= std::byte{1}; });
                CHECK((comm.rank() != 2 || tensors.wrong(stream) != ""));
                CHECK_THROWS_WITH_AS(static_cast<void>(save(folder.path(), tensors.list(), comm)),
                                     doctest::Contains("at [2,7]"), MismatchError);
                VerifyReplicasOptions mend;
                mend.mode = VerifyMode::repair;
                ReplicaReport const found = verify_replicas(tensors.list(), comm, mend);
                REQUIRE(found.differences.size() == 1);
                CHECK(found.differences[0].spot.rank == 2);
                CHECK(found.differences[0].spot.index == Indices{2, 7});
                CHECK(tensors.wrong(stream) == "");
            });
        };
        attempt(device_threads);
        attempt(staged);
    }

    TEST_CASE("load refuses an identity on a device that is only copied, on all ranks, and touches nothing") {
        std::vector<Goal> const goals{goal("addends", DType::f32, "(2):(P+)", Shape{4, 4}),
                                      goal("host", DType::f32, "(2):(R)", Shape{2})};
        TempFolder const folder;
        write(folder.path(), goals);
        on_guarded_devices(2, device_threads, [&](DeviceThreadCommunicator& comm, cudaStream_t, std::byte* memory) {
            DeviceTensors tensors(goals, comm.rank(), memory);
            CHECK_THROWS_WITH_AS(
                static_cast<void>(load(folder.path(), tensors.list(), comm)),
                doctest::Contains("rank 1 of 2: reshard::load: tensor 'addends': holds the identity of "
                                  "a Partial on rank 1, and this communicator only copies"),
                TransitionError);
        });
    }

    TEST_CASE("a copy to the device that CUDA refuses while a checkpoint is loaded is that error, and others end") {
        auto const goals = goals_of(2);
        TempFolder const folder;
        write(folder.path(), goals);
        on_guarded_devices(2, device_threads, [&](DeviceThreadCommunicator& comm, cudaStream_t, std::byte* memory) {
            DeviceTensors tensors(goals, comm.rank(), memory);
            if (comm.rank() == 1) fake::fail("cudaMemcpyAsync", cudaErrorUnknown);
            if (comm.rank() == 1) fake::fail("cudaMemcpy2DAsync", cudaErrorUnknown);
            CHECK_THROWS_WITH_AS(
                static_cast<void>(load(folder.path(), tensors.list(), comm, EachRankReadsItsBoxes{ReadOptions{}})),
                doctest::Contains("rank 1 of 2"), TransportError);
        });
    }
}
