// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/init/initialize.hpp: the contract of the values, their statistics, what is refused.
#include <reshard/init/initialize.hpp>

#include <doctest/doctest.h>

#include <reshard/algebra/notation.hpp>

#include "support/fake_cuda.hpp"
#include "support/random.hpp"

#include <algorithm>  // sort, count
#include <cmath>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// A whole tensor on one rank.
template <class T, class I>
std::vector<T> values(I const& initializer, Index count, std::uint64_t seed = 1, std::string const& name = "w") {
    std::vector<T> result(static_cast<std::size_t>(count));
    TensorView<T> const view(result.data(), Shape{count});
    initialize(name, distribution(Mesh{1}, view.shape(), "R"), view, 0, seed, initializer);
    return result;
}
template <class T>
std::vector<double> numbers(std::vector<T> const& list) {
    std::vector<double> result;
    for (T const& value : list) result.push_back(detail::number(value));
    return result;
}
template <class T>
std::uint64_t digest_of(std::vector<T> const& list) {
    detail::Digest digest;
    for (T const& value : list) digest.add(__builtin_bit_cast(std::uint64_t, detail::number(value)));
    return digest.value();
}

struct Moments {
    double mean = 0.0;
    double variance = 0.0;
};
Moments moments(std::vector<double> const& list) {
    Moments result;
    for (double value : list) result.mean += value;
    result.mean /= static_cast<double>(list.size());
    for (double value : list) result.variance += (value - result.mean) * (value - result.mean);
    result.variance /= static_cast<double>(list.size() - 1);
    return result;
}

/// Kolmogorov and Smirnov: the largest distance between what is and what should be, times sqrt(n). Above 1.95 in one
/// of a thousand samples.
template <class Probability>
double distance(std::vector<double> list, Probability const& probability) {
    std::sort(list.begin(), list.end());
    auto const n = static_cast<double>(list.size());
    double largest = 0.0;
    for (std::size_t i = 0; i < list.size(); ++i) {
        double const p = probability(list[i]);
        largest = std::max({largest, p - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - p});
    }
    return largest * std::sqrt(n);
}
double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

/// What initialize throws for a tensor of two elements.
struct Refused {
    ErrorCode code = ErrorCode::none;
    std::string message;
};
template <class I>
Refused refusal(I const& initializer, DType dtype, std::string const& placement = "(1):(R)") {
    std::vector<std::byte> memory(16, std::byte{0x11});
    Shape const shape{2};
    try {
        initialize(LocalTensor{"layer.bias", parse(placement, shape), {memory.data(), dtype, shape}}, 0, 1,
                   initializer);
    } catch (Error const& error) {
        CHECK(std::count(memory.begin(), memory.end(), std::byte{0x11}) == 16);
        return {error.code(), error.message()};
    }
    return {};
}
template <class I>
void check_refused(I const& initializer, DType dtype, ErrorCode code, std::string const& part,
                   std::string const& placement = "(1):(R)") {
    Refused const refused = refusal(initializer, dtype, placement);
    CAPTURE(refused.message);
    CAPTURE(part);
    CHECK(refused.code == code);
    CHECK(refused.message.find("reshard::initialize: tensor 'layer.bias'") == 0);
    CHECK(refused.message.find(part) != std::string::npos);
    CHECK(refused.message.find("Fix: ") != std::string::npos);
}

// ---- The contract ------------------------------------------------------------------------------------------------

static_assert(name_stream("") == 0xcbf29ce484222325U);  // the test vectors of FNV-1a
static_assert(name_stream("a") == 0xaf63dc4c8601ec8cU);
static_assert(name_stream("foobar") == 0x85944171f73967e8U);

