// SPDX-License-Identifier: Apache-2.0
// Question: how near does consolidation come to a plain copy of the same bytes, and to PyTorch's? A model of 2 GB in
// eight shards becomes full files, on four ranks, in /dev/shm: both sides are memory copies and system calls.
//
//     reshard_consolidating --goals [NAME...]   goal NAME VALUE TARGET ok|short; --dir FOLDER before it: elsewhere
//     reshard_consolidating --ranks             the time of 1, 2, 4 and 8 ranks, into one file and into eight
//     reshard_consolidating --serve FOLDER      for bench/peers/consolidate_torch.py: answers "one" and "eight"
#include "support/goal_lines.hpp"
#include "support/paired.hpp"
#include "support/serving.hpp"
#include "support/shards_case.hpp"

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/comm/threads.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>  // clamp, sort
#include <cerrno>     // errno
#include <cstdio>     // fprintf, printf
#include <cstdlib>    // system
#include <cstring>    // strcmp, strerror
#include <filesystem>
#include <string>
#include <thread>  // hardware_concurrency
#include <vector>

namespace {

using namespace reshard;
using namespace reshard::bench;

constexpr int shards = 8;
constexpr int pairs = 5;
std::string parent = "/dev/shm";

/// Eight files, of as equal size as tensors allow: (tensor, number from 0).
std::vector<std::pair<std::string, int>> eight_files(std::vector<TensorSpec> const& list) {
    Index left = 0;  // bytes of this file and those behind it
    for (TensorSpec const& tensor : list) left += stored_bytes(tensor);
    std::vector<std::pair<std::string, int>> files;
    int file = 0;
    Index filled = 0;
    for (TensorSpec const& tensor : list) {
        Index const bytes = stored_bytes(tensor);
        if (file + 1 < shards && filled > 0 && filled + bytes / 2 > left / (shards - file)) {
            left -= filled;
            filled = 0;
            ++file;
        }
        files.emplace_back(tensor.name, file);
        filled += bytes;
    }
    return files;
}

class Case {
public:
    Case() : list_(model_of_2_gb()), in_(parent, "reshard_shards"), out_(parent, "reshard_full") {
        std::sort(list_.begin(), list_.end(), [](auto const& a, auto const& b) { return a.name < b.name; });
        files_ = eight_files(list_);
        in_.begin();
        write_shards(in_.path(), list_, shards);
    }
    /// Seconds; the folder is new, and goes with the next one.
    double consolidate_on(int ranks, bool one_file, bool checksums = true) {
        out_.begin();
        ConsolidateOptions options;
        options.durable = false;
        options.checksums = options.verify_checksums = checksums;
        options.max_file_bytes = 0;
        for (auto const& [name, file] : files_) {
            if (!one_file) {
                options.weight_map.emplace_back(name, checkpoint_file_name(file, files_.back().second + 1));
            }
        }
        double seconds = 0;
        run_on_threads(ranks, [&](ThreadCommunicator& comm) {
            RewriteReport const report = consolidate(in_.path(), out_.path(), comm, options);
            if (comm.rank() == 0) seconds = report.seconds;
        });
        return seconds;
    }
    [[nodiscard]] bool is_right() { return holds_marks(out_.path(), list_); }
    double copy() {
        out_.begin();
        std::string const command = errors::concat("cp --reflink=never '", in_.path(), "'/* '", out_.path(), "'");
        double const start = now_seconds();
        if (std::system(command.c_str()) != 0) errors::raise(ErrorCode::io, "cp failed");
        return now_seconds() - start;
    }
    /// Seconds of as many threads that do nothing but read the shards and write their bytes, an equal share each.
    double copy_bare(int threads, bool one_file) {
        out_.begin();
        std::vector<std::string> inputs;
        for (auto const& entry : std::filesystem::directory_iterator(in_.path())) inputs.push_back(entry.path());
        double const start = now_seconds();
        std::vector<Share> all;
        Index total = 0;
        int const one = one_file ? open_or_raise(errors::concat(out_.path(), "/one"), O_WRONLY | O_CREAT) : -1;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            auto const bytes = static_cast<Index>(std::filesystem::file_size(inputs[i]));
            int const out = one_file ? one : open_or_raise(errors::concat(out_.path(), "/", i), O_WRONLY | O_CREAT);
            all.push_back({open_or_raise(inputs[i], O_RDONLY), out, total, one_file ? total : 0, bytes});
            total += bytes;
        }
        std::vector<std::thread> team;
        for (int t = 0; t < threads; ++t) {
            team.emplace_back([&, t] {
                std::vector<char> buffer(std::size_t{1} << 18U);
                Index const begin = total / threads * t;
                Index const end = t + 1 == threads ? total : total / threads * (t + 1);
                for (Share const& share : all) share.copy(begin, end, buffer);
            });
        }
        for (std::thread& thread : team) thread.join();
        for (Share const& share : all) {
            ::close(share.in);
            if (!one_file) ::close(share.out);
        }
        if (one_file) ::close(one);
        return now_seconds() - start;
    }
    void clear() { out_.end(); }
    [[nodiscard]] std::string const& folder() const noexcept { return in_.path(); }
    [[nodiscard]] double gigabytes() const { return static_cast<double>(demo::total_bytes(list_)) / 1e9; }
    [[nodiscard]] std::vector<std::pair<std::string, int>> const& files() const noexcept { return files_; }

private:
    /// A shard, and where its bytes go.
    struct Share {
        int in;
        int out;
        Index begin;  ///< among the bytes of all shards
        Index to;     ///< in the output
        Index bytes;

