// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/self.hpp.
#include <reshard/comm/self.hpp>
#include <reshard/memory/convert.hpp>

#include "conformance.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace {
using namespace reshard;

using test::box_of;
static_assert(Communicator<SelfCommunicator>);  // here and not in the header, for the sake of include time
static_assert(SelfCommunicator::name == "self");
}  // namespace

TEST_SUITE("comm/self") {
    TEST_CASE("SelfCommunicator: keeps the contract of a communicator") {
        SelfCommunicator comm;
        test::conforms(comm);
    }

    TEST_CASE("SelfCommunicator: sizes that differ are a mismatch, and nothing is copied") {
        SelfCommunicator comm;
        std::vector<std::byte> from(16, std::byte{1});
        std::vector<std::byte> to(16);
        transport::Send const send{0, from.data(), box_of(1, {{8, 1}})};
        transport::Receive const receive{0, to.data(), box_of(1, {{9, 1}})};
        CHECK_THROWS_WITH_AS(comm.exchange({&send, 1}, {&receive, 1}).wait(),
                             doctest::Contains("sends 8 bytes, rank 0 expects 9 bytes"), MismatchError);
        CHECK(to == std::vector<std::byte>(16));
        CHECK_THROWS_AS(comm.exchange({}, {}).wait(), PeerFailed);  // poisoned
    }

    TEST_CASE("SelfCommunicator: a send without its receive is a mismatch, either way round") {
        std::byte byte{};
        transport::Send const send{0, &byte, box_of(1, {})};
        transport::Receive const receive{0, &byte, box_of(1, {})};
        SelfCommunicator one;
        CHECK_THROWS_WITH_AS(one.exchange({&send, 1}, {}).wait(), doctest::Contains("expects nothing"), MismatchError);
        SelfCommunicator other;
        CHECK_THROWS_WITH_AS(other.exchange({}, {&receive, 1}).wait(), doctest::Contains("sends nothing"),
                             MismatchError);
        SelfCommunicator shapes;
        std::vector<std::byte> from(8);
        transport::Send const flat{0, from.data(), box_of(1, {{8, 1}})};
        transport::Receive const square{0, from.data(), box_of(1, {{2, 4}, {4, 1}})};
        CHECK_THROWS_WITH_AS(shapes.exchange({&flat, 1}, {&square, 1}).wait(), doctest::Contains("different extents"),
                             MismatchError);
    }

    TEST_CASE("SelfCommunicator: sides that convert to different types, or only one of which does, are a mismatch") {
        float const from[2] = {1, 2};
        float to[2] = {};
        transport::Conversion const brain{DType::f32, DType::bf16, 1.0, transport::convert};
        transport::Conversion const half{DType::f32, DType::f16, 1.0, transport::convert};
        transport::Send const send{0, reinterpret_cast<std::byte const*>(from), box_of(4, {{2, 4}}), brain};
        transport::Receive const other{0, reinterpret_cast<std::byte*>(to), box_of(4, {{2, 4}}), half};
        SelfCommunicator one;
        CHECK_THROWS_WITH_AS(one.exchange({&send, 1}, {&other, 1}).wait(),
                             doctest::Contains("rank 0 sends BF16, rank 0 expects F16"), MismatchError);
        transport::Receive const plain{0, reinterpret_cast<std::byte*>(to), box_of(2, {{2, 2}})};
        SelfCommunicator two;
        CHECK_THROWS_WITH_AS(two.exchange({&send, 1}, {&plain, 1}).wait(),
                             doctest::Contains("sends BF16, rank 0 expects elements as they are"), MismatchError);
        CHECK(to[0] == 0.0F);
    }

    TEST_CASE("SelfCommunicator: a peer that does not exist is named") {
        SelfCommunicator comm;
        std::byte byte{};
        transport::Send const send{3, &byte, box_of(1, {})};
        CHECK_THROWS_WITH_AS(comm.exchange({&send, 1}, {}).wait(), doctest::Contains("rank 3"), TransportError);
    }

    TEST_CASE("SelfCommunicator: abort ends later calls with the reason") {
        SelfCommunicator comm;
        comm.abort(ErrorCode::io, "disk full");
        CHECK_THROWS_WITH_AS(static_cast<void>(comm.agree({})), doctest::Contains("disk full"), PeerFailed);
        CHECK_THROWS_AS(static_cast<void>(comm.split(0, 0)), PeerFailed);
    }
}