TEST_CASE("a value is made of the word that seed, name and index name") {
    std::uint64_t const seed = 0x0123456789abcdefU;
    auto const uniform = values<float>(Uniform{-1.0, 3.0}, 1000, seed, "block.0.weight");
    auto const normal = values<float>(Normal{2.0, 0.5}, 1000, seed, "block.0.weight");
    auto const wide = values<double>(Uniform{0.0, 1.0}, 1000, seed, "block.0.weight");
    auto const wide_normal = values<double>(Normal{}, 1000, seed, "block.0.weight");
    std::uint64_t const stream = name_stream("block.0.weight");
    for (std::size_t i = 0; i < 1000; ++i) {
        std::uint32_t const word = philox4x32(i / 4, stream, seed).words[i % 4];
        double const u = static_cast<double>(word >> 8U) / 16777216.0;
        REQUIRE(uniform[i] == static_cast<float>(-1.0 + 4.0 * u));  // times a power of two: exact
        double const p = (static_cast<double>(word) + 0.5) / 4294967296.0;
        REQUIRE(normal[i] == static_cast<float>(2.0 + 0.5 * static_cast<double>(detail::normal_quantile<float>(p))));

        PhiloxBlock const block = philox4x32(i / 2, stream, seed);
        std::uint64_t const pair = (std::uint64_t{block.words[2 * (i % 2) + 1]} << 32U) | block.words[2 * (i % 2)];
        REQUIRE(wide[i] == static_cast<double>(pair >> 11U) * 0x1p-53);
        double const q = (static_cast<double>(pair >> 12U) + 0.5) * 0x1p-52;
        REQUIRE(wide_normal[i] == detail::normal_quantile<double>(q));
    }
}

TEST_CASE("the bits are those of every other compiler and machine") {
    // A change of any of these numbers is a change of everybody's weights. They hold for g++ and clang++, with and
    // without optimisation, contraction and fused instructions.
    TruncatedNormal const tail{0.0, 1.0, 3.0, 9.0};
    CHECK(digest_of(values<float>(Uniform{-0.1, 0.3}, 10000)) == 0xa0970ea954be4965U);
    CHECK(digest_of(values<double>(Uniform{-0.1, 0.3}, 10000)) == 0x18626e8ade65823fU);
    CHECK(digest_of(values<float>(Normal{0.1, 0.02}, 10000)) == 0x5a6cb338e13958d8U);
    CHECK(digest_of(values<BFloat16>(Normal{0.1, 0.02}, 10000)) == 0x1df11ece32ccae49U);
    CHECK(digest_of(values<Float16>(Normal{0.1, 0.02}, 10000)) == 0x25fc73a245250e75U);
    CHECK(digest_of(values<double>(Normal{0.1, 0.02}, 10000)) == 0x2068228c111eb5b6U);
    CHECK(digest_of(values<float>(TruncatedNormal{0.1, 0.7, -1.0, 1.5}, 10000)) == 0xee394e102e270faaU);
    CHECK(digest_of(values<double>(TruncatedNormal{0.1, 0.7, -1.0, 1.5}, 10000)) == 0x9943e772ec73cf85U);
    CHECK(digest_of(values<float>(tail, 10000)) == 0xbf3e5b54e9a96d91U);
    CHECK(digest_of(values<double>(tail, 10000)) == 0x91f533c8289bb111U);
}

TEST_CASE("what floats are rounded from is the same bits too: there a contraction would show first") {
    detail::Digest logs;
    detail::Digest full_logs;
    detail::Digest polynomials;
    for (int i = 1; i <= 10000; ++i) {
        double const x = static_cast<double>(i) * 7.4e-6;
        logs.add(__builtin_bit_cast(std::uint64_t, detail::log_short(x)));
        full_logs.add(__builtin_bit_cast(std::uint64_t, detail::log_full(x)));
        polynomials.add(__builtin_bit_cast(std::uint64_t, detail::polynomial(static_cast<float>(x), 1.1, -0.3, 0.7)));
    }
    CHECK(logs.value() == 0x0e54332719c96a7cU);
    CHECK(full_logs.value() == 0x53226e3fe3c4befeU);
    CHECK(polynomials.value() == 0xff38cb74641397dbU);
}

TEST_CASE("16-bit floats are the floats, rounded once") {
    auto const check = [](auto const& initializer) {
        auto const floats = values<float>(initializer, 5000);
        auto const brains = values<BFloat16>(initializer, 5000);
        auto const halves = values<Float16>(initializer, 5000);
        for (std::size_t i = 0; i < floats.size(); ++i) {
            REQUIRE(brains[i].bits == BFloat16(floats[i]).bits);
            REQUIRE(halves[i].bits == Float16(floats[i]).bits);
        }
    };
    check(Normal{0.0, 0.02});
    check(Normal{3.0, 1.0});
    check(TruncatedNormal{0.0, 1.0, -100.0, 100.0});
}

