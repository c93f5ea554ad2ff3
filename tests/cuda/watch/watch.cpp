// SPDX-License-Identifier: Apache-2.0
// What is made of the accesses of kernels: see watch.hpp.
#include "cuda/watch/watch.hpp"

#include <reshard/core/error.hpp>
#include <reshard/cuda/detail/block.hpp>

#include <cxxabi.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iomanip>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace reshard::test::watch {
namespace {

using Address = std::uintptr_t;

// ---- What has been found, by all threads of the host
// -----------------------------------------------------------------

struct Findings {
    std::mutex mutex;
    std::map<std::string, Traffic> kernels;
    std::vector<std::string> faults;
    std::set<std::tuple<std::string, std::string, Address>> known;  ///< kernel, kind of fault, instruction
};
Findings& findings() {
    static Findings all;
    return all;
}

/// Once for each kernel, kind and instruction.
void add_fault(std::string const& kernel, std::string const& kind, Address pc, std::string const& what) {
    Findings& all = findings();
    std::lock_guard const lock(all.mutex);
    if (all.known.insert({kernel, kind, pc}).second)
        all.faults.push_back(errors::concat(kernel, ": ", kind, ": ", what));
}

/// Which bytes of allocated memory have been written. Memory that tests claim holds what they wrote there.
class WrittenBytes final : public MemoryWatcher {
public:
    WrittenBytes() { HostDevice::watcher = this; }
    void allocated(void const* memory, Index bytes) override {
        std::lock_guard const lock(mutex_);
        regions_[reinterpret_cast<Address>(memory)].assign(static_cast<std::size_t>(bytes), false);
    }
    void freed(void const* memory) override {
        std::lock_guard const lock(mutex_);
        regions_.erase(reinterpret_cast<Address>(memory));
    }
    void filled(void const* memory, Index bytes) override {
        static_cast<void>(visit(reinterpret_cast<Address>(memory), static_cast<std::size_t>(bytes), true));
    }
    void read(std::string const& who, void const* memory, Index bytes) override {
        if (visit(reinterpret_cast<Address>(memory), static_cast<std::size_t>(bytes), false)) return;
        add_fault(who, "never written", 0, errors::concat("among ", bytes, " bytes of global memory"));
    }
    /// Whether all of these bytes have been written; from now on they are, if `writes`.
    bool visit(Address at, std::size_t bytes, bool writes) {
        std::lock_guard const lock(mutex_);
        auto region = regions_.upper_bound(at);
        if (region == regions_.begin()) return true;
        --region;
        bool all = true;
        for (std::size_t i = 0; i < bytes; ++i) {
            std::size_t const offset = at - region->first + i;
            if (offset >= region->second.size()) break;
            all = all && region->second[offset];
            if (writes) region->second[offset] = true;
        }
        return all;
    }

private:
    std::mutex mutex_;
    std::map<Address, std::vector<bool>> regions_;
};
WrittenBytes written_bytes;

// ---- One launch
// ------------------------------------------------------------------------------------------------------

/// When and by whom memory was touched.
struct Moment {
    std::int32_t block = -1;
    std::int16_t thread = 0;
    std::int16_t stage = 0;  ///< between barriers of the warp
    std::int32_t phase = 0;

    [[nodiscard]] bool happened() const noexcept { return block >= 0; }
    /// Whether nothing puts the two in order.
    [[nodiscard]] bool meets(Moment const& other) const noexcept {
        if (!happened()) return false;
        if (block != other.block) return true;
        if (phase != other.phase || thread == other.thread) return false;
        return detail::warp_of(thread) != detail::warp_of(other.thread) || stage == other.stage;
    }
};
/// Who has read a byte, or added to it: as many of them as it takes to know whether one is not ordered before now.
struct Trail {
    Moment last;
    Moment thread;  ///< the last of another thread than `last`
    Moment warp;    ///< the last of another warp
    Moment block;   ///< one of another block: they run one after the other

