// SPDX-License-Identifier: Apache-2.0
// The test double of fake_cuda_runtime.hpp. Nothing here is CUDA's own; only the declarations are.
#include "support/fake_cuda_runtime.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fake = reshard::test::fake_runtime;

namespace {

std::mutex counts_mutex;
fake::Counts counted;
std::atomic<int> allocations{0};
std::atomic<int> events{0};
std::atomic<fake::Elsewhere> elsewhere{fake::Elsewhere::current_device};
std::atomic<bool> peer_access{true};
constexpr int devices = 8;
std::atomic<int> held[devices];  // holds in streams of each

template <class Body>
void count(Body&& body) {
    std::lock_guard const lock(counts_mutex);
    body(counted);
}

struct Fault {
    std::string call;
    int code;
    int skipped;
};
thread_local std::vector<Fault> faults;

thread_local int last_error = cudaSuccess;

/// As CUDA: what fails is remembered, until somebody asks. An event that is not ready is no failure.
cudaError_t failed(cudaError_t code) {
    if (code != cudaSuccess && code != cudaErrorNotReady) fake::set_last_error(code);
    return code;
}
cudaError_t failing(char const* call) { return failed(static_cast<cudaError_t>(fake::fault(call))); }

// ---- Guarded memory ------------------------------------------------------------------------------------------------

/// Addresses that are out of reach unless somebody opens them.
class Arena {
public:
    void* allocate(std::size_t bytes) {
        std::lock_guard const lock(mutex_);
        if (base_ == nullptr) {
            int const access = opened_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
            void* const memory = ::mmap(nullptr, size, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (memory == MAP_FAILED) return nullptr;
            base_ = static_cast<char*>(memory);
        }
        if (used_ + bytes > size) return nullptr;
        void* const memory = base_ + used_;
        used_ += (bytes + 511) / 256 * 256;
        ++live_;
        return memory;
    }
    bool deallocate(void* memory) {
        std::lock_guard const lock(mutex_);
        if (base_ == nullptr || memory < base_ || memory >= base_ + size) return false;
        if (--live_ == 0) used_ = 0;
        return true;
    }
    void open() {
        std::lock_guard const lock(mutex_);
        if (base_ != nullptr && opened_ == 0 && ::mprotect(base_, size, PROT_READ | PROT_WRITE) != 0) std::abort();
        ++opened_;
    }
    void close() {
        std::lock_guard const lock(mutex_);
        --opened_;
        if (base_ != nullptr && opened_ == 0 && ::mprotect(base_, size, PROT_NONE) != 0) std::abort();
    }

private:
    static constexpr std::size_t size = std::size_t{1} << 30;
    std::mutex mutex_;
    char* base_ = nullptr;
    std::size_t used_ = 0;
    int live_ = 0;
    int opened_ = 0;
};
Arena arena;
std::atomic<bool> guards{false};

/// What runs on the device.
template <class Body>
auto opened(Body&& body) {
    if (!guards) return body();
    struct Opened {
        Opened() { arena.open(); }
        Opened(Opened const&) = delete;
        Opened& operator=(Opened const&) = delete;
        ~Opened() { arena.close(); }
    } const opened;
    return body();
}

// ---- Streams -----------------------------------------------------------------------------------------------------

/// Whether it is complete.
using Task = std::function<bool()>;

/// Outlives its handle while events refer to it. Progresses when anybody asks, one at a time.
struct Work {
    std::mutex mutex;
    std::deque<Task> tasks;
    std::uint64_t enqueued = 0;
    std::atomic<std::uint64_t> completed{0};
    std::atomic<bool> running{false};

    std::uint64_t add(Task task) {
        std::lock_guard const lock(mutex);
        tasks.push_back(std::move(task));
        return ++enqueued;
    }
    [[nodiscard]] bool empty() {
        std::lock_guard const lock(mutex);
        return tasks.empty();
    }
    void progress() {
        if (running.exchange(true)) return;  // by another thread, or further up: a stream that waits for another
        for (;;) {
            Task* next = nullptr;
            {
                std::lock_guard const lock(mutex);
                if (!tasks.empty()) next = &tasks.front();  // others only add behind it
            }
            if (next == nullptr || !(*next)()) break;
            std::lock_guard const lock(mutex);
            tasks.pop_front();
            ++completed;
        }
        running = false;
    }
};

/// A place in a stream.
struct Mark {
    std::shared_ptr<Work> work;
    std::uint64_t at = 0;