TEST_CASE("another seed, name or index is another stream") {
    auto const base = values<float>(Uniform{}, 4096, 1, "a");
    auto const same = [&](std::vector<float> const& other) {
        int count = 0;
        for (std::size_t i = 0; i < base.size(); ++i) count += base[i] == other[i] ? 1 : 0;
        return count;
    };
    CHECK(same(values<float>(Uniform{}, 4096, 1, "a")) == 4096);
    CHECK(same(values<float>(Uniform{}, 4096, 2, "a")) < 5);
    CHECK(same(values<float>(Uniform{}, 4096, std::uint64_t{1} << 32U, "a")) < 5);  // the upper half counts
    CHECK(same(values<float>(Uniform{}, 4096, 1, "b")) < 5);
    CHECK(same(values<float>(Uniform{}, 4096, 1, "")) < 5);
    std::vector<float> sorted = base;
    std::sort(sorted.begin(), sorted.end());
    auto const twice = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
    CHECK(twice > 4090);  // of 2^24 possible values; a stream that repeats itself has far fewer
}

TEST_CASE("a shard far behind the first 2^32 elements has the values of its place") {
    // 2^40 elements, of which a rank holds nine: the mesh is cut so that no more memory is needed.
    Index const rows = Index{1} << 20U;
    Index const columns = Index{1} << 20U;
    Shape const shape{rows, columns};
    auto const whole = distribution(Mesh{3, 3}, shape, Shard<0, Boundaries>{{0, rows - 5, rows - 2, rows}},
                                    Shard<1, Boundaries>{{0, columns - 7, columns - 4, columns}});
    int const rank = 4;  // rows [-5, -2), columns [-7, -4)
    auto const check = [&]<class T>(T) {
        std::vector<T> local(9);
        initialize("far", whole, TensorView<T>(local.data(), Shape{3, 3}), rank, 7, Normal{});
        constexpr Index each = sizeof(T) == 8 ? 2 : 4;
        for (Index i = 0; i < 9; ++i) {
            Index const index = (rows - 5 + i / 3) * columns + (columns - 7 + i % 3);
            PhiloxBlock const block = philox4x32(static_cast<std::uint64_t>(index / each), name_stream("far"), 7);
            T expected{};
            if constexpr (sizeof(T) == 8) {
                auto const pair = detail::pair_of(block.words + 2 * (index % 2));
                expected = detail::normal_quantile<double>((static_cast<double>(pair >> 12U) + 0.5) * 0x1p-52);
            } else {
                expected = detail::normal_quantile<float>((block.words[index % 4] + 0.5) * 0x1p-32);
            }
            CHECK(local[static_cast<std::size_t>(i)] == expected);
        }
    };
    check(float{});
    check(double{});
}

TEST_CASE("a list is one call, and a rank outside the mesh has nothing to do") {
    std::vector<float> a(4, 5.0F);
    std::vector<float> b(6, 5.0F);
    auto const whole = distribution(Mesh{1}, Shape{4}, "R");
    std::vector<LocalTensor> list{{"a", whole, TensorView<float>(a.data(), Shape{4})},
                                  {"b", distribution(Mesh{1}, Shape{6}, "R"), TensorView<float>(b.data(), Shape{6})}};
    initialize(list, 3, 1, Uniform{});
    CHECK(a == std::vector<float>(4, 5.0F));
    initialize(list, 0, 1, Uniform{});
    CHECK(a == values<float>(Uniform{}, 4, 1, "a"));
    CHECK(b == values<float>(Uniform{}, 6, 1, "b"));

    list[1].view = TensorView<float>(b.data(), Shape{5});  // refused as a whole
    CHECK_THROWS_AS(initialize(list, 0, 2, Uniform{}), BufferError);
    CHECK(a == values<float>(Uniform{}, 4, 1, "a"));
}

TEST_CASE("a constant is written as it is, rounded once, in integers and booleans too") {
    CHECK(values<float>(Constant{0.1}, 3) == std::vector<float>(3, 0.1F));
    CHECK(values<double>(Constant{0.1}, 3) == std::vector<double>(3, 0.1));
    double const tie = 1.0 + 0x1p-8 + 0x1p-40;  // as a float first it would be a tie, and round down
    CHECK(values<BFloat16>(Constant{tie}, 3)[2].bits == 0x3f81);
    CHECK(values<std::int64_t>(Constant{-7.0}, 300) == std::vector<std::int64_t>(300, -7));
    CHECK(values<std::uint8_t>(Constant{255.0}, 3) == std::vector<std::uint8_t>(3, 255));
    bool truth[2] = {false, false};
    initialize("mask", distribution(Mesh{1}, Shape{2}, "R"), TensorView<bool>(truth, Shape{2}), 0, 1, Constant{1.0});
    CHECK((truth[0] && truth[1]));
    float scalar = 0.0F;
    initialize("scale", distribution(Mesh{1}, Shape<>{}, "R"), TensorView<float>(&scalar, Shape<>{}), 0, 1,
               Constant{4.0});
    CHECK(scalar == 4.0F);
}

