// SPDX-License-Identifier: Apache-2.0
// Checkpoints of tensors that lie on a device, among ranks as threads that share the GPUs there are: saved from there,
// loaded to there by ranks in another number and with other placements, verified. What lies on the device is compared
// with what the oracle says, byte by byte. No device code: any C++ compiler with the CUDA runtime's headers.
//
// Needs nlohmann-json and the headers of xxHash and ISA-L, and links none of them: XXH_INLINE_ALL, and crc32_iscsi()
// below.
#include "cuda/device/device_test.cuh"
#include "support/crc32_iscsi.hpp"
#include "support/oracle.hpp"

#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/save_async.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/checkpoint/verify_replicas.hpp>
#include <reshard/comm/device_threads.hpp>
#include <reshard/comm/staged_on_host.hpp>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>

using namespace reshard;
using namespace reshard::test;

namespace {

class TempFolder {
public:
    TempFolder() {
        std::string form = (std::filesystem::temp_directory_path() / "reshard_device_XXXXXX").string();
        if (::mkdtemp(form.data()) == nullptr)
            errors::raise(ErrorCode::io, errors::concat("no folder ", form, " can be made"));
        path_ = form;
    }
    TempFolder(TempFolder const&) = delete;
    TempFolder& operator=(TempFolder const&) = delete;
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] std::string const& path() const { return path_; }

private:
    std::string path_;
};

/// Bytes that depend on tensor and position, so that a wrong offset shows.
std::byte byte_of(std::string_view tensor, Index at) {
    std::uint64_t hash = 0x9e3779b97f4a7c15U;
    for (char const c : tensor) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    hash = (hash ^ (hash >> 32U) ^ (static_cast<std::uint64_t>(at) * 0xff51afd7ed558ccdU)) * 0xc4ceb9fe1a85ec53U;
    return static_cast<std::byte>((hash >> 29U) & 0xffU);
}

/// A tensor, and where it lies on a mesh of one axis. "host": the last one of each list is memory of the host.
struct Goal {
    std::string name;
    DType dtype;
    DynamicShape shape;
    std::string placement;

    [[nodiscard]] DynamicDistribution on(int ranks) const {
        return parse(errors::concat("(", ranks, "):(", placement, ")"), shape);
    }
};

std::vector<Goal> saved_goals() {
    Index const rows = small_sizes() ? 40 : 300;
    return {{"rows", DType::f32, Shape{13, 40}, "S0"},       {"columns", DType::bf16, Shape{9, 70}, "S1"},
            {"cyclic", DType::i64, Shape{23, 5}, "S0:cyc2"}, {"whole", DType::bf16, Shape{7, 3}, "R"},
            {"list", DType::i64, Shape{101}, "S0"},          {"few", DType::u8, Shape{2, 11}, "S0"},
            {"large", DType::f32, Shape{rows, 257}, "S0"},   {"host", DType::f32, Shape{6, 8}, "S1"}};
}
std::vector<Goal> loaded_goals() {
    std::vector<Goal> goals = saved_goals();
    std::array<char const*, 8> const placements{"S1", "S0:cyc3", "R", "S0", "R", "S1", "S1:cyc16", "S0"};
    for (std::size_t i = 0; i < goals.size(); ++i) goals[i].placement = placements[i];
    return goals;
}

/// A rank's tensors: all but the last on the device, with a gap after every row of a matrix if asked for.
class Tensors {
public:
    Tensors(std::vector<Goal> const& goals, int rank, int ranks, bool gaps) {
        for (Goal const& goal : goals) {
            DynamicDistribution const where = goal.on(ranks);
            DynamicShape const shape = where.local_shape(rank);
            Indices strides = row_major_strides(shape);
            if (gaps && shape.rank() == 2) strides[0] += 3;
            Index const width = bytes(goal.dtype);
            Index reach = 1;
            for (int dim = 0; dim < shape.rank(); ++dim)
                reach += detail::larger<Index>(shape.extent(dim) - 1, 0) * strides[dim];
            auto const size = static_cast<std::size_t>(reach * width);
            Place place;
            place.expected.assign(size, untouched);
            auto const elements = oracle::elements(where, rank);
            for (std::size_t k = 0; k < elements.size(); ++k) {
                Index offset = 0;
                auto rest = static_cast<Index>(k);
                for (int dim = shape.rank() - 1; dim >= 0; rest /= shape.extent(dim--))
                    offset += rest % shape.extent(dim) * strides[dim];
                for (Index b = 0; b < width; ++b) {
                    place.expected[static_cast<std::size_t>(offset * width + b)] =
                        byte_of(goal.name, elements[k] * width + b);
                }
            }
            std::byte* memory = nullptr;
            if (goal.name == "host") {
                place.host.assign(size, untouched);
                memory = place.host.data();
            } else {
                place.device = std::make_unique<DeviceArray<std::byte>>(size);  // filled with `untouched`
                memory = place.device->data();
            }
            list_.push_back({goal.name, where, DynamicView(memory, goal.dtype, shape, strides)});
            places_.push_back(std::move(place));
        }
    }
    [[nodiscard]] std::span<LocalTensor const> list() const { return list_; }

