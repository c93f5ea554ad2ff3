// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/memory/host_memory.hpp: plans do their own work by the memory that the communicator states.
#include <reshard/memory/host_memory.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/comm/traced.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/exec/boxes.hpp>
#include <reshard/exec/redistribute.hpp>

#include "support/thrown.hpp"

#include <cmath>  // signbit
#include <memory>
#include <vector>

namespace {
using namespace reshard;
using test::thrown_by;

struct Work {
    Index allocated = 0;
    int delivered = 0;
    int folds = 0;
    int folds_that_convert = 0;
    int scratch_given = 0;
    int fills = 0;
    int scales = 0;
    bool refuses = false;         ///< to fold
    bool refuses_copies = false;  ///< to deliver
    std::weak_ptr<Workspace> scratch;
};

/// The host's memory, and how often it was asked.
class CountingMemory final : public MemoryPolicy {
public:
    explicit CountingMemory(Work& work) noexcept : work_(&work) {}

    void check(std::string_view what, void const* memory, Index alignment) const override {
        if (reinterpret_cast<std::uintptr_t>(memory) % static_cast<std::uintptr_t>(alignment) == 0) return;
        errors::raise(ErrorCode::buffer, errors::concat(what, " lies askew. Fix: align it."));
    }
    [[nodiscard]] Workspace allocate(Index bytes) const override {
        work_->allocated += bytes;
        struct Scratch {
            std::shared_ptr<Workspace> memory;
            [[nodiscard]] std::byte* data() const noexcept { return memory->data(); }
        };
        Scratch scratch{std::make_shared<Workspace>(host_memory().policy.allocate(bytes))};
        work_->scratch = scratch.memory;
        return Workspace(std::move(scratch));
    }
    void deliver(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) const override {
        if (work_->refuses_copies) errors::raise(ErrorCode::deadline, "the memory refuses to copy. Fix: none.");
        work_->delivered += static_cast<int>(sends.size());
        host_memory().policy.deliver(sends, receives);
    }
    void fold(FoldWork const& fold) const override {
        ++(fold.to.conversion.is_active() ? work_->folds_that_convert : work_->folds);
        if (work_->refuses) errors::raise(ErrorCode::transport, "the memory refuses to fold. Fix: none.");
        host_memory().policy.fold(fold);
    }
    void check_scratch(void const*) const override { ++work_->scratch_given; }
    void fill_identity(Reduce op, DType dtype, std::byte* to, transport::StridedBox const& box) const override {
        ++work_->fills;
        host_memory().policy.fill_identity(op, dtype, to, box);
    }
    void scale(DType dtype, std::byte* to, transport::StridedBox const& box, Index multiply,
               Index divide) const override {
        ++work_->scales;
        host_memory().policy.scale(dtype, to, box, multiply, divide);
    }

private:
    Work* work_;
};

/// Ranks as threads whose tensors lie in a CountingMemory.
class Counted : public PolicyBase<Counted, ThreadCommunicator> {
public:
    using PolicyBase::split;

    Counted(ThreadCommunicator threads, Work& work) : PolicyBase(std::move(threads)), work_(&work), memory_(work) {}
    [[nodiscard]] MemoryPolicy const* memory() const { return &memory_; }
    [[nodiscard]] Counted split(int colour, int key) { return {inner_.split(colour, key), *work_}; }

private:
    Work* work_;
    CountingMemory memory_;
};

}  // namespace

