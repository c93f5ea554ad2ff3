// SPDX-License-Identifier: Apache-2.0
// Question: what does it cost to carry a managed-collision table to another number of ranks?
// Floors: the same steps with std::stable_sort and gathers, on the same threads over the same transport; the algorithm
// of TorchEasyRec pull request 467 in PyTorch (bench/peers/mch_torch.py, which runs this program with --serve); the
// bytes of the ids themselves.
// 16.8M slots, 2 metadata columns, 95 % live: 32 bytes an entry. Ranks are threads.
//
// Arguments: --goals for the goal lines (all, or those named behind it), --serve SLOTS SAVED RANKS to answer each line
// `route` or `slot_owner` of the input with one run as a line of JSON, Google Benchmark's options otherwise.
#include "support/goal_lines.hpp"
#include "support/mch_change.hpp"
#include "support/mch_sorted.hpp"
#include "support/serving.hpp"
#include "support/team.hpp"

#include <reshard/comm/threads.hpp>

#include <benchmark/benchmark.h>

#include <malloc.h>  // malloc_usable_size
#include <atomic>    // atomic
#include <cstdio>    // printf
#include <cstdlib>   // malloc, atoll
#include <cstring>   // strcmp
#include <new>       // operator new
#include <vector>

namespace {

/// Bytes that this thread has allocated and not freed, and the most there have been.
struct AllocatedBytes {
    long long now = 0;
    long long most = 0;
};
thread_local AllocatedBytes allocated;

}  // namespace

#ifdef __GLIBC__
// All memory, operator new's too, comes through here: glibc lets a program put itself in front of its allocator.
// Memory that a program maps itself would escape.
namespace {

[[nodiscard]] void* counted(void* memory) noexcept {
    allocated.now += static_cast<long long>(malloc_usable_size(memory));
    if (allocated.now > allocated.most) allocated.most = allocated.now;
    return memory;
}
void discount(void* memory) noexcept { allocated.now -= static_cast<long long>(malloc_usable_size(memory)); }

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);

void* malloc(std::size_t size) noexcept { return counted(__libc_malloc(size)); }
void* calloc(std::size_t count, std::size_t size) noexcept { return counted(__libc_calloc(count, size)); }
void* realloc(void* memory, std::size_t size) noexcept {
    discount(memory);
    return counted(__libc_realloc(memory, size));
}
void* memalign(std::size_t alignment, std::size_t size) noexcept { return counted(__libc_memalign(alignment, size)); }
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept { return memalign(alignment, size); }
int posix_memalign(void** result, std::size_t alignment, std::size_t size) noexcept {
    *result = memalign(alignment, size);
    return *result == nullptr ? ENOMEM : 0;
}
void free(void* memory) noexcept {
    discount(memory);
    __libc_free(memory);
}
}
#endif

