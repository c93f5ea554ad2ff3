// SPDX-License-Identifier: Apache-2.0
/// \file   examples/trainer/model.hpp
/// \brief  The recommender: embeddings of a sample's ids, side by side, through layers to the odds of a click.
/// \depends click_log.hpp, embedding.hpp, layer.hpp.
#pragma once

#include "click_log.hpp"
#include "embedding.hpp"
#include "layer.hpp"

#include <list>
#include <span>

namespace trainer {

struct ModelOptions {
    Index batch = 48;
    Index fields = 3;                   ///< ids of a sample
    Index embedding = 8;                ///< numbers of an id's row
    std::vector<Index> hidden{32, 16};  ///< outputs of all layers but the last, which has one
    Index slots = 4096;
    double rate = 0.01;
    std::uint64_t seed = 42;
};

template <class Sum>
class Model {
public:
    /// Collective: all transitions of a step are prepared.
    Model(ModelOptions const& options, Layout const& layout, Transport& transport)
        : options_(options),
          rank_(transport.comm().rank()),
          embedding_("click", options.slots, options.embedding, transport.comm().size(), rank_, options.seed),
          look_up_(transport, "look-up"),
          look_up_back_(transport, "look-up"),
          loss_(transport, "loss"),
          spread_(transport, "spread"),
          progress_at_(layout.everywhere(reshard::Shape{2}, reshard::Placement::replicate())) {
        auto const partial = reshard::Placement::partial(reshard::Reduce::sum);
        reshard::DynamicShape const shape = reshard::Shape{options.batch, options.fields * options.embedding};
        DynamicDistribution at = layout.activations(shape);
        Plan<> const answers = plan(layout.everywhere(shape, partial), at);
        found_ = local_tensor<float>(answers.from(), transport);
        TensorView<float> input = look_up_.add("embeddings", answers, found_.view());

        std::vector<Index> outputs = options.hidden;
        outputs.push_back(1);
        for (std::size_t number = 0; number < outputs.size(); ++number) {
            bool const last = number + 1 == outputs.size();
            Layer<Sum>& layer = layers_.emplace_back(static_cast<int>(number), last, layout, at, input, outputs[number],
                                                     transport, spread_);
            at = layer.outgoing();
            input = layer.output();
        }
        odds_gradient_ = local_tensor<float>(at, transport);
        found_gradient_ =
            look_up_back_.add("gradient of embeddings", answers.adjoint(), layers_.front().input_gradient());
        auto const all_have = layout.everywhere(reshard::Shape{2}, reshard::Placement::replicate());
        own_loss_ = local_tensor<Sum>(layout.everywhere(reshard::Shape{2}, partial), transport);
        whole_loss_ =
            loss_.add("loss", plan(layout.everywhere(reshard::Shape{2}, partial), all_have), own_loss_.view());
        for (Transitions* one : {&look_up_, &look_up_back_, &loss_, &spread_}) one->prepare();
    }

    /// Values that depend on the seed, the name and the index alone: no rank needs another's, and replicas are equal.
    void initialise(std::uint64_t seed) {
        for (LocalTensor const& tensor : weights()) {
            if (tensor.distribution.shape().rank() == 2) {
                initialize(tensor, rank_, seed, reshard::kaiming_uniform(tensor));
            } else {
                initialize(tensor, rank_, seed, reshard::Constant{0.0});
            }
        }
    }

    /// Collective. One step; returns the mean loss before it. Throws reshard::Error on all ranks alike where the loss
    /// is no number: parameters are then those of the step before.
    double step(ClickBatch const& batch) {
        Faults faults;
        ++progress_[0];
        progress_[1] += options_.batch;
        embedding_.look_up(batch.ids, progress_[0], found_.data());
        look_up_.run();
        layers_.front().gather().start();
        for (auto layer = layers_.begin(); layer != layers_.end(); ++layer) {
            layer->gather().wait();
            if (auto const next = std::next(layer); next != layers_.end()) next->gather().start();
            layer->forward(faults);
        }
        compare(batch.labels, faults);
        TensorView<float> gradient = odds_gradient_.view();
        for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
            gradient = layer->backward(gradient, faults);
        }
        own_loss_(1) = static_cast<Sum>(faults.count);
        loss_.start();
        for (Transitions* one : reductions()) one->wait();
        loss_.wait();
        double const loss = mean_loss();
        look_up_back_.run();
        Adam const adam{options_.rate};
        for (Parameter<Sum>* one : parameters()) one->update(adam, progress_[0]);
        embedding_.update(found_gradient_.data(), 5 * options_.rate);
        spread_.run();
        return loss;
    }

