// SPDX-License-Identifier: Apache-2.0
#include <reshard/core/transfer.hpp>

#include <doctest/doctest.h>

#include <type_traits>

using namespace reshard;

namespace {

static_assert(std::is_trivially_copyable_v<transport::Send> && std::is_trivially_copyable_v<transport::Receive>);
static_assert(std::is_same_v<decltype(transport::Send::base), std::byte const*>, "what is sent is not written");
static_assert(std::is_same_v<decltype(transport::Receive::base), std::byte*>);
static_assert(decltype(transport::StridedBox::dims)::capacity() == max_dims + 1,
              "the addends of a partial tensor are a dimension");

constexpr transport::StridedBox box(Index rows, Index columns, Index element_bytes) {
    transport::StridedBox result;
    result.dims.push_back({rows, 100});
    result.dims.push_back({columns, element_bytes});
    result.element_bytes = element_bytes;
    return result;
}
static_assert(box(3, 5, 4).elements() == 15 && box(3, 5, 4).payload_bytes() == 60);
static_assert(box(0, 5, 4).elements() == 0 && box(0, 5, 4).payload_bytes() == 0);
static_assert(transport::StridedBox{}.elements() == 1 && transport::StridedBox{}.payload_bytes() == 1,
              "one element, no dimensions");
static_assert(transport::StridedDim{2, 8} == transport::StridedDim{2, 8} &&
              !(transport::StridedDim{2, 8} == transport::StridedDim{2, -8}));

}  // namespace

TEST_CASE("the payload of a box is counted in 64 bits") {
    CHECK(box(Index{1} << 20, Index{1} << 20, 8).payload_bytes() == Index{1} << 43);
}
