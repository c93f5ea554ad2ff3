// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/prepare.hpp and batch.hpp: law.meaning where sizes lie around the limits at which moves
// go another way: chunks of folds, rounds of batches, streamed copies, one-shot collectives.
#include <reshard/exec/batch.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/collectives.hpp>
#include <reshard/comm/staged.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/exec/collectives.hpp>
#include <reshard/exec/progress_thread.hpp>
#include <reshard/plan/fold_chunks.hpp>

#include "support/moves_around.hpp"

#include <string>
#include <vector>

namespace {
using namespace reshard;
using test::Around;
using test::AroundOptions;

/// The first of them that says anything.
std::string said_by_all(std::vector<std::string> const& texts) {
    for (std::string const& text : texts)
        if (!text.empty()) return text;
    return {};
}

/// Runs body(comm) on threads; what the ranks find wrong.
template <class Body>
std::string wrong_on_threads(int ranks, ThreadOptions const& options, Body const& body) {
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    run_on_threads(ranks, options,
                   [&](ThreadCommunicator& comm) { texts[static_cast<std::size_t>(comm.rank())] = body(comm); });
    return said_by_all(texts);
}

/// A sum of `size` elements along one axis of a mesh, whose lines may have sizes of their own; what is wrong with it.
template <class T>
std::string wrong_sum(CommunicatorRef comm, DynamicMesh const& mesh, int axis, Index size, bool uneven) {
    Indices const at = mesh.coordinates(comm.rank());
    Index const ranks = mesh.extent(axis);
    Index const here = uneven && mesh.axes() > 1 ? size + at[1 - axis] : size;
    std::vector<T> values(static_cast<std::size_t>(here));
    Index const place = at[axis];
    for (Index i = 0; i < here; ++i)
        values[static_cast<std::size_t>(i)] = static_cast<T>(static_cast<float>(i % 5 + place));
    all_reduce(TensorView<T>(values.data(), Shape{here}), comm, mesh, axis);
    for (Index i = 0; i < here; ++i) {
        auto const sum = static_cast<float>(ranks * (i % 5) + ranks * (ranks - 1) / 2);
        if (static_cast<float>(values[static_cast<std::size_t>(i)]) != sum)
            return errors::concat("element ", i, " of ", here, " ", name(dtype_of<T>), " along axis ", axis);
    }
    return {};
}
}  // namespace

TEST_SUITE("exec/limits") {
    TEST_CASE(
        "law.meaning around chunks of folds, rounds of batches and streamed rows, over all that carries threads") {
        AroundOptions options;
        options.limits = {64, 500, 4096};
        options.rows = {8, 64, 512};
        options.folds = {0, 1, 2, 31, 33, 64, 100, 1000};
        options.buckets = {0, 1, 64, 500, 4096, INT64_MAX};
        options.most_bytes = 1 << 15;
        options.most_tensors = 5;
        for (std::uint64_t seed : test::seeds(30)) {
            test::Random random(seed);
            int const ranks = static_cast<int>(random.between(2, 6));
            Around const moves(seed, ranks, options);
            ThreadOptions threads;
            threads.streaming_threshold_bytes = random.pick(std::vector<Index>{0, 4096, INT64_MAX});
            CHECK(wrong_on_threads(ranks, threads, [&](ThreadCommunicator& comm) {
                      switch (seed % 4) {
                          case 0: {
                              auto staged = compose<Staged>(comm.split(0, comm.rank()));
                              return moves.wrong(staged);
                          }
                          case 1: {
                              auto turned = comm.split(0, -comm.rank());
                              return moves.wrong(turned);
                          }
                          case 2: {
                              ProgressThread progress;
                              return moves.wrong(comm, [&](PreparedPlan& job) { progress.start(job).wait(); });
                          }
                          default: return moves.wrong(comm);
                      }
                  }) == "");
        }
    }

    TEST_CASE("law.meaning where ranks have about four times 2^17 addends: chunks that nobody asked for") {
        for (Index extra : {-1, 0, 1, 70'001}) {
            CAPTURE(extra);
            Index const size = (Index{4} << 17) + extra;  // of two addends: half of them are a share
            Plan<> const sums =
                plan(distribution(Mesh{2}, Shape{size}, "P+"), distribution(Mesh{2}, Shape{size}, "S0"));
            CHECK((planning::FoldChunks(sums.steps()).count() > 1) == (extra > 0));
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                std::vector<std::int8_t> mine(static_cast<std::size_t>(size));
                for (std::size_t i = 0; i < mine.size(); ++i)
                    mine[i] = static_cast<std::int8_t>(i % 51 + static_cast<std::size_t>(comm.rank()));
                DynamicShape const share = sums.to().local_shape(comm.rank());
                std::vector<std::int16_t> result(static_cast<std::size_t>(share.size()));
                redistribute(sums, comm, TensorView<std::int8_t const>(mine.data(), Shape{size}),
                             TensorView<std::int16_t>(result.data(), share), Casting{});
                auto const first = comm.rank() == 0 ? std::size_t{0} : mine.size() - result.size();
                std::size_t wrong = 0;
                for (std::size_t i = 0; i < result.size(); ++i)
                    wrong += result[i] == static_cast<std::int16_t>(2 * ((first + i) % 51) + 1) ? 0 : 1;
                CHECK(wrong == 0);
            });
        }
    }

    TEST_CASE("all_reduce around 8 Ki elements and 8 KiB: of all ranks, of lines, and of lines of different lengths") {
        for (std::uint64_t seed : test::seeds(3)) {
            CAPTURE(seed);
            CHECK(wrong_on_threads(4, {}, [&](ThreadCommunicator& comm) {
                      test::Random random(seed);
                      std::vector<std::string> wrong;
                      auto const sum = [&]<class T>(T) {
                          Index const size = test::around(random, 8192 / Index{sizeof(T)});
                          wrong.push_back(wrong_sum<T>(comm, DynamicMesh(Mesh{4}), 0, size, false));
                          int const axis = static_cast<int>(random.between(0, 1));
                          wrong.push_back(wrong_sum<T>(comm, DynamicMesh(Mesh{2, 2}), axis, size, random.chance(70)));
                      };
                      sum(std::int8_t());
                      sum(BFloat16());
                      sum(std::int32_t());
                      sum(double());
                      return said_by_all(wrong);
                  }) == "");
        }
    }

    TEST_CASE("broadcasts of bytes around 64 KiB a rank go in shares from five ranks on, of any remainder") {
        for (int ranks : {4, 5, 6}) {
            for (Index more : {-1, 0, 1, 4}) {
                auto const size = static_cast<std::size_t>(ranks * (Index{64} << 10) + more);
                CAPTURE(ranks);
                CAPTURE(size);
                std::vector<std::byte> all(size);
                for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<std::byte>(i % 251);
                CHECK(wrong_on_threads(ranks, {}, [&](ThreadCommunicator& comm) {
                          int const root = ranks - 2;
                          std::vector<std::byte> mine(size);
                          if (comm.rank() == root) mine = all;
                          broadcast(comm, mine, root);
                          return std::string(mine == all ? "" : "not what the root had");
                      }) == "");
            }
        }
    }
}
