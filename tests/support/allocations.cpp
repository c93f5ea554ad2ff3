// SPDX-License-Identifier: Apache-2.0
#include "allocations.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace reshard::test {
AllocationCounter& allocation_counter() noexcept {
    thread_local AllocationCounter counter;
    return counter;
}
}  // namespace reshard::test

namespace {
void* allocate(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) {
    auto& counter = reshard::test::allocation_counter();
    if (counter.counting) ++counter.allocations;
    if (size >= counter.refused_from && counter.granted-- <= 0) {
        ++counter.refused;
        if (counter.once) counter.refused_from = SIZE_MAX;
        throw std::bad_alloc();
    }
    if (size >= std::size_t{1} << 40) throw std::bad_alloc();  // sanitizers would end the program instead
    std::size_t const rounded = (size + alignment - 1) / alignment * alignment;
    void* const memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
}  // namespace

namespace {
void* try_to_allocate(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) noexcept {
    try {
        return allocate(size, alignment);
    } catch (std::bad_alloc const&) {
        return nullptr;
    }
}
}  // namespace

// The forms that are not here call these; those that do not throw have operators of their own in sanitisers. Not
// inlined: the compiler would take new and free() for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) { return allocate(size); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void* operator new(std::size_t size, std::nothrow_t const&) noexcept { return try_to_allocate(size); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment, std::nothrow_t const&) noexcept {
    return try_to_allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory, std::nothrow_t const&) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t, std::nothrow_t const&) noexcept {
    std::free(memory);
}
