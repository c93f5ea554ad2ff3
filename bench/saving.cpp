// SPDX-License-Identifier: Apache-2.0
// Question: how near do saving and loading come to what the same threads write and read when they have nothing to look
// after? A model of 2 GB on four ranks, (4):(S0), in /dev/shm: both sides are memory copies and system calls. And what
// does a save of 4 million extents cost one of 1,024 ranks before anything is written?
//
//     reshard_saving --goals [NAME...]     goal NAME VALUE TARGET ok|short; --dir FOLDER before it: elsewhere
//     reshard_saving --disk FOLDER         durable writes and cold reads there, on both sides; no goals
//     reshard_saving --serve FOLDER        for bench/peers/dcp_torch.py: answers "save" and "load" with seconds
#include "support/goal_lines.hpp"
#include "support/save_case.hpp"
#include "support/serving.hpp"
#include "support/team.hpp"

#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/detail/save_extents.hpp>
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/save_plan.hpp>
#include <reshard/comm/threads.hpp>

#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>   // steady_clock
#include <cstdio>   // fprintf, printf
#include <cstring>  // strcmp
#include <string>
#include <vector>

namespace {

using namespace reshard;
using namespace reshard::bench;

constexpr int ranks = 4;
constexpr int pairs = 5;
std::string parent = "/dev/shm";

/// Four ranks, the same memory for all that they do.
class Team {
public:
    Team() : list_(model_of_2_gb()) {
        for (int rank = 0; rank < ranks; ++rank) {
            rows_.emplace_back(cut_along(0, list_, ranks), rank);
            columns_.emplace_back(cut_along(1, list_, ranks), rank);
        }
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            rows_[at(comm)].mark();
            columns_[at(comm)].mark();
        });
    }

    /// Seconds from the moment that all are ready until all are done.
    template <class Task>
    double time(Task&& task) {
        TeamClock clock(ranks);
        double seconds = 0;
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            double const taken = clock([&] { task(comm); });
            if (comm.rank() == 0) seconds = taken;
        });
        return seconds;
    }
    double save_to(std::string const& folder, bool durable) {
        SaveOptions options;
        options.durable = durable;
        return time([&](ThreadCommunicator& comm) { save(folder, rows_[at(comm)].tensors(), comm, options); });
    }
    /// Onto the placements that were saved, or onto others.
    template <class Strategy>
    double load_from(std::string const& folder, Strategy const& strategy, bool other_placements = false) {
        auto& parts = other_placements ? columns_ : rows_;
        return time([&](ThreadCommunicator& comm) { load(folder, parts[at(comm)].tensors(), comm, strategy); });
    }
    /// Whether a load leaves every element where it belongs.
    template <class Strategy>
    bool loads_right(std::string const& folder, Strategy const& strategy, bool other_placements) {
        auto& parts = other_placements ? columns_ : rows_;
        for (MarkedPart& part : parts) part.forget();
        load_from(folder, strategy, other_placements);
        bool right = true;
        for (MarkedPart& part : parts) right = part.is_marked() && right;
        return right;
    }
    [[nodiscard]] Index bytes_of(int rank) const { return rows_[static_cast<std::size_t>(rank)].bytes(); }
    [[nodiscard]] double gigabytes() const { return static_cast<double>(demo::total_bytes(list_)) / 1e9; }

private:
    static std::size_t at(ThreadCommunicator const& comm) { return static_cast<std::size_t>(comm.rank()); }

    std::vector<TensorSpec> list_;
    std::vector<MarkedPart> rows_;
    std::vector<MarkedPart> columns_;
};

/// The same bytes by the same threads, from and to memory of their own.
class RawTeam {
public:
    RawTeam(Team const& team, FreshFolder const& folder) {
        for (int rank = 0; rank < ranks; ++rank) {
            files_.emplace_back(errors::concat(folder.path(), "/raw.", rank), team.bytes_of(rank));
        }
    }
    double write(Team& team, bool durable) {
        return team.time(
            [&](ThreadCommunicator& comm) { files_[static_cast<std::size_t>(comm.rank())].write(durable); });
    }
    double read(Team& team) {
        return team.time([&](ThreadCommunicator& comm) { files_[static_cast<std::size_t>(comm.rank())].read(); });
    }

private:
    std::vector<RawFile> files_;
};

