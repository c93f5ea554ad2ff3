// SPDX-License-Identifier: Apache-2.0
// The test double of fake_nccl.hpp. Nothing here is NCCL's or CUDA's own; only the declarations are.
#include "support/fake_nccl.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fake = reshard::test::fake_nccl;
using reshard::test::fake_runtime::add_task;
using reshard::test::fake_runtime::fault;
using reshard::test::fake_runtime::on_device;

namespace {

std::mutex counts_mutex;
fake::Counts counted;
std::atomic<int> communicators{0};
std::atomic<bool> init_stalls{false};
std::atomic<std::uint64_t> first_gathered{0};

template <class Body>
void count(Body&& body) {
    std::lock_guard const lock(counts_mutex);
    body(counted);
}

// ---- Cliques: what the ranks of a communicator share ---------------------------------------------------------------

constexpr std::size_t copied_at_most = std::size_t{1} << 30;  // longer messages are only counted

struct Message {
    void const* from = nullptr;
    void* to = nullptr;
    std::size_t bytes = 0;
    std::shared_ptr<bool> done;
};
struct Gathering {
    std::string kind;
    std::vector<void const*> from;
    std::vector<void*> to;
    int arrived = 0;
    bool fits = true;
    bool done = false;
};
struct Clique;
struct Splitting {
    std::vector<int> colour;
    std::vector<int> key;
    int arrived = 0;
    std::map<int, std::shared_ptr<Clique>> children;
};
struct Clique {
    explicit Clique(int n) : ranks(n) {}
    std::mutex mutex;
    int ranks;
    int arrived = 0;
    std::map<std::pair<int, int>, std::deque<Message>> sends;  // from, to
    std::map<std::pair<int, int>, std::deque<Message>> receives;
    std::map<std::uint64_t, Gathering> gatherings;
    std::map<std::uint64_t, Splitting> splittings;
    std::set<std::pair<int, int>> contacts;  ///< who has had something for whom: from then on both are connected
};

std::mutex ids_mutex;
std::map<std::string, std::weak_ptr<Clique>> ids;
std::atomic<int> next_id{1};

/// What outlives the handle, for tasks that are still in a stream.
struct State {
    std::shared_ptr<Clique> clique;
    int rank = 0;
    bool over = false;  // aborted or revoked: nothing of it runs any more
    // Operations of a communicator are done one after the other, whatever their streams.
    std::uint64_t begun = 0;
    std::uint64_t done = 0;
};

int device_now() {
    int device = 0;
    static_cast<void>(cudaGetDevice(&device));
    return device;
}

}  // namespace

struct ncclComm {
    std::shared_ptr<State> state = std::make_shared<State>();
    int device = device_now();
    bool blocking = false;
    bool stalled = init_stalls;
    int polls = 0;  // so many times it still says ncclInProgress
    std::atomic<ncclResult_t> async{ncclSuccess};
    std::uint64_t gatherings = 0;
    std::uint64_t splittings = 0;
    bool splits = false;
    std::vector<int> met;  // peers of the last group that this rank had nothing for before
    ncclComm_t* child = nullptr;

    ncclComm() { ++communicators; }
    ncclComm(ncclComm const&) = delete;
    ncclComm& operator=(ncclComm const&) = delete;
    ~ncclComm() { --communicators; }

    Clique& clique() const { return *state->clique; }
    int rank() const { return state->rank; }
    /// The first thing a call does; another thread may set the error.
    ncclResult_t enter() {
        if (polls > 0 || splits || !met.empty()) {
            count([](auto& c) { ++c.misused; });
            return ncclInvalidUsage;
        }
        if (async != ncclSuccess) return async;
        return state->over ? ncclInvalidUsage : ncclSuccess;
    }
    ncclResult_t begun() {
        if (blocking) return ncclSuccess;
        polls = 1;
        return ncclInProgress;
    }
    /// Whether the peers of the last group have come to know this rank too: NCCL connects both at once.
    bool connected() {
        std::lock_guard const lock(clique().mutex);
        bool all = true;
        for (int peer : met) all = all && clique().contacts.count({peer, rank()}) != 0;
        if (all || state->over) met.clear();
        return met.empty();
    }
    void give_up() {
        std::lock_guard const lock(clique().mutex);
        state->over = true;
        for (auto& [pair, messages] : clique().sends)
            if (pair.first == rank()) messages.clear();
        for (auto& [pair, messages] : clique().receives)
            if (pair.second == rank()) messages.clear();
    }
};