    void add(Moment const& now) {
        if (last.happened()) {
            if (last.block != now.block) block = last;
            if (last.thread != now.thread) thread = last;
            if (detail::warp_of(last.thread) != detail::warp_of(now.thread)) warp = last;
        }
        last = now;
    }
    [[nodiscard]] Moment const* meeting(Moment const& now) const {
        for (Moment const* each : {&last, &thread, &warp, &block})
            if (each->meets(now)) return each;
        return nullptr;
    }
};
/// What is known of 64 bytes.
struct Line {
    std::array<Moment, 64> written;
    std::array<Trail, 64> read;
    std::unique_ptr<std::array<Trail, 64>> atomic;  ///< null: nobody has
};

struct Access {
    Address pc;
    Address at;
    std::uint32_t bytes;
    int thread;
    bool shared;
    Kind kind;
    std::uint32_t nth = 0;  ///< time that the thread executes this instruction
};

struct UnderWay {
    Traffic traffic;
    HostDevice const* device = nullptr;
    Moment now;
    int warp_stage = 0;
    Address shared = 0;
    std::vector<bool> shared_written;
    std::unordered_map<Address, Line> lines;
    std::unordered_set<Address> sectors_read;  ///< of the launch
    std::unordered_set<Address> sectors_written;
    std::vector<Access> accesses;  ///< of the phase
    Address state = 0;
    std::size_t state_bytes = 0;
    bool is_watching = false;

    void fault(std::string const& kind, Address pc, std::string const& what) const {
        add_fault(traffic.kernel, kind, pc, what);
    }
    /// Also what begins just behind it, which is Garbage's.
    [[nodiscard]] bool is_shared(Address at) const noexcept {
        return shared != 0 && at >= shared && at < shared + shared_written.size() + guard_bytes;
    }

    void touch(Address at, std::size_t size, Kind kind, Address pc) {
        if (at >= state && at < state + state_bytes) return;
        bool const in_shared = is_shared(at);
        auto const where = [&] {
            return errors::concat(
                size, " bytes ",
                in_shared ? errors::concat("at ", at - shared, " of shared memory") : "of global memory", " by thread ",
                now.thread, " of block ", now.block, " in phase ", now.phase);
        };
        if (at % size != 0) fault("misaligned", pc, where());
        if (in_shared) {
            bool all = true;
            for (std::size_t i = 0; i < size; ++i) {
                std::size_t const offset = at - shared + i;
                if (offset >= shared_written.size()) {
                    fault("outside", pc, where());
                    return;
                }
                all = all && shared_written[offset];
                if (kind != Kind::read) shared_written[offset] = true;
            }
            if (!all && kind != Kind::write) fault("never written", pc, where());
        } else {
            if (device != nullptr && !device->has(reinterpret_cast<void const*>(at), static_cast<Index>(size))) {
                fault("outside", pc, where());
                return;
            }
            bool const all = written_bytes.visit(at, size, kind != Kind::read);
            if (!all && kind != Kind::write) fault("never written", pc, where());
        }
        Line* line = nullptr;
        for (std::size_t i = 0; i < size; ++i) {
            if (line == nullptr || (at + i) % 64 == 0) line = &lines[(at + i) / 64];
            std::size_t const place = (at + i) % 64;
            Moment const* other = line->written[place].meets(now) ? &line->written[place] : nullptr;
            if (other == nullptr && kind != Kind::atomic && line->atomic) other = (*line->atomic)[place].meeting(now);
            if (other == nullptr && kind != Kind::read) other = line->read[place].meeting(now);
            if (other != nullptr) {
                fault("race", pc,
                      errors::concat(where(), ", and by thread ", other->thread, " of block ", other->block));
                return;
            }
            if (kind == Kind::write) line->written[place] = now;
            if (kind == Kind::read) line->read[place].add(now);
            if (kind == Kind::atomic) {
                if (!line->atomic) line->atomic = std::make_unique<std::array<Trail, 64>>();
                (*line->atomic)[place].add(now);
            }
        }
        accesses.push_back({pc, at, static_cast<std::uint32_t>(size), now.thread, in_shared, kind});
    }

    // ---- Requests: what the lanes of a warp do at once

