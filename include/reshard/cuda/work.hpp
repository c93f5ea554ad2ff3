// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/cuda/work.hpp
/// \brief  What those who put kernels together are written against: memory, launches and primitives of one device.
/// \depends core, cuda/detail/block.hpp. Compiles without CUDA, so that tests run all of it on the host.
///
/// A `Work` is a stream of one device. Everything but download() and wait() may return before it is done; things are
/// done in order.
///
///     Memory allocate(Index bytes)            device memory that is freed in the order of the stream: data()
///     fill(to, byte, bytes); copy(to, from, bytes)
///     upload(to, from, bytes)                 from the host, which may change what was there at once
///     download(to, from, bytes)               to the host: when it returns, it is there
///     wait()
///     tiles<State, Shared>(what, n, body)     body(block, shared, tile) for [0, n): cuda/detail/block.hpp
///     sum(from, to, n)                        exclusive sum of 32-bit numbers, into 64-bit ones
///     sort(keys, sorted, values, order, n)    stable, by signed keys
///     check(who, what, memory, bytes, alignment)    throws BufferError for memory that kernels cannot be given
///
/// DeviceWork (cuda/device_work.cuh) is a stream of CUDA.
#pragma once

#include <reshard/cuda/detail/block.hpp>

#include <cstring>  // memcpy
#include <span>     // span
#include <vector>   // vector

namespace reshard::inline v0_1::detail {

/// Calls body(block, i) on the device, for i in [0, count), in any order. `block` has the atomics.
template <class Work, class Body>
void for_each_index(Work& work, char const* what, Index count, Body const& body) {
    if (count == 0) return;
    work.template tiles<NoState, NoShared>(what, ceil_div(count, block_threads), EachIndex<Body>{count, body});
}

/// The tiles of several bodies of one kernel: as many as a launch has arguments for, which are 4 KiB.
template <class Body>
struct TilesTogether {
    static constexpr int resident_blocks =
        smaller(detail::resident_blocks<Body>, 3);  ///< what is indexed wants registers
    static constexpr int most = static_cast<int>(3840 / (sizeof(Body) + sizeof(Index)));
    InlineList<Body, most> bodies;
    InlineList<Index, most> begins;  ///< tiles before each
    template <class Block, class Shared>
    RESHARD_HOST_DEVICE void operator()(Block& block, Shared& shared, Index tile) const {
        int const which = part_at(begins.begin(), begins.size(), tile);
        bodies[which](block, shared, tile - begins[which]);
    }
};
/// What a step does to many lists, by one kernel: one launch for as many of them as its arguments hold.
template <class Work, class Body, class State = NoState, class Shared = NoShared>
class Together {
public:
    explicit Together(char const* what) noexcept : what_(what) {}
    /// Nothing is launched before run().
    void add(Index tiles, Body const& body) {
        if (tiles != 0) list_.push_back({tiles, body});
    }
    void run(Work& work) {
        for (std::size_t i = 0; i < list_.size();) {
            TilesTogether<Body> some;
            Index tiles = 0;
            for (; i < list_.size() && some.bodies.size() < some.most; tiles += list_[i++].tiles) {
                some.bodies.push_back(list_[i].body);
                some.begins.push_back(tiles);
            }
            work.template tiles<State, Shared>(what_, tiles, some);
        }
        list_.clear();
    }

private:
    struct One {
        Index tiles;
        Body body;
    };
    char const* what_;
    std::vector<One> list_;
};
/// The same for bodies that know one index at a time.
template <class Work, class Body>
class EachTogether : public Together<Work, EachIndex<Body>> {
public:
    using Together<Work, EachIndex<Body>>::Together;
    void add(Index count, Body const& body) {
        Together<Work, EachIndex<Body>>::add(ceil_div(count, block_threads), {count, body});
    }
};

struct CountIndicesState {
    Index count;
};
/// Adds to `total` how many i of [0, count) answer true: one atomic a block.
template <class Answer>
struct CountIndices {
    Index count;
    Answer answer;
    unsigned long long* total;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block& block, NoShared&, Index tile) const {
        block.each([&](int thread, auto& state) {
            Index const i = tile * block_threads + thread;
            state.count = i < count && answer(i) ? 1 : 0;
        });
        block.fold([](auto const& state) { return state.count; }, [](Index a, Index b) { return a + b; },
                   [&](Index all) {
                       if (all != 0) block.add(total, static_cast<unsigned long long>(all));
                   });
    }
};
template <class Work, class Answer>
void count_indices(Work& work, char const* what, CountIndices<Answer> const& counting) {
    if (counting.count == 0) return;
    work.template tiles<CountIndicesState, NoShared>(what, ceil_div(counting.count, block_threads), counting);
}

