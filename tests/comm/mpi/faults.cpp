// SPDX-License-Identifier: Apache-2.0
// A job in which something goes wrong, on purpose: faults SCENARIO FOLDER [PLACE]. run_faults.py starts it and judges.
//
// Each rank writes what happens to it into a file of its own, line by line, because it may not live to tell:
//   rank N | outcome TYPE text | later TYPE text | note text | finalize | abort | returned CODE
#include <reshard/comm/collectives.hpp>
#include <reshard/comm/mpi.hpp>
#include <reshard/reshard.hpp>

#include "comm/forked.hpp"

#include <fcntl.h>         // open
#include <sys/resource.h>  // setrlimit
#include <sys/wait.h>      // waitpid
#include <unistd.h>        // _exit, fork, getpid, write

#include <chrono>
#include <csignal>  // raise, SIGKILL, SIGSTOP
#include <cstdio>   // fprintf, fopen
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace reshard;
using namespace std::chrono_literals;

constexpr int culprit = 2;
constexpr Index extent = 1024;
constexpr auto soon = 1500ms;  // a deadline

// ---- The report --------------------------------------------------------------------------------------------------

int report_file = -1;

void report(std::string line) {
    for (char& each : line)
        if (each == '\n') each = ' ';
    line += '\n';
    if (write(report_file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(99);
}

char const* type_of(ErrorCode code) {
    switch (code) {
        case ErrorCode::mesh: return "MeshError";
        case ErrorCode::mismatch: return "MismatchError";
        case ErrorCode::buffer: return "BufferError";
        case ErrorCode::dtype: return "DTypeError";
        case ErrorCode::peer_failed: return "PeerFailed";
        case ErrorCode::deadline: return "DeadlineExceeded";
        case ErrorCode::transport: return "TransportError";
        case ErrorCode::out_of_memory: return "OutOfMemory";
        default: return "Error";
    }
}

/// Runs `body` and writes down what it throws, with `word` in front; whether it threw.
template <class Body>
bool reported(char const* word, Body&& body) {
    try {
        body();
    } catch (Error const& error) {
        report(errors::concat(word, " ", type_of(error.code()), " ", error.message()));
        return true;
    } catch (std::exception const& error) {
        report(errors::concat(word, " exception ", error.what()));
        return true;
    }
    report(errors::concat(word, " none"));
    return false;
}

// ---- What the ranks are busy with --------------------------------------------------------------------------------

/// Where the memory lies that ranks exchange, and so how it travels.
struct Place {
    MpiPath path = MpiPath::automatic;
    bool shared = false;     ///< memory of MpiCommunicator::allocate()
    int ranks_per_node = 0;  ///< 1: no rank shares memory with another, as on a cluster
};
Place place_of(std::string const& name) {
    if (name == "messages") return {MpiPath::messages, false, 0};
    if (name == "shared") return {MpiPath::automatic, true, 0};
    if (name == "apart") return {MpiPath::messages, false, 1};
    if (name == "default") return {};
    std::fprintf(stderr, "faults: no place is called '%s'\n", name.c_str());
    std::exit(2);
}

/// Rows to columns and what it is made of, alive until the rank ends.
class Work {
public:
    Work(MpiCommunicator& comm, Place const& place)
        : plan_(plan(distribution<Shard<0>>(Mesh{comm.size()}, Shape{extent, extent}),
                     distribution<Shard<1>>(Mesh{comm.size()}, Shape{extent, extent}))) {
        Index const elements = extent * extent / comm.size();
        if (place.shared) {
            shared_.push_back(comm.allocate<double>(elements));
            shared_.push_back(comm.allocate<double>(elements));
            data_[0] = shared_[0].data();
            data_[1] = shared_[1].data();
        } else {
            for (int i = 0; i < 2; ++i) {
                ordinary_[i].resize(static_cast<std::size_t>(elements));
                data_[i] = ordinary_[i].data();
            }
        }
        for (Index i = 0; i < elements; ++i) data_[0][i] = value_of(comm.rank(), i);
        source_ = {data_[0], plan_.from().local_shape(comm.rank())};
        destination_ = {data_[1], plan_.to().local_shape(comm.rank())};
    }

    [[nodiscard]] Plan<> const& the_plan() const noexcept { return plan_; }
    [[nodiscard]] TensorView<double> source() const noexcept { return source_; }
    [[nodiscard]] TensorView<double> destination() const noexcept { return destination_; }
    [[nodiscard]] auto prepare(MpiCommunicator& comm) const {
        return reshard::prepare(plan_, comm, ConstDynamicView(source_), DynamicView(destination_));
    }
    /// Whatever happens to destinations, nobody may write to a source.
    void check_source(int rank) const {
        bool untouched = true;
        for (Index i = 0; i < source_.size(); ++i) untouched = untouched && data_[0][i] == value_of(rank, i);
        report(untouched ? "note source untouched" : "note SOURCE CHANGED");
    }

private:
    [[nodiscard]] static double value_of(int rank, Index i) { return static_cast<double>(rank * extent * extent + i); }

    Plan<> plan_;
    std::vector<MpiBuffer<double>> shared_;
    std::vector<double> ordinary_[2];
    double* data_[2] = {};
    TensorView<double> source_;
    TensorView<double> destination_;
};

/// Exchanges until something happens; `strike` is called in the middle of the fourth one.
template <class Strike>
void exchange_until(MpiCommunicator& comm, Place const& place, Strike&& strike) {
    Work const work(comm, place);
    auto job = work.prepare(comm);
    auto const run = [&] {
        for (int round = 0; round < 1000; ++round) {
            auto request = job.start();
            if (round == 3) strike();
            request.wait();
        }
    };
    try {
        run();
    } catch (Error const&) {
        work.check_source(comm.rank());
        reported("later", [&] { barrier(comm); });  // a failed communicator stays failed
        throw;
    }
}

// ---- The scenarios -----------------------------------------------------------------------------------------------

void healthy(MpiCommunicator& comm, Place const& place) {
    Work const work(comm, place);
    auto job = work.prepare(comm);
    for (int round = 0; round < 10; ++round) job.run();
}

/// A child of a rank is told that it is none, and ends, and its copy of a communicator with it, as exit() ends one of
/// static lifetime; what it throws is its own.
void forks(MpiCommunicator& comm, Place const& place) {
    std::optional<MpiCommunicator> kept = comm.split(0, 0);
    std::optional<Work> work(std::in_place, *kept, place);
    auto job = work->prepare(*kept);
    auto request = job.start();
    barrier(comm);
    if (comm.rank() == culprit) {
        pid_t const child = fork();
        if (child == 0) {
            bool const refused = test::refuses_a_child(*kept) && test::refuses([&] { request.wait(); }) &&
                                 test::refuses([&] { job.run(); }) &&
                                 test::refuses([&] { static_cast<void>(kept->allocate<int>(1)); });
            kept->abort(ErrorCode::user, "nobody hears this");
            kept.reset();
            report_file = open("/dev/null", O_WRONLY);
            if (refused) throw std::runtime_error("the child has had enough");
            _exit(7);
        }
        int status = -1;
        waitpid(child, &status, 0);
        if (WEXITSTATUS(status) != 1) throw std::runtime_error("the child was taken for a rank");
        std::this_thread::sleep_for(300ms);  // the others wait meanwhile, and look who has left
    }
    request.wait();
    barrier(*kept);
    healthy(*kept, place);
}

void throws(MpiCommunicator& comm, Place const& place) {
    exchange_until(comm, place, [&] {
        if (comm.rank() == culprit) throw std::runtime_error("the disk is full");
    });
}
void throws_in_agree(MpiCommunicator& comm, Place const& /*place*/) {
    barrier(comm);
    if (comm.rank() == culprit) errors::raise(ErrorCode::io, "reshard: no such file. Fix: look for it.");
    barrier(comm);
}
/// What an exception has to destroy before anybody catches it may take its time.
struct SlowToEnd {
    ~SlowToEnd() {
        if (std::uncaught_exceptions() > 0) std::this_thread::sleep_for(300ms);
    }
};
/// Everybody else waits somewhere else in the family, also in communicators that the exception destroys on its way.
void throws_in_child(MpiCommunicator& comm, Place const& /*place*/) {
    SlowToEnd const slow;
    MpiCommunicator child = comm.split(comm.rank() % 2, 0);
    MpiCommunicator grandchild = child.split(0, 0);
    barrier(comm);
    if (comm.rank() == culprit) throw std::runtime_error("the disk is full");
    if (comm.rank() == 0) barrier(grandchild);
    if (comm.rank() == 1) barrier(child);
    barrier(comm);
}

void wrong_shape(MpiCommunicator& comm, Place const& place) {
    Work const work(comm, place);
    TensorView<double> destination = work.destination();
    if (comm.rank() == culprit) destination = {destination.data(), Shape{extent, 7}};
    redistribute(work.the_plan(), comm, ConstDynamicView(work.source()), DynamicView(destination));
}
void other_plan(MpiCommunicator& comm, Place const& place) {
    Work const work(comm, place);
    if (comm.rank() == culprit) {
        // The same local shapes, another plan: only the ranks together can find out.
        auto const there = work.the_plan();
        Plan<> const back = plan(there.to(), there.from());
        redistribute(back, comm, ConstDynamicView(TensorView<double>(work.source().data(), there.to().local_shape(2))),
                     DynamicView(TensorView<double>(work.destination().data(), there.from().local_shape(2))));
    }
    redistribute(work.the_plan(), comm, ConstDynamicView(work.source()), DynamicView(work.destination()));
}

/// Address space of this process, from Linux.
Index mapped_bytes() {
    long pages = 0;
    std::FILE* const file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1) _exit(98);
    std::fclose(file);
    return Index{pages} * sysconf(_SC_PAGESIZE);
}
void out_of_memory(MpiCommunicator& comm, Place const& /*place*/) {
    constexpr Index elements = Index{24} << 20;
    Plan<> const reduce = plan(distribution(Mesh{comm.size()}, Shape{elements}, "P+"),
                               distribution(Mesh{comm.size()}, Shape{elements}, "S0"));
    std::vector<float> source(static_cast<std::size_t>(elements), 1.0F);
    std::vector<float> destination(static_cast<std::size_t>(elements / comm.size()), -7.0F);
    auto const run = [&] {
        redistribute(reduce, comm, ConstDynamicView(TensorView<float>(source.data(), Shape{elements})),
                     DynamicView(TensorView<float>(destination.data(), Shape{elements / comm.size()})),
                     PrepareOptions{.fold_elements = comm.size() * elements});  // all at once: a large workspace
    };
    rlimit before{};
    getrlimit(RLIMIT_AS, &before);
    if (comm.rank() == culprit) {
        // Less than the workspace, and more than anybody else needs meanwhile.
        rlimit const tight{static_cast<rlim_t>(mapped_bytes() + elements * 2), before.rlim_max};
        setrlimit(RLIMIT_AS, &tight);
    }
    try {
        run();
    } catch (...) {
        setrlimit(RLIMIT_AS, &before);
        report(destination == std::vector<float>(destination.size(), -7.0F) ? "note destination untouched"
                                                                            : "note DESTINATION CHANGED");
        run();  // nothing has been lost but the call
        report(destination == std::vector<float>(destination.size(), 4.0F) ? "note second try worked"
                                                                           : "note SECOND TRY WRONG");
        MPI_Barrier(MPI_COMM_WORLD);  // all are out of that call: who still is on the way may hear of the next failure
        throw;
    }
}

void payloads_differ(MpiCommunicator& comm, Place const& place) {
    constexpr Index bytes = 4096;
    std::vector<std::byte> ordinary(2 * bytes);
    auto shared = comm.allocate<std::byte>(2 * bytes);
    std::byte* const memory = place.shared ? shared.data() : ordinary.data();
    auto const box = [](Index size) {
        transport::StridedBox result;
        result.dims.push_back({size, 1});
        return result;
    };
    barrier(comm);
    int const next = (comm.rank() + 1) % comm.size();
    int const previous = (comm.rank() + comm.size() - 1) % comm.size();
    // Rank 1 sends less than rank 2 expects.
    transport::Send const send{next, memory, box(comm.rank() == 1 ? bytes - 8 : bytes)};
    transport::Receive const receive{previous, memory + bytes, box(bytes)};
    for (;;) {
        comm.exchange({&send, 1}, {&receive, 1}).wait();
        barrier(comm);
    }
}
void other_call(MpiCommunicator& comm, Place const& place) {
    Work const work(comm, place);
    auto job = work.prepare(comm);
    if (comm.rank() == culprit) {
        barrier(comm);
    } else {
        job.run();
    }
    barrier(comm);
}

void exits(MpiCommunicator& comm, Place const& place) {
    exchange_until(comm, place, [&] {
        if (comm.rank() == culprit) _exit(3);
    });
}
void killed(MpiCommunicator& comm, Place const& place) {
    exchange_until(comm, place, [&] {
        if (comm.rank() == culprit) std::raise(SIGKILL);
    });
}
void killed_before_agree(MpiCommunicator& comm, Place const& /*place*/) {
    barrier(comm);
    if (comm.rank() == culprit) std::raise(SIGKILL);
    barrier(comm);
}
/// When the others have nothing left to do but to end.
void killed_at_the_end(MpiCommunicator& comm, Place const& /*place*/) {
    barrier(comm);
    if (comm.rank() == culprit) std::raise(SIGKILL);
}
/// The others keep what they were told to themselves.
void killed_and_hushed(MpiCommunicator& comm, Place const& /*place*/) {
    barrier(comm);
    if (comm.rank() == culprit) std::raise(SIGKILL);
    try {
        barrier(comm);
    } catch (PeerFailed const&) {
        report("note hushed");
    }
}
/// Ends this process a little later, wherever it is by then. Rank 3 comes later still, so that is inside a call.
void die_inside_the_next_call(MpiCommunicator const& comm) {
    if (comm.rank() == 3) std::this_thread::sleep_for(600ms);
    if (comm.rank() == culprit) {
        std::thread([] {
            std::this_thread::sleep_for(200ms);
            std::raise(SIGKILL);
        }).detach();
    }
}
void killed_in_agree(MpiCommunicator& comm, Place const& /*place*/) {
    barrier(comm);
    die_inside_the_next_call(comm);
    barrier(comm);  // goes well: all have come, and on one node that is all it takes
    barrier(comm);
}
/// The same where it matters what everybody has to say, which takes a second round.
void fail_on_the_late_one(MpiCommunicator& comm) {
    agree_on_errors(comm, [&] {
        if (comm.rank() == 3) errors::raise(ErrorCode::io, "reshard: no such file. Fix: look for it.");
    });
}
void killed_in_verdict(MpiCommunicator& comm, Place const& /*place*/) {
    barrier(comm);
    die_inside_the_next_call(comm);
    fail_on_the_late_one(comm);
}
void killed_in_exchange(MpiCommunicator& comm, Place const& place) {
    Work const work(comm, place);
    auto job = work.prepare(comm);
    die_inside_the_next_call(comm);
    job.run();
    barrier(comm);  // whoever is done with the dead one
}
/// Copies for longer than the deadline, from another rank or from itself; `then` comes in the middle of it.
void copy_slowly(MpiCommunicator& comm, int from, void (*then)()) {
    static void (*middle)() = nullptr;
    middle = then;
    float const sent = 3;
    double got = 0;
    transport::StridedBox box;
    box.element_bytes = 4;
    transport::Send const send{
        culprit, reinterpret_cast<std::byte const*>(&sent), box, {DType::f32, DType::f32, 1.0, transport::convert}};
    box.element_bytes = 8;
    transport::Receive receive{
        from, reinterpret_cast<std::byte*>(&got), box, {DType::f64, DType::f32, 1.0, transport::convert}};
    receive.conversion.convert = [](auto... how) noexcept {
        middle();
        transport::convert(how...);
    };
    barrier(comm);
    auto request = comm.exchange({&send, comm.rank() == from ? 1U : 0U}, {&receive, comm.rank() == culprit ? 1U : 0U});
    request.wait();
    if (comm.rank() == culprit && got != 3.0) throw std::runtime_error("it has got something else");
    barrier(comm);
}
void slow_copy(MpiCommunicator& comm, Place const& /*place*/) {
    for (int from : {0, culprit}) copy_slowly(comm, from, [] { std::this_thread::sleep_for(2 * soon); });
}
void killed_in_copy(MpiCommunicator& comm, Place const& /*place*/) {
    copy_slowly(comm, 0, [] { static_cast<void>(std::raise(SIGKILL)); });
}
void stopped_in_copy(MpiCommunicator& comm, Place const& /*place*/) {
    copy_slowly(comm, 0, [] { static_cast<void>(std::raise(SIGSTOP)); });
}
/// Stops after it has entered: alive, and the only one who does not move.
void stopped_in_agree(MpiCommunicator& comm, Place const& /*place*/) {
    barrier(comm);
    if (comm.rank() == 3) std::this_thread::sleep_for(600ms);
    if (comm.rank() == culprit) {
        std::thread([] {
            std::this_thread::sleep_for(200ms);
            std::raise(SIGSTOP);
        }).detach();
    }
    fail_on_the_late_one(comm);
}
void stopped(MpiCommunicator& comm, Place const& place) {
    exchange_until(comm, place, [&] {
        if (comm.rank() == culprit) std::raise(SIGSTOP);
    });
}
/// Rank 3 waits for 0, which waits for 1, which waits for the culprit. None of these is late but the last.
void stopped_behind_others(MpiCommunicator& comm, Place const& /*place*/) {
    std::byte memory[2][8] = {};
    transport::StridedBox box;
    box.element_bytes = 8;
    barrier(comm);
    if (comm.rank() == culprit) std::raise(SIGSTOP);
    for (int from = culprit; from >= 0; --from) {
        int const to = (from + 3) % comm.size();
        transport::Send const send{to, memory[0], box};
        transport::Receive const receive{from, memory[1], box};
        comm.exchange({&send, comm.rank() == from ? 1U : 0U}, {&receive, comm.rank() == to ? 1U : 0U}).wait();
    }
}
/// Stops in the middle of a message, and goes on when its receiver has given up: MPI may write to memory then that it
/// was told of before, or read it. Whoever owns that memory must know; `then` is what rank 0 does with it.
template <class Then>
void stop_in_message(MpiCommunicator& comm, int from, int to, Then&& then) {
    constexpr Index bytes = 1 << 20;
    int pid = getpid();
    MPI_Bcast(&pid, 1, MPI_INT, culprit, MPI_COMM_WORLD);
    transport::StridedBox box;
    box.dims.push_back({bytes, 1});
    std::vector<std::byte> memory(bytes, std::byte{1});
    transport::Send const send{to, memory.data(), box};
    transport::Receive const receive{from, memory.data(), box};
    try {
        auto request = comm.exchange({&send, comm.rank() == from ? 1U : 0U}, {&receive, comm.rank() == to ? 1U : 0U});
        if (comm.rank() == culprit) std::raise(SIGSTOP);
        request.wait();
        barrier(comm);
    } catch (Error const& error) {
        if (comm.rank() == 0) {
            memory.assign(memory.size(), std::byte{2});
            kill(pid, SIGCONT);
            then(memory, error.message());
        } else {
            std::this_thread::sleep_for(1s);
            report("note memory was as it was said to be");
        }
        throw;
    }
}
void stopped_in_message(MpiCommunicator& comm, Place const& /*place*/) {
    stop_in_message(comm, culprit, 0, [](std::vector<std::byte> const& memory, std::string_view message) {
        auto const end = std::chrono::steady_clock::now() + 500ms;
        while (std::chrono::steady_clock::now() < end) {
            int waiting = 0;
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &waiting, MPI_STATUS_IGNORE);
        }
        bool const written = memory != std::vector<std::byte>(memory.size(), std::byte{2});
        bool const said = message.find("may still write") != std::string_view::npos;
        report(written && !said ? "note WRITTEN BEHIND ITS BACK" : "note memory was as it was said to be");
        report(errors::concat("note written ", written ? 1 : 0, ", said ", said ? 1 : 0));
    });
}
/// The other way round, where the program ends and frees that memory on the way.
void stopped_and_freed(MpiCommunicator& comm, Place const& /*place*/) {
    stop_in_message(comm, 0, culprit, [](std::vector<std::byte> const&, std::string_view) {});
}
/// Comes so long after the others.
void comes_after(MpiCommunicator& comm, Place const& place, std::chrono::milliseconds time) {
    Work const work(comm, place);
    auto job = work.prepare(comm);
    if (comm.rank() == culprit) std::this_thread::sleep_for(time);
    try {
        job.run();
    } catch (...) {
        work.check_source(comm.rank());
        throw;
    }
}
/// Never; until much later, when all is over.
void absent(MpiCommunicator& comm, Place const& place) { comes_after(comm, place, 5s); }
/// When the others have given it up, half a second after their deadline, and the memory that they sent from, but are
/// still there.
void late(MpiCommunicator& comm, Place const& place) { comes_after(comm, place, soon + 1s); }
void absent_from_prepare(MpiCommunicator& comm, Place const& place) {
    Work const work(comm, place);
    if (comm.rank() == culprit) std::this_thread::sleep_for(5s);
    work.prepare(comm).run();
}
void absent_from_split(MpiCommunicator& comm, Place const& /*place*/) {
    barrier(comm);
    if (comm.rank() == culprit) std::this_thread::sleep_for(5s);
    static_cast<void>(comm.split(0, 0));
}
/// Rank 0 waits for it, while the other two exchange, and so copy, all the time.
void absent_while_others_copy(MpiCommunicator& comm, Place const& /*place*/) {
    Index const side = 1024;
    auto const move =
        plan(parse("(2,2):(S0,S1)", Shape{2 * side, 2 * side}), parse("(2,2):(R,S1)", Shape{2 * side, 2 * side}));
    std::vector<float> const part(static_cast<std::size_t>(side * side));
    std::vector<float> column(2 * part.size());
    auto job = prepare(move, comm, TensorView<float const>(part.data(), Shape{side, side}),
                       TensorView<float>(column.data(), Shape{2 * side, side}));
    auto const start = std::chrono::steady_clock::now();
    if (comm.rank() == culprit) std::this_thread::sleep_for(5s);
    bool const goes_on = comm.rank() == 1 || comm.rank() == 3;
    do {
        job.run();
    } while (goes_on && std::chrono::steady_clock::now() - start < 6s);
}
/// Rank 1 waits for it in another communicator, and has not come to this one either.
void absent_from_child(MpiCommunicator& comm, Place const& /*place*/) {
    bool const together = comm.rank() == 1 || comm.rank() == culprit;
    MpiCommunicator child = comm.split(together ? 1 : 0, 0);
    barrier(comm);
    if (comm.rank() == culprit) std::this_thread::sleep_for(5s);
    if (comm.rank() == 1) std::this_thread::sleep_for(soon / 3);  // the others give up first
    barrier(together ? child : comm);
    barrier(comm);
}
void returns_early(MpiCommunicator& comm, Place const& /*place*/) {
    barrier(comm);
    if (comm.rank() == culprit) return;
    barrier(comm);
}

