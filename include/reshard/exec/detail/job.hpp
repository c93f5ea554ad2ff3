// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/detail/job.hpp
/// \brief  What one rank does for a plan: its exchanges, bound to memory, and its own work before, between and after.
/// \depends plan, comm/communicator.hpp, exec/detail/bind.hpp, exec/detail/value_change.hpp, memory/host_memory.hpp.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/exec/detail/bind.hpp>
#include <reshard/exec/detail/value_change.hpp>
#include <reshard/memory/host_memory.hpp>

namespace reshard::inline v0::detail {

/// The transfers of one exchange, bound to memory. `Byte` is std::byte, here and below: templates, so that only files
/// that prepare a plan compile what that takes.
template <class Byte>
struct BoundExchange {
    std::vector<Transfer<Byte const>> sends;
    std::vector<Transfer<Byte>> receives;

    void bind(Exchange const& exchange, Binding<Byte const> const& source, Binding<Byte> const& target, bool keep,
              ValueChange const& change = {}) {
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

/// Everything about a prepared plan that does not depend on the transport. `M` says how memory is worked on.
template <class Byte, class M = BasicHostMemory<Byte>>
class BasicJob {
public:
    BasicJob(Plan<> const& plan, Steps const& steps, int rank, ConstDynamicView const& source,
             DynamicView const& destination, std::span<Byte> workspace)
        : BasicJob(plan, steps, rank, source, destination, workspace,
                   value_change(plan, steps, rank, source, destination, {1.0, nullptr}, {false, nullptr})) {}
    /// \pre steps are changed_steps(), if there is a change.
    BasicJob(Plan<> const& plan, Steps const& steps, int rank, ConstDynamicView const& source,
             DynamicView const& destination, std::span<Byte> workspace, ValueChange const& change, M const& policy = {})
        : memory_(policy),
          change_(change),
          divisor_(steps.fold_op == Reduce::avg ? steps.addends : 1),
          addends_(steps.addends),
          multiply_(change.is_active() ? 1 : steps.multiply),  // else it is part of the factor
          divide_(change.is_active() ? 1 : steps.divide),
          fold_op_(steps.fold_op),
          fill_op_(steps.fill_op) {
        bool const gives = plan.from().contains(rank);
        bool const takes = plan.to().contains(rank);
        Memory memory;
        if (gives) memory.source = {source.data(), change_.from, source.strides(), plan.from(), rank};
        if (takes) {
            memory.destination = {destination.data(), change_.to, destination.strides(), plan.to(), rank};
            bind_whole(destination, steps.fill);
        }
        if (steps.kind != Kind::collective) {
            if (gives) bind_local(plan, rank, memory);
            return;
        }
        if (steps.fold && gives) bind_fold(plan, steps, rank, memory, destination, workspace);
        phases_ = steps.phases();
        if (gives || takes) bind_exchanges(plan, steps, rank, memory);
    }

    [[nodiscard]] int phases() const noexcept { return phases_; }
    [[nodiscard]] BoundExchange<Byte> const& exchange(int phase) const noexcept { return exchanges_[phase]; }
    /// For who runs this job's exchanges together with others: the job no longer has it.
    [[nodiscard]] BoundExchange<Byte> take_exchange(int phase) noexcept { return std::move(exchanges_[phase]); }
    /// Whether steps never fail.
    static constexpr bool works_quietly = noexcept(std::declval<M const&>().deliver({}, {}));

    /// Whether the policy folds and converts at once.
    static constexpr bool folds_into =
        requires(M const& memory, Transfer<Byte const> const& slots, Transfer<Byte> const& to) {
        memory.fold_into(Reduce::sum, DType::f32, slots.base, Index{}, Index{}, slots.box, to, Index{});
    };

    /// Before the first exchange.
    void begin() const noexcept(works_quietly) {
        if constexpr (M::computes) {
            if (fill_) memory_.fill_identity(fill_op_, change_.to, whole_.base, whole_.box);
        }
        if (!local_sends_.empty()) memory_.deliver(local_sends_, local_receives_);
    }
    /// After exchange `phase`.
    void after(int phase) const noexcept(works_quietly) {
        if constexpr (M::computes) {
            if (phase != 0 || !fold_) return;
            if constexpr (folds_into) {
                if (lands_) {
                    return memory_.fold_into(fold_op_, change_.from, slots_.base, slot_bytes_, addends_, slots_.box,
                                             landing_, divisor_);
                }
            }
            memory_.fold(fold_op_, change_.from, slots_.base, slot_bytes_, addends_, slots_.box, folded_.base,
                         folded_.box, divisor_);
            if (lands_) memory_.deliver({&rests_, 1}, {&landing_, 1});
        }
    }
    /// After the last exchange.
    void end() const noexcept(works_quietly) {
        if constexpr (M::computes) {
            if (has_whole_ && (multiply_ != 1 || divide_ != 1)) {
                memory_.scale(change_.to, whole_.base, whole_.box, multiply_, divide_);
            }
        }
    }
    void own(typename M::workspace_type&& workspace) noexcept { workspace_ = std::move(workspace); }

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
    struct Memory {
        Binding<Byte> slots;   ///< the addends of what the rank folds
        Binding<Byte> folded;  ///< the result, where it lies in the workspace
        Binding<Byte const> source;
        Binding<Byte> destination;

        [[nodiscard]] Binding<Byte const> read(Place place) const {
            if (place == Place::source) return source;
            return place == Place::workspace ? folded : destination;
        }
        [[nodiscard]] Binding<Byte> const& write(Place place) const {
            return place == Place::workspace ? slots : destination;
        }
    };

    void bind_local(Plan<> const& plan, int rank, Memory const& memory) {
        for (Message const& message : local_messages(plan.from(), plan.to(), rank)) {
            local_sends_.push_back(memory.source.transfer(message));
            local_receives_.push_back(memory.destination.transfer(message));
            local_sends_.back().conversion = change_.send();
            local_receives_.back().conversion = change_.receive();
        }
    }

    void bind_exchanges(Plan<> const& plan, Steps const& steps, int rank, Memory const& memory) {
        for (int phase = 0; phase < steps.phases(); ++phase) {
            if (!takes_part(steps, plan.from(), rank, phase)) continue;
            Place const from = phase == 0 ? Place::source : steps.stages[phase - 1].place;
            Place const to = phase == 0 && steps.fold ? Place::workspace : steps.stages[phase].place;
            // What the rank keeps is copied, unless it already lies where it is needed.
            bool const arrives = from != Place::destination && to == Place::destination;
            exchanges_[phase].bind(exchange_of(steps, plan.from(), rank, phase), memory.read(from), memory.write(to),
                                   from != to, arrives ? change_ : ValueChange{});
        }
    }

    /// Addends arrive in slots of the workspace. Within a mesh they are folded into their place in the destination;
    /// across meshes, or where values change, the result waits in the workspace.
    void bind_fold(Plan<> const& plan, Steps const& steps, int rank, Memory& memory, DynamicView const& destination,
                   std::span<Byte> workspace) {
        Stage const& stage = steps.stages[0];
        bool const waits = stage.place == Place::workspace;
        DynamicShape const shape = stage.holding.local_shape(rank);
        Indices const dense = row_major_strides(shape);
        Indices const coordinates = stage.holding.mesh().coordinates(rank);
        slot_bytes_ = shape.size() * bytes(change_.from);
        Byte* const slots = aligned(workspace.data());
        Byte* const partial = aligned(slots == nullptr ? nullptr : slots + slot_bytes_ * addends_);
        memory.slots = {slots, change_.from, dense, stage.holding, rank, slot_bytes_};
        memory.folded = {partial, change_.from, dense, stage.holding, rank};
        LocalWindow const slot = local_window(stage.holding, stage.holding, coordinates);
        slots_ = window_transfer<Byte const>(slots, change_.from, dense, slot);
        folded_ = window_transfer(partial, change_.from, dense, slot);
        lands_ = waits && steps.phases() == 1;
        if (!waits || lands_) {
            landing_ = window_transfer(destination.data(), change_.to, destination.strides(),
                                       local_window(plan.to(), stage.holding, coordinates));
        }
        if (!waits) folded_ = landing_;
        rests_ = {0, folded_.base, folded_.box, {}};
        if (change_.is_active()) {
            rests_.conversion = {change_.from, change_.from, 1.0, change_.methods->convert};
            landing_.conversion = {change_.to, change_.from, change_.factor, change_.methods->convert};
        }
        fold_ = shape.size() != 0 && owns(stage.owner, stage.holding.mesh(), rank);
    }

    [[nodiscard]] static bool owns(Owner const& owner, DynamicMesh const& mesh, int rank) {
        Indices const coordinates = mesh.coordinates(rank);
        for (int i = 0; i < owner.axes.size(); ++i)
            if (coordinates[owner.axes[i]] != owner.coordinates[i]) return false;
        return true;
    }
    [[nodiscard]] static Byte* aligned(Byte* pointer) noexcept {
        auto const address = reinterpret_cast<std::uintptr_t>(pointer);
        return pointer == nullptr ? nullptr : pointer + ((64 - address % 64) % 64);
    }

    [[no_unique_address]] M memory_;
    ValueChange change_;
    Index divisor_;
    Index addends_;
    Index multiply_;
    Index divide_;
    Reduce fold_op_;
    Reduce fill_op_;
    bool fill_ = false;
    bool fold_ = false;
    bool lands_ = false;
    bool has_whole_ = false;
    int phases_ = 0;
    Transfer<Byte> whole_;
    Index slot_bytes_ = 0;
    Transfer<Byte const> slots_;
    Transfer<Byte> folded_;
    Transfer<Byte const> rests_;  ///< what is folded, when it goes on into the destination
    Transfer<Byte> landing_;
    BoundExchange<Byte> exchanges_[max_phases];
    std::vector<Transfer<Byte const>> local_sends_;
    std::vector<Transfer<Byte>> local_receives_;
    typename M::workspace_type workspace_{};
};

template <class C>
using MemoryOf = decltype(transport::memory_of(std::declval<C&>()));

/// The job type of a memory, by a name that depends on C: nothing of it is compiled until somebody prepares a plan.
template <class C>
struct JobOf {
    using memory = MemoryOf<C>;
    using type = BasicJob<std::byte, memory>;
};
template <class C>
using Job = typename JobOf<C>::type;

}  // namespace reshard::inline v0::detail
