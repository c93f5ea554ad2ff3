// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/batch.hpp: what travels together, what is refused, and what all ranks then say.
#include <reshard/exec/batch.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/collectives.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/comm/traced.hpp>

#include "../../examples/support/model_lists.hpp"
#include "support/allocations.hpp"
#include "support/fake_cuda.hpp"
#include "support/random.hpp"
#include "support/thrown.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace {
using namespace reshard;
using test::check_same;
using test::Thrown;
using test::thrown_by;

Plan<> of(std::string const& from, std::string const& to, DynamicShape const& shape) {
    return plan(parse(from, shape), parse(to, shape));
}

/// One rank's memory of the tensors of a batch. Elements of a tensor count up through the whole tensor, so that every
/// rank knows what it should end up with. \pre no Partial.
struct Memory {
    struct Piece {
        Plan<> plan;
        DType dtype;
        std::vector<std::byte> source;
        std::vector<std::byte> destination;
        std::vector<std::byte> expected;
    };
    std::vector<Piece> pieces;

    void add(Plan<> const& plan, DType dtype, int rank) {
        pieces.push_back({plan, dtype, bytes_of(plan.from(), dtype, rank), {}, bytes_of(plan.to(), dtype, rank)});
        pieces.back().destination.resize(pieces.back().expected.size(), std::byte{0xEE});
    }
    void list(Batch& batch, int rank, std::vector<std::string> const& names = {}) {
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            Piece& p = pieces[i];
            batch.add(p.plan, ConstDynamicView(p.source.data(), p.dtype, local(p.plan.from(), rank)),
                      DynamicView(p.destination.data(), p.dtype, local(p.plan.to(), rank)),
                      i < names.size() ? names[i] : std::string());
        }
    }
    [[nodiscard]] bool arrived() const {
        for (Piece const& p : pieces)
            if (p.destination != p.expected) return false;
        return true;
    }
    [[nodiscard]] bool untouched() const {
        for (Piece const& p : pieces)
            for (std::byte b : p.destination)
                if (b != std::byte{0xEE}) return false;
        return true;
    }
    void spoil() {
        for (Piece& p : pieces) std::fill(p.destination.begin(), p.destination.end(), std::byte{0xEE});
    }

    static DynamicShape local(DynamicDistribution const& side, int rank) {
        return side.contains(rank) ? side.local_shape(rank) : DynamicShape(Shape{0});
    }
    /// Byte k of an element is a digest of its position in the tensor.
    static std::vector<std::byte> bytes_of(DynamicDistribution const& side, DType dtype, int rank) {
        std::vector<std::byte> result;
        if (!side.contains(rank)) return result;
        Indices const strides = row_major_strides(side.shape());
        for (Box const& box : side.boxes(rank)) {
            REQUIRE(side.boxes(rank).size() == 1);  // what follows is in local order for one box only
            for (Index k = 0; k < box.size(); ++k) {
                Index rest = k;
                Index position = 0;
                for (int dim = box.rank() - 1; dim >= 0; --dim) {
                    position += (box.begin(dim) + rest % box.extent(dim)) * strides[dim];
                    rest /= box.extent(dim);
                }
                for (Index b = 0; b < bytes(dtype); ++b) {
                    auto const number = static_cast<std::uint64_t>(position) * 0x9e3779b97f4a7c15U + 3;
                    result.push_back(static_cast<std::byte>((number >> (8U * static_cast<unsigned>(b % 8))) & 0x7fU));
                }
            }
        }
        return result;
    }
};

/// What a trace has seen of one operation.
std::vector<TraceRecord> seen(Trace const& trace, TraceOperation operation) {
    std::vector<TraceRecord> result;
    for (TraceRecord const& record : trace.records()) {
        if (record.operation == operation) result.push_back(record);
    }
    return result;
}

