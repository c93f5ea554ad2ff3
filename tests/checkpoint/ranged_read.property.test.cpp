// SPDX-License-Identifier: Apache-2.0
//
// Random boxes of random files against an oracle that knows elements and bytes only.
#include <reshard/checkpoint/ranged_read.hpp>

#include <support/random.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace reshard;
using detail::count_reads;
using detail::read_boxes;
using detail::ReadBox;
using detail::ReadPlan;
using detail::ReadTotals;

namespace {

/// What files hold, over and over: a prime number of bytes, so that other places look different.
std::vector<std::byte> const& contents() {
    static std::vector<std::byte> const bytes = [] {
        std::vector<std::byte> list;
        for (std::uint64_t i = 0; i != 65537; ++i)
            list.push_back(static_cast<std::byte>(i * std::uint64_t{0x9e3779b97f4a7c15} >> 56U));
        return list;
    }();
    return bytes;
}
std::size_t place_in_contents(int file, Index offset) {
    return static_cast<std::size_t>(offset + 77 * Index{file}) % contents().size();
}
std::byte content(int file, Index offset) { return contents()[place_in_contents(file, offset)]; }
void read_contents(int file, Index offset, std::span<std::byte> to) {
    std::size_t at = place_in_contents(file, offset);
    while (!to.empty()) {
        std::size_t const length = std::min(to.size(), contents().size() - at);
        std::copy_n(contents().data() + at, length, to.data());
        to = to.subspan(length);
        at = 0;
    }
}

/// Calls body(byte of the file, address) for every byte of every element.
template <class Body>
void for_each_byte(ReadBox const& box, Body&& body) {
    Index const elements = box.in_file.elements();
    for (Index k = 0; k < elements; ++k) {
        Index rest = k;
        Index offset = box.offset;
        std::byte* to = box.to;
        for (int d = box.in_file.dims.size() - 1; d >= 0; --d) {
            Index const i = rest % box.in_file.dims[d].extent;
            rest /= box.in_file.dims[d].extent;
            offset += i * box.in_file.dims[d].stride;
            to += i * box.in_memory.dims[d].stride;
        }
        for (Index b = 0; b < box.in_file.element_bytes; ++b) body(offset + b, to + b);
    }
}

struct Case {
    std::vector<ReadBox> boxes;
    std::vector<std::byte> memory;
    ReadOptions options;
};

/// Where boxes are in the file. Tangled ones have strides that do not step over what is inside them.
ReadBox random_box(test::Random& random, bool tangled) {
    ReadBox box;
    Index const element = random.pick(std::vector<Index>{1, 2, 2, 3, 4, 8, 700});
    int const dims = static_cast<int>(random.between(0, 4));
    std::vector<transport::StridedDim> list;
    Index const most = element > 100 && !random.chance(10) ? 40 : 400;  // long ones are most of the time
    Index span = element;
    Index elements = 1;
    for (int d = 0; d < dims; ++d) {
        Index const extent =
            random.chance(3) ? 0 : random.between(1, std::max<Index>(1, std::min<Index>(9, most / elements)));
        Index gap = 0;
        if (random.chance(60)) gap = random.between(0, 30);
        if (random.chance(25)) gap = random.pick(std::vector<Index>{4094, 4095, 4096, 4097, 4098, 9000, 70000});
        Index const stride = tangled && random.chance(50) ? random.between(0, span) : span + gap;
        list.push_back({extent, stride});
        elements *= std::max<Index>(1, extent);
        span += (std::max<Index>(1, extent) - 1) * stride;
    }
    std::shuffle(list.begin(), list.end(), random.engine());
    for (transport::StridedDim const& dim : list) box.in_file.dims.push_back(dim);
    box.in_file.element_bytes = element;
    return box;
}

/// A place of its own in memory, from `at` on; returns the end of it. The order of dimensions is any; strides may be
/// padded or negative.
Index random_memory(test::Random& random, ReadBox& box, Index at, bool plain) {
    int const dims = box.in_file.dims.size();
    box.in_memory = box.in_file;
    std::vector<int> order;
    for (int d = dims - 1; d >= 0; --d) order.push_back(d);
    auto const in_file = [&](int a, int b) { return box.in_file.dims[a].stride < box.in_file.dims[b].stride; };
    std::sort(order.begin(), order.end(), in_file);
    if (!plain && random.chance(50)) std::shuffle(order.begin(), order.end(), random.engine());
    Index span = box.in_file.element_bytes;
    Index first = 0;
    for (int d : order) {
        transport::StridedDim& dim = box.in_memory.dims[d];
        Index const steps = std::max<Index>(1, dim.extent) - 1;
        dim.stride = span + (!plain && random.chance(30) ? random.between(1, 5) : 0);
        span += steps * dim.stride;
        if (!plain && random.chance(15)) {
            first += steps * dim.stride;
            dim.stride = -dim.stride;
        }
    }
    box.to = reinterpret_cast<std::byte*>(at + first);  // an offset until the memory exists
    return at + span;
}

Case random_case(test::Random& random, bool tangled) {
    Case result;
    int const count = static_cast<int>(random.between(1, 12));
    Index end_in_memory = 64;
    Index end_in_file = 0;
    for (int i = 0; i < count; ++i) {
        ReadBox box;
        if (i != 0 && random.chance(15)) {
            box = random.pick(result.boxes);  // wanted twice
            if (random.chance(50)) box.offset += random.between(-20, 20);
            box.offset = std::max<Index>(0, box.offset);
        } else {
            box = random_box(random, tangled);
            box.file = static_cast<int>(random.between(0, random.chance(50) ? 0 : 2));
            box.offset = random.between(0, 100'000);
            if (random.chance(10)) box.offset += Index{1} << 33;
            if (random.chance(50)) {  // the neighbour of the last one
                box.file = i == 0 ? 0 : result.boxes.back().file;
                box.offset = end_in_file + (random.chance(50) ? 0 : random.between(0, 5000));
            }
        }
        end_in_memory = random_memory(random, box, end_in_memory, random.chance(50));
        if (random.chance(50)) end_in_memory += random.between(1, 64);
        end_in_file = box.offset;
        for_each_byte(box, [&](Index at, std::byte*) { end_in_file = std::max(end_in_file, at + 1); });
        result.boxes.push_back(box);
    }
    result.memory.assign(static_cast<std::size_t>(end_in_memory + 64), std::byte{0xee});
    for (ReadBox& box : result.boxes) box.to = result.memory.data() + reinterpret_cast<Index>(box.to);
    std::shuffle(result.boxes.begin(), result.boxes.end(), random.engine());

    constexpr Index most = Index{1} << 60;
    result.options.gap_bytes = random.pick(std::vector<Index>{0, 4096, 4097, 5000, 64 << 10, most});
    result.options.over_read =
        random.pick(std::vector<double>{1.0, 1.5, 2.0, 50.0, std::numeric_limits<double>::infinity()});
    result.options.chunk_bytes = random.pick(std::vector<Index>{1, 7, 100, 1000, 4097, 20'000, 8 << 20});
    if (test::fewer_seeds() && result.options.gap_bytes > 5000) {  // whole spans, not a byte at a time
        result.options.chunk_bytes = std::max<Index>(result.options.chunk_bytes, 1000);
    }
    result.options.direct_bytes = random.pick(std::vector<Index>{1, 50, 1000, most});
    result.options.in_flight = static_cast<int>(random.between(1, 4));
    return result;
}

struct Call {
    int file = 0;
    Index offset = 0;
    Index bytes = 0;
    std::byte const* to = nullptr;
    friend bool operator==(Call const& a, Call const& b) {
        return a.file == b.file && a.offset == b.offset && a.bytes == b.bytes;
    }
};

bool in_order(Call const& a, Call const& b) { return a.file != b.file ? a.file < b.file : a.offset < b.offset; }

/// Reads the case and returns the calls in the order in which they came.
std::vector<Call> read(Case const& random_case, ReadTotals& totals, int& most_in_flight) {
    std::vector<Call> calls;
    std::mutex mutex;
    int in_flight = 0;
    most_in_flight = 0;
    totals = read_boxes(ReadPlan(random_case.boxes, random_case.options),
                        [&](int file, Index offset, std::span<std::byte> bytes) {
                            {
                                std::lock_guard<std::mutex> const lock(mutex);
                                most_in_flight = std::max(most_in_flight, ++in_flight);
                                calls.push_back({file, offset, static_cast<Index>(bytes.size()), bytes.data()});
                            }
                            if (offset % 29 == 0) std::this_thread::yield();
                            read_contents(file, offset, bytes);
                            std::lock_guard<std::mutex> const lock(mutex);
                            --in_flight;
                        });
    return calls;
}

/// All bytes of a file that are wanted, in order, each as often as it is.
using Wanted = std::map<int, std::vector<Index>>;

Wanted wanted_bytes(Case const& random_case) {
    Wanted wanted;
    for (ReadBox const& box : random_case.boxes) {
        for_each_byte(box, [&](Index at, std::byte*) { wanted[box.file].push_back(at); });
    }
    for (auto& [file, bytes] : wanted) std::sort(bytes.begin(), bytes.end());
    return wanted;
}

/// The rule, from bytes: what is at most a page apart is one; then gaps and over-read decide; then lengths.
std::vector<Call> reads_by_the_rule(Wanted const& wanted, ReadOptions const& options) {
    struct Piece {
        Index begin;
        Index end;
        Index wanted;
    };
    std::vector<Call> calls;
    for (auto const& [file, bytes] : wanted) {
        std::vector<Piece> solid;
        for (Index at : bytes) {
            if (!solid.empty() && at - solid.back().end <= 4096) {
                solid.back().end = at + 1;
                ++solid.back().wanted;
            } else {
                solid.push_back({at, at + 1, 1});
            }
        }
        std::vector<Piece> joined;
        for (Piece const& piece : solid) {
            if (!joined.empty()) {
                Piece& last = joined.back();
                Index const length = piece.end - last.begin;
                if (piece.begin - last.end <= options.gap_bytes && length <= options.chunk_bytes &&
                    static_cast<double>(length) <=
                        options.over_read * static_cast<double>(last.wanted + piece.wanted)) {
                    last = {last.begin, piece.end, last.wanted + piece.wanted};
                    continue;
                }
            }
            joined.push_back(piece);
        }
        for (Piece const& piece : joined) {
            for (Index begin = piece.begin; begin < piece.end; begin += options.chunk_bytes) {
                calls.push_back({file, begin, std::min(options.chunk_bytes, piece.end - begin), nullptr});
            }
        }
    }
    return calls;
}

void check_memory(Case const& random_case) {
    std::vector<std::byte> expected(random_case.memory.size(), std::byte{0xee});
    for (ReadBox const& box : random_case.boxes) {
        for_each_byte(box, [&](Index at, std::byte* to) {
            expected[static_cast<std::size_t>(to - random_case.memory.data())] = content(box.file, at);
        });
    }
    CHECK(random_case.memory == expected);
}

}  // namespace

TEST_CASE("any boxes are read to the byte, and counting tells what reading does") {
    Index scratch_free = 0;
    Index straight = 0;
    for (std::uint64_t seed : test::seeds(600)) {
        CAPTURE(seed);
        test::Random random(seed);
        bool const tangled = random.chance(25);
        Case const one = random_case(random, tangled);
        CAPTURE(one.options.chunk_bytes);
        CAPTURE(one.options.direct_bytes);
        ReadTotals totals;
        int most_in_flight = 0;
        std::vector<Call> calls = read(one, totals, most_in_flight);
        check_memory(one);
        CHECK(totals == count_reads(one.boxes, one.options));
        CHECK(most_in_flight <= one.options.in_flight);
        if (one.options.in_flight > 1) {
            std::sort(calls.begin(), calls.end(), in_order);
        }

        Wanted const wanted = wanted_bytes(one);
        ReadTotals counted;
        Index scratch_reads = 0;
        Index longest = 0;
        int wrong_lengths = 0;
        int unwanted_ends = 0;  // what is longer than a page and that nobody wants is read between wanted bytes only
        for (Call const& call : calls) {
            ++counted.reads;
            counted.bytes_read += call.bytes;
            if (call.bytes < 1 || call.bytes > one.options.chunk_bytes) ++wrong_lengths;
            auto const& bytes = wanted.at(call.file);
            Index const end = call.offset + call.bytes;
            auto const first = std::lower_bound(bytes.begin(), bytes.end(), call.offset);
            auto const after = std::lower_bound(bytes.begin(), bytes.end(), end);
            if (first == bytes.end() || *first - call.offset > 4096) ++unwanted_ends;
            if (after == bytes.begin() || end - *std::prev(after) - 1 > 4096) ++unwanted_ends;
            std::byte const* const memory = one.memory.data();
            if (std::less_equal<>()(memory, call.to) && std::less<>()(call.to, memory + one.memory.size())) {
                ++straight;
            } else {
                ++scratch_reads;
                longest = std::max(longest, call.bytes);
            }
        }
        CHECK(wrong_lengths == 0);
        if (!tangled) CHECK(unwanted_ends == 0);  // boxes that step back read what is between
        int out_of_order = 0;                     // nothing is read twice either
        for (std::size_t i = 1; i < calls.size(); ++i) {
            bool const follows =
                calls[i].file == calls[i - 1].file && calls[i].offset >= calls[i - 1].offset + calls[i - 1].bytes;
            if (calls[i].file <= calls[i - 1].file && !follows) ++out_of_order;
        }
        CHECK(out_of_order == 0);
        for (ReadBox const& box : one.boxes) counted.bytes_wanted += box.in_file.payload_bytes();
        counted.files = static_cast<Index>(wanted.size());
        counted.scratch_bytes = std::min<Index>(scratch_reads, one.options.in_flight) * longest;
        CHECK(totals == counted);
        CHECK(totals.scratch_bytes <= one.options.in_flight * one.options.chunk_bytes);
        if (totals.reads != 0 && totals.scratch_bytes == 0) ++scratch_free;

        // Runs that stay alone are no part of the rule.
        if (!tangled && one.options.direct_bytes > Index{1} << 40) {
            REQUIRE(calls == reads_by_the_rule(wanted, one.options));
        }
    }
    CHECK(scratch_free > 0);
    CHECK(straight > 0);
}

TEST_CASE("a run that is long enough is never read into scratch") {
    for (std::uint64_t seed : test::seeds(300)) {
        CAPTURE(seed);
        test::Random random(seed);
        Index const direct = random.between(1, 2000);
        Case one;
        one.options.direct_bytes = direct;
        one.options.chunk_bytes = random.pick(std::vector<Index>{100, 1000, 8 << 20});
        one.memory.resize(200'000);
        Index at = 0;
        std::byte* to = one.memory.data();
        int long_ones = 0;
        Index wanted_short = 0;
        for (int i = 0; i < 40; ++i) {
            Index const bytes = random.between(1, 4000);
            one.boxes.push_back(
                {0, at, {{transport::StridedDim{bytes, 1}}, 1}, to, {{transport::StridedDim{bytes, 1}}, 1}});
            at += bytes + random.between(0, 1) * random.between(0, 6000);
            to += bytes + 1;
            if (bytes >= direct) {
                ++long_ones;
            } else {
                wanted_short += bytes;
            }
        }
        ReadTotals totals;
        int most_in_flight = 0;
        std::vector<Call> const calls = read(one, totals, most_in_flight);
        for (ReadBox const& box : one.boxes) {
            Index const bytes = box.in_file.payload_bytes();
            if (bytes < direct) continue;
            Index covered = 0;
            for (Call const& call : calls) {
                if (call.to >= box.to && call.to < box.to + bytes) {
                    REQUIRE(call.offset - box.offset == call.to - box.to);
                    covered += call.bytes;
                }
            }
            REQUIRE(covered == bytes);
        }
        CHECK(totals.scratch_bytes <= one.options.in_flight * one.options.chunk_bytes);
        if (long_ones == 40) CHECK(totals.scratch_bytes == 0);
        CHECK(totals.bytes_wanted >= wanted_short);
    }
}

TEST_CASE("whichever reads fail, the first of them is reported and all threads have ended") {
    for (std::uint64_t seed : test::seeds(300)) {
        CAPTURE(seed);
        test::Random random(seed);
        Case one = random_case(random, false);
        one.options.in_flight = 1;
        ReadTotals totals;
        int most_in_flight = 0;
        std::vector<Call> const calls = read(one, totals, most_in_flight);
        if (calls.empty()) continue;
        std::vector<bool> fails(calls.size());
        std::size_t first = calls.size();
        for (int i = 0; i < 3; ++i) {
            auto const k = static_cast<std::size_t>(random.between(0, static_cast<Index>(calls.size()) - 1));
            fails[k] = true;
            first = std::min(first, k);
        }
        one.options.in_flight = static_cast<int>(random.between(1, 6));
        std::atomic<int> active{0};
        std::vector<std::atomic<int>> asked(calls.size());
        Index failed = -1;
        try {
            read_boxes(ReadPlan(one.boxes, one.options), [&](int file, Index offset, std::span<std::byte> bytes) {
                ++active;
                Call const call{file, offset, static_cast<Index>(bytes.size()), nullptr};
                auto const k = static_cast<std::size_t>(std::lower_bound(calls.begin(), calls.end(), call, in_order) -
                                                        calls.begin());
                bool const known = k != calls.size() && calls[k] == call;
                if (known) ++asked[k];
                if (seed % 2 == 0 && k % 8 == 0) std::this_thread::yield();
                read_contents(file, offset, bytes);
                --active;
                if (!known) throw std::logic_error("an unknown read");
                if (fails[k]) throw static_cast<Index>(k);
            });
        } catch (Index k) {
            failed = k;
        }
        CHECK(active == 0);
        CHECK(failed == static_cast<Index>(first));
        int wrong = 0;  // all up to the first that fails are read once, later ones at most once
        for (std::size_t k = 0; k != asked.size(); ++k) {
            int const most = k > first && one.options.in_flight == 1 ? 0 : 1;
            if (asked[k] > most || (k <= first && asked[k] != 1)) ++wrong;
        }
        CHECK(wrong == 0);
    }
}
