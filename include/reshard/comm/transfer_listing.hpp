// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/transfer_listing.hpp
/// \brief  What ranks that share no memory tell each other of their transfers, so that both see what does not fit.
/// \depends comm/communicator.hpp, <optional>. For authors of transports: not part of the umbrella.
///
/// A listing is plain data of a fixed size, without addresses: it is sent as it lies in memory, among machines of one
/// kind.
#pragma once

#include <reshard/comm/communicator.hpp>

#include <optional>

namespace reshard::inline v0_1 {

namespace transport {

/// In which order what goes to one peer is packed: as the longest transfer lies with its sender. `of(each)` is one.
template <class Transfers, class Of>
[[nodiscard]] constexpr DimOrder common_order(Transfers const& transfers, Of const& of) noexcept {
    StridedBox const* longest = nullptr;
    Index most = 0;
    for (auto const& each : transfers) {
        Index const bytes = of(each).payload_bytes();
        if (bytes > most) longest = &of(each).box;
        most = detail::larger(most, bytes);
    }
    return longest == nullptr ? DimOrder{} : order_of(*longest);
}
template <class Byte>
[[nodiscard]] constexpr DimOrder common_order(std::span<Transfer<Byte> const> transfers) noexcept {
    return common_order(
        transfers, [](auto const& transfer) -> auto const& { return transfer; });
}

/// One way between two ranks.
struct TransferListing {
    struct Entry {
        Index bytes = 0;
        std::uint32_t extents = 0;  ///< a hash of what same_extents() compares
        std::int32_t wire = -1;     ///< the type on the way, where values convert
        friend bool operator==(Entry const&, Entry const&) = default;
    };
    static constexpr std::size_t shown = 4;  ///< of so many the error can tell which one differs

    std::uint64_t number = 0;  ///< of the exchange; 0: nothing moves
    Index count = 0;
    Index bytes = 0;
    std::uint64_t digest = 0;  ///< of all
    DimOrder order;            ///< in which the sender packs: see packed_at()
    Entry first[shown];

    /// Of the transfers with one peer; `number` is that of the exchange (BoundTransfers).
    template <class Byte>
    [[nodiscard]] static TransferListing of(std::span<Transfer<Byte> const> transfers, std::uint64_t number) noexcept {
        TransferListing listing;
        if (!transfers.empty()) listing.number = number;
        detail::Digest all;
        for (auto const& transfer : transfers) {
            bool const converts = transfer.conversion.is_active();
            detail::Digest extents;
            for (auto const& dim : transfer.box.dims) extents.add_word_signed(dim.extent);
            extents.add_word_signed(converts ? -1 : transfer.box.element_bytes);
            Entry const entry{transfer.payload_bytes(), static_cast<std::uint32_t>(extents.value() >> 32U),
                              converts ? static_cast<std::int32_t>(transfer.conversion.wire) : -1};
            if (listing.count < detail::as_index(shown)) listing.first[listing.count] = entry;
            ++listing.count;
            listing.bytes += entry.bytes;
            all.add_word_signed(entry.bytes).add_word(extents.value()).add_word_signed(entry.wire);
        }
        listing.digest = all.value();
        listing.order = common_order(transfers);
        return listing;
    }
    [[nodiscard]] Entry const* entry(std::size_t k) const noexcept {
        return k < shown && detail::as_index(k) < count ? first + k : nullptr;
    }
};

/// Why they differ, the same words on both ranks; empty: they do not.
[[nodiscard]] inline std::string mismatch_of(int sender, TransferListing const& sent, int receiver,
                                             TransferListing const& expected) {
    if (sent.number != expected.number && sent.number != 0 && expected.number != 0) return order_text(sender, receiver);
    if (sent.count == expected.count && (sent.count == 0 || sent.digest == expected.digest)) {
        if (sent.order.dims() == expected.order.dims() && sent.order.dims() >= 0) return {};
        return errors::concat("reshard::exchange: from rank ", sender, " to rank ", receiver,
                              ": the order of dimensions that came with a listing is none. Fix: send listings as "
                              "they are.");
    }
    for (std::size_t k = 0; k < TransferListing::shown; ++k) {
        auto const* const a = sent.entry(k);
        auto const* const b = expected.entry(k);
        if (a == nullptr && b == nullptr) break;
        if (a != nullptr && b != nullptr && *a == *b) continue;
        auto const side = [](TransferListing::Entry const* entry) {
            return entry == nullptr ? TransferSide{} : TransferSide{entry->bytes, entry->wire};
        };
        return mismatch_text(sender, side(a), receiver, side(b), static_cast<int>(k));
    }
    return errors::concat("reshard::exchange: from rank ", sender, " to rank ", receiver, ": rank ", sender, " sends ",
                          sent.count, " transfers of ", sent.bytes, " bytes, rank ", receiver, " expects ",
                          expected.count, " of ", expected.bytes, ", and they differ after the first ",
                          TransferListing::shown, ". Fix: build both sides from the same plan, or counts.");
}

/// What a rank says to another one about an exchange.
struct PairListing {
    TransferListing sends;     ///< to the one who is told
    TransferListing receives;  ///< from that one
};
/// Two ranks of a communicator whose payloads differ.
struct PairMismatch {
    int sender;
    int receiver;
    std::string text;
};
/// What is wrong with what rank `me` and rank `peer` say to each other, if anything.
[[nodiscard]] inline std::optional<PairMismatch> mismatch_of(int me, PairListing const& mine, int peer,
                                                             PairListing const& theirs) {
    std::string text = mismatch_of(me, mine.sends, peer, theirs.receives);
    if (!text.empty()) return PairMismatch{me, peer, std::move(text)};
    text = mismatch_of(peer, theirs.sends, me, mine.receives);
    if (!text.empty()) return PairMismatch{peer, me, std::move(text)};
    return {};
}

}  // namespace transport

namespace detail {
using transport::common_order, transport::mismatch_of, transport::PairListing, transport::PairMismatch,
    transport::TransferListing;
}  // namespace detail

}  // namespace reshard::inline v0_1
