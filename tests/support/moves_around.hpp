// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/moves_around.hpp
/// \brief  Random moves whose sizes lie around limits: one element less, as many, one more, some times as many.
///
/// What an element is follows from its place in the whole tensor, so that no rank needs another one's memory to fill
/// its own or to check it, and tensors may be large.
///
///     test::Around const moves(seed, ranks, {.limits = {512 << 10}});  // the same on all ranks
///     CHECK(moves.wrong(comm) == "");                                  // collective
#pragma once

#include <reshard/exec/batch.hpp>
#include <reshard/memory/detail/arithmetic.hpp>
#include <reshard/plan/relay.hpp>

#include "support/around.hpp"
#include "support/oracle.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace reshard::test {

/// What varies.
struct AroundOptions {
    std::vector<Index> limits;                         ///< bytes on the way between two ranks
    std::vector<Index> rows{64, 512, 2048};            ///< bytes of a row
    std::vector<Index> folds{0};                       ///< PrepareOptions::fold_elements
    std::vector<Index> buckets{0, 1, Index{1} << 20};  ///< BatchOptions::bucket_bytes
    std::vector<DType> types{DType::u8, DType::i16, DType::bf16, DType::f32, DType::f64, DType::i64};
    Index most_bytes = Index{4} << 20;  ///< of a tensor: enough for a rank to get a limit from every other
    Index most_tensors = 1;
    int casts = 50;  ///< of 100
    bool partial = true;
    int runs = 2;
    /// Where tensors lie; null: in memory of their own.
    std::byte* (*allocate)(Index bytes) = nullptr;
};

/// Memory of a local tensor: dense, or with its dimensions in any order and gaps; all other bytes are to stay.
class Strewn {
public:
    Strewn(DType dtype, DynamicDistribution const& side, int rank, Random& random, AroundOptions const& options)
        : dtype_(dtype) {
        if (side.contains(rank)) shape_ = side.local_shape(rank);
        strides_ = row_major_strides(shape_);
        Index elements = shape_.size();
        if (random.chance(50)) {
            std::vector<int> order;
            for (int dim = shape_.rank() - 1; dim >= 0; --dim) order.push_back(dim);
            if (random.chance(40)) std::shuffle(order.begin(), order.end(), random.engine());
            elements = 1;
            for (int dim : order) {
                if (random.chance(25)) elements += random.between(1, 3);
                strides_[dim] = elements;
                elements *= std::max<Index>(shape_.extent(dim), 1);
            }
        }
        Index const size = (elements + 2 * gap) * bytes(dtype);
        if (options.allocate == nullptr) own_.resize(static_cast<std::size_t>(size));
        memory_ = {options.allocate == nullptr ? own_.data() : options.allocate(size), static_cast<std::size_t>(size)};
        std::fill(memory_.begin(), memory_.end(), untouched);
    }

    [[nodiscard]] DynamicView view() const { return DynamicView(base(), dtype_, shape_, strides_); }
    [[nodiscard]] bool is_untouched() const {
        return std::all_of(memory_.begin(), memory_.end(), [](std::byte b) { return b == untouched; });
    }
    /// Whole numbers below 59: all types have them.
    void fill(DynamicDistribution const& from, int rank, Index run) {
        if (!from.contains(rank)) return;
        oracle::Owed const owed = oracle::owed(from);
        Index const mine = oracle::addend_of(from, rank);
        each<false>(from, rank, [&](Index position) {
            Index const value = value_at(position, run);
            if (owed.addends == 1) return value;
            if (owed.op == Reduce::sum) return value / owed.addends + (mine < value % owed.addends ? 1 : 0);
            return position % owed.addends == mine ? value : value / 2;  // the largest of them
        });
    }
    /// Elements that are not what they should be. What is looked at is as it was before.
    [[nodiscard]] Index wrong(DynamicDistribution const& to, int rank, Index run) {
        wrong_ = 0;
        if (to.contains(rank)) each<true>(to, rank, [&](Index position) { return value_at(position, run); });
        return wrong_;
    }

private:
    static constexpr std::byte untouched{0xA5};
    static constexpr Index gap = 8;  ///< elements before the tensor, and behind it