TEST_CASE("what an element type does not hold is refused, not made infinite") {
    CHECK_THROWS_AS(values<Float16>(Normal{0.0, 40000.0}, 3), DTypeError);
    CHECK_THROWS_AS(values<float>(Normal{0.0, 1e38}, 3), DTypeError);
    CHECK(numbers(values<Float16>(Normal{0.0, 6000.0}, 3)).size() == 3);
    double const infinity = std::numeric_limits<double>::infinity();
    CHECK_THROWS_AS(values<Float16>(TruncatedNormal{60000.0, 10000.0, 0.0, infinity}, 3), DTypeError);
    CHECK_THROWS_AS(values<Float16>(TruncatedNormal{-60000.0, 10000.0, -infinity, 0.0}, 3), DTypeError);
    CHECK_THROWS_AS(values<Float16>(TruncatedNormal{0.0, 1e5, -1e6, 1e6}, 3), DTypeError);  // all at both ends
    CHECK_THROWS_AS(values<float>(TruncatedNormal{0.0, 1e38, -infinity, infinity}, 3), DTypeError);
    CHECK_THROWS_AS(values<double>(TruncatedNormal{0.0, 1e308, 0.0, infinity}, 3), DTypeError);
    check_refused(TruncatedNormal{0.0, 1e5, -1e6, 1e6}, DType::f16, ErrorCode::dtype,
                  "mean 0 and deviation 100000 within [-1000000, 1000000] has values beyond F16");
    CHECK(numbers(values<Float16>(TruncatedNormal{60000.0, 10000.0, -infinity, 65504.0}, 3)).size() == 3);
    CHECK(numbers(values<Float16>(TruncatedNormal{0.0, 6000.0, -infinity, 1e6}, 3)).size() == 3);
    CHECK_THROWS_AS(values<Float16>(Constant{1e6}, 3), DTypeError);
    CHECK_THROWS_AS(values<float>(Constant{-1e300}, 3), DTypeError);
    CHECK(numbers(values<Float16>(Constant{-infinity}, 1))[0] == -infinity);
}

// ---- Statistics: fixed seeds, so a failure is a change -------------------------------------------------------------

TEST_CASE("uniform values are uniform and within their bounds") {
    auto const list = numbers(values<float>(Uniform{-2.0, 3.0}, 200000));
    Moments const found = moments(list);
    CHECK(found.mean == doctest::Approx(0.5).epsilon(0.01));
    CHECK(found.variance == doctest::Approx(25.0 / 12.0).epsilon(0.01));
    CHECK(*std::min_element(list.begin(), list.end()) >= -2.0);
    CHECK(*std::max_element(list.begin(), list.end()) < 3.0);
    auto const uniform = [](double x) { return (x + 2.0) / 5.0; };
    CHECK(distance(list, uniform) < 1.95);
    CHECK(distance(numbers(values<double>(Uniform{-2.0, 3.0}, 200000)), uniform) < 1.95);
    auto const skewed = [](double x) { return (x + 2.05) / 5.05; };
    CHECK(distance(list, skewed) > 1.95);  // the test can fail
}

TEST_CASE("uniform values never reach the upper bound, nor leave the lower one, in any element type") {
    auto const check = [](auto const& list, double low, double high) {
        double least = high;
        double most = low;
        for (double value : numbers(list)) {
            least = std::min(least, value);
            most = std::max(most, value);
        }
        CHECK(least >= low);
        CHECK(most < high);
    };
    check(values<BFloat16>(Uniform{}, 100000), 0.0, 1.0);
    check(values<Float16>(Uniform{}, 100000), 0.0, 1.0);
    check(values<BFloat16>(Uniform{0.7, 0.7071}, 100000), 0.7, 0.7071);  // 0.7 rounds down, to 0.69921875
    check(values<BFloat16>(Uniform{-0.3, 0.3}, 100000), -0.3, 0.3);
    check(values<float>(Uniform{1.0, 1.0 + 0x1p-22}, 10000), 1.0, 1.0 + 0x1p-22);
    check(values<double>(Uniform{1.0, 1.0 + 0x1p-51}, 10000), 1.0, 1.0 + 0x1p-51);
    check(values<double>(Uniform{-0.0, 0x1p-1074}, 10), 0.0, 0x1p-1074);
    double const before_one = 1.0 - 0x1p-8;  // the largest bf16 below 1 must occur: it takes what would round to 1
    auto const list = numbers(values<BFloat16>(Uniform{}, 100000));
    CHECK(std::count(list.begin(), list.end(), before_one) > 300);
}

