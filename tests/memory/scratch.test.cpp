// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/memory/scratch.hpp.
#include <reshard/memory/scratch.hpp>

#include <doctest/doctest.h>

#include <support/allocations.hpp>

#include <cstdint>

namespace {
using namespace reshard;
std::uintptr_t address(Scratch const& scratch) { return reinterpret_cast<std::uintptr_t>(scratch.data()); }
}  // namespace

TEST_SUITE("memory/scratch") {
    TEST_CASE("has the bytes that were asked for, aligned, and can be written to the end") {
        for (Index bytes : {Index{1}, Index{63}, Index{64}, Index{4096}, Index{1} << 21, (Index{1} << 22) - 1,
                            Index{1} << 22, (Index{3} << 21) + 12345}) {
            CAPTURE(bytes);
            Scratch const scratch(bytes);
            CHECK(scratch.size() == bytes);
            CHECK(address(scratch) % 64 == 0);
            CHECK((bytes < Index{1} << 22 || address(scratch) % Scratch::large_page == 0));
            for (Index at = 0; at < bytes; at += 4096) scratch.data()[at] = std::byte{7};
            scratch.bytes().back() = std::byte{9};
            CHECK(static_cast<Index>(scratch.words().size()) == bytes / 8);
        }
    }

    TEST_CASE("nothing is nothing, and memory moves with its owner") {
        Scratch nothing(0);
        CHECK(nothing.data() == nullptr);
        CHECK(nothing.words().empty());
        Scratch first(100);
        std::byte* const data = first.data();
        Scratch second(std::move(first));
        CHECK(second.data() == data);
        second = Scratch(200);
        CHECK(second.size() == 200);
        nothing = std::move(second);
        CHECK(nothing.size() == 200);
    }

    TEST_CASE("memory that nobody has is an exception") {
        test::allocation_counter().refused_from = 1000;
        CHECK_THROWS_AS(static_cast<void>(Scratch(1000)), std::bad_alloc);
        CHECK_THROWS_AS(static_cast<void>(Scratch(Index{1} << 25)), std::bad_alloc);
        CHECK_NOTHROW(static_cast<void>(Scratch(999)));
        test::allocation_counter().refused_from = SIZE_MAX;
    }
}