    [[nodiscard]] bool reached() const {
        if (work) work->progress();
        return !work || work->completed >= at;
    }
};

}  // namespace

struct CUstream_st {
    std::shared_ptr<Work> work = std::make_shared<Work>();
};
struct CUevent_st {
    std::mutex mutex;
    Mark mark;

    [[nodiscard]] Mark now() {
        std::lock_guard const lock(mutex);
        return mark;
    }
};

namespace {

thread_local int current_device = 0;

Work& work_of(cudaStream_t stream) {
    thread_local CUstream_st default_stream;
    if (stream != nullptr) return *stream->work;
    count([](auto& c) { ++c.default_stream; });
    return *default_stream.work;
}

struct Claim {
    std::size_t bytes;
    int device;
};
std::mutex claims_mutex;
std::map<std::uintptr_t, Claim> claims;
std::map<std::pair<int, int>, bool> open_peers;

void* allocate(std::size_t bytes, int device) {
    void* const memory = device >= 0 && guards ? arena.allocate(bytes) : std::malloc(std::max<std::size_t>(bytes, 1));
    ++allocations;
    fake::claim(memory, bytes, device);
    return memory;
}
void deallocate(void* memory) {
    if (memory == nullptr) return;
    if (held[current_device % devices] > 0) count([](auto& c) { ++c.freed_while_held; });
    {
        std::lock_guard const lock(claims_mutex);
        claims.erase(reinterpret_cast<std::uintptr_t>(memory));
    }
    --allocations;
    if (!arena.deallocate(memory)) std::free(memory);
}

constexpr std::size_t copied_at_most = std::size_t{1} << 30;  // longer copies are only counted

cudaError_t copied(char const* call, cudaStream_t stream, Task task) {
    if (cudaError_t const code = failing(call); code != cudaSuccess) return code;
    count([](auto& c) { ++c.copies; });
    work_of(stream).add([task = std::move(task)] { return opened(task); });
    return cudaSuccess;
}

}  // namespace

// ---- What tests ask ----------------------------------------------------------------------------------------------

namespace reshard::test::fake_runtime {

Counts counts() {
    std::lock_guard const lock(counts_mutex);
    return counted;
}
void reset() {
    elsewhere = Elsewhere::current_device;
    peer_access = true;
    {
        std::lock_guard const lock(claims_mutex);
        open_peers.clear();
    }
    std::lock_guard const lock(counts_mutex);
    counted = {};
}
int live_allocations() { return allocations; }
int live_events() { return events; }
void fail(char const* call, int code, int skipped) { faults.push_back({call, code, skipped}); }
void set_last_error(int code) { last_error = code; }
int fault(char const* call) {
    for (auto it = faults.begin(); it != faults.end(); ++it) {
        if (it->call != call || it->skipped-- > 0) continue;
        int const code = it->code;
        faults.erase(it);
        return code;
    }
    return 0;
}
void claim(void const* memory, std::size_t bytes, int device) {
    std::lock_guard const lock(claims_mutex);
    claims[reinterpret_cast<std::uintptr_t>(memory)] = {bytes, device};
}
void set_elsewhere(Elsewhere kind) { elsewhere = kind; }
void set_peer_access(bool possible) { peer_access = possible; }
void hold(cudaStream_t stream, std::atomic<bool> const& until) {
    struct Held {
        std::atomic<int>& holds;
        explicit Held(int device) : holds(held[device % devices]) { ++holds; }
        Held(Held const&) = delete;
        Held& operator=(Held const&) = delete;
        ~Held() { --holds; }
    };
    add_task(stream, [&until, here = std::make_shared<Held>(current_device)] { return until.load(); });
}
void guard_device_memory(bool on) { guards = on; }
void on_device(std::function<void()> const& body) { opened(body); }
void enqueue(cudaStream_t stream, std::function<void()> kernel) {
    add_task(stream, [kernel = std::move(kernel)] {
        opened(kernel);
        return true;
    });
}
void finish(cudaStream_t stream) {
    while (!work_of(stream).empty()) work_of(stream).progress();
}
void add_task(cudaStream_t stream, std::function<bool()> task) { work_of(stream).add(std::move(task)); }

}  // namespace reshard::test::fake_runtime

// ---- The CUDA runtime --------------------------------------------------------------------------------------------

extern "C" {

cudaError_t cudaGetDevice(int* device) {
    *device = current_device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
    *count = devices;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    current_device = device;
    return cudaSuccess;
}
char const* cudaGetErrorName(cudaError_t code) {
    return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOfTheDouble";
}
char const* cudaGetErrorString(cudaError_t) { return "an error of the test double"; }
cudaError_t cudaGetLastError() { return static_cast<cudaError_t>(std::exchange(last_error, int{cudaSuccess})); }
cudaError_t cudaPeekAtLastError() { return static_cast<cudaError_t>(last_error); }

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    if (cudaError_t const code = failing("cudaDeviceCanAccessPeer"); code != cudaSuccess) return code;
    *can = device != peer && peer_access ? 1 : 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    if (cudaError_t const code = failing("cudaDeviceEnablePeerAccess"); code != cudaSuccess) return code;
    if (!peer_access) return failed(cudaErrorPeerAccessUnsupported);
    {
        std::lock_guard const lock(claims_mutex);
        if (std::exchange(open_peers[{current_device, peer}], true)) {
            return failed(cudaErrorPeerAccessAlreadyEnabled);
        }
    }
    count([](auto& c) { ++c.opened_peers; });
    return cudaSuccess;
}
// The pool of a device is known by its number, from 1.
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
    if (cudaError_t const code = failing("cudaDeviceGetMemPool"); code != cudaSuccess) return code;
    *pool = reinterpret_cast<cudaMemPool_t>(static_cast<std::uintptr_t>(device) + 1);
    return cudaSuccess;
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, cudaMemAccessDesc const* access, std::size_t number) {
    if (cudaError_t const code = failing("cudaMemPoolSetAccess"); code != cudaSuccess) return code;
    int const owner = static_cast<int>(reinterpret_cast<std::uintptr_t>(pool)) - 1;
    for (std::size_t i = 0; i < number; ++i) {
        std::lock_guard const lock(claims_mutex);
        auto const& [location, flags] = access[i];
        bool const right = location.type == cudaMemLocationTypeDevice && flags == cudaMemAccessFlagsProtReadWrite;
        if (!right || open_peers.count({location.id, owner}) == 0) return failed(cudaErrorInvalidDevice);
    }
    count([](auto& c) { ++c.opened_pools; });
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    if (cudaError_t const code = failing("cudaMalloc"); code != cudaSuccess) return code;
    count([](auto& c) { ++c.device_allocations; });
    *memory = allocate(bytes, current_device);
    return cudaSuccess;
}
// Never out of the host's reach.
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned) {
    if (cudaError_t const code = failing("cudaMallocManaged"); code != cudaSuccess) return code;
    *memory = allocate(bytes, fake::managed);
    return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
    deallocate(memory);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
    if (cudaError_t const code = failing("cudaMallocHost"); code != cudaSuccess) return code;
    count([](auto& c) { ++c.pinned_allocations; });
    *memory = allocate(bytes, fake::pinned_host);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
    deallocate(memory);
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* memory) {
    if (cudaError_t const code = failing("cudaPointerGetAttributes"); code != cudaSuccess) return code;
    *attributes = {};
    auto const address = reinterpret_cast<std::uintptr_t>(memory);
    int device = current_device;
    if (elsewhere == fake::Elsewhere::pageable) device = fake::pageable_host;
    if (elsewhere == fake::Elsewhere::mixed && address / 16 % 3 != 0) device = -static_cast<int>(address / 16 % 3);
    {
        std::lock_guard const lock(claims_mutex);
        auto it = claims.upper_bound(address);
        if (it != claims.begin() && address < (--it)->first + it->second.bytes) device = it->second.device;
    }
    bool const pinned = device == fake::pinned_host || device == fake::unmapped_host;
    attributes->type = device == fake::pageable_host ? cudaMemoryTypeUnregistered
                       : pinned                      ? cudaMemoryTypeHost
                       : device == fake::managed     ? cudaMemoryTypeManaged
                                                     : cudaMemoryTypeDevice;
    attributes->device = device == fake::managed ? current_device : device;
    if (device != fake::pageable_host && device != fake::unmapped_host)
        attributes->devicePointer = const_cast<void*>(memory);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    *stream = new CUstream_st;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    while (!work_of(stream).empty()) {
        work_of(stream).progress();
        std::this_thread::yield();
    }
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    if (cudaError_t const code = failing("cudaStreamQuery"); code != cudaSuccess) return code;
    work_of(stream).progress();
    return work_of(stream).empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (cudaError_t const code = failing("cudaStreamWaitEvent"); code != cudaSuccess) return code;
    work_of(stream).add([mark = event->now()] { return mark.reached(); });
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    if (cudaError_t const code = failing("cudaEventCreateWithFlags"); code != cudaSuccess) return code;
    *event = new CUevent_st;
    ++events;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    --events;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (cudaError_t const code = failing("cudaEventRecord"); code != cudaSuccess) return code;
    Work& work = work_of(stream);  // a task that does nothing keeps places apart
    std::uint64_t const at = work.add([] { return true; });
    std::lock_guard const lock(event->mutex);
    event->mark = {stream == nullptr ? nullptr : stream->work, at};
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (cudaError_t const code = failing("cudaEventQuery"); code != cudaSuccess) return code;
    return event->now().reached() ? cudaSuccess : cudaErrorNotReady;
}
[[gnu::weak]] cudaError_t cudaLaunchKernel(void const*, dim3, dim3, void**, std::size_t, cudaStream_t) {
    if (cudaError_t const code = failing("cudaLaunchKernel"); code != cudaSuccess) return code;
    count([](auto& c) { ++c.launches; });
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    if (cudaError_t const code = failing("cudaLaunchHostFunc"); code != cudaSuccess) return code;
    count([](auto& c) { ++c.host_functions; });
    work_of(stream).add([=] {
        function(data);
        return true;
    });
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    return copied("cudaMemcpyAsync", stream, [=] {
        if (bytes <= copied_at_most) std::memcpy(to, from, bytes);
        return true;
    });
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, void const* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t stream) {
    if (to_pitch < width || from_pitch < width) return cudaErrorInvalidPitchValue;
    return copied("cudaMemcpy2DAsync", stream, [=] {
        for (std::size_t i = 0; i != height; ++i) {
            std::memcpy(static_cast<char*>(to) + i * to_pitch, static_cast<char const*>(from) + i * from_pitch, width);
        }
        return true;
    });
}
cudaError_t cudaMemcpy3DAsync(cudaMemcpy3DParms const* parms, cudaStream_t stream) {
    cudaMemcpy3DParms const copy = *parms;
    auto const holds = [&](cudaPitchedPtr const& p) {
        return p.pitch >= copy.extent.width && (copy.extent.depth == 1 || p.ysize >= copy.extent.height);
    };
    if (!holds(copy.srcPtr) || !holds(copy.dstPtr)) return cudaErrorInvalidPitchValue;
    return copied("cudaMemcpy3DAsync", stream, [=] {
        auto const row = [](cudaPitchedPtr const& p, std::size_t z, std::size_t y) {
            return static_cast<char*>(p.ptr) + (z * p.ysize + y) * p.pitch;
        };
        for (std::size_t z = 0; z != copy.extent.depth; ++z) {
            for (std::size_t y = 0; y != copy.extent.height; ++y)
                std::memcpy(row(copy.dstPtr, z, y), row(copy.srcPtr, z, y), copy.extent.width);
        }
        return true;
    });
}

}  // extern "C"
