// SPDX-License-Identifier: Apache-2.0
// Managed-collision tables after a change of the number of ranks: trains two of them on W1 ranks, loads them on W2, and
// then asks for every id as a trainer would. What does each mode find, with which row, and what did it send?
//
//     reshard_mch_world_size_change                          from 2 ranks to 4, which are threads
//     reshard_mch_world_size_change --from 6 --to 4 --policy LRU
//     mpirun -n 4 reshard_mch_world_size_change              the same on processes
//     reshard_mch_world_size_change --reachability           six changes, one line each
//     reshard_mch_world_size_change --load folder --to 8     tables of yours, as save() wrote them
#include "support/mch_look_up.hpp"
#include "support/mch_training.hpp"
#include "support/options.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

#include <reshard/mch/row_moves.hpp>
#include <reshard/mch/validate.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using Clock = std::chrono::steady_clock;

struct Arguments {
    int to = 4;
    demo::MchTraining training;
    std::string policy = "LFU";
    std::string ids = "both";
    int tables = 1;
    std::string load;
    std::string save;
    bool reachability = false;
    bool no_times = false;
    bool forget_rows = false;
};
// ---- One change of ranks ------------------------------------------------------------------------------------------

struct Way {
    char const* name;
    MchOptions options;
    bool alone = false;  ///< every rank reads what it needs, and none talks to another
};
MchOptions options_of(MchMode mode, bool drop) {
    MchOptions options;
    options.mode = mode;
    options.drop_unreachable = drop;
    return options;
}

/// All ranks together; `seconds` of the slowest.
struct Sum {
    Index before = 0, after = 0, unreachable = 0, moves = 0, evicted = 0, left_out = 0;
    Index found = 0, wrong = 0, missed = 0;
    Index state_messages = 0, row_messages = 0, state_bytes = 0, row_bytes = 0;
    double seconds = 0;
};
struct Outcome {
    Sum sum;
    std::string faults;          ///< of the state afterwards
    std::vector<Index> evicted;  ///< rank after rank, lowest score first
    std::vector<Index> left_out;
};

/// A table in files, and what look-ups must say of it.
struct Saved {
    MchTable table;
    std::vector<MchRowsInfo> rows;
    std::vector<demo::KnownId> known;  ///< ascending by id
};
Saved describe(demo::MchShard const& shard, CommunicatorRef comm) {
    Saved saved{shard.table(), shard.rows_info(), demo::gather_lists(comm, demo::known_ids(shard))};
    std::sort(saved.known.begin(), saved.known.end(), [](auto const& a, auto const& b) { return a.id < b.id; });
    return saved;
}
std::vector<Saved> save(std::string const& folder, std::vector<demo::MchShard>& shards, CommunicatorRef comm) {
    std::vector<Saved> result;
    std::vector<MchTableToSave> savings;
    for (demo::MchShard& shard : shards) {
        result.push_back(describe(shard, comm));
        savings.push_back({shard.table(), shard.state(), shard.named_rows()});
    }
    save(folder, std::span<MchTableToSave const>(savings), comm);
    return result;
}
/// What a folder holds, read by as many ranks as saved it.
std::vector<Saved> read_saved(std::string const& folder, CommunicatorRef comm) {
    std::vector<demo::MchShard> shards;
    MchCheckpoint files = MchCheckpoint::open(folder, comm);
    reshard::agree_on_errors(comm, [&] {
        for (std::string const& name : files.names()) {
            MchTable const& table = files.table(name);
            demo::MchShard& shard = shards.emplace_back(table, files.rows(name), comm.rank());
            if (!table.slots.mesh().contains(comm.rank())) continue;
            files.load(name, table, comm.rank(), shard.state(), shard.named_rows());
        }
    });
    std::vector<Saved> result;
    for (demo::MchShard const& shard : shards) result.push_back(describe(shard, comm));
    return result;
}

/// The cut of a table on other ranks.
DynamicDistribution cut_for(MchTable const& table, int ranks) {
    if (table.layout == MchLayout::sorted) return mch_slots(Mesh{ranks}, table.size());
    return demo::whole_buckets(ranks, table.size(), table.buckets);
}

