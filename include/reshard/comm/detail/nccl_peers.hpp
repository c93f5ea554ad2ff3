// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/nccl_peers.hpp
/// \brief  What two ranks tell each other before they exchange, so that both see what does not fit.
/// \depends comm/detail/nccl_team.hpp.
#pragma once

#include <reshard/comm/detail/nccl_team.hpp>

namespace reshard::inline v0::detail {

/// The transfers one way between two ranks, in few words: how many, of how many bytes, and of the first ones bytes and
/// a digest of what must be equal.
struct NcclListing {
    static constexpr int shown = 4;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t digest = 0;
    std::uint64_t each[shown][2] = {};

    template <class Byte>
    void add(Transfer<Byte> const& transfer) noexcept {
        Digest text;
        for (StridedDim const& dim : transfer.box.dims) text.add_signed(dim.extent);
        text.add_signed(transfer.wire_element_bytes());
        std::uint64_t const type =
            transfer.conversion.is_active() ? 1U + static_cast<std::uint64_t>(transfer.conversion.wire) : 0U;
        std::uint64_t const own = type << 56U | text.value() >> 8U;
        if (count < shown) {
            each[count][0] = static_cast<std::uint64_t>(transfer.payload_bytes());
            each[count][1] = own;
        }
        ++count;
        bytes += static_cast<std::uint64_t>(transfer.payload_bytes());
        digest = Digest{}.add(digest).add(own).value();
    }
    friend bool operator==(NcclListing const&, NcclListing const&) = default;
};

/// What one rank says to one peer.
struct NcclGreeting {
    NcclListing sends;     ///< from this rank to the peer
    NcclListing receives;  ///< and from the peer to this rank
};
static_assert(sizeof(NcclGreeting) == 8 * NcclTeam::words_per_peer);

/// A transfer of this size, for mismatch_text().
template <class Byte>
[[nodiscard]] Transfer<Byte> nccl_listed(NcclListing const& listing, std::uint64_t nth) noexcept {
    Transfer<Byte> transfer;
    auto const bytes = static_cast<Index>(listing.each[nth][0]);
    auto const type = listing.each[nth][1] >> 56U;
    transfer.box.dims.push_back({bytes, 1});
    if (type == 0) return transfer;
    auto const wire = static_cast<DType>(type - 1);
    transfer.box.dims[0].extent = bytes / larger<Index>(reshard::bytes(wire), 1);
    transfer.conversion = {
        wire, wire, 1.0,
        [](std::byte const*, StridedBox const&, DType, std::byte*, StridedBox const&, DType, double) noexcept {}};
    return transfer;
}

/// Why they differ, the same words on both ranks. \pre sent != expected.
[[nodiscard]] inline std::string nccl_mismatch_text(int sender, NcclListing const& sent, int receiver,
                                                    NcclListing const& expected) {
    for (std::uint64_t n = 0; n < NcclListing::shown && n < larger(sent.count, expected.count); ++n) {
        bool const both = n < sent.count && n < expected.count;
        if (both && sent.each[n][0] == expected.each[n][0] && sent.each[n][1] == expected.each[n][1]) continue;
        Send const send = nccl_listed<std::byte const>(sent, n);
        Receive const receive = nccl_listed<std::byte>(expected, n);
        return transport::mismatch_text(sender, n < sent.count ? &send : nullptr, receiver,
                                        n < expected.count ? &receive : nullptr, static_cast<int>(n));
    }
    return concat("reshard::exchange: rank ", sender, " sends rank ", receiver, " ", sent.count, " transfers of ",
                  sent.bytes, " bytes in all, rank ", receiver, " expects ", expected.count, " of ", expected.bytes,
                  sent.count == expected.count && sent.bytes == expected.bytes ? ", of different extents" : "",
                  ". Fix: build both sides from the same plan.");
}

}  // namespace reshard::inline v0::detail