        /// What [from, end) of the bytes of all shards has of this one.
        void copy(Index from, Index end, std::vector<char>& buffer) const {
            Index const last = detail::smaller(end - begin, bytes);
            for (Index at = detail::larger<Index>(from - begin, 0); at < last;) {
                auto const some =
                    static_cast<std::size_t>(detail::smaller(last - at, static_cast<Index>(buffer.size())));
                ssize_t const count = ::pread(in, buffer.data(), some, at);
                if (count <= 0 || ::pwrite(out, buffer.data(), static_cast<std::size_t>(count), to + at) != count) {
                    std::perror("copying shards");
                    std::abort();
                }
                at += count;
            }
        }
    };
    [[nodiscard]] static int open_or_raise(std::string const& path, int flags) {
        int const file = ::open(path.c_str(), flags, 0600);
        if (file < 0) errors::raise(ErrorCode::io, errors::concat(path, ": ", std::strerror(errno)));
        return file;
    }

    std::vector<TensorSpec> list_;
    std::vector<std::pair<std::string, int>> files_;
    FreshFolder in_;
    FreshFolder out_;
};

double print_pair(Case const& what, char const* text, char const* other, Paired const& result, bool right) {
    std::printf("  %-36s %s %5.2f GB/s, reshard %5.2f GB/s, %.0f%%%s\n", text, other, what.gigabytes() / result.first,
                what.gigabytes() / result.second, 100 * result.ratio, right ? "" : "  WRONG RESULT");
    std::fflush(stdout);
    return right ? result.ratio : 0;
}

void consolidate_vs_cp(Goals& goals) {
    Case model;
    double const one =
        print_pair(model, "4 ranks, one file, checksums", "cp",
                   paired([&] { return model.copy(); }, [&] { return model.consolidate_on(4, true); }, pairs), [&] {
                       model.consolidate_on(4, true);
                       return model.is_right();
                   }());
    goals.at_least("consolidate_vs_cp", one, 0.85);
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    double const megabytes = static_cast<double>(usage.ru_maxrss) * 1024 / 1e6;
    std::printf("  peak memory of the process with its 4 ranks: %.0f MB\n", megabytes);
    goals.at_most("consolidate_memory", megabytes / 4, 256);
}

/// As many as there are cores.
int ranks_of_machine() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, shards); }

/// What sums, short runs of tensors and votes cost, beside as many threads that only read and write those bytes.
void consolidate_vs_raw(Goals& goals) {
    Case model;
    int const ranks = ranks_of_machine();
    double least = 1e9;
    for (bool const one_file : {true, false}) {
        Paired const result = paired([&] { return model.copy_bare(ranks, one_file); },
                                     [&] { return model.consolidate_on(ranks, one_file); }, pairs);
        model.consolidate_on(ranks, one_file);
        std::string const text =
            errors::concat(ranks, " ranks, ", one_file ? "one file" : "eight files", ", checksums");
        least = detail::smaller(least, print_pair(model, text.c_str(), "bare", result, model.is_right()));
    }
    goals.at_least("consolidate_vs_raw", least, 0.9);
}

