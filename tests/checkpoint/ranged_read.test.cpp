// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/ranged_read.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <barrier>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace reshard;
using detail::count_reads;
using detail::read_boxes;
using detail::ReadBox;
using detail::ReadPlan;
using detail::ReadTotals;

namespace {

constexpr Index KiB = 1024;
constexpr Index MiB = Index{1} << 20;

std::byte content(int file, Index offset) {
    auto const mixed = (static_cast<std::uint64_t>(offset) + 77U * static_cast<std::uint64_t>(file)) *
                       std::uint64_t{0x9e3779b97f4a7c15};
    return static_cast<std::byte>(mixed >> 56U);
}

struct Call {
    int file;
    Index offset;
    Index bytes;
    std::byte const* to;
    std::thread::id thread;
};

/// A file system of any size that remembers what it was asked for.
struct Files {
    std::vector<Call> calls;
    std::mutex mutex;
    void operator()(int file, Index offset, std::span<std::byte> bytes) {
        {
            std::lock_guard<std::mutex> const lock(mutex);
            calls.push_back({file, offset, static_cast<Index>(bytes.size()), bytes.data(), std::this_thread::get_id()});
        }
        for (std::byte& byte : bytes) byte = content(file, offset++);
    }
};

transport::StridedBox run(Index bytes) { return {{transport::StridedDim{bytes, 1}}, 1}; }

/// `bytes` of a file that are one run in memory too.
ReadBox plain(int file, Index offset, Index bytes, std::byte* to = nullptr) {
    return {file, offset, run(bytes), to, run(bytes)};
}

/// Rows of a file, close together in memory.
ReadBox rows(Index count, Index row_bytes, Index stride, Index offset = 0, std::byte* to = nullptr) {
    return {0,
            offset,
            {{transport::StridedDim{count, stride}, transport::StridedDim{row_bytes, 1}}, 1},
            to,
            {{transport::StridedDim{count, row_bytes}, transport::StridedDim{row_bytes, 1}}, 1}};
}

bool holds(std::byte const* at, int file, Index offset, Index bytes) {
    for (Index i = 0; i < bytes; ++i) {
        if (at[i] != content(file, offset + i)) return false;
    }
    return true;
}

Index reads_of(std::vector<ReadBox> const& boxes, ReadOptions const& options = {}) {
    return count_reads(boxes, options).reads;
}

std::string message_of(ReadOptions const& options) {
    try {
        static_cast<void>(count_reads({}, options));
    } catch (BufferError const& error) {
        return error.message();
    }
    return {};
}

/// A thread that has failed says when it has ended.
std::atomic<bool> ended{false};
struct EndMark {
    bool set = false;
    ~EndMark() {
        if (!set) return;
        ended = true;
        ended.notify_all();
    }
};
thread_local EndMark mark;

}  // namespace

TEST_CASE("no boxes, boxes without elements and options that mean nothing") {
    Files files;
    CHECK(read_boxes(ReadPlan({}, {}), files) == ReadTotals{});
    std::vector<ReadBox> const empty{plain(3, 100, 0), rows(0, 10, 20), rows(10, 0, 20)};
    CHECK(read_boxes(ReadPlan(empty, {}), files) == ReadTotals{});
    CHECK(files.calls.empty());

    CHECK(message_of({}) == "");
    ReadOptions options;
    options.in_flight = 0;
    CHECK(message_of(options) == "reshard::ReadOptions: in_flight is 0. Fix: allow at least one read.");
    CHECK_THROWS_AS(read_boxes(ReadPlan({}, options), files), BufferError);
    options = {};
    options.chunk_bytes = 0;
    CHECK(message_of(options).find("chunk_bytes is 0. Fix:") != std::string::npos);
    options = {};
    options.gap_bytes = -1;
    CHECK(message_of(options).find("gap_bytes is -1. Fix:") != std::string::npos);
    options = {};
    options.direct_bytes = 0;
    CHECK(message_of(options).find("direct_bytes is 0. Fix:") != std::string::npos);
    options = {};
    options.over_read = 0.99;
    CHECK(message_of(options).find("over_read is below 1. Fix:") != std::string::npos);
    options.over_read = std::numeric_limits<double>::quiet_NaN();
    CHECK(message_of(options).find("over_read is below 1. Fix:") != std::string::npos);
}