double print_pair(Team const& team, char const* what, Paired const& result, bool right = true) {
    std::printf("  %-44s raw %5.2f GB/s, reshard %5.2f GB/s, %.0f%%%s\n", what, team.gigabytes() / result.first,
                team.gigabytes() / result.second, 100 * result.ratio, right ? "" : "  WRONG RESULT");
    std::fflush(stdout);
    return right ? result.ratio : 0;
}

/// Seconds of a save to a fresh folder, and of the raw writes to another.
Paired save_beside_raw(Team& team, bool durable) {
    FreshFolder ours(parent, "reshard_saving");
    FreshFolder theirs(parent, "reshard_raw");
    RawTeam raw(team, theirs);
    return paired(
        [&] {
            theirs.begin();
            double const seconds = raw.write(team, durable);
            theirs.end();
            return seconds;
        },
        [&] {
            ours.begin();
            double const seconds = team.save_to(ours.path(), durable);
            ours.end();
            return seconds;
        },
        pairs);
}

/// What was saved, and raw files of as many bytes.
struct SavedBesideRaw {
    explicit SavedBesideRaw(Team& all)
        : team(all), ours(parent, "reshard_saving"), theirs(parent, "reshard_raw"), raw(all, theirs) {
        ours.begin();
        theirs.begin();
        team.save_to(ours.path(), false);
        raw.write(team, false);
    }
    template <class Strategy>
    double compare(char const* what, Strategy const& strategy, bool other_placements, bool cold = false) {
        Paired const result = paired(
            [&] {
                if (cold) theirs.cool();
                return raw.read(team);
            },
            [&] {
                if (cold) ours.cool();
                return team.load_from(ours.path(), strategy, other_placements);
            },
            pairs);
        return print_pair(team, what, result, team.loads_right(ours.path(), strategy, other_placements));
    }

    Team& team;
    FreshFolder ours;
    FreshFolder theirs;
    RawTeam raw;
};

template <class Strategy>
Strategy unchecked() {
    Strategy strategy;
    strategy.options.verify_checksums = Checksums::none;
    return strategy;
}

void save_vs_raw(Goals& goals) {
    Team team;
    goals.at_least("save_vs_raw", print_pair(team, "save, with checksums", save_beside_raw(team, false)), 0.7);
}
void load_vs_raw(Goals& goals) {
    Team team;
    SavedBesideRaw saved(team);
    double const checked = saved.compare("load, with checksums", CooperativeRead{}, false);
    double const plain = saved.compare("load, without", unchecked<CooperativeRead>(), false);
    saved.compare("load onto other placements, with checksums", CooperativeRead{}, true);
    saved.compare("load onto other placements, without", unchecked<CooperativeRead>(), true);
    goals.at_least("load_vs_raw", checked, 0.6);
    goals.at_least("load_vs_raw_unchecked", plain, 0.8);
}

/// What a process of its own takes for a task: its memory is that of nothing else.
struct Cost {
    double seconds = -1;
    double megabytes = 0;  ///< at its peak, with the program
};
template <class Task>
Cost in_child(Task&& task) {
    Cost cost;
    int ends[2];
    if (::pipe(ends) != 0) reshard::detail::raise_io("a pipe", "cannot make", errno, "close files.");
    std::fflush(stdout);
    ::pid_t const child = ::fork();
    if (child == 0) {
        auto const start = std::chrono::steady_clock::now();
        task();
        cost.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        ::rusage usage{};
        ::getrusage(RUSAGE_SELF, &usage);
        cost.megabytes = static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
        std::fflush(stdout);
        ::_exit(::write(ends[1], &cost, sizeof cost) == static_cast<::ssize_t>(sizeof cost) ? 0 : 1);
    }
    ::close(ends[1]);
    bool const told = child > 0 && ::read(ends[0], &cost, sizeof cost) == static_cast<::ssize_t>(sizeof cost);
    ::close(ends[0]);
    if (child > 0) ::waitpid(child, nullptr, 0);
    if (!told) reshard::detail::raise_io("a process", "cannot measure what it takes", errno, "look above.");
    return cost;
}