TEST_CASE("normal values are normal") {
    auto const list = numbers(values<float>(Normal{1.0, 2.0}, 400000));
    Moments const found = moments(list);
    CHECK(found.mean == doctest::Approx(1.0).epsilon(0.01));
    CHECK(found.variance == doctest::Approx(4.0).epsilon(0.01));
    auto const normal = [](double x) { return normal_cdf((x - 1.0) / 2.0); };
    CHECK(distance(list, normal) < 1.95);
    CHECK(distance(numbers(values<double>(Normal{1.0, 2.0}, 400000)), normal) < 1.95);
    auto const shifted = [](double x) { return normal_cdf((x - 1.02) / 2.0); };
    CHECK(distance(list, shifted) > 1.95);

    double kurtosis = 0.0;
    double product = 0.0;  // of neighbours, which come from one block
    for (std::size_t i = 0; i + 1 < list.size(); ++i) {
        double const z = (list[i] - 1.0) / 2.0;
        kurtosis += z * z * z * z;
        product += z * (list[i + 1] - 1.0) / 2.0;
    }
    CHECK(kurtosis / 4e5 == doctest::Approx(3.0).epsilon(0.02));
    CHECK(std::abs(product / 4e5) < 0.01);
    auto const beyond = std::count_if(list.begin(), list.end(), [](double x) { return std::abs(x - 1.0) > 8.0; });
    CHECK(std::abs(static_cast<double>(beyond) - 4e5 * 6.334e-5) < 4 * std::sqrt(4e5 * 6.334e-5));
}

TEST_CASE("the quantile is the inverse of the distribution function") {
    for (double p :
         {1e-300, 1e-100, 1e-20, 1e-11, 1e-6, 0.01, 0.0749, 0.075, 0.0751, 0.3, 0.5, 0.6, 0.9, 0.99, 1 - 1e-9}) {
        CAPTURE(p);
        double const z = detail::normal_quantile<double>(p);
        CHECK(normal_cdf(z) == doctest::Approx(p).epsilon(1e-11));
        CHECK(static_cast<double>(detail::normal_quantile<float>(p)) == doctest::Approx(z).epsilon(2e-7));
        CHECK(detail::normal_probability(z) == doctest::Approx(p).epsilon(1e-12));
    }
    CHECK(detail::normal_probability(-1e9) == 0.0);
    CHECK(detail::normal_probability(1e9) == 1.0);
}

TEST_CASE("truncated normal values keep to their bounds and to the normal distribution between them") {
    double const infinity = std::numeric_limits<double>::infinity();
    for (TruncatedNormal const& law :
         {TruncatedNormal{}, TruncatedNormal{0.0, 0.02, -0.04, 0.04}, TruncatedNormal{1.0, 2.0, 4.0, 6.0},
          TruncatedNormal{0.0, 1.0, 5.0, 8.0}, TruncatedNormal{0.0, 1.0, -9.0, -6.0},
          TruncatedNormal{0.0, 1.0, 0.5, infinity}, TruncatedNormal{0.0, 1.0, -infinity, infinity},
          TruncatedNormal{0.0, 1.0, 20.0, 21.0}}) {
        CAPTURE(law.low);
        CAPTURE(law.high);
        double const a = (law.low - law.mean) / law.deviation;
        double const b = (law.high - law.mean) / law.deviation;
        double const side = a > 0 ? -1.0 : 1.0;  // where erfc is exact
        double const first = normal_cdf(side * a);
        double const last = normal_cdf(side * b);
        auto const probability = [&](double x) {
            return (normal_cdf(side * (x - law.mean) / law.deviation) - first) / (last - first);
        };
        auto const check = [&](std::vector<double> const& list) {
            CHECK(*std::min_element(list.begin(), list.end()) >= law.low);
            CHECK(*std::max_element(list.begin(), list.end()) <= law.high);
            CHECK(distance(list, probability) < 1.95);
        };
        check(numbers(values<float>(law, test::tries(100000))));
        check(numbers(values<double>(law, test::tries(100000))));
        for (double value : numbers(values<BFloat16>(law, test::tries(10000)))) {
            REQUIRE(value >= law.low);
            REQUIRE(value <= law.high);
        }
    }
}