    [[nodiscard]] std::byte* base() const { return memory_.data() + gap * bytes(dtype_); }
    [[nodiscard]] static Index value_at(Index position, Index run) {
        auto const mixed = static_cast<std::uint64_t>(position + 1) * 0x9e3779b97f4a7c15U +
                           static_cast<std::uint64_t>(run) * 0xd1b54a32d192ed03U;
        return static_cast<Index>((mixed >> 40U) % 59U);
    }
    /// Writes the values, or compares and forgets them.
    template <bool Reads, class Value>
    void each(DynamicDistribution const& side, int rank, Value const& value) {
        detail::with_number(dtype_, [&]<class T>() {
            oracle::each_element(side, rank, strides_, [&](Index position, Index offset) {
                T const element = static_cast<T>(static_cast<float>(value(position)));
                std::byte* const at = base() + offset * Index{sizeof(T)};
                if constexpr (Reads) {
                    wrong_ += std::memcmp(at, &element, sizeof(T)) == 0 ? 0 : 1;
                    std::memset(at, static_cast<int>(untouched), sizeof(T));
                } else {
                    std::memcpy(at, &element, sizeof(T));
                }
            });
        });
    }

    DType dtype_;
    DynamicShape shape_{Shape<0>{}};
    Indices strides_;
    std::vector<std::byte> own_;
    std::span<std::byte> memory_;
    Index wrong_ = 0;
};

/// A batch of moves among ranks 0, 1, ... that cross ranks: on one mesh and between two, direct and relayed, by all
/// splits, of one type or cast, in dense memory and in strided.
class Around {
public:
    /// \pre two ranks or more: something crosses
    Around(std::uint64_t seed, int ranks, AroundOptions const& options) : seed_(seed), options_(options) {
        Limits limits;
        limits.max_axes = 3;
        limits.max_ranks = ranks;
        limits.plain_ranks = true;
        limits.ops = {Reduce::sum, Reduce::max};
        limits.mostly_cyclic = seed % 3 == 0;
        limits.partial = options.partial;
        Random random(seed, limits);
        limits.partial = false;
        Random whole(seed, limits);
        Index const count = random.between(1, options.most_tensors);
        while (static_cast<Index>(moves_.size()) < count) {
            Move move;
            move.from = random.pick(options.types);
            move.to = random.chance(options.casts) ? random.pick(options.types) : move.from;
            move.options.cast = move.from != move.to;
            move.options.fold_elements = random.pick(options.folds);
            Index const limit = random.pick(options.limits);
            DynamicShape const shape = shape_for(random, limit, ranks, move);
            auto const mesh = [&] { return random.chance(60) ? DynamicMesh(Indices{ranks}) : random.mesh(); };
            DynamicMesh const mine = mesh();
            bool const across = random.chance(30);
            auto const from = random.distribution(mine, shape);
            auto const to = whole.distribution(across ? mesh() : mine, shape);
            move.plan = across ? plan_across(from, to) : plan(from, to);
            if (random.chance(25)) move.plan = move.plan.one_shot_fold();
            if (random.chance(20)) move.plan = move.plan.relayed(2);
            if (moves_enough(move, limit, ranks)) moves_.push_back(std::move(move));
        }
        batch_options_.bucket_bytes = random.pick(options.buckets);
    }