namespace {

struct Op {
    ncclComm_t comm;
    cudaStream_t stream;
    int peer;
    bool sends;
    Message message;
};
thread_local int group_depth = 0;
thread_local ncclResult_t group_error = ncclSuccess;
thread_local std::vector<Op> group;

void meet(Message& one, Message& other) {
    if (one.bytes != other.bytes) {  // both wait for ever, as they would
        count([](auto& c) { ++c.mismatches; });
        return;
    }
    void const* const from = one.from != nullptr ? one.from : other.from;
    void* const to = one.to != nullptr ? one.to : other.to;
    if (one.bytes <= copied_at_most) std::memcpy(to, from, one.bytes);
    *one.done = *other.done = true;
    count([&](auto& c) {
        ++c.messages;
        c.largest_message = std::max<std::uint64_t>(c.largest_message, one.bytes);
    });
}

void post(State& state, Op& op) {
    Clique& clique = *state.clique;
    auto const pair = op.sends ? std::pair(state.rank, op.peer) : std::pair(op.peer, state.rank);
    auto& theirs = (op.sends ? clique.receives : clique.sends)[pair];
    if (theirs.empty()) {
        (op.sends ? clique.sends : clique.receives)[pair].push_back(op.message);
        return;
    }
    meet(op.message, theirs.front());
    theirs.pop_front();
}

ncclResult_t end_group() {
    auto ops = std::move(group);
    group.clear();
    ncclResult_t const error = std::exchange(group_error, ncclSuccess);
    if (error != ncclSuccess) return error;
    if (ops.empty()) return ncclSuccess;
    count([&](auto& c) {
        ++c.groups;
        c.largest_group = std::max(c.largest_group, static_cast<std::int64_t>(ops.size()));
    });
    if (ops.size() > 2048) return ncclInvalidUsage;
    ncclComm_t const comm = ops.front().comm;
    auto const state = comm->state;
    {
        std::lock_guard const lock(comm->clique().mutex);
        for (Op const& op : ops) {
            bool const first = op.peer != state->rank && comm->clique().contacts.insert({state->rank, op.peer}).second;
            if (first) comm->met.push_back(op.peer);
        }
    }
    auto posted = std::make_shared<bool>(false);
    add_task(ops.front().stream, [ops, state, posted, number = state->begun++]() mutable {
        std::lock_guard const lock(state->clique->mutex);
        if (state->over) return true;
        if (state->done != number) return false;
        if (!std::exchange(*posted, true)) {
            on_device([&] {
                for (auto& op : ops) post(*state, op);
            });
        }
        bool const done = std::all_of(ops.begin(), ops.end(), [](Op const& op) { return *op.message.done; });
        if (done) ++state->done;
        return done;
    });
    while (comm->blocking && !comm->connected()) std::this_thread::yield();
    return comm->begun();
}

ncclResult_t add_op(char const* call, ncclComm_t comm, cudaStream_t stream, int peer, bool sends, Message message) {
    ncclResult_t code = static_cast<ncclResult_t>(fault(call));
    if (code == ncclSuccess) code = comm->enter();
    if (code == ncclSuccess && (peer < 0 || peer >= comm->clique().ranks)) code = ncclInvalidArgument;
    if (code != ncclSuccess) {
        if (group_depth > 0) group_error = code;
        return code;
    }
    message.done = std::make_shared<bool>(false);
    group.push_back({comm, stream, peer, sends, std::move(message)});
    return group_depth > 0 ? ncclSuccess : end_group();
}

/// Collectives of NCCL's own: `finish` computes everybody's result from what everybody gave.
template <class Finish>
ncclResult_t gather(char const* call, std::string const& kind, ncclComm_t comm, cudaStream_t stream, void const* from,
                    void* to, Finish finish) {
    if (int const code = fault(call)) return static_cast<ncclResult_t>(code);
    if (ncclResult_t const code = comm->enter(); code != ncclSuccess) return code;
    count([](auto& c) { ++c.native; });
    auto const state = comm->state;
    std::uint64_t const number = comm->gatherings++;
    auto arrived = std::make_shared<bool>(false);
    add_task(stream, [=, turn = state->begun++]() {
        Clique& clique = *state->clique;
        std::lock_guard const lock(clique.mutex);
        if (state->over) return true;
        if (state->done != turn) return false;
        Gathering& all = clique.gatherings[number];
        if (!std::exchange(*arrived, true)) {
            auto const ranks = static_cast<std::size_t>(clique.ranks);
            all.from.resize(ranks);
            all.to.resize(ranks);
            if (all.arrived == 0) all.kind = kind;
            all.fits = all.fits && all.kind == kind;
            all.from[static_cast<std::size_t>(state->rank)] = from;
            all.to[static_cast<std::size_t>(state->rank)] = to;
            if (++all.arrived == clique.ranks && all.fits) {
                on_device([&] { finish(all); });
                all.done = true;
            }
        }
        if (all.done) ++state->done;
        return all.done;
    });
    return comm->begun();
}

template <class T>
void fold(Gathering& all, std::size_t elements, ncclRedOp_t op, std::size_t block, std::vector<T>& result) {
    result.assign(elements, T{});
    for (std::size_t i = 0; i != elements; ++i) {
        T value = static_cast<T const*>(all.from[0])[block + i];
        for (std::size_t r = 1; r != all.from.size(); ++r) {
            T const other = static_cast<T const*>(all.from[r])[block + i];
            switch (op) {
                case ncclProd: value = static_cast<T>(value * other); break;
                case ncclMax: value = std::max(value, other); break;
                case ncclMin: value = std::min(value, other); break;
                default: value = static_cast<T>(value + other);
            }
        }
        if (op == ncclAvg) value = static_cast<T>(value / static_cast<T>(all.from.size()));
        result[i] = value;
    }
}
/// With `scatters`, rank r gets block r.
template <class T>
void fold_all(Gathering& all, std::size_t elements, ncclRedOp_t op, bool scatters) {
    std::vector<std::vector<T>> results(all.from.size());
    for (std::size_t r = 0; r != results.size(); ++r)
        fold<T>(all, elements, op, scatters ? r * elements : 0, results[r]);
    for (std::size_t r = 0; r != results.size(); ++r) std::memcpy(all.to[r], results[r].data(), elements * sizeof(T));
}
void fold_all(Gathering& all, std::size_t elements, ncclDataType_t type, ncclRedOp_t op, bool scatters) {
    switch (type) {
        case ncclInt32: return fold_all<std::int32_t>(all, elements, op, scatters);
        case ncclInt64: return fold_all<std::int64_t>(all, elements, op, scatters);
        case ncclUint64: return fold_all<std::uint64_t>(all, elements, op, scatters);
        case ncclFloat32: return fold_all<float>(all, elements, op, scatters);
        case ncclFloat64: return fold_all<double>(all, elements, op, scatters);
        default: std::abort();  // the double knows the types its tests use
    }
}

ncclResult_t make(ncclComm_t* comm, int ranks, ncclUniqueId const& id, int rank, bool blocking) {
    std::shared_ptr<Clique> clique;
    {
        std::lock_guard const lock(ids_mutex);
        auto& known = ids[std::string(id.internal, sizeof(id.internal))];
        clique = known.lock();
        if (!clique) known = clique = std::make_shared<Clique>(ranks);
    }
    auto* const made = new ncclComm;
    made->state->clique = clique;
    made->state->rank = rank;
    made->blocking = blocking;
    {
        std::lock_guard const lock(clique->mutex);
        ++clique->arrived;
    }
    *comm = made;
    return ncclSuccess;
}

bool all_arrived(Clique& clique) {
    std::lock_guard const lock(clique.mutex);
    return clique.arrived == clique.ranks;
}

/// Whether the split that `comm` has begun is over.
bool finish_split(ncclComm& comm) {
    Clique& clique = comm.clique();
    std::lock_guard const lock(clique.mutex);
    Splitting& all = clique.splittings[comm.splittings - 1];
    if (all.arrived != clique.ranks) return false;
    int const colour = all.colour[static_cast<std::size_t>(comm.rank())];
    comm.splits = false;
    *comm.child = nullptr;
    if (colour == NCCL_SPLIT_NOCOLOR) return true;
    std::vector<std::pair<int, int>> members;
    for (int r = 0; r != clique.ranks; ++r) {
        if (all.colour[static_cast<std::size_t>(r)] == colour)
            members.emplace_back(all.key[static_cast<std::size_t>(r)], r);
    }
    std::sort(members.begin(), members.end());
    auto& child = all.children[colour];
    if (!child) child = std::make_shared<Clique>(static_cast<int>(members.size()));
    auto* const made = new ncclComm;
    made->state->clique = child;
    made->device = comm.device;
    for (std::size_t i = 0; i != members.size(); ++i)
        if (members[i].second == comm.rank()) made->state->rank = static_cast<int>(i);
    {
        std::lock_guard const child_lock(child->mutex);
        ++child->arrived;
    }
    *comm.child = made;
    return true;
}

}  // namespace

