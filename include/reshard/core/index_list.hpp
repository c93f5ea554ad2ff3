// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/index_list.hpp
/// \brief  An immutable list of integers of any length that copies like a plain value.
/// \depends core only. constexpr up to `inline_capacity` entries.
///
/// Boundaries and rank lists are parts of placements and plans, which must be trivial to copy, compare and hash.
/// Short lists live inside the object. Longer ones are interned: one copy per distinct list (and per shared object
/// that hides its symbols), kept until the program ends, so that a value never owns memory. Programs have few distinct
/// lists; data that differ at every step are a BoxTable.
#pragma once

#include <reshard/core/index.hpp>

namespace reshard::inline v0_1 {

namespace detail {

struct InternedList {
    InternedList* next = nullptr;
    Index count = 0;
    Index* values = nullptr;
};

/// The one copy of a list. Lock-free: entries are only ever added, at the head of those with the same hash.
inline Index const* intern(Index const* values, Index count) {
    static InternedList* heads[1024]{};
    std::uint64_t hash = 0;
    for (Index i = 0; i < count; ++i) hash = (hash ^ static_cast<std::uint64_t>(values[i])) * 0x9e3779b97f4a7c15U;
    InternedList*& head = heads[hash >> 54U];  // multiplying carries upwards
    InternedList* entry = nullptr;
    InternedList* first = __atomic_load_n(&head, __ATOMIC_ACQUIRE);
    for (;;) {
        for (InternedList* node = first; node != nullptr; node = node->next) {
            bool same = node->count == count;
            for (Index i = 0; same && i < count; ++i) same = node->values[i] == values[i];
            if (!same) continue;
            if (entry != nullptr) {
                delete[] entry->values;
                delete entry;
            }
            return node->values;
        }
        if (entry == nullptr) {
            entry = new InternedList{nullptr, count, new Index[as_size(count)]};
            for (Index i = 0; i < count; ++i) entry->values[i] = values[i];
        }
        entry->next = first;
        if (__atomic_compare_exchange_n(&head, &first, entry, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            return entry->values;
        }
    }
}

}  // namespace detail

class IndexList {
public:
    static constexpr int inline_capacity = 9;  // the boundaries of 8 parts

    constexpr IndexList() = default;
    constexpr IndexList(std::initializer_list<Index> values)
        : IndexList(values.begin(), detail::as_index(values.size())) {}
    /// The numbers of a std::vector or the like.
    template <IntegerList List>
        requires(!std::is_same_v<List, IndexList>)
    constexpr IndexList(List const& list) {
        auto const count = static_cast<Index>(list.size());
        for (auto const value : list)
            static_cast<void>(detail::entry<Index>(value));  // it throws, and that owns nothing
        Index* const many = count > inline_capacity ? new Index[detail::as_size(count)] : nullptr;
        Index at = 0;
        for (auto const value : list) (many != nullptr ? many : inline_)[at++] = static_cast<Index>(value);
        if (many != nullptr) *this = IndexList(many, count);
        count_ = count;
        delete[] many;
    }
    /// `interned`: the values are part of an interned list already.
    constexpr IndexList(Index const* values, Index count, bool interned = false) : count_(count) {
        if (count > inline_capacity) {
            interned_ = interned ? values : detail::intern(values, count);
        } else {
            for (Index i = 0; i < count; ++i) inline_[i] = values[i];
        }
    }

    [[nodiscard]] constexpr Index size() const noexcept { return count_; }
    [[nodiscard]] constexpr bool empty() const noexcept { return count_ == 0; }
    [[nodiscard]] constexpr Index const* data() const noexcept { return interned_ != nullptr ? interned_ : inline_; }
    [[nodiscard]] constexpr Index operator[](Index i) const noexcept { return data()[i]; }
    [[nodiscard]] constexpr Index const* begin() const noexcept { return data(); }
    [[nodiscard]] constexpr Index const* end() const noexcept { return data() + count_; }
    [[nodiscard]] constexpr Index back() const noexcept { return data()[count_ - 1]; }

    /// For the device as well: there nvcc looks for what the defaulted comparisons of its owners call.
    [[nodiscard]] RESHARD_HOST_DEVICE friend constexpr bool operator==(IndexList const& a,
                                                                       IndexList const& b) noexcept {
        if (a.count_ != b.count_) return false;
        // Another copy may be equal: shared objects with hidden visibility intern their own.
        if (a.interned_ != nullptr && a.interned_ == b.interned_) return true;
        Index const* const left = a.interned_ != nullptr ? a.interned_ : a.inline_;
        Index const* const right = b.interned_ != nullptr ? b.interned_ : b.inline_;
        for (Index i = 0; i < a.count_; ++i)
            if (left[i] != right[i]) return false;
        return true;
    }

private:
    Index const* interned_ = nullptr;
    Index count_ = 0;
    Index inline_[inline_capacity]{};
};

}  // namespace reshard::inline v0_1