/// Loads tables on `ranks` ranks, carries them over, and asks for their ids.
Outcome change_ranks(Arguments const& arguments, std::string const& folder, std::vector<Saved> const& tables, int ranks,
                     Way const& way, CommunicatorRef comm) {
    std::vector<demo::MchShard> shards;
    std::vector<MchTransition> transitions;
    std::vector<MchChange> changes(tables.size());
    barrier(comm);
    Traffic const before = comm.traffic();
    auto start = Clock::now();
    MchCheckpoint files = MchCheckpoint::open(folder, comm);
    reshard::agree_on_errors(comm, [&] {
        for (Saved const& one : tables) {
            MchTable const current = one.table.on(cut_for(one.table, ranks));
            demo::MchShard& shard = shards.emplace_back(current, one.rows, comm.rank());
            transitions.push_back({one.table, current, shard.state()});
            if (!current.slots.mesh().contains(comm.rank())) continue;
            if (way.alone) {
                changes[shards.size() - 1] = files
                                                 .load_redistributed(one.table.name, current, comm.rank(),
                                                                     shard.state(), shard.named_rows(), way.options)
                                                 .change;
            } else {
                files.load(one.table.name, current, comm.rank(), shard.state(), shard.named_rows());
            }
        }
    });
    if (!way.alone) {
        start = Clock::now();  // of what comes after the load
        changes = redistribute(transitions, comm, way.options);
    }
    Traffic const between = comm.traffic();
    for (std::size_t t = 0; t < shards.size() && !arguments.forget_rows && !way.alone; ++t) {
        if (transitions[t].current.layout == MchLayout::buckets) continue;  // rows stay where they are
        apply_row_moves(changes[t].moves, transitions[t].current, shards[t].rows(), comm);
    }
    Traffic const after = comm.traffic();

    Outcome outcome;
    Sum own;
    own.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    own.state_messages = (between - before).messages_sent;
    own.row_messages = (after - between).messages_sent;
    own.state_bytes = (between - before).bytes_sent;
    own.row_bytes = (after - between).bytes_sent;
    std::vector<Index> evicted;
    std::vector<Index> left_out;
    for (std::size_t t = 0; t < shards.size(); ++t) {
        MchChange const& change = changes[t];
        own.before += change.live_before;
        own.after += change.live_after;
        own.unreachable += change.unreachable;
        own.moves += static_cast<Index>(change.moves.size());
        evicted.insert(evicted.end(), change.evicted.begin(), change.evicted.end());
        left_out.insert(left_out.end(), change.left_out.begin(), change.left_out.end());
        demo::Answers const answers = demo::look_up(tables[t].known, shards[t]);
        own.found += answers.found;
        own.wrong += answers.wrong;
        own.missed += static_cast<Index>(answers.missed.size());
        MchReport const report = validate(transitions[t].current, shards[t].state(), comm);
        bool const others = report.total() != report.total(MchFault::unreachable);  // those are counted, and shown
        if (others) outcome.faults = explain(report);
    }
    own.evicted = static_cast<Index>(evicted.size());
    own.left_out = static_cast<Index>(left_out.size());
    for (Sum const& one : demo::gather_records(comm, std::vector<Sum>{own})) {
        for (auto const member : {&Sum::before, &Sum::after, &Sum::unreachable, &Sum::moves, &Sum::evicted,
                                  &Sum::left_out, &Sum::found, &Sum::wrong, &Sum::missed, &Sum::state_messages,
                                  &Sum::row_messages, &Sum::state_bytes, &Sum::row_bytes}) {
            outcome.sum.*member += one.*member;
        }
        outcome.sum.seconds = detail::larger(outcome.sum.seconds, one.seconds);
    }
    outcome.evicted = demo::gather_lists(comm, evicted);
    outcome.left_out = demo::gather_lists(comm, left_out);
    return outcome;
}

