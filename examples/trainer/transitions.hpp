// SPDX-License-Identifier: Apache-2.0
/// \file   examples/trainer/transitions.hpp
/// \brief  The transitions of one point of a step, bound to memory once and replayed in every step.
/// \depends reshard/exec/batch.hpp, reshard/algebra/total_bound.hpp.
///
/// Here is all that the trainer knows of communication: a plan says what must move, and moves it.
#pragma once

#include "../support/transport.hpp"

#include <reshard/algebra/total_bound.hpp>
#include <reshard/exec/batch.hpp>
#include <reshard/reshard.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace trainer {
using demo::Transport;
using reshard::CommunicatorRef;
using reshard::DType;
using reshard::DynamicDistribution;
using reshard::Index;
using reshard::Plan;
using reshard::Tensor;
using reshard::TensorView;

/// What this rank holds of a tensor that is distributed so: zeros at first.
template <class T>
Tensor<T> local_tensor(DynamicDistribution const& where, Transport& transport) {
    return transport.tensor<T>(where.local_shape(transport.comm().rank()));
}

class Transitions {
public:
    Transitions(Transport& transport, std::string what) : transport_(transport), what_(std::move(what)) {}

    /// The tensor as the plan leaves it: a window of the source where that is all it takes, otherwise memory of its
    /// own, which run() fills.
    template <class T>
    TensorView<T> add(std::string name, Plan<> const& plan, TensorView<T> const& source) {
        list_.push_back({std::move(name), plan, reshard::dtype_of<T>});
        int const rank = transport_.comm().rank();
        if (plan.kind() == reshard::TransitionKind::view) return plan.view(source, rank);
        reshard::DynamicShape const shape = plan.to().local_shape(rank);
        Tensor<std::byte>& memory = memory_.emplace_back(transport_.tensor<std::byte>(bytes_of<T>(shape)));
        TensorView<T> const result(reinterpret_cast<T*>(memory.data()), shape);
        batch_.add(plan, source, result, list_.back().name);
        return result;
    }
    /// The same into memory that is there.
    template <class T>
    void add(std::string name, Plan<> const& plan, TensorView<T> const& source, TensorView<T> const& destination) {
        list_.push_back({std::move(name), plan, reshard::dtype_of<T>});
        batch_.add(plan, source, destination, list_.back().name);
    }

    /// Collective. Once, when all is added: checks, agrees, allocates.
    void prepare() {
        if (!batch_.empty()) job_.emplace(reshard::prepare(batch_, transport_.comm()));
    }
    void start() {
        if (job_) request_.emplace(job_->start());
    }
    void wait() {
        if (!request_) return;
        auto const begin = std::chrono::steady_clock::now();
        request_->wait();
        request_.reset();
        transport_.finish();
        seconds_waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    void run() {
        start();
        wait();
    }
    [[nodiscard]] double seconds_waited() const noexcept { return seconds_waited_; }

    struct One {
        std::string name;
        Plan<> plan;
        DType dtype;
    };
    [[nodiscard]] std::string const& what() const noexcept { return what_; }
    [[nodiscard]] std::vector<One> const& list() const noexcept { return list_; }

private:
    template <class T>
    static reshard::DynamicShape bytes_of(reshard::DynamicShape const& shape) {
        return reshard::Shape{shape.size() * static_cast<Index>(sizeof(T))};
    }

    Transport& transport_;
    std::string what_;
    std::vector<One> list_;
    std::deque<Tensor<std::byte>> memory_;
    reshard::Batch batch_;
    std::optional<reshard::PreparedPlan> job_;
    std::optional<reshard::RunRequest> request_;
    double seconds_waited_ = 0;
};

/// What a transition sends, by all ranks together: known from the plan, before anything runs.
struct Figures {
    Index messages = 0;
    Index bytes = 0;
    Index bound = 0;  ///< the fewest bytes that any plan could do with; -1: none is known
};
inline Figures figures_of(Transitions::One const& one) {
    Figures figures;
    Index const width = bytes(one.dtype);
    for (Index i = 0; i < one.plan.from().mesh().size(); ++i) {
        reshard::Cost const cost = one.plan.cost(one.plan.from().mesh().rank_at(i));
        figures.messages += cost.messages_sent;
        figures.bytes += cost.sent * width;
    }
    reshard::TotalBound const bound = total_bound(one.plan.from(), one.plan.to());
    figures.bound = bound.known ? bound.total * width : -1;
    return figures;
}

}  // namespace trainer