TEST_CASE("a box without dimensions is one element") {
    std::vector<std::byte> memory(8);
    std::vector<ReadBox> const boxes{{2, 1000, {{}, 8}, memory.data(), {{}, 8}}};
    Files files;
    CHECK(read_boxes(ReadPlan(boxes, {}), files) == ReadTotals{1, 8, 8, 0, 1});
    CHECK(holds(memory.data(), 2, 1000, 8));
    REQUIRE(files.calls.size() == 1);
    CHECK(files.calls[0].to == memory.data());
}

TEST_CASE("short rows of a large tensor are read in chunks, not one by one") {
    // The embedding of a 0.5B model, bf16, [151936, 896], cut along dimension 1.
    Index const row = 896 * 2;
    for (Index const parts : {2, 4, 8}) {
        CAPTURE(parts);
        for (double const over_read : {1.0, 2.0}) {
            ReadOptions options;
            options.over_read = over_read;
            ReadTotals const totals = count_reads(std::vector{rows(151936, row / parts, row)}, options);
            Index const span = 151935 * row + row / parts;
            CHECK(totals.reads == detail::ceil_div(span, 8 * MiB));
            CHECK(totals.bytes_read <= span);
            CHECK(totals.bytes_read > span - totals.reads * row);
            CHECK(totals.bytes_wanted == 151936 * row / parts);
            CHECK(totals.scratch_bytes <= 32 * MiB);
            CHECK(totals.scratch_bytes > 32 * MiB - 4 * row);
        }
    }
}

TEST_CASE("a gap is read when it is a page, or short and worth it") {
    double const any = std::numeric_limits<double>::infinity();
    auto const reads = [](Index row, Index gap, Index most, double over_read) {
        ReadOptions options;
        options.gap_bytes = most;
        options.over_read = over_read;
        return reads_of({rows(10, row, row + gap)}, options);
    };
    CHECK(reads(1, 4096, 0, 1.0) == 1);
    CHECK(reads(1, 4097, 0, 1.0) == 10);
    ReadOptions strict;
    strict.gap_bytes = 0;
    CHECK(reads_of({plain(0, 0, 1), plain(0, 4097, 1)}, strict) == 1);
    CHECK(reads_of({plain(0, 0, 1), plain(0, 4098, 1)}, strict) == 2);
    CHECK(reads(1, 4097, 4096, any) == 10);
    CHECK(reads(1, 4097, 4097, any) == 1);
    CHECK(reads(1, 4097, 4097, 2.0) == 10);
    CHECK(reads(5000, 5000, 4999, 2.0) == 10);
    CHECK(reads(5000, 5000, 5000, 2.0) == 1);
    CHECK(reads(5000, 5000, 5000, 1.4) == 10);
    CHECK(reads(5000, 5000, 5000, 1.5) == 5);  // two are worth it, three are not
    // What was read before pays for the gap, not what may come.
    CHECK(reads_of({plain(0, 0, 20000), plain(0, 40002, 1)}) == 2);
    CHECK(reads_of({plain(0, 0, 20001), plain(0, 40002, 1)}) == 1);
    CHECK(reads_of({plain(0, 0, 1), plain(1, 1, 1)}) == 2);  // files are not joined
}

TEST_CASE("small tensors that lie near each other are one read") {
    std::vector<std::byte> memory(64 * KiB);
    std::vector<ReadBox> boxes;
    for (Index i = 0; i < 24; ++i) {  // adjacent, nearly adjacent, in any order in memory
        Index const slot = (i * 7) % 24;
        boxes.push_back(plain(0, i * 1300 + (i % 3), 1024, memory.data() + slot * 2048));
    }
    Files files;
    ReadTotals const totals = read_boxes(ReadPlan(boxes, {}), files);
    CHECK(totals.reads == 1);
    CHECK(files.calls.size() == 1);
    CHECK(files.calls[0].thread == std::this_thread::get_id());  // one read needs no thread
    CHECK(totals.scratch_bytes == totals.bytes_read);            // and no more scratch than it is long
    for (Index i = 0; i < 24; ++i) CHECK(holds(memory.data() + (i * 7) % 24 * 2048, 0, i * 1300 + (i % 3), 1024));
}

