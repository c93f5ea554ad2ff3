// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/sync.hpp: what becomes equal, what it costs, and what is refused before anything moves.
#include <reshard/exec/sync.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/collectives.hpp>
#include <reshard/comm/policy.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/comm/traced.hpp>

#include "support/oracle.hpp"
#include "support/random.hpp"
#include "support/thrown.hpp"

#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// A rank's memory of a module: element i of tensor t on rank r is 1000 r + 100 t + i.
struct Module {
    std::vector<std::vector<float>> memory;
    std::vector<LocalTensor> tensors;

    void add(std::string name, DynamicDistribution const& d, int rank) {
        DynamicShape const shape = d.contains(rank) ? d.local_shape(rank) : DynamicShape(Shape{0});
        memory.emplace_back(static_cast<std::size_t>(shape.size()));
        std::iota(memory.back().begin(), memory.back().end(),
                  1000.0F * static_cast<float>(rank) + 100.0F * static_cast<float>(tensors.size()));
        tensors.push_back({std::move(name), d, TensorView<float>(memory.back().data(), shape)});
    }
};
Module copies(int rank, int ranks, std::vector<Shape<dynamic>> const& shapes) {
    Module module;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        module.add(errors::concat("layer.", i), distribution(Mesh{ranks}, shapes[i], "R"), rank);
    }
    return module;
}

/// Every rank builds a module of three tensors, spoils it and calls sync; all must report the same and write nothing.
void check_refused(ErrorCode code, std::vector<std::string> const& parts,
                   std::function<void(Module&, SyncOptions&, int)> const& spoil) {
    constexpr int ranks = 3;
    std::atomic<int> touched{0};
    auto const thrown = test::thrown_by(ranks, [&](ThreadCommunicator& comm) {
        Module module = copies(comm.rank(), ranks, {Shape{4}, Shape{6}, Shape{5}});
        SyncOptions options;
        spoil(module, options, comm.rank());
        auto const before = module.memory;
        test::Thrown mine;
        try {
            sync(module.tensors, comm, options);
        } catch (Error const& error) {
            mine = {error.code(), error.message()};
        }
        if (module.memory != before) ++touched;
        barrier(comm);  // the communicator is as good as before
        if (mine.code != ErrorCode::none) errors::raise(mine.code, mine.message);
    });
    test::check_same(thrown, code, parts);
    CHECK(touched == 0);
}

TEST_CASE("after sync every rank has what the source had, whichever rank that is") {
    for (int ranks : {1, 2, 3, 5}) {
        for (int source = 0; source < ranks; ++source) {
            for (Index bucket : {Index{0}, Index{30}, Index{1} << 20}) {
                CAPTURE(ranks);
                CAPTURE(source);
                CAPTURE(bucket);
                std::vector<Module> modules(static_cast<std::size_t>(ranks));
                auto const shapes = std::vector<Shape<dynamic>>{Shape{7}, Shape{1}, Shape{0}, Shape{300}};
                run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                    Module& mine = modules[static_cast<std::size_t>(comm.rank())];
                    mine = copies(comm.rank(), ranks, shapes);
                    sync(mine.tensors, comm, {.root = source, .bucket_bytes = bucket});
                });
                Module const truth = copies(source, ranks, shapes);
                for (Module const& module : modules) CHECK(module.memory == truth.memory);
            }
        }
    }
}