namespace {

using namespace reshard;
using namespace reshard::bench;

constexpr Index all_slots = 16'800'000;

/// Processor time of all threads.
[[nodiscard]] double process_seconds() noexcept {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

[[nodiscard]] char const* name_of(MchMode mode) { return mode == MchMode::route ? "route" : "slot_owner"; }

// ---- One change of world size ------------------------------------------------------------------------------------

/// All ranks' shards of one table, as they were loaded and as they are.
class MchRanks {
public:
    MchRanks(Index slots, Index saved_ranks, Index ranks)
        : world_(slots, saved_ranks, ranks), loaded_(at(ranks)), now_(loaded_.size()), changes_(loaded_.size()) {
        run_on_threads(world_.ranks(), [&](ThreadCommunicator& comm) {
            auto const rank = at(comm.rank());
            loaded_[rank] = world_.load(comm.rank());
        });
    }

    /// Seconds of redistribute() among all ranks, from columns as they were loaded.
    [[nodiscard]] double redistribute(MchMode mode) {
        return run([&](ThreadCommunicator& comm, MchColumns& columns) {
            MchOptions options;
            options.mode = mode;
            options.drop_unreachable = false;  // as the peers
            Traffic const before = comm.traffic();
            Change& change = changes_[at(comm.rank())];
            change.result = reshard::redistribute(world_.saved(), world_.current(), columns.state(), comm, options);
            change.traffic = comm.traffic() - before;
        });
    }
    /// The same by sorting.
    [[nodiscard]] double sort(MchMode mode) {
        return run([&](ThreadCommunicator& comm, MchColumns& columns) {
            MchBySorting<ThreadCommunicator>(world_.current(), columns.state(), comm)(mode);
        });
    }
    /// Of all ranks, in the last run: what a busy machine does not change.
    [[nodiscard]] double processor_seconds() const noexcept { return processor_seconds_; }
    [[nodiscard]] std::vector<MchColumns> const& columns() const noexcept { return now_; }
    [[nodiscard]] std::vector<MchColumns> take_columns() { return std::move(now_); }

    /// The most memory that redistribute() takes on any rank, result included, by the bytes of the rank's ids: those
    /// it was loaded with or those it ends with, whichever are more.
    [[nodiscard]] double peak_memory(MchMode mode) {
        static_cast<void>(redistribute(mode));
        double worst = 0;
        for (Change const& change : changes_) {
            Index const live = detail::larger(change.result.live_before, change.result.live_after);
            worst = detail::larger(
                worst, static_cast<double>(change.peak) / static_cast<double>(live * MchWorldChange::entry_bytes));
        }
        return worst;
    }

    /// After redistribute(): bytes over the wire in all, less those of the entries that another rank owns now. -1 when
    /// that is not what a few headers of 16 bytes would be, or when ranks count entries otherwise.
    [[nodiscard]] Index header_bytes(MchMode mode) const {
        Router const router(world_.current());
        Index moving = 0;
        for (Index rank = 0; rank < world_.ranks(); ++rank) {
            MchColumns const& columns = loaded_[at(rank)];
            for (std::size_t i = 0; i < columns.ids.size(); ++i) {
                if (columns.ids[i] == INT64_MAX) continue;
                Index const owner =
                    mode == MchMode::route ? router.part_of_id(columns.ids[i]) : router.part_of_slot(columns.slots[i]);
                moving += owner != rank ? 1 : 0;
            }
        }
        Index bytes = 0;
        Index sent = 0;
        Index received = 0;
        for (Change const& change : changes_) {
            bytes += change.traffic.bytes_sent;
            sent += change.result.sent;
            received += change.result.received;
        }
        Index const headers = bytes - moving * MchWorldChange::entry_bytes;
        bool const few = headers >= 0 && headers <= 1024 * world_.ranks() * world_.ranks();
        return few && sent == moving && received == moving ? headers : -1;
    }

private:
    struct Change {
        MchChange result;
        Traffic traffic;
        Index peak = 0;
    };
    [[nodiscard]] static std::size_t at(Index rank) noexcept { return static_cast<std::size_t>(rank); }

    template <class Task>
    [[nodiscard]] double run(Task&& task) {
        double seconds = 0;
        TeamClock clock(world_.ranks());
        now_.resize(loaded_.size());
        run_on_threads(world_.ranks(), [&](ThreadCommunicator& comm) {
            auto const rank = at(comm.rank());
            now_[rank] = loaded_[rank];
            changes_[rank] = {};
        });
        double const before = process_seconds();
        run_on_threads(world_.ranks(), [&](ThreadCommunicator& comm) {
            auto const rank = at(comm.rank());
            long long const own = allocated.most = allocated.now;
            double const taken = clock([&] { task(comm, now_[rank]); });
            changes_[rank].peak = allocated.most - own;
            if (rank == 0) seconds = taken;
        });
        processor_seconds_ = process_seconds() - before;
        return seconds;
    }

    MchWorldChange world_;
    std::vector<MchColumns> loaded_;
    std::vector<MchColumns> now_;
    std::vector<Change> changes_;
    double processor_seconds_ = 0;
};

// ---- Goals -------------------------------------------------------------------------------------------------------

void mch_vs_sort(Goals& goals) {
    MchRanks ranks(all_slots, 3, 4);
    double least = 1e9;
    for (MchMode mode : {MchMode::route, MchMode::slot_owner}) {
        std::vector<MchColumns> by_sorting;
        std::vector<MchColumns> ours;
        double processor[2] = {};
        bool right = true;
        auto const sort = [&] {
            double const seconds = ranks.sort(mode);
            processor[0] = ranks.processor_seconds();
            by_sorting = ranks.take_columns();
            return seconds;
        };
        auto const redistribute = [&] {
            double const seconds = ranks.redistribute(mode);
            processor[1] = ranks.processor_seconds();
            ours = ranks.take_columns();
            right = right && ranks.header_bytes(mode) >= 0;
            return seconds;
        };
        Paired const result = paired(sort, redistribute, 3);
        right = right && ours == by_sorting;
        std::printf(
            "  3 -> 4 ranks, %-10s: redistribute %5.2f s, stable_sort and gathers %5.2f s, %.1f x; processor time of "
            "all ranks %.2f and %.2f s, %.1f x%s\n",
            name_of(mode), result.second, result.first, result.ratio, processor[1], processor[0],
            processor[0] / processor[1], right ? "" : "  WRONG RESULT");
        least = detail::smaller(least, right ? result.ratio : 0);
    }
    goals.at_least("mch_vs_sort", least, 5);
}

void mch_peak_memory(Goals& goals) {
#ifndef __GLIBC__
    goals.skipped("mch_peak_memory", "only glibc lets a program count its memory");
    return;
#endif
    constexpr Index worlds[][2] = {{1, 4}, {2, 4}, {3, 4}, {8, 4}, {4, 3}};
    double worst = 0;
    for (auto const& [from, to] : worlds) {
        MchRanks ranks(all_slots, from, to);
        for (MchMode mode : {MchMode::route, MchMode::slot_owner}) {
            double const peak = ranks.peak_memory(mode);
            Index const headers = ranks.header_bytes(mode);
            bool const right = headers >= 0;
            std::printf("  %lld -> %lld ranks, %-10s: %.2f x the bytes of a rank's ids", static_cast<long long>(from),
                        static_cast<long long>(to), name_of(mode), peak);
            if (right) {
                std::printf("; on the wire, entries that move and %lld bytes of headers\n",
                            static_cast<long long>(headers));
            } else {
                std::printf("  WRONG BYTES ON THE WIRE\n");
            }
            worst = detail::larger(worst, right ? peak : 1e9);
        }
    }
    goals.at_most("mch_peak_memory", worst, 2.5);
}

struct Goal {
    char const* name;
    void (*measure)(Goals&);
};
constexpr Goal all_goals[] = {{"mch_vs_sort", mch_vs_sort}, {"mch_peak_memory", mch_peak_memory}};

// ---- Beside another program --------------------------------------------------------------------------------------

/// Of a column, in order: a sum of (position + 1) x entry.
[[nodiscard]] long long weighed(std::vector<Index> const& column) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < column.size(); ++i) sum += (i + 1) * static_cast<std::uint64_t>(column[i]);
    return static_cast<long long>(sum);
}

