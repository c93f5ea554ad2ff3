// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/redistribute.hpp over include/reshard/comm/mpi.hpp: law.meaning for random transitions.
#include <reshard/comm/mpi.hpp>

#include <doctest/doctest.h>

#include <reshard/exec/collectives.hpp>
#include <reshard/exec/progress_thread.hpp>
#include <reshard/exec/redistribute.hpp>

#include "comm/mpi/ways.hpp"
#include "support/fake_cuda.hpp"
#include "support/moves_around.hpp"
#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>  // mt19937_64
#include <string>
#include <thread>
#include <vector>

namespace {
using namespace reshard;
using namespace std::chrono_literals;

DynamicShape shape_at(DynamicDistribution const& side, int rank) {
    return side.contains(rank) ? side.local_shape(rank) : DynamicShape(Shape<0>{});
}

/// Strides without gaps, dimensions in any order: by rows, by columns, or as the number says.
Indices any_strides(DynamicShape const& shape, std::uint64_t number) {
    Indices order;
    for (int dim = 0; dim < shape.rank(); ++dim) order.push_back(dim);
    if (number % 3 == 1) std::reverse(order.begin(), order.end());
    std::mt19937_64 rng(number);
    if (number % 3 == 2) std::shuffle(order.begin(), order.end(), rng);
    Indices strides = shape.extents();
    Index step = 1;
    for (int place = shape.rank() - 1; place >= 0; --place) {
        auto const dim = static_cast<int>(order[place]);
        strides[dim] = step;
        step *= std::max<Index>(shape.extent(dim), 1);
    }
    return strides;
}

/// Memory of a local tensor, as every rank has it or as the communicator shares it.
template <class T>
struct Local {
    std::vector<T> own;
    MpiBuffer<T> shared;
    TensorView<T> view;

    Local(MpiCommunicator& comm, DynamicShape const& shape, bool in_shared, std::uint64_t number) {
        if (in_shared) {
            shared = comm.allocate<T>(shape.size());
        } else {
            own.resize(static_cast<std::size_t>(shape.size()));
        }
        view = TensorView<T>(in_shared ? shared.data() : own.data(), shape, any_strides(shape, number));
    }
};

/// Every rank knows the whole tensor and every local one; it runs the plan on its own and checks what all got.
template <class T>
void check_meaning(MpiCommunicator& comm, Plan<> const& plan, std::vector<T> const& global, test::Random& random,
                   std::uint64_t seed) {
    bool const shared = seed % 3 == 0;
    int const me = comm.rank();
    auto const sources = oracle::scatter(global, plan.from(), random.engine());
    auto const rank = seed % 4 == 0 ? static_cast<std::uint64_t>(me) : 0U;  // mostly the same on all, as programs do
    Local<T> from(comm, shape_at(plan.from(), me), shared, seed / 2 + rank);
    Local<T> to(comm, shape_at(plan.to(), me), shared, seed / 5 + rank);
    if (plan.from().contains(me)) {
        auto next = sources[static_cast<std::size_t>(me)].begin();
        oracle::each_element(plan.from(), me, from.view.strides(),
                             [&](Index, Index offset) { from.view.data()[offset] = *next++; });
    }
    auto job = prepare(plan, comm, from.view, to.view);
    Traffic const start = comm.traffic();
    job.run();
    Traffic const moved = comm.traffic() - start;
    job.run();  // replay
    Cost const cost = plan.cost(me);
    CHECK(moved.bytes_received == cost.received * static_cast<Index>(sizeof(T)));
    CHECK(moved.bytes_sent == cost.sent * static_cast<Index>(sizeof(T)));
    // Everybody sees the result of everybody.
    oracle::Locals<T> results(static_cast<std::size_t>(comm.size()));
    for (int r = 0; r < comm.size(); ++r) {
        auto& one = results[static_cast<std::size_t>(r)];
        one.resize(static_cast<std::size_t>(shape_at(plan.to(), r).size()));
        auto next = one.begin();
        if (r == me && plan.to().contains(me))
            oracle::each_element(plan.to(), me, to.view.strides(),
                                 [&](Index, Index offset) { *next++ = to.view.data()[offset]; });
        MPI_Bcast(one.data(), static_cast<int>(one.size() * sizeof(T)), MPI_BYTE, r, MPI_COMM_WORLD);
    }
    results.resize(static_cast<std::size_t>(oracle::rank_limit(plan.to())));
    bool const same = oracle::gather(results, plan.to()) == global;
    CHECK(same);
}

template <class T>
void random_transition(MpiCommunicator& comm, std::uint64_t seed, std::vector<Reduce> const& ops, bool across) {
    test::Limits limits;
    limits.max_elements = 2000;
    limits.max_ranks = comm.size();
    limits.plain_ranks = true;
    limits.ops = ops;
    test::Random random(seed, limits);
    DynamicMesh const mesh = random.mesh();
    DynamicShape const shape = random.shape();
    auto const from = random.distribution(mesh, shape);
    auto const to = random.distribution(across ? random.mesh() : mesh, shape);
    if (!across && fills_average(from.signature(), to.signature())) return;
    INFO(test::reproduction(seed, from, to));
    check_meaning(comm, across ? plan_across(from, to) : plan(from, to), random.values<T>(shape.size()), random, seed);
}
}  // namespace