    void count_global(std::span<Access const> lanes) {
        std::vector<Address> touched;
        std::vector<Address> sectors;
        for (Access const& lane : lanes) {
            for (Address byte = lane.at; byte < lane.at + lane.bytes; ++byte) touched.push_back(byte);
            for (Address sector = lane.at / 32; sector <= (lane.at + lane.bytes - 1) / 32; ++sector) {
                sectors.push_back(sector);
            }
        }
        for (std::vector<Address>* list : {&touched, &sectors}) {
            std::sort(list->begin(), list->end());
            list->erase(std::unique(list->begin(), list->end()), list->end());
        }
        (lanes[0].kind == Kind::read ? traffic.read : traffic.written) += static_cast<Index>(touched.size());
        traffic.sectors += static_cast<Index>(sectors.size());
        (lanes[0].kind == Kind::read ? sectors_read : sectors_written).insert(sectors.begin(), sectors.end());
    }
    /// 128 bytes at a time: lanes with elements of 8 bytes in two halves, of 16 bytes in four quarters.
    void count_shared(std::span<Access const> lanes) {
        int const at_once = lanes[0].bytes <= 4 ? 32 : lanes[0].bytes <= 8 ? 16 : 8;
        for (int first = 0; first < detail::warp_threads; first += at_once) {
            std::map<Address, std::set<Address>> words;  // of each bank
            for (Access const& lane : lanes) {
                int const number = detail::lane_of(lane.thread);
                if (number < first || number >= first + at_once) continue;
                for (Address word = (lane.at - shared) / 4; word <= (lane.at - shared + lane.bytes - 1) / 4; ++word) {
                    words[word % 32].insert(word);
                }
            }
            if (words.empty()) continue;
            std::size_t most = 1;
            for (auto const& [bank, list] : words) most = detail::larger(most, list.size());
            ++traffic.shared;
            traffic.conflicts += static_cast<Index>(most) - 1;
        }
    }
    void end_phase() {
        auto const warp_key = [](Access const& a) { return std::tuple(detail::warp_of(a.thread), a.pc, a.thread); };
        std::stable_sort(accesses.begin(), accesses.end(),
                         [&](Access const& a, Access const& b) { return warp_key(a) < warp_key(b); });
        for (std::size_t i = 1; i < accesses.size(); ++i) {
            bool const again = warp_key(accesses[i]) == warp_key(accesses[i - 1]);
            accesses[i].nth = again ? accesses[i - 1].nth + 1 : 0;
        }
        auto const request = [](Access const& a) {
            return std::tuple(detail::warp_of(a.thread), a.pc, a.nth, a.shared, a.kind, a.bytes);
        };
        std::stable_sort(accesses.begin(), accesses.end(),
                         [&](Access const& a, Access const& b) { return request(a) < request(b); });
        std::map<Address, Index> atomics;
        for (std::size_t i = 0; i < accesses.size();) {
            std::size_t end = i;
            while (end < accesses.size() && request(accesses[end]) == request(accesses[i])) ++end;
            std::span<Access const> const lanes(accesses.data() + i, end - i);
            if (accesses[i].kind == Kind::atomic) {
                (accesses[i].shared ? traffic.shared_atomics : traffic.atomics) += static_cast<Index>(lanes.size());
                for (Access const& lane : lanes)
                    traffic.contention = detail::larger(traffic.contention, ++atomics[lane.at]);
            } else if (accesses[i].shared) {
                count_shared(lanes);
            } else {
                count_global(lanes);
            }
            i = end;
        }
        accesses.clear();
    }
};

thread_local std::unique_ptr<UnderWay> launch;

/// The stack of this thread of the host, which stands for registers.
struct Stack {
    Address begin = 0;
    Address end = 0;
    Stack() {
        pthread_attr_t attributes;
        void* address = nullptr;
        std::size_t size = 0;
        pthread_getattr_np(pthread_self(), &attributes);
        pthread_attr_getstack(&attributes, &address, &size);
        pthread_attr_destroy(&attributes);
        begin = reinterpret_cast<Address>(address);
        end = begin + size;
    }
};
thread_local Stack const stack;

}  // namespace

void touched(void const* memory, std::size_t bytes, Kind kind, void const* pc) {
    UnderWay* const now = launch.get();
    if (now == nullptr || !now->is_watching) return;
    auto const at = reinterpret_cast<Address>(memory);
    if (at >= stack.begin && at < stack.end && !now->is_shared(at)) return;
    now->is_watching = false;  // what follows is not the kernel's
    now->touch(at, bytes, kind, reinterpret_cast<Address>(pc));
    now->is_watching = true;
}

