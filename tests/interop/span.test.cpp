// SPDX-License-Identifier: Apache-2.0
#include <reshard/interop/span.hpp>

#include <support/mdspan_double.hpp>

#include <doctest/doctest.h>

#include <vector>

// Real ones, where the compiler or the CUDA Toolkit brings them.
#if __has_include(<mdspan>)
#include <mdspan>
#endif
#if __has_include(<cuda/std/mdspan>)
#include <cuda/std/mdspan>
#endif

using namespace reshard;

namespace {

// std::mdspan, cuda::std::mdspan and Kokkos' are spelt alike.
struct Double {
    template <class T, class E, class L = mdspan_double::layout_right>
    using mdspan = mdspan_double::mdspan<T, E, L>;
    template <class I, std::size_t... E>
    using extents = mdspan_double::extents<I, E...>;
    using right = mdspan_double::layout_right;
    using left = mdspan_double::layout_left;
    using stride = mdspan_double::layout_stride;
};
#if defined(__cpp_lib_mdspan)
struct Standard {
    template <class T, class E, class L = std::layout_right>
    using mdspan = std::mdspan<T, E, L>;
    template <class I, std::size_t... E>
    using extents = std::extents<I, E...>;
    using right = std::layout_right;
    using left = std::layout_left;
    using stride = std::layout_stride;
};
#define RESHARD_TEST_STD , Standard
#else
#define RESHARD_TEST_STD
#endif
#if __has_include(<cuda/std/mdspan>)
struct Cuda {
    template <class T, class E, class L = cuda::std::layout_right>
    using mdspan = cuda::std::mdspan<T, E, L>;
    template <class I, std::size_t... E>
    using extents = cuda::std::extents<I, E...>;
    using right = cuda::std::layout_right;
    using left = cuda::std::layout_left;
    using stride = cuda::std::layout_stride;
};
#define RESHARD_TEST_CUDA , Cuda
#else
#define RESHARD_TEST_CUDA
#endif

constexpr auto any = static_cast<std::size_t>(-1);

template <class E, class F>
void refused(F&& call, char const* words) {
    CAPTURE(words);
    try {
        call();
        FAIL("not refused");
    } catch (E const& error) {
        CHECK_MESSAGE(error.message().find(words) != std::string::npos, error.message());
        CHECK(error.message().find("Fix: ") != std::string::npos);
    }
}

Indices list(Index a, Index b) {
    Indices result;
    result.push_back(a);
    result.push_back(b);
    return result;
}

}  // namespace

TEST_CASE("a span is a view of one dimension, and a dense view is a span") {
    std::vector<int> numbers{1, 2, 3, 4, 5, 6};
    auto const view = view_of(std::span(numbers));
    CHECK(view.rank() == 1);
    CHECK(view(4) == 5);
    static_assert(std::is_same_v<decltype(view_of(std::span<int const, 2>(numbers.data(), 2))), TensorView<int const>>);
    CHECK(as_span(view).data() == numbers.data());
    CHECK(as_span(TensorView<int>(numbers.data(), Shape{2, 3})).size() == 6);
    CHECK(as_span(TensorView<int>(numbers.data(), Shape{1, 3}, list(77, 1))).size() == 3);
    refused<BufferError>(
        [&] {
            static_cast<void>(as_span(TensorView<int>(numbers.data(), Shape{2, 2}, list(3, 1))));
        },
        "strides [3,1]");
}