TEST_SUITE("comm/mpi") {
    TEST_CASE("law.meaning over MPI: on one mesh and between meshes, on every path") {
        test::for_each_way(test::all_ways({MpiPath::automatic}), [](MpiCommunicator& comm) {
            for (std::uint64_t seed : test::seeds(25)) {
                random_transition<std::int64_t>(comm, seed, {Reduce::sum, Reduce::min, Reduce::bxor}, false);
                random_transition<BFloat16>(comm, seed, {Reduce::sum, Reduce::max}, false);
                random_transition<std::uint8_t>(comm, seed, {Reduce::sum}, true);
            }
        });
    }

    TEST_CASE("casts of more elements than a message has are cut alike by who sends and who receives, on every path") {
        test::for_each_way(test::all_ways(), [](MpiCommunicator& comm) {
            for (Index const part :
                 {32'768, 32'769, 100'003}) {  // an element counts 16 bytes, and a message has 512 KiB
                CAPTURE(part);
                Mesh const mesh{comm.size()};
                Shape const shape{part * comm.size()};
                auto const move = plan(distribution(mesh, shape, "S0"), distribution(mesh, shape, "R"));
                auto const check = [&]<class From, class To>(From, To) {
                    Tensor<From> mine(Shape{part});
                    for (Index i = 0; i < part; ++i) mine(i) = static_cast<From>(part * comm.rank() + i);
                    Tensor<To> all(shape);
                    redistribute(move, comm, mine, all, Casting{});
                    Index wrong = 0;
                    for (Index i = 0; i < all.size(); ++i) wrong += all(i) == static_cast<To>(i) ? 0 : 1;
                    CHECK(wrong == 0);
                };
                check(double(), float());
                check(float(), double());
            }
        });
    }

    TEST_CASE("law.meaning over MPI around the limits of lists, pieces and messages: casts, folds, strided, batches") {
        auto const check = [](int ranks_per_node, MpiPath path, test::AroundOptions const& varies, int tries) {
            MpiOptions options;
            options.ranks_per_node = ranks_per_node;
            options.path = path;
            options.deadline = 60s;
            MpiCommunicator comm(MPI_COMM_WORLD, options);
            for (std::uint64_t seed : test::seeds(tries)) {
                test::Around const moves(seed, comm.size(), varies);
                CHECK(moves.wrong(comm) == "");
            }
        };
        int ranks = 1;
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        if (ranks == 1) return;     // nothing crosses
        test::AroundOptions lists;  // a copy is 16 KiB at most, a slot 64 KiB, and again and again in the same slots
        lists.limits = {64, 4096, 8 << 10, 16 << 10, 21'000};
        lists.folds = {0, 100};
        lists.most_bytes = 1 << 17;
        lists.most_tensors = 6;
        lists.runs = 4;
        check(0, MpiPath::automatic, lists, 2);
        check(1, MpiPath::automatic, lists, 1);
        test::AroundOptions pieces;
        pieces.limits = {512 << 10, 1 << 20};
        pieces.casts = 80;
        pieces.folds = {0, 1 << 15};
        pieces.types = {DType::f32, DType::f64, DType::i64};
        pieces.most_bytes = ranks * (Index{700} << 10);
        check(0, MpiPath::automatic, pieces, 1);
        check(0, MpiPath::messages, pieces, 1);
        check(1, MpiPath::automatic, pieces, 3);
    }

    TEST_CASE("copies in the list of a rank come to 1 MiB, and those behind go another way") {
        test::for_each_way({MpiOptions{.deadline = 60s}}, [](MpiCommunicator& comm) {
            constexpr Index part = 2048;         // 16 KiB: the longest that is copied
            for (int tensors : {64, 65, 640}) {  // those behind are read 512 at a time
                CAPTURE(tensors);
                Shape const whole{part * comm.size()};
                Mesh const mesh{comm.size()};
                auto const move = plan(distribution(mesh, whole, "S0"), distribution(mesh, whole, "R"));
                std::vector<double> mine(static_cast<std::size_t>(tensors * part));
                std::vector<double> all(static_cast<std::size_t>(tensors * whole.size()));
                Batch batch;
                for (Index t = 0; t < tensors; ++t) {
                    double* const from = mine.data() + t * part;
                    for (Index i = 0; i < part; ++i) from[i] = static_cast<double>(t + part * comm.rank() + i);
                    batch.add(move, TensorView<double const>(from, Shape{part}),
                              TensorView<double>(all.data() + t * whole.size(), whole));
                }
                redistribute(batch, comm, BatchOptions{.bucket_bytes = INT64_MAX});
                Index wrong = 0;
                for (Index t = 0; t < tensors; ++t)
                    for (Index i = 0; i < whole.size(); ++i)
                        wrong +=
                            all[static_cast<std::size_t>(t * whole.size() + i)] == static_cast<double>(t + i) ? 0 : 1;
                CHECK(wrong == 0);
            }
        });
    }

    TEST_CASE("words of an agreement arrive whole, of whatever length, those of an error and those that differ") {
        test::for_each_way(test::all_ways({MpiPath::automatic}), [](MpiCommunicator& comm) {
            int const last = comm.size() - 1;
            for (int letters : {0, 1, 7, 8, 9, 255, 256, 257, 999, 1000, 1001, 9000}) {
                CAPTURE(letters);
                auto const of = [&](int rank) {
                    return std::string(static_cast<std::size_t>(letters), static_cast<char>('a' + rank % 26));
                };
                transport::Verdict mine;
                if (comm.rank() == last) mine = {ErrorCode::shape, -1, of(last) + "!", 0};
                auto const failed = comm.agree(std::move(mine));
                CHECK(failed.rank == last);
                CHECK(failed.reason == of(last) + "!");
                if (last == 0) continue;
                std::string const words = of(comm.rank()) + "?";
                mine = {};
                mine.digest = comm.rank() == last ? 1 : 0;
                mine.about = &words;
                mine.words = [](void const* about) { return *static_cast<std::string const*>(about); };
                auto const differs = comm.agree(std::move(mine));
                CHECK(differs.rank == last);
                CHECK(differs.reason.starts_with(of(last) + "?, but rank 0 " + of(0) + "?"));
            }
        });
    }

    TEST_CASE("a progress thread carries out runs to their end, on every path") {
        test::for_each_way(test::all_ways({MpiPath::automatic}), [](MpiCommunicator& comm) {
            int const ranks = comm.size();
            DynamicShape const shape = Shape{Index{300} * ranks};
            auto const of = [&](char const* placement) { return distribution(Mesh{ranks}, shape, placement); };
            std::vector<int> addends(static_cast<std::size_t>(shape.size()), comm.rank() + 1);
            std::vector<int> part(300);
            std::vector<int> sums(addends.size());
            auto reduce = prepare(plan(of("P+"), of("S0")), comm, TensorView<int>(addends.data(), shape),
                                  TensorView<int>(part.data(), Shape{300}));
            auto gather = prepare(plan(of("S0"), of("R")), comm, TensorView<int>(part.data(), Shape{300}),
                                  TensorView<int>(sums.data(), shape));
            ProgressThread progress;
            for (int round = 0; round < 3; ++round) {
                std::fill(sums.begin(), sums.end(), 0);
                BackgroundRequest first = progress.start(reduce);
                BackgroundRequest const second = progress.start(gather);
                while (!second.test()) std::this_thread::sleep_for(1ms);
                first.wait();
                CHECK(sums == std::vector<int>(sums.size(), ranks * (ranks + 1) / 2));
            }
        });
    }

    TEST_CASE(
        "collectives by name, prepared where lines of ranks differ, or ranks are outside: waited for in any order") {
        for (int ranks_per_node : {0, 1, 2}) {
            CAPTURE(ranks_per_node);
            MpiOptions options;
            options.ranks_per_node = ranks_per_node;
            MpiCommunicator comm(MPI_COMM_WORLD, options);
            int const me = comm.rank();
            DynamicMesh const mesh = comm.size() == 1 ? DynamicMesh(Mesh{1, 1}) : DynamicMesh(Mesh{2, comm.size() / 2});
            bool const inside = mesh.contains(me);  // of an odd number, the last is not
            Index const column = inside ? mesh.coordinates(me)[1] : 0;
            DynamicShape const shape = Shape{column == 1 ? 5000 : 3 + column};  // of 5000 a sum takes two exchanges
            std::vector<int> sum(static_cast<std::size_t>(shape.size()));
            std::vector<int> copy(sum.size());
            auto const given = [&](std::vector<int>& memory) {
                return inside ? DynamicView(TensorView<int>(memory.data(), shape)) : DynamicView();
            };
            PreparedPlan sums = prepare_all_reduce(given(sum), comm, mesh, 0);
            PreparedPlan copies = prepare_broadcast(given(copy), comm, mesh, 0, static_cast<int>(mesh.extent(0)) - 1);
            for (int round : {1, 2, 3}) {
                std::fill(sum.begin(), sum.end(), round * me);
                std::fill(copy.begin(), copy.end(), round * me);
                RunRequest summing = sums.start();
                RunRequest copying = copies.start();
                (me % 2 == 0 ? summing : copying).wait();
                (me % 2 == 0 ? copying : summing).wait();
                int all = inside ? 0 : round * me;
                int last = all;
                for (Index row = 0; inside && row < mesh.extent(0); ++row) {
                    last = round * static_cast<int>(mesh.rank_at(row * mesh.extent(1) + column));
                    all += last;
                }
                CHECK(sum == std::vector<int>(sum.size(), all));
                CHECK(copy == std::vector<int>(copy.size(), last));
            }
        }
    }

    TEST_CASE("what a rank allocates by a communicator of its own is sent over that of all") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        MpiCommunicator alone = comm.split(comm.rank(), 0);
        for (Index each : {3, 100'000}) {
            Index const whole = each * comm.size();
            MpiBuffer<int> mine = alone.allocate<int>(each);
            std::fill(mine.span().begin(), mine.span().end(), comm.rank());
            std::vector<int> all(static_cast<std::size_t>(whole), -1);
            redistribute(plan(distribution(Mesh{comm.size()}, Shape{whole}, Shard<0>{}),
                              distribution(Mesh{comm.size()}, Shape{whole}, Replicate{})),
                         comm, TensorView<int const>(mine.span().data(), Shape{each}),
                         TensorView<int>(all.data(), Shape{whole}));
            for (std::size_t i = 0; i < all.size(); ++i) {
                if (all[i] != static_cast<int>(i) / static_cast<int>(each)) FAIL(i);
            }
        }
    }

    TEST_CASE("law.bits: floats are folded in the order of the ranks, on every path") {
        std::vector<float> const cycle{1e8F, 1.0F, -1e8F, 1.0F, 3e-3F};
        test::for_each_way(test::all_ways({MpiPath::automatic}), [&](MpiCommunicator& comm) {
            int const ranks = comm.size();
            auto const value = [&](int rank, Index i) { return cycle[static_cast<std::size_t>((rank + i) % 5)]; };
            DynamicShape const shape = Shape{Index{50} * ranks};
            std::vector<float> mine;
            std::vector<float> want;
            for (Index i = 0; i < shape.size(); ++i) {
                float sum = value(0, i);
                for (int rank = 1; rank < ranks; ++rank) sum += value(rank, i);
                want.push_back(sum);
                mine.push_back(value(comm.rank(), i));
            }
            auto const from = distribution(Mesh{ranks}, shape, "P+");
            for (char const* text : {"R", "S0"}) {
                CAPTURE(text);
                auto const to = distribution(Mesh{ranks}, shape, text);
                std::vector<float> got(static_cast<std::size_t>(to.local_shape(comm.rank()).size()));
                redistribute(plan(from, to), comm, TensorView<float const>(mine.data(), shape),
                             TensorView<float>(got.data(), to.local_shape(comm.rank())));
                std::size_t const first =
                    got.size() == want.size() ? 0 : got.size() * static_cast<std::size_t>(comm.rank());
                CHECK(std::memcmp(got.data(), want.data() + first, got.size() * sizeof(float)) == 0);
            }
        });
    }

    TEST_CASE("memory of a device on the last rank is a BufferError on all, and nothing moves") {
        test::FakeCuda const cuda;
        if (!cuda.works()) return;  // a real driver is loaded: it knows what is a device's
        MpiCommunicator comm(MPI_COMM_WORLD);
        DynamicShape const shape = Shape{Index{4} * comm.size()};
        auto const gather =
            plan(distribution(Mesh{comm.size()}, shape, "S0"), distribution(Mesh{comm.size()}, shape, "R"));
        std::vector<float> source(4, 1.0F);
        std::vector<float> destination(static_cast<std::size_t>(shape.size()), -7.0F);
        if (comm.rank() == comm.size() - 1) cuda.claim(source.data(), 16);
        std::string message;
        try {
            redistribute(gather, comm, TensorView<float>(source.data(), Shape{4}),
                         TensorView<float>(destination.data(), shape));
        } catch (BufferError const& error) {
            message = error.message();
        }
        CAPTURE(message);
        CHECK(message.find("the transport 'mpi' moves memory of the host") != std::string::npos);
        CHECK(message.find(errors::concat("rank ", comm.size() - 1, " of ")) == 0);
        CHECK(destination == std::vector<float>(destination.size(), -7.0F));
    }
}
