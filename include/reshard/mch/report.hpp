// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/report.hpp
/// \brief  MchReport: everything that is wrong with the state of a table, counted by kind, with places.
/// \depends core, <array>, <vector>.
#pragma once

#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>
#include <reshard/mch/detail/mode.hpp>

#include <array>   // array
#include <vector>  // vector

namespace reshard::inline v0_1 {

namespace enums {
/// What can be wrong with a state. `value` and `other` say what stands at `position` of the rank's buffers.
///
/// fault           | what holds in a healthy state                           | value         | other
/// ----------------|---------------------------------------------------------|---------------|----------------
/// never_loaded    | not everything is zero (then nothing else is looked at) | -             | -
/// id_order        | I1 ids ascend                                           | the id        | the id before
/// id_repeated     | I1 live ids are distinct                                | the id        | another place
/// slot_range      | I2 slots are the shard's                                | the slot      | first slot
/// slot_repeated   | I2 slots are distinct                                   | the slot      | another place
/// reserved_live   | I3 the last place holds no id: misses go there          | the id        | its slot
/// reserved_slot   | I3 the last place holds the last slot                   | the slot      | where that is
/// count_negative  | I4 counts are not negative                              | the count     | the id
/// count_pinned    | I4 no live id counts INT64_MAX: it would stay forever   | the count     | the id
/// access_late     | I4 accesses are from 0 on, up to the current iteration  | the iteration | current one
/// stale_metadata  | empty places but the last have empty metadata           | the column    | first byte
/// stale_segments  | segments are the table's offsets, then -1               | the offset    | what belongs
/// unreachable     | I5 ids are where they are looked up                     | the id        | rank that looks (1)
/// iteration       | I6 all ranks are at the same iteration                  | the iteration | first rank's
/// id_on_two_ranks | I7 an id is on one rank                                 | the id        | the other rank
///
/// (1) The rank itself where it looks in another bucket of its hash table.
enum class MchFault : std::uint8_t {
    never_loaded,
    id_order,
    id_repeated,
    slot_range,
    slot_repeated,
    reserved_live,
    reserved_slot,
    count_negative,
    count_pinned,
    access_late,
    stale_metadata,
    stale_segments,
    unreachable,
    iteration,
    id_on_two_ranks,
};
}  // namespace enums
using enums::MchFault;
inline constexpr int mch_fault_count = 15;

namespace detail {
/// Its name, and what stands before `value` and `other` where a place is told.
struct MchFaultWords {
    std::string_view name;
    std::string_view value;
    std::string_view other;
};
inline constexpr std::array<MchFaultWords, mch_fault_count> mch_fault_words{{
    {"never loaded: all zeros", "", ""},
    {"I1 ids do not ascend", "id ", " after "},
    {"I1 id repeated", "id ", ", as at position "},
    {"I2 slot of another shard", "slot ", ", the shard begins at "},
    {"I2 slot repeated", "slot ", ", as at position "},
    {"I3 the miss row's position holds an id", "id ", " with slot "},
    {"I3 the miss row's position holds another slot", "slot ", ", the last slot is at position "},
    {"I4 negative count", "count ", " of id "},
    {"I4 live id pinned by its count", "count ", " keeps id "},
    {"I4 accessed before iteration 0 or after the current one", "iteration ", ", the current one is "},
    {"metadata of an empty place is not empty", "column ", " begins with byte "},
    {"segments are not the table's offsets", "", " instead of "},
    {"I5 id is looked up elsewhere", "id ", ", looked up on rank "},
    {"I6 current iteration differs between ranks", "", " instead of "},
    {"I7 id is on two ranks", "id ", ", also on rank "},
}};
}  // namespace detail

namespace enums {
[[nodiscard]] constexpr std::string_view name(MchFault fault) noexcept {
    return detail::mch_fault_words[static_cast<std::size_t>(fault)].name;
}
}  // namespace enums

/// One place of one fault.
struct MchViolation {
    MchFault fault = MchFault::never_loaded;
    Index rank = 0;
    Index position = 0;
    Index value = 0;
    Index other = 0;

    [[nodiscard]] friend auto operator<=>(MchViolation const&, MchViolation const&) noexcept = default;
};

/// All faults of a state: how many of each kind there are, exactly, and where, up to `listed` places per kind and rank.
class MchReport {
public:
    static constexpr Index listed = 8;

    [[nodiscard]] bool sound() const noexcept { return total() == 0; }
    [[nodiscard]] Index total() const noexcept;
    [[nodiscard]] Index total(MchFault fault) const noexcept { return totals_[static_cast<std::size_t>(fault)]; }
    /// By fault, rank, position. By value where the report is about to go.
    [[nodiscard]] std::vector<MchViolation> const& violations() const& noexcept { return violations_; }
    [[nodiscard]] std::vector<MchViolation> violations() && noexcept { return std::move(violations_); }

    /// For one rank's violations, kind by kind in any order.
    void add(MchViolation const& violation);
    /// What arrives from another rank: some of `total` violations of one kind.
    void add_total(MchFault fault, Index total) noexcept { totals_[static_cast<std::size_t>(fault)] += total; }
    void add_listed(MchViolation const& violation) { violations_.push_back(violation); }
    void reserve(std::size_t more) { violations_.reserve(violations_.size() + more); }
    void sort() noexcept;

    [[nodiscard]] friend bool operator==(MchReport const&, MchReport const&) = default;

private:
    std::vector<MchViolation> violations_;
    std::array<Index, mch_fault_count> totals_{};
};

/// `rank 1, position 5: id 7 after 9`.
[[nodiscard]] std::string to_string(MchViolation const& violation);

/// `sound`, or one line per kind: its name, how many, and the places. Without the end of the last line, as it goes into
/// messages.
[[nodiscard]] std::string explain(MchReport const& report);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_MCH)
#include <reshard/mch/report.ipp>
#endif
