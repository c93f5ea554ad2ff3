// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/exec/local_tensor.hpp: boxes of larger tensors (Within), saved by some and loaded by others.
// Every element is a function of its place in the whole tensor, so that each rank knows what its boxes should hold.
#include <reshard/exec/local_tensor.hpp>

#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/load_forecast.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/exec/boxes.hpp>
#include <reshard/exec/sync.hpp>
#include <reshard/init/initialize.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "../support/oracle.hpp"
#include "../support/random.hpp"
#include "../support/thrown.hpp"
#include "support.hpp"

namespace {
using namespace checkpoint_test;
using reshard::test::check_same;
using reshard::test::thrown_by;

/// One rank's memory for what a list places, with gaps or without, all of it spoilt.
class Memory {
public:
    Memory(std::vector<PlacedTensor> const& list, int rank, bool gaps) : rank_(rank) {
        for (PlacedTensor const& one : list) {
            bool const holds = one.distribution.contains(rank);
            DynamicShape const shape = holds ? one.distribution.local_shape(rank) : DynamicShape(Shape{0});
            Indices strides = row_major_strides(shape);
            for (int dim = 0; gaps && dim < shape.rank(); ++dim) strides[dim] *= 2;
            memory_.emplace_back(static_cast<std::size_t>((shape.size() + 1) * bytes(one.dtype) * (gaps ? 2 : 1)),
                                 std::byte{0xEE});
            DynamicView const view(memory_.back().data(), one.dtype, shape, strides);
            list_.push_back({one.name, one.distribution, view, one.within});
        }
    }
    [[nodiscard]] std::vector<LocalTensor> const& list() const noexcept { return list_; }
    void fill() {
        for_each_byte([](std::byte& at, std::byte expected) { at = expected; });
    }
    [[nodiscard]] Index wrong() {
        Index count = 0;
        for_each_byte([&](std::byte at, std::byte expected) { count += at != expected ? 1 : 0; });
        return count;
    }

private:
    template <class F>
    void for_each_byte(F&& f) {
        for (LocalTensor const& one : list_) {
            if (!one.distribution.contains(rank_)) continue;
            Index const width = bytes(one.view.dtype());
            ExpectedBytes const expected(one.name);
            Box const box = detail::box_in_whole(one);
            Indices const own = row_major_strides(box.shape());
            Indices const whole = row_major_strides(detail::whole_shape(one));
            oracle::each_element(one.distribution, rank_, one.view.strides(), [&](Index place, Index offset) {
                Index of_whole = 0;
                for (int d = 0; d < box.rank(); ++d)
                    of_whole += (box.begin(d) + place / own[d] % box.extent(d)) * whole[d];
                for (Index b = 0; b < width; ++b)
                    f(one.view.data()[offset * width + b], expected.at(of_whole * width + b));
            });
        }
    }