TEST_CASE_TEMPLATE("an mdspan of each layout is a view, and a view is an mdspan", Lib,
                   Double RESHARD_TEST_STD RESHARD_TEST_CUDA) {
    using Matrix = typename Lib::template extents<int, any, any>;
    using Fixed = typename Lib::template extents<int, 2, any>;
    using Right = typename Lib::template mdspan<float, Matrix>;
    using Left = typename Lib::template mdspan<float const, Matrix, typename Lib::left>;
    using Strided = typename Lib::template mdspan<float, Matrix, typename Lib::stride>;
    using Half = typename Lib::template mdspan<float, Fixed>;
    float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

    CHECK(view_of(Right(data, Matrix(2, 3)))(1, 2) == 5);
    auto const left = view_of(Left(data, Matrix(2, 3)));
    static_assert(std::is_same_v<decltype(left), TensorView<float const> const>);
    CHECK(left(1, 2) == 5);
    CHECK(left.strides() == list(1, 2));

    TensorView<float> const rows(data, Shape{2, 3});
    TensorView<float> const columns(data, Shape{2, 3}, list(1, 2));
    TensorView<float> const gaps(data, Shape{2, 3}, list(6, 2));
    CHECK(as_mdspan<Right>(rows).data_handle() == data);
    CHECK(as_mdspan<Left>(columns).stride(1) == 2);
    for (auto const& view : {rows, columns, gaps}) {
        auto const span = as_mdspan<Strided>(view);
        CHECK(view_of(span).strides() == view.strides());
        CHECK(view_of(span).shape() == view.shape());
    }
    CHECK(as_mdspan<Half>(rows).extent(1) == 3);
    // One index moves nothing, and of nothing there is nothing to move to.
    CHECK(view_of(as_mdspan<Right>(TensorView<float>(data, Shape{1, 3}, list(0, 1))))(0, 2) == 2);
    CHECK(view_of(as_mdspan<Strided>(TensorView<float>(data, Shape{1, 3}, list(-7, 2))))(0, 2) == 4);
    CHECK(view_of(as_mdspan<Strided>(TensorView<float>(data, Shape{0, 3}, list(0, 0)))).size() == 0);
    using Scalar = typename Lib::template mdspan<float, typename Lib::template extents<int>>;
    CHECK(view_of(as_mdspan<Scalar>(TensorView<float>(data + 7, DynamicShape{})))() == 7);
}

TEST_CASE_TEMPLATE("a view that an mdspan cannot be is refused", Lib, Double RESHARD_TEST_STD RESHARD_TEST_CUDA) {
    using Matrix = typename Lib::template extents<int, any, any>;
    using Right = typename Lib::template mdspan<float, Matrix>;
    using Strided = typename Lib::template mdspan<float, Matrix, typename Lib::stride>;
    using Half = typename Lib::template mdspan<float, typename Lib::template extents<int, 2, any>>;
    using Tiny = typename Lib::template mdspan<float, typename Lib::template extents<signed char, any, any>,
                                               typename Lib::stride>;
    float data[12] = {};
    auto const view = [&](Index a, Index b, Index s, Index t) {
        return TensorView<float>(data, Shape{a, b}, list(s, t));
    };
    refused<BufferError>([&] { static_cast<void>(as_mdspan<Right>(view(2, 3, 1, 2))); }, "not in the order");
    refused<BufferError>([&] { static_cast<void>(as_mdspan<Strided>(view(2, 3, 3, -1))); }, "steps backwards");
    refused<BufferError>([&] { static_cast<void>(as_mdspan<Strided>(view(2, 3, 0, 1))); }, "steps backwards or not");
    refused<BufferError>([&] { static_cast<void>(as_mdspan<Strided>(view(2, 3, 2, 1))); }, "more than once");
    refused<BufferError>([&] { static_cast<void>(as_mdspan<Tiny>(view(2, 3, 100, 30))); }, "index_type");
    refused<BufferError>([&] { static_cast<void>(as_mdspan<Strided>(view(2, 3, INT64_MAX, 1))); }, "64 bits");
    refused<ShapeError>([&] { static_cast<void>(as_mdspan<Tiny>(view(1, 200, 1, 1))); }, "dimension 1 is beyond");
    refused<ShapeError>([&] { static_cast<void>(as_mdspan<Half>(view(3, 2, 2, 1))); }, "dimension 0 has 2 in the type");
    refused<ShapeError>([&] { static_cast<void>(as_mdspan<Right>(TensorView<float>(data, Shape{4}))); }, "rank 2");
}
