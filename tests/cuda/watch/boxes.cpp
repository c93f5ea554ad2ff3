// SPDX-License-Identifier: Apache-2.0
// The kernels of memory/on_device.cuh, watched: copies, conversions, folds, fills and factors of random boxes touch
// nothing but the boxes, aligned, each element by one thread; and what rows and transposed rows cost in sectors.
#include "cuda/watch/check.hpp"

#include "cuda/support/host_device.hpp"
#include "memory/boxes.hpp"
#include "support/random.hpp"

#include <reshard/memory/convert.hpp>
#include <reshard/memory/detail/value_kernels.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // shuffle
#include <iostream>
#include <numeric>  // iota
#include <string>
#include <vector>

namespace {
using namespace reshard;
using namespace reshard::test;

/// The launches of one test: kernels may touch what it claims, and every launch has an order of blocks and threads of
/// its own.
class Launches {
public:
    explicit Launches(std::mt19937& rng) : rng_(&rng) {}

    void claim(Placed const& placed) { device_.claim(placed.memory.data(), static_cast<Index>(placed.memory.size())); }
    void claim_unwritten(Placed const& placed) {
        device_.claim_unwritten(placed.memory.data(), static_cast<Index>(placed.memory.size()));
    }
    /// Calls body(tile, thread) for all threads of a launch.
    template <class Body>
    void run(std::string const& kernel, Index units, Body&& body) {
        watch::Launch launch(kernel, &device_);
        std::vector<Index> tiles(static_cast<std::size_t>(detail::ceil_div(units, detail::box_tile)));
        std::vector<int> threads(detail::box_threads);
        std::iota(tiles.begin(), tiles.end(), Index{0});
        std::iota(threads.begin(), threads.end(), 0);
        std::shuffle(tiles.begin(), tiles.end(), *rng_);
        for (Index tile : tiles) {
            launch.begin_block(tile, nullptr, 0);
            std::shuffle(threads.begin(), threads.end(), *rng_);
            for (int thread : threads) {
                watch::Thread const watched(thread, nullptr, 0);
                body(tile, thread);
            }
            launch.end_block();
        }
    }
    /// body<A>(fold, tile, thread) for all threads of the launches of a fold: A is the type of its accumulators.
    template <class Body>
    void run_fold(std::string const& kernel, detail::FoldBox box, Index to_bytes, Body const& body) {
        detail::FoldBox const rest = detail::widen(box, to_bytes);
        for (detail::FoldBox const& each : {box, rest}) {
            run(kernel, each.elements(), [&](Index tile, int thread) {
                detail::with_carrier(each.dtype, [&]<class A>() { body.template operator()<A>(each, tile, thread); });
            });
        }
    }

private:
    std::mt19937* rng_;
    HostDevice device_;
};

std::vector<Index> random_extents(std::mt19937& rng) {
    std::vector<Index> extents(rng() % 5);
    for (Index& extent : extents) extent = 1 + static_cast<Index>(rng() % 9);
    if (!extents.empty() && rng() % 4 == 0) extents.back() = 700;
    return extents;
}
/// A box on a device, where every element lies as its type must.
Placed place_aligned(std::mt19937& rng, std::vector<Index> const& extents, Index element, bool may_repeat) {
    for (;;) {
        Placed placed = place(rng, extents, element, may_repeat);
        if (detail::is_aligned(placed.base(), placed.box)) return placed;
    }
}

/// 64 rows of 4096 floats onto rows, or onto columns.
void copy_rows(Launches& launches, std::string const& kernel, bool transposes) {
    constexpr Index rows = 64;
    constexpr Index columns = 4096;
    transport::StridedBox const lie{{transport::StridedDim{rows, 4 * columns}, transport::StridedDim{columns, 4}}, 4};
    transport::StridedBox const stand{{transport::StridedDim{rows, 4}, transport::StridedDim{columns, 4 * rows}}, 4};
    auto const placed = [&](transport::StridedBox const& box) {  // from the begin of a sector on, as devices allocate
        Placed result{box, std::vector<std::byte>(4 * rows * columns + 32), 0};
        while (reinterpret_cast<std::uintptr_t>(result.base()) % 32 != 0) ++result.first;
        launches.claim(result);
        return result;
    };
    Placed from = placed(lie);
    Placed to = placed(transposes ? stand : lie);
    auto const box = detail::copy_box(from.base(), from.box, to.base(), to.box);
    launches.run(kernel, box.loops.units, [&](Index tile, int thread) { detail::copy_thread(box, tile, thread); });
}

}  // namespace