/// A request that nobody will ever complete, dropped once its communicator is known to have failed.
void dropped(MpiCommunicator& comm, Place const& place) {
    Work const work(comm, place);
    MpiCommunicator child = comm.split(0, 0);
    auto job = work.prepare(comm);
    if (comm.rank() == culprit) {
        barrier(child);
        child.abort(ErrorCode::user, "enough");
        // And never comes to the exchange. The others wait two seconds for it to tell the user.
        std::this_thread::sleep_for(500ms);
        barrier(comm);
    }
    {
        auto request = job.start();
        reported("later", [&] {
            for (;;) barrier(child);  // once, or until the news is here
        });
    }
    report("note dropped");
    barrier(comm);
}
/// The same where only the deadline ends the wait: the destructor waits for it, and the next one not at all.
void dropped_overdue(MpiCommunicator& comm, Place const& place) {
    Work const work(comm, place);
    auto job = work.prepare(comm);
    if (comm.rank() == culprit) std::this_thread::sleep_for(5s);
    { auto request = job.start(); }
    report("note dropped");
    barrier(comm);
}

/// One that has nothing left to do, and waits for the others to end, is told to stop.
bool enough = false;
void interrupted_at_the_end(MpiCommunicator& comm, Place const& /*place*/) {
    barrier(comm);
    enough = comm.rank() == culprit;
    if (enough) return;
    std::this_thread::sleep_for(2s);  // busy elsewhere
    barrier(comm);
}