/// Three tensors on three ranks; `spoil(batch tensors, rank)` changes what one rank lists. Nothing may be written.
template <class Spoil>
void check_spoilt(ErrorCode code, std::vector<std::string> const& parts, Spoil const& spoil,
                  BatchOptions const& options = {}) {
    std::atomic<int> touched{0};
    auto const thrown = thrown_by(3, [&](ThreadCommunicator& comm) {
        Memory memory;
        memory.add(of("(3):(S0)", "(3):(R)", Shape{12}), DType::f32, comm.rank());
        memory.add(of("(3):(S0)", "(3):(S1)", Shape{6, 6}), DType::i64, comm.rank());
        memory.add(of("(3):(R)", "(3):(S0)", Shape{9}), DType::u8, comm.rank());
        Batch whole;
        memory.list(whole, comm.rank(), {"bias", "weight", "mask"});
        std::vector<BatchTensor> tensors(whole.tensors().begin(), whole.tensors().end());
        BatchOptions mine = options;
        spoil(tensors, mine, comm.rank());
        Batch batch;
        for (BatchTensor const& t : tensors) batch.add(t.plan, t.source, t.destination, t.name, t.options);
        try {
            prepare(batch, comm, mine).run();
        } catch (...) {
            if (!memory.untouched()) ++touched;
            throw;
        }
    });
    check_same(thrown, code, parts);
    CHECK(touched == 0);
}
using Tensors = std::vector<BatchTensor>;

}  // namespace