TEST_CASE("a large tensor goes straight into its place, in several reads") {
    std::vector<std::byte> memory(3 * MiB + 5);
    std::vector<ReadBox> const boxes{plain(0, 123, 3 * MiB + 5, memory.data())};
    ReadOptions options;
    options.chunk_bytes = MiB;
    Files files;
    CHECK(read_boxes(ReadPlan(boxes, options), files) == ReadTotals{4, 3 * MiB + 5, 3 * MiB + 5, 0, 1});
    for (Call const& call : files.calls) CHECK(call.to == memory.data() + (call.offset - 123));
    CHECK(holds(memory.data(), 0, 123, 3 * MiB + 5));
}

TEST_CASE("large tensors stay out of scratch although small ones lie between them") {
    std::vector<std::byte> memory(8 * MiB);
    std::vector<ReadBox> boxes;
    Index offset = 8;
    std::byte* to = memory.data();
    for (int i = 0; i < 4; ++i) {
        boxes.push_back(plain(0, offset, MiB + 1, to));
        boxes.push_back(plain(0, offset + MiB + 1, 100, to + MiB + 64));
        boxes.push_back(plain(0, offset + MiB + 1 + 100, 100, to + MiB + 1024));
        offset += MiB + 201;
        to += 2 * MiB;
    }
    Files files;
    ReadTotals const totals = read_boxes(ReadPlan(boxes, {}), files);
    CHECK(totals.reads == 8);
    CHECK(totals.bytes_read == totals.bytes_wanted);
    CHECK(totals.scratch_bytes == 4 * 200);
    for (ReadBox const& box : boxes) CHECK(holds(box.to, 0, box.offset, box.in_file.payload_bytes()));

    ReadOptions together;
    together.direct_bytes = 100 * MiB;
    CHECK(count_reads(boxes, together).reads == 1);
}

TEST_CASE("boxes that continue each other in file and memory are read straight into memory") {
    std::vector<std::byte> memory(3000);
    std::vector<ReadBox> const boxes{plain(0, 2000, 1000, memory.data() + 2000), plain(0, 0, 1000, memory.data()),
                                     plain(0, 1000, 1000, memory.data() + 1000)};
    Files files;
    CHECK(read_boxes(ReadPlan(boxes, {}), files) == ReadTotals{1, 3000, 3000, 0, 1});
    CHECK(holds(memory.data(), 0, 0, 3000));
}

TEST_CASE("rows that are long enough go straight into their places") {
    // [4, 2, 1 MiB] cut in dimension 1: four runs, one after the other in memory.
    std::vector<std::byte> memory(4 * MiB);
    std::vector<ReadBox> const boxes{rows(4, MiB, 2 * MiB, 7, memory.data())};
    Files files;
    CHECK(read_boxes(ReadPlan(boxes, {}), files) == ReadTotals{4, 4 * MiB, 4 * MiB, 0, 1});
    for (Index i = 0; i < 4; ++i) CHECK(holds(memory.data() + i * MiB, 0, 7 + i * 2 * MiB, MiB));
}

TEST_CASE("what two boxes want is read once") {
    std::vector<std::byte> memory(4 * MiB);
    std::vector<ReadBox> boxes{plain(0, 50, MiB + 3, memory.data()), plain(0, 50, MiB + 3, memory.data() + 2 * MiB)};
    boxes.push_back({0,
                     60,
                     {{transport::StridedDim{1000, 3}}, 2},
                     memory.data() + 3 * MiB + 1000,
                     {{transport::StridedDim{1000, 2}}, 2}});
    Files files;
    CHECK(read_boxes(ReadPlan(boxes, {}), files) == ReadTotals{1, MiB + 3, 2 * (MiB + 3) + 2000, 0, 1});
    CHECK(holds(memory.data(), 0, 50, MiB + 3));
    CHECK(holds(memory.data() + 2 * MiB, 0, 50, MiB + 3));
    for (Index i = 0; i < 1000; ++i) REQUIRE(holds(memory.data() + 3 * MiB + 1000 + 2 * i, 0, 60 + 3 * i, 2));
}

