// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/mch/state.hpp.
#include <reshard/mch/state.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {
using namespace reshard;

/// The buffers of one rank of 10 slots on 4 ranks: 3 entries from slot 3 on rank 1.
struct Buffers {
    MchTable table = mch_table("user", Mesh{4}, 10, MchEviction::distance_lfu);
    std::vector<Index> ids = std::vector<Index>(3), slots = ids, counts = ids, access = ids;
    std::vector<Index> segments = std::vector<Index>(1025), iteration = std::vector<Index>(1);
    MchState state;

    Buffers() {
        state.ids = view(ids);
        state.slots = view(slots);
        state.metadata = {{"last_access_iter", view(access)}, {"counts", view(counts)}};
        state.segments = view(segments);
        state.iteration = view(iteration);
    }
    static DynamicView view(std::vector<Index>& v) {
        return TensorView<Index>(v.data(), Shape{static_cast<Index>(v.size())});
    }
};

template <class Change>
void check_refused(ErrorCode code, char const* what, Change const& change) {
    Buffers buffers;
    change(buffers);
    CAPTURE(what);
    try {
        static_cast<void>(shard_of(buffers.table, buffers.state, 1));
        FAIL("accepted");
    } catch (Error const& error) {
        CHECK(error.code() == code);
        CHECK(error.message().find("reshard::mch: table 'user': ") == 0);
        CHECK_MESSAGE(error.message().find(what) != std::string::npos, error.message());
        CHECK(error.message().find("Fix: ") != std::string::npos);
    }
}

TEST_CASE("a shard is its state's memory, columns in the table's order") {
    Buffers b;
    MchShard const shard = shard_of(b.table, b.state, 1);
    CHECK(shard.entries == 3);
    CHECK(shard.offset == 3);
    CHECK(shard.range() == Interval{3, 6});
    CHECK(shard.ids == b.ids.data());
    CHECK(shard.slots == b.slots.data());
    REQUIRE(shard.metadata.size() == 2);
    CHECK(static_cast<void*>(shard.metadata[0]) == b.counts.data());
    CHECK(static_cast<void*>(shard.metadata[1]) == b.access.data());
    CHECK(shard.segments == b.segments.data());
    CHECK(shard.segment_count == 1025);
    CHECK(shard.iteration == b.iteration.data());
}

TEST_CASE("columns have any width, and TorchRec's [z, 1] is as good as [z]") {
    Buffers b;
    std::vector<float> embedding(12);
    std::vector<std::int16_t> hours(3);
    b.table.metadata.push_back({"score", 16, 0});
    b.table.metadata.push_back({"hour", 2, 0xff});
    b.state.metadata.push_back({"score", TensorView<float>(embedding.data(), Shape{3, 4})});
    b.state.metadata.push_back({"hour", TensorView<std::int16_t>(hours.data(), Shape{3, 1})});
    b.state.ids = TensorView<Index>(b.ids.data(), Shape{3, 1});
    MchShard const shard = shard_of(b.table, b.state, 1);
    REQUIRE(shard.metadata.size() == 4);
    CHECK(static_cast<void*>(shard.metadata[2]) == embedding.data());
    CHECK(static_cast<void*>(shard.metadata[3]) == hours.data());
}

TEST_CASE("identities and metadata of a bucketed table are a shard without slots") {
    MchTable table = mch_table("item", Mesh{4}, 24, MchEviction::none);
    table.layout = MchLayout::buckets;
    table.buckets = 12;
    table.metadata = {{"metadata", 4, 0xff}};
    std::vector<Index> identities(6);
    std::vector<std::int32_t> hours(6);
    MchState state;
    state.ids = TensorView<Index>(identities.data(), Shape{6, 1});
    state.metadata = {{"metadata", TensorView<std::int32_t>(hours.data(), Shape{6, 1})}};
    MchShard const shard = shard_of(table, state, 2);
    CHECK(shard.range() == Interval{12, 18});
    CHECK(shard.ids == identities.data());
    CHECK(shard.slots == nullptr);
    CHECK(shard.iteration == nullptr);
    state.iteration = TensorView<Index>(identities.data(), Shape{1});
    CHECK_THROWS_AS(static_cast<void>(shard_of(table, state, 2)), BufferError);
}

TEST_CASE("a shard of no slots, and a rank outside the mesh, need no buffers") {
    MchTable const table = mch_table("user", Mesh{8}, 10, MchEviction::lfu);
    for (Index rank : {5, 7, 8, 100}) {
        MchShard const shard = shard_of(table, MchState{}, rank);
        CHECK(shard.entries == 0);
        CHECK(shard.offset == 10);
        CHECK(shard.metadata.size() == 1);
    }
    Buffers b;  // what is there is checked nevertheless
    b.table = mch_table("user", Mesh{8}, 10, MchEviction::distance_lfu);
    CHECK_THROWS_AS(static_cast<void>(shard_of(b.table, b.state, 7)), BufferError);
    std::vector<Index> none;
    b.state.ids = b.state.slots = b.state.metadata[0].view = b.state.metadata[1].view = Buffers::view(none);
    CHECK(shard_of(b.table, b.state, 7).iteration == b.iteration.data());
    for (DynamicView const& no_iteration : {DynamicView(), DynamicView(b.iteration.data(), DType::i64, Shape{0})}) {
        b.state.iteration = no_iteration;  // docs/mch.md, "Without a file": then nothing is said of the segments
        MchShard const shard = shard_of(b.table, b.state, 7);
        CHECK(shard.iteration == nullptr);
        CHECK(shard.segments == nullptr);
    }
}