TEST_SUITE("exec/batch") {
    // ---- What moves ------------------------------------------------------------------------------------------------

    TEST_CASE("tensors of several element types and kinds arrive, on 1 to 8 ranks, again and again") {
        for (int ranks : {1, 2, 3, 4, 8}) {
            CAPTURE(ranks);
            std::string const n = errors::concat("(", ranks, ")");
            std::atomic<int> wrong{0};
            run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                int const rank = comm.rank();
                Memory memory;
                memory.add(of(n + ":(S0)", n + ":(R)", Shape{13}), DType::f32, rank);        // gather
                memory.add(of(n + ":(S0)", n + ":(S1)", Shape{8, 9}), DType::f64, rank);     // transpose
                memory.add(of(n + ":(R)", n + ":(S0)", Shape{10, 3}), DType::bf16, rank);    // view
                memory.add(of(n + ":(S1)", n + ":(S0:bal)", Shape{5, 7}), DType::u8, rank);  // uneven
                memory.add(of(n + ":(S0)", n + ":(R)", Shape{0, 4}), DType::i32, rank);      // empty
                memory.add(of(n + ":(S0)", n + ":(S0)", Shape{4}), DType::c64, rank);        // stays
                memory.add(plan_across(parse("(1):(R)", Shape{6}), parse(n + ":(S0)", Shape{6})), DType::i16, rank);
                Batch batch;
                memory.list(batch, rank);
                for (Index budget : {Index{0}, Index{64}, Index{1} << 20}) {
                    memory.spoil();
                    BatchOptions options;
                    options.bucket_bytes = budget;
                    auto job = prepare(batch, comm, options);
                    job.run();
                    if (!memory.arrived()) ++wrong;
                    memory.spoil();
                    auto request = job.start();
                    auto moved = std::move(request);
                    moved.wait();
                    moved.wait();
                    if (!memory.arrived()) ++wrong;
                }
                memory.spoil();
                redistribute(batch, comm);
                if (!memory.arrived()) ++wrong;
            });
            CHECK(wrong == 0);
        }
    }

    TEST_CASE("folds of several ops share a round and its scratch memory") {
        for (Index budget : {Index{0}, Index{1} << 20}) {
            run_on_threads(4, [&](ThreadCommunicator& comm) {
                std::vector<float> sum(8, 1.0F);
                std::vector<float> summed(8);
                std::vector<int> most(5, comm.rank());
                std::vector<int> highest(2);
                std::vector<double> mean(6, comm.rank());
                std::vector<double> averaged(6);
                Batch batch;
                batch.add(of("(4):(P+)", "(4):(R)", Shape{8}), TensorView<float>(sum.data(), Shape{8}),
                          TensorView<float>(summed.data(), Shape{8}));
                auto const reduce = of("(4):(P>)", "(4):(S0)", Shape{5});
                DynamicShape const part = reduce.to().local_shape(comm.rank());
                batch.add(reduce, TensorView<int>(most.data(), Shape{5}), TensorView<int>(highest.data(), part));
                batch.add(of("(4):(Pavg)", "(4):(R)", Shape{6}), TensorView<double>(mean.data(), Shape{6}),
                          TensorView<double>(averaged.data(), Shape{6}));
                BatchOptions options;
                options.bucket_bytes = budget;
                auto job = prepare(batch, comm, options);
                for (int run = 0; run < 3; ++run) {
                    job.run();
                    CHECK(summed == std::vector<float>(8, 4.0F));
                    for (Index i = 0; i < part.size(); ++i) CHECK(highest[static_cast<std::size_t>(i)] == 3);
                    CHECK(averaged == std::vector<double>(6, 1.5));
                }
            });
        }
    }

    TEST_CASE("the empty batch is legal, and so is one of views only: nothing is exchanged") {
        run_on_threads(3, [](ThreadCommunicator& threads) {
            int const rank = threads.rank();
            Trace trace(10);
            Traced<ThreadCommunicator> comm(threads.split(0, rank), trace);
            Batch batch;
            CHECK(batch.empty());
            redistribute(batch, comm);
            Memory memory;
            memory.add(of("(3):(R)", "(3):(S0)", Shape{7}), DType::f32, rank);
            memory.list(batch, rank);
            CHECK(rounds(batch, rank).empty());
            auto job = prepare(batch, comm);
            job.run();
            auto request = job.start();
            request.wait();
            CHECK(memory.arrived());
            CHECK(seen(trace, TraceOperation::exchange).empty());
            CHECK(seen(trace, TraceOperation::agree).size() == 2);  // one per batch prepared
        });
    }

    TEST_CASE("ranks outside the meshes of some tensors, or of all, take part") {
        run_on_threads(4, [](ThreadCommunicator& comm) {
            int const rank = comm.rank();
            Memory memory;
            memory.add(of("(2):(S0)", "(2):(R)", Shape{8}), DType::f32, rank);
            memory.add(plan_across(parse("(2)+1:(S0)", Shape{8}), parse("(3):(S0)", Shape{8})), DType::u8, rank);
            memory.add(of("(2):(R)", "(2):(S0)", Shape{8}), DType::f32, rank);
            Batch batch;
            memory.list(batch, rank);
            auto job = prepare(batch, comm);
            job.run();
            CHECK(memory.arrived());
        });
    }

    TEST_CASE("a rank outside the meshes that adds views without a type hears what to give") {
        check_same(thrown_by(3,
                             [](ThreadCommunicator& comm) {
                                 std::vector<float> part(2);
                                 std::vector<float> all(4);
                                 ConstDynamicView from(part.data(), DType::f32, Shape{2});
                                 DynamicView to(all.data(), DType::f32, Shape{4});
                                 if (comm.rank() == 2) from = ConstDynamicView();
                                 if (comm.rank() == 2) to = DynamicView();
                                 Batch batch;
                                 batch.add(of("(2):(S0)", "(2):(R)", Shape{4}), from, to, "w");
                                 static_cast<void>(prepare(batch, comm));
                             }),
                   ErrorCode::mismatch,
                   {"U8 (outside the meshes only the type of the views counts: DynamicView(nullptr, dtype, Shape{0}))",
                    "but rank 0 prepared"});
    }

    TEST_CASE("the batch may be gone when the prepared plan runs") {
        run_on_threads(2, [](ThreadCommunicator& comm) {
            Memory memory;
            memory.add(of("(2):(S0)", "(2):(S1)", Shape{4, 4}), DType::f64, comm.rank());
            memory.add(of("(2):(S1)", "(2):(S0)", Shape{4, 4}), DType::f64, comm.rank());
            std::vector<PreparedPlan> job;
            {
                Batch batch;
                memory.list(batch, comm.rank());
                job.push_back(prepare(batch, comm));
            }
            job.back().run();
            CHECK(memory.arrived());
        });
    }

    TEST_CASE("a group of one: every kind of plan runs on SelfCommunicator") {
        SelfCommunicator comm;
        std::vector<std::vector<float>> destinations;
        std::vector<float> const source{1, 2, 3, 4, 5, 6};
        Batch batch;
        Shape const shape{3, 2};
        destinations.reserve(100);
        for (char const* from : {"R", "S0", "P+", "P>", "Pavg"}) {
            for (char const* to : {"R", "S0", "S1:cyc2", "P+", "P*", "Pavg"}) {
                auto const a = parse(errors::concat("(1):(", from, ")"), shape);
                auto const b = parse(errors::concat("(1):(", to, ")"), shape);
                if (fills_average(a.signature(), b.signature())) continue;
                destinations.emplace_back(6, -9.0F);
                batch.add(plan(a, b), TensorView<float const>(source.data(), shape),
                          TensorView<float>(destinations.back().data(), shape), errors::concat(from, " -> ", to));
            }
        }
        auto job = prepare(batch, comm);
        CHECK(test::allocations_in([&] { job.run(); }) == 0);
        for (std::size_t i = 0; i < destinations.size(); ++i) {
            CAPTURE(batch.tensors()[i].name);
            CHECK(destinations[i] == source);
        }
    }

    TEST_CASE("typed plans and views are added as they are") {
        auto const typed =
            plan(distribution<Shard<0>>(Mesh<2>{}, Shape<4>{}), distribution<Replicate>(Mesh<2>{}, Shape<4>{}));
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<int> const source{comm.rank() * 2, comm.rank() * 2 + 1};
            std::vector<int> destination(4);
            Batch batch;
            batch.add(typed, TensorView<int const>(source.data(), Shape<2>{}),
                      TensorView<int>(destination.data(), Shape<4>{}), "typed");
            redistribute(batch, comm);
            CHECK(destination == std::vector<int>{0, 1, 2, 3});
        });
    }

    TEST_CASE("tensors that own their memory are added, beside views of any kind") {
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            auto const rows = distribution<Shard<0>>(Mesh{2}, Shape{4});
            auto const whole = distribution<Replicate>(Mesh{2}, Shape{4});
            Tensor<int> source(Shape{2});
            source(0) = 2 * comm.rank();
            source(1) = source(0) + 1;
            Tensor<int> first(Shape{4});
            Tensor<float> second(Shape{4});
            Tensor<int> third(Shape{4});
            Batch batch;
            batch.add(plan(rows, whole), std::as_const(source), first, "first");
            batch.add(plan(rows, whole), source, second, "second", Casting{});
            batch.add(plan(rows, whole), ConstDynamicView(source), third);
            redistribute(batch, comm);
            for (Index i = 0; i < 4; ++i) {
                CHECK(first(i) == i);
                CHECK(second(i) == static_cast<float>(i));
                CHECK(third(i) == i);
            }
        });
    }

    TEST_CASE("tensors cast and scale on their way, each as it was asked to") {
        run_on_threads(2, [](ThreadCommunicator& comm) {
            std::vector<float> const floats(4, 1.5F);
            std::vector<BFloat16> halves(8);
            std::vector<double> doubles(2);
            std::vector<float> scaled(8);
            Batch batch;
            TensorView<float const> const source(floats.data(), Shape{4});
            batch.add(of("(2):(S0)", "(2):(R)", Shape{8}), source, TensorView<BFloat16>(halves.data(), Shape{8}), "a",
                      Casting{});
            batch.add(of("(2):(P+)", "(2):(S0)", Shape{4}), source, TensorView<double>(doubles.data(), Shape{2}), "b",
                      Casting{2.0});
            PrepareOptions twice;
            twice.factor = 2.0;
            batch.add(of("(2):(S0)", "(2):(R)", Shape{8}), source, TensorView<float>(scaled.data(), Shape{8}), "c",
                      twice);
            for (Index budget : {Index{0}, Index{1} << 20}) {
                BatchOptions options;
                options.bucket_bytes = budget;
                prepare(batch, comm, options).run();
                for (BFloat16 half : halves) CHECK(static_cast<float>(half) == 1.5F);
                CHECK(doubles == std::vector<double>(2, 6.0));
                CHECK(scaled == std::vector<float>(8, 3.0F));
            }
        });
    }
    TEST_CASE("ranks that cast or scale a tensor differently are told which") {
        check_spoilt(
            ErrorCode::mismatch, {"prepared tensor 1 'weight' as", "I64 as F32, but rank 0", "[6,6] I64. Fix:"},
            [](Tensors& tensors, BatchOptions&, int rank) {
                if (rank != 2) return;
                BatchTensor& weight = tensors[1];
                weight.options = Casting{};
                weight.destination = DynamicView(weight.destination.data(), DType::f32, weight.destination.shape());
            });
        check_spoilt(ErrorCode::mismatch, {"rank 2 of 3: prepared tensor 0 'bias'", "F32 times 0.5"},
                     [](Tensors& tensors, BatchOptions&, int rank) {
                         if (rank == 2) tensors[0].options.factor = 0.5;
                     });
    }

    // ---- Few exchanges ---------------------------------------------------------------------------------------------

    TEST_CASE("a model of 4,659 tensors moves in a few exchanges; one by one it takes one each") {
        demo::ModelConfig config = demo::qwen1_5_moe_a2_7b();  // the real list, at sizes a test can hold
        config.hidden = 16;
        config.heads = config.kv_heads = 2;
        config.head_dim = 8;
        config.vocabulary = 1000;
        config.expert_intermediate = 11;
        config.shared_intermediate = 44;
        auto list = demo::model_list(config);
        REQUIRE(list.size() == 4659);
        if (test::fewer_seeds()) list.resize(700);
        constexpr int ranks = 4;
        run_on_threads(ranks, [&](ThreadCommunicator& threads) {
            int const rank = threads.rank();
            Trace trace(10'000);
            Traced<ThreadCommunicator> comm(threads.split(0, rank), trace);
            Memory memory;
            std::vector<std::string> names;
            Index share = 0;
            for (TensorSpec const& tensor : list) {
                // Sharded by rows, as FSDP leaves it, to tensor parallel: columns of matrices, vectors whole.
                std::string const to = tensor.shape.rank() == 2 ? "(4):(S1)" : "(4):(R)";
                memory.add(of("(4):(S0)", to, tensor.shape), tensor.dtype, rank);
                names.push_back(tensor.name);
                Index const size = tensor.shape.size() * bytes(tensor.dtype);
                share += tensor.shape.rank() == 2 ? detail::ceil_div(size, ranks) : size;
            }
            Batch batch;
            batch.reserve(list.size());
            memory.list(batch, rank, names);
            BatchOptions options;
            options.bucket_bytes = 64 << 10;
            auto job = prepare(batch, comm, options);
            Index const fewest = detail::ceil_div(share, options.bucket_bytes);
            job.run();
            REQUIRE(memory.arrived());
            auto const records = seen(trace, TraceOperation::exchange);
            CHECK(seen(trace, TraceOperation::agree).size() == 1);
            CHECK(static_cast<Index>(records.size()) >= fewest);
            CHECK(static_cast<Index>(records.size()) <= 2 * fewest);
            CHECK(records.size() < 40);
            for (TraceRecord const& record : records) {
                CHECK(static_cast<int>(record.peer_count) <=
                      ranks - 1);  // what a transport may fuse into one message each
                CHECK(record.moved.bytes_received <= 2 * options.bucket_bytes);
            }
            trace.clear();
            options.bucket_bytes = 0;
            auto one_by_one = prepare(batch, comm, options);
            memory.spoil();
            one_by_one.run();
            CHECK(memory.arrived());
            CHECK(seen(trace, TraceOperation::exchange).size() == list.size());
        });
    }

    TEST_CASE("exchanges are shared by tensors with one phase and tensors with two") {
        run_on_threads(2, [](ThreadCommunicator& threads) {
            Trace trace(10);
            Traced<ThreadCommunicator> comm(threads.split(0, threads.rank()), trace);
            Memory memory;
            memory.add(of("(2):(S0)", "(2):(S1)", Shape{4, 4}), DType::f64, comm.rank());
            std::vector<int> source(4, 1);
            std::vector<int> destination(4);
            Batch batch;
            memory.list(batch, comm.rank());
            batch.add(of("(2):(P+)", "(2):(R)", Shape{4}), TensorView<int>(source.data(), Shape{4}),
                      TensorView<int>(destination.data(), Shape{4}));
            redistribute(batch, comm);
            CHECK(memory.arrived());
            CHECK(destination == std::vector<int>(4, 2));
            auto const exchanges = seen(trace, TraceOperation::exchange);
            REQUIRE(exchanges.size() == 2);
            CHECK(exchanges[0].moved.messages_sent == 2);
            CHECK(exchanges[1].moved.messages_sent == 1);
        });
    }

    TEST_CASE("run() and start() allocate nothing") {
        std::atomic<int> total{0};
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            int const rank = comm.rank();
            Memory memory;
            for (int i = 0; i < 20; ++i) memory.add(of("(4):(S0)", "(4):(S1)", Shape{13, 9}), DType::f64, rank);
            memory.add(of("(4):(R)", "(4):(S0)", Shape{13}), DType::u8, rank);
            std::vector<float> source(8);
            std::vector<float> destination(8);
            Batch batch;
            memory.list(batch, rank);
            batch.add(of("(4):(P+)", "(4):(R)", Shape{8}), TensorView<float>(source.data(), Shape{8}),
                      TensorView<float>(destination.data(), Shape{8}));
            BatchOptions options;
            options.bucket_bytes = 1000;
            auto job = prepare(batch, comm, options);
            total += test::allocations_in([&] { job.run(); });
            total += test::allocations_in([&] {
                auto request = job.start();
                request.wait();
            });
        });
        CHECK(total == 0);
    }

    // ---- Scratch memory --------------------------------------------------------------------------------------------

    TEST_CASE("rounds are cut so that their scratch memory stays under the cap, and use the same memory in turn") {
        run_on_threads(2, [](ThreadCommunicator& comm) {
            Plan<> const reduce = of("(2):(P+)", "(2):(S0)", Shape{64});
            Index const each = workspace_bytes(reduce, comm.rank(), DType::f64);
            std::vector<std::vector<double>> sources(10, std::vector<double>(64, comm.rank() + 1.0));
            std::vector<std::vector<double>> destinations(10, std::vector<double>(32));
            Batch batch;
            for (std::size_t i = 0; i < 10; ++i) {
                batch.add(reduce, TensorView<double>(sources[i].data(), Shape{64}),
                          TensorView<double>(destinations[i].data(), Shape{32}));
            }
            CHECK(rounds(batch, comm.rank()).size() == 1);
            CHECK(workspace_bytes(batch, comm.rank()) == 10 * each);
            BatchOptions options;
            options.max_workspace_bytes = 3 * each + 1;
            CHECK(rounds(batch, comm.rank(), options).size() == 4);
            CHECK(workspace_bytes(batch, comm.rank(), options) == 3 * each);
            prepare(batch, comm, options).run();
            for (auto const& destination : destinations) CHECK(destination == std::vector<double>(32, 3.0));

            // The caller's memory: exactly what was asked for, and no byte beyond it.
            auto const size = static_cast<std::size_t>(3 * each);
            std::vector<std::byte> memory(size + 64, std::byte{0x5a});
            options.workspace = std::span<std::byte>(memory).subspan(32, size);
            for (auto& destination : destinations) destination.assign(32, 0.0);
            prepare(batch, comm, options).run();
            for (auto const& destination : destinations) CHECK(destination == std::vector<double>(32, 3.0));
            for (std::size_t i = 0; i < 32; ++i) {
                REQUIRE(memory[i] == std::byte{0x5a});
                REQUIRE(memory[size + 32 + i] == std::byte{0x5a});
            }
        });
    }

    TEST_CASE("an empty tensor may lie anywhere, in the workspace too") {
        run_on_threads(2, [](ThreadCommunicator& comm) {
            Plan<> const reduce = of("(2):(P+)", "(2):(S0)", Shape{64});
            std::vector<double> source(64, comm.rank() + 1.0);
            std::vector<double> destination(32);
            std::vector<std::byte> memory(static_cast<std::size_t>(workspace_bytes(reduce, comm.rank(), DType::f64)));
            DynamicView const none(memory.data() + 64, DType::f64, Shape{0});
            Batch batch;
            batch.add(reduce, TensorView<double>(source.data(), Shape{64}),
                      TensorView<double>(destination.data(), Shape{32}));
            batch.add(of("(2):(R)", "(2):(S0)", Shape{0}), none, none);
            BatchOptions options;
            options.workspace = memory;
            prepare(batch, comm, options).run();
            CHECK(destination == std::vector<double>(32, 3.0));
        });
    }

    TEST_CASE("a fold beyond the cap is a BufferError on all that names the tensor, its need and the cap") {
        Plan<> const reduce = of("(2):(P+)", "(2):(S0)", Shape{64});
        Index const each = workspace_bytes(reduce, 0, DType::f64);
        auto const attempt = [&](BatchOptions const& options) {
            return thrown_by(2, [&](ThreadCommunicator& comm) {
                std::vector<double> source(64);
                std::vector<double> destination(32);
                Batch batch;
                batch.add(reduce, TensorView<double>(source.data(), Shape{64}),
                          TensorView<double>(destination.data(), Shape{32}), "lm_head.grad");
                static_cast<void>(prepare(batch, comm, options));
            });
        };
        BatchOptions options;
        options.max_workspace_bytes = each - 1;
        check_same(
            attempt(options), ErrorCode::buffer,
            {"rank 0 of 2: tensor 0 'lm_head.grad': reshard::prepare: its fold needs ", errors::concat(each, " bytes"),
             errors::concat("a round may use ", each - 1), "Fix: raise BatchOptions::max_workspace_bytes"});
        options.max_workspace_bytes = each;
        CHECK(attempt(options)[0] == Thrown{});

        std::vector<std::byte> little(8);
        options.workspace = little;
        check_same(attempt(options), ErrorCode::buffer,
                   {errors::concat("the workspace of rank 0 has 8 bytes, the batch needs ", each),
                    "Fix: ask workspace_bytes"});
    }

    // ---- Errors: the same on every rank, before anything is touched ------------------------------------------------

    TEST_CASE("what is wrong with one tensor on one rank is said on all, with the tensor's number and name") {
        check_spoilt(ErrorCode::buffer,
                     {"rank 1 of 3: tensor 1 'weight': reshard::prepare: the source of rank 1 is null"},
                     [](Tensors& tensors, BatchOptions&, int rank) {
                         if (rank == 1) tensors[1].source = ConstDynamicView(nullptr, DType::i64, Shape{2, 6});
                     });
        check_spoilt(ErrorCode::buffer,
                     {"rank 2 of 3: tensor 2: reshard::prepare: the destination of rank 2 has shape"},
                     [](Tensors& tensors, BatchOptions&, int rank) {
                         tensors[2].name = "";
                         if (rank == 2)
                             tensors[2].destination = DynamicView(tensors[2].destination.data(), DType::u8, Shape{4});
                     });
        check_spoilt(
            ErrorCode::mesh, {"tensor 0 'bias': reshard::prepare: the mesh (4) has rank 3"},
            [](Tensors& tensors, BatchOptions&, int) { tensors[0].plan = of("(4):(S0)", "(4):(R)", Shape{12}); });
        check_spoilt(
            ErrorCode::dtype, {"tensor 0 'bias': reshard::prepare: band is not defined for F32"},
            [](Tensors& tensors, BatchOptions&, int) { tensors[0].plan = of("(3):(P&)", "(3):(R)", Shape{12}); });
        check_spoilt(ErrorCode::mismatch,
                     {"rank 1 of 3: tensor 0 'bias': reshard::prepare: the source of rank 1 holds"},
                     [](Tensors& tensors, BatchOptions&, int rank) {
                         if (rank == 1) {
                             tensors[0].source = ConstDynamicView(tensors[0].source.data(), DType::u32, Shape{4});
                         }
                     });
        test::FakeCuda const cuda;
        if (!cuda.works()) return;
        check_spoilt(ErrorCode::buffer,
                     {"rank 1 of 3: tensor 1 'weight': reshard: the transport 'threads' moves memory of"},
                     [&](Tensors& tensors, BatchOptions&, int rank) {
                         if (rank == 1) cuda.claim(tensors[1].source.data(), 8);
                     });
    }

    TEST_CASE("tensors that share memory which one of them writes are a BufferError that names both") {
        check_spoilt(ErrorCode::buffer,
                     {"on rank 1 the destination of tensor 3 'again' overlaps the destination of tensor 0 'bias'"},
                     [](Tensors& tensors, BatchOptions&, int rank) {
                         tensors.push_back(tensors[0]);
                         tensors[3].name = "again";
                         static thread_local float elsewhere[12];
                         if (rank != 1) tensors[3].destination = DynamicView(elsewhere, DType::f32, Shape{12});
                     });
        check_spoilt(ErrorCode::buffer,
                     {"on rank 0 the destination of tensor 0 'bias' overlaps the source of tensor 3 'next'"},
                     [](Tensors& tensors, BatchOptions&, int) {
                         static thread_local float elsewhere[4];
                         tensors.push_back({of("(3):(R)", "(3):(S0)", Shape{12}), tensors[0].destination,
                                            DynamicView(elsewhere, DType::f32, Shape{4}), "next"});
                     });
    }

    TEST_CASE("two tensors may read the same source") {
        run_on_threads(2, [](ThreadCommunicator& comm) {
            std::vector<int> const source(2, comm.rank());
            std::vector<int> first(4);
            std::vector<int> second(4);
            Plan<> const gather = of("(2):(S0)", "(2):(R)", Shape{4});
            Batch batch;
            for (auto* to : {&first, &second}) {
                batch.add(gather, TensorView<int const>(source.data(), Shape{2}),
                          TensorView<int>(to->data(), Shape{4}));
            }
            redistribute(batch, comm);
            CHECK(first == std::vector<int>{0, 0, 1, 1});
            CHECK(second == first);
        });
    }

    TEST_CASE("ranks that list tensors in another order are told which tensor is the first to differ") {
        check_spoilt(ErrorCode::mismatch,
                     {"rank 2 of 3: prepared tensor 1 'mask' as (3):(R) -> (3):(S0) of [9] U8, but rank 0 prepared "
                      "tensor 1 'weight' as (3):(S0) -> (3):(S1) of [6,6] I64. Fix:"},
                     [](Tensors& tensors, BatchOptions&, int rank) {
                         if (rank == 2) std::swap(tensors[1], tensors[2]);
                     });
    }
    TEST_CASE("a barrier() of one rank while the others prepare is a MismatchError on all that says so") {
        for (int const stray : {0, 2}) {
            check_same(thrown_by(3,
                                 [&](ThreadCommunicator& comm) {
                                     if (comm.rank() == stray) return barrier(comm);
                                     static_cast<void>(prepare(Batch{}, comm));
                                 }),
                       ErrorCode::mismatch, {"is in barrier()", "is in prepare(Batch)", "Fix: make all ranks call"});
        }
    }
    TEST_CASE("names count: two tensors of one shape that change places are noticed") {
        check_spoilt(ErrorCode::mismatch, {"prepared tensor 0 'tias' as", "but rank 0 prepared tensor 0 'bias' as"},
                     [](Tensors& tensors, BatchOptions&, int rank) {
                         if (rank == 1) tensors[0].name = "tias";
                     });
    }
    TEST_CASE("a tensor that one rank does not list, or only one rank lists, is named") {
        check_spoilt(
            ErrorCode::mismatch,
            {"rank 1 of 3: prepared a batch of 2 tensors, without a tensor 2, but rank 0 prepared tensor 2 'mask'"},
            [](Tensors& tensors, BatchOptions&, int rank) {
                if (rank == 1) tensors.pop_back();
            });
        check_spoilt(ErrorCode::mismatch,
                     {"rank 1 of 3: prepared tensor 2 'mask'", "but rank 0 prepared a batch of 2 tensors, without"},
                     [](Tensors& tensors, BatchOptions&, int rank) {
                         if (rank == 0) tensors.pop_back();
                     });
        check_spoilt(ErrorCode::mismatch, {"rank 1 of 3: prepared tensor 0 'bias'", "a batch of 0 tensors"},
                     [](Tensors& tensors, BatchOptions&, int rank) {
                         if (rank == 0) tensors.clear();
                     });
    }
    TEST_CASE("element types that differ between ranks are told by tensor") {
        check_spoilt(ErrorCode::mismatch, {"rank 2 of 3: prepared tensor 0", "[12] I32, but rank 0", "[12] F32."},
                     [](Tensors& tensors, BatchOptions&, int rank) {
                         if (rank != 2) return;
                         BatchTensor& bias = tensors[0];
                         bias.source = ConstDynamicView(bias.source.data(), DType::i32, bias.source.shape());
                         bias.destination = DynamicView(bias.destination.data(), DType::i32, bias.destination.shape());
                     });
    }
    TEST_CASE("options that differ between ranks are a MismatchError that shows them") {
        check_spoilt(ErrorCode::mismatch,
                     {"rank 1 of 3: prepared a batch with bucket_bytes 5 and", "but rank 0 prepared a batch with"},
                     [](Tensors&, BatchOptions& options, int rank) {
                         if (rank == 1) options.bucket_bytes = 5;
                     });
        check_spoilt(ErrorCode::buffer, {"bucket_bytes is -1", "Fix: no size is negative."},
                     [](Tensors&, BatchOptions& options, int) { options.bucket_bytes = -1; });
        check_spoilt(ErrorCode::buffer, {"fold_elements is -1. Fix: 0 or more"},
                     [](Tensors& tensors, BatchOptions&, int) { tensors[0].options.fold_elements = -1; });
    }
    TEST_CASE("a rank with an error of its own is named before ranks that differ; the group stays usable") {
        auto const thrown = thrown_by(3, [](ThreadCommunicator& comm) {
            Memory memory;
            memory.add(of("(3):(S0)", "(3):(R)", Shape{12}), DType::f32, comm.rank());
            Batch batch;
            memory.list(batch, comm.rank());
            Batch bad;
            if (comm.rank() != 1) memory.list(bad, comm.rank());
            if (comm.rank() == 2) bad.add(of("(3):(S0)", "(3):(R)", Shape{12}), ConstDynamicView{}, DynamicView{}, "x");
            Thrown first;
            try {
                static_cast<void>(prepare(bad, comm));
            } catch (Error const& error) {
                first = {error.code(), error.message()};
            }
            prepare(batch, comm).run();
            CHECK(memory.arrived());
            errors::raise(first.code, first.message);
        });
        check_same(thrown, ErrorCode::buffer, {"rank 2 of 3: tensor 1 'x'"});
    }
}