    [[nodiscard]] Index steps() const noexcept { return progress_[0]; }
    [[nodiscard]] Index samples() const noexcept { return progress_[1]; }
    [[nodiscard]] Embedding& embedding() noexcept { return embedding_; }
    [[nodiscard]] std::vector<LocalTensor> weights() {
        std::vector<LocalTensor> list;
        for (Parameter<Sum>* one : parameters()) list.push_back(one->tensor());
        return list;
    }
    /// All that a checkpoint has besides the table: weights, the optimizer's state, how far the training is.
    [[nodiscard]] std::vector<LocalTensor> tensors() {
        std::vector<LocalTensor> list = weights();
        for (Parameter<Sum>* one : parameters())
            for (LocalTensor const& state : one->optimizer_state()) list.push_back(state);
        list.push_back({"trainer.progress", progress_at_, TensorView<Index>(progress_, reshard::Shape{2})});
        return list;
    }
    /// In the order of a step.
    [[nodiscard]] std::vector<Transitions*> transitions() {
        std::vector<Transitions*> list{&look_up_};
        for (Layer<Sum>& layer : layers_)
            for (Transitions* one : layer.transitions()) list.push_back(one);
        for (Transitions* one : {&loss_, &look_up_back_, &spread_}) list.push_back(one);
        return list;
    }
    /// Those that turn gradients into what is updated, which run while layers compute.
    [[nodiscard]] std::vector<Transitions*> reductions() {
        std::vector<Transitions*> list;
        for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) list.push_back(&layer->reduce());
        return list;
    }

private:
    [[nodiscard]] std::vector<Parameter<Sum>*> parameters() {
        std::vector<Parameter<Sum>*> list;
        for (Layer<Sum>& layer : layers_)
            for (Parameter<Sum>* one : layer.parameters()) list.push_back(one);
        return list;
    }

    /// The loss of the samples whose odds this rank has, and its gradient: binary cross-entropy.
    void compare(std::vector<float> const& labels, Faults& faults) {
        Layer<Sum>& last = layers_.back();
        reshard::DynamicDistribution const& at = last.outgoing();
        auto const samples = at.index_set(at.mesh().coordinates(rank_), 0);
        TensorView<float> const odds = last.output();
        Sum sum{0};
        Index row = 0;
        for (Index s = 0; s < samples.segments() && odds.size() != 0; ++s)
            for (Index n = samples.segment(s).begin; n < samples.segment(s).end; ++n, ++row) {
                auto const logit = static_cast<double>(odds(row, 0));
                auto const label = static_cast<double>(labels[static_cast<std::size_t>(n)]);
                double const loss = std::fmax(logit, 0.0) - logit * label + std::log1p(std::exp(-std::fabs(logit)));
                sum = static_cast<Sum>(sum + to_sum<Sum>(std::isnan(logit) ? logit : loss, faults));
                double const likely = 1 / (1 + std::exp(-logit));
                odds_gradient_(row, 0) = static_cast<float>((likely - label) / static_cast<double>(options_.batch));
            }
        own_loss_(0) = sum;
    }
    [[nodiscard]] double mean_loss() const {
        double const sum = std::is_same_v<Sum, Fixed> ? static_cast<double>(whole_loss_(0)) / fixed_one
                                                      : static_cast<double>(whole_loss_(0));
        double const loss = sum / static_cast<double>(options_.batch);
        if (whole_loss_(1) == Sum{0} && std::isfinite(loss)) return loss;
        reshard::errors::raise(ErrorCode::user, "step ", progress_[0],
                               ": the loss is not a number any more, or numbers are too large. "
                               "Fix: a smaller --rate; what was saved before is as it was.");
    }

    ModelOptions options_;
    int rank_;
    Embedding embedding_;
    Transitions look_up_, look_up_back_, loss_, spread_;
    DynamicDistribution progress_at_;
    Index progress_[2] = {};  ///< steps, samples
    Tensor<float> found_;     ///< rows of the ids that are looked up here, zeros for the others
    TensorView<float> found_gradient_;
    Tensor<Sum> own_loss_;  ///< the loss, and faults
    TensorView<Sum> whole_loss_;
    std::list<Layer<Sum>> layers_;
    Tensor<float> odds_gradient_;
};

}  // namespace trainer