TEST_CASE("each byte leaves the source once, arrives once everywhere, and buckets make the exchanges few") {
    constexpr int ranks = 5;
    constexpr int source = 2;
    std::vector<Traffic> traffic(ranks);
    std::vector<std::size_t> exchanges(ranks);
    std::vector<std::size_t> agreements(ranks);
    std::vector<Shape<dynamic>> const shapes(40, Shape{100});  // 40 tensors of 400 bytes: 16000
    run_on_threads(ranks, [&](ThreadCommunicator& threads) {
        auto const rank = static_cast<std::size_t>(threads.rank());
        Trace trace;
        Traced<ThreadCommunicator> comm(threads.split(0, threads.rank()), trace);
        Module module = copies(comm.rank(), ranks, shapes);
        sync(module.tensors, comm, {.root = source, .bucket_bytes = 8000});
        traffic[rank] = comm.traffic();
        for (TraceRecord const& record : trace.records()) {
            exchanges[rank] += record.operation == TraceOperation::exchange ? 1U : 0U;
            agreements[rank] += record.operation == TraceOperation::agree ? 1U : 0U;
        }
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        bool const is_source = rank == source;
        CAPTURE(rank);
        CHECK(traffic[rank].bytes_received == (is_source ? 0 : 16000));
        CHECK(traffic[rank].bytes_sent == (is_source ? 16000 : 12000));  // a quarter came in, and goes to three others
        CHECK(traffic[rank].bytes_local == 0);
        CHECK(exchanges[rank] == 4);  // two buckets, each handed out and passed on
        CHECK(agreements[rank] == 1);
    }
}

TEST_CASE("two ranks: nothing is passed on, and nothing comes back") {
    std::vector<Traffic> traffic(2);
    run_on_threads(2, [&](ThreadCommunicator& comm) {
        Module module = copies(comm.rank(), 2, std::vector<Shape<dynamic>>(10, Shape{10}));
        sync(module.tensors, comm);
        traffic[static_cast<std::size_t>(comm.rank())] = comm.traffic();
    });
    bool const one_way = traffic[0] == Traffic{10, 400, 0, 0, 0} && traffic[1] == Traffic{0, 0, 10, 400, 0};
    CHECK(one_way);
}

TEST_CASE("a tensor that is cut and copied becomes equal along the axes that copy it") {
    // (2,3): rows cut along axis 1, copied along axis 0. The source, rank 4, is on line 1: ranks 3, 4, 5 are the truth.
    auto const rows = parse("(2,3):(R,S0)", Shape{7});
    std::vector<Module> modules(6);
    std::vector<Traffic> traffic(6);
    run_on_threads(6, [&](ThreadCommunicator& comm) {
        Module& mine = modules[static_cast<std::size_t>(comm.rank())];
        mine.add("rows", rows, comm.rank());
        mine.add("whole shards", parse("(6):(S0)", Shape{12}), comm.rank());  // no copies: stays as it is
        sync(mine.tensors, comm, {.root = 4});
        traffic[static_cast<std::size_t>(comm.rank())] = comm.traffic();
    });
    for (int rank = 0; rank < 6; ++rank) {
        CAPTURE(rank);
        Module truth;
        truth.add("rows", rows, 3 + rank % 3);
        Module own;
        own.add("", rows, rank);
        own.add("whole shards", parse("(6):(S0)", Shape{12}), rank);
        CHECK(modules[static_cast<std::size_t>(rank)].memory[0] == truth.memory[0]);
        CHECK(modules[static_cast<std::size_t>(rank)].memory[1] == own.memory[1]);
        Index const bytes = rows.local_shape(rank).size() * 4;
        CHECK(traffic[static_cast<std::size_t>(rank)].bytes_received == (rank < 3 ? bytes : 0));
        CHECK(traffic[static_cast<std::size_t>(rank)].bytes_sent == (rank < 3 ? 0 : bytes));
    }
}

TEST_CASE("tensors on a mesh of some ranks leave the other ranks alone") {
    std::vector<Module> modules(4);
    run_on_threads(4, [&](ThreadCommunicator& comm) {
        Module& mine = modules[static_cast<std::size_t>(comm.rank())];
        mine.add("part", distribution(DynamicMesh({2}, first_rank(1)), Shape{3}, "R"), comm.rank());
        sync(mine.tensors, comm, {.root = 2});
    });
    CHECK(modules[0].memory[0].empty());
    CHECK(modules[1].memory[0] == std::vector<float>{2000, 2001, 2002});
    CHECK(modules[2].memory[0] == std::vector<float>{2000, 2001, 2002});
}

TEST_CASE("one rank alone, and an empty list, have nothing to do") {
    SelfCommunicator comm;
    Module module = copies(0, 1, {Shape{3}});
    sync(module.tensors, comm);
    CHECK(module.memory[0] == std::vector<float>{0, 1, 2});
    sync({}, comm);
    CHECK(comm.traffic() == Traffic{});
}

/// Moves memory of devices alone, as NCCL does: an address of nothing is memory of the host.
class DevicesOnly : public PolicyBase<DevicesOnly, SelfCommunicator> {
public:
    using PolicyBase::PolicyBase;
    using PolicyBase::split;
    void check_memory(void const* memory) const {
        if (memory == nullptr) errors::raise(ErrorCode::buffer, "tests: memory of the host.");
    }
    [[nodiscard]] DevicesOnly split(int colour, int key) { return DevicesOnly(inner_.split(colour, key)); }
};

TEST_CASE("an empty part may lie anywhere, also where ranks have memory of devices only") {
    DevicesOnly comm{SelfCommunicator()};
    std::vector<LocalTensor> const tensors{
        {"w", distribution(Mesh{1}, Shape{0, 64}, "R"), DynamicView(nullptr, DType::f32, Shape{0, 64})}};
    CHECK_NOTHROW(sync(tensors, comm));
}

TEST_CASE("ranks that list different tensors all hear which one, from whom, and nothing is written") {
    auto const relist = [](Module& module, std::size_t i, DynamicShape const& shape, DType dtype) {
        module.tensors[i].distribution = distribution(Mesh{3}, shape, "R");
        module.tensors[i].view = DynamicView(module.memory[i].data(), dtype, shape);
    };
    check_refused(ErrorCode::mismatch,
                  {"rank 2 of 3: syncs tensor 1 'layer.1' as (3):(R) of [3] F32",
                   "but rank 0 syncs tensor 1 'layer.1' as (3):(R) of [6] F32", "Fix: "},
                  [&](Module& module, SyncOptions&, int rank) {
                      if (rank == 2) relist(module, 1, Shape{3}, DType::f32);
                  });
    check_refused(ErrorCode::mismatch,
                  {"rank 1 of 3: syncs tensor 1 'layer.1' as (3):(R) of [6] I32", "rank 0 syncs", "F32"},
                  [&](Module& module, SyncOptions&, int rank) {
                      if (rank != 0) relist(module, 1, Shape{6}, DType::i32);
                  });
    check_refused(ErrorCode::mismatch,
                  {"rank 1 of 3: syncs tensor 2 'odd' as (3):(R) of [5]", "but rank 0 syncs tensor 2 'layer.2'"},
                  [](Module& module, SyncOptions&, int rank) {
                      if (rank == 1) module.tensors[2].name = "odd";
                  });
    check_refused(ErrorCode::mismatch,
                  {"rank 2 of 3: syncs 2 tensors, without a tensor 2", "rank 0 syncs tensor 2 'layer.2'"},
                  [](Module& module, SyncOptions&, int rank) {
                      if (rank == 2) module.tensors.pop_back();
                  });
    check_refused(ErrorCode::mismatch, {"rank 1 of 3: syncs tensor 0 'layer.0'", "rank 0 syncs 0 tensors"},
                  [](Module& module, SyncOptions&, int rank) {
                      if (rank == 0) module.tensors.clear();
                  });
    check_refused(ErrorCode::mismatch, {"rank 1 of 3: syncs with root 1, but rank 0 syncs with root 0. Fix: "},
                  [](Module&, SyncOptions& options, int rank) { options.root = rank == 1 ? 1 : 0; });
    check_refused(ErrorCode::mismatch,
                  {"rank 2 of 3: syncs with bucket_bytes 7, but rank 0 syncs with bucket_bytes 1048576"},
                  [](Module&, SyncOptions& options, int rank) {
                      if (rank == 2) options.bucket_bytes = 7;
                  });
}

TEST_CASE("what one rank cannot do all ranks hear of, and nothing is written") {
    check_refused(ErrorCode::buffer, {"rank 1 of 3: ", "reshard::sync: tensor 'layer.0' on rank 1", "shape [3]"},
                  [](Module& module, SyncOptions&, int rank) {
                      if (rank == 1) module.tensors[0].view = TensorView<float>(module.memory[0].data(), Shape{3});
                  });
    check_refused(ErrorCode::buffer, {"rank 2 of 3: ", "tensor 'layer.0' on rank 2: the view is null"},
                  [](Module& module, SyncOptions&, int rank) {
                      if (rank == 2) module.tensors[0].view = TensorView<float>(nullptr, Shape{4});
                  });
    check_refused(ErrorCode::buffer,
                  {"rank 1 of 3: ", "on rank 1 the tensors 'layer.0' and 'layer.1' overlap", "or list one of them"},
                  [](Module& module, SyncOptions&, int) {
                      module.tensors[0].view = TensorView<float>(module.memory[1].data() + 1, Shape{4});
                  });
    check_refused(ErrorCode::buffer,
                  {"rank 1 of 3: ", "tensor 'layer.0' on rank 1: the view has strides [0] that overlap"},
                  [](Module& module, SyncOptions&, int rank) {  // on rank 0, the root, it is only read
                      DynamicView& view = module.tensors[0].view;
                      if (rank < 2) view = DynamicView(view.data(), view.dtype(), view.shape(), Indices{0});
                  });
    check_refused(
        ErrorCode::placement, {"tensor 'layer.1' is (3):(P+)", "addends", "Fix: redistribute it"},
        [](Module& module, SyncOptions&, int) { module.tensors[1].distribution = parse("(3):(P+)", Shape{6}); });
    check_refused(ErrorCode::dtype, {"tensor 'layer.1': elements of F4", "Fix: view the storage as U8"},
                  [](Module& module, SyncOptions&, int) {
                      module.tensors[1].view = DynamicView(module.memory[1].data(), DType::f4, Shape{6});
                  });
    check_refused(ErrorCode::mesh, {"the root is rank 3 of a communicator of 3 ranks"},
                  [](Module&, SyncOptions& options, int) { options.root = 3; });
    check_refused(ErrorCode::mesh, {"the root is rank -1"},
                  [](Module&, SyncOptions& options, int) { options.root = -1; });
    check_refused(ErrorCode::buffer, {"buckets of -1 bytes"},
                  [](Module&, SyncOptions& options, int) { options.bucket_bytes = -1; });
    check_refused(ErrorCode::mesh, {"tensor 'layer.2' has no part on the root, rank 0", "its mesh is (2)+1"},
                  [](Module& module, SyncOptions&, int) {
                      module.tensors[2].distribution = distribution(DynamicMesh({2}, first_rank(1)), Shape{5}, "R");
                  });
    check_refused(ErrorCode::mesh, {"tensor 'layer.2': the mesh", "rank 3, the communicator only 3 ranks"},
                  [](Module& module, SyncOptions&, int) {
                      module.tensors[2].distribution = distribution(Mesh{4}, Shape{5}, "R");
                  });
}

TEST_CASE("a rank that throws before sync ends it for all, and nothing is written") {
    std::vector<int> failed(3, 0);
    std::vector<int> touched(3, 0);  // an element a rank: the survivors write at the same time
    auto const run = [&] {
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            Module module = copies(comm.rank(), 3, {Shape{4}});
            auto const before = module.memory;
            if (comm.rank() == 1) throw std::runtime_error("the disk is full");
            try {
                sync(module.tensors, comm);
            } catch (PeerFailed const& error) {
                auto const rank = static_cast<std::size_t>(comm.rank());
                failed[rank] = error.message().find("the disk is full") != std::string::npos ? 1 : 0;
                touched[rank] = module.memory != before ? 1 : 0;
                throw;
            }
        });
    };
    CHECK_THROWS_WITH_AS(run(), doctest::Contains("the disk is full"), std::exception);
    CHECK(failed == std::vector<int>{1, 0, 1});
    CHECK(touched == std::vector<int>(3, 0));
}