// ---- What tests ask ----------------------------------------------------------------------------------------------

namespace reshard::test::fake_nccl {

Counts counts() {
    std::lock_guard const lock(counts_mutex);
    Counts all = counted;
    static_cast<fake_runtime::Counts&>(all) = fake_runtime::counts();
    return all;
}
void reset() {
    init_stalls = false;
    fake_runtime::reset();
    std::lock_guard const lock(counts_mutex);
    counted = {};
}
int live_communicators() { return communicators; }
void set_async_error(ncclComm_t comm, ncclResult_t code) { comm->async = code; }
void stall_init(bool stalls) { init_stalls = stalls; }
void gather_first(std::uint64_t word) { first_gathered = word; }

}  // namespace reshard::test::fake_nccl

// ---- NCCL --------------------------------------------------------------------------------------------------------

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    if (int const code = fault("ncclGetUniqueId")) return static_cast<ncclResult_t>(code);
    *id = {};
    int const number = next_id++;
    std::memcpy(id->internal, &number, sizeof(number));
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    if (int const code = fault("ncclCommInitRankConfig")) return static_cast<ncclResult_t>(code);
    if (config == nullptr || config->blocking != 0) return ncclInvalidArgument;  // the communicator's own never block
    static_cast<void>(make(comm, ranks, id, rank, false));
    return ncclInProgress;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    static_cast<void>(make(comm, ranks, id, rank, true));
    while (!all_arrived((*comm)->clique())) std::this_thread::yield();
    return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* child, ncclConfig_t* config) {
    if (int const code = fault("ncclCommSplit")) return static_cast<ncclResult_t>(code);
    if (ncclResult_t const code = comm->enter(); code != ncclSuccess) return code;
    if (config == nullptr || config->blocking != 0) return ncclInvalidArgument;
    {
        std::lock_guard const lock(comm->clique().mutex);
        Splitting& all = comm->clique().splittings[comm->splittings++];
        all.colour.resize(static_cast<std::size_t>(comm->clique().ranks));
        all.key.resize(all.colour.size());
        all.colour[static_cast<std::size_t>(comm->rank())] = colour;
        all.key[static_cast<std::size_t>(comm->rank())] = key;
        ++all.arrived;
    }
    comm->splits = true;
    comm->child = child;
    if (!comm->blocking) return ncclInProgress;
    while (!finish_split(*comm)) std::this_thread::yield();
    return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* code) {
    if (int const failing = fault("ncclCommGetAsyncError")) return static_cast<ncclResult_t>(failing);
    *code = comm->async;
    if (*code != ncclSuccess) return ncclSuccess;
    if (comm->stalled || !all_arrived(comm->clique()) || (comm->splits && !finish_split(*comm)) || comm->polls > 0 ||
        !comm->connected()) {
        comm->polls = std::max(comm->polls - 1, 0);
        *code = ncclInProgress;
    }
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm->begun(); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    count([](auto& c) { ++c.destroyed; });
    delete comm;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    count([](auto& c) { ++c.aborted; });
    comm->give_up();
    delete comm;
    return ncclSuccess;
}
ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
    count([](auto& c) { ++c.revoked; });
    comm->give_up();
    return comm->begun();
}
ncclResult_t ncclCommUserRank(ncclComm_t const comm, int* rank) {
    *rank = comm->rank();
    return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t const comm, int* ranks) {
    *ranks = comm->clique().ranks;
    return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t const comm, int* device) {
    *device = comm->device;
    return ncclSuccess;
}
char const* ncclGetErrorString(ncclResult_t code) {
    switch (code) {
        case ncclSystemError: return "unhandled system error";
        case ncclRemoteError: return "remote process exited or there was a network error";
        case ncclInvalidUsage: return "invalid usage";
        default: return "an error of the test double";
    }
}
char const* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGroupStart() {
    ++group_depth;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    --group_depth;
    int const code = fault("ncclGroupEnd");
    if (code != 0) group_error = static_cast<ncclResult_t>(code);
    return end_group();
}
ncclResult_t ncclSend(void const* from, std::size_t elements, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add_op("ncclSend", comm, stream, peer, true, {from, nullptr, elements, nullptr});
}
ncclResult_t ncclRecv(void* to, std::size_t elements, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add_op("ncclRecv", comm, stream, peer, false, {nullptr, to, elements, nullptr});
}
ncclResult_t ncclAllGather(void const* from, void* to, std::size_t bytes, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream) {
    return gather("ncclAllGather", "gather " + std::to_string(bytes), comm, stream, from, to, [=](Gathering& all) {
        std::vector<char> whole(bytes * all.from.size());
        for (std::size_t r = 0; r != all.from.size(); ++r)
            if (bytes != 0) std::memcpy(whole.data() + r * bytes, all.from[r], bytes);
        if (std::uint64_t const word = first_gathered; word != 0)
            std::memcpy(whole.data() + 2 * bytes, &word, sizeof word);
        for (void* each : all.to)
            if (bytes != 0) std::memcpy(each, whole.data(), whole.size());
    });
}
ncclResult_t ncclAllReduce(void const* from, void* to, std::size_t elements, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return gather("ncclAllReduce", "reduce " + std::to_string(elements), comm, stream, from, to,
                  [=](Gathering& all) { fold_all(all, elements, type, op, false); });
}
ncclResult_t ncclReduceScatter(void const* from, void* to, std::size_t elements, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    return gather("ncclReduceScatter", "scatter " + std::to_string(elements), comm, stream, from, to,
                  [=](Gathering& all) { fold_all(all, elements, type, op, true); });
}
ncclResult_t ncclBroadcast(void const* from, void* to, std::size_t bytes, ncclDataType_t, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return gather("ncclBroadcast", "spread " + std::to_string(bytes), comm, stream, from, to, [=](Gathering& all) {
        std::vector<char> const text(static_cast<char const*>(all.from[static_cast<std::size_t>(root)]),
                                     static_cast<char const*>(all.from[static_cast<std::size_t>(root)]) + bytes);
        for (void* each : all.to) std::memcpy(each, text.data(), bytes);
    });
}

}  // extern "C"
