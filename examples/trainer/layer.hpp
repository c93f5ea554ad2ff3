// SPDX-License-Identifier: Apache-2.0
/// \file   examples/trainer/layer.hpp
/// \brief  Parameters and layers: y = x W^T + b, forward and backward, for whatever placements.
/// \depends placement.hpp, sums.hpp, transitions.hpp.
#pragma once

#include "placement.hpp"
#include "sums.hpp"
#include "transitions.hpp"

#include <reshard/exec/local_tensor.hpp>

#include <list>

namespace trainer {
using reshard::LocalTensor;

/// Adam (Kingma, Ba, ICLR 2015), one number at a time.
struct Adam {
    double rate = 0.01;
    double first = 0.9;
    double second = 0.999;
    double epsilon = 1e-8;

    /// The parameter behind step `step`, which counts from 1.
    float operator()(float value, float gradient, float& mean, float& square, Index step) const {
        auto const mix = [](float old, double now, double keep) {
            return static_cast<float>(keep * static_cast<double>(old) + (1 - keep) * now);
        };
        auto const g = static_cast<double>(gradient);
        mean = mix(mean, g, first);
        square = mix(square, g * g, second);
        auto const power = static_cast<double>(step);
        double const unbiased = static_cast<double>(mean) / (1 - std::pow(first, power));
        double const scale = std::sqrt(static_cast<double>(square) / (1 - std::pow(second, power)));
        return static_cast<float>(static_cast<double>(value) - rate * unbiased / (scale + epsilon));
    }
};

/// One parameter in its three places: where it rests, where it is used, where it is updated.
template <class Sum>
class Parameter {
public:
    Parameter(std::string name, DynamicDistribution const& used, Layout const& layout, Transport& transport)
        : name_(std::move(name)),
          used_at_(used),
          resting_(layout.resting(used)),
          updated_(layout.optimizer(resting_)),
          value_(local_tensor<float>(resting_, transport)),
          sum_(local_tensor<Sum>(reshard::adjoint(used), transport)),
          mean_(local_tensor<float>(updated_, transport)),
          square_(local_tensor<float>(updated_, transport)) {
        Plan<> const part = plan(resting_, updated_);
        if (part.kind() != reshard::TransitionKind::view) {
            refuse(ErrorCode::placement,
                   concat("--optimizer: '", name_, "' rests as ", to_string(resting_), " and is to be updated as ",
                          to_string(updated_),
                          ", which ranks do not have then. Fix: cut what --weights leaves whole, and nothing else."));
        }
        before_ = part.view(value_.view(), transport.comm().rank());
        if (!(updated_ == resting_)) after_ = local_tensor<float>(updated_, transport);
    }

    void add_to(Transitions& gather, Transitions& reduce, Transitions& spread) {
        used_ = gather.add(name_, plan(resting_, used_at_), value_.view());
        gradient_ = reduce.add("gradient of " + name_, plan(reshard::adjoint(used_at_), updated_), sum_.view());
        if (!(updated_ == resting_)) {
            spread.add("updated " + name_, plan(updated_, resting_), after_.view(), value_.view());
        }
    }
    void update(Adam const& adam, Index step) {
        TensorView<float> const out = updated_ == resting_ ? value_.view() : after_.view();
        Index const columns = out.rank() == 2 ? out.extent(1) : 1;
        for (Index i = 0; i < out.size(); ++i) {
            float const old = before_.rank() == 2 ? before_(i / columns, i % columns) : before_(i);
            out.data()[i] = adam(old, to_float(gradient_.data()[i]), mean_.data()[i], square_.data()[i], step);
        }
    }