    /// Puts there what should be there.
    void fill() {
        for (Place& place : places_) put(place, place.expected);
    }
    /// As a program may that goes on after start_save().
    void overwrite() {
        for (Place& place : places_) put(place, std::vector<std::byte>(place.expected.size(), std::byte{0x33}));
    }
    /// Changes a byte on the device.
    void flip(std::size_t tensor, std::size_t at) {
        auto content = places_[tensor].device->host();
        content[at] ^= std::byte{1};
        put(places_[tensor], content);
    }
    /// Names of the tensors that hold other bytes than they should, in gaps and beside them too. \pre the stream is at
    /// its end.
    [[nodiscard]] std::string wrong() const {
        std::string names;
        for (std::size_t i = 0; i < places_.size(); ++i) {
            Place const& place = places_[i];
            auto const content = place.device ? place.device->host() : place.host;
            bool const intact = !place.device || place.device->is_intact(content.size());
            if (content != place.expected || !intact) names += errors::concat(" '", list_[i].name, "'");
        }
        return names;
    }

private:
    static constexpr std::byte untouched{0xa5};
    struct Place {
        std::unique_ptr<DeviceArray<std::byte>> device;
        std::vector<std::byte> host;
        std::vector<std::byte> expected;
    };
    static void put(Place& place, std::vector<std::byte> const& content) {
        if (!place.device) {
            place.host.assign(content.begin(), content.end());
            return;
        }
        reshard::detail::cuda_check(
            cudaMemcpy(place.device->data(), content.data(), content.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
        reshard::detail::cuda_check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    }

    std::vector<Place> places_;
    std::vector<LocalTensor> list_;
};

auto const device_threads = [](ThreadCommunicator host, cudaStream_t stream) {
    return DeviceThreadCommunicator(std::move(host), stream);
};
auto const staged = [](ThreadCommunicator host, cudaStream_t stream) {
    return StagedOnHost<ThreadCommunicator>(std::move(host), StagedOnHostOptions(stream));
};

/// body(comm, tensors, settle) on so many ranks, with a stream each; settle() is called before anybody looks at memory
/// of the device, or writes there, but through the communicator.
template <class Make, class Body>
void on_ranks(int ranks, Make const& make, std::vector<Goal> const& goals, bool gaps, Body const& body) {
    int devices = 1;
    reshard::detail::cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    ThreadOptions waits;
    waits.deadline = std::chrono::seconds(30);
    run_on_threads(ranks, waits, [&](ThreadCommunicator& host) {
        reshard::detail::cuda_check(cudaSetDevice(host.rank() % devices), "cudaSetDevice");
        Stream const stream;
        Tensors tensors(goals, host.rank(), ranks, gaps);
        auto comm = make(std::move(host), stream);
        body(comm, tensors, [&] { stream.wait(); });
        stream.wait();
        static_cast<void>(comm.agree({}));  // what others read of this rank's lives until then
    });
}

void check_right(Tensors const& tensors, int rank) {
    std::string const names = tensors.wrong();
    if (!names.empty()) std::printf("rank %d: wrong:%s\n", rank, names.c_str());
    CHECK(names.empty());
}

/// Loads what `folder` has onto devices, by `strategy`.
template <class Make, class Strategy>
void check_load(std::string const& folder, int ranks, Make const& make, bool gaps, Strategy const& strategy) {
    std::string const before = device_case();
    device_case() += errors::concat(", loaded by ", ranks, " ranks, '", Strategy::name, "'", gaps ? ", with gaps" : "");
    on_ranks(ranks, make, loaded_goals(), gaps, [&](auto& comm, Tensors& tensors, auto const& settle) {
        LoadReport const report = load(folder, tensors.list(), comm, strategy);
        settle();
        check_right(tensors, comm.rank());
        CHECK(report.tensors == static_cast<Index>(loaded_goals().size()));
        CHECK(report.bytes_verified <= report.bytes_read);
    });
    device_case() = before;
}

template <class Make>
void check_every_strategy(std::string const& folder, int ranks, Make const& make) {
    ReadOptions small;
    small.in_flight = 3;
    small.chunk_bytes = small_sizes() ? 3000 : 300;
    check_load(folder, ranks, make, false, EachRankReadsItsBoxes{});
    check_load(folder, ranks, make, true, EachRankReadsItsBoxes{small});
    for (Index window : {Index{4096}, Index{1} << 20U}) {
        check_load(folder, ranks, make, true, OneRankReads<Scatter>{0, window});
        check_load(folder, ranks, make, false, OneRankReads<Broadcast>{ranks - 1, window});
        CooperativeRead together;
        together.window_bytes = window;
        together.cooperation = Cooperation::always;
        check_load(folder, ranks, make, true, together);
    }
    check_load(folder, ranks, make, false, CooperativeRead{});
}

/// Saved by save_them(folder, tensors, comm), read through once, then loaded by another number of ranks.
template <class Make, class Save>
void check_saved(char const* how, int ranks, Make const& make, bool gaps, Save const& save_them) {
    TempFolder const folder;
    device_case() = errors::concat("saved ", how, " by ", ranks, " ranks", gaps ? ", with gaps" : "");
    on_ranks(ranks, make, saved_goals(), gaps, [&](auto& comm, Tensors& tensors, auto const& settle) {
        tensors.fill();
        save_them(folder.path(), tensors, comm);
        settle();
        VerifyReport const verdict = verify_checkpoint(folder.path(), comm);
        CHECK(verdict.tensors == static_cast<Index>(saved_goals().size()));
        CHECK(verdict.extents_without_checksum == 0);
    });
    check_load(folder.path(), ranks == 1 ? 2 : ranks - 1, make, !gaps, CooperativeRead{});
}

template <class Make>
void check_saves(Make const& make) {
    for (int ranks : {1, 3, 4}) {
        for (bool gaps : {false, true}) {
            check_saved("at once", ranks, make, gaps, [](std::string const& folder, Tensors& tensors, auto& comm) {
                SaveReport const report = save(folder, tensors.list(), comm);
                CHECK(report.bytes_deduplicated == (comm.size() - 1) * 42);  // `whole`
                check_right(tensors, comm.rank());
            });
            check_saved("in small pieces", ranks, make, gaps,
                        [](std::string const& folder, Tensors& tensors, auto& comm) {
                            SaveOptions options;
                            options.window_bytes = 1;
                            options.in_flight = 3;
                            options.durable = false;
                            static_cast<void>(save(folder, tensors.list(), comm, options));
                            check_right(tensors, comm.rank());
                        });
            for (Index snapshot_bytes : {0, 1024}) {
                check_saved("behind the program", ranks, make, gaps,
                            [&](std::string const& folder, Tensors& tensors, auto& comm) {
                                SaveOptions options;
                                options.durable = false;
                                options.snapshot_bytes = snapshot_bytes;
                                auto saving = start_save(folder, tensors.list(), comm, options);
                                tensors.overwrite();  // what is saved has been copied
                                static_cast<void>(saving.wait());
                            });
            }
        }
    }
}

template <class Make>
void check_replicas(Make const& make) {
    std::vector<Goal> const goals{{"weights", DType::f32, Shape{5, 40}, "R"}, {"host", DType::f32, Shape{4}, "R"}};
    TempFolder const folder;
    device_case() = "replicas";
    on_ranks(3, make, goals, true, [&](auto& comm, Tensors& tensors, auto const& settle) {
        tensors.fill();
        CHECK(verify_replicas(tensors.list(), comm).equal());
        if (comm.rank() == 2) tensors.flip(0, 4 * (43 * 2 + 7));
        static_cast<void>(comm.agree({}));
        CHECK((comm.rank() != 2 || !tensors.wrong().empty()));
        std::string refusal;
        try {
            static_cast<void>(save(folder.path(), tensors.list(), comm));
        } catch (MismatchError const& error) {
            refusal = error.message();
        }
        CHECK(refusal.find("at [2,7]") != std::string::npos);
        VerifyReplicasOptions mend;
        mend.mode = VerifyMode::repair;
        ReplicaReport const found = verify_replicas(tensors.list(), comm, mend);
        CHECK(found.differences.size() == 1);
        if (found.differences.size() == 1) CHECK(found.differences[0].spot.rank == 2);
        settle();
        check_right(tensors, comm.rank());
    });
}

}  // namespace

DEVICE_TEST("checksums are those of CRC-32C") {
    std::string const digits = "123456789";
    CHECK(crc32c(std::as_bytes(std::span(digits.data(), digits.size()))) == 0xe3069283U);
}

DEVICE_TEST("what is saved from devices is loaded onto devices, with every strategy and both communicators") {
    for (int saved_by : {1, 3}) {
        TempFolder const folder;
        device_case() = errors::concat("saved by ", saved_by, " ranks");
        on_ranks(saved_by, device_threads, saved_goals(), false, [&](auto& comm, Tensors& tensors, auto const&) {
            tensors.fill();
            static_cast<void>(save(folder.path(), tensors.list(), comm));
        });
        for (int ranks : {1, 2, 4}) {
            check_every_strategy(folder.path(), ranks, device_threads);
            check_every_strategy(folder.path(), ranks, staged);
        }
    }
}

DEVICE_TEST("tensors of devices are saved at once and behind the program, by threads with devices") {
    check_saves(device_threads);
}
DEVICE_TEST("tensors of devices are saved at once and behind the program, over a transport of the host") {
    check_saves(staged);
}

DEVICE_TEST("a copy on a device that differs is found, refused by save, and mended") {
    check_replicas(device_threads);
    check_replicas(staged);
}

int main() { return run_device_tests(); }