// ---- Scalings ------------------------------------------------------------------------------------------------------

TEST_CASE("fans and scalings follow torch.nn.init") {
    Fans const linear = fans(Shape{512, 256});
    CHECK(linear.in == 256.0);
    CHECK(linear.out == 512.0);
    Fans const convolution = fans(Shape{64, 32, 3, 5});
    CHECK(convolution.in == 32.0 * 15.0);
    CHECK(convolution.out == 64.0 * 15.0);

    Shape const shape{30, 20};
    CHECK(xavier_uniform(shape).high == doctest::Approx(std::sqrt(6.0 / 50.0)));
    CHECK(xavier_uniform(shape, 2.0).low == doctest::Approx(-2.0 * std::sqrt(6.0 / 50.0)));
    CHECK(xavier_normal(shape).deviation == doctest::Approx(std::sqrt(2.0 / 50.0)));
    CHECK(kaiming_normal(shape).deviation == doctest::Approx(std::sqrt(2.0 / 20.0)));
    CHECK(kaiming_normal(shape, 1.0, Fan::out).deviation == doctest::Approx(std::sqrt(1.0 / 30.0)));
    CHECK(kaiming_uniform(shape).high == doctest::Approx(std::sqrt(3.0) * std::sqrt(2.0 / 20.0)));
    CHECK(kaiming_uniform(shape, leaky_relu_gain(std::sqrt(5.0))).high == doctest::Approx(1.0 / std::sqrt(20.0)));
    CHECK(lecun_normal(shape).deviation == doctest::Approx(std::sqrt(1.0 / 20.0)));
    CHECK(relu_gain == leaky_relu_gain(0.0));
}

TEST_CASE("what has no fans is refused by name") {
    auto const bias = distribution(Mesh{1}, Shape{512}, "R");
    LocalTensor const tensor{"mlp.up.bias", bias, {nullptr, DType::f32, Shape{512}}};
    auto const message = [](auto&& body) -> std::string {
        try {
            static_cast<void>(body());
        } catch (ShapeError const& error) {
            return error.message();
        }
        return {};
    };
    CHECK(message([&] { return xavier_uniform(tensor); }) ==
          "reshard::xavier_uniform: tensor 'mlp.up.bias' of shape [512] has no fan_in and fan_out: they need two "
          "dimensions. Fix: give it Constant, Uniform or Normal, or pass the shape of the weight it belongs to.");
    CHECK(message([&] { return kaiming_normal(Shape<>{}); }).find("reshard::kaiming_normal: a tensor of shape []") ==
          0);
    CHECK(message([&] { return lecun_normal(Shape{4, 0}); }).find("has no elements to scale by") != std::string::npos);
    CHECK(message([&] { return fans(Shape{3}); }).find("reshard::fans") == 0);
}

// ---- Partial, and what is refused --------------------------------------------------------------------------------

TEST_CASE("a Partial axis holds values at coordinate 0 and the identity elsewhere; idempotent ops hold values") {
    Shape const shape{3};
    auto const whole = values<float>(Normal{}, 3);
    auto const local = [&](std::string const& placement, int rank) {
        std::vector<float> result(3, 9.0F);
        initialize("w", parse(placement, shape), TensorView<float>(result.data(), shape), rank, 1, Normal{});
        return result;
    };
    CHECK(local("(2):(P+)", 0) == whole);
    CHECK(local("(2):(P+)", 1) == std::vector<float>(3, 0.0F));
    CHECK(std::signbit(local("(2):(P+)", 1)[0]));  // -0.0, so that a sum of -0.0 keeps its sign
    CHECK(local("(2):(P*)", 1) == std::vector<float>(3, 1.0F));
    CHECK(local("(2):(P<)", 1) == whole);
    CHECK(local("(2):(Pavg)", 1) == whole);
    CHECK(local("(2,2):(P+,R)", 1) == whole);
    CHECK(local("(2,2):(P+,P+)", 2) == std::vector<float>(3, 0.0F));
}

