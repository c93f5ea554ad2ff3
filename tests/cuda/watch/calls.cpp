// SPDX-License-Identifier: Apache-2.0
// The functions that code compiled with -fsanitize=thread calls, in place of the sanitizer's. Not itself compiled so.
#include "cuda/watch/watch.hpp"

#include <cstdint>

// -----------------------------------------------------------------------------------------

// NOLINTBEGIN(bugprone-reserved-identifier)
#define RESHARD_WATCH(BYTES)                                                                                      \
    void __tsan_read##BYTES(void* at) {                                                                           \
        reshard::test::watch::touched(at, BYTES, reshard::test::watch::Kind::read, __builtin_return_address(0));  \
    }                                                                                                             \
    void __tsan_write##BYTES(void* at) {                                                                          \
        reshard::test::watch::touched(at, BYTES, reshard::test::watch::Kind::write, __builtin_return_address(0)); \
    }                                                                                                             \
    void __tsan_unaligned_read##BYTES(void* at) {                                                                 \
        reshard::test::watch::touched(at, BYTES, reshard::test::watch::Kind::read, __builtin_return_address(0));  \
    }                                                                                                             \
    void __tsan_unaligned_write##BYTES(void* at) {                                                                \
        reshard::test::watch::touched(at, BYTES, reshard::test::watch::Kind::write, __builtin_return_address(0)); \
    }

extern "C" {
RESHARD_WATCH(1)
RESHARD_WATCH(2)
RESHARD_WATCH(4)
RESHARD_WATCH(8)
RESHARD_WATCH(16)
void __tsan_read_range(void* at, unsigned long bytes) {
    reshard::test::watch::touched(at, bytes, reshard::test::watch::Kind::read, __builtin_return_address(0));
}
void __tsan_write_range(void* at, unsigned long bytes) {
    reshard::test::watch::touched(at, bytes, reshard::test::watch::Kind::write, __builtin_return_address(0));
}
// Of the test's own host code: kernels have Block's.
#define RESHARD_ATOMIC(BITS)                                                                                        \
    std::uint##BITS##_t __tsan_atomic##BITS##_load(void const volatile* at, int) {                                  \
        return __atomic_load_n(static_cast<std::uint##BITS##_t const volatile*>(at), __ATOMIC_SEQ_CST);             \
    }                                                                                                               \
    void __tsan_atomic##BITS##_store(void volatile* at, std::uint##BITS##_t value, int) {                           \
        __atomic_store_n(static_cast<std::uint##BITS##_t volatile*>(at), value, __ATOMIC_SEQ_CST);                  \
    }                                                                                                               \
    std::uint##BITS##_t __tsan_atomic##BITS##_fetch_add(void volatile* at, std::uint##BITS##_t value, int) {        \
        return __atomic_fetch_add(static_cast<std::uint##BITS##_t volatile*>(at), value, __ATOMIC_SEQ_CST);         \
    }                                                                                                               \
    int __tsan_atomic##BITS##_compare_exchange_strong(void volatile* at, void* expected, std::uint##BITS##_t value, \
                                                      int, int) {                                                   \
        return __atomic_compare_exchange_n(static_cast<std::uint##BITS##_t volatile*>(at),                          \
                                           static_cast<std::uint##BITS##_t*>(expected), value, false,               \
                                           __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)                                      \
                   ? 1                                                                                              \
                   : 0;                                                                                             \
    }
RESHARD_ATOMIC(8)
RESHARD_ATOMIC(32)
RESHARD_ATOMIC(64)
#undef RESHARD_ATOMIC
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
}
#undef RESHARD_WATCH
// NOLINTEND(bugprone-reserved-identifier)