struct Scenario {
    char const* name;
    void (*run)(MpiCommunicator&, Place const&);
    std::chrono::milliseconds deadline;
    std::chrono::milliseconds deadline_apart = deadline;
};
// Where the deadline is what ends the waiting it is short; where it is not it is far beyond the driver's patience.
constexpr auto never = std::chrono::milliseconds(1h);
constexpr Scenario scenarios[] = {
    {"healthy", healthy, never},
    {"fork", forks, never},
    {"throw", throws, never},
    {"throw_in_agree", throws_in_agree, never},
    {"throw_in_child", throws_in_child, never},
    {"wrong_shape", wrong_shape, never},
    {"other_plan", other_plan, never},
    {"out_of_memory", out_of_memory, never},
    {"payloads_differ", payloads_differ, 2s},
    {"other_call", other_call, 2s},
    {"exit", exits, never, 2s},
    {"kill", killed, never, 2s},
    {"kill_before_agree", killed_before_agree, never, 2s},
    {"kill_at_the_end", killed_at_the_end, never},
    {"kill_and_hush", killed_and_hushed, never},
    {"kill_in_agree", killed_in_agree, never, 2s},
    {"kill_in_verdict", killed_in_verdict, never},
    {"kill_in_exchange", killed_in_exchange, never, 2s},
    {"stop", stopped, soon},
    {"slow_copy", slow_copy, soon},
    {"kill_in_copy", killed_in_copy, never},
    {"stop_in_copy", stopped_in_copy, soon},
    {"stop_in_agree", stopped_in_agree, soon},
    {"stop_behind_others", stopped_behind_others, soon},
    {"stop_in_message", stopped_in_message, soon},
    {"stop_and_free", stopped_and_freed, soon},
    {"late", late, soon},
    {"absent", absent, soon},
    {"absent_from_prepare", absent_from_prepare, soon},
    {"absent_from_split", absent_from_split, soon},
    {"absent_from_child", absent_from_child, soon},
    {"absent_while_others_copy", absent_while_others_copy, soon},
    {"return_early", returns_early, never, 2s},
    {"dropped", dropped, never},
    {"dropped_overdue", dropped_overdue, soon},
    {"interrupt_at_the_end", interrupted_at_the_end, never},
};

