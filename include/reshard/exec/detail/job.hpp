// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/job.hpp
/// \brief  What one rank does for a plan: its exchanges, bound to memory, and its own work before, between and after.
/// \depends plan, comm/communicator.hpp, exec/detail/{bind,value_change}.hpp, memory/memory_policy.hpp.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/exec/detail/bind.hpp>
#include <reshard/exec/detail/value_change.hpp>
#include <reshard/memory/memory_policy.hpp>

namespace reshard::inline v0::detail {

/// The transfers of one exchange, bound to memory.
struct BoundExchange {
    std::vector<Send> sends;
    std::vector<Receive> receives;

    void bind(Exchange const& exchange, Binding<std::byte const> const& source, Binding<std::byte> const& target,
              bool keep, ValueChange const& change = {}) {
        sends.reserve(exchange.sends.size() + exchange.kept.size());
        receives.reserve(exchange.receives.size() + exchange.kept.size());
        // What stays with the rank travels as a transfer to itself, in its place among the peers.
        auto const merge = [&](std::vector<Message> const& messages, auto const& binding, auto& transfers,
                               Conversion const& conversion) {
            std::size_t next = 0;
            std::vector<Message> const& kept = exchange.kept;
            for (Message const& message : messages) {
                while (keep && next < kept.size() && kept[next].peer < message.peer) {
                    transfers.push_back(binding.transfer(kept[next++]));
                }
                transfers.push_back(binding.transfer(message));
            }
            while (keep && next < kept.size()) transfers.push_back(binding.transfer(kept[next++]));
            for (auto& transfer : transfers) transfer.conversion = conversion;
        };
        merge(exchange.sends, source, sends, change.send());
        merge(exchange.receives, target, receives, change.receive());
    }
};

/// Everything about a prepared plan that does not depend on the transport.
class Job {
public:
    /// \pre steps are changed_steps(), if there is a change; `memory` outlives this.
    Job(PlanValue const& plan, Steps const& steps, int rank, ConstDynamicView const& source,
        DynamicView const& destination, std::span<std::byte> workspace, ValueChange const& change,
        MemoryPolicy const& memory)
        : memory_(&memory),
          change_(change),
          multiply_(change.is_active() ? 1 : steps.multiply),  // else it is part of the factor
          divide_(change.is_active() ? 1 : steps.divide),
          fill_op_(steps.fill_op) {
        bool const gives = plan.from.contains(rank);
        bool const takes = plan.to.contains(rank);
        Places places;
        if (gives) places.source = {source.data(), change_.from, source.strides(), plan.from, rank};
        if (takes) {
            places.destination = {destination.data(), change_.to, destination.strides(), plan.to, rank};
            bind_whole(destination, steps.fill);
        }
        if (steps.kind != Kind::collective) {
            if (gives) bind_local(plan, rank, places);
            return;
        }
        if (steps.fold && gives) bind_fold(plan, steps, rank, places, destination, workspace);
        phases_ = steps.phases();
        if (gives || takes) bind_exchanges(plan, steps, rank, places);
    }

    [[nodiscard]] int phases() const noexcept { return phases_; }
    /// For who runs this job's exchanges: the job no longer has it.
    [[nodiscard]] BoundExchange take_exchange(int phase) noexcept { return std::move(exchanges_[phase]); }

    /// Before the first exchange.
    void begin() const {
        if (fill_) memory_->fill_identity(fill_op_, change_.to, whole_.base, whole_.box);
        if (!local_sends_.empty()) memory_->deliver(local_sends_, local_receives_);
    }
    /// After exchange `phase`.
    void after(int phase) const {
        if (phase == 0 && folds_) memory_->fold(fold_);
    }
    /// After the last exchange.
    void end() const {
        if (!has_whole_ || (multiply_ == 1 && divide_ == 1)) return;
        memory_->scale(change_.to, whole_.base, whole_.box, multiply_, divide_);
    }

private:
    void bind_whole(DynamicView const& destination, bool fill) {
        LocalWindow window;
        for (int dim = 0; dim < destination.rank(); ++dim) {
            window.offset.push_back(0);
            window.extents.push_back(destination.extent(dim));
        }
        whole_ = window_transfer(destination.data(), change_.to, destination.strides(), window);
        has_whole_ = true;
        fill_ = fill;
    }

    /// Where the stages of a plan lie on this rank; empty bindings where the rank has no part of them.
    struct Places {
        Binding<std::byte> slots;   ///< the addends of what the rank folds
        Binding<std::byte> folded;  ///< the result, where it lies in the workspace
        Binding<std::byte const> source;
        Binding<std::byte> destination;

