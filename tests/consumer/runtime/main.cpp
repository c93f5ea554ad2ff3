// SPDX-License-Identifier: Apache-2.0
// A runtime that learns everything when it starts: tensors and placements from a file, ranks that are processes, a
// transport of its own. Distributions, plans and the communicator are values.
//
//     runtime MOVES.json [--die RANK]     exit status 0: moved and verified; 1: a rank failed; 2: the file is wrong
#include "moves.hpp"
#include "pipes.hpp"

#include <reshard/comm/agree.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/init/initialize.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>

namespace {
using namespace reshard;

// What a rank holds of a tensor; nothing, where it is not in the mesh.
struct Held {
    std::vector<std::byte> memory;
    LocalTensor tensor;

    Held(runtime::Move const& move, DynamicDistribution const& where, int rank) {
        DynamicShape const shape = where.mesh().contains(rank) ? where.local_shape(rank) : DynamicShape(Shape{0});
        memory.resize(static_cast<std::size_t>(shape.size() * bytes(move.dtype)));
        tensor = {move.name, where, DynamicView(memory.data(), move.dtype, shape)};
    }
};

int run(CommunicatorRef comm, runtime::Moves const& moves, int dies) {
    std::deque<Held> from;
    std::deque<Held> to;
    std::deque<Held> wanted;
    Batch batch;
    for (runtime::Move const& move : moves.list) {
        Held const& source = from.emplace_back(move, move.from, comm.rank());
        Held const& destination = to.emplace_back(move, move.to, comm.rank());
        Held const& value = wanted.emplace_back(move, move.to, comm.rank());
        // The value of an element is a function of its place in the whole tensor: every rank can make any part.
        initialize(source.tensor, comm.rank(), 7, Uniform{-1, 1});
        initialize(value.tensor, comm.rank(), 7, Uniform{-1, 1});
        batch.add(move.plan, source.tensor.view, destination.tensor.view, move.name);
    }
    auto job = prepare(batch, comm);
    if (comm.rank() == dies) ::_exit(1);  // without a word
    job.run();
    agree_on_errors(comm, [&] {
        for (std::size_t i = 0; i < to.size(); ++i) {
            if (to[i].memory == wanted[i].memory) continue;
            errors::raise(ErrorCode::user, errors::concat(moves.list[i].name, " arrived with other values."));
        }
    });
    if (comm.rank() == 0) std::printf("moved and verified %zu tensors on %d ranks\n", to.size(), comm.size());
    return 0;
}
}  // namespace

int main(int argc, char** argv) {
    bool const dying = argc == 4 && std::strcmp(argv[2], "--die") == 0;
    if (argc != 2 && !dying) {
        std::fputs("usage: runtime MOVES.json [--die RANK]\n", stderr);
        return 2;
    }
    try {
        runtime::Moves const moves = runtime::read_moves(argv[1]);
        int const dies = dying ? std::stoi(argv[3]) : -1;
        int const status = runtime::run_on_processes(moves.ranks, std::chrono::seconds(20),
                                                     [&](AnyCommunicator comm) { return run(comm, moves, dies); });
        if (status < 0) std::fputs("runtime: no processes or sockets to be had. Fix: raise ulimit -u or -n.\n", stderr);
        return status == 0 ? 0 : 1;
    } catch (std::exception const& error) {
        std::fprintf(stderr, "runtime: %s\n", error.what());
        return 2;
    }
}