// ---- Bad input: a program that calls MPI itself ------------------------------------------------------------------

void try_communicator(char const* what, MPI_Comm comm) {
    reported(errors::concat("bad ", what).c_str(), [&] { MpiCommunicator const made(comm); });
}
int bad_input(int argc, char** argv) {
    try_communicator("before_init", MPI_COMM_WORLD);
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    try_communicator("null", MPI_COMM_NULL);
    if (level < MPI_THREAD_SERIALIZED) {
        std::thread([] { try_communicator("other_thread", MPI_COMM_WORLD); }).join();
    } else {
        report("bad other_thread skipped");  // this MPI gives more than it is asked for
    }
    {
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        report(errors::concat("rank ", rank));
        MPI_Comm half = MPI_COMM_NULL;
        MPI_Comm inter = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &inter);
        try_communicator("inter", inter);
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);

        MpiCommunicator comm{MPI_COMM_WORLD};
        std::vector<float> memory(64);
        auto const moved = [&](char const* what, DynamicMesh const& mesh) {
            Plan<> const gather = plan(distribution(mesh, Shape{16}, "S0"), distribution(mesh, Shape{16}, "R"));
            reported(what, [&] {
                redistribute(gather, comm, ConstDynamicView(TensorView<float>(memory.data(), Shape{2})),
                             DynamicView(TensorView<float>(memory.data() + 16, Shape{16})));
            });
        };
        moved("bad too_few_ranks", Mesh{8});
        moved("bad other_world", Mesh{4}.on(first_rank(4)));
        reported("bad cast", [&] {  // scaling integers would round them
            Plan<> const keep = plan(distribution(Mesh{4}, Shape{16}, "S0"), distribution(Mesh{4}, Shape{16}, "R"));
            std::vector<std::int32_t> integers(4);
            static_cast<void>(prepare(keep, comm, ConstDynamicView(TensorView<std::int32_t>(integers.data(), Shape{4})),
                                      DynamicView(TensorView<float>(memory.data(), Shape{16})), Casting(0.5)));
        });
        reported("bad split_axis", [&] { static_cast<void>(comm.split(Mesh{2, 2}, 2)); });
        reported("bad split_mesh", [&] { static_cast<void>(comm.split(Mesh{5}, 0)); });
        std::byte byte{};
        transport::StridedBox one;
        transport::Send const to_nobody{4, &byte, one};
        reported("bad peer", [&] {
            MpiCommunicator child = comm.split(0, 0);
            barrier(child);
            child.exchange({&to_nobody, 1}, {}).wait();
        });
    }
    MpiCommunicator kept{MPI_COMM_WORLD};
    PMPI_Finalize();
    try_communicator("after_finalize", MPI_COMM_WORLD);
    reported("bad used_after_finalize", [&] { barrier(kept); });
    reported("bad split_after_finalize", [&] { static_cast<void>(kept.split(0, 0)); });
    return run_on_mpi([](MpiCommunicator&) { report("bad run_after_finalize is run"); }) == 1 ? 0 : 1;
}

}  // namespace