/// Values of the device, on the host.
template <class T, class Work>
[[nodiscard]] std::vector<T> fetch(Work& work, T const* from, Index count) {
    std::vector<T> list(as_size(count));
    if (count != 0) work.download(list.data(), from, count * as_index(sizeof(T)));
    return list;
}
template <class T, class Work>
[[nodiscard]] T fetch(Work& work, T const* from) {
    T value{};
    work.download(&value, from, as_index(sizeof(T)));
    return value;
}

/// Memory of a Work for so many T.
template <class T, class Work>
class WorkList {
public:
    WorkList() = default;
    WorkList(Work& work, Index count)
        : memory_(work.allocate(larger<Index>(count, 1) * as_index(sizeof(T)))), count_(count) {}
    /// Copies a list of the host.
    WorkList(Work& work, std::span<T const> list) : WorkList(work, as_index(list.size())) {
        if (!list.empty()) work.upload(data(), list.data(), bytes());
    }

    [[nodiscard]] T* data() const noexcept { return reinterpret_cast<T*>(memory_.data()); }
    [[nodiscard]] Index size() const noexcept { return count_; }
    [[nodiscard]] Index bytes() const noexcept { return count_ * as_index(sizeof(T)); }
    [[nodiscard]] std::span<T> span() const noexcept { return {data(), as_size(count_)}; }
    /// Only the first `count` count from now on.
    void shorten(Index count) noexcept { count_ = count; }
    /// On the host.
    [[nodiscard]] std::vector<T> host(Work& work) const { return fetch(work, data(), count_); }

private:
    typename Work::Memory memory_;
    Index count_ = 0;
};

/// So many T, all bits of them zero.
template <class T, class Work>
[[nodiscard]] WorkList<T, Work> zeros(Work& work, Index count) {
    WorkList<T, Work> list(work, count);
    work.fill(list.data(), 0, list.bytes());
    return list;
}

/// Exclusive sums of many lists by one scan. It goes on from list to list: what stands at a list's begin is not its
/// own.
template <class Work>
class Sums {
public:
    /// Returns where the list begins.
    Index add(Index count) noexcept { return std::exchange(count_, count_ + count); }
    void allocate(Work& work) {
        numbers_ = WorkList<std::uint32_t, Work>(work, count_);
        sums_ = WorkList<Index, Work>(work, count_);
    }
    [[nodiscard]] std::uint32_t* numbers(Index begin) const noexcept { return numbers_.data() + begin; }
    [[nodiscard]] Index* sums(Index begin) const noexcept { return sums_.data() + begin; }
    /// The numbers are gone behind it.
    void run(Work& work) {
        if (count_ != 0) work.sum(numbers_.data(), sums_.data(), count_);
        numbers_ = {};
    }

private:
    Index count_ = 0;
    WorkList<std::uint32_t, Work> numbers_;
    WorkList<Index, Work> sums_;
};

