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

constexpr transport::StridedBox lying(Index a, Index b, Index c, Index middle = 7) {
    transport::StridedBox result;
    result.dims.push_back({5, a});
    result.dims.push_back({middle, b});
    result.dims.push_back({9, c});
    return result;
}
static_assert(order_of(lying(63, 9, 1)).word == 0x321);
static_assert(order_of(lying(1, 5, 35)).word == 0x123, "the first dimension is innermost");
static_assert(order_of(lying(-9, 45, 1)).word == 0x312 && order_of(lying(7, -1, 35)).word == 0x213);
static_assert(order_of(lying(1, 0, 35)).word == 0x132, "what is repeated is outside of what is not");
static_assert(order_of(lying(0, 0, 0)).word == 0x321 && order_of(transport::StridedBox{}).word == 0);
static_assert(order_of(lying(9, 1, 1, 1)).word == 0x321, "one element lies in no order");
static_assert(order_of(lying(1, 1, 5, 1)).word == 0x123);
static_assert(transport::DimOrder{0x213}.dims() == 3 && transport::DimOrder{0x213}[0] == 2);
static_assert(transport::DimOrder{}.dims() == 0 && transport::DimOrder{0x987654321}.dims() == 9);
static_assert(transport::DimOrder{0x212}.dims() == -1 && transport::DimOrder{0x203}.dims() == -1);
static_assert(transport::DimOrder{0x31}.dims() == -1 && transport::DimOrder{~std::uint64_t{0}}.dims() == -1);

}  // namespace

TEST_CASE("the payload of a box is counted in 64 bits") {
    CHECK(box(Index{1} << 20, Index{1} << 20, 8).payload_bytes() == Index{1} << 43);
}