TEST_CASE("one long row and long elements are cut into chunks") {
    std::vector<std::byte> memory(40000);
    ReadOptions options;
    options.chunk_bytes = 1001;
    // One run in the file, elements apart in memory.
    std::vector<ReadBox> boxes{
        {0, 9, {{transport::StridedDim{5000, 2}}, 2}, memory.data(), {{transport::StridedDim{5000, 4}}, 2}}};
    Files files;
    ReadTotals totals = read_boxes(ReadPlan(boxes, options), files);
    CHECK(totals.reads == 10);
    CHECK(totals.scratch_bytes == 4 * 1001);
    for (Index i = 0; i < 5000; ++i) REQUIRE(holds(memory.data() + 4 * i, 0, 9 + 2 * i, 2));
    options.chunk_bytes = INT64_MAX;  // no limit
    CHECK(read_boxes(ReadPlan(boxes, options), files).reads == 1);
    options.chunk_bytes = 1001;
    // Elements that are longer than a chunk.
    boxes = {
        {0, 9, {{transport::StridedDim{2, 9000}}, 9000}, memory.data(), {{transport::StridedDim{2, 10000}}, 9000}}};
    totals = read_boxes(ReadPlan(boxes, options), files);
    CHECK(totals.reads == 18);
    for (Index i = 0; i < 2; ++i) CHECK(holds(memory.data() + 10000 * i, 0, 9 + 9000 * i, 9000));
}

TEST_CASE("runs and gaps of two bytes, and a transposition") {
    Index const count = 20000;
    std::vector<std::byte> memory(static_cast<std::size_t>(2 * count));
    ReadOptions options;
    options.chunk_bytes = 4097;  // cuts an element now and then
    Files files;
    std::vector<ReadBox> boxes{
        {0, 1, {{transport::StridedDim{count, 4}}, 2}, memory.data(), {{transport::StridedDim{count, 2}}, 2}}};
    ReadTotals const totals = read_boxes(ReadPlan(boxes, options), files);
    CHECK(totals.reads == 20);
    for (Index i = 0; i < count; ++i) REQUIRE(holds(memory.data() + 2 * i, 0, 1 + 4 * i, 2));
    boxes = {{0,
              1,
              {{transport::StridedDim{100, 2}, transport::StridedDim{200, 200}}, 2},
              memory.data(),
              {{transport::StridedDim{100, 400}, transport::StridedDim{200, 2}}, 2}}};
    read_boxes(ReadPlan(boxes, options), files);
    for (Index i = 0; i < 100; ++i) {
        for (Index j = 0; j < 200; ++j) REQUIRE(holds(memory.data() + 400 * i + 2 * j, 0, 1 + 2 * i + 200 * j, 2));
    }
}

TEST_CASE("block-cyclic boxes of several dimensions interleave into common reads") {
    // A tensor [64, 96] of 4 bytes, dimension 0 in blocks of 2 over 2, dimension 1 in blocks of 8 over 3: each of the
    // six parts is one box of four dimensions. All parts together want everything.
    std::vector<std::byte> memory(64 * 96 * 4);
    std::vector<ReadBox> boxes;
    std::byte* to = memory.data();
    for (Index r = 0; r < 2; ++r) {
        for (Index c = 0; c < 3; ++c) {
            boxes.push_back({5,
                             16 + (r * 2 * 96 + c * 8) * 4,
                             {{transport::StridedDim{16, 4 * 96 * 4}, transport::StridedDim{2, 96 * 4},
                               transport::StridedDim{4, 24 * 4}, transport::StridedDim{8, 4}},
                              4},
                             to,
                             {{transport::StridedDim{16, 256}, transport::StridedDim{2, 128},
                               transport::StridedDim{4, 32}, transport::StridedDim{8, 4}},
                              4}});
            to += 16 * 256;
        }
    }
    Files files;
    CHECK(read_boxes(ReadPlan(boxes, {}), files) == ReadTotals{1, 64 * 96 * 4, 64 * 96 * 4, 64 * 96 * 4, 1});
    for (Index row = 0; row < 64; ++row) {
        for (Index column = 0; column < 96; ++column) {
            Index const part = row / 2 % 2 * 3 + column / 8 % 3;
            Index const at = (row / 4 * 2 + row % 2) * 32 + column / 24 * 8 + column % 8;
            REQUIRE(holds(memory.data() + part * 16 * 256 + at * 4, 5, 16 + (row * 96 + column) * 4, 4));
        }
    }
}

TEST_CASE("offsets beyond 4 GiB") {
    Index const far = (Index{1} << 40) + 12345;
    std::vector<std::byte> memory(4000);
    std::vector<ReadBox> const boxes{{0,
                                      far,
                                      {{transport::StridedDim{4, Index{1} << 33}, transport::StridedDim{1000, 1}}, 1},
                                      memory.data(),
                                      rows(4, 1000, 0).in_memory}};
    Files files;
    CHECK(read_boxes(ReadPlan(boxes, {}), files) == ReadTotals{4, 4000, 4000, 0, 1});
    for (Index i = 0; i < 4; ++i) CHECK(holds(memory.data() + 1000 * i, 0, far + i * (Index{1} << 33), 1000));
}