/// As many ranks as there are cores: whether one file keeps them as busy as eight do. A file system that lets one write
/// at a time into a file slows bare writes as well: what counts is how much more is lost than they lose.
void consolidate_one_vs_eight(Goals& goals) {
    Case model;
    int const ranks = ranks_of_machine();
    Paired const ours = paired([&] { return model.consolidate_on(ranks, false); },
                               [&] { return model.consolidate_on(ranks, true); }, pairs);
    model.consolidate_on(ranks, true);
    bool const right = model.is_right();
    Paired const bare =
        paired([&] { return model.copy_bare(ranks, false); }, [&] { return model.copy_bare(ranks, true); }, pairs);
    for (auto const& [text, result] : {std::pair("checksums", &ours), std::pair("bare", &bare)}) {
        std::printf("  %d ranks, %-9s: eight files %5.2f GB/s, one file %5.2f GB/s, %.0f%%%s\n", ranks, text,
                    model.gigabytes() / result->first, model.gigabytes() / result->second, 100 * result->ratio,
                    right ? "" : "  WRONG RESULT");
    }
    goals.at_least("consolidate_one_vs_eight", right ? ours.ratio / bare.ratio : 0, 0.8);
}

struct Goal {
    char const* name;
    void (*measure)(Goals&);
};
constexpr Goal all_goals[] = {{"consolidate_vs_cp", consolidate_vs_cp},
                              {"consolidate_vs_raw", consolidate_vs_raw},
                              {"consolidate_one_vs_eight", consolidate_one_vs_eight}};

int print_ranks() {
    Case model;
    std::printf("%s, %.2f GB in %d shards; GB/s, the best of %d:\n  ranks    one file   eight files   one, no sums\n",
                parent.c_str(), model.gigabytes(), shards, pairs);
    for (int const ranks : {1, 2, 4, 8}) {
        double best[3] = {1e9, 1e9, 1e9};
        for (int i = 0; i < pairs; ++i) {
            best[0] = detail::smaller(best[0], model.consolidate_on(ranks, true));
            best[1] = detail::smaller(best[1], model.consolidate_on(ranks, false));
            best[2] = detail::smaller(best[2], model.consolidate_on(ranks, true, false));
        }
        std::printf("  %5d  %10.2f  %12.2f  %13.2f\n", ranks, model.gigabytes() / best[0], model.gigabytes() / best[1],
                    model.gigabytes() / best[2]);
        std::fflush(stdout);
    }
    return 0;
}

/// First a line of JSON about the shards, then a line for each line of "one" or "eight".
int serve() {
    Case model;
    std::printf("{\"folder\": \"%s\", \"gigabytes\": %.6f, \"files\": {", model.folder().c_str(), model.gigabytes());
    char const* separator = "";
    for (auto const& [name, file] : model.files()) {
        std::printf("%s\"%s\": %d", separator, name.c_str(), file + 1);
        separator = ", ";
    }
    std::printf("}}\n");
    std::fflush(stdout);
    return serve_lines({"one", "eight"}, [&](std::string_view word) {
        double const seconds = model.consolidate_on(4, word == "one");
        print_answer(seconds, model.is_right());
        model.clear();
    });
}

int run(int argc, char** argv) {
    take_folder(argc, argv, parent);
    if (argc > 1 && std::strcmp(argv[1], "--goals") == 0) return measure_goals(all_goals, argc - 1, argv + 1);
    if (argc == 2 && std::strcmp(argv[1], "--ranks") == 0) return print_ranks();
    if (argc == 3 && std::strcmp(argv[1], "--serve") == 0) {
        parent = argv[2];
        return serve();
    }
    std::fprintf(stderr, "usage: reshard_consolidating [--dir FOLDER] --goals [NAME...] | --ranks | --serve FOLDER\n");
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    return report_errors("reshard_consolidating", [&] { return run(argc, argv); });
}