    int rank_;
    std::deque<std::vector<std::byte>> memory_;
    std::vector<LocalTensor> list_;
};

/// Cuts a box here and there until nobody cuts it any more.
void cut(std::vector<Box>& boxes, Box const& box, test::Random& random, int depth = 0) {
    int const dim = box.rank() == 0 ? 0 : static_cast<int>(random.between(0, box.rank() - 1));
    if (box.rank() == 0 || box.extent(dim) < 2 || !random.chance(75 - 15 * depth)) return boxes.push_back(box);
    Index const middle = random.between(box.begin(dim) + 1, box.end(dim) - 1);
    Box part = box;
    part.set(dim, {box.begin(dim), middle});
    cut(boxes, part, random, depth + 1);
    part.set(dim, {middle, box.end(dim)});
    cut(boxes, part, random, depth + 1);
}

/// A box of a tensor on some of the ranks, in some order, copied or cut again.
PlacedTensor placed(TensorSpec const& tensor, Box const& box, int ranks, test::Random& random) {
    std::vector<Index> on;
    for (int rank = 0; rank < ranks; ++rank) on.push_back(rank);
    std::shuffle(on.begin(), on.end(), random.engine());
    on.resize(static_cast<std::size_t>(random.between(1, ranks)));
    DynamicMesh const mesh(Indices{std::ssize(on)}, {0, IndexList(on.data(), std::ssize(on))});
    DynamicDistribution to = replicated(mesh, box.shape());
    if (box.rank() > 0 && random.chance(50)) {
        auto const dim = static_cast<int>(random.between(0, box.rank() - 1));
        Placement const shard =
            random.chance(30) ? Placement::shard(dim, BlockCyclic{2}.rule(0, 0)) : Placement::shard(dim);
        to = DynamicDistribution(mesh, box.shape(), Placements{shard});
    }
    Indices begin;
    for (int d = 0; d < box.rank(); ++d) begin.push_back(box.begin(d));
    return {tensor.name, to, tensor.dtype, {tensor.shape, begin}};
}

/// All elements of the tensors, each in one box of the list.
std::vector<PlacedTensor> tiles(std::vector<TensorSpec> const& tensors, int ranks, test::Random& random) {
    std::vector<PlacedTensor> list;
    for (TensorSpec const& tensor : tensors) {
        std::vector<Box> boxes;
        if (random.chance(80)) cut(boxes, Box(tensor.shape), random);
        for (Box const& box : boxes) list.push_back(placed(tensor, box, ranks, random));
        if (boxes.empty()) list.push_back({tensor.name, parse("(1):(R)", tensor.shape), tensor.dtype});
    }
    std::shuffle(list.begin(), list.end(), random.engine());
    return list;
}
/// Some boxes of them, which may share elements and need not have them all.
std::vector<PlacedTensor> windows(std::vector<TensorSpec> const& tensors, int ranks, test::Random& random) {
    std::vector<PlacedTensor> list;
    for (Index i = random.between(1, 8); i > 0; --i) {
        TensorSpec const& tensor = random.pick(tensors);
        Box box(tensor.shape);
        for (int d = 0; d < box.rank(); ++d) {
            Index const begin = random.between(0, box.end(d));
            box.set(d, {begin, random.between(begin, box.end(d))});
        }
        list.push_back(placed(tensor, box, ranks, random));
    }
    return list;
}
std::string text_of(std::vector<PlacedTensor> const& list) {
    std::string text;
    for (PlacedTensor const& one : list)
        text += errors::concat("\n  ", one.name, " ", to_string(one.distribution), " of ",
                               to_string(one.distribution.shape()), detail::text_of(one.within));
    return text;
}

}  // namespace