/// 4,095 matrices, each cut along its rows over 1,024 ranks: 4,193,280 extents.
void plan_extents_4m(Goals& goals) {
    constexpr int writers = 1024;
    std::vector<PlacedTensor> list;
    DynamicDistribution const rows = parse("(1024):(S0)", Shape{4096, 4096});
    for (int i = 0; i < 4095; ++i) list.push_back({errors::concat("layers.", i, ".weight"), rows, DType::f32});
    auto const print = [](int rank, Cost const& cost) {
        std::printf("  rank %d of %d plans a save of 4,193,280 extents: %.2f s, peak memory %.0f MB\n", rank, writers,
                    cost.seconds, cost.megabytes);
    };
    Cost const other = in_child([&] { static_cast<void>(detail::plan_save_of_rank(list, writers, 5, SaveOptions{})); });
    print(5, other);
    Cost const first = in_child([&] {  // as a save does before it begins to write, where the manifest may be too long
        detail::SaveDealer dealt;
        SavePlan const plan = detail::plan_save_of_rank(list, writers, 0, SaveOptions{}, &dealt);
        detail::SaveExtents all(std::move(dealt), plan.manifest);
        std::size_t bytes = 0;
        detail::write_manifest(
            plan.manifest, all.has_blocks(), [&](std::size_t tensor) { return all(tensor); },
            [&](std::string_view piece) { bytes += piece.size(); });
        std::printf("  the manifest: %.0f MB of text, made on rank 0 and counted\n", static_cast<double>(bytes) / 1e6);
    });
    print(0, first);
    goals.at_most("plan_extents_4m", detail::larger(first.seconds, other.seconds), 5);
    goals.at_most("plan_extents_4m_memory", detail::larger(first.megabytes, other.megabytes), 200);
}

struct Goal {
    char const* name;
    void (*measure)(Goals&);
};
constexpr Goal all_goals[] = {  // the first forks, while the process is small
    {"plan_extents_4m", plan_extents_4m},
    {"save_vs_raw", save_vs_raw},
    {"load_vs_raw", load_vs_raw}};

/// What a disk makes of it: both sides wait until bytes are durable, and read what is not in memory.
void print_disk() {
    Team team;
    std::printf("%s, %.2f GB, durable writes and cold reads:\n", parent.c_str(), team.gigabytes());
    print_pair(team, "save, with checksums", save_beside_raw(team, true));
    SavedBesideRaw saved(team);
    saved.compare("load, with checksums", CooperativeRead{}, false, true);
    saved.compare("load onto other placements, with checksums", CooperativeRead{}, true, true);
}

/// A line of "save" or "load" is answered by a line of JSON. The load is onto other placements.
int serve() {
    Team team;
    FreshFolder folder(parent, "reshard_saving");
    return serve_lines({"save", "load"}, [&](std::string_view word) {
        if (word == "save") {
            folder.begin();
            print_answer(team.save_to(folder.path(), false), true);
        } else {
            double const seconds = team.load_from(folder.path(), CooperativeRead{}, true);
            print_answer(seconds, team.loads_right(folder.path(), CooperativeRead{}, true));
        }
    });
}

int run(int argc, char** argv) {
    take_folder(argc, argv, parent);
    if (argc > 1 && std::strcmp(argv[1], "--goals") == 0) return measure_goals(all_goals, argc - 1, argv + 1);
    if (argc == 3 && std::strcmp(argv[1], "--disk") == 0) {
        parent = argv[2];
        print_disk();
        return 0;
    }
    if (argc == 3 && std::strcmp(argv[1], "--serve") == 0) {
        parent = argv[2];
        return serve();
    }
    std::fprintf(stderr, "usage: reshard_saving [--dir FOLDER] --goals [NAME...] | --disk FOLDER | --serve FOLDER\n");
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    return report_errors("reshard_saving", [&] { return run(argc, argv); });
}
