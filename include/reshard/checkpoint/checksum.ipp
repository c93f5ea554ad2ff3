// SPDX-License-Identifier: Apache-2.0
// How checkpoint/checksum.hpp is done.
#pragma once

#include <reshard/checkpoint/checksum.hpp>

#include <isa-l/crc.h>

namespace reshard::inline v0_1 {

RESHARD_INLINE std::uint32_t crc32c(std::span<std::byte const> bytes, std::uint32_t before) noexcept {
    constexpr std::size_t most = std::size_t{1} << 30U;  // ISA-L counts in int
    std::uint32_t state = ~before;
    while (!bytes.empty()) {
        std::size_t const count = detail::smaller(bytes.size(), most);
        // It reads only; its parameter is not const.
        auto* const data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
        state = ::crc32_iscsi(data, static_cast<int>(count), state);
        bytes = bytes.subspan(count);
    }
    return ~state;
}

}  // namespace reshard::inline v0_1