TEST_SUITE("memory/host_memory") {
    TEST_CASE("the memory that is asked is that which the transport below all policies states, else the host's") {
        SelfCommunicator self;
        CHECK(CommunicatorRef(self).memory() == nullptr);
        run_on_threads(1, [](ThreadCommunicator& threads) {
            Work work;
            Trace trace;
            Traced<Counted> comm(Counted(threads.split(0, 0), work), trace);
            CHECK(CommunicatorRef(comm).memory() == comm.inner().memory());
            Traced<ThreadCommunicator> plain(threads.split(0, 0), trace);
            CHECK(CommunicatorRef(plain).memory() == nullptr);
        });
    }

    TEST_CASE("a plan allocates, copies, fills, folds and scales by the memory that the communicator states") {
        auto const thrown = thrown_by(3, [](ThreadCommunicator& threads) {
            Work work;
            Trace trace;
            Traced<Counted> comm(Counted(threads.split(0, threads.rank()), work), trace);
            std::vector<float> source(9, static_cast<float>(threads.rank() + 1));
            std::vector<float> result(9);
            TensorView<float> const from(source.data(), Shape{9});
            TensorView<float> const to(result.data(), Shape{9});
            auto const run = [&](char const* a, char const* b) {
                work = {};
                redistribute(plan(parse(a, Shape{9}), parse(b, Shape{9})), comm, ConstDynamicView(from),
                             DynamicView(to));
            };
            run("(3):(P+)", "(3):(R)");
            CHECK(result == std::vector<float>(9, 6.0F));
            CHECK(work.folds == 1);
            CHECK(work.allocated > 0);
            CHECK(work.fills + work.scales == 0);
            run("(3):(P+)", "(3):(Pavg)");
            CHECK(result[4] == 3.0F * source[0]);
            CHECK(work.delivered == 1);
            CHECK(work.scales == 1);
            run("(3):(R)", "(3):(P+)");
            CHECK(work.fills == 1);
            CHECK(work.delivered == (threads.rank() == 0 ? 1 : 0));
            CHECK(work.allocated + work.folds == 0);

            // A fold and the conversion of its results are one operation, where the memory has it.
            auto const move = plan(parse("(3):(P+)", Shape{9}), parse("(3):(S0)", Shape{9}));
            PrepareOptions options{.factor = 0.5};
            std::vector<std::byte> scratch(
                static_cast<std::size_t>(workspace_bytes(move, threads.rank(), DType::f32, options)));
            options.workspace = scratch;
            work = {};
            redistribute(move, comm, ConstDynamicView(from), DynamicView(TensorView<float>(result.data(), Shape{3})),
                         options);
            CHECK(result[0] == 3.0F);
            CHECK(work.folds_that_convert == 1);
            CHECK(work.folds + work.delivered + work.allocated == 0);
            CHECK(work.scratch_given == 1);

            // All addends at once where memory is not the host's, unless it is said how many.
            std::vector<float> const many(600'000, 1.0F);
            std::vector<float> part(200'000);
            auto const large = plan(parse("(3):(P+)", Shape{600'000}), parse("(3):(S0)", Shape{600'000}));
            for (Index const at_a_time : {Index{0}, Index{1} << 17}) {
                work = {};
                redistribute(large, comm, ConstDynamicView(TensorView<float const>(many.data(), Shape{600'000})),
                             DynamicView(TensorView<float>(part.data(), Shape{200'000})),
                             PrepareOptions{.fold_elements = at_a_time});
                CHECK(work.folds == (at_a_time == 0 ? 1 : 5));
                CHECK(part == std::vector<float>(200'000, 3.0F));
            }

            // Boxes that overlap: three addends of the first element, one of the others, which is copied.
            work = {};
            BoxTable const parts(Shape{9}, {{0, Box{{0, 9}}}, {1, Box{{0, 1}}}, {2, Box{{0, 1}}}});
            BoxTable const whole(Shape{9}, {{1, Box{{0, 9}}}});
            ConstDynamicView const mine = TensorView<float const>(source.data(), Shape{threads.rank() == 0 ? 9 : 1});
            DynamicView const all = to;
            redistribute(parts, whole, DType::f32, comm, {&mine, 1}, {&all, threads.rank() == 1 ? 1U : 0U},
                         Reduce::sum);
            CHECK(work.folds == (threads.rank() == 1 ? 1 : 0));
            CHECK(work.delivered == (threads.rank() == 1 ? 4 : 0));
            if (threads.rank() == 1) CHECK(result == std::vector<float>{6, 1, 1, 1, 1, 1, 1, 1, 1});
        });
        for (auto const& each : thrown) CHECK(each == test::Thrown{});
    }

    TEST_CASE("on devices, a workspace that one rank gives changes nothing for the others") {
        auto const thrown = thrown_by(3, [](ThreadCommunicator& threads) {
            Work work;
            Counted comm(threads.split(0, threads.rank()), work);
            DynamicShape const shape{600'000};
            std::vector<float> const many(600'000, 1.0F);
            std::vector<float> part(200'000);
            std::vector<float> whole(600'000);
            ConstDynamicView const from(TensorView<float const>(many.data(), shape));
            DynamicView const to(TensorView<float>(part.data(), Shape{200'000}));
            DynamicView const all(TensorView<float>(whole.data(), shape));
            Plan<> const folds = plan(parse("(3):(P+)", shape), parse("(3):(S0)", shape));
            Index const needed = workspace_bytes(folds, comm, DType::f32);
            CHECK(needed > 3 * 200'000 * 4);  // all addends at once
            CHECK(workspace_bytes(folds, comm, DType::f32, {.fold_elements = 1000}) < needed);
            CHECK(workspace_bytes(folds, comm.rank(), DType::f32) < needed);
            std::vector<std::byte> scratch(threads.rank() == 1 ? static_cast<std::size_t>(needed) : 0);
            redistribute(folds, comm, from, to, PrepareOptions{.workspace = scratch});
            CHECK(part == std::vector<float>(200'000, 3.0F));
            CHECK(work.folds == 1);

            // Nor where nothing is folded.
            Plan<> const gathers = plan(parse("(3):(S0)", shape), parse("(3):(R)", shape));
            redistribute(gathers, comm, ConstDynamicView(to), all, PrepareOptions{.workspace = scratch});
            CHECK(whole == std::vector<float>(600'000, 3.0F));

            Batch batch;
            batch.add(folds, from, to);
            batch.add(gathers, ConstDynamicView(to), all);  // reads what the other writes
            CHECK_THROWS_AS(redistribute(batch, comm), BufferError);
            std::vector<float> second(200'000);
            Batch good;
            good.add(folds, from, to);
            good.add(folds, from, DynamicView(TensorView<float>(second.data(), Shape{200'000})));
            BatchOptions options;
            CHECK(workspace_bytes(good, comm, options) == needed);
            CHECK(workspace_bytes(good, comm.rank(), options) < needed);
            CHECK(rounds(good, comm, options).size() == 2);
            options.max_workspace_bytes = needed;
            options.workspace = scratch;
            redistribute(good, comm, options);
            CHECK(second == part);
            options.max_workspace_bytes = needed - 1;
            CHECK_THROWS_WITH_AS(redistribute(good, comm, options),
                                 doctest::Contains("raise BatchOptions::max_workspace_bytes to"), BufferError);
            CHECK_THROWS_AS(static_cast<void>(rounds(good, comm, options)), BufferError);
        });
        for (auto const& each : thrown) CHECK(each == test::Thrown{});
    }

    TEST_CASE("a memory refuses views on every rank, and work that fails on one rank ends the others") {
        auto const thrown = thrown_by(3, [](ThreadCommunicator& threads) {
            Work work;
            Counted comm(threads.split(0, threads.rank()), work);
            std::vector<float> memory(9);
            std::vector<float> result(9);
            bool const culprit = threads.rank() == 1;
            auto* const askew = reinterpret_cast<std::byte*>(memory.data()) + (culprit ? 2 : 0);
            Plan<> const sum = plan(parse("(3):(P+)", Shape{8}), parse("(3):(R)", Shape{8}));
            CHECK_THROWS_WITH_AS(static_cast<void>(prepare(sum, comm, ConstDynamicView(askew, DType::f32, Shape{8}),
                                                           DynamicView(TensorView<float>(result.data(), Shape{8})))),
                                 "rank 1 of 3: source lies askew. Fix: align it.", BufferError);
            auto job = prepare(sum, comm, ConstDynamicView(TensorView<float>(memory.data(), Shape{8})),
                               DynamicView(TensorView<float>(result.data(), Shape{8})));
            work.refuses = culprit;
            job.run();
        });
        CHECK(thrown[1].code == ErrorCode::transport);
        CHECK(thrown[0].code == ErrorCode::peer_failed);
        CHECK(thrown[2].code == ErrorCode::peer_failed);
    }

    TEST_CASE("whatever a plan was about when it failed, its scratch memory is kept") {
        for (bool before_exchanges : {true, false}) {
            CAPTURE(before_exchanges);
            std::weak_ptr<Workspace> scratch;
            auto const thrown = thrown_by(2, [&](ThreadCommunicator& threads) {
                Work work;
                Counted comm(threads.split(0, threads.rank()), work);
                std::vector<float> source(8);
                std::vector<float> sum(4);
                std::vector<float> part(4);
                Batch batch;
                batch.add(plan(parse("(2):(P+)", Shape{8}), parse("(2):(S0)", Shape{8})),
                          ConstDynamicView(source.data(), DType::f32, Shape{8}),
                          DynamicView(sum.data(), DType::f32, Shape{4}));
                batch.add(plan(parse("(2):(R)", Shape{8}), parse("(2):(S0)", Shape{8})),
                          ConstDynamicView(source.data(), DType::f32, Shape{8}),
                          DynamicView(part.data(), DType::f32, Shape{4}));
                {
                    auto job = prepare(batch, comm);
                    job.run();
                }
                CHECK(work.scratch.expired());
                auto job = prepare(batch, comm);
                if (threads.rank() == 1) {
                    (before_exchanges ? work.refuses_copies : work.refuses) = true;
                    scratch = work.scratch;
                }
                job.run();
            });
            // Who has all that it needs may have ended before the other fails.
            CHECK(
                (thrown[0].code == ErrorCode::peer_failed || (!before_exchanges && thrown[0].code == ErrorCode::none)));
            CHECK(thrown[1].code == (before_exchanges ? ErrorCode::deadline : ErrorCode::transport));
            CHECK_FALSE(scratch.expired());
        }
    }

    TEST_CASE("a plan that sends nothing takes a memory in place of a communicator") {
        Work work;
        std::vector<float> source(8, 2.0F);
        std::vector<float> result(8, 7.0F);
        auto const whole = distribution<Replicate>(Mesh{2}, Shape{8});
        auto const owed = distribution<Partial<>>(Mesh{2}, Shape{8});
        TensorView<float> const from(source.data(), Shape{8});
        TensorView<float> const to(result.data(), Shape{8});
        redistribute(plan(whole, owed), from, to, 1, CountingMemory(work));
        CHECK(result == std::vector<float>(8, -0.0F));
        for (float one : result) CHECK(std::signbit(one));  // +0.0 is equal
        CHECK(work.fills == 1);
        redistribute(Plan<>(plan(whole, owed)), from, to, 0, CountingMemory(work), {});
        CHECK(result == source);
        CHECK(work.delivered == 1);
    }
}