/// What must hold whatever the way: every id is found with its row, or is one of those that the library has named.
void check(Arguments const& arguments, Way const& way, Outcome const& outcome) {
    Sum const& sum = outcome.sum;
    auto const wrong = [&](auto const&... parts) {
        errors::raise(ErrorCode::user, way.name, ": ", parts..., ". Fix: this is a bug, please report it.");
    };
    if (sum.wrong != 0 && arguments.forget_rows) {
        errors::raise(ErrorCode::user, way.name, ": ", sum.wrong,
                      " look-ups find a row that is not the id's, as "
                      "--forget-rows promised. Fix: leave it out.");
    }
    if (sum.wrong != 0) wrong(sum.wrong, " look-ups find a row that is not the id's");
    if (!outcome.faults.empty()) wrong("the state is not sound afterwards: ", outcome.faults);
    if (sum.found != sum.after - sum.unreachable) {
        wrong("look-ups find ", sum.found, " ids, but ", sum.after - sum.unreachable, " were said to be reachable");
    }
    if (sum.missed != sum.evicted + sum.left_out + sum.unreachable) {
        wrong("look-ups miss ", sum.missed, " ids, but ", sum.evicted, " were evicted, ", sum.left_out,
              " left out and ", sum.unreachable, " unreachable");
    }
}

// ---- Printing ----------------------------------------------------------------------------------------------------

void print_heading(Arguments const& arguments) {
    std::printf("  %-17s %13s %17s %6s %15s %11s %17s\n", "", "live ids", "look-ups", "rows", "lost ids", "messages",
                "bytes sent");
    std::printf("  %-17s %6s %6s %9s %7s %6s %7s %7s %5s %5s %8s %8s%s\n", "", "before", "after", "reachable",
                "own row", "moved", "evicted", "dropped", "ids", "rows", "ids", "rows",
                arguments.no_times ? "" : "     ms");
}
void print_outcome(Arguments const& arguments, char const* name, Sum const& sum) {
    auto const n = [](Index count) { return static_cast<long long>(count); };
    std::printf("  %-17s %6lld %6lld %9lld %7lld %6lld %7lld %7lld %5lld %5lld %8lld %8lld", name, n(sum.before),
                n(sum.after), n(sum.after - sum.unreachable), n(sum.found), n(sum.moves), n(sum.evicted),
                n(sum.left_out), n(sum.state_messages), n(sum.row_messages), n(sum.state_bytes), n(sum.row_bytes));
    if (!arguments.no_times) std::printf(" %6.1f", sum.seconds * 1e3);
    std::printf("\n");
}
void print_ids(char const* name, std::vector<Index> const& ids, char const* why) {
    if (ids.empty()) return;
    std::printf("    %s: %zu %s:", name, ids.size(), why);
    for (std::size_t i = 0; i < ids.size() && i < 3; ++i) std::printf(" %lld", static_cast<long long>(ids[i]));
    std::printf("%s\n", ids.size() > 3 ? " ..." : "");
}

// ---- The program -------------------------------------------------------------------------------------------------

void check_ranks(char const* flag, int needed, CommunicatorRef comm) {
    if (needed <= comm.size()) return;
    errors::raise(ErrorCode::mesh, flag, " needs ", needed, " ranks, but the launcher started ", comm.size(),
                  ". Fix: mpirun -n ", needed, " reshard_mch_world_size_change, or name a smaller world.");
}

Way const route{"route", options_of(MchMode::route, true)};
Way const keep{"slot_owner, keep", options_of(MchMode::slot_owner, false)};
Way const drop{"slot_owner, drop", options_of(MchMode::slot_owner, true)};
Way const read{"route, by reading", options_of(MchMode::route, true), true};
Way const bucket{"bucket", MchOptions{}};

/// Tables of one layout, all ways. Those that every rank carries over alone take the time of reading, too.
void show_ways(Arguments const& arguments, std::string const& folder, std::vector<Saved> const& tables,
               CommunicatorRef comm) {
    bool const sorted = tables[0].table.layout == MchLayout::sorted;
    std::vector<Way> const ways = sorted ? std::vector{route, read, keep, drop} : std::vector{bucket};
    if (comm.rank() == 0) {
        MchTable const& first = tables[0].table;
        std::string text = sorted ? errors::concat("MCH, ", name(first.eviction))
                                  : errors::concat("HashZCH, ", first.buckets, " buckets");
        text += errors::concat(", ", first.size(), " slots");
        if (tables.size() > 1) text += errors::concat(", and ", tables.size() - 1, " more tables in the same exchange");
        std::printf("  %s\n", text.c_str());
    }
    std::vector<Outcome> outcomes;
    for (Way const& way : ways) {
        outcomes.push_back(change_ranks(arguments, folder, tables, arguments.to, way, comm));
    }
    if (comm.rank() == 0) {
        for (std::size_t i = 0; i < ways.size(); ++i) print_outcome(arguments, ways[i].name, outcomes[i].sum);
        for (std::size_t i = 0; i < ways.size(); ++i) {
            print_ids(ways[i].name, outcomes[i].evicted, "evicted, no slot left on their rank, lowest score first");
            print_ids(ways[i].name, outcomes[i].left_out, "dropped, look-ups ask another rank");
        }
        std::fflush(stdout);
    }
    for (std::size_t i = 0; i < ways.size(); ++i) check(arguments, ways[i], outcomes[i]);
}

