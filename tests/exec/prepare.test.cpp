// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/prepare.hpp: what is refused, how it is reported, and what run() may not do.
#include <reshard/exec/prepare.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/abort_on_failure.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/staged.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/comm/traced.hpp>
#include <reshard/exec/redistribute.hpp>
#include <reshard/plan/relay.hpp>

#include "support/allocations.hpp"
#include "support/fake_cuda.hpp"
#include "support/thrown.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {
using namespace reshard;
using test::check_same;
using test::Thrown;
using test::thrown_by;
using namespace std::chrono_literals;

using test::allocations_in;

Plan<> of(char const* from, char const* to, DynamicShape const& shape) {
    return plan(parse(from, shape), parse(to, shape));
}
Plan<> across(char const* from, char const* to, DynamicShape const& shape) {
    return plan_across(parse(from, shape), parse(to, shape));
}

/// Ranks as threads, until the exchange of one rank that throws instead.
struct FailingExchange : transport::InOrder {
    int* left = nullptr;
    void start() {
        if ((*left)-- == 0) throw std::runtime_error("lost power");
        transport::InOrder::start();
    }
};
class Failing : public PolicyBase<Failing, ThreadCommunicator> {
public:
    using exchange_type = FailingExchange;
    using PolicyBase::split;

    Failing(ThreadCommunicator&& comm, int fails_at) : PolicyBase(std::move(comm)), left_(fails_at) {}
    FailingExchange bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        return {inner_.bind(sends, receives), &left_};
    }
    [[nodiscard]] Failing split(int colour, int key) { return {inner_.split(colour, key), left_}; }

private:
    int left_;
};
static_assert(Communicator<Failing>);

/// S0 -> R of 12 elements on 3 ranks: what each rank passes can be spoilt.
struct Gather {
    std::vector<float> source = std::vector<float>(4, 1.0F);
    std::vector<float> destination = std::vector<float>(12, -7.0F);
    TensorView<float> from{source.data(), Shape{4}};
    TensorView<float> to{destination.data(), Shape{12}};

    [[nodiscard]] bool untouched() const {
        for (float element : destination)
            if (element != -7.0F) return false;
        return true;
    }
};

/// Rank 1 spoils its arguments; everybody must hear of it, and nothing may be written.
template <class Spoil>
void check_spoilt(ErrorCode code, std::vector<std::string> const& parts, Spoil const& spoil) {
    Plan<> const gather = of("(3):(S0)", "(3):(R)", Shape{12});
    std::atomic<int> touched{0};
    auto const thrown = thrown_by(3, [&](ThreadCommunicator& comm) {
        Gather job;
        if (comm.rank() == 1) spoil(job);
        try {
            prepare(gather, comm, job.from, job.to).run();
        } catch (...) {
            if (!job.untouched()) ++touched;
            throw;
        }
    });
    check_same(thrown, code, parts);
    CHECK(touched == 0);
}

}  // namespace