TEST_CASE("watched: copies and conversions of random boxes") {
    watch::forget();
    std::vector<DType> const types{DType::u8, DType::f16, DType::bf16, DType::i32, DType::f32, DType::f64, DType::i64};
    for (std::uint64_t seed : seeds(60)) {
        std::mt19937 rng(static_cast<unsigned>(seed));
        CAPTURE(seed);
        Launches launches(rng);
        auto const extents = random_extents(rng);
        Index const element = std::vector<Index>{1, 2, 4, 8, 16, 3, 12, 24}[rng() % 8];
        Placed from = place(rng, extents, element, true);
        Placed to = place(rng, extents, element, false);
        launches.claim(from);
        launches.claim_unwritten(to);
        auto const copy = detail::copy_box(from.base(), from.box, to.base(), to.box);
        launches.run("copy", copy.loops.units,
                     [&](Index tile, int thread) { detail::copy_thread(copy, tile, thread); });
        DType const a = types[rng() % types.size()];
        DType const b = types[rng() % types.size()];
        double const factor = rng() % 2 == 0 ? 1.0 : 1.0 / 3.0;
        if (!transport::can_convert(a, b, factor) || (a == b && factor == 1.0)) continue;
        Placed given = place_aligned(rng, extents, bytes(a), true);
        Placed cast = place_aligned(rng, extents, bytes(b), false);
        launches.claim(given);
        launches.claim_unwritten(cast);
        auto const box = detail::cast_box(given.base(), given.box, a, cast.base(), cast.box, b, factor);
        launches.run("cast", box.loops.units, [&](Index tile, int thread) { detail::copy_thread(box, tile, thread); });
    }
    CHECK(watch::traffic_of("copy").written != 0);
    CHECK(watch::traffic_of("cast").written != 0);
    watch::check_no_faults();
}

TEST_CASE("watched: folds, with and without a conversion, fills and factors of random boxes") {
    watch::forget();
    std::vector<DType> const types{DType::f16, DType::bf16, DType::f32, DType::f64, DType::i16, DType::u32, DType::u64};
    for (std::uint64_t seed : seeds(60)) {
        std::mt19937 rng(static_cast<unsigned>(seed));
        CAPTURE(seed);
        Launches launches(rng);
        DType const type = types[rng() % types.size()];
        auto const op = static_cast<Reduce>(rng() % reduce_count);
        auto const extents = random_extents(rng);
        bool const in_rows = seed % 2 == 0;
        Placed to =
            in_rows ? place_in_rows(rng, extents, bytes(type)) : place_aligned(rng, extents, bytes(type), false);
        launches.claim(to);
        if (is_floating(type)) {
            auto const box = detail::scale_box(type, to.base(), to.box, 3, 2);
            launches.run("scale", box.loops.units, [&](Index tile, int t) { detail::scale_thread(box, tile, t); });
        }
        if (!supports(op, type)) continue;
        if (has_identity(op)) {
            auto const box = detail::identity_box(op, type, to.base(), to.box);
            launches.run("fill", box.loops.units, [&](Index tile, int t) { detail::fill_thread(box, tile, t); });
        }
        Index const slots = 1 + static_cast<Index>(rng() % 5);
        Index const divisor = op == Reduce::avg ? slots : 1;
        std::vector<Index> with_slots = extents;
        with_slots.insert(with_slots.begin(), slots);
        Placed from =
            in_rows ? place_in_rows(rng, with_slots, bytes(type)) : place_aligned(rng, with_slots, bytes(type), true);
        launches.claim(from);
        transport::StridedBox slot{{}, bytes(type)};
        for (int d = 1; d < from.box.dims.size(); ++d) slot.dims.push_back(from.box.dims[d]);
        auto const fold =
            detail::fold_box(op, type, from.base(), slot, from.box.dims[0].stride, slots, to.base(), to.box, divisor);
        launches.run_fold("fold", fold, bytes(type), []<class A>(detail::FoldBox const& each, Index tile, int t) {
            detail::fold_thread<A>(each, tile, t);
        });
        Placed wide = place_aligned(rng, extents, 8, false);
        launches.claim_unwritten(wide);
        if (!transport::can_convert(type, DType::f64, 1.0 / 3.0)) continue;
        detail::FoldCastBox const cast{detail::fold_box(op, type, from.base(), slot, from.box.dims[0].stride, slots,
                                                        wide.base(), wide.box, divisor),
                                       detail::cast_rule(type, DType::f64, 1.0 / 3.0)};
        launches.run_fold("fold and cast", cast.fold, 8, [&]<class A>(detail::FoldBox const& each, Index tile, int t) {
            detail::fold_cast_thread<A>({each, cast.cast}, tile, t);
        });
    }
    for (char const* kernel : {"scale", "fill", "fold", "fold and cast"}) {
        CAPTURE(kernel);
        CHECK(watch::traffic_of(kernel).written != 0);
    }
    watch::check_no_faults();
}

TEST_CASE("traffic: rows are copied in whole sectors, and transposed in halves of them on one side") {
    watch::forget();
    std::mt19937 rng(1);
    Launches launches(rng);
    copy_rows(launches, "rows to rows", false);
    copy_rows(launches, "rows to columns", true);
    watch::print_traffic(std::cout);
    CHECK(watch::traffic_of("rows to rows").sectors_used() == 1);
    CHECK(watch::traffic_of("rows to columns").sectors_used() >= 0.66);
    watch::check_no_faults();
}