void print_list(char const* name, std::vector<MchColumns> const& ranks, std::vector<Index> MchColumns::*column) {
    std::printf(", \"%s\": [", name);
    for (std::size_t r = 0; r < ranks.size(); ++r) std::printf("%s%lld", r == 0 ? "" : ", ", weighed(ranks[r].*column));
    std::printf("]");
}

int serve(Index slots, Index saved_ranks, Index ranks) {
    MchRanks world(slots, saved_ranks, ranks);
    return serve_lines({name_of(MchMode::route), name_of(MchMode::slot_owner)}, [&](std::string_view word) {
        MchMode const mode = word == name_of(MchMode::route) ? MchMode::route : MchMode::slot_owner;
        std::printf("{\"seconds\": %.6f", world.redistribute(mode));
        print_list("ids", world.columns(), &MchColumns::ids);
        print_list("counts", world.columns(), &MchColumns::counts);
        print_list("last_access_iter", world.columns(), &MchColumns::access);
        std::printf("}\n");
    });
}

// ---- Other sizes -------------------------------------------------------------------------------------------------

void redistribute_ids(benchmark::State& state) {
    MchRanks ranks(state.range(0), state.range(1), state.range(2));
    auto const mode = state.range(3) == 0 ? MchMode::route : MchMode::slot_owner;
    for (auto _ : state) state.SetIterationTime(ranks.redistribute(mode));
    state.SetBytesProcessed(state.iterations() * state.range(0) * MchWorldChange::entry_bytes);
}
BENCHMARK(redistribute_ids)
    ->ArgNames({"slots", "from", "to", "slot_owner"})
    ->ArgsProduct({{1 << 14, 1 << 18, 1 << 22}, {1, 3, 4, 8}, {1, 2, 4}, {0, 1}})
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1 && std::strcmp(argv[1], "--goals") == 0) return measure_goals(all_goals, argc - 1, argv + 1);
    if (argc == 5 && std::strcmp(argv[1], "--serve") == 0) {
        return serve(std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]));
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
