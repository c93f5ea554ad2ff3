// SPDX-License-Identifier: Apache-2.0
/// \file   tests/cuda/device/device_test.cuh
/// \brief  What device tests need of a test framework, in few lines: machines with a GPU may have no doctest.
///
///     DEVICE_TEST("sentence") { CHECK(a == b); CHECK_THROWS(ShapeError, f()); }
///     int main() { return reshard::test::run_device_tests(); }
///
/// A program per file. Without a GPU it says so and returns 77, which ctest counts as skipped.
#pragma once

#include <reshard/memory/cuda_call.hpp>

#include <cuda_runtime.h>  // nvcc puts it before .cu files only

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace reshard::test {

/// Whether sizes should suit a checker that takes a hundred times as long: RESHARD_DEVICE_SMALL is set.
inline bool small_sizes() { return std::getenv("RESHARD_DEVICE_SMALL") != nullptr; }
/// 1 ... count, or a few where sizes should be small.
inline std::vector<std::uint64_t> device_seeds(int count) {
    std::vector<std::uint64_t> list;
    for (int seed = 1; seed <= (small_sizes() ? (count + 14) / 15 : count); ++seed) {
        list.push_back(static_cast<std::uint64_t>(seed));
    }
    return list;
}

struct DeviceTest {
    char const* name;
    void (*body)();
};
inline std::vector<DeviceTest>& device_tests() {
    static std::vector<DeviceTest> list;
    return list;
}
struct AddDeviceTest {
    AddDeviceTest(char const* name, void (*body)()) { device_tests().push_back({name, body}); }
};
inline std::atomic<int>& failures() {
    static std::atomic<int> count = 0;
    return count;
}
/// What a failure prints beside its line: seeds and sizes of the case at hand.
inline std::string& device_case() {
    static std::string text;
    return text;
}
inline bool report_check(bool passed, char const* text, char const* file, int line) {
    if (passed) return true;
    if (++failures() <= 20) std::printf("%s:%d: FAILED %s %s\n", file, line, text, device_case().c_str());
    return false;
}

inline int run_device_tests() {
    int devices = 0;
    if (cudaError_t const error = cudaGetDeviceCount(&devices); error != cudaSuccess || devices == 0) {
        std::printf("No GPU here (%s): %zu device tests were skipped.\n", cudaGetErrorString(error),
                    device_tests().size());
        return 77;
    }
    for (DeviceTest const& test : device_tests()) {
        int const before = failures().load();
        device_case().clear();
        try {
            test.body();
            detail::cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        } catch (std::exception const& error) {
            report_check(false, error.what(), test.name, 0);
        }
        std::printf("%-6s %s\n", failures() == before ? "ok" : "FAILED", test.name);
    }
    std::printf("%zu device tests, %d checks failed\n", device_tests().size(), failures().load());
    return failures() == 0 ? 0 : 1;
}

#define RESHARD_JOIN_2(a, b) a##b
#define RESHARD_JOIN(a, b) RESHARD_JOIN_2(a, b)
#define DEVICE_TEST(name)                                                                                         \
    static void RESHARD_JOIN(device_test_, __LINE__)();                                                           \
    static reshard::test::AddDeviceTest const RESHARD_JOIN(add_, __LINE__){name,                                  \
                                                                           RESHARD_JOIN(device_test_, __LINE__)}; \
    static void RESHARD_JOIN(device_test_, __LINE__)()
#define CHECK(...) reshard::test::report_check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
#define CHECK_THROWS(type, ...)                                                                 \
    do {                                                                                        \
        bool thrown = false;                                                                    \
        try {                                                                                   \
            __VA_ARGS__;                                                                        \
        } catch (type const&) {                                                                 \
            thrown = true;                                                                      \
        }                                                                                       \
        reshard::test::report_check(thrown, #__VA_ARGS__ " throws " #type, __FILE__, __LINE__); \
    } while (false)

// ---- Memory ------------------------------------------------------------------------------------------------------

/// Device memory with known bytes on both sides. Filled when the constructor returns: neither cudaMemset nor a copy
/// from pageable memory waits for the device, and the streams of tests do not wait for the default one.
template <class T>
class DeviceArray {
public:
    static constexpr std::size_t guard = 256;
    explicit DeviceArray(std::size_t count = 0) : bytes_(count * sizeof(T)) {
        detail::cuda_check(cudaMalloc(&memory_, bytes_ + 2 * guard + 256), "cudaMalloc");
        detail::cuda_check(cudaMemset(memory_, 0xa5, bytes_ + 2 * guard + 256), "cudaMemset");
        detail::cuda_check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    }
    explicit DeviceArray(std::vector<T> const& values) : DeviceArray(values.size()) {
        detail::cuda_check(cudaMemcpy(data(), values.data(), bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
        detail::cuda_check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    }
    DeviceArray(DeviceArray const&) = delete;
    DeviceArray& operator=(DeviceArray const&) = delete;
    ~DeviceArray() { cudaFree(memory_); }

    [[nodiscard]] T* data() const { return reinterpret_cast<T*>(memory_ + guard); }
    [[nodiscard]] std::size_t size() const { return bytes_ / sizeof(T); }
    [[nodiscard]] std::span<T> span() const { return {data(), size()}; }
    [[nodiscard]] std::vector<T> host(std::size_t count) const {
        std::vector<T> values(count);
        detail::cuda_check(cudaMemcpy(values.data(), data(), count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
        return values;
    }
    [[nodiscard]] std::vector<T> host() const { return host(size()); }
    /// Whether nothing but [0, bytes) was written.
    [[nodiscard]] bool is_intact(std::size_t bytes) const {
        std::vector<unsigned char> all(bytes_ + 2 * guard + 256);
        detail::cuda_check(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        for (std::size_t i = 0; i != all.size(); ++i) {
            if ((i < guard || i >= guard + bytes) && all[i] != 0xa5) return false;
        }
        return true;
    }

private:
    std::byte* memory_ = nullptr;
    std::size_t bytes_;
};

/// A stream that does not wait for the default one: work that strays there shows.
class Stream {
public:
    Stream() { detail::cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
    Stream(Stream const&) = delete;
    Stream& operator=(Stream const&) = delete;
    ~Stream() { cudaStreamDestroy(stream_); }
    operator cudaStream_t() const { return stream_; }
    void wait() const { detail::cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

private:
    cudaStream_t stream_ = nullptr;
};

}  // namespace reshard::test
