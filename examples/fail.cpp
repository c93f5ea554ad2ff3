// SPDX-License-Identifier: Apache-2.0
// Rows become columns again and again, until one rank fails on purpose: what the others see, and what is left of their
// memory and of the communicator. docs/failures.md shows what it prints.
//
//     reshard_fail throw                          on threads; also: return, wrong-shape, other-plan, late
//     mpirun -n 4 reshard_fail kill --rank 2      on processes, which can also: exit, kill, stop
#include "support/options.hpp"
#include "support/ranks.hpp"

#include <reshard/comm/abort_on_failure.hpp>
#include <reshard/reshard.hpp>

#include <unistd.h>  // _exit

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

namespace {
using namespace reshard;

struct Arguments {
    std::string what;
    int culprit = 1;
    int ranks = 0;
    int deadline = 1000;  ///< milliseconds
    bool abort = false;
    bool apart = false;
};

constexpr Index extent = 512;

std::string text_of(Error const& error) {
    char const* type = "Error";
    switch (error.code()) {
        case ErrorCode::mesh: type = "MeshError"; break;
        case ErrorCode::mismatch: type = "MismatchError"; break;
        case ErrorCode::buffer: type = "BufferError"; break;
        case ErrorCode::peer_failed: type = "PeerFailed"; break;
        case ErrorCode::deadline: type = "DeadlineExceeded"; break;
        case ErrorCode::transport: type = "TransportError"; break;
        default: break;
    }
    return errors::concat(type, ": ", error.message());
}

/// In one piece, so that what ranks say does not mix.
void say(int rank, std::string const& text) {
    std::string const line = errors::concat("rank ", rank, ": ", text, "\n");
    static_cast<void>(std::fwrite(line.data(), 1, line.size(), stdout));
    static_cast<void>(std::fflush(stdout));
}

/// What the culprit does in the middle of an exchange.
void fail(Arguments const& arguments) {
    if (arguments.what == "throw") throw std::runtime_error("the disk is full");
    if (arguments.what == "exit") _exit(3);
    if (arguments.what == "kill") std::raise(SIGKILL);
    if (arguments.what == "stop") std::raise(SIGSTOP);
    if (arguments.what == "late") std::this_thread::sleep_for(std::chrono::milliseconds(arguments.deadline) * 3);
}

float value_at(int rank, Index i) { return static_cast<float>(rank * 1000 + i % 1000); }

/// Exchanges until something happens, unless `turns` are over before. The culprit fails in the fourth exchange.
void exchange(Arguments const& arguments, CommunicatorRef comm, Plan<> const& move, Tensor<float>& source,
              Tensor<float>& destination, int turns) {
    auto job = prepare(move, comm, source.view(), destination.view());
    for (int turn = 0; turn < turns; ++turn) {
        auto request = job.start();
        if (turn == 3 && comm.rank() == arguments.culprit) {
            if (arguments.what == "return") return;
            fail(arguments);
        }
        request.wait();
    }
}

/// What one rank lives to tell.
void tell(Arguments const& arguments, CommunicatorRef comm) {
    int const rank = comm.rank();
    bool const culprit = rank == arguments.culprit;
    auto const rows = distribution(Mesh{comm.size()}, Shape{extent, extent}, "S0");
    auto const columns = distribution(Mesh{comm.size()}, Shape{extent, extent}, "S1");
    Plan<> const right = plan(rows, columns);
    Plan<> const other = plan(rows, rows);
    Tensor<float> source(rows.local_shape(rank));
    for (Index i = 0; i < source.size(); ++i) source.data()[i] = value_at(rank, i);
    Tensor<float> destination(columns.local_shape(rank));
    Tensor<float> wrong(arguments.what == "other-plan" ? rows.local_shape(rank) : DynamicShape(Shape{extent, 7}));

    bool const errs = culprit && (arguments.what == "other-plan" || arguments.what == "wrong-shape");
    try {
        exchange(arguments, comm, errs && arguments.what == "other-plan" ? other : right, source,
                 errs ? wrong : destination, 1000);
    } catch (Error const& error) {
        say(rank, text_of(error));
        Index changed = 0;
        for (Index i = 0; i < source.size(); ++i) changed += source.data()[i] != value_at(rank, i) ? 1 : 0;
        say(rank, changed == 0 ? "the source is untouched" : "THE SOURCE HAS CHANGED");
        try {
            exchange(arguments, comm, right, source, destination, 1);
            return say(rank, "a second try works");
        } catch (Error const& later) {
            say(rank, errors::concat("a second try: ", text_of(later)));
        }
        throw;
    }
}

void run(Arguments const& arguments, CommunicatorRef comm) {
    if (arguments.culprit >= comm.size()) {
        errors::raise(ErrorCode::mesh, "--rank ", arguments.culprit, " of ", comm.size(),
                      " ranks. Fix: name one of them, or start more: --ranks ", arguments.culprit + 1,
                      ", or mpirun -n ", arguments.culprit + 1, " reshard_fail.");
    }
    bool const of_processes = arguments.what == "exit" || arguments.what == "kill" || arguments.what == "stop";
    if (of_processes && comm.name() == "threads") {
        errors::raise(ErrorCode::user, "'", arguments.what,
                      "' is the end of a process, and ranks that are threads have only one. Fix: "
                      "mpirun -n 4 reshard_fail ",
                      arguments.what, ".");
    }
    if (arguments.abort) {
        auto ending = compose<AbortOnFailure>(comm.split(0, comm.rank()));
        tell(arguments, ending);
    } else {
        tell(arguments, comm);
    }
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    demo::Options const app("Lets one rank fail on purpose.");
    app.add("what", arguments.what, "what that rank does")
        .required()
        .one_of({"throw", "return", "wrong-shape", "other-plan", "late", "exit", "kill", "stop"});
    app.add("--rank", arguments.culprit, "which rank").within(0, 1023).show_default();
    app.add("--ranks", arguments.ranks, "number of threads (default 4; under mpirun the launcher decides)")
        .within(1, 1024);
    app.add("--deadline", arguments.deadline, "of a wait for other ranks, in milliseconds")
        .within(1, 3600000)
        .show_default();
    app.add("--abort", arguments.abort, "with the policy AbortOnFailure");
    app.add("--apart", arguments.apart, "under mpirun: as if every process had a node of its own");
    int status = 0;
    if (!app.parse(argc, argv, status)) return status;
    demo::RankOptions options;
    options.deadline = std::chrono::milliseconds(arguments.deadline);
    options.apart = arguments.apart;
    return demo::run_ranks("reshard_fail", arguments.ranks, 4, options,
                           [&](CommunicatorRef comm) { run(arguments, comm); });
}