    /// Collective: prepares, fills, runs and looks at every byte, as often as `runs` says. What this rank finds wrong.
    [[nodiscard]] std::string wrong(CommunicatorRef comm) const {
        return wrong(comm, [](PreparedPlan& job) { job.run(); });
    }
    /// The same, run by `run(job)`.
    template <class Run>
    [[nodiscard]] std::string wrong(CommunicatorRef comm, Run const& run_job) const {
        int const me = comm.rank();
        Random random(seed_ * 64 + static_cast<std::uint64_t>(me));
        std::vector<Strewn> sources;
        std::vector<Strewn> results;
        Batch batch;
        for (Move const& move : moves_) {
            sources.emplace_back(move.from, move.plan.from(), me, random, options_);
            results.emplace_back(move.to, move.plan.to(), me, random, options_);
            batch.add(move.plan, ConstDynamicView(sources.back().view()), results.back().view(), {}, move.options);
        }
        bool const alone = moves_.size() == 1 && seed_ % 2 == 0;
        BatchTensor const& first = batch.tensors()[0];
        auto job = alone ? prepare(first.plan, comm, first.source, first.destination, first.options)
                         : prepare(batch, comm, batch_options_);
        for (int run = 0; run < options_.runs; ++run) {
            for (std::size_t i = 0; i < moves_.size(); ++i) sources[i].fill(moves_[i].plan.from(), me, run);
            run_job(job);
            for (std::size_t i = 0; i < moves_.size(); ++i) {
                Index const count = results[i].wrong(moves_[i].plan.to(), me, run);
                if (count != 0) return text(i, errors::concat("run ", run, ", rank ", me, ": ", count, " elements"));
            }
        }
        for (std::size_t i = 0; i < moves_.size(); ++i)
            if (!results[i].is_untouched()) return text(i, errors::concat("rank ", me, ": memory beside the tensor"));
        return {};
    }
    /// What a failing test prints of one of the tensors.
    [[nodiscard]] std::string text(std::size_t i, std::string const& what) const {
        Move const& move = moves_[i];
        return errors::concat(what, ", tensor ", i, " of ", moves_.size(), ", ",
                              reproduction(seed_, move.plan.from(), move.plan.to()), ", ", name(move.from), " as ",
                              name(move.to), ", folding ", move.options.fold_elements, " at a time");
    }

private:
    struct Move {
        Plan<> plan = v0_1::plan(distribution(Mesh{1}, Shape{1}, "R"), distribution(Mesh{1}, Shape{1}, "R"));
        DType from = DType::u8;
        DType to = DType::u8;
        PrepareOptions options{};
    };

    /// Bytes of an element on the way, as they are counted: see comm/detail/box_pieces.hpp.
    [[nodiscard]] static Index weight(Move const& move) { return move.options.cast ? 16 : bytes(move.from); }
    /// Whether some rank gets about as much as the limit from each of the others.
    [[nodiscard]] static bool moves_enough(Move const& move, Index limit, int ranks) {
        Index most = 0;
        for (int rank = 0; rank < ranks; ++rank) most = std::max(most, move.plan.cost(rank).received);
        return most > 0 && most * weight(move) >= (limit - limit / 8) * (ranks - 1);
    }
    /// So large that two ranks may have about that for each other, whoever has something for whom.
    [[nodiscard]] DynamicShape shape_for(Random& random, Index limit, Index ranks, Move const& move) const {
        Index const element = std::max(bytes(move.from), bytes(move.to));
        auto const size_at = [&](Index most, Index each) { return around(random, std::max<Index>(most / each, 1)); };
        Index const pairs = random.pick(std::vector<Index>{ranks - 1, ranks, ranks * ranks});
        Index rest = std::min(size_at(limit, weight(move)) * pairs, options_.most_bytes / element);
        Indices extents;
        for (Index dims = random.between(0, 2); dims > 0; --dims) {
            Index const row = random.chance(40) ? random.between(1, 7) : size_at(random.pick(options_.rows), element);
            extents.push_back(std::min(row, std::max<Index>(rest / 2, 1)));
            rest /= extents[extents.size() - 1];
        }
        extents.push_back(std::max<Index>(rest, 1) + random.between(0, 1));
        if (random.chance(80)) std::reverse(extents.begin(), extents.end());
        return DynamicShape(extents);
    }

    std::uint64_t seed_;
    AroundOptions options_;
    std::vector<Move> moves_;
    BatchOptions batch_options_;
};

}  // namespace reshard::test