void show_folder(Arguments const& arguments, std::string const& folder, std::vector<Saved> const& tables,
                 std::string const& what, CommunicatorRef comm) {
    if (comm.rank() == 0) {
        std::printf("From %d to %d of %s: %s\n", arguments.training.from, arguments.to, demo::ranks_text(comm).c_str(),
                    what.c_str());
        print_heading(arguments);
    }
    for (MchLayout const layout : {MchLayout::sorted, MchLayout::buckets}) {
        std::vector<Saved> some;
        for (Saved const& one : tables)
            if (one.table.layout == layout) some.push_back(one);
        if (!some.empty()) show_ways(arguments, folder, some, comm);
    }
    barrier(comm);  // nobody's files go before all have read them
    if (comm.rank() == 0) std::printf("\n");
}

/// A folder of this run, or the one that is to be kept.
std::string make_folder(Arguments const& arguments, demo::TemporaryFolder& made, CommunicatorRef comm) {
    if (!arguments.save.empty()) return arguments.save;
    if (comm.rank() == 0) made.make(false);
    return demo::share_text(comm, made.path());
}

void train_and_show(Arguments const& arguments, demo::IdKind const& ids, CommunicatorRef comm) {
    demo::TemporaryFolder made;
    std::string const folder = make_folder(arguments, made, comm);
    demo::MchTraining training = arguments.training;
    training.ids = ids.kind;
    std::vector<demo::MchShard> shards;
    for (int number = 0; number < arguments.tables; ++number) {
        shards.push_back(demo::train_sorted(training, errors::concat("user.", number), comm.rank()));
        ++training.seed;  // tables of one model have other ids
    }
    shards.push_back(demo::train_buckets(training, "item", comm.rank()));
    auto const saved = save(folder, shards, comm);
    show_folder(arguments, folder, saved,
                errors::concat(ids.text, ", admitted over ", training.intervals, " evictions"), comm);
}

/// The share that stays reachable where slots know nothing of ids: an id's rank and its slot's rank are drawn
/// independently from what one saved rank becomes.
double expected_share(int from, int to) {
    double share = 0;
    for (int p = 0; p < from; ++p) {
        for (int q = 0; q < to; ++q) {
            int const begin = detail::larger(p * to, q * from);
            int const end = std::min((p + 1) * to, (q + 1) * from);
            double const part = detail::larger(end - begin, 0) / static_cast<double>(to);  // of p that becomes q
            share += part * part / from;
        }
    }
    return share;
}

void show_reachability(Arguments const& arguments, CommunicatorRef comm) {
    bool const speaks = comm.rank() == 0;
    if (speaks) {
        std::printf("The share of ids that look-ups find; %lld slots, %s, %s\n",
                    static_cast<long long>(arguments.training.slots), arguments.policy.c_str(), demo::id_kinds[0].text);
        std::printf("   ranks     route   slot_owner   expected of slot_owner\n");
    }
    for (auto const& [from, to] : {std::pair{1, 2}, {2, 4}, {1, 8}, {6, 4}, {4, 3}, {4, 2}}) {
        demo::TemporaryFolder made;
        std::string const folder = make_folder(arguments, made, comm);
        demo::MchTraining training = arguments.training;
        training.from = from;
        std::vector<demo::MchShard> shards{demo::train_sorted(training, "user", comm.rank())};
        auto const saved = save(folder, shards, comm);
        double shares[2] = {};
        for (int i = 0; i < 2; ++i) {
            Way const& way = i == 0 ? route : keep;
            Outcome const outcome = change_ranks(arguments, folder, saved, to, way, comm);
            check(arguments, way, outcome);
            shares[i] = 100.0 * static_cast<double>(outcome.sum.found) /
                        static_cast<double>(detail::larger<Index>(outcome.sum.before, 1));
        }
        if (speaks)
            std::printf("  %d -> %d   %5.1f %%      %5.1f %%      %5.1f %%\n", from, to, shares[0], shares[1],
                        100 * expected_share(from, to));
    }
}