TEST_SUITE("checkpoint/within") {
    TEST_CASE("boxes that one list of tensors saves, another loads, whichever way they are read") {
        for (std::uint64_t seed : test::seeds(150)) {
            test::Random random(seed);
            int const ranks = static_cast<int>(random.between(1, 4));
            std::vector<TensorSpec> tensors;
            for (Index i = random.between(1, 3); i > 0; --i) {
                DType const dtype = random.pick(std::vector{DType::u8, DType::bf16, DType::f32, DType::i64});
                Indices extents;
                for (Index d = random.between(1, 3); d > 0; --d) extents.push_back(random.between(1, 9));
                tensors.push_back({errors::concat("t", i), dtype, DynamicShape(extents)});
            }
            auto const saved = tiles(tensors, ranks, random);
            auto const loaded = random.chance(50) ? tiles(tensors, ranks, random) : windows(tensors, ranks, random);
            CAPTURE(seed);
            CAPTURE(ranks);
            CAPTURE(text_of(saved));
            CAPTURE(text_of(loaded));
            bool const gaps = random.chance(50);
            SaveOptions options;
            options.dedup = random.pick(std::vector{SaveDedup::lowest_rank, SaveDedup::balanced, SaveDedup::shared});
            options.min_slice_bytes = 8;
            options.small_bytes = 0;
            options.durable = false;
            Index const window = random.pick(std::vector<Index>{0, 16, 100, 1 << 20});
            TempFolder const folder;
            LoadOptions const compared{.verify_checksums =
                                           random.chance(50) ? Checksums::touched_blocks : Checksums::whole_blocks};
            EveryRankReads const every{.options = compared};
            EachRankReadsItsBoxes const boxes{.options = compared};
            OneRankReads<Scatter> const scatters{.window_bytes = window, .options = compared};
            OneRankReads<Broadcast> const broadcasts{.window_bytes = window, .options = compared};
            CooperativeRead const together{
                .window_bytes = window, .cooperation = Cooperation::always, .options = compared};
            for (int how = 0; how < 5; ++how) {
                CAPTURE(how);
                std::vector<LoadReport> reports(static_cast<std::size_t>(ranks));
                std::vector<Index> wrong(static_cast<std::size_t>(ranks), -1);
                run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                    if (how == 0) {
                        Memory memory(saved, comm.rank(), gaps);
                        memory.fill();
                        save(folder.path(), memory.list(), comm, options);
                        verify_checkpoint(folder.path(), comm);
                    }
                    Memory memory(loaded, comm.rank(), gaps);
                    LoadReport& report = reports[static_cast<std::size_t>(comm.rank())];
                    auto const& list = memory.list();
                    if (how == 0) report = load(Checkpoint::open(folder.path()), list, comm.rank(), every);
                    if (how == 1) report = load(folder.path(), list, comm, boxes);
                    if (how == 2) report = load(folder.path(), list, comm, scatters);
                    if (how == 3) report = load(folder.path(), list, comm, broadcasts);
                    if (how == 4) report = load(folder.path(), list, comm, together);
                    wrong[static_cast<std::size_t>(comm.rank())] = memory.wrong();
                });
                CHECK(wrong == std::vector<Index>(static_cast<std::size_t>(ranks), 0));
                Catalogue const catalogue(Checkpoint::open(folder.path()));
                LoadForecast const forecast = how == 0   ? forecast_load(catalogue, loaded, ranks, every)
                                              : how == 1 ? forecast_load(catalogue, loaded, ranks, boxes)
                                              : how == 2 ? forecast_load(catalogue, loaded, ranks, scatters)
                                              : how == 3 ? forecast_load(catalogue, loaded, ranks, broadcasts)
                                                         : forecast_load(catalogue, loaded, ranks, together);
                LoadReport sum;
                for (LoadReport const& report : reports) {
                    sum.bytes_loaded += report.bytes_loaded;
                    sum.bytes_read += report.bytes_read;
                    sum.reads += report.reads;
                    sum.files_opened += report.files_opened;
                    sum.bytes_verified += report.bytes_verified;
                }
                CHECK(sum.bytes_loaded == forecast.bytes_loaded);
                CHECK(sum.bytes_read == forecast.bytes_read);
                CHECK(sum.reads == forecast.reads);
                CHECK(sum.files_opened == forecast.files_opened);
                CHECK(sum.bytes_verified == forecast.bytes_verified);
                if (compared.verify_checksums == Checksums::touched_blocks && how >= 2)
                    CHECK(sum.bytes_verified == forecast.bytes_in_files);  // all that is read, each byte once
            }
        }
    }

    TEST_CASE("a third of a fused projection is loaded, and no more than its rows are read") {
        Shape const fused{12, 8};
        std::vector<PlacedTensor> const all{{"qkv", parse("(2):(S0)", fused), DType::f32}};
        std::vector<PlacedTensor> const key{
            {"qkv", parse("(2):(S1)", Shape{4, 8}), DType::f32, {.shape = fused, .begin = {4, 0}}}};
        TempFolder const folder;
        Index read = 0;
        std::mutex guard;
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            Memory model(all, comm.rank(), false);
            model.fill();
            save(folder.path(), model.list(), comm);
            Memory part(key, comm.rank(), false);
            LoadReport const report = load(folder.path(), part.list(), comm, OneRankReads<Scatter>{});
            CHECK(part.wrong() == 0);
            std::lock_guard<std::mutex> const lock(guard);
            read += report.bytes_read;
            CHECK(report.bytes_loaded == 4 * 4 * 4);
        });
        CHECK(read == 4 * 8 * 4);

        // Rows far from each other, of a tensor in one extent, those that touch and overlap together.
        Shape const tall{3000, 64};
        std::vector<PlacedTensor> rows;
        for (Index const begin : {2990, 0, 2, 2995}) {
            rows.push_back({"table", parse("(2):(R)", Shape{5, 64}), DType::f32, {tall, {begin, 0}}});
        }
        for (int how = 0; how < 3; ++how) {
            read = 0;
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                Memory model({{"table", parse("(1):(R)", tall), DType::f32}}, comm.rank(), false);
                model.fill();
                save(folder.path(), model.list(), comm);
                Memory part(rows, comm.rank(), false);
                LoadReport const report = how == 0   ? load(folder.path(), part.list(), comm, OneRankReads<Scatter>{})
                                          : how == 1 ? load(folder.path(), part.list(), comm, OneRankReads<Broadcast>{})
                                                     : load(folder.path(), part.list(), comm,
                                                            CooperativeRead{.cooperation = Cooperation::always});
                CHECK(part.wrong() == 0);
                std::lock_guard<std::mutex> const lock(guard);
                read += report.bytes_read;
            });
            CHECK(read == (7 + 10) * 64 * 4);
        }
    }

    TEST_CASE("boxes without elements, and a larger tensor without any") {
        auto const part = [](Index begin, Index count) {
            return PlacedTensor{"w", parse("(2):(R)", Shape{count, 4}), DType::f32, {Shape{8, 4}, {begin, 0}}};
        };
        SaveOptions apart;
        apart.replica_axes = {0};
        for (auto const& list :
             {std::vector{part(0, 4), part(4, 0), part(4, 4)}, std::vector{part(4, 0), part(4, 4), part(0, 4)}}) {
            TempFolder const folder;
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                Memory memory(list, comm.rank(), false);
                memory.fill();
                save(folder.path(), memory.list(), comm, apart);
                Memory again(list, comm.rank(), false);
                load(folder.path(), again.list(), comm);
                CHECK(again.wrong() == 0);
            });
            CHECK(Catalogue(Checkpoint::open(folder.path())).tensors()[0].replicas == 2);
        }
        TempFolder const folder;
        BoxTable const nothing(Shape{0, 4}, {{1, Box{{0, 0}, {0, 4}}}});
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<DynamicView> const views(comm.rank() == 1 ? 1 : 0,
                                                 DynamicView(nullptr, DType::f32, Shape{0, 4}));
            save(folder.path(), box_tensors("t", nothing, DType::f32, comm.rank(), views), comm);
        });
        Catalogue const saved(Checkpoint::open(folder.path()));
        REQUIRE(saved.find("t") != nullptr);
        CHECK(saved.find("t")->shape == Shape{0, 4});
    }

    TEST_CASE("boxes of one rank each have nothing to synchronise, boxes with copies become equal") {
        Shape const shape{4, 2};
        BoxTable const table(
            shape,
            {{0, Box{{0, 2}, {0, 2}}}, {1, Box{{2, 3}, {0, 2}}}, {0, Box{{3, 4}, {0, 2}}}, {1, Box{{3, 4}, {0, 2}}}});
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            std::vector<std::vector<float>> memory;
            std::vector<DynamicView> views;
            for (HeldBox const& held : table.boxes_of(comm.rank())) {
                memory.emplace_back(static_cast<std::size_t>(held.box.size()), static_cast<float>(comm.rank()));
                views.emplace_back(reinterpret_cast<std::byte*>(memory.back().data()), DType::f32, held.box.shape());
            }
            sync(box_tensors("t", table, DType::f32, comm.rank(), views), comm);
            CHECK(memory[0][0] == static_cast<float>(comm.rank()));
            CHECK(memory[1] == std::vector<float>(2, 0.0F));
        });
    }

    TEST_CASE("what a table of boxes says is saved, and loaded by another and by a distribution") {
        Shape const shape{10, 6};
        BoxTable const before(shape, {{0, Box{{0, 3}, {0, 6}}},
                                      {2, Box{{3, 10}, {0, 1}}},
                                      {1, Box{{3, 10}, {1, 6}}},
                                      {0, Box{{3, 10}, {1, 6}}},
                                      {2, Box{{5, 5}, {1, 6}}}});
        BoxTable const after(shape, {{1, Box{{0, 10}, {0, 2}}}, {2, Box{{0, 10}, {2, 6}}}});
        TempFolder const folder;
        auto const views_of = [](BoxTable const& table, Index rank, std::vector<std::vector<float>>& memory) {
            std::vector<DynamicView> views;
            for (HeldBox const& held : table.boxes_of(rank)) {
                memory.emplace_back(static_cast<std::size_t>(held.box.size()), -1.0F);
                views.emplace_back(reinterpret_cast<std::byte*>(memory.back().data()), DType::f32, held.box.shape());
            }
            return views;
        };
        auto const value = [](Box const& box, Index k) {
            Index const width = box.extent(1);
            return static_cast<float>((box.begin(0) + k / width) * 6 + box.begin(1) + k % width);
        };
        auto const differs = thrown_by(3, [&](ThreadCommunicator& comm) {
            std::vector<std::vector<float>> memory;
            auto const views = views_of(before, comm.rank(), memory);
            for (std::size_t i = 0; i < memory.size(); ++i)
                for (std::size_t k = 0; k < memory[i].size(); ++k)
                    memory[i][k] = value(before.boxes_of(comm.rank())[i].box, static_cast<Index>(k));
            auto const list = box_tensors("table", before, DType::f32, comm.rank(), views);
            CHECK(list.size() == 3);
            SaveReport const report = save(folder.path(), list, comm);
            CHECK(report.bytes_saved == 240);
            CHECK(report.bytes_deduplicated == 140);
            if (comm.rank() == 1) memory[0][7] = 0;  // [4, 3]
            save(folder.path(), list, comm);
        });
        check_same(differs, ErrorCode::mismatch, {"'table'", "rank 1", "[4,3]", "nothing was written"});
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            std::vector<std::vector<float>> memory;
            auto const views = views_of(after, comm.rank(), memory);
            load(folder.path(), box_tensors("table", after, DType::f32, comm.rank(), views), comm);
            for (std::size_t i = 0; i < memory.size(); ++i)
                for (std::size_t k = 0; k < memory[i].size(); ++k)
                    CHECK(memory[i][k] == value(after.boxes_of(comm.rank())[i].box, static_cast<Index>(k)));
            std::vector<float> rows(24);
            DynamicDistribution const by_rows = parse("(3):(S0)", shape);
            LocalTensor const tensor{
                "table", by_rows,
                DynamicView(reinterpret_cast<std::byte*>(rows.data()), DType::f32, by_rows.local_shape(comm.rank()))};
            load(folder.path(), {&tensor, 1}, comm);
            for (Index k = 0; k < tensor.view.size(); ++k)
                CHECK(rows[static_cast<std::size_t>(k)] == static_cast<float>(24 * comm.rank() + k));
        });
        BoxTable const twice(shape, {{0, Box{{0, 10}, {0, 6}}}, {0, Box{{0, 10}, {0, 6}}}});
        DynamicView const none(nullptr, DType::f32, Shape{10, 6});
        std::vector<DynamicView> const two{none, none};
        CHECK(caught([&] { (void)box_tensors("w", twice, DType::f32, 0, two); }).code == ErrorCode::placement);
        CHECK(caught([&] { (void)box_tensors("w", twice, DType::f32, 0, {}); }).code == ErrorCode::buffer);
    }

    TEST_CASE("lists that mean nothing are the same error on every rank") {
        Shape const whole{8, 4};
        auto const part = [&](Index begin, Index rows, Indices const& of = {8, 4}) {
            return PlacedTensor{"w", parse("(2):(R)", Shape{rows, 4}), DType::f32, {DynamicShape(of), {begin, 0}}};
        };
        TempFolder const folder;
        auto const saving = [&](std::vector<PlacedTensor> const& list) {
            return thrown_by(2, [&](ThreadCommunicator& comm) {
                Memory memory(list, comm.rank(), false);
                memory.fill();
                save(folder.path(), memory.list(), comm);
            });
        };
        check_same(saving({part(0, 3), part(4, 4)}), ErrorCode::placement, {"'w'", "[3:4,0:4]", "none of the list"});
        check_same(saving({part(0, 5), part(4, 4)}), ErrorCode::placement,
                   {"'w'", "[4:5,0:4]", "several", "[0:5,0:4]", "[4:8,0:4]"});
        check_same(saving({part(0, 4)}), ErrorCode::placement, {"'w'", "[4:8,0:4]", "none"});
        check_same(saving({part(6, 4)}), ErrorCode::shape, {"'w'", "[4,4] at [6,0]", "[8,4]"});
        check_same(saving({part(-1, 4)}), ErrorCode::shape, {"'w'", "at [-1,0]"});
        check_same(saving({part(0, 4), part(4, 4, {9, 4})}), ErrorCode::mismatch, {"'w'", "[9,4]", "[8,4]"});
        PlacedTensor other = part(4, 4);
        other.dtype = DType::i32;
        check_same(saving({part(0, 4), other}), ErrorCode::mismatch, {"'w'", "I32", "F32"});
        PlacedTensor flat = part(0, 4);
        flat.within.begin = {0};
        check_same(saving({flat}), ErrorCode::shape, {"'w'", "at [0]", "a begin for each dimension"});
        flat.within = {{}, {4, 0}};
        check_same(saving({flat}), ErrorCode::shape, {"'w'", "begins at [4,0] of no tensor", "the larger one"});
        flat.within = {Shape{2, 4, 4}, {1, 0, 0}};
        check_same(saving({flat}), ErrorCode::shape, {"'w'", "[4,4] is none of", "[2,4,4]", "as many dimensions"});
        PlacedTensor const all{"w", parse("(2):(R)", whole), DType::f32};
        check_same(saving({part(0, 4), all}), ErrorCode::format, {"'w'", "given twice"});
        for (test::Thrown const& none : saving({part(4, 4), part(0, 4)})) CHECK(none.message == "");

        auto const loading = [&](auto const& list_of) {
            return thrown_by(2, [&](ThreadCommunicator& comm) {
                std::vector<PlacedTensor> const list{list_of(comm.rank())};
                Memory memory(list, comm.rank(), false);
                load(folder.path(), memory.list(), comm);
            });
        };
        check_same(loading([&](int) { return part(2, 4, {9, 4}); }), ErrorCode::mismatch, {"'w'", "[8,4]", "[9,4]"});
        check_same(loading([&](int) { return part(2, 7); }), ErrorCode::shape, {"'w'", "[7,4] at [2,0]"});
        check_same(loading([&](int rank) { return part(2 + rank, 4); }), ErrorCode::mismatch,
                   {"'w'", "at [3,0] of [8,4]", "at [2,0] of [8,4]"});
        CHECK(caught([&] {
                  Memory memory({part(2, 7)}, 0, false);
                  load(Checkpoint::open(folder.path()), memory.list(), 0);
              }).code == ErrorCode::shape);
    }

    TEST_CASE("a box of a larger tensor is initialised as the larger one is") {
        Shape const shape{6, 5, 4};
        std::vector<double> whole(120);
        LocalTensor const all{"w", parse("(1):(R)", shape),
                              DynamicView(reinterpret_cast<std::byte*>(whole.data()), DType::f64, shape)};
        initialize(all, 0, 17, Normal{});
        Shape const own{3, 2, 4};
        std::vector<double> part(24);
        for (char const* const placed : {"(2):(S0)", "(2):(S1)", "(2):(S2:cyc1)", "(2):(R)"}) {
            for (int rank = 0; rank < 2; ++rank) {
                DynamicDistribution const to = parse(placed, own);
                LocalTensor const box{
                    "w",
                    to,
                    DynamicView(reinterpret_cast<std::byte*>(part.data()), DType::f64, to.local_shape(rank)),
                    {.shape = shape, .begin = {2, 3, 0}}};
                initialize(box, rank, 17, Normal{});
                oracle::each_element(to, rank, box.view.strides(), [&](Index place, Index offset) {
                    Index const of_whole = (2 + place / 8) * 20 + (3 + place / 4 % 2) * 4 + place % 4;
                    CHECK(part[static_cast<std::size_t>(offset)] == whole[static_cast<std::size_t>(of_whole)]);
                });
            }
        }
    }
}
