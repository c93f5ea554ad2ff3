// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/rules.hpp
/// \brief  Which rank an entry goes to, as a value that kernels take: by slot, by raw id, by a list, by your function.
/// \depends core. Compiles without CUDA.
///
/// A rule is trivially copyable, and rule(entry) is an integer: the destination, `not_sent` for an entry that stays
/// behind on purpose, anything else for one that is wrong: it is counted, and not sent. Your own rule is a struct with
/// such an operator(), marked RESHARD_HOST_DEVICE, or an extended lambda.
///
/// A rule whose search table should lie in shared memory has `table()`, `table_size()` (at most 257, but where entries
/// are sorted) and `with(table)`, the rule that each thread asks then, entry by entry.
#pragma once

#include <reshard/core/divider.hpp>

namespace reshard::inline v0_1 {

/// What a rule answers for entries that are not sent: empty places.
inline constexpr Index not_sent = -1;
/// What the rules below answer for a slot outside the table.
inline constexpr Index out_of_range = -2;

/// Slots cut evenly, in blocks of `block`, the last one shorter: TorchRec's rule. \pre block >= 1.
class EvenSlots {
public:
    constexpr EvenSlots() = default;
    RESHARD_HOST_DEVICE constexpr EvenSlots(Index slots, Index block) noexcept
        : slots_(slots), by_block_(static_cast<std::uint64_t>(block)) {}
    /// `ranks` blocks of ceil(slots / ranks).
    [[nodiscard]] static constexpr EvenSlots of(Index slots, Index ranks) noexcept {
        return {slots, detail::larger<Index>(detail::ceil_div(slots, ranks), 1)};
    }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index operator()(Index slot) const noexcept {
        if (slot < 0 || slot >= slots_) return out_of_range;
        return detail::as_index(by_block_(static_cast<std::uint64_t>(slot)));
    }

private:
    Index slots_ = 0;
    detail::Divider by_block_;
};

/// Slots cut at offsets[0] = 0 <= offsets[1] <= ... <= offsets[ranks] = Z, which device code reads. Ranks without
/// slots own none.
class SlotsAtOffsets {
public:
    constexpr SlotsAtOffsets() = default;
    RESHARD_HOST_DEVICE constexpr SlotsAtOffsets(Index const* offsets, int ranks) noexcept
        : offsets_(offsets), ranks_(ranks) {}
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index operator()(Index slot) const noexcept {
        if (slot < offsets_[0] || slot >= offsets_[ranks_]) return out_of_range;
        return detail::part_at(offsets_, ranks_, slot);
    }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index const* table() const noexcept { return offsets_; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr int table_size() const noexcept { return ranks_ + 1; }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr SlotsAtOffsets with(Index const* table) const noexcept {
        return {table, ranks_};
    }

private:
    Index const* offsets_ = nullptr;
    int ranks_ = 0;
};

namespace detail {
/// Whether a rule (or owner) wants its table in shared memory.
template <class T>
concept HasTable = requires(T const& rule, Index const* table) {
    { rule.table() } -> std::convertible_to<Index const*>;
    { rule.table_size() } -> std::convertible_to<int>;
    rule.with(table);
};
}  // namespace detail

/// The rank that owns the entry's slot. With `ids`, entries whose id is `empty` are not sent. `Owner` answers
/// owner(slot): EvenSlots, SlotsAtOffsets, or mch's SlotRouter with `slots_end` (it trusts its argument).
template <class Owner>
struct BySlot {
    Index const* slots = nullptr;
    Owner owner{};
    Index const* ids = nullptr;
    Index empty = INT64_MAX;
    Index slots_end = INT64_MAX;  ///< the table's Z: slots from there on are out of range

    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index operator()(Index entry) const noexcept {
        Index const slot = slots[entry];
        if (ids != nullptr && ids[entry] == empty) return not_sent;
        if (slot < 0 || slot >= slots_end) return out_of_range;
        return detail::as_index(owner(slot));
    }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index const* table() const noexcept requires detail::HasTable<Owner> {
        return owner.table();
    }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr int table_size() const noexcept requires detail::HasTable<Owner> {
        return owner.table_size();
    }
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr BySlot with(
        Index const* table) const noexcept requires detail::HasTable<Owner> {
        BySlot rule = *this;
        rule.owner = owner.with(table);
        return rule;
    }
};

/// The rank that looks the entry's raw id up: `Router` answers router.part_of_id(id), as mch's Router does. Entries
/// whose id is `empty` are not sent.
template <class Router>
struct ById {
    Index const* ids = nullptr;
    Router router{};
    Index empty = INT64_MAX;

    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index operator()(Index entry) const noexcept {
        Index const id = ids[entry];
        return id == empty ? not_sent : detail::as_index(router.part_of_id(id));
    }
};

/// The rank a list names for each entry.
struct ByList {
    Index const* destinations = nullptr;
    [[nodiscard]] RESHARD_HOST_DEVICE constexpr Index operator()(Index entry) const noexcept {
        return destinations[entry];
    }
};

namespace detail {

/// The bin of an answer: the destination, or `destinations` for what is not sent.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr std::uint32_t bin_of(Index answer, int destinations) noexcept {
    auto const last = static_cast<std::uint64_t>(destinations);
    return static_cast<std::uint32_t>(smaller(static_cast<std::uint64_t>(answer), last));  // negative ones are large
}
[[nodiscard]] RESHARD_HOST_DEVICE constexpr bool is_fault(Index answer, int destinations) noexcept {
    return answer != not_sent && (answer < 0 || answer >= destinations);
}

}  // namespace detail
}  // namespace reshard::inline v0_1
