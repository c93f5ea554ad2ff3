// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/main_job.hpp
/// \brief  The main job: every tensor of a checkpoint goes R -> S0 -> S1 -> (a,b):(S0,S1) -> R, each step verified.
///
/// Written against the Communicator concept: threads, MPI, any transport that conforms.
#pragma once

#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/reshard.hpp>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

namespace demo {

using reshard::Index;

/// What one rank saw of one transition of one tensor.
struct StepRecord {
    reshard::TransitionKind kind = reshard::TransitionKind::view;
    int phases = 0;
    Index messages = 0;    ///< received
    Index moved = 0;       ///< bytes received, counted by the communicator
    Index planned = 0;     ///< bytes received according to the plan
    Index bound = 0;       ///< bytes that no schedule can avoid receiving
    double seconds = 0.0;  ///< of run(), without planning
};

/// The five distributions a tensor passes through.
struct Chain {
    std::vector<reshard::DynamicDistribution> stations;

    Chain(int ranks, reshard::DynamicShape const& shape) {
        using namespace reshard;
        int rows = 1;
        for (int r = 1; r * r <= ranks; ++r)
            if (ranks % r == 0) rows = r;
        DynamicMesh const line = Mesh{ranks};
        DynamicMesh const grid = Mesh{rows, ranks / rows};
        std::string const first = shape.rank() >= 1 ? "S0" : "R";  // a scalar cannot be cut
        std::string const second = shape.rank() >= 2 ? "S1" : first;
        stations.push_back(distribution(line, shape, "R"));
        stations.push_back(distribution(line, shape, first));
        stations.push_back(distribution(line, shape, second));
        stations.push_back(distribution(grid, shape, first + "," + second));
        stations.push_back(distribution(line, shape, "R"));
    }
    [[nodiscard]] static constexpr int steps() { return 4; }
    /// One mesh: plan; two meshes: plan_across.
    [[nodiscard]] reshard::Plan<> plan(int step) const {
        auto const& from = stations[static_cast<std::size_t>(step)];
        auto const& to = stations[static_cast<std::size_t>(step) + 1];
        return from.mesh() == to.mesh() ? reshard::plan(from, to) : reshard::plan_across(from, to);
    }
    [[nodiscard]] std::string label(int step) const {
        return to_string(stations[static_cast<std::size_t>(step)]) + " -> " +
               to_string(stations[static_cast<std::size_t>(step) + 1]);
    }
};

/// Compares a local tensor with the whole one, row by row, by the boxes the rank should hold.
inline bool equals_file(reshard::ConstDynamicView const& local, reshard::DynamicDistribution const& distribution,
                        Index rank, std::byte const* whole) {
    using namespace reshard;
    Index const element = bytes(local.dtype());
    int const dims = local.rank();
    Indices const whole_strides = row_major_strides(distribution.shape());
    Indices const coordinates = distribution.mesh().coordinates(rank);
    for (Box const& box : distribution.boxes(rank)) {
        if (dims == 0) return std::memcmp(local.data(), whole, static_cast<std::size_t>(element)) == 0;
        Index const row = box.extent(dims - 1);
        for (Index k = 0; k < box.size() / row; ++k) {
            Index rest = k;
            Index in_whole = box.begin(dims - 1);
            Index in_local = distribution.index_set(coordinates, dims - 1).local_index(in_whole);
            for (int dim = dims - 2; dim >= 0; --dim) {
                Index const i = box.begin(dim) + rest % box.extent(dim);
                rest /= box.extent(dim);
                in_whole += i * whole_strides[dim];
                in_local += distribution.index_set(coordinates, dim).local_index(i) * local.stride(dim);
            }
            if (std::memcmp(local.data() + in_local * element, whole + in_whole * element,
                            static_cast<std::size_t>(row * element)) != 0) {
                return false;
            }
        }
    }
    return true;
}

/// Memory that grows and is used again: fresh pages would cost more than the data they take.
class Scratch {
public:
    std::byte* of(Index bytes) {
        if (static_cast<Index>(memory_.size()) < bytes) memory_.resize(static_cast<std::size_t>(bytes));
        return memory_.data();
    }

private:
    std::vector<std::byte> memory_;
};

/// One rank's part of the job. `report(tensor, step, record)` hears of every step this rank took.
class MainJob {
public:
    MainJob(reshard::CommunicatorRef comm, reshard::Checkpoint const& checkpoint)
        : comm_(comm), checkpoint_(checkpoint) {}

