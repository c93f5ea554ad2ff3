// SPDX-License-Identifier: Apache-2.0
//
// What ranks take that are threads of one GPU to save its tensors and to load them, and for tensors of devices over a
// transport of the host: beside the same with tensors of the host, and beside what a program would do with plain calls
// of CUDA and of the system. Times are of the host, from when all ranks are ready to when all are done; medians after a
// warm-up. No device code: any C++ compiler with the CUDA runtime's headers.
//
//   reshard_files_bench [--keep] [--size N] [FOLDER]
//
// 16 tensors of N x N float32 (a multiple of 4; default 4096: 1 GiB) in files beneath FOLDER. The default is
// /dev/shm/reshard_files_bench, or the same in the folder for temporary files where the former has too little room.
// Files are removed at the end; --keep leaves the two saves, for safetensors_load.py.
//
// Needs nlohmann-json and the headers of xxHash and ISA-L, and links none of them: XXH_INLINE_ALL, and
// support/crc32_iscsi.hpp.
#include "cuda/bench_folder.hpp"
#include "cuda/rank_tensors.hpp"
#include "support/crc32_iscsi.hpp"

#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/comm/device_threads.hpp>
#include <reshard/comm/staged_on_host.hpp>
#include <reshard/exec/prepare.hpp>

#include <cuda_runtime.h>  // nvcc puts it before .cu files only

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

using namespace reshard;
using namespace reshard::bench;

