// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/transfer_listing.hpp. A message between ranks that share no memory: listings, and what
// transport::packed_at packs.
#include <reshard/comm/transfer_listing.hpp>

#include <doctest/doctest.h>

#include <reshard/memory/convert.hpp>
#include <reshard/memory/copy.hpp>
#include <reshard/memory/loop_nest.hpp>

#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {
using namespace reshard;
using transport::PairListing, transport::TransferListing;
static_assert(std::is_trivially_copyable_v<PairListing>);

transport::StridedBox box_of(Index element_bytes, std::initializer_list<transport::StridedDim> dims) {
    transport::StridedBox box;
    box.element_bytes = element_bytes;
    for (transport::StridedDim const& dim : dims) box.dims.push_back(dim);
    return box;
}

/// Rank 0 has rows of 3 in 5 floats, which travel as they are, and a column that travels as doubles.
struct Pair {
    std::vector<float> memory = std::vector<float>(15);
    std::vector<float> rows = std::vector<float>(9);
    std::vector<double> column = std::vector<double>(3);
    transport::Conversion there{DType::f32, DType::f64, 0.5, transport::convert};
    transport::Conversion here{DType::f64, DType::f64, 1.0, transport::convert};
    std::vector<transport::Send> sends;
    std::vector<transport::Receive> receives;

    Pair() {
        for (std::size_t i = 0; i != memory.size(); ++i) memory[i] = static_cast<float>(i);
        auto const* const from = reinterpret_cast<std::byte const*>(memory.data());
        sends.push_back({1, from, box_of(4, {{3, 20}, {3, 4}})});
        sends.push_back({1, from + 16, box_of(4, {{3, 20}}), there});
        receives.push_back({0, reinterpret_cast<std::byte*>(rows.data()), box_of(4, {{3, 12}, {3, 4}})});
        receives.push_back({0, reinterpret_cast<std::byte*>(column.data()), box_of(8, {{3, 8}}), here});
    }
    /// What rank 0 and rank 1 tell each other.
    [[nodiscard]] PairListing of_sender(std::uint64_t number = 7) const {
        return {TransferListing::of(std::span<transport::Send const>(sends), number), {}};
    }
    [[nodiscard]] PairListing of_receiver(std::uint64_t number = 7) const {
        return {{}, TransferListing::of(std::span<transport::Receive const>(receives), number)};
    }
};
}  // namespace

TEST_SUITE("comm/transfer_listing") {
    TEST_CASE("what is packed by one rank is unpacked by the other, from addresses aligned to nothing") {
        Pair pair;
        std::vector<std::byte> message(1 + 36 + 24);
        std::byte* at = message.data() + 1;
        for (transport::Send const& send : pair.sends) {
            transport::deliver(send, transport::packed_at(at, send));
            at += send.payload_bytes();
        }
        CHECK(at == message.data() + message.size());
        std::byte const* from = message.data() + 1;
        for (transport::Receive const& receive : pair.receives) {
            transport::deliver(transport::packed_at(from, receive), receive);
            from += receive.payload_bytes();
        }
        CHECK(pair.rows == std::vector<float>{0, 1, 2, 5, 6, 7, 10, 11, 12});
        CHECK(pair.column == std::vector<double>{2, 4.5, 7});
    }

    TEST_CASE("a message has the order of the sender's memory, which its listing tells: it is copied in one run") {
        constexpr Index n[3] = {5, 4, 3};
        std::vector<float> columns(60);
        for (std::size_t i = 0; i != columns.size(); ++i) columns[i] = static_cast<float>(i);
        transport::Send const send{1, reinterpret_cast<std::byte const*>(columns.data()),
                                   box_of(4, {{n[0], 4}, {n[1], 20}, {n[2], 80}})};
        std::span const sends(&send, 1);
        TransferListing const listing = TransferListing::of(sends, 7);
        CHECK(listing.order == transport::DimOrder{0x123});
        std::vector<float> message(60);
        auto const packed = transport::packed_at(reinterpret_cast<std::byte*>(message.data()), send, listing.order);
        CHECK(detail::loop_nest(send.box, packed.box).dims.size() == 1);
        transport::deliver(send, packed);
        CHECK(message == columns);
        std::vector<float> rows(60);
        transport::Receive const receive{0, reinterpret_cast<std::byte*>(rows.data()),
                                         box_of(4, {{n[0], 48}, {n[1], 12}, {n[2], 4}})};
        transport::deliver(
            transport::packed_at(reinterpret_cast<std::byte const*>(message.data()), receive, listing.order), receive);
        for (std::size_t i = 0; i != 60; ++i) CHECK(rows[i] == static_cast<float>(i / 12 + i / 3 % 4 * 5 + i % 3 * 20));
    }

    TEST_CASE("an order that is none of the dimensions is a mismatch") {
        Pair const pair;
        PairListing const receiver = pair.of_receiver();
        for (std::uint64_t const word : {0x11U, 0x13U, 0x01U, 0x1U, 0x0U, 0x321U, 0xf2U}) {
            CAPTURE(word);
            PairListing sender = pair.of_sender();
            sender.sends.order.word = word;
            auto const wrong = mismatch_of(0, sender, 1, receiver);
            REQUIRE(wrong);
            CHECK(wrong->text.find("order of dimensions") != std::string::npos);
        }
    }

    TEST_CASE("listings fit, or both ranks say the same of what does not") {
        Pair pair;
        CHECK_FALSE(mismatch_of(0, pair.of_sender(), 1, pair.of_receiver()));
        auto const other_order = mismatch_of(0, pair.of_sender(), 1, pair.of_receiver(8));
        REQUIRE(other_order);
        CHECK(other_order->text == transport::order_text(0, 1));
        pair.receives.pop_back();
        auto const first = mismatch_of(0, pair.of_sender(), 1, pair.of_receiver());
        auto const second = mismatch_of(1, pair.of_receiver(), 0, pair.of_sender());
        REQUIRE(first);
        REQUIRE(second);
        CHECK(first->text == second->text);
        CHECK(first->sender == 0);
        CHECK(second->receiver == 1);
        CHECK(first->text.find("rank 0 sends 24 bytes") != std::string::npos);
    }
}
