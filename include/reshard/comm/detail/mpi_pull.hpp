// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_pull.hpp
/// \brief  The data plane within a node: senders write down where their boxes lie, or copy small ones beside that;
/// receivers fetch them.
/// \depends comm/detail/mpi_messages.hpp.
#pragma once

#include <reshard/comm/detail/mpi_messages.hpp>
#include <reshard/memory/loop_nest.hpp>

namespace reshard::inline v0_1::detail {

/// A send as the ranks of the node see it.
struct MpiPublished {
    MpiMode mode = MpiMode::message;
    int file = -1;              ///< of its segment
    std::uint64_t segment = 0;  ///< number of its segment
    Index segment_bytes = 0;
    Index offset = 0;  ///< in its segment, or in the list
    Send send;         ///< its base is an address of the sender
};
static_assert(std::is_trivially_copyable_v<MpiPublished>);

/// A list in memory: the number of the exchange, where each rank's entries begin, then the entries.
class MpiList {
public:
    [[nodiscard]] static Index bytes(int ranks, std::size_t entries) noexcept {
        return entries_at(ranks) + as_index(entries * sizeof(MpiPublished));
    }
    [[nodiscard]] static std::uint64_t& number(std::byte* list) noexcept {
        return *reinterpret_cast<std::uint64_t*>(list);
    }
    [[nodiscard]] static std::uint64_t number(std::byte const* list) noexcept {
        return *reinterpret_cast<std::uint64_t const*>(list);
    }
    [[nodiscard]] static std::uint32_t* starts(std::byte* list) noexcept {
        return reinterpret_cast<std::uint32_t*>(list + starts_at);
    }
    /// Where `entries` entries end, and copies may begin.
    [[nodiscard]] static Index copies_at(int ranks, std::size_t entries) noexcept {
        return ceil_div(bytes(ranks, entries), 64) * 64;
    }
    [[nodiscard]] static MpiPublished* entries(std::byte* list, int ranks) noexcept {
        return reinterpret_cast<MpiPublished*>(list + entries_at(ranks));
    }
    /// The entries for `local`; an empty span when the list makes no sense, as one that is being rewritten may not.
    [[nodiscard]] static std::span<MpiPublished const> of(std::byte const* list, Index size, int ranks,
                                                          int local) noexcept {
        auto const* const starts = reinterpret_cast<std::uint32_t const*>(list + starts_at);
        std::size_t const first = starts[local];
        std::size_t const last = starts[local + 1];
        if (last < first || bytes(ranks, last) > size) return {};
        return {reinterpret_cast<MpiPublished const*>(list + entries_at(ranks)) + first, last - first};
    }

private:
    static constexpr Index starts_at = 8;
    [[nodiscard]] static Index entries_at(int ranks) noexcept { return ceil_div(starts_at + 4 * (ranks + 1), 64) * 64; }
};

/// What is copied into the list: transfers for which a system call, or a message, costs more than another copy, as long
/// as all of them together stay in a second-level cache.
inline constexpr Index mpi_listed_bytes = Index{16} << 10;
inline constexpr Index mpi_listed_total = Index{1} << 20;

/// Room in the list for one of them: every copy begins on a line.
[[nodiscard]] constexpr Index mpi_listed_room(Send const& send) noexcept {
    Index const bytes = send.payload_bytes();
    return bytes > mpi_listed_bytes ? 0 : ceil_div(bytes, 64) * 64;
}

/// From the first byte of a box to its last.
[[nodiscard]] inline std::span<std::byte const> mpi_reach_of(std::byte const* base, StridedBox const& box) noexcept {
    Index low = 0;
    Index high = box.element_bytes;
    for (auto const& dim : box.dims) {
        Index const far = (dim.extent - 1) * dim.stride;
        (far < 0 ? low : high) += far;
    }
    return {base + low, base + high};
}

/// Rows from which the receiver reads them out of the sender's memory one by one: the system looks up the pages of
/// each.
inline constexpr Index mpi_attach_row_bytes = 2048;

/// Whether reading a box by rows of `run` bytes beats having it packed.
[[nodiscard]] constexpr bool mpi_has_good_rows(StridedBox const& box, Index run) noexcept {
    return run >= mpi_attach_row_bytes || box.payload_bytes() <= 16 * run;
}

[[nodiscard]] inline MpiPublished mpi_describe(MpiFamily const& family, bool attach, Send const& send) noexcept {
    if (MpiSegment const* const segment = family.segment_with(mpi_reach_of(send.base, send.box))) {
        SharedMemory const& memory = segment->memory;
        return {MpiMode::segment, memory.file(), segment->number, memory.bytes(), send.base - memory.data(), send};
    }
    bool const reads = attach && mpi_has_good_rows(send.box, run_of(in_order(send, order_of(send.box)).box).bytes);
    return {reads ? MpiMode::attach : MpiMode::message, -1, 0, 0, 0, send};
}

/// Reads a box of another process's memory: straight into place where rows allow, through a scratch buffer otherwise.
class MpiAttach {
public:
    /// False when the system refused; errno says why. Rows that go into place may be left to rows.flush().
    [[nodiscard]] bool read(AttachReader& rows, Send const& sent, Receive const& receive, CopyHint hint) {
        if (sent.conversion.is_plain() && receive.conversion.is_plain()) {
            LoopNest nest = loop_nest(sent.box, receive.box);
            if (nest.empty) return true;
            Index const run = take_row(nest, sent.box.element_bytes);
            if (mpi_has_good_rows(sent.box, run)) return add_rows(rows, nest, run, sent.base, receive.base);
        }
        DimOrder const order = order_of(sent.box);
        Send const from = in_order(sent, order);
        Receive const to = in_order(receive, order);
        PieceRule const rule = piece_rule_of(from.box, from.box.element_bytes, piece_bytes);
        if (!scratch_) scratch_.reset(new std::byte[as_size(piece_bytes)]);
        for (Index p = 0; p < rule.pieces; ++p) {
            Send const source = piece_of(from, rule, p);
            Send const packed = dense_at<std::byte const>(scratch_.get(), source);
            LoopNest nest = loop_nest(source.box, packed.box);
            Index const run = take_row(nest, source.box.element_bytes);
            if (!add_rows(rows, nest, run, source.base, scratch_.get()) || !rows.flush()) return false;
            deliver(packed, piece_of(to, rule, p), hint);
        }
        return true;
    }

private:
    [[nodiscard]] static bool add_rows(AttachReader& rows, LoopNest const& nest, Index run, std::byte const* from,
                                       std::byte* to) {
        bool good = true;
        for_each_origin(
            nest, nest.dims.size(), from + nest.from_offset, to + nest.to_offset,
            [&](std::byte const* source, std::byte* target) { good = good && rows.add(source, target, run); });
        return good;
    }

    std::unique_ptr<std::byte[]> scratch_;
};

/// A rank with which this one exchanges something, and how far that is.
struct MpiNeighbour {
    int rank = 0;
    int local = 0;
    std::size_t first = 0;  ///< transfers [first, last)
    std::size_t last = 0;
    std::size_t queue = 0;
    Index bytes = 0;  ///< of the first transfer, of readers
    bool done = false;
    bool sends = false;  ///< of far ones: the queue is one of outgoing_
};

}  // namespace reshard::inline v0_1::detail