TEST_CASE("reads are in flight together, each with its own scratch") {
    std::vector<std::byte> memory(8000);
    // Elements apart in memory: every read needs scratch. Four reads of 1000 bytes, which wait for each other.
    std::vector<ReadBox> const boxes{
        {0, 0, {{transport::StridedDim{4000, 1}}, 1}, memory.data(), {{transport::StridedDim{4000, 2}}, 1}}};
    ReadOptions options;
    options.chunk_bytes = 1000;
    options.in_flight = 4;
    Files files;
    std::barrier all_here(4);
    ReadTotals const totals =
        read_boxes(ReadPlan(boxes, options), [&](int file, Index offset, std::span<std::byte> bytes) {
            all_here.arrive_and_wait();
            files(file, offset, bytes);
            all_here.arrive_and_wait();
        });
    CHECK(totals == ReadTotals{4, 4000, 4000, 4000, 1});
    std::set<std::byte const*> scratch;
    std::set<std::thread::id> threads;
    for (Call const& call : files.calls) {
        scratch.insert(call.to);
        threads.insert(call.thread);
    }
    CHECK(scratch.size() == 4);
    CHECK(threads.size() == 4);
    CHECK(threads.contains(std::this_thread::get_id()));
    for (Index i = 0; i < 4000; ++i) REQUIRE(holds(memory.data() + 2 * i, 0, i, 1));

    options.in_flight = 1;
    files.calls.clear();
    CHECK(read_boxes(ReadPlan(boxes, options), files).scratch_bytes == 1000);
    for (std::size_t i = 0; i != files.calls.size(); ++i) {
        CHECK(files.calls[i].offset == static_cast<Index>(i) * 1000);  // in order, on this thread, in one chunk
        CHECK(files.calls[i].to == files.calls[0].to);
        CHECK(files.calls[i].thread == std::this_thread::get_id());
    }
}

TEST_CASE("the first failure in the order of the file is the one that is reported") {
    std::vector<std::byte> memory(100000);
    std::vector<ReadBox> const boxes{plain(0, 0, 100000, memory.data())};
    ReadOptions options;
    options.chunk_bytes = 1000;
    auto const first_failure = [&](int in_flight, Index& calls) {
        options.in_flight = in_flight;
        std::atomic<Index> count{0};
        std::string what;
        try {
            read_boxes(ReadPlan(boxes, options), [&](int, Index offset, std::span<std::byte>) {
                ++count;
                if (offset == 37000) {
                    std::this_thread::yield();
                    errors::raise(ErrorCode::io, "IoError: at 37000");
                }
                if (offset > 37000) throw std::runtime_error("later");
            });
        } catch (IoError const& error) {
            what = error.message();
        }
        calls = count;
        return what;
    };
    Index calls = 0;
    CHECK(first_failure(1, calls) == "IoError: at 37000");
    CHECK(calls == 38);  // none after it
    for (int in_flight = 2; in_flight <= 8; ++in_flight) {
        CAPTURE(in_flight);
        CHECK(first_failure(in_flight, calls) == "IoError: at 37000");
        CHECK(calls >= 38);
        CHECK(calls <= 37 + in_flight);  // all that are read from there on fail, and each fails a thread
    }
}

TEST_CASE("after a failure no more reads are started") {
    ended = false;  // until the other thread has ended, this one stays in its read
    std::vector<std::byte> memory(100000);
    std::vector<ReadBox> const boxes{plain(0, 0, 100000, memory.data())};
    ReadOptions options;
    options.chunk_bytes = 1000;
    options.in_flight = 2;
    std::thread::id const here = std::this_thread::get_id();
    std::atomic<int> calls{0};
    auto const read_at = [&](int, Index, std::span<std::byte>) {
        ++calls;
        if (std::this_thread::get_id() == here) return ended.wait(false);
        mark.set = true;
        throw std::runtime_error("the disk is gone");
    };
    CHECK_THROWS_AS(read_boxes(ReadPlan(boxes, options), read_at), std::runtime_error);
    CHECK(calls <= 2);
}