    template <class Report>
    void take(std::size_t index, Report&& report) {
        using namespace reshard;
        CheckpointTensor const& tensor = checkpoint_.tensors()[index];
        // Elements smaller than a byte cannot be cut; their storage can.
        bool const whole_bytes = is_byte_sized(tensor.dtype);
        DType const dtype = whole_bytes ? tensor.dtype : DType::u8;
        DynamicShape const shape = whole_bytes ? tensor.shape : DynamicShape(Shape{tensor.bytes()});
        Chain const chain(comm_.size(), shape);

        std::byte* const whole = whole_.of(tensor.bytes());
        load(tensor, whole);
        ConstDynamicView current(whole, dtype, shape);
        for (int step = 0; step < Chain::steps(); ++step) {
            Plan<> const plan = chain.plan(step);
            DynamicDistribution const& to = plan.to();
            StepRecord record = plan_record(plan, dtype);
            if (plan.kind() == TransitionKind::view) {
                current = view(plan, current);
            } else {
                DynamicShape const local = to.local_shape(comm_.rank());
                std::byte* const memory = scratch_[step % 2].of(local.size() * bytes(dtype));
                DynamicView const next(memory, dtype, local);
                run(plan, current, next, record);
                current = next;
            }
            if (!equals_file(current, to, comm_.rank(), whole)) {
                errors::raise(ErrorCode::user, "tensor '", tensor.name, "' differs from the file after ",
                              chain.label(step), " on rank ", comm_.rank());
            }
            if (record.moved != record.planned || record.moved != record.bound) {
                errors::raise(ErrorCode::user, "tensor '", tensor.name, "', ", chain.label(step), ": rank ",
                              comm_.rank(), " received ", record.moved, " bytes, planned ", record.planned, ", bound ",
                              record.bound);
            }
            report(index, step, record);
        }
    }

private:
    using Clock = std::chrono::steady_clock;

    /// Reads the tensor, then reads it again in pieces and compares: what follows is verified against the file.
    void load(reshard::CheckpointTensor const& tensor, std::byte* whole) {
        Index const size = tensor.bytes();
        checkpoint_.read(tensor, {whole, static_cast<std::size_t>(size)});
        constexpr Index piece = Index{8} << 20;
        for (Index begin = 0; begin < size; begin += piece) {
            Index const end = reshard::detail::smaller(begin + piece, size);
            std::byte* const again = piece_.of(piece);
            checkpoint_.read_range(tensor, begin, end, {again, static_cast<std::size_t>(end - begin)});
            if (std::memcmp(whole + begin, again, static_cast<std::size_t>(end - begin)) != 0) {
                reshard::errors::raise(reshard::ErrorCode::user,
                                       reshard::errors::concat("'", tensor.name, "' changed while it was read"));
            }
        }
    }

    [[nodiscard]] reshard::ConstDynamicView view(reshard::Plan<> const& plan,
                                                 reshard::ConstDynamicView const& full) const {
        return plan.view(full, comm_.rank());
    }

    [[nodiscard]] StepRecord plan_record(reshard::Plan<> const& plan, reshard::DType dtype) const {
        reshard::Cost const cost = plan.cost(comm_.rank());
        StepRecord record;
        record.kind = plan.kind();
        record.phases = cost.phases;
        record.planned = cost.received * bytes(dtype);
        record.bound = receive_bound(plan.from(), plan.to(), comm_.rank(), plan.is_across()).elements * bytes(dtype);
        return record;
    }

    void run(reshard::Plan<> const& plan, reshard::ConstDynamicView const& source,
             reshard::DynamicView const& destination, StepRecord& record) {
        auto job = prepare(plan, comm_, source, destination);
        reshard::Traffic const before = comm_.traffic();
        auto const start = Clock::now();  // prepare ends with an agreement, so all ranks start together
        job.run();
        record.seconds = std::chrono::duration<double>(Clock::now() - start).count();
        reshard::Traffic const moved = comm_.traffic() - before;
        record.messages = moved.messages_received;
        record.moved = moved.bytes_received;
    }

    reshard::CommunicatorRef comm_;
    reshard::Checkpoint const& checkpoint_;
    Scratch whole_;
    Scratch piece_;
    Scratch scratch_[2];
};

}  // namespace demo
