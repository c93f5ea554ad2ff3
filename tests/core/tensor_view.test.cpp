// SPDX-License-Identifier: Apache-2.0
#include <reshard/core/tensor_view.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>
#include <vector>

using namespace reshard;

namespace {

static_assert(std::is_trivially_copyable_v<TensorView<float>>);
static_assert(std::is_convertible_v<TensorView<float>, TensorView<float const>>);
static_assert(!std::is_convertible_v<TensorView<float const>, TensorView<float>>, "constness is kept");
static_assert(!std::is_convertible_v<TensorView<float>, TensorView<double const>>);
static_assert(std::is_convertible_v<TensorView<float>, DynamicView>);
static_assert(std::is_convertible_v<TensorView<float const>, ConstDynamicView>);
static_assert(std::is_convertible_v<TensorView<float>, ConstDynamicView>);
static_assert(std::is_convertible_v<DynamicView, ConstDynamicView>);
static_assert(!std::is_constructible_v<DynamicView, TensorView<float const>>, "constness is kept");
static_assert(!std::is_constructible_v<DynamicView, ConstDynamicView>);

constexpr Index far = Index{1} << 62;
static_assert(detail::strides_fit(Shape{2, 3}, {3, 1}, DType::f64) && detail::strides_fit(Shape{2}, {-far}, DType::u8));
static_assert(!detail::strides_fit(Shape{3}, {far}, DType::u8) && !detail::strides_fit(Shape{2}, {-far}, DType::i16));
static_assert(!detail::strides_fit(Shape{0, 1}, {far, 1}, DType::i16), "what moves nothing is multiplied too");
static_assert(!detail::strides_fit(Shape{1}, {INT64_MIN}, DType::u8));

Indices list(Index a, Index b, Index c) {
    Indices result;
    result.push_back(a);
    result.push_back(b);
    result.push_back(c);
    return result;
}

}  // namespace

TEST_CASE("strides of a dense tensor are row-major, and a zero extent counts as one") {
    CHECK(row_major_strides(Shape{2, 3, 4}) == list(12, 4, 1));
    CHECK(row_major_strides(Shape{2, 0, 4}) == list(4, 4, 1));
    CHECK(row_major_strides(DynamicShape{}).empty());
}

TEST_CASE("a view reads and writes the elements its strides name") {
    std::vector<int> memory(24);
    for (int i = 0; i < 24; ++i) memory[static_cast<std::size_t>(i)] = i;
    TensorView<int> const dense{memory.data(), Shape{2, 3, 4}};
    CHECK(dense(1, 2, 3) == 23);
    CHECK(dense(0, 1, 2) == 6);
    dense(0, 0, 0) = 100;
    CHECK(memory[0] == 100);
    CHECK(dense.rank() == 3);
    CHECK(dense.extent(1) == 3);
    CHECK(dense.stride(0) == 12);
    CHECK(dense.size() == 24);

    TensorView<int> const transposed{memory.data(), Shape{4, 3, 2}, list(1, 4, 12)};
    CHECK(transposed(3, 2, 1) == 23);
    TensorView<int const> const backwards{memory.data() + 23, Shape{2, 3, 4}, list(-12, -4, -1)};
    CHECK(backwards(0, 0, 0) == 23);
    CHECK(backwards(1, 2, 2) == 1);
}

TEST_CASE("a scalar is one element without indices") {
    double value = 2.5;
    TensorView<double> const view{&value, Shape{}};
    CHECK(view.rank() == 0);
    CHECK(view.size() == 1);
    CHECK(view() == 2.5);
}

TEST_CASE("the element type is deduced from the pointer") {
    float value = 0;
    float const* pointer = &value;
    static_assert(std::is_same_v<decltype(TensorView{pointer, Shape{1}}), TensorView<float const>>);
    static_assert(std::is_same_v<decltype(TensorView{&value, Shape<1>{}}), TensorView<float>>);
    CHECK(TensorView{pointer, Shape{1}}.data() == pointer);
}

