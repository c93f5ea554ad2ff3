// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/group_engine.hpp
/// \brief  What communicators have in common that carry out one exchange after the other, whatever moves the bytes.
/// \depends comm/communicator.hpp, core/detail/own_process.hpp, <memory>.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/core/detail/own_process.hpp>

#include <memory>  // shared_ptr

namespace reshard::inline v0_1::detail {

/// One rank's part in a group of ranks: what its communicator is asked for. Neither copied nor moved.
class GroupEngine : public transport::Engine, public OfProcess {
public:
    [[nodiscard]] std::string_view who() const noexcept { return who_; }
    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }
    [[nodiscard]] Traffic const& traffic() const noexcept { return traffic_; }

    [[nodiscard]] virtual Verdict agree(Verdict const& mine) = 0;
    [[nodiscard]] virtual std::shared_ptr<GroupEngine> split(int colour, int key) = 0;
    virtual void check_memory(void const* /*memory*/) const {}
    void check_process() const override {
        if (is_ours()) return;
        raise(ErrorCode::transport, "reshard::", who_, ": this process was forked from rank ", rank_, " (process ",
              maker_,
              "), and is no rank itself. Fix: let that one communicate; a child that must starts as a program "
              "of its own (multiprocessing: \"spawn\").");
    }
    virtual void abort(ErrorCode code, std::string_view reason) noexcept = 0;

protected:
    /// `who`: what errors call the communicator.
    GroupEngine(std::string_view who, int rank, int size) noexcept : who_(who), rank_(rank), size_(size) {}
    ~GroupEngine() = default;

    std::string_view who_;
    int rank_;
    int size_;
    Traffic traffic_;
};

/// A communicator that has one. `Derived` has a name, and inherits the constructor.
template <class Derived>
class GroupCommunicator : public CommunicatorBase<Derived> {
public:
    using exchange_type = transport::InOrder;
    using CommunicatorBase<Derived>::split;

    explicit GroupCommunicator(std::shared_ptr<GroupEngine> engine) noexcept : engine_(std::move(engine)) {}

    [[nodiscard]] int rank() const noexcept { return engine_->rank(); }
    [[nodiscard]] int size() const noexcept { return engine_->size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return engine_->traffic(); }
    exchange_type bind(std::span<Send const> sends, std::span<Receive const> receives) {
        return {*engine_, transport::bound_transfers(engine_->who(), sends, receives, size())};
    }
    [[nodiscard]] Verdict agree(Verdict const& mine) { return engine_->agree(mine); }
    /// Collective. Ranks of one colour >= 0, ordered by (key, rank). The new communicator shares the fate of this one:
    /// poison in one is poison in both.
    [[nodiscard]] Derived split(int colour, int key) { return Derived(engine_->split(colour, key)); }
    /// Throws BufferError for memory that the transport does not move.
    void check_memory(void const* memory) const { engine_->check_memory(memory); }
    void abort(ErrorCode code, std::string_view reason) noexcept {
        if (engine_->is_ours()) engine_->abort(code, reason);
    }

protected:
    /// For transports that move memory of their own between the same ranks.
    friend std::shared_ptr<GroupEngine> const& engine_of(GroupCommunicator const& comm) noexcept {
        return comm.engine_;
    }

    std::shared_ptr<GroupEngine> engine_;
};

}  // namespace reshard::inline v0_1::detail