TEST_SUITE("exec/prepare") {
    // ---- Errors: the same on every rank, before anything is touched ------------------------------------------------

    TEST_CASE("a wrong shape on one rank is a BufferError on all, naming the rank and the shape it should have") {
        check_spoilt(
            ErrorCode::buffer,
            {"rank 1 of 3: reshard::prepare: the source of rank 1 has shape [3], but under (3):(S0) it holds [4]",
             "Fix: allocate this shape."},
            [](Gather& job) { job.from = TensorView<float>(job.source.data(), Shape{3}); });
        check_spoilt(ErrorCode::buffer, {"the destination of rank 1 has shape [2,6], but under (3):(R) it holds [12]"},
                     [](Gather& job) {
                         job.to = TensorView<float>(job.destination.data(), Shape{2, 6});
                     });
    }

    TEST_CASE("null memory on one rank is a BufferError on all") {
        check_spoilt(ErrorCode::buffer, {"the source of rank 1 is null", "Fix: pass memory for [4] elements."},
                     [](Gather& job) { job.from = TensorView<float>(nullptr, Shape{4}); });
        check_spoilt(ErrorCode::buffer, {"the destination of rank 1 is null"},
                     [](Gather& job) { job.to = TensorView<float>(nullptr, Shape{12}); });
    }

    TEST_CASE("memory of a device on one rank is a BufferError on all") {
        test::FakeCuda const cuda;
        if (!cuda.works()) return;  // a real driver is loaded: it knows what is a device's
        std::vector<std::string> const parts{
            "rank 1 of 3: reshard: the transport 'threads' moves memory of the host, and this is memory of a CUDA "
            "device",
            "Fix: copy it to the host first"};
        check_spoilt(ErrorCode::buffer, parts, [&](Gather& job) { cuda.claim(job.source.data(), 16); });
        cuda.claim(nullptr, 0);  // its memory is somebody else's by now
        check_spoilt(ErrorCode::buffer, parts, [&](Gather& job) { cuda.claim(job.destination.data(), 48); });
        cuda.claim(nullptr, 0);

        // Policies in between do not hide the transport.
        Plan<> const gather = of("(3):(S0)", "(3):(R)", Shape{12});
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 Gather job;
                                 if (comm.rank() == 1) cuda.claim(job.source.data(), 16);
                                 Trace trace;
                                 auto all = compose<Traced, AbortOnFailure, Staged>(comm.split(0, comm.rank()), trace);
                                 redistribute(gather, all, job.from, job.to);
                             }),
                   ErrorCode::buffer, parts);

        // Nor does a transport that says nothing of memory, around which they may be as well.
        Plan<> const alone = of("(1):(S0)", "(1):(R)", Shape{12});
        std::vector<float> far(12);
        std::vector<float> near(12, -7.0F);
        TensorView<float> const device(far.data(), Shape{12});
        TensorView<float> const host(near.data(), Shape{12});
        cuda.claim(far.data(), 48);
        auto const refused = [&](auto& comm) {
            CHECK_THROWS_WITH_AS(redistribute(alone, comm, device, host),
                                 doctest::Contains("the source lies in memory of a CUDA device, where the host cannot "
                                                   "work. Fix: copy it to the host first, or pass a communicator"),
                                 BufferError);
            CHECK_THROWS_WITH_AS(redistribute(alone, comm, host, device),
                                 doctest::Contains("the destination lies in memory of a CUDA device"), BufferError);
        };
        SelfCommunicator self;
        refused(self);
        auto staged = compose<Staged>(SelfCommunicator());
        refused(staged);
        CHECK(near == std::vector<float>(12, -7.0F));
    }

    TEST_CASE("source and destination that overlap on one rank are a BufferError on all") {
        check_spoilt(ErrorCode::buffer, {"source and destination of rank 1 overlap", "Fix: use separate memory"},
                     [](Gather& job) { job.from = TensorView<float>(job.destination.data() + 8, Shape{4}); });
    }

    TEST_CASE("a destination whose elements share memory on one rank is a BufferError on all") {
        check_spoilt(ErrorCode::buffer, {"the destination of rank 1 has strides [0] that overlap"}, [](Gather& job) {
            Indices strides;
            strides.push_back(0);
            job.to = TensorView<float>(job.destination.data(), Shape{12}, strides);
        });
    }

    TEST_CASE("the lowest failing rank is the one that everybody names") {
        Plan<> const gather = of("(3):(S0)", "(3):(R)", Shape{12});
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 Gather job;
                                 if (comm.rank() != 0) job.from = TensorView<float>(nullptr, Shape{4});
                                 static_cast<void>(prepare(gather, comm, job.from, job.to));
                             }),
                   ErrorCode::buffer, {"rank 1 of 3:", "the source of rank 1 is null"});
    }

    TEST_CASE("a mesh larger than the communicator is a MeshError on all") {
        Plan<> const wide = of("(4):(S0)", "(4):(R)", Shape{12});
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 Gather job;
                                 static_cast<void>(prepare(wide, comm, job.from, job.to));
                             }),
                   ErrorCode::mesh, {"the mesh (4) has rank 3, the communicator only 3 ranks"});
    }

    TEST_CASE("plans that differ between ranks are a MismatchError on all") {
        Plan<> const gather = of("(3):(S0)", "(3):(R)", Shape{12});
        Plan<> const other = of("(3):(S0:bal)", "(3):(R)", Shape{12});
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 Gather job;
                                 static_cast<void>(prepare(comm.rank() == 2 ? other : gather, comm, job.from, job.to));
                             }),
                   ErrorCode::mismatch, {"rank 2 of 3: prepared (3):(S0:bal)", "but rank 0 prepared (3):(S0)"});
    }

    TEST_CASE("a barrier() of one rank while the others prepare is a MismatchError on all that says so") {
        Plan<> const gather = of("(3):(S0)", "(3):(R)", Shape{12});
        for (int const stray : {0, 2}) {
            check_same(thrown_by(3,
                                 [&](ThreadCommunicator& comm) {
                                     Gather job;
                                     if (comm.rank() == stray) return barrier(comm);
                                     static_cast<void>(prepare(gather, comm, job.from, job.to));
                                 }),
                       ErrorCode::mismatch,
                       {"is in barrier()", "prepared (3):(S0)", "Fix: make all ranks call the same things"});
        }
    }

    TEST_CASE("element types that differ are a MismatchError on all: between ranks and on one") {
        Plan<> const gather = of("(3):(S0)", "(3):(R)", Shape{12});
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 Gather job;
                                 DType const dtype = comm.rank() == 2 ? DType::i32 : DType::f32;
                                 ConstDynamicView const from(job.source.data(), dtype, Shape{4});
                                 DynamicView const to(job.destination.data(), dtype, Shape{12});
                                 static_cast<void>(prepare(gather, comm, from, to));
                             }),
                   ErrorCode::mismatch, {"rank 2 of 3: prepared", "I32, but rank 0 prepared", "F32."});
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 Gather job;
                                 ConstDynamicView const from(job.source.data(), DType::f32, Shape{4});
                                 DynamicView const to(job.destination.data(),
                                                      comm.rank() == 2 ? DType::u32 : DType::f32, Shape{12});
                                 static_cast<void>(prepare(gather, comm, from, to));
                             }),
                   ErrorCode::mismatch, {"the source of rank 2 holds F32, the destination U32"});
    }

    TEST_CASE("ops that the element type does not have are a DTypeError on all") {
        Shape const shape{6};
        auto const attempt = [&](Plan<> const& p, DType dtype) {
            return thrown_by(2, [&](ThreadCommunicator& comm) {
                std::vector<double> source(6);
                std::vector<double> destination(6);
                static_cast<void>(prepare(p, comm,
                                          ConstDynamicView(source.data(), dtype, p.from().local_shape(comm.rank())),
                                          DynamicView(destination.data(), dtype, p.to().local_shape(comm.rank()))));
            });
        };
        check_same(attempt(of("(2):(P&)", "(2):(R)", shape), DType::f32), ErrorCode::dtype,
                   {"band is not defined for F32. Fix: use an op that it has (avg, sum, min, max, product)."});
        check_same(attempt(of("(2):(R)", "(2):(P^)", shape), DType::bf16), ErrorCode::dtype,
                   {"bxor has no identity for BF16"});
        check_same(attempt(of("(2):(P*)", "(2):(S0)", shape), DType::c64), ErrorCode::dtype,
                   {"product is not defined for C64"});
        check_same(attempt(of("(2):(R)", "(2):(P*)", shape), DType::c64), ErrorCode::dtype,
                   {"product has no identity for C64"});
        check_same(attempt(of("(2):(P+)", "(2):(S0)", shape), DType::f8_e4m3), ErrorCode::dtype,
                   {"sum is not defined for F8_E4M3. Fix: use an op that it has (none: it is only moved)."});
        check_same(attempt(of("(2):(P+)", "(2):(Pavg)", shape), DType::i32), ErrorCode::dtype,
                   {"an average of I32 would be rounded"});
        check_same(attempt(of("(2):(Pavg)", "(2):(R)", shape), DType::i32), ErrorCode::dtype,
                   {"avg is not defined for I32"});
        check_same(attempt(of("(2):(S0)", "(2):(R)", shape), DType::f4), ErrorCode::dtype,
                   {"elements of F4 are smaller than a byte", "Fix: view the storage as U8."});
    }

    TEST_CASE("plans between the same distributions that travel otherwise are told apart in words") {
        Plan<> const across_meshes = across("(2):(P+)", "(2):(R)", Shape{8});
        Plan<> const others[] = {across_meshes.one_shot_fold(), across_meshes.relayed(2)};
        char const* const words[] = {"of [8] F32, folded in one shot, but",
                                     "of [8] F32, relayed between nodes of 2, but"};
        for (std::size_t i = 0; i < std::size(others); ++i) {
            std::vector<float> const source(8);
            check_same(thrown_by(2,
                                 [&](ThreadCommunicator& comm) {
                                     std::vector<float> destination(8);
                                     static_cast<void>(prepare(comm.rank() == 1 ? others[i] : across_meshes, comm,
                                                               TensorView<float const>(source.data(), Shape{8}),
                                                               TensorView<float>(destination.data(), Shape{8})));
                                 }),
                       ErrorCode::mismatch, {words[i], "prepared (2):(P+) -> (2):(R) of [8] F32. Fix: "});
        }
    }

    TEST_CASE("any byte-sized element type moves where nothing is folded") {
        Plan<> const gather = of("(2):(S0)", "(2):(R)", Shape{4});
        for (DType dtype : {DType::f8_e4m3, DType::c64, DType::boolean}) {
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                std::vector<std::uint8_t> source(static_cast<std::size_t>(2 * bytes(dtype)),
                                                 static_cast<std::uint8_t>(comm.rank() + 1));
                std::vector<std::uint8_t> destination(source.size() * 2);
                prepare(gather, comm, ConstDynamicView(source.data(), dtype, Shape{2}),
                        DynamicView(destination.data(), dtype, Shape{4}))
                    .run();
                CHECK(destination.front() == 1);
                CHECK(destination.back() == 2);
            });
        }
    }

    TEST_CASE("a workspace that is too small is a BufferError on all, and says how much is needed") {
        Plan<> const reduce = of("(2):(P+)", "(2):(R)", Shape{8});
        std::string const needed = errors::concat("the workspace of rank 1 has 8 bytes, the plan needs ",
                                                  workspace_bytes(reduce, 1, DType::f32));
        check_same(thrown_by(2,
                             [&](ThreadCommunicator& comm) {
                                 std::vector<float> source(8);
                                 std::vector<float> destination(8);
                                 std::vector<std::byte> space(comm.rank() == 1 ? 8 : 1000);
                                 static_cast<void>(prepare(reduce, comm, TensorView<float>(source.data(), Shape{8}),
                                                           TensorView<float>(destination.data(), Shape{8}), {space}));
                             }),
                   ErrorCode::buffer, {needed});
    }

    TEST_CASE("a negative number of addends at a time is a BufferError on all") {
        Plan<> const reduce = of("(2):(P+)", "(2):(R)", Shape{8});
        check_same(thrown_by(2,
                             [&](ThreadCommunicator& comm) {
                                 std::vector<float> source(8);
                                 std::vector<float> destination(8);
                                 static_cast<void>(prepare(reduce, comm, TensorView<float>(source.data(), Shape{8}),
                                                           TensorView<float>(destination.data(), Shape{8}),
                                                           PrepareOptions{.fold_elements = -1}));
                             }),
                   ErrorCode::buffer, {"reshard::prepare: fold_elements is -1. Fix: 0 or more"});
    }

    TEST_CASE("a workspace that a tensor lies in is a BufferError on all") {
        Plan<> const reduce = of("(2):(P+)", "(2):(R)", Shape{64});
        for (std::string const which : {"source", "destination"}) {
            CAPTURE(which);
            check_same(thrown_by(2,
                                 [&](ThreadCommunicator& comm) {
                                     std::vector<float> memory(1000);
                                     bool const swapped = which == "source";
                                     TensorView<float> const source(memory.data() + (swapped ? 64 : 0), Shape{64});
                                     TensorView<float> const destination(memory.data() + (swapped ? 0 : 64), Shape{64});
                                     auto const space = std::as_writable_bytes(std::span(memory));
                                     PrepareOptions options;  // one element of what comes last
                                     options.workspace = space.subspan(comm.rank() == 1 ? 4 * 127 : 4 * 128, 1500);
                                     static_cast<void>(prepare(reduce, comm, source, destination, options));
                                 }),
                       ErrorCode::buffer, {errors::concat("the workspace and the ", which, " overlap")});
        }
    }

    // ---- What is accepted ------------------------------------------------------------------------------------------

    TEST_CASE("memory that one rank cannot get is OutOfMemory on all, and nothing is touched") {
        constexpr Index size = 1 << 16;
        Plan<> const reduce = of("(3):(P+)", "(3):(R)", Shape{size});
        std::atomic<int> untouched{0};
        auto const thrown = thrown_by(3, [&](ThreadCommunicator& comm) {
            std::vector<float> source(size, 1.0F);
            std::vector<float> destination(size, -7.0F);
            auto const try_it = [&] {
                prepare(reduce, comm, TensorView<float>(source.data(), Shape{size}),
                        TensorView<float>(destination.data(), Shape{size}))
                    .run();
            };
            if (comm.rank() == 2) test::allocation_counter().refused_from = size;
            try {
                try_it();
            } catch (...) {
                test::allocation_counter().refused_from = SIZE_MAX;
                if (destination == std::vector<float>(size, -7.0F)) ++untouched;
                try_it();  // the communicator is none the worse
                CHECK(destination == std::vector<float>(size, 3.0F));
                throw;
            }
        });
        check_same(thrown, ErrorCode::out_of_memory,
                   {"rank 2 of 3: reshard: out of memory. Fix: free some on this rank, or do less"});
        CHECK(untouched == 3);
    }

    TEST_CASE("disjoint windows of one matrix are separate memory") {
        // Columns 0-3 hold this rank's rows; columns 4-7 receive all rows of its columns.
        Plan<> const transpose = of("(2):(S0)", "(2):(S1)", Shape{8, 4});
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<int> matrix(8 * 8, -1);
            Indices strides;
            strides.push_back(8);
            strides.push_back(1);
            TensorView<int> const from(matrix.data(), Shape{4, 4}, strides);
            TensorView<int> const to(matrix.data() + 4, Shape{8, 2}, strides);
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) from(i, j) = (comm.rank() * 4 + i) * 10 + j;
            prepare(transpose, comm, from, to).run();
            for (int i = 0; i < 8; ++i)
                for (int j = 0; j < 2; ++j) CHECK(to(i, j) == i * 10 + comm.rank() * 2 + j);
            for (int i = 0; i < 8; ++i) CHECK(matrix[static_cast<std::size_t>(i * 8 + 6)] == -1);
        });
    }

    TEST_CASE("null memory is fine where a rank holds nothing") {
        Plan<> const gather = of("(3):(S0)", "(3):(R)", Shape{2});
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            float own = static_cast<float>(comm.rank());
            std::vector<float> all(2);
            bool const empty = comm.rank() == 2;
            TensorView<float const> const from(empty ? nullptr : &own, empty ? Shape{0} : Shape{1});
            prepare(gather, comm, from, TensorView<float>(all.data(), Shape{2})).run();
            CHECK(all == std::vector<float>{0, 1});
        });
    }

    TEST_CASE("the workspace may be the caller's, at any alignment, and no byte beyond it is written") {
        for (Plan<> const& reduce : {of("(3):(P+)", "(3):(R)", Shape{7}), across("(3):(P+)", "(2)+1:(S0)", Shape{7})}) {
            run_on_threads(3, [&](ThreadCommunicator& comm) {
                auto const size = static_cast<std::size_t>(workspace_bytes(reduce, comm.rank(), DType::f64));
                CHECK(size > 0);
                for (std::size_t const shift : {std::size_t{0}, std::size_t{1}, std::size_t{63}}) {
                    std::vector<std::byte> memory(size + 128, std::byte{0x5a});
                    std::vector<double> source(7, comm.rank() + 1.0);
                    bool const takes = reduce.to().contains(comm.rank());
                    DynamicShape const shape = takes ? reduce.to().local_shape(comm.rank()) : DynamicShape(Shape{0});
                    std::vector<double> destination(static_cast<std::size_t>(shape.size()));
                    prepare(reduce, comm, TensorView<double>(source.data(), Shape{7}),
                            TensorView<double>(destination.data(), shape),
                            {std::span<std::byte>(memory).subspan(shift, size)})
                        .run();
                    for (double element : destination) CHECK(element == 6.0);
                    for (std::size_t i = 0; i < memory.size(); ++i) {
                        if (i < shift || i >= shift + size) REQUIRE(memory[i] == std::byte{0x5a});
                    }
                }
            });
        }
    }

    TEST_CASE("only folds need a workspace, and only on the ranks that fold") {
        CHECK(workspace_bytes(of("(4):(S0)", "(4):(R)", Shape{16}), 1, DType::f32) == 0);
        CHECK(workspace_bytes(of("(4):(R)", "(4):(P+)", Shape{16}), 1, DType::f32) == 0);
        CHECK(workspace_bytes(of("(4):(P+)", "(4):(S0)", Shape{16}), 1, DType::f32) >= 16 * 4);
        CHECK(workspace_bytes(across("(2):(P+)", "(2)+2:(S0)", Shape{16}), 3, DType::f32) == 0);
        CHECK(workspace_bytes(across("(2):(P+)", "(2)+2:(S0)", Shape{16}), 0, DType::f32) > 0);
        CHECK(workspace_bytes(of("(4):(P+)", "(4):(S0)", Shape{16}), 9, DType::f32) == 0);
    }

    // ---- Running ---------------------------------------------------------------------------------------------------

    TEST_CASE("a prepared plan runs again and again on what the memory holds then") {
        Plan<> const reduce = of("(4):(P+)", "(4):(R)", Shape{5});
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            std::vector<int> source(5);
            std::vector<int> destination(5);
            auto job = prepare(reduce, comm, TensorView<int>(source.data(), Shape{5}),
                               TensorView<int>(destination.data(), Shape{5}));
            for (int round = 0; round < 20; ++round) {
                std::iota(source.begin(), source.end(), round * (comm.rank() + 1));
                job.run();
                for (int i = 0; i < 5; ++i) CHECK(destination[static_cast<std::size_t>(i)] == 10 * round + 4 * i);
            }
        });
    }

    TEST_CASE("start() and wait(): waiting twice is waiting once, and requests move") {
        Plan<> const reduce = of("(2):(P+)", "(2):(R)", Shape{4});
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<int> source(4, comm.rank() + 1);
            std::vector<int> destination(4);
            auto job = prepare(reduce, comm, TensorView<int>(source.data(), Shape{4}),
                               TensorView<int>(destination.data(), Shape{4}));
            auto request = job.start();
            auto moved = std::move(request);
            moved.wait();
            CHECK(destination == std::vector<int>(4, 3));
            moved.wait();
            request.wait();
            CHECK(destination == std::vector<int>(4, 3));
        });
    }

    TEST_CASE("several prepared plans run at a time over one communicator, and others are prepared meanwhile") {
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            Plan<> const gather = of("(4):(S0)", "(4):(R)", Shape{8});
            Plan<> const reduce = of("(4):(P+)", "(4):(R)", Shape{5});  // in two phases
            std::vector<int> part(2);
            std::vector<int> whole(8);
            std::vector<int> addends(5);
            std::vector<int> sums(5);
            auto gathers =
                prepare(gather, comm, TensorView<int>(part.data(), Shape{2}), TensorView<int>(whole.data(), Shape{8}));
            auto reduces = prepare(reduce, comm, TensorView<int>(addends.data(), Shape{5}),
                                   TensorView<int>(sums.data(), Shape{5}));
            for (int round = 0; round < 5; ++round) {
                std::iota(part.begin(), part.end(), 10 * round + 2 * comm.rank());
                std::fill(addends.begin(), addends.end(), round + comm.rank());
                RunRequest first = reduces.start();
                RunRequest second = gathers.start();
                std::vector<int> again(8);
                if (round == 2) {
                    redistribute(gather, comm, TensorView<int>(part.data(), Shape{2}),
                                 TensorView<int>(again.data(), Shape{8}));
                }
                if (round % 2 == 0) {
                    first.wait();
                    second.wait();
                } else {
                    // Ranks ask at different times: what is started does not depend on it.
                    for (int turn = 0; turn < 50 * comm.rank(); ++turn) static_cast<void>(first.test());
                    std::vector<int> more(8);
                    redistribute(gather, comm, TensorView<int>(part.data(), Shape{2}),
                                 TensorView<int>(more.data(), Shape{8}));
                    while (!first.test()) {
                    }
                    while (!second.test()) {
                    }
                    first.wait();
                    second.wait();
                    CHECK(more == whole);
                }
                CHECK(sums == std::vector<int>(5, 4 * round + 6));
                for (int i = 0; i < 8; ++i) CHECK(whole[static_cast<std::size_t>(i)] == 10 * round + i);
                if (round == 2) CHECK(again == whole);
            }
        });
    }

    TEST_CASE("runs end in the order of their start, whichever is waited for first") {
        Plan<> const reduce = of("(3):(P+)", "(3):(R)", Shape{5});  // in two phases
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            std::vector<int> const addends(5, comm.rank());
            std::vector<std::vector<int>> sums(3, std::vector<int>(5));
            std::vector<PreparedPlan> jobs;
            for (std::vector<int>& sum : sums) {
                jobs.push_back(prepare(reduce, comm, TensorView<int const>(addends.data(), Shape{5}),
                                       TensorView<int>(sum.data(), Shape{5})));
            }
            auto const check = [&] {
                for (std::vector<int>& sum : sums) {
                    CHECK(sum == std::vector<int>(5, 3));
                    std::fill(sum.begin(), sum.end(), -1);
                }
            };
            std::vector<RunRequest> runs(3);
            for (int first = 0; first < 3; ++first) {
                for (std::size_t i = 0; i < 3; ++i) runs[i] = jobs[i].start();
                for (int i = 0; i < 3; ++i) {  // on every rank in another order
                    runs[static_cast<std::size_t>((2 * i + first + comm.rank()) % 3)].wait();
                }
                check();
            }
            {
                std::optional<RunRequest> dropped = jobs[0].start();  // locals go backwards
                RunRequest const other = jobs[1].start();
                if (comm.rank() == 0) {  // the same as start and wait
                    jobs[2].run();
                } else {
                    jobs[2].start().wait();
                }
                if (comm.rank() == 1) dropped.reset();
            }
            check();
            runs[0] = jobs[0].start();
            RunRequest second = jobs[1].start();
            second.wait();
            CHECK(runs[0].test());
            CHECK_THROWS_WITH_AS(static_cast<void>(jobs[0].start()), doctest::Contains("it is running"),
                                 TransportError);
            runs[0] = jobs[2].start();  // ends what was there
            runs[0] = RunRequest();
            check();
        });
    }

    TEST_CASE("a rank that throws while two runs of two phases are under way: the others are told its words") {
        Plan<> const reduce = of("(3):(P+)", "(3):(R)", Shape{5000});
        std::atomic<int> told{0};
        auto const body = [&](ThreadCommunicator& comm) {
            std::vector<float> const addends(5000, 1.0F);
            std::vector<float> first(5000);
            std::vector<float> second(5000);
            TensorView<float const> const from(addends.data(), Shape{5000});
            auto one = prepare(reduce, comm, from, TensorView<float>(first.data(), Shape{5000}));
            auto other = prepare(reduce, comm, from, TensorView<float>(second.data(), Shape{5000}));
            RunRequest x = one.start();
            RunRequest y = other.start();
            if (comm.rank() == 1) throw std::runtime_error("loss is NaN");
            try {
                x.wait();
                y.wait();
                one.run();
            } catch (PeerFailed const& error) {
                if (error.message().find("rank 1 failed: loss is NaN") != std::string::npos) ++told;
            }
        };
        CHECK_THROWS_WITH_AS(run_on_threads(3, body), "loss is NaN", std::runtime_error);
        CHECK(told == 2);
    }

    TEST_CASE("a run that fails, whoever waits for it, ends those that started behind it with its error") {
        Plan<> const reduce = of("(2):(P+)", "(2):(R)", Shape{4});
        for (bool backwards : {true, false}) {
            std::atomic<int> told{0};
            auto const body = [&](ThreadCommunicator& threads) {
                int const rank = threads.rank();
                Failing comm(threads.split(0, rank), rank == 1 ? 2 : 99);  // behind the two starts
                std::vector<float> const addends(4, 1.0F);
                std::vector<float> sums(8);
                TensorView<float const> const from(addends.data(), Shape{4});
                auto one = prepare(reduce, comm, from, TensorView<float>(sums.data(), Shape{4}));
                auto other = prepare(reduce, comm, from, TensorView<float>(sums.data() + 4, Shape{4}));
                RunRequest x = one.start();
                RunRequest y = other.start();
                RunRequest& first = backwards ? y : x;
                RunRequest& second = backwards ? x : y;
                if (rank == 1) {
                    CHECK_THROWS_WITH_AS(first.wait(), "lost power", std::runtime_error);
                    first.wait();  // a failed wait is not repeated
                    CHECK((!backwards || second.test()));
                    second.wait();
                }
                CHECK_THROWS_WITH_AS(first.wait(), doctest::Contains("rank 1 failed: lost power"), PeerFailed);
                CHECK_THROWS_WITH_AS(second.wait(), doctest::Contains("rank 1 failed: lost power"), PeerFailed);
                ++told;
            };
            CHECK_THROWS_WITH_AS(run_on_threads(2, body), "lost power", std::runtime_error);
            CHECK(told == 1);
        }
    }

    TEST_CASE(
        "plans of equal shapes that one rank starts in another order are a MismatchError on all, and write nothing") {
        Plan<> const gather = of("(3):(S0)", "(3):(R)", Shape{12});
        std::atomic<int> touched{0};
        for (int round = 0; round < 100; ++round) {  // whichever rank notices first
            auto const thrown = thrown_by(3, [&](ThreadCommunicator& comm) {
                Gather weights;
                Gather gradients;
                auto first = prepare(gather, comm, weights.from, weights.to);
                auto second = prepare(gather, comm, gradients.from, gradients.to);
                try {
                    (comm.rank() == 1 ? second : first).run();
                } catch (...) {
                    if (!weights.untouched() || !gradients.untouched()) ++touched;
                    throw;
                }
            });
            check_same(thrown, ErrorCode::mismatch, {" has not started; that one started another. Fix: "});
        }
        CHECK(touched == 0);
    }

    TEST_CASE("what runs does not start again before it is over, and nothing is lost by trying") {
        Plan<> const gather = of("(2):(S0)", "(2):(R)", Shape{4});
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<int> source(2, comm.rank() + 1);
            std::vector<int> destination(4);
            auto job = prepare(gather, comm, TensorView<int>(source.data(), Shape{2}),
                               TensorView<int>(destination.data(), Shape{4}));
            auto request = job.start();
            CHECK_THROWS_WITH_AS(job.run(), doctest::Contains("it is running. Fix: wait() for its request"),
                                 TransportError);
            request.wait();
            CHECK(destination == std::vector<int>{1, 1, 2, 2});
            std::fill(source.begin(), source.end(), 7);
            job.run();
            CHECK(destination == std::vector<int>(4, 7));
            PreparedPlan moved = std::move(job);
            CHECK_THROWS_WITH_AS(job.run(), doctest::Contains("it was moved from. Fix: "), TransportError);
            CHECK_THROWS_AS(static_cast<void>(job.start()), TransportError);
            moved.run();
        });
    }

    TEST_CASE("a run that fails while another starts is an error of both") {
        Plan<> const gather = of("(2):(S0)", "(2):(R)", Shape{4});
        auto const thrown = thrown_by(2, [&](ThreadCommunicator& comm) {
            std::vector<int> source(2);
            std::vector<int> destination(4);
            std::vector<int> other(4);
            auto first = prepare(gather, comm, TensorView<int>(source.data(), Shape{2}),
                                 TensorView<int>(destination.data(), Shape{4}));
            auto second = prepare(gather, comm, TensorView<int>(source.data(), Shape{2}),
                                  TensorView<int>(other.data(), Shape{4}));
            if (comm.rank() == 1) comm.abort(ErrorCode::user, "no more");
            RunRequest request = first.start();
            CHECK_THROWS_AS(second.run(), PeerFailed);
            request.wait();
        });
        CHECK(thrown[0].code == ErrorCode::peer_failed);
        CHECK(thrown[0].message.find("no more") != std::string::npos);
    }

    TEST_CASE("a request that nobody waits for is waited for by its destructor") {
        Plan<> const reduce = of("(2):(P+)", "(2):(R)", Shape{4});
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<int> source(4, comm.rank() + 1);
            std::vector<int> destination(4);
            auto job = prepare(reduce, comm, TensorView<int>(source.data(), Shape{4}),
                               TensorView<int>(destination.data(), Shape{4}));
            { auto const request = job.start(); }
            CHECK(destination == std::vector<int>(4, 3));
        });
    }

    TEST_CASE("what was prepared may go before its run: overwritten, in any order of members, or after a failure") {
        Plan<> const moves = of("(3):(S0)", "(3):(R)", Shape{12});
        Plan<> const folds = of("(3):(P+)", "(3):(S0)", Shape{12});
        Plan<> const copies = of("(3):(R)", "(3):(S0)", Shape{12});  // nothing travels
        for (Plan<> const* p : {&moves, &folds, &copies}) {
            run_on_threads(3, [&](ThreadCommunicator& comm) {
                std::vector<float> const source(static_cast<std::size_t>(p->from().local_shape(comm.rank()).size()),
                                                1.0F);
                std::vector<std::vector<float>> results(
                    5, std::vector<float>(static_cast<std::size_t>(p->to().local_shape(comm.rank()).size())));
                auto const into = [&](int i) {
                    return prepare(*p, comm,
                                   ConstDynamicView(source.data(), DType::f32, p->from().local_shape(comm.rank())),
                                   DynamicView(results[static_cast<std::size_t>(i)].data(), DType::f32,
                                               p->to().local_shape(comm.rank())));
                };
                {
                    PreparedPlan job;
                    RunRequest run;
                    for (int i = 0; i < 3; ++i) {
                        job = into(i);
                        run = job.start();
                    }
                    job = PreparedPlan();
                    while (!run.test()) std::this_thread::yield();
                }
                struct Layer {
                    RunRequest run;
                    PreparedPlan job;
                };
                {
                    Layer layer{{}, into(3)};
                    layer.run = layer.job.start();
                }
                std::optional<PreparedPlan> job(into(4));
                RunRequest run = job->start();
                job.reset();
                run.wait();
                run.wait();
                float const expected = p == &folds ? 3.0F : 1.0F;
                for (auto const& result : results) CHECK(result == std::vector<float>(result.size(), expected));
            });
        }
        // The rank that fails, and those that hear of it in wait() and in test().
        auto const all = thrown_by(3, [&](ThreadCommunicator& comm) {
            std::vector<float> const source(4, 1.0F);
            std::vector<float> destination(12);
            RunRequest run;
            {
                PreparedPlan job = prepare(moves, comm, ConstDynamicView(source.data(), DType::f32, Shape{4}),
                                           DynamicView(destination.data(), DType::f32, Shape{12}));
                if (comm.rank() != 1) run = job.start();
            }
            if (comm.rank() == 1) errors::raise(ErrorCode::transport, "lost power");
            while (comm.rank() == 2 && !run.test()) std::this_thread::yield();
            run.wait();
        });
        CHECK(all[0].code == ErrorCode::peer_failed);
        CHECK(all[2].code == ErrorCode::peer_failed);
    }

    TEST_CASE("run() and start() allocate nothing: exchanges, folds, fills and local copies") {
        struct Case {
            char const* from;
            char const* to;
        };
        for (Case const& c : {Case{"(4):(S0)", "(4):(S1)"}, Case{"(4):(P+)", "(4):(R)"}, Case{"(4):(P+)", "(4):(S1)"},
                              Case{"(4):(P>)", "(4):(P+)"}, Case{"(4):(R)", "(4):(P+)"}, Case{"(4):(S0)", "(4):(P+)"},
                              Case{"(2,2):(P+,P+)", "(2,2):(Pavg,R)"}, Case{"(2,2):(R,S0)", "(2,2):(S0:cyc2,R)"},
                              Case{"(4):(R)", "(4):(S0)"}}) {
            CAPTURE(c.from);
            CAPTURE(c.to);
            Plan<> const p = of(c.from, c.to, Shape{13, 9});
            std::atomic<int> total{0};
            run_on_threads(4, [&](ThreadCommunicator& comm) {
                DynamicShape const from = p.from().local_shape(comm.rank());
                DynamicShape const to = p.to().local_shape(comm.rank());
                std::vector<double> source(static_cast<std::size_t>(from.size()), 1.0);
                std::vector<double> destination(static_cast<std::size_t>(to.size()));
                auto job = prepare(p, comm, TensorView<double>(source.data(), from),
                                   TensorView<double>(destination.data(), to));
                total += allocations_in([&] { job.run(); });
                total += allocations_in([&] {
                    auto request = job.start();
                    request.wait();
                });
                std::vector<float> narrow(destination.size());
                auto casting = prepare(p, comm, TensorView<double>(source.data(), from),
                                       TensorView<float>(narrow.data(), to), Casting{0.5});
                total += allocations_in([&] { casting.run(); });
            });
            CHECK(total == 0);
        }
        // Called by name: a compiler may leave out a new-expression that nobody looks at, and clang does.
        CHECK(allocations_in([] { ::operator delete(::operator new(16)); }) > 0);  // the counter counts
    }

    TEST_CASE("a group of one: every kind of plan runs on SelfCommunicator, without allocating") {
        for (char const* mesh : {"(1):", "(1,1):"}) {
            for (char const* from : {"R", "S0", "P+", "P>", "Pavg"}) {
                for (char const* to : {"R", "S0", "S1:cyc2", "P+", "P*", "Pavg"}) {
                    bool const square = std::string_view(mesh) == "(1,1):";
                    Shape const shape{3, 2};
                    auto const a = parse(errors::concat(mesh, "(", from, square ? ",R)" : ")"), shape);
                    auto const b = parse(errors::concat(mesh, "(", to, square ? ",S0)" : ")"), shape);
                    if (fills_average(a.signature(), b.signature())) continue;
                    CAPTURE(to_string(a));
                    CAPTURE(to_string(b));
                    SelfCommunicator comm;
                    std::vector<float> const source{1, 2, 3, 4, 5, 6};
                    std::vector<float> destination(6, -9.0F);
                    auto job = prepare(plan(a, b), comm, TensorView<float const>(source.data(), shape),
                                       TensorView<float>(destination.data(), shape));
                    CHECK(allocations_in([&] { job.run(); }) == 0);
                    CHECK(destination == source);
                }
            }
        }
    }

    TEST_CASE("typed plans, views of const memory and run-time views prepare alike") {
        auto const typed =
            plan(distribution<Shard<0>>(Mesh<2>{}, Shape<4>{}), distribution<Replicate>(Mesh<2>{}, Shape<4>{}));
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<int> const source{comm.rank() * 2, comm.rank() * 2 + 1};
            std::vector<int> first(4);
            std::vector<int> second(4);
            prepare(typed, comm, TensorView<int const>(source.data(), Shape<2>{}),
                    TensorView<int>(first.data(), Shape<4>{}))
                .run();
            prepare(typed, comm, ConstDynamicView(source.data(), DType::i32, Shape{2}),
                    DynamicView(second.data(), DType::i32, Shape{4}))
                .run();
            CHECK(first == std::vector<int>{0, 1, 2, 3});
            CHECK(second == first);
        });
    }

    // ---- Failures of ranks -----------------------------------------------------------------------------------------

    TEST_CASE("prepare() agrees once and moves nothing; run() is its exchanges and asks nobody") {
        struct Move {
            char const* from;
            char const* to;
            int exchanges;
        };
        for (Move const& move : {Move{"(3):(S0)", "(3):(R)", 1}, Move{"(3):(P+)", "(3):(R)", 2},
                                 Move{"(3):(S0)", "(3):(S0:bal)", 1},  // 9 elements: nothing travels, all take part
                                 Move{"(3):(R)", "(3):(S0)", 0}}) {    // a copy at home
            CAPTURE(move.from);
            CAPTURE(move.to);
            Plan<> const p = of(move.from, move.to, Shape{9});
            run_on_threads(3, [&](ThreadCommunicator& threads) {
                Trace trace(20);
                Traced<ThreadCommunicator> comm(threads.split(0, threads.rank()), trace);
                std::vector<int> source(9);
                std::vector<int> destination(9);
                auto job = prepare(p, comm, TensorView<int>(source.data(), p.from().local_shape(comm.rank())),
                                   TensorView<int>(destination.data(), p.to().local_shape(comm.rank())));
                REQUIRE(trace.records().size() == 1);
                CHECK(trace.records()[0].operation == TraceOperation::agree);
                trace.clear();
                job.run();
                CHECK(static_cast<int>(trace.records().size()) == move.exchanges);
                for (TraceRecord const& one : trace.records()) CHECK(one.operation == TraceOperation::exchange);
            });
        }
    }

    TEST_CASE("a rank that throws instead of running: the others get PeerFailed, sources are untouched") {
        Plan<> const gather = of("(3):(S0)", "(3):(R)", Shape{12});
        std::atomic<int> failed{0};
        CHECK_THROWS_WITH_AS(
            run_on_threads(
                3,
                [&](ThreadCommunicator& comm) {
                    Gather job;
                    auto prepared = prepare(gather, comm, job.from, job.to);
                    if (comm.rank() == 1) throw std::runtime_error("rank 1 gives up");
                    try {
                        prepared.run();
                    } catch (PeerFailed const& error) {
                        if (error.message().find("rank 1 gives up (What the destination holds is unspecified.)") !=
                                std::string::npos &&
                            job.source == std::vector<float>(4, 1.0F)) {
                            ++failed;
                        }
                        throw;
                    }
                }),
            "rank 1 gives up", std::runtime_error);
        CHECK(failed == 2);
    }

    TEST_CASE("a rank that throws instead of preparing: the others get PeerFailed, nothing is touched") {
        Plan<> const gather = of("(3):(S0)", "(3):(R)", Shape{12});
        std::atomic<int> failed{0};
        auto const run = [&](ThreadCommunicator& comm) {
            Gather job;
            if (comm.rank() == 2) throw std::runtime_error("no such tensor");
            try {
                static_cast<void>(prepare(gather, comm, job.from, job.to));
            } catch (PeerFailed const& error) {
                bool const told = error.message().find("rank 2 failed: no such tensor") != std::string::npos;
                if (told && job.untouched()) ++failed;
                throw;
            }
        };
        CHECK_THROWS_WITH_AS(run_on_threads(3, run), "no such tensor", std::runtime_error);
        CHECK(failed == 2);
    }

    TEST_CASE("a rank that fails in any phase of a run ends the others, and no source is changed") {
        Plan<> const reduce = of("(3):(P+)", "(3):(R)", Shape{12});
        for (int phase : {0, 1}) {
            CAPTURE(phase);
            std::atomic<int> failed{0};
            CHECK_THROWS_WITH_AS(
                run_on_threads(3,
                               [&](ThreadCommunicator& threads) {
                                   int const rank = threads.rank();
                                   Failing comm(threads.split(0, rank), rank == 2 ? phase : 99);
                                   std::vector<float> source(12, 1.0F);
                                   std::vector<float> destination(12);
                                   auto job = prepare(reduce, comm, TensorView<float>(source.data(), Shape{12}),
                                                      TensorView<float>(destination.data(), Shape{12}));
                                   try {
                                       job.run();
                                   } catch (PeerFailed const& error) {
                                       bool const told = error.message().find("lost power") != std::string::npos;
                                       if (told && source == std::vector<float>(12, 1.0F)) ++failed;
                                       throw;
                                   }
                               }),
                "lost power", std::runtime_error);
            CHECK(failed == 2);
        }
    }

    TEST_CASE("a rank that never arrives: the others stop at the deadline and name it") {
        Plan<> const gather = of("(2):(S0)", "(2):(R)", Shape{4});
        ThreadOptions options;
        options.deadline = 50ms;
        std::atomic<bool> seen{false};
        auto const thrown = thrown_by(
            2,
            [&](ThreadCommunicator& comm) {
                std::vector<int> source(2);
                std::vector<int> destination(4);
                if (comm.rank() == 1) {
                    while (!seen) std::this_thread::yield();
                    return;
                }
                try {
                    static_cast<void>(prepare(gather, comm, TensorView<int>(source.data(), Shape{2}),
                                              TensorView<int>(destination.data(), Shape{4})));
                } catch (...) {
                    seen = true;
                    throw;
                }
            },
            options);
        CHECK(thrown[0].code == ErrorCode::deadline);
        CHECK(thrown[0].message.find("rank 1") != std::string::npos);
        CHECK(thrown[1] == Thrown{});
    }

    TEST_CASE("a rank that prepares but never runs: the others stop at the deadline") {
        Plan<> const gather = of("(2):(S0)", "(2):(R)", Shape{4});
        ThreadOptions options;
        options.deadline = 50ms;
        std::atomic<bool> seen{false};
        auto const thrown = thrown_by(
            2,
            [&](ThreadCommunicator& comm) {
                std::vector<int> source(2);
                std::vector<int> destination(4);
                auto job = prepare(gather, comm, TensorView<int>(source.data(), Shape{2}),
                                   TensorView<int>(destination.data(), Shape{4}));
                if (comm.rank() == 1) {
                    while (!seen) std::this_thread::yield();
                    return;
                }
                try {
                    job.run();
                } catch (...) {
                    seen = true;
                    throw;
                }
            },
            options);
        CHECK(thrown[0].code == ErrorCode::deadline);
    }
}
