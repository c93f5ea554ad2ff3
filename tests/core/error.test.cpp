// SPDX-License-Identifier: Apache-2.0
#include <reshard/core/error.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

using namespace reshard;

namespace {

static_assert(std::is_base_of_v<Error, ShapeError> && std::is_base_of_v<std::exception, Error>);
static_assert(!std::is_same_v<ShapeError, MeshError>);
static_assert(static_cast<int>(ErrorCode::none) == 0 && static_cast<int>(ErrorCode::user) == 15,
              "codes travel between ranks of different builds: their numbers never change");

template <class Expected>
void check_raises(ErrorCode code) {
    CAPTURE(static_cast<int>(code));
    try {
        errors::raise(code, "what happened");
    } catch (Expected const& error) {
        CHECK(error.code() == code);
        CHECK(error.message() == "what happened");
        CHECK(std::string(error.what()) == "what happened");
        CHECK(!error.is_agreed());
    }
    try {
        detail::raise_agreed(code, "what happened");
    } catch (Expected const& error) {
        CHECK(error.is_agreed());
        return;
    }
    FAIL("another type");
}

}  // namespace

TEST_CASE("every code is thrown as the type that belongs to it") {
    check_raises<ShapeError>(ErrorCode::shape);
    check_raises<MeshError>(ErrorCode::mesh);
    check_raises<PlacementError>(ErrorCode::placement);
    check_raises<NotationError>(ErrorCode::notation);
    check_raises<MismatchError>(ErrorCode::mismatch);
    check_raises<BufferError>(ErrorCode::buffer);
    check_raises<DTypeError>(ErrorCode::dtype);
    check_raises<TransitionError>(ErrorCode::transition);
    check_raises<PeerFailed>(ErrorCode::peer_failed);
    check_raises<DeadlineExceeded>(ErrorCode::deadline);
    check_raises<TransportError>(ErrorCode::transport);
    check_raises<FormatError>(ErrorCode::format);
    check_raises<IoError>(ErrorCode::io);
    check_raises<OutOfMemory>(ErrorCode::out_of_memory);
    check_raises<UserError>(ErrorCode::user);
}

TEST_CASE("a code nobody knows still throws") {
    CHECK_THROWS_AS(errors::raise(ErrorCode::none, "?"), UserError);
    CHECK_THROWS_AS(errors::raise(static_cast<ErrorCode>(99), "?"), UserError);
}

TEST_CASE("control characters of a name do not end a message, nor reach a terminal") {
    std::string const name("a\0b\x1b[1m\x7f.\r", 10);
    CHECK_THROWS_WITH_AS(errors::raise(ErrorCode::shape, "no '", name, "'.\n\tFix: \xc3\xa4."),
                         "no 'a?b?[1m?.?'.\n\tFix: \xc3\xa4.", ShapeError);
}

TEST_CASE("a lack of memory has words where there was no memory for them") {
    CHECK_THROWS_WITH_AS(errors::raise(ErrorCode::out_of_memory, ""), detail::no_memory_text, OutOfMemory);
    CHECK_THROWS_WITH_AS(errors::raise(ErrorCode::out_of_memory, "no room"), "no room", OutOfMemory);
    CHECK_THROWS_WITH_AS(errors::raise(ErrorCode::io, ""), "", IoError);
}

TEST_CASE("any error is caught as Error and as std::exception") {
    CHECK_THROWS_AS(errors::raise(ErrorCode::io, "disk"), Error);
    CHECK_THROWS_AS(errors::raise(ErrorCode::io, "disk"), std::exception);
}

TEST_CASE("concat joins texts and integers of every width") {
    CHECK(errors::concat() == "");
    CHECK(errors::concat("rank ", 3, " of ", std::string("8"), std::string_view("!")) == "rank 3 of 8!");
    CHECK(errors::concat(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
    CHECK(errors::concat(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
    CHECK(errors::concat(std::int8_t{-5}, ' ' == 32 ? "" : "x", std::uint8_t{200}) == "-5200");
}
