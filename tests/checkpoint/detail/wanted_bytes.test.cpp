// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/wanted_bytes.hpp.
#include <reshard/checkpoint/detail/wanted_bytes.hpp>

#include <doctest/doctest.h>

#include <reshard/algebra/notation.hpp>

#include <vector>

namespace {
using namespace reshard;
using detail::WantedExtent;

std::vector<LocalTensor> targets() {
    auto const target = [](char const* name, DType dtype, DynamicShape const& shape) {
        return LocalTensor{name, distribution(DynamicMesh(Mesh{2}), shape, "R"), DynamicView(nullptr, dtype, shape)};
    };
    return {target("matrix", DType::f32, Shape{4, 6}), target("scalar", DType::i64, DynamicShape(Shape<>{})),
            target("nothing", DType::bf16, Shape{0, 3}), target("bytes", DType::u8, Shape{1000})};
}

/// As it arrives. `bytes` is what travels.
std::vector<WantedExtent> sent(std::vector<WantedExtent> const& wanted, std::size_t& bytes) {
    detail::ByteWriter out;
    detail::pass(out, wanted, targets());
    auto const text = out.take();
    bytes = text.size();
    detail::ByteReader in(text);
    std::vector<WantedExtent> arrived;
    detail::pass(in, arrived, targets());
    CHECK(in.at_end());
    return arrived;
}

void check_equal(std::vector<WantedExtent> const& a, std::vector<WantedExtent> const& b) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        CAPTURE(i);
        CHECK(a[i].target == b[i].target);
        CHECK(a[i].extent == b[i].extent);
        CHECK(a[i].file == b[i].file);
        CHECK(a[i].begin == b[i].begin);
        CHECK(a[i].dtype == b[i].dtype);
        CHECK(a[i].box == b[i].box);
        CHECK(a[i].replica == b[i].replica);
        CHECK(a[i].replicas == b[i].replicas);
        CHECK(a[i].replica_axes == b[i].replica_axes);
    }
}
}  // namespace

TEST_SUITE("checkpoint/detail/wanted_bytes") {
    TEST_CASE("whole tensors, one right behind the other, take a byte each") {
        Box const matrix(Shape{4, 6});
        std::vector<WantedExtent> const wanted{{0, 0, 0, 0, DType::f32, matrix},
                                               {1, 1, 0, 96, DType::i64, Box()},
                                               {2, 2, 0, 104, DType::bf16, Box(Shape{0, 3})},
                                               {3, 3, 0, 104, DType::u8, Box(Shape{1000})}};
        std::size_t bytes = 0;
        check_equal(sent(wanted, bytes), wanted);
        CHECK(bytes == 5);
        check_equal(sent({}, bytes), {});
        CHECK(bytes == 1);
    }

    TEST_CASE("parts, copies, gaps, other files and tensors that are listed twice arrive as they were") {
        Index const far = Index{1} << 50;
        std::vector<WantedExtent> const wanted{{0, 7, 0, 16, DType::f32, Box{{0, 2}, {1, 5}}, 1, 3, 5U},
                                               {0, 8, 0, 48, DType::f32, Box{{2, 4}, {0, 6}}, 0, 3, 0},
                                               {3, 11, 0, far, DType::u8, Box{{400, 1000}}},
                                               {3, 11, 0, far, DType::u8, Box{{400, 1000}}},
                                               {1, 12, 2, 0, DType::i64, Box(), 2, 1, 0},
                                               {0, 40, 300, 8, DType::f32, Box(Shape{4, 6}), 0, 1, 1U << 7U}};
        std::size_t bytes = 0;
        check_equal(sent(wanted, bytes), wanted);
    }
}