void run(Arguments const& arguments, CommunicatorRef comm) {
    if (arguments.reachability) {
        check_ranks("--reachability", 8, comm);
        show_reachability(arguments, comm);
    } else {
        check_ranks(arguments.load.empty() ? "--from" : "--load", arguments.training.from, comm);
        check_ranks("--to", arguments.to, comm);
        if (!arguments.load.empty()) {
            show_folder(arguments, arguments.load, read_saved(arguments.load, comm), arguments.load, comm);
        } else {
            for (demo::IdKind const& one : demo::id_kinds) {
                bool const both = arguments.ids == "both" && one.kind != demo::torchrec::Kind::any;
                if (both || arguments.ids == one.name) train_and_show(arguments, one, comm);
            }
        }
    }
    if (comm.rank() == 0) {
        std::printf(
            "Every id that was said to be reachable was found, with the row it had; every other is accounted for.\n");
    }
}

/// Of all tables of a folder.
int ranks_that_saved(std::string const& folder) {
    MchCheckpoint const files = MchCheckpoint::open(folder);
    Index last = 0;
    for (std::string const& name : files.names())
        last = detail::larger(last, files.table(name).slots.mesh().last_rank());
    return static_cast<int>(last) + 1;
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    demo::Options const app("What becomes of managed-collision tables when the number of ranks changes.");
    app.add("--from", arguments.training.from, "ranks that trained the tables").within(1, 256).show_default();
    app.add("--to", arguments.to, "ranks that load them").within(1, 256).show_default();
    app.add("--slots", arguments.training.slots, "slots of a table").within(1, Index{1} << 26).show_default();
    app.add("--policy", arguments.policy, "which ids are evicted when a shard is full")
        .one_of(demo::policy_names)
        .show_default();
    app.add("--ids", arguments.ids,
            "uniform: of 63 bits; small: below 100000; signed: of 64 bits; both: uniform, then small")
        .one_of({"both", "uniform", "small", "signed"})
        .show_default();
    app.add("--intervals", arguments.training.intervals, "evictions in which ids are admitted")
        .within(1, 100000)
        .show_default();
    app.add("--fill", arguments.training.fill, "ids admitted, as a share of the slots")
        .within_reals(0.0, 10.0)
        .show_default();
    app.add("--tables", arguments.tables, "MCH tables that change together").within(1, 1000).show_default();
    app.add("--seed", arguments.training.seed, "of the ids").show_default();
    app.add("--reachability", arguments.reachability,
            "instead: how much stays reachable in six changes of up to 8 ranks");
    app.add("--no-times", arguments.no_times, "leave out what differs from run to run");
    app.add("--forget-rows", arguments.forget_rows, "do not move the rows, to see that the look-up notices");
    app.add("--load", arguments.load, "a checkpoint with tables, instead of training");
    app.add("--save", arguments.save,
            "where the trained tables are saved, and stay; of both kinds of ids the uniform ones")
        .excludes("--load")
        .excludes("--reachability");
    for (char const* other :
         {"--from", "--slots", "--policy", "--ids", "--intervals", "--fill", "--tables", "--seed", "--reachability"}) {
        app.at("--load").excludes(other);
    }
    int status = 0;
    if (!app.parse(argc, argv, status)) return status;
    try {
        if (!arguments.load.empty()) arguments.training.from = ranks_that_saved(arguments.load);
    } catch (Error const& error) {
        std::fprintf(stderr, "reshard_mch_world_size_change: --load: %s\n", error.what());
        return 1;
    }
    arguments.training.policy = demo::policy_of(arguments.policy);
    if (!arguments.save.empty() && arguments.ids == "both") arguments.ids = "uniform";
    int const ranks = arguments.reachability ? 8 : detail::larger(arguments.training.from, arguments.to);
    return demo::run_ranks("reshard_mch_world_size_change", 0, ranks,
                           [&](CommunicatorRef comm) { run(arguments, comm); });
}
