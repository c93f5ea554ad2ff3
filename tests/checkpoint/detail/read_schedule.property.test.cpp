// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/read_schedule.hpp: who reads what, against a walk over all elements.
#include <reshard/checkpoint/detail/read_schedule.hpp>

#include <doctest/doctest.h>

#include "../../support/random.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace {
using namespace reshard;
using detail::Piece;
using detail::ReadSchedule;
using detail::WantedExtent;

/// Extents of tensors, some of them the whole tensor.
std::vector<WantedExtent> some_extents(test::Random& random) {
    std::vector<WantedExtent> wanted;
    int file = 0;
    Index begin = 0;
    Index const count = random.between(0, 12);
    for (Index i = 0; i < count; ++i) {
        if (random.chance(30)) {
            ++file;
            begin = 0;
        }
        WantedExtent extent{static_cast<std::size_t>(i),
                            static_cast<std::size_t>(i),
                            file,
                            begin,
                            random.pick(std::vector<DType>{DType::u8, DType::f32}),
                            Box(random.shape())};
        for (int dim = 0; dim < extent.box.rank() && random.chance(50); ++dim) {
            Index const before = random.between(0, 5);
            extent.box.set(dim, {extent.box.begin(dim) + before, extent.box.end(dim) + before});
        }
        begin += extent.bytes() + (random.chance(20) ? 100 : 0);  // something that nobody wants
        wanted.push_back(extent);
    }
    return wanted;
}

/// Every byte of every tensor exactly once, each piece one run of the file, windows that fit.
void check_pieces(ReadSchedule const& schedule, std::vector<WantedExtent> const& wanted, Index window_bytes) {
    std::map<std::pair<std::size_t, Index>, int> seen;  // (tensor, byte)
    std::map<std::pair<int, Index>, Index> filled;      // (reader, window)
    for (Piece const& piece : schedule.pieces) {
        WantedExtent const& tensor = wanted[piece.wanted];
        CHECK(piece.bytes == piece.box.size() * bytes(tensor.dtype));
        CHECK(piece.bytes > 0);
        std::vector<Index> offsets{0};  // of the box's elements in the extent, in order
        for (int dim = 0; dim < tensor.box.rank(); ++dim) {
            std::vector<Index> longer;
            for (Index offset : offsets)
                for (Index k = piece.box.begin(dim); k < piece.box.end(dim); ++k)
                    longer.push_back(offset * tensor.box.extent(dim) + k - tensor.box.begin(dim));
            offsets.swap(longer);
        }
        bool run = true;
        for (std::size_t k = 0; k < offsets.size(); ++k) run = run && offsets[k] == offsets[0] + static_cast<Index>(k);
        CHECK(run);
        CHECK(piece.begin == tensor.begin + offsets[0] * bytes(tensor.dtype));
        for (Index byte = 0; byte < piece.bytes; ++byte) ++seen[{piece.wanted, piece.begin - tensor.begin + byte}];
        Index& used = filled[{piece.reader, piece.window}];
        CHECK(piece.place == used);  // one after the other
        used += piece.bytes;
        CHECK((window_bytes == 0 || used <= window_bytes || used == bytes(tensor.dtype)));
        CHECK(used <= schedule.staging_bytes);
        CHECK(piece.window < schedule.windows);
    }
    Index total = 0;
    for (WantedExtent const& tensor : wanted) total += tensor.bytes();
    CHECK(static_cast<Index>(seen.size()) == total);
    bool once = true;
    for (auto const& entry : seen) once = once && entry.second == 1;
    CHECK(once);
}

}  // namespace

TEST_SUITE("checkpoint/read_schedule") {
    TEST_CASE("one reader, and spans of many, read every byte once, in windows that fit") {
        for (std::uint64_t seed : test::seeds(200)) {
            CAPTURE(seed);
            test::Limits limits;
            limits.max_elements = 400;
            test::Random random(seed, limits);
            auto const wanted = some_extents(random);
            Index const window = random.pick(std::vector<Index>{0, 1, 7, 64, 1000, 1 << 20});
            int const readers = static_cast<int>(random.between(1, 9));
            CAPTURE(window);
            CAPTURE(readers);
            check_pieces(detail::spans_read(wanted, 1, window, 3), wanted, window);
            ReadSchedule const spans = detail::spans_read(wanted, readers, window);
            check_pieces(spans, wanted, window);

            Index total = 0;
            Index row = 0;  // the largest
            int files = wanted.empty() ? 0 : wanted.back().file + 1;
            for (WantedExtent const& tensor : wanted) {
                total += tensor.bytes();
                int dim = 0;
                while (dim < tensor.box.rank() && tensor.box.extent(dim) == 1) ++dim;
                if (tensor.bytes() == 0) continue;
                row =
                    std::max(row, dim == tensor.box.rank() ? tensor.bytes() : tensor.bytes() / tensor.box.extent(dim));
            }
            std::vector<Index> read(static_cast<std::size_t>(readers), 0);
            for (Piece const& piece : spans.pieces) read[static_cast<std::size_t>(piece.reader)] += piece.bytes;
            for (Index bytes : read) CHECK(bytes <= total / readers * 26 / 25 + 2 + row);
            CHECK(detail::opens(spans, wanted) <= std::max(0, files + readers - 1));
            for (std::size_t i = 1; i < spans.pieces.size(); ++i) {
                Piece const& a = spans.pieces[i - 1];
                Piece const& b = spans.pieces[i];
                CHECK((a.window < b.window || (a.window == b.window && a.reader <= b.reader)));
            }
        }
    }

    TEST_CASE("a file that ends near a cut ends a span, and one that ends far from it does not") {
        auto const files = [](std::vector<Index> const& bytes) {
            std::vector<WantedExtent> wanted;
            for (std::size_t i = 0; i < bytes.size(); ++i) {
                wanted.push_back({i, i, static_cast<int>(i), 0, DType::u8, Box(Shape{bytes[i]})});
            }
            return wanted;
        };
        auto const unequal = files({1010, 995, 1000, 995});
        CHECK(detail::span_cuts(unequal, 4) == std::vector<Index>{0, 1010, 2005, 3005, 4000});
        CHECK(detail::opens(detail::spans_read(unequal, 4, 0), unequal) == 4);
        auto const far = files({1100, 900, 1000, 1000});
        CHECK(detail::span_cuts(far, 4) == std::vector<Index>{0, 1000, 2000, 3000, 4000});
        CHECK(detail::opens(detail::spans_read(far, 4, 0), far) == 5);
    }

    TEST_CASE("spans of a model of 2^50 bytes among 2^20 readers do not overflow") {
        std::vector<WantedExtent> const wanted{{0, 0, 0, 0, DType::bf16, Box(Shape{Index{1} << 29, Index{1} << 20})}};
        ReadSchedule const spans = detail::spans_read(wanted, 1 << 10, Index{1} << 60);
        CHECK(spans.pieces.size() == 1 << 10);
        for (Piece const& piece : spans.pieces) CHECK(piece.bytes == Index{1} << 40);
    }
}
