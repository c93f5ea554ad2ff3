// SPDX-License-Identifier: Apache-2.0
#include <reshard/core/tensor.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>
#include <utility>

using namespace reshard;

namespace {

template <class T>
bool is_nothing(T const& object) {
    return object.data() == nullptr && object.size() == 0 && object.shape() == DynamicShape(Indices{0});
}

}  // namespace

static_assert(std::is_convertible_v<Tensor<float>&, DynamicView>);
static_assert(std::is_convertible_v<Tensor<float>&, ConstDynamicView>);
static_assert(std::is_convertible_v<Tensor<float> const&, ConstDynamicView>);
static_assert(!std::is_convertible_v<Tensor<float> const&, DynamicView>, "constness is kept");
static_assert(!std::is_convertible_v<Tensor<float>, DynamicView>, "a view outlives no tensor");
static_assert(!std::is_convertible_v<Tensor<float>, ConstDynamicView>);

// A 0 in braces is no null pointer with so many extents.
template <class T>
constexpr bool takes_braces = requires {
    T{0, 4};
};
template <class T>
constexpr bool takes_shape_in_braces = requires {
    T({0, 4});
};
template <class T>
constexpr bool views_braces = requires(float* data) {
    T{data, {0, 4}};
};
template <class T>
constexpr bool views_late_braces = requires(float* data) {
    T(data, DType::f32, {0, 4});
};
static_assert(!takes_braces<DynamicShape> && takes_braces<Shape<dynamic, dynamic>>);
static_assert(!takes_shape_in_braces<Tensor<float>>);
static_assert(!views_braces<TensorView<float>> && !views_late_braces<DynamicView>);
static_assert(DynamicShape({0, 4}) == Shape{0, 4} && DynamicShape({3, 4}) == Shape{3, 4}, "said to be a shape");

TEST_CASE("a tensor is seen as its view is") {
    Tensor<double> tensor(Shape{3, 5});
    DynamicView const view = tensor;
    ConstDynamicView const read_only = std::as_const(tensor);
    CHECK(static_cast<void*>(view.data()) == tensor.data());
    CHECK(read_only.data() == view.data());
    CHECK(read_only.dtype() == DType::f64);
    CHECK(view.shape() == tensor.shape());
}

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