namespace {

constexpr int rounds = 3;
constexpr Index piece_bytes = Index{8} << 20U;  // of the plain ways

// ---- Ranks -------------------------------------------------------------------------------------------------------

/// bench::on_ranks() with the communicator that tensors there want.
template <class Body>
void on_ranks(int ranks, Place place, Body const& body) {
    bench::on_ranks(ranks, [&](ThreadCommunicator& host, cudaStream_t stream) {
        if (place == Place::device) {
            DeviceThreadCommunicator comm(std::move(host), stream);
            body(comm, stream);
        } else {
            body(host, stream);
        }
    });
}

/// The median of milliseconds of task(), as bench::milliseconds() has it.
template <class C, class Before, class Task>
double milliseconds(C& comm, cudaStream_t stream, Before const& before, Task const& task) {
    return bench::milliseconds(comm, stream, rounds, 1, before, task);
}

/// A time in the table, and in a line for programs.
struct Line {
    char const* name;
    std::string measured;
    double ms;
};
void print(double bytes, std::vector<Line> const& lines) {
    for (Line const& line : lines) {
        std::printf("    %-46s %9.2f (%6.2f)\n", line.name, line.ms, bytes / line.ms / 1e6);
    }
    for (Line const& line : lines) std::printf("measured %s %.4f\n", line.measured.c_str(), line.ms);
    std::fflush(stdout);
}

// ---- Files -------------------------------------------------------------------------------------------------------

constexpr int tensors = 16;
double saved(Place place, Index size, int ranks, std::string const& folder) {
    double ms = 0;
    on_ranks(ranks, place, [&](auto& comm, cudaStream_t stream) {
        Tensors mine(place, tensors, size, "S0", comm.rank(), ranks, stream);
        mine.fill();
        SaveOptions options;
        options.durable = false;
        SaveReport report;
        double const median = milliseconds(
            comm, stream,
            [&] {
                if (comm.rank() == 0) fs::remove_all(folder);
            },
            [&] { report = save(folder, mine.list(), comm, options); });
        expect(report.bytes_saved == 4 * tensors * size * size, "a save has not all bytes");
        mine.wipe();
        static_cast<void>(load(folder, mine.list(), comm, EachRankReadsItsBoxes{}));
        wait(stream);
        expect(mine.right(), errors::concat("what ", ranks, " ranks saved has other values"));
        static_cast<void>(comm.agree({}));
        if (comm.rank() == 0) ms = median;
    });
    return ms;
}

/// A load of what as many ranks have saved.
template <class Strategy>
double loaded(Place place, Index size, int ranks, char const* placement, std::string const& folder,
              Strategy const& strategy) {
    double ms = 0;
    on_ranks(ranks, place, [&](auto& comm, cudaStream_t stream) {
        Tensors mine(place, tensors, size, placement, comm.rank(), ranks, stream);
        LoadReport report;
        double const median = milliseconds(
            comm, stream, [&] { mine.wipe(); }, [&] { report = load(folder, mine.list(), comm, strategy); });
        expect(mine.right(),
               errors::concat("'", Strategy::name, "' by ", ranks, " ranks, ", placement, ", has other values"));
        expect(report.tensors == tensors, "a load has not all tensors");
        static_cast<void>(comm.agree({}));
        if (comm.rank() == 0) ms = median;
    });
    return ms;
}

/// The plain ways: a file for each rank, of what it has and nothing else.
struct Raw {
    double save = 0;
    double load = 0;
};
Raw raw(Index size, int ranks, std::string const& folder) {
    Raw result;
    fs::create_directories(folder);
    bench::on_ranks(ranks, [&](ThreadCommunicator& comm, cudaStream_t stream) {
        Tensors mine(Place::device, tensors, size, "S0", comm.rank(), ranks, stream);
        mine.fill();
        Index const bytes = mine.memory().bytes();
        std::byte* const data = mine.memory().data();
        std::string const path = folder + "/" + std::to_string(comm.rank());
        Memory const first(Place::pinned, piece_bytes);
        Memory const second(Place::pinned, piece_bytes);
        double const save_ms = milliseconds(
            comm, stream, [&] { fs::remove(path); },
            [&] {
                Descriptor const file(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
                for (Index at = 0; at < bytes; at += piece_bytes) {
                    Index const piece = detail::smaller(piece_bytes, bytes - at);
                    copy(first.data(), data + at, piece, stream);
                    wait(stream);
                    file.write(first.data(), piece);
                }
            });
        cudaStream_t other = nullptr;
        check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        double const load_ms = milliseconds(
            comm, stream, [&] { mine.wipe(); },
            [&] {
                Descriptor const file(path, O_RDONLY | O_CLOEXEC);
                bool odd = false;
                for (Index at = 0; at < bytes; at += piece_bytes, odd = !odd) {  // one is read, one is on its way
                    Index const piece = detail::smaller(piece_bytes, bytes - at);
                    std::byte* const window = odd ? second.data() : first.data();
                    wait(odd ? other : stream);
                    file.read(window, piece);
                    copy(data + at, window, piece, odd ? other : stream);
                }
                wait(other);
            });
        check(cudaStreamDestroy(other), "cudaStreamDestroy");
        expect(mine.right(), "raw files have other values");
        if (comm.rank() == 0) result = {save_ms, load_ms};
    });
    fs::remove_all(folder);
    return result;
}

void files(Index size, Folder const& folder) {
    auto const bytes = static_cast<double>(4 * tensors * size * size);
    Raw plain[2];
    std::printf("\nsave() of %d float32 tensors of %lld x %lld, S0, checksums, not durable: ms (GB/s)\n", tensors,
                static_cast<long long>(size), static_cast<long long>(size));
    for (int ranks : {1, 4}) {
        std::string const by = errors::concat("_by_", ranks);
        double const host = saved(Place::pageable, size, ranks, folder.saved_by(ranks));
        fs::remove_all(folder.saved_by(ranks));
        plain[ranks / 4] = raw(size, ranks, folder.raw());
        double const device = saved(Place::device, size, ranks, folder.saved_by(ranks));  // which are loaded
        std::printf("  by %d %s\n", ranks, ranks == 1 ? "rank" : "ranks");
        print(bytes, {{"tensors of the device", errors::concat("save_device", by), device},
                      {"tensors of the host", errors::concat("save_host", by), host},
                      {"raw: device to pinned 8 MiB, write()", errors::concat("save_raw", by), plain[ranks / 4].save}});
    }
    std::printf("\nload() of what as many ranks have saved, checksums compared: ms (GB/s)\n");
    CooperativeRead exchanging;
    exchanging.cooperation = Cooperation::always;
    struct Case {
        int ranks;
        char const* placement;
    };
    for (Case const each : {Case{1, "S0"}, Case{4, "S0"}, Case{4, "S1"}}) {
        int const ranks = each.ranks;
        char const* const placement = each.placement;
        std::string const from = folder.saved_by(ranks);
        std::vector<Line> lines;
        for (Place place : {Place::device, Place::pageable}) {
            bool const there = place == Place::device;
            auto const add = [&](char const* name, char const* short_name, auto const& strategy) {
                std::string const measured =
                    errors::concat("load_", there ? "device_" : "host_", short_name, "_", placement, "_by_", ranks);
                lines.push_back({name, measured, loaded(place, size, ranks, placement, from, strategy)});
            };
            add(there ? "device, EachRankReadsItsBoxes" : "host, EachRankReadsItsBoxes", "each",
                EachRankReadsItsBoxes{});
            add(there ? "device, CooperativeRead by its model" : "host, CooperativeRead by its model", "model",
                CooperativeRead{});
            add(there ? "device, CooperativeRead always exchanging" : "host, CooperativeRead always exchanging",
                "exchange", exchanging);
        }
        if (std::string_view(placement) == "S0") {
            lines.push_back({"raw: read() into pinned 8 MiB, to the device", errors::concat("load_raw_by_", ranks),
                             plain[ranks / 4].load});
        }
        std::printf("  by %d %s, saved S0, loaded %s\n", ranks, ranks == 1 ? "rank" : "ranks", placement);
        print(bytes, lines);
    }
}

// ---- Plans -------------------------------------------------------------------------------------------------------

/// The move among 4 ranks whose tensors all lie there; make(host, stream) is the communicator.
template <class Make>
double turned(Place place, Index size, Make const& make) {
    constexpr int ranks = 4;
    double ms = 0;
    bench::on_ranks(ranks, [&](ThreadCommunicator& host, cudaStream_t stream) {
        auto comm = make(std::move(host), stream);
        Tensors from(place, 1, size, "S0", comm.rank(), ranks, stream);
        Tensors to(place, 1, size, "S1", comm.rank(), ranks, stream);
        from.fill();
        auto job =
            prepare(plan(from.where(), to.where()), comm, ConstDynamicView(from.list()[0].view), to.list()[0].view);
        double const median = milliseconds(
            comm, stream, [&] { to.wipe(); }, [&] { job.run(); });
        expect(to.right(), "S0 -> S1 has other values");
        static_cast<void>(comm.agree({}));
        if (comm.rank() == 0) ms = median;
    });
    return ms;
}

/// Each rank's share of as many bytes to pinned memory, all of it, and back.
double there_and_back(Index size, int ranks) {
    double ms = 0;
    bench::on_ranks(ranks, [&](ThreadCommunicator& comm, cudaStream_t stream) {
        Tensors from(Place::device, 1, size, "S0", comm.rank(), ranks, stream);
        Tensors to(Place::device, 1, size, "S0", comm.rank(), ranks, stream);
        from.fill();
        Memory const pinned(Place::pinned, from.memory().bytes());
        double const median = milliseconds(
            comm, stream, [&] { to.wipe(); },
            [&] {
                copy(pinned.data(), from.memory().data(), pinned.bytes(), stream);
                copy(to.memory().data(), pinned.data(), pinned.bytes(), stream);
            });
        expect(to.right(), "copies through pinned memory have other values");
        if (comm.rank() == 0) ms = median;
    });
    return ms;
}

void plans(Index size) {
    auto const staged = [](ThreadCommunicator host, cudaStream_t stream) {
        return StagedOnHost<ThreadCommunicator>(std::move(host), StagedOnHostOptions(stream));
    };
    auto const devices = [](ThreadCommunicator host, cudaStream_t stream) {
        return DeviceThreadCommunicator(std::move(host), stream);
    };
    auto const threads = [](ThreadCommunicator host, cudaStream_t) { return host; };
    std::printf("\nprepared S0 -> S1 of %lld x %lld float32 among 4 ranks: ms (GB/s)\n", static_cast<long long>(size),
                static_cast<long long>(size));
    std::vector<Line> lines;
    lines.push_back({"StagedOnHost, on the device", "s0_s1_staged", turned(Place::device, size, staged)});
    lines.push_back({"to pinned memory and back, 1 thread", "there_and_back_by_1", there_and_back(size, 1)});
    lines.push_back({"to pinned memory and back, 4 threads", "there_and_back_by_4", there_and_back(size, 4)});
    lines.push_back({"DeviceThreadCommunicator, on the device", "s0_s1_device", turned(Place::device, size, devices)});
    lines.push_back({"DeviceThreadCommunicator, pinned", "s0_s1_pinned", turned(Place::pinned, size, devices)});
    lines.push_back({"DeviceThreadCommunicator, pageable", "s0_s1_pageable", turned(Place::pageable, size, devices)});
    lines.push_back({"ThreadCommunicator, pageable", "s0_s1_threads", turned(Place::pageable, size, threads)});
    print(4.0 * static_cast<double>(size * size), lines);
}

/// What all saves and loads compute as well.
void checksums() {
    std::vector<std::byte> bytes((std::size_t{64} << 20U) + 13);
    std::uint32_t noise = 1;
    for (std::byte& one : bytes) one = static_cast<std::byte>((noise = noise * 1664525U + 1013904223U) >> 24U);
    auto const* const plain = reinterpret_cast<unsigned char const*>(bytes.data());
    std::vector<double> times;
    std::uint32_t sum = 0;
    for (int round = 0; round < 3; ++round) {
        auto const begin = std::chrono::steady_clock::now();
        sum = crc32c(std::span<std::byte const>(bytes).subspan(3));
        std::chrono::duration<double, std::milli> const took = std::chrono::steady_clock::now() - begin;
        times.push_back(took.count());
    }
    expect(sum == ~test::crc_by_bytes(plain + 3, bytes.size() - 3, ~0U), "a checksum is not that of CRC-32C");
    std::string_view const digits = "123456789";
    expect(crc32c(std::as_bytes(std::span(digits.data(), digits.size()))) == 0xe3069283U,
           "the checksum of 123456789 is not that of CRC-32C");
    std::nth_element(times.begin(), times.begin() + 1, times.end());
    std::printf("checksums, one thread: %.1f GB/s\n", static_cast<double>(bytes.size()) / times[1] / 1e6);
}

int usage() {
    std::fprintf(stderr, "usage: reshard_files_bench [--keep] [--size N, a multiple of 4 to 8192] [FOLDER]\n");
    return 2;
}

}  // namespace

int main(int argc, char** argv) try {
    int devices = 0;
    if (cudaError_t const error = cudaGetDeviceCount(&devices); error != cudaSuccess || devices == 0) {
        std::printf("No GPU here (%s): nothing was measured.\n", cudaGetErrorString(error));
        return 77;
    }
    bool keep = false;
    Index size = 4096;
    std::string path;
    for (int i = 1; i < argc; ++i) {
        std::string_view const argument = argv[i];
        if (argument == "--keep") {
            keep = true;
        } else if (argument == "--size" && i + 1 < argc) {
            size = std::strtoll(argv[++i], nullptr, 10);
        } else if (path.empty() && !argument.empty() && argument[0] != '-') {
            path = argument;
        } else {
            return usage();
        }
    }
    if (size < 4 || size > 8192 || size % 4 != 0) return usage();
    // Two saves and the raw files at once, and some more for whoever reads what is kept and saves it again.
    double const room = 3.5 * static_cast<double>(4 * tensors * size * size) + 1e6;
    if (path.empty()) {
        path = "/dev/shm/reshard_files_bench";
        if (!has_room(path, room)) path = (fs::temp_directory_path() / "reshard_files_bench").string();
    }
    path = fs::absolute(path).string();
    if (!has_room(path, room)) {
        std::printf("FAILED: %s has less room than %.1f GB. Fix: name another folder, or a smaller --size.\n",
                    path.c_str(), room / 1e9);
        return 1;
    }
    cudaDeviceProp device{};
    check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    std::printf("%s, ranks as threads of it, medians of %d\nfiles in %s\n", device.name, rounds, path.c_str());
    std::fflush(stdout);
    Folder const folder(path, keep);
    checksums();
    plans(2 * size);
    files(size, folder);
    std::printf("\n%s\n", wrong == 0 ? "results are right" : "RESULTS ARE WRONG");
    return wrong == 0 ? 0 : 1;
} catch (std::exception const& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
}