TEST_CASE("buffers that are not what the table says are refused by name") {
    using V = TensorView<Index>;
    check_refused(ErrorCode::mismatch, "hash size 0", [](Buffers& b) { b.table.hash_size = 0; });
    // pytorch/torchrec and alibaba/TorchEasyRec die of this in an obscure assertion.
    check_refused(ErrorCode::buffer,
                  "the column of ids has shape [3]: 3 entries, but the shard has 4 (slots 4 to 8 of 16)",
                  [](Buffers& b) { b.table = mch_table("user", Mesh{4}, 16, MchEviction::distance_lfu); });
    check_refused(ErrorCode::buffer, "the column of slots is null",
                  [](Buffers& b) { b.state.slots = V(nullptr, Shape{3}); });
    check_refused(ErrorCode::buffer, "the column of slots has shape []", [](Buffers& b) { b.state.slots = {}; });
    check_refused(ErrorCode::buffer, "the column of ids has strides [2]",
                  [](Buffers& b) { b.state.ids = V(b.segments.data(), Shape{3}, Indices{2}); });
    check_refused(ErrorCode::buffer, "the column of ids has 16 bytes an entry", [](Buffers& b) {
        b.state.ids = V(b.segments.data(), Shape{3, 2});
    });
    check_refused(ErrorCode::dtype, "the column of ids is U64, not I64",
                  [](Buffers& b) { b.state.ids = DynamicView(b.ids.data(), DType::u64, Shape{3}); });
    check_refused(ErrorCode::dtype, "column 'counts' is F64",
                  [](Buffers& b) { b.state.metadata[1].view = DynamicView(b.counts.data(), DType::f64, Shape{3}); });
    check_refused(ErrorCode::dtype, "of F4 has no addressable entries", [](Buffers& b) {
        b.table.metadata.push_back({"x"});
        b.state.metadata.push_back({"x", DynamicView(b.segments.data(), DType::f4, Shape{3})});
    });
    check_refused(ErrorCode::buffer, "column 'x' has 4 bytes an entry, the table says 8", [](Buffers& b) {
        b.table.metadata.push_back({"x"});
        b.state.metadata.push_back({"x", DynamicView(b.segments.data(), DType::i32, Shape{3})});
    });
    check_refused(ErrorCode::mismatch, "the state has no column 'counts'",
                  [](Buffers& b) { b.state.metadata.pop_back(); });
    check_refused(ErrorCode::mismatch, "the state has no column", [](Buffers& b) { b.state.metadata.clear(); });
    check_refused(ErrorCode::mismatch, "two columns 'counts'", [](Buffers& b) { b.state.metadata[0].name = "counts"; });
    check_refused(ErrorCode::mismatch, "the table has no column 'x'", [](Buffers& b) {
        b.state.metadata.push_back({"x", b.state.ids});
    });
    check_refused(ErrorCode::buffer, "column 'counts' overlaps the column of ids",
                  [](Buffers& b) { b.state.metadata[1].view = b.state.ids; });
    check_refused(ErrorCode::buffer, "the current iteration has shape [2]",
                  [](Buffers& b) { b.state.iteration = V(b.segments.data(), Shape{2}); });
    check_refused(ErrorCode::buffer, "4 places for the 5 offsets of 4 shards",
                  [](Buffers& b) { b.state.segments = V(b.segments.data(), Shape{4}); });
    check_refused(ErrorCode::buffer, "0 places for the 5 offsets", [](Buffers& b) { b.state.segments = {}; });
    check_refused(ErrorCode::buffer, "the current iteration has shape []", [](Buffers& b) { b.state.iteration = {}; });
    check_refused(ErrorCode::buffer, "a column of slots is given, but a buckets table", [](Buffers& b) {
        b.table = mch_table("user", Mesh{4}, 12, MchEviction::distance_lfu);
        b.table.layout = MchLayout::buckets;
    });
}

MchIdBounds bounds_of(std::vector<Index> ids, MchLayout layout = MchLayout::sorted) {
    MchTable table;
    table.layout = layout;
    MchShard shard;
    shard.entries = static_cast<Index>(ids.size());
    shard.ids = ids.data();
    return id_bounds(table, shard);
}

TEST_CASE("bounds are those of the live ids of 0 or more; negative ones are counted") {
    CHECK(bounds_of({}) == MchIdBounds{});
    CHECK(bounds_of({INT64_MAX, INT64_MAX}) == MchIdBounds{0, 0, -1, 0});
    CHECK(bounds_of({3, 9, INT64_MAX - 1, INT64_MAX}) == MchIdBounds{3, 3, INT64_MAX - 1, 0});
    CHECK(bounds_of({9, 0, 4}) == MchIdBounds{3, 0, 9, 0});
    CHECK(bounds_of({INT64_MIN, -1}) == MchIdBounds{2, 0, -1, 2});
    CHECK(bounds_of({-7, 5, INT64_MAX}) == MchIdBounds{2, 5, 5, 1});
    CHECK(bounds_of({-1, 5, INT64_MAX, -2}, MchLayout::buckets) == MchIdBounds{3, 5, INT64_MAX, 1});
}

TEST_CASE("bounds of runs add up to those of all") {
    Index const all[] = {-9, -7, 3, 5, 8, INT64_MAX, INT64_MAX};
    for (std::size_t cut = 0; cut <= std::size(all); ++cut) {
        CAPTURE(cut);
        std::vector<Index> const first(all, all + cut);
        std::vector<Index> const second(all + cut, std::end(all));
        CHECK(bounds_of(first) + bounds_of(second) == MchIdBounds{5, 3, 8, 2});
        CHECK(bounds_of(second) + bounds_of(first) == MchIdBounds{5, 3, 8, 2});
    }
    CHECK(MchIdBounds{} + MchIdBounds{} == MchIdBounds{});
}

}  // namespace