// What MPI is asked for at the end, seen through its profiling interface.
extern "C" int MPI_Finalize() {
    report("finalize");
    return PMPI_Finalize();
}
extern "C" int MPI_Abort(MPI_Comm comm, int code) {
    report("abort");
    return PMPI_Abort(comm, code);
}

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: faults SCENARIO FOLDER [default|messages|shared|apart]\n");
        return 2;
    }
    std::string const name = argv[1];
    report_file = open(errors::concat(argv[2], "/", getpid(), ".report").c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (report_file < 0) return 2;
    if (name == "bad_input") return bad_input(argc, argv);
    Place const place = place_of(argc > 3 ? argv[3] : "default");
    for (Scenario const& scenario : scenarios) {
        if (name != scenario.name) continue;
        MpiOptions options;
        options.deadline = place.ranks_per_node == 1 ? scenario.deadline_apart : scenario.deadline;
        options.path = place.path;
        options.interrupted = [] { return enough; };
        options.ranks_per_node = place.ranks_per_node;
        int const code = run_on_mpi(options, [&](MpiCommunicator& comm) {
            report(errors::concat("rank ", comm.rank()));
            std::exception_ptr thrown;
            reported("outcome", [&] {
                try {
                    scenario.run(comm, place);
                } catch (...) {
                    thrown = std::current_exception();
                    throw;
                }
            });
            if (thrown) std::rethrow_exception(thrown);
        });
        report(errors::concat("returned ", code));
        return code;
    }
    std::fprintf(stderr, "faults: no scenario is called '%s'\n", name.c_str());
    return 2;
}