/// Many lists of words, one behind the other in `words`: on the device, told by one copy.
struct WordLists {
    Index const* begins;   ///< words before each list
    Index* const* places;  ///< where it lies
    Index lists;
    Index* words;
    [[nodiscard]] RESHARD_HOST_DEVICE Index* place(Index word) const {
        Index const list = part_at(begins, lists, word);
        return places[list] + (word - begins[list]);
    }
};
struct GatherWords {
    WordLists all;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index i) const {
        all.words[i] = *all.place(i);
    }
};
struct DealWords {
    WordLists all;
    template <class Block>
    RESHARD_HOST_DEVICE void operator()(Block&, Index i) const {
        *all.place(i) = all.words[i];
    }
};
/// Lists of words of the device, by and by; then begins, places and words for a kernel.
template <class Work>
class ListedWords {
public:
    /// Returns the place of the first word among all of them.
    Index add(Index* place, Index words) {
        begins_.push_back(words_);
        places_.push_back(reinterpret_cast<std::uintptr_t>(place));
        return std::exchange(words_, words_ + words);
    }
    [[nodiscard]] Index words() const noexcept { return words_; }
    [[nodiscard]] std::size_t lists() const noexcept { return places_.size(); }
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address, as kernels are told it
    [[nodiscard]] Index* first() const noexcept { return reinterpret_cast<Index*>(places_.front()); }
    /// With these words, or room for them.
    [[nodiscard]] WordLists upload(Work& work, std::vector<Index> const& words) {
        auto const count = as_index(lists());
        std::vector<Index> told(begins_);
        for (std::uintptr_t const place : places_) told.push_back(as_index(place));
        told.insert(told.end(), words.begin(), words.end());
        memory_ = WorkList<Index, Work>(work, 2 * count + words_);
        work.upload(memory_.data(), told.data(), 8 * as_index(told.size()));
        Index* const at = memory_.data();
        return {at, reinterpret_cast<Index* const*>(at + count), count, at + 2 * count};
    }

private:
    std::vector<Index> begins_;
    std::vector<std::uintptr_t> places_;
    Index words_ = 0;
    WorkList<Index, Work> memory_;
};

/// Words of the host for many places on the device: one copy, and one launch that deals them out.
template <class Work>
class Uploads {
public:
    /// `to`: words of the device, aligned to 8 bytes. Those of the host are read at once.
    void add(void* to, void const* from, Index words) {
        if (words == 0) return;
        auto const before = as_size(listed_.add(static_cast<Index*>(to), words));
        words_.resize(before + as_size(words));
        std::memcpy(words_.data() + before, from, 8 * as_size(words));
    }
    /// Copies the words, and takes the memory that takes: what is left for run() does not fail for want of it.
    void prepare(Work& work) {
        if (listed_.lists() > 1) ready_ = listed_.upload(work, words_);
    }
    void run(Work& work) {
        if (listed_.lists() == 1) work.upload(listed_.first(), words_.data(), 8 * listed_.words());
        if (listed_.lists() > 1) {
            if (ready_.lists == 0) prepare(work);
            for_each_index(work, "deal words", listed_.words(), DealWords{ready_});
        }
        *this = {};
    }

private:
    ListedWords<Work> listed_;
    std::vector<Index> words_;
    WordLists ready_{};
};

/// What the host wants to know of many lists of the device: one copy, and one wait, for all of them.
template <class Work>
class Fetches {
public:
    /// Returns the place of the first word among the answers. \pre `from`: words of the device, aligned to 8 bytes,
    /// which stay until run().
    std::size_t add(void const* from, Index words = 1) {
        return as_size(listed_.add(const_cast<Index*>(static_cast<Index const*>(from)), words));
    }
    /// What was added since the last run is on the host now, in place of what was there.
    void run(Work& work) {
        if (listed_.lists() == 1) {
            answers_ = fetch(work, static_cast<Index const*>(listed_.first()), listed_.words());
        } else if (listed_.lists() != 0) {
            WordLists const all = listed_.upload(work, {});
            for_each_index(work, "gather words", listed_.words(), GatherWords{all});
            answers_ = fetch(work, static_cast<Index const*>(all.words), listed_.words());
        }
        listed_ = {};
    }
    [[nodiscard]] Index operator[](std::size_t place) const noexcept { return answers_[place]; }
    [[nodiscard]] std::span<Index const> list(std::size_t place, Index words) const noexcept {
        return std::span(answers_).subspan(place, as_size(words));
    }
    void read(std::size_t place, void* to, std::size_t bytes) const noexcept {
        std::memcpy(to, answers_.data() + place, bytes);
    }

private:
    ListedWords<Work> listed_;
    std::vector<Index> answers_;
};

}  // namespace reshard::inline v0_1::detail
