// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/init/initializer.hpp
/// \brief  What a tensor may start as: uniform, normal, truncated normal, constant, and the usual scalings by fan.
/// \depends exec/local_tensor. Opt-in: not part of the umbrella.
///
/// fan_in and fan_out are those of torch.nn.init: a weight is [out, in, receptive field ...], fan_in is in times the
/// receptive field and fan_out is out times it.
#pragma once

#include <reshard/exec/local_tensor.hpp>

namespace reshard::inline v0_1 {

/// From [low, high): high never occurs, in no element type.
struct Uniform {
    double low = 0.0;
    double high = 1.0;
};

struct Normal {
    double mean = 0.0;
    double deviation = 1.0;
};

/// Normal, given that it lies in [low, high]: bounds of the value, not multiples of the deviation.
struct TruncatedNormal {
    double mean = 0.0;
    double deviation = 1.0;
    double low = -2.0;
    double high = 2.0;
};

/// The same value everywhere. Integers and booleans may be constant too, where they have that value exactly.
struct Constant {
    double value = 0.0;
};

template <class T>
concept Initializer = std::same_as<T, Uniform> || std::same_as<T, Normal> || std::same_as<T, TruncatedNormal> ||
    std::same_as<T, Constant>;

/// The shape of a weight, whole, and its name for messages. Made from a shape or a LocalTensor.
class WeightShape {
public:
    WeightShape(LocalTensor const& tensor) : shape_(detail::whole_shape(tensor)), name_(tensor.name) {}
    template <std::convertible_to<DynamicShape> S>
    WeightShape(S const& shape, std::string_view name = {}) : shape_(shape), name_(name) {}

    [[nodiscard]] DynamicShape const& shape() const noexcept { return shape_; }
    [[nodiscard]] std::string_view name() const noexcept { return name_; }

private:
    DynamicShape shape_;
    std::string_view name_;
};

/// Which side keeps its variance: `in` the activations on their way forward, `out` the gradients on their way back.
enum class Fan : std::uint8_t { in, out };

struct Fans {
    double in = 0.0;
    double out = 0.0;
};

namespace detail {

/// Throws ShapeError for shapes without two dimensions, and where a fan that somebody divides by is zero.
[[nodiscard]] inline Fans fans(WeightShape const& weight, std::string_view who) {
    auto const refuse = [&](auto const&... parts) {
        raise(ErrorCode::shape, "reshard::", who, ": ",
              weight.name().empty() ? std::string("a tensor") : concat("tensor '", weight.name(), "'"), " of shape ",
              to_string(weight.shape()), parts...);
    };
    DynamicShape const& shape = weight.shape();
    if (shape.rank() < 2) {
        refuse(
            " has no fan_in and fan_out: they need two dimensions. Fix: give it Constant, Uniform or Normal, or "
            "pass the shape of the weight it belongs to.");
    }
    double field = 1.0;
    for (int dim = 2; dim < shape.rank(); ++dim) field *= static_cast<double>(shape.extent(dim));
    Fans const result{field * static_cast<double>(shape.extent(1)), field * static_cast<double>(shape.extent(0))};
    if (result.in == 0.0 || result.out == 0.0) {
        refuse(" has no elements to scale by. Fix: leave empty tensors out.");
    }
    return result;
}
[[nodiscard]] inline double fan(WeightShape const& weight, Fan side, std::string_view who) {
    Fans const both = fans(weight, who);
    return side == Fan::in ? both.in : both.out;
}
[[nodiscard]] inline Uniform uniform_of_deviation(double deviation) noexcept {
    double const bound = __builtin_sqrt(3.0) * deviation;
    return {-bound, bound};
}

}  // namespace detail

/// Throws ShapeError, naming the tensor, for a shape with fewer than two dimensions or without elements; so do the
/// scalings below.
[[nodiscard]] inline Fans fans(WeightShape const& weight) { return detail::fans(weight, "fans"); }

/// Gains for kaiming: of ReLU, sqrt(2), and of a leaky one, sqrt(2 / (1 + slope^2)).
inline constexpr double relu_gain = 1.4142135623730951;
[[nodiscard]] inline double leaky_relu_gain(double slope) noexcept {
    return __builtin_sqrt(2.0 / __builtin_fma(slope, slope, 1.0));
}

/// Deviation gain * sqrt(2 / (fan_in + fan_out)). Glorot, Bengio, "Understanding the difficulty of training deep
/// feedforward neural networks", AISTATS 2010.
[[nodiscard]] inline Normal xavier_normal(WeightShape const& weight, double gain = 1.0) {
    Fans const both = detail::fans(weight, "xavier_normal");
    return {0.0, gain * __builtin_sqrt(2.0 / (both.in + both.out))};
}
[[nodiscard]] inline Uniform xavier_uniform(WeightShape const& weight, double gain = 1.0) {
    Fans const both = detail::fans(weight, "xavier_uniform");
    return detail::uniform_of_deviation(gain * __builtin_sqrt(2.0 / (both.in + both.out)));
}

/// Deviation gain / sqrt(fan). He, Zhang, Ren, Sun, "Delving deep into rectifiers", ICCV 2015. torch.nn.Linear starts
/// as kaiming_uniform(weight, leaky_relu_gain(sqrt(5))).
[[nodiscard]] inline Normal kaiming_normal(WeightShape const& weight, double gain = relu_gain, Fan side = Fan::in) {
    return {0.0, gain / __builtin_sqrt(detail::fan(weight, side, "kaiming_normal"))};
}
[[nodiscard]] inline Uniform kaiming_uniform(WeightShape const& weight, double gain = relu_gain, Fan side = Fan::in) {
    return detail::uniform_of_deviation(gain / __builtin_sqrt(detail::fan(weight, side, "kaiming_uniform")));
}

/// Deviation 1 / sqrt(fan_in), not truncated. LeCun, Bottou, Orr, Mueller, "Efficient backprop", 1998.
[[nodiscard]] inline Normal lecun_normal(WeightShape const& weight) {
    return {0.0, 1.0 / __builtin_sqrt(detail::fan(weight, Fan::in, "lecun_normal"))};
}

}  // namespace reshard::inline v0_1