    [[nodiscard]] TensorView<float> used() const noexcept { return used_; }
    [[nodiscard]] TensorView<Sum> sum() noexcept { return sum_.view(); }
    [[nodiscard]] LocalTensor tensor() { return {name_, resting_, value_.view()}; }
    [[nodiscard]] std::vector<LocalTensor> optimizer_state() {
        return {{"adam.mean." + name_, updated_, mean_.view()}, {"adam.square." + name_, updated_, square_.view()}};
    }

private:
    std::string name_;
    DynamicDistribution used_at_;
    DynamicDistribution resting_;
    DynamicDistribution updated_;
    Tensor<float> value_;
    Tensor<Sum> sum_;  ///< this rank's addend of the gradient
    Tensor<float> mean_;
    Tensor<float> square_;
    Tensor<float> after_;       ///< the update, where it cannot be made in place
    TensorView<float> before_;  ///< the part of value_ that this rank updates
    TensorView<float> used_;
    TensorView<Sum> gradient_;
};

/// One layer. Between layers activations and their gradients are cut on every axis, so that nothing is Partial there.
template <class Sum>
class Layer {
public:
    /// `input`: the activations that come in, which outlive the layer.
    Layer(int number, bool last, Layout const& layout, DynamicDistribution const& incoming,
          TensorView<float> const& input, Index outputs, Transport& transport, Transitions& spread)
        : last_(last),
          gather_(transport, concat("gather ", number)),
          forward_in_(transport, concat("forward ", number)),
          forward_out_(transport, concat("forward ", number)),
          backward_out_(transport, concat("backward ", number)),
          backward_in_(transport, concat("backward ", number)),
          reduce_(transport, concat("reduce ", number)),
          outgoing_(layout.activations(Shape{incoming.shape().extent(0), outputs})),
          weight_(concat("layer.", number, ".weight"),
                  layout.compute(number, Shape{outputs, incoming.shape().extent(1)}), layout, transport),
          bias_(concat("layer.", number, ".bias"), bias_of(outgoing_), layout, transport) {
        Product const product =
            product_of(layout.compute(number, Shape{outputs, incoming.shape().extent(1)}), incoming.shape().extent(0));
        weight_.add_to(gather_, reduce_, spread);
        bias_.add_to(gather_, reduce_, spread);

        Plan<> const in = plan(incoming, product.x);
        Plan<> const out = plan(product.y, outgoing_);
        x_ = forward_in_.add("input", in, input);
        y_ = local_tensor<Sum>(product.y, transport);
        sums_ = forward_out_.add("output", out, y_.view());
        output_ = local_tensor<float>(outgoing_, transport);

        output_gradient_ = local_tensor<float>(outgoing_, transport);
        dy_ = backward_out_.add("gradient of output", out.adjoint(), output_gradient_.view());
        dx_ = local_tensor<Sum>(in.adjoint().from(), transport);
        input_sums_ = backward_in_.add("gradient of input", in.adjoint(), dx_.view());
        input_gradient_ = local_tensor<float>(incoming, transport);
        for (Transitions* one : transitions()) one->prepare();
    }

    void forward(Faults& faults) {
        forward_in_.run();
        multiply<Sum>(x_, transposed(weight_.used()), y_.view(), faults);
        forward_out_.run();
        TensorView<float> const bias = bias_.used();
        for (Index i = 0; i < sums_.extent(0); ++i)
            for (Index j = 0; j < sums_.extent(1); ++j) {
                float const value = to_float(sums_(i, j)) + bias(j);
                output_(i, j) = last_ || value > 0 || std::isnan(value) ? value : 0.0F;
            }
    }
    /// From the gradient of the output to that of the input. What gradients of parameters need is under way when it
    /// returns: reduce().wait() ends it.
    TensorView<float> backward(TensorView<float> const& gradient, Faults& faults) {
        for (Index i = 0; i < output_.size(); ++i) {
            output_gradient_.data()[i] = last_ || output_.data()[i] > 0 ? gradient.data()[i] : 0.0F;
        }
        sum_rows<Sum>(output_gradient_.view(), bias_.sum(), faults);
        backward_out_.run();
        multiply<Sum>(transposed(dy_), x_, weight_.sum(), faults);
        reduce_.start();
        multiply<Sum>(dy_, weight_.used(), dx_.view(), faults);
        backward_in_.run();
        for (Index i = 0; i < input_gradient_.size(); ++i) {
            Index const columns = input_gradient_.extent(1);
            input_gradient_.data()[i] = to_float(input_sums_(i / columns, i % columns));
        }
        return input_gradient_.view();
    }

    [[nodiscard]] DynamicDistribution const& outgoing() const noexcept { return outgoing_; }
    [[nodiscard]] TensorView<float> output() noexcept { return output_.view(); }
    [[nodiscard]] TensorView<float> input_gradient() noexcept { return input_gradient_.view(); }
    [[nodiscard]] Transitions& gather() noexcept { return gather_; }
    [[nodiscard]] Transitions& reduce() noexcept { return reduce_; }
    [[nodiscard]] std::vector<Parameter<Sum>*> parameters() { return {&weight_, &bias_}; }
    /// In the order of a step.
    [[nodiscard]] std::vector<Transitions*> transitions() {
        return {&gather_, &forward_in_, &forward_out_, &backward_out_, &reduce_, &backward_in_};
    }

private:
    bool last_;
    Transitions gather_, forward_in_, forward_out_, backward_out_, backward_in_, reduce_;
    DynamicDistribution outgoing_;
    Parameter<Sum> weight_;
    Parameter<Sum> bias_;
    TensorView<float> x_;  ///< what is multiplied
    Tensor<Sum> y_;        ///< addends, along axes that cut in features
    TensorView<Sum> sums_;
    Tensor<float> output_;
    Tensor<float> output_gradient_;
    TensorView<float> dy_;
    Tensor<Sum> dx_;  ///< addends, along axes that cut out features
    TensorView<Sum> input_sums_;
    Tensor<float> input_gradient_;
};

}  // namespace trainer