std::vector<std::string> faults() {
    std::lock_guard const lock(findings().mutex);
    return findings().faults;
}
std::vector<Traffic> traffic() {
    std::lock_guard const lock(findings().mutex);
    std::vector<Traffic> list;
    for (auto const& [name, one] : findings().kernels) list.push_back(one);
    return list;
}
Traffic traffic_of(std::string const& kernel) {
    std::lock_guard const lock(findings().mutex);
    auto const found = findings().kernels.find(kernel);
    return found == findings().kernels.end() ? Traffic{} : found->second;
}
void forget() {
    std::lock_guard const lock(findings().mutex);
    findings().kernels.clear();
    findings().faults.clear();
    findings().known.clear();
}
void print_traffic(std::ostream& out) {
    out << std::left << std::setw(28) << "kernel" << std::right;
    for (char const* column :
         {"blocks", "read", "written", "memory", "used", "shared", "conflicts", "atomics", "in shared", "most"}) {
        out << std::setw(10) << column;
    }
    out << '\n' << std::fixed << std::setprecision(2);
    for (Traffic const& one : traffic()) {
        out << std::left << std::setw(28) << one.kernel << std::right << std::setw(10) << one.blocks << std::setw(10)
            << one.read << std::setw(10) << one.written << std::setw(10) << one.memory << std::setw(10)
            << one.sectors_used() << std::setw(10) << one.shared << std::setw(10) << one.conflicts_per_request()
            << std::setw(10) << one.atomics << std::setw(10) << one.shared_atomics << std::setw(10) << one.contention
            << '\n';
    }
}

Launch::Launch(std::string kernel, HostDevice const* device) {
    launch = std::make_unique<UnderWay>();
    launch->traffic.kernel = std::move(kernel);
    launch->traffic.launches = 1;
    launch->device = device;
}
Launch::~Launch() {
    {
        std::lock_guard const lock(findings().mutex);
        Traffic& sum = findings().kernels[launch->traffic.kernel];
        Traffic& mine = launch->traffic;
        mine.memory = 32 * static_cast<Index>(launch->sectors_read.size() + launch->sectors_written.size());
        sum.kernel = mine.kernel;
        for (Index Traffic::*field :
             {&Traffic::launches, &Traffic::blocks, &Traffic::read, &Traffic::written, &Traffic::sectors,
              &Traffic::memory, &Traffic::shared, &Traffic::conflicts, &Traffic::atomics, &Traffic::shared_atomics}) {
            sum.*field += mine.*field;
        }
        sum.contention = detail::larger(sum.contention, mine.contention);
    }
    launch.reset();
}
void Launch::begin_block(Index number, void const* shared, std::size_t shared_bytes) {
    ++launch->traffic.blocks;
    launch->now = {static_cast<std::int32_t>(number), 0, 0, 0};
    launch->shared = reinterpret_cast<Address>(shared);
    launch->shared_written.assign(shared_bytes, false);
    for (std::size_t i = 0; i < shared_bytes + 64; i += 64) launch->lines.erase((launch->shared + i) / 64);
}
void Launch::barrier() {
    launch->end_phase();
    ++launch->now.phase;
    launch->warp_stage = 0;
}
void Launch::warp_barrier() { launch->warp_stage += 2; }
void Launch::end_block() {
    barrier();
    launch->shared = 0;
    launch->shared_written.clear();
}

Thread::Thread(int thread, void const* state, std::size_t state_bytes, int stage) {
    launch->now.thread = static_cast<std::int16_t>(thread);
    launch->now.stage = static_cast<std::int16_t>(launch->warp_stage + stage);
    launch->state = reinterpret_cast<Address>(state);
    launch->state_bytes = state_bytes;
    launch->is_watching = true;
}
Thread::~Thread() { launch->is_watching = false; }

Atomic::Atomic(void const* memory, std::size_t bytes) : was_watched_(launch->is_watching) {
    touched(memory, bytes, Kind::atomic, __builtin_return_address(0));
    launch->is_watching = false;
}
Atomic::~Atomic() { launch->is_watching = was_watched_; }

std::string type_name(std::type_info const& type) {
    int status = 0;
    char* const text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
    std::string name = text == nullptr ? type.name() : text;
    std::free(text);
    auto const colons = name.rfind("::");
    return colons == std::string::npos ? name : name.substr(colons + 2);
}

}  // namespace reshard::test::watch
