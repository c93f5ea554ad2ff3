// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/memory/scratch.hpp.
#include <reshard/memory/scratch.hpp>

#include <doctest/doctest.h>

#include <support/allocations.hpp>

#include <cstdint>
#include <fstream>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {
using namespace reshard;
std::uintptr_t address(Scratch const& scratch) { return reinterpret_cast<std::uintptr_t>(scratch.data()); }

#if defined(__linux__) && defined(MADV_HUGEPAGE)
/// Whether large pages were asked for at this address, as the system says.
bool wants_large_pages(std::byte const* address) {
    auto const at = reinterpret_cast<std::uintptr_t>(address);
    std::ifstream maps("/proc/self/smaps");
    bool here = false;
    for (std::string line; std::getline(maps, line);) {
        std::size_t dash = 0;
        std::size_t end = 0;
        if (line.find(' ') != std::string::npos && line.find('-') < line.find(' ')) {  // begin-end permissions ...
            std::uintptr_t const begin = std::stoull(line, &dash, 16);
            here = begin <= at && at < begin + (std::stoull(line.substr(dash + 1), &end, 16) - begin);
        }
        if (here && line.starts_with("VmFlags:")) return (line + ' ').find(" hg ") != std::string::npos;
    }
    return false;
}

/// Fresh pages, from a multiple of 2 MiB on.
class FreshPages {
public:
    static constexpr std::size_t large = detail::large_page;
    explicit FreshPages(std::size_t large_pages) : bytes_((large_pages + 1) * large) {
        mapped_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(mapped_ != MAP_FAILED);
        auto* const begin = static_cast<std::byte*>(mapped_);
        data_ = begin + (large - reinterpret_cast<std::uintptr_t>(begin) % large) % large;
    }
    FreshPages(FreshPages const&) = delete;
    FreshPages& operator=(FreshPages const&) = delete;
    ~FreshPages() { ::munmap(mapped_, bytes_); }
    [[nodiscard]] std::byte* data() const noexcept { return data_; }

private:
    std::size_t bytes_;
    void* mapped_ = nullptr;
    std::byte* data_ = nullptr;
};
#endif
}  // namespace

TEST_SUITE("memory/scratch") {
    TEST_CASE("has the bytes that were asked for, aligned, and can be written to the end") {
        for (Index bytes : {Index{1}, Index{63}, Index{64}, Index{4096}, Index{1} << 21, (Index{1} << 22) - 1,
                            Index{1} << 22, (Index{3} << 21) + 12345}) {
            CAPTURE(bytes);
            Scratch const scratch(bytes);
            CHECK(scratch.size() == bytes);
            CHECK(address(scratch) % 64 == 0);
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

#if defined(__linux__) && defined(MADV_HUGEPAGE)
    TEST_CASE("large pages are asked for where there is room for whole ones, and nowhere else") {
        constexpr std::size_t large = FreshPages::large;
        {
            FreshPages const probe(1);
            if (::madvise(probe.data(), large, MADV_HUGEPAGE) != 0 || !wants_large_pages(probe.data())) {
                MESSAGE("skipped: this system has no large pages, or does not say so");
                return;
            }
        }
        FreshPages const pages(4);
        std::byte* const data = pages.data();
        // From inside the first large page to inside the last: the two between.
        data[0] = std::byte{5};
        detail::prefer_large_pages(data + 4096, 4 * large - 8192);
        CHECK_FALSE(wants_large_pages(data));
        CHECK_FALSE(wants_large_pages(data + large - 1));
        CHECK(wants_large_pages(data + large));
        CHECK(wants_large_pages(data + 3 * large - 1));
        CHECK_FALSE(wants_large_pages(data + 3 * large));
        CHECK(data[0] == std::byte{5});
        data[2 * large] = std::byte{6};
        CHECK(data[2 * large] == std::byte{6});

        FreshPages const small(3);
        detail::prefer_large_pages(small.data() + 1, 2 * large - 2);  // no whole page
        detail::prefer_large_pages(small.data(), large - 1);
        detail::prefer_large_pages(small.data(), 0);
        detail::prefer_large_pages(nullptr, 0);
        CHECK_FALSE(wants_large_pages(small.data()));
        CHECK_FALSE(wants_large_pages(small.data() + large));
        detail::prefer_large_pages(small.data() + large, large);  // one, exactly
        CHECK_FALSE(wants_large_pages(small.data()));
        CHECK(wants_large_pages(small.data() + large));
        CHECK_FALSE(wants_large_pages(small.data() + 2 * large));
    }
#endif

    TEST_CASE("memory that nobody has is an exception") {
        test::allocation_counter().refused_from = 1000;
        CHECK_THROWS_AS(static_cast<void>(Scratch(1000)), OutOfMemory);
        CHECK_THROWS_AS(static_cast<void>(Scratch(Index{1} << 25)), OutOfMemory);
        CHECK_NOTHROW(static_cast<void>(Scratch(999)));
        test::allocation_counter().refused_from = SIZE_MAX;
    }
}
