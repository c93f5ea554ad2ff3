// SPDX-License-Identifier: Apache-2.0
#include <reshard/core/tensor.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

using namespace reshard;

namespace {

template <class T>
bool is_nothing(T const& object) {
    return object.data() == nullptr && object.size() == 0 && object.shape() == DynamicShape(Indices{0});
}

}  // namespace

TEST_CASE("a tensor holds what its shape says, aligned; a scalar is one element") {
    Tensor<double> tensor(Shape{3, 5});
    CHECK(tensor.size() == 15);
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64 == 0);
    tensor(2, 4) = 7;
    CHECK(std::as_const(tensor)(2, 4) == 7);
    CHECK(tensor.data()[14] == 7);
    CHECK(Tensor<double>(DynamicShape{}).size() == 1);
    CHECK(Tensor<double>(DynamicShape{}).data() != nullptr);
}

TEST_CASE("what has no memory has no elements: made by default, or moved from") {
    CHECK(is_nothing(Tensor<float>{}));
    CHECK(is_nothing(Tensor<float>{}.view()));
    Tensor<float> a(Shape{4});
    Tensor<float> b = std::move(a);
    CHECK(is_nothing(a));  // NOLINT: that is what is asked
    CHECK(b.size() == 4);
    Tensor<float> c(DynamicShape{});
    c = std::move(b);
    CHECK(is_nothing(b));  // NOLINT
    CHECK(c.size() == 4);
}

TEST_CASE("memory from elsewhere is freed once, as it wants, by whoever has it at the end") {
    static int freed = 0;
    static float memory[6];
    auto const release = [](void* data) noexcept { freed += data == memory ? 1 : 100; };
    {
        Tensor<float> a(memory, Shape{2, 3}, release);
        CHECK(a.view().data() == memory);
        CHECK(a.extent(1) == 3);
        Tensor<float> b = std::move(a);
        Tensor<float> c(Shape{4});
        c = std::move(b);
        CHECK(c.data() == memory);
        CHECK(freed == 0);
        c = Tensor<float>(Shape{1});
        CHECK(freed == 1);
        c = Tensor<float>(memory, Shape{6}, release);
        Tensor<float>& same = c;
        c = std::move(same);
        CHECK(c.data() == memory);
        CHECK(freed == 1);
    }
    CHECK(freed == 2);
}