TEST_CASE("law: any placements, element types and sources: the truth is the source's replica, bytes are the least") {
    for (std::uint64_t seed : test::seeds(150)) {
        test::Limits limits;
        limits.max_ranks = 8;
        limits.max_elements = 400;
        limits.partial = false;
        test::Random random(seed, limits);
        std::vector<DynamicDistribution> list;
        DynamicMesh mesh = random.mesh();
        while (mesh.last_rank() >= 8) mesh = random.mesh();
        for (Index i = random.between(1, 6); i > 0; --i) list.push_back(random.distribution(mesh, random.shape()));
        int const source = static_cast<int>(mesh.rank_at(random.between(0, mesh.size() - 1)));
        Index const bucket = random.pick(std::vector<Index>{0, 64, 700, 1 << 20});
        INFO(test::reproduction(seed, list[0]));
        CAPTURE(source);
        struct Piece {
            std::vector<std::int16_t> before;
            std::vector<std::int16_t> after;
        };
        std::vector<std::vector<Piece>> pieces(8);
        std::vector<Traffic> traffic(8);
        for (std::size_t rank = 0; rank < 8; ++rank) {
            for (auto const& d : list) {
                auto const r = static_cast<Index>(rank);
                Index const size = d.contains(r) ? d.local_shape(r).size() : 0;
                pieces[rank].push_back({random.values<std::int16_t>(size), {}});
                pieces[rank].back().after = pieces[rank].back().before;
            }
        }
        run_on_threads(8, [&](ThreadCommunicator& comm) {
            auto const rank = static_cast<std::size_t>(comm.rank());
            std::vector<LocalTensor> tensors;
            for (std::size_t i = 0; i < list.size(); ++i) {
                DynamicShape const shape =
                    list[i].contains(comm.rank()) ? list[i].local_shape(comm.rank()) : DynamicShape(Shape{0});
                tensors.push_back(
                    {errors::concat("t", i), list[i], TensorView<std::int16_t>(pieces[rank][i].after.data(), shape)});
            }
            sync(tensors, comm, {.root = source, .bucket_bytes = bucket});
            traffic[rank] = comm.traffic();
        });
        for (std::size_t rank = 0; rank < 8; ++rank) {
            CAPTURE(rank);
            Index needed = 0;
            for (std::size_t i = 0; i < list.size(); ++i) {
                auto const r = static_cast<Index>(rank);
                if (!list[i].contains(r)) continue;
                // The rank with the source's coordinate where the tensor is copied, its own where it is cut.
                oracle::Coordinates wanted = oracle::coordinates(list[i], r);
                oracle::Coordinates const at = oracle::coordinates(list[i], source);
                for (int axis = 0; axis < mesh.axes(); ++axis) {
                    if (list[i].placement(axis).is_replicate()) wanted[oracle::at(axis)] = at[oracle::at(axis)];
                }
                Index truth = -1;
                for (Index candidate : oracle::ranks(list[i])) {
                    if (oracle::coordinates(list[i], candidate) == wanted) truth = candidate;
                }
                bool const same = pieces[rank][i].after == pieces[oracle::at(truth)][i].before;
                REQUIRE(same);
                if (truth != r) needed += static_cast<Index>(pieces[rank][i].before.size()) * 2;
            }
            REQUIRE(traffic[rank].bytes_received == needed);
        }
    }
}

}  // namespace
