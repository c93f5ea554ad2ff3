// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/batch.hpp: a batch leaves the same bits as its tensors one by one, whatever they are.
#include <reshard/exec/batch.hpp>

#include <reshard/exec/detail/prepare_check.hpp>
#include <reshard/exec/redistribute.hpp>
#include <reshard/plan/batch.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/threads.hpp>

#include "support/random.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// A tensor of the batch and what each rank has of it: the bytes of the sources are random.
struct Item {
    Plan<> plan;
    DType dtype;
    std::vector<std::vector<std::byte>> sources;
    std::vector<std::vector<std::byte>> one_by_one;
    std::vector<std::vector<std::byte>> together;
    PrepareOptions options{};
};

DynamicShape local(DynamicDistribution const& side, int rank) {
    return side.contains(rank) ? side.local_shape(rank) : DynamicShape(Shape{0});
}

bool has_partial(DynamicDistribution const& d) {
    for (int axis = 0; axis < d.mesh().axes(); ++axis)
        if (d.placement(axis).is_partial()) return true;
    return false;
}
bool fits(DynamicMesh const& mesh, int ranks) { return mesh.last_rank() < ranks; }

/// Any transition whose ranks exist, with an element type that has its ops.
std::vector<Item> random_items(test::Random& random, int ranks) {
    std::vector<Item> items;
    auto const count = random.between(0, 12);
    while (static_cast<Index>(items.size()) < count) {
        DynamicShape const shape = random.shape();
        DynamicMesh const mesh = random.mesh();
        if (!fits(mesh, ranks)) continue;
        auto const from = random.distribution(mesh, shape);
        auto to = random.distribution(mesh, shape);
        bool const across = random.chance(30);
        if (across) {
            DynamicMesh const other = random.mesh();
            if (!fits(other, ranks)) continue;
            to = random.distribution(other, shape);
        } else if (fills_average(from.signature(), to.signature())) {
            continue;
        }
        // Small whole numbers in any of these: sums of bytes wrap, and no float is a NaN with bits of its own.
        bool const any = !has_partial(from) && !has_partial(to);
        auto const dtype = any ? random.pick(std::vector<DType>{DType::u8, DType::f8_e4m3, DType::i16, DType::bf16,
                                                                DType::f32, DType::c64, DType::f64})
                               : random.pick(std::vector<DType>{DType::u8, DType::i16, DType::i32, DType::u64});
        Plan<> const within = across ? plan_across(from, to) : plan(from, to);
        items.push_back({random.chance(33) ? within.one_shot_fold() : within, dtype, {}, {}, {}});
        Item& item = items.back();
        if (random.chance(50)) item.options.fold_elements = random.between(1, 60);
        for (int rank = 0; rank < ranks; ++rank) {
            auto const size = [&](auto const& side) {
                return static_cast<std::size_t>(local(side, rank).size() * bytes(dtype));
            };
            item.sources.emplace_back(size(item.plan.from()));
            for (std::byte& b : item.sources.back()) b = static_cast<std::byte>(random.between(0, 255));
            item.one_by_one.emplace_back(size(item.plan.to()), std::byte{0xAA});
            item.together.emplace_back(size(item.plan.to()), std::byte{0x55});
        }
    }
    return items;
}

void check_same_bits(std::uint64_t seed) {
    test::Limits limits;
    limits.max_ranks = 8;
    limits.max_elements = 600;
    limits.ops = {Reduce::sum, Reduce::max, Reduce::product, Reduce::bxor};
    test::Random random(seed, limits);
    int const ranks = static_cast<int>(random.between(1, 8));
    std::vector<Item> items = random_items(random, ranks);
    BatchOptions options;
    options.bucket_bytes = random.pick(std::vector<Index>{0, 100, 1000, 1 << 20});
    Index most = 0;  // the smallest cap that lets every tensor pass
    for (Item const& item : items) {
        planning::Steps steps = item.plan.steps();
        if (item.options.fold_elements > 0) steps.fold_elements = item.options.fold_elements;
        Index const need = detail::padded_bytes(detail::largest_scratch(steps), item.dtype);
        most = std::max(most, need);
    }
    if (random.chance(50)) options.max_workspace_bytes = most + random.between(0, 500);
    std::vector<Traffic> apart(static_cast<std::size_t>(ranks));
    std::vector<Traffic> joined(static_cast<std::size_t>(ranks));
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        Batch batch;
        for (Item& item : items) {
            ConstDynamicView const source(item.sources[r].data(), item.dtype, local(item.plan.from(), comm.rank()));
            DynamicShape const shape = local(item.plan.to(), comm.rank());
            redistribute(item.plan, comm, source, DynamicView(item.one_by_one[r].data(), item.dtype, shape),
                         item.options);
            batch.add(item.plan, source, DynamicView(item.together[r].data(), item.dtype, shape), {}, item.options);
        }
        apart[r] = comm.traffic();
        auto job = prepare(batch, comm, options);
        Traffic const start = comm.traffic();
        job.run();
        joined[r] = comm.traffic() - start;
        job.run();
        REQUIRE(workspace_bytes(batch, comm.rank(), options) <= options.max_workspace_bytes);
    });
    for (Item const& item : items) {
        INFO(test::reproduction(seed, item.plan.from(), item.plan.to()));
        bool const same = item.together == item.one_by_one;
        REQUIRE(same);
    }
    CAPTURE(seed);
    bool const same_traffic = apart == joined;
    REQUIRE(same_traffic);
}

}  // namespace

TEST_SUITE("exec/batch") {
    TEST_CASE("law: a batch of random plans and element types leaves the bits that its tensors leave one by one") {
        for (std::uint64_t seed : test::seeds(300)) check_same_bits(seed);
    }

    TEST_CASE("law: a rank that lists one random tensor otherwise is named by all, with that tensor") {
        for (std::uint64_t seed : test::seeds(60)) {
            CAPTURE(seed);
            test::Random random(seed);
            int const ranks = static_cast<int>(random.between(2, 6));
            int const odd = static_cast<int>(random.between(1, ranks - 1));
            auto const count = static_cast<std::size_t>(random.between(1, 40));
            auto const place = static_cast<std::size_t>(random.between(0, static_cast<Index>(count) - 1));
            std::vector<std::string> messages(static_cast<std::size_t>(ranks));
            run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                Batch batch;
                DynamicMesh const mesh = Mesh{ranks};
                for (std::size_t i = 0; i < count; ++i) {
                    bool const other = comm.rank() == odd && i == place;
                    DynamicShape const shape = Shape{0, other ? 3 : 2};
                    auto const from = distribution(mesh, shape, "S0");
                    auto const to = distribution(mesh, shape, "R");
                    batch.add(plan(from, to), ConstDynamicView(nullptr, DType::f32, from.local_shape(comm.rank())),
                              DynamicView(nullptr, DType::f32, to.local_shape(comm.rank())));
                }
                try {
                    static_cast<void>(prepare(batch, comm));
                } catch (MismatchError const& error) {
                    messages[static_cast<std::size_t>(comm.rank())] = error.message();
                }
            });
            std::string const begin = errors::concat("rank ", odd, " of ", ranks, ": prepared tensor ", place, " as ");
            CAPTURE(messages[0]);
            for (std::string const& message : messages) {
                REQUIRE(message == messages[0]);
                REQUIRE(message.compare(0, begin.size(), begin) == 0);
            }
        }
    }
}