TEST_CASE("what cannot be initialised is refused, with the tensor's name, before anything is written") {
    check_refused(Normal{}, DType::i32, ErrorCode::dtype, "random values for elements of I32");
    check_refused(Uniform{}, DType::f8_e4m3, ErrorCode::dtype, "random values for elements of F8_E4M3");
    check_refused(Uniform{}, DType::f4, ErrorCode::dtype, "random values for elements of F4");
    check_refused(Constant{}, DType::f4, ErrorCode::dtype, "F4 elements cannot be set");
    check_refused(Constant{0.5}, DType::i32, ErrorCode::dtype, "I32 has no 0.5");
    check_refused(Constant{256.0}, DType::u8, ErrorCode::dtype, "U8 has no 256");
    check_refused(Constant{2.0}, DType::boolean, ErrorCode::dtype, "BOOL has no 2");
    check_refused(Uniform{1.0, 1.0}, DType::f32, ErrorCode::dtype, "[1, 1) is empty");
    check_refused(Uniform{2.0, 1.0}, DType::f32, ErrorCode::dtype, "[2, 1) is empty");
    check_refused(Uniform{std::nan(""), 1.0}, DType::f32, ErrorCode::dtype, "is empty");
    check_refused(Uniform{0.0, 1e6}, DType::f16, ErrorCode::dtype, "[0, 1000000) is beyond F16");
    check_refused(Uniform{-3e38, 3e38}, DType::f32, ErrorCode::dtype, "is beyond F32");
    check_refused(Uniform{0.0, std::numeric_limits<double>::infinity()}, DType::f64, ErrorCode::dtype, "is beyond F64");
    check_refused(Uniform{1.0001, 1.0002}, DType::bf16, ErrorCode::dtype, "no BF16 lies in [1.0001, 1.0002)");
    check_refused(Normal{0.0, -1.0}, DType::f32, ErrorCode::dtype, "deviation -1");
    check_refused(Normal{std::nan(""), 1.0}, DType::f32, ErrorCode::dtype, "mean nan");
    check_refused(Normal{0.0, 1e300}, DType::f32, ErrorCode::dtype, "deviation 1e+300");
    check_refused(TruncatedNormal{0.0, 0.0, -1.0, 1.0}, DType::f32, ErrorCode::dtype, "deviation 0");
    check_refused(TruncatedNormal{0.0, 1.0, 2.0, -2.0}, DType::f32, ErrorCode::dtype, "[2, -2] is empty");
    check_refused(TruncatedNormal{0.0, 1.0, 40.0, 50.0}, DType::f32, ErrorCode::dtype, "more than 37 deviations");
    check_refused(TruncatedNormal{0.0, 1.0, 1e6, 2e6}, DType::f16, ErrorCode::dtype, "no F16 lies in");
    check_refused(Normal{}, DType::f32, ErrorCode::dtype, "bxor is not defined for F32", "(2):(P^)");
    check_refused(Normal{}, DType::f32, ErrorCode::buffer, "the view has shape [2]", "(2):(S0)");

    std::vector<float> near(4, -1.0F);
    LocalTensor const repeats{"near", parse("(1):(R)", Shape{4}), TensorView<float>(near.data(), Shape{4}, {0})};
    CHECK_THROWS_WITH_AS(initialize(std::span(&repeats, 1), 0, 1, Normal{}),
                         doctest::Contains("strides [0] that overlap."), BufferError);

    test::FakeCuda const cuda;
    if (!cuda.works()) return;
    std::vector<float> far(4, -1.0F);
    cuda.claim(far.data(), 16);
    LocalTensor const tensors[] = {{"near", parse("(1):(R)", Shape{4}), TensorView<float>(near.data(), Shape{4})},
                                   {"far", parse("(1):(R)", Shape{4}), TensorView<float>(far.data(), Shape{4})}};
    CHECK_THROWS_WITH_AS(
        initialize(std::span(tensors), 0, 1, Normal{}),
        doctest::Contains("tensor 'far' on rank 0: the view lies in memory of a CUDA device, where the "
                          "host cannot work. Fix: pass memory of the host, and copy between the two"),
        BufferError);
    CHECK(near == std::vector<float>(4, -1.0F));
}

}  // namespace