TEST_CASE("a default view is a scalar without memory") {
    TensorView<float> const view;
    CHECK(view.data() == nullptr);
    CHECK(DynamicView{}.data() == nullptr);
}

TEST_CASE("as many strides as dimensions") {
    int value = 0;
    CHECK_THROWS_AS((TensorView<int>{&value, Shape{1, 1}, list(1, 1, 1)}), ShapeError);
    CHECK_THROWS_AS((DynamicView{&value, DType::i32, Shape{1, 1}, list(1, 1, 1)}), ShapeError);
    CHECK_THROWS_AS((TensorView<int>{&value, Shape{1, 1}, std::vector<int>{1}}), ShapeError);
    CHECK_THROWS_AS((DynamicView{&value, DType::i32, Shape{1, 1}, std::vector<int>{1}}), ShapeError);
}

TEST_CASE("strides come from any list of integers") {
    std::vector<float> memory(24);
    std::vector<std::int64_t> const strides{8, 1};
    std::vector<int> const back{-8, 1};
    CHECK(TensorView<float>(memory.data(), Shape{3, 4}, strides).strides() == Indices{8, 1});
    CHECK(DynamicView(memory.data(), DType::f32, Shape{3, 4}, strides).strides() == Indices{8, 1});
    CHECK(ConstDynamicView(memory.data() + 16, DType::f32, Shape{3, 4}, back).strides() == Indices{-8, 1});
    Indices mine = Indices{1, 8};
    CHECK(TensorView<float>(memory.data(), Shape{4, 3}, mine).strides() == mine);
}

TEST_CASE("a view with its dtype as a value names the same window") {
    std::vector<BFloat16> memory(6);
    TensorView<BFloat16> const typed{memory.data(), Shape{2, 3}};
    DynamicView const view = typed;
    CHECK(view.dtype() == DType::bf16);
    CHECK(static_cast<void*>(view.data()) == memory.data());
    CHECK(view.shape() == typed.shape());
    CHECK(view.strides() == typed.strides());
    ConstDynamicView const read_only = view;
    CHECK(read_only.dtype() == DType::bf16);
    CHECK(read_only.data() == view.data());
    CHECK(read_only.extent(1) == 3);
    CHECK(read_only.stride(0) == 3);
    CHECK(read_only.size() == 6);
    CHECK(read_only.rank() == 2);
    DynamicView const raw{memory.data(), DType::u16, Shape{6}};
    CHECK(raw.strides()[0] == 1);
}

namespace {
struct Part {
    Index begin;
    Index end;
};
}  // namespace

TEST_CASE("a window names the elements at its offset, with the strides of the whole") {
    std::vector<int> memory(24);
    for (int i = 0; i < 24; ++i) memory[static_cast<std::size_t>(i)] = i;
    TensorView<int> const dense{memory.data(), Shape{2, 3, 4}};
    auto const cut = [&](std::vector<Part> const& parts) {
        return dense.window([&](int dim) { return parts[static_cast<std::size_t>(dim)]; });
    };
    TensorView<int> const window = cut({{1, 2}, {1, 3}, {2, 4}});
    CHECK(window.shape() == Shape{1, 2, 2});
    CHECK(window.strides() == dense.strides());
    CHECK(window(0, 0, 0) == 18);
    CHECK(window(0, 1, 1) == 23);
    Part const parts[] = {{1, 2}, {1, 3}, {2, 4}};
    CHECK(dense.window(parts).data() == window.data());
    CHECK(DynamicView(dense).window(parts).shape() == window.shape());
    CHECK(cut({{0, 2}, {0, 3}, {0, 4}}).data() == dense.data());
    // A window of nothing keeps a pointer into the memory, wherever it was asked for.
    TensorView<int> const nothing = cut({{2, 2}, {3, 3}, {4, 4}});
    CHECK(nothing.size() == 0);
    CHECK(nothing.data() == dense.data());
}