        [[nodiscard]] Binding<std::byte const> read(Place place) const {
            if (place == Place::source) return source;
            return place == Place::workspace ? folded : destination;
        }
        [[nodiscard]] Binding<std::byte> const& write(Place place) const {
            return place == Place::workspace ? slots : destination;
        }
    };

    void bind_local(PlanValue const& plan, int rank, Places const& places) {
        for (Message const& message : local_messages(plan.from, plan.to, rank)) {
            local_sends_.push_back(places.source.transfer(message));
            local_receives_.push_back(places.destination.transfer(message));
            local_sends_.back().conversion = change_.send();
            local_receives_.back().conversion = change_.receive();
        }
    }

    void bind_exchanges(PlanValue const& plan, Steps const& steps, int rank, Places const& places) {
        for (int phase = 0; phase < steps.phases(); ++phase) {
            if (!takes_part(steps, plan.from, rank, phase)) continue;
            Place const from = phase == 0 ? Place::source : steps.stages[phase - 1].place;
            Place const to = phase == 0 && steps.fold ? Place::workspace : steps.stages[phase].place;
            // What the rank keeps is copied, unless it already lies where it is needed.
            bool const arrives = from != Place::destination && to == Place::destination;
            exchanges_[phase].bind(exchange_of(steps, plan.from, rank, phase), places.read(from), places.write(to),
                                   from != to, arrives ? change_ : ValueChange{});
        }
    }

    /// Addends arrive in slots of the workspace. Within a mesh they are folded into their place in the destination;
    /// across meshes, or where values change, the result waits in the workspace for the next exchange. Where there is
    /// none, it goes on into the destination at once.
    void bind_fold(PlanValue const& plan, Steps const& steps, int rank, Places& places, DynamicView const& destination,
                   std::span<std::byte> workspace) {
        Stage const& stage = steps.stages[0];
        bool const waits = stage.place == Place::workspace;
        DynamicShape const shape = stage.holding.local_shape(rank);
        Indices const dense = row_major_strides(shape);
        Indices const coordinates = stage.holding.mesh().coordinates(rank);
        fold_.op = steps.fold_op;
        fold_.dtype = change_.from;
        fold_.addends = steps.addends;
        fold_.divisor = steps.fold_op == Reduce::avg ? steps.addends : 1;
        fold_.slot_bytes = shape.size() * bytes(change_.from);
        std::byte* const slots = aligned(workspace.data());
        std::byte* const result = aligned(slots == nullptr ? nullptr : slots + fold_.slot_bytes * fold_.addends);
        places.slots = {slots, change_.from, dense, stage.holding, rank, fold_.slot_bytes};
        places.folded = {result, change_.from, dense, stage.holding, rank};
        LocalWindow const slot = local_window(stage.holding, stage.holding, coordinates);
        fold_.slots = window_transfer<std::byte const>(slots, change_.from, dense, slot);
        fold_.folded = window_transfer(result, change_.from, dense, slot);
        if (waits && steps.phases() > 1) {
            fold_.to = fold_.folded;
        } else {
            fold_.to = window_transfer(destination.data(), change_.to, destination.strides(),
                                       local_window(plan.to, stage.holding, coordinates));
            if (change_.is_active()) {
                fold_.to.conversion = {change_.to, change_.from, change_.factor, change_.convert};
            }
        }
        folds_ = shape.size() != 0 && owns(stage.owner, stage.holding.mesh(), rank);
    }

    [[nodiscard]] static bool owns(Owner const& owner, DynamicMesh const& mesh, int rank) {
        Indices const coordinates = mesh.coordinates(rank);
        for (int i = 0; i < owner.axes.size(); ++i)
            if (coordinates[owner.axes[i]] != owner.coordinates[i]) return false;
        return true;
    }
    [[nodiscard]] static std::byte* aligned(std::byte* pointer) noexcept {
        auto const address = reinterpret_cast<std::uintptr_t>(pointer);
        return pointer == nullptr ? nullptr : pointer + ((64 - address % 64) % 64);
    }

    MemoryPolicy const* memory_;
    ValueChange change_;
    Index multiply_;
    Index divide_;
    Reduce fill_op_;
    bool fill_ = false;
    bool folds_ = false;
    bool has_whole_ = false;
    int phases_ = 0;
    Receive whole_;
    FoldWork fold_;
    BoundExchange exchanges_[max_phases];
    std::vector<Send> local_sends_;
    std::vector<Receive> local_receives_;
};

}  // namespace reshard::inline v0::detail
