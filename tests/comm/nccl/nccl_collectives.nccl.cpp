// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/nccl_collectives.hpp.
#include "gpus.hpp"

#include <reshard/comm/nccl_collectives.hpp>

#include <vector>

namespace {
using namespace reshard;
using test::check_none;
using test::on_gpus;
namespace fake = test::fake_nccl;
}  // namespace

TEST_SUITE("comm/nccl") {
    TEST_CASE("native collectives give what they promise, also to a group of one, and are NCCL's own") {
        for (int ranks : {1, 2, 5}) {
            CAPTURE(ranks);
            fake::reset();
            check_none(on_gpus(ranks, {}, [&](NcclCommunicator& comm) {
                auto const n = static_cast<std::size_t>(comm.size());
                int const me = comm.rank();
                std::vector<std::int32_t> all(3 * n, -1);
                std::int32_t const mine[3] = {me, me + 10, me + 20};
                native_all_gather(comm, mine, sizeof(mine), all.data());
                for (std::size_t i = 0; i != all.size(); ++i)
                    CHECK(all[i] == static_cast<int>(i / 3) + 10 * static_cast<int>(i % 3));

                std::vector<double> values{1.0 + me, 2.0, -1.0 * me};
                std::vector<double> folded(3);
                double const sum = 0.5 * ranks * (ranks - 1);
                native_all_reduce(comm, values.data(), folded.data(), 3, DType::f64, Reduce::sum, any_order);
                CHECK(folded == std::vector<double>{ranks + sum, 2.0 * ranks, -sum});
                native_all_reduce(comm, values.data(), folded.data(), 3, DType::f64, Reduce::avg, any_order);
                CHECK(folded[1] == doctest::Approx(2.0));
                native_all_reduce(comm, values.data(), values.data(), 3, DType::f64, Reduce::max, any_order);
                CHECK(values == std::vector<double>{1.0 * ranks, 2.0, 0.0});

                std::vector<std::int64_t> blocks(2 * n);
                for (std::size_t i = 0; i != blocks.size(); ++i) blocks[i] = static_cast<std::int64_t>(i) * (me + 1);
                std::vector<std::int64_t> block(2);
                native_reduce_scatter(comm, blocks.data(), block.data(), 2, DType::i64, Reduce::sum, any_order);
                std::int64_t const weights = ranks * (ranks + 1) / 2;
                CHECK(block == std::vector<std::int64_t>{2 * me * weights, (2 * me + 1) * weights});
                native_all_gather(comm, nullptr, 0, nullptr);

                NcclCommunicator alone = comm.split(-1, 0);
                native_all_reduce(alone, blocks.data(), block.data(), 2, DType::i64, Reduce::sum, any_order);
                CHECK(block == std::vector<std::int64_t>{0, me + 1});
                barrier(comm);
            }));
            CHECK(fake::counts().misused == 0);
        }
    }

    TEST_CASE("what NCCL cannot fold, and memory it cannot reach, is refused before anything moves") {
        check_none(on_gpus(2, {}, [](NcclCommunicator& comm) {
            std::uint16_t small[2] = {};
            float real[2] = {};
            CHECK_THROWS_WITH_AS(native_all_reduce(comm, small, small, 2, DType::u16, Reduce::sum, any_order),
                                 doctest::Contains("does not fold elements of U16. Fix: let a plan"), DTypeError);
            CHECK_THROWS_AS(native_all_reduce(comm, real, real, 1, DType::c64, Reduce::sum, any_order), DTypeError);
            CHECK_THROWS_WITH_AS(native_reduce_scatter(comm, small, small, 1, DType::u64, Reduce::bxor, any_order),
                                 doctest::Contains("does not fold U64 by bxor"), DTypeError);
            CHECK_THROWS_AS(native_all_reduce(comm, real, real, 1, DType::i32, Reduce::avg, any_order), DTypeError);
            CHECK_THROWS_AS(native_all_reduce(comm, real, real, -1, DType::f32, Reduce::sum, any_order), BufferError);
            fake::claim(real, sizeof(real), -1);
            CHECK_THROWS_AS(native_all_reduce(comm, real, real, 2, DType::f32, Reduce::sum, any_order), BufferError);
            fake::claim(real, 0, 0);
            barrier(comm);
        }));
    }

    TEST_CASE("a native collective that fails is named, and the others learn of it") {
        auto const ended = on_gpus(2, {}, [](NcclCommunicator& comm) {
            float value = 0;
            if (comm.rank() == 1) fake::fail("ncclAllReduce", ncclInvalidUsage);
            native_all_reduce(comm, &value, &value, 1, DType::f32, Reduce::sum, any_order);
        });
        CHECK(ended[1].code == ErrorCode::transport);
        CHECK(ended[1].says("ncclAllReduce failed: invalid usage"));
        CHECK(ended[0].code == ErrorCode::peer_failed);
        CHECK(fake::live_communicators() == 0);
    }
}
