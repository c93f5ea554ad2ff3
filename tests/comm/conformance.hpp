// SPDX-License-Identifier: Apache-2.0
/// \file   tests/comm/conformance.hpp
/// \brief  What every transport must do: conforms(comm), called by all ranks, tries each promise of the concept.
///         A new transport passes by calling it on 1, 2, 3, 4 and 8 ranks (or as many as its machine has), and
///         refuses_a_second_start(), notices_different_payloads() and exchanges_without_allocating() beside it.
///
/// With doctest a broken promise fails the case that runs; without it, or where RESHARD_CONFORMANCE_WITHOUT_DOCTEST is
/// defined, it is an Error that names file and line. Needs nothing else of tests/.
#pragma once

#include <reshard/comm/any_communicator.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/memory/convert.hpp>

#include <algorithm>  // count, min
#include <array>
#include <chrono>   // milliseconds
#include <cstring>  // memcmp
#include <string>
#include <thread>   // sleep_for
#include <utility>  // exchange, move
#include <vector>

// Two kinds of one function in a program have two names.
#if !defined(RESHARD_CONFORMANCE_WITHOUT_DOCTEST) && __has_include(<doctest/doctest.h>)
#include <doctest/doctest.h>
#define RESHARD_CONFORMANCE_KIND with_doctest
#define RESHARD_CHECK(...) CHECK(__VA_ARGS__)
#define RESHARD_CHECK_THROWS(expression, type) CHECK_THROWS_AS(expression, type)
#else
#define RESHARD_CONFORMANCE_KIND without_doctest
#define RESHARD_CHECK(...) ::reshard::test::demand(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, #__VA_ARGS__)
#define RESHARD_CHECK_THROWS(expression, type) \
    ::reshard::test::demand_throws<type>([&] { expression; }, __FILE__, __LINE__, #expression " throws " #type)
#endif

namespace reshard::test {
inline namespace RESHARD_CONFORMANCE_KIND {

/// Throws an Error unless `good`.
inline void demand(bool good, char const* file, int line, char const* what) {
    if (!good) errors::raise(ErrorCode::user, errors::concat(file, ":", line, ": this is not so: ", what));
}
template <class Type, class Body>
void demand_throws(Body&& body, char const* file, int line, std::string what) {
    try {
        body();
    } catch (Type const&) {
        return;
    } catch (std::exception const& other) {
        what += errors::concat(", but: ", other.what());
    }
    demand(false, file, line, what.c_str());
}

/// A byte that tells sender, receiver, transfer and position apart.
inline std::byte mark(int from, int to, int nth, Index position) {
    auto const mixed = static_cast<std::uint64_t>(position) * 31U + static_cast<std::uint64_t>(from) * 7U +
                       static_cast<std::uint64_t>(to) * 13U + static_cast<std::uint64_t>(nth) * 101U;
    return static_cast<std::byte>((mixed + mixed / 251U) & 0xffU);
}

inline transport::StridedBox box_of(Index element_bytes, std::initializer_list<transport::StridedDim> dims) {
    transport::StridedBox box;
    box.element_bytes = element_bytes;
    for (auto const& dim : dims) box.dims.push_back(dim);
    return box;
}

/// Sends and receives under construction; buffers live as long as it does.
struct Letters {
    std::vector<transport::Send> sends;
    std::vector<transport::Receive> receives;
};

inline void sends_one_value_to_each_peer(CommunicatorRef comm) {
    std::vector<int> mine(static_cast<std::size_t>(comm.size()));
    std::vector<int> got(mine.size(), -1);
    Letters letters;
    for (int r = 0; r != comm.size(); ++r) {
        auto const i = static_cast<std::size_t>(r);
        mine[i] = comm.rank() * 1000 + r;
        letters.sends.push_back({r, reinterpret_cast<std::byte const*>(&mine[i]), box_of(4, {})});
        letters.receives.push_back({r, reinterpret_cast<std::byte*>(&got[i]), box_of(4, {})});
    }
    comm.exchange(letters.sends, letters.receives).wait();
    for (int r = 0; r != comm.size(); ++r) RESHARD_CHECK(got[static_cast<std::size_t>(r)] == r * 1000 + comm.rank());
}

/// Spans may be empty on one side, on both, and on all ranks.
inline void survives_empty_spans(CommunicatorRef comm) {
    comm.exchange({}, {}).wait();
    int const last = comm.size() - 1;
    double const value = 0.5;
    double got = 0;
    Letters letters;
    if (comm.rank() == 0) letters.sends.push_back({last, reinterpret_cast<std::byte const*>(&value), box_of(8, {})});
    if (comm.rank() == last) letters.receives.push_back({0, reinterpret_cast<std::byte*>(&got), box_of(8, {})});
    comm.exchange(letters.sends, letters.receives).wait();
    RESHARD_CHECK(got == (comm.rank() == last ? 0.5 : 0.0));
    comm.exchange({}, {}).wait();
}

/// A padded matrix of every rank travels to every rank as its transpose, other gaps around it.
inline void moves_strided_boxes(CommunicatorRef comm) {
    constexpr Index rows = 7;
    constexpr Index columns = 5;
    constexpr Index from_pitch = 9;
    constexpr Index to_pitch = 11;
    auto const ranks = static_cast<std::size_t>(comm.size());
    std::vector<int> from(ranks * rows * from_pitch);
    std::vector<int> to(ranks * columns * to_pitch, -1);
    Letters letters;
    for (int r = 0; r != comm.size(); ++r) {
        int* const source = from.data() + r * rows * from_pitch;
        int* const destination = to.data() + r * columns * to_pitch;
        for (int i = 0; i != rows; ++i)
            for (int j = 0; j != columns; ++j) source[i * from_pitch + j] = comm.rank() * 10000 + r * 100 + i * 10 + j;
        letters.sends.push_back(
            {r, reinterpret_cast<std::byte const*>(source), box_of(4, {{rows, 4 * from_pitch}, {columns, 4}})});
        // The last column of the destination comes first: a negative stride.
        letters.receives.push_back({r, reinterpret_cast<std::byte*>(destination + (columns - 1) * to_pitch),
                                    box_of(4, {{rows, 4}, {columns, -4 * to_pitch}})});
    }
    comm.exchange(letters.sends, letters.receives).wait();
    int wrong = 0;
    for (int r = 0; r != comm.size(); ++r) {
        int const* const got = to.data() + r * columns * to_pitch;
        for (Index j = 0; j != columns; ++j) {
            for (Index i = 0; i != to_pitch; ++i) {
                Index const expected = i < rows ? r * 10000 + comm.rank() * 100 + i * 10 + (columns - 1 - j) : -1;
                wrong += got[j * to_pitch + i] != expected ? 1 : 0;
            }
        }
    }
    RESHARD_CHECK(wrong == 0);
}

/// `count(from, to)` transfers between each pair, of `bytes(from, to, nth)` bytes each; order is the only tag.
template <class Count, class Bytes>
void moves_in_order(CommunicatorRef comm, Count const& count, Bytes const& bytes) {
    int const me = comm.rank();
    std::vector<std::vector<std::byte>> out;
    std::vector<std::vector<std::byte>> in;
    Letters letters;
    for (int r = 0; r != comm.size(); ++r) {
        for (int k = 0; k != count(me, r); ++k) {
            auto& buffer = out.emplace_back(static_cast<std::size_t>(bytes(me, r, k)));
            for (std::size_t i = 0; i != buffer.size(); ++i) buffer[i] = mark(me, r, k, static_cast<Index>(i));
            letters.sends.push_back({r, buffer.data(), box_of(1, {{static_cast<Index>(buffer.size()), 1}})});
        }
        for (int k = 0; k != count(r, me); ++k) {
            auto& buffer = in.emplace_back(static_cast<std::size_t>(bytes(r, me, k)));
            letters.receives.push_back({r, buffer.data(), box_of(1, {{static_cast<Index>(buffer.size()), 1}})});
        }
    }
    comm.exchange(letters.sends, letters.receives).wait();
    std::size_t at = 0;
    Index wrong = 0;
    for (int r = 0; r != comm.size(); ++r) {
        for (int k = 0; k != count(r, me); ++k) {
            auto const& buffer = in[at++];
            for (std::size_t i = 0; i != buffer.size(); ++i) {
                wrong += buffer[i] != mark(r, me, k, static_cast<Index>(i)) ? 1 : 0;
            }
        }
    }
    RESHARD_CHECK(wrong == 0);
}

/// How a box of three dimensions lies in memory. Of 64 ways half have no gaps, and a sixth the first dimension
/// innermost.
class Laid {
public:
    Laid(Index element, Index const (&extents)[3], unsigned way) {
        constexpr int orders[6][3] = {{0, 1, 2}, {2, 1, 0}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}, {1, 0, 2}};
        way %= 64;
        box = box_of(element, {{extents[0], 0}, {extents[1], 0}, {extents[2], 0}});
        bytes = element;
        for (int place = 2; place >= 0; --place) {
            transport::StridedDim& dim = box.dims[orders[way % 6][place]];
            bool const backwards = way / 2 % 6 == 3 + static_cast<unsigned>(place);
            dim.stride = backwards ? -bytes : bytes;
            if (backwards) origin += (dim.extent - 1) * bytes;
            bytes *= dim.extent + (way < 32 ? 0 : static_cast<Index>(way % 3));
        }
    }
    /// visit(byte of the box, counted in the order of the elements; where it lies): of long elements, every fifth byte.
    template <class Visit>
    void each(Visit visit) const {
        Index k = 0;
        for (Index a = 0; a != box.dims[0].extent; ++a)
            for (Index b = 0; b != box.dims[1].extent; ++b)
                for (Index c = 0; c != box.dims[2].extent; ++c)
                    for (Index e = 0; e<box.element_bytes; e += box.element_bytes> 8 ? 5 : 1)
                        visit(k++,
                              origin + a * box.dims[0].stride + b * box.dims[1].stride + c * box.dims[2].stride + e);
    }

    transport::StridedBox box;
    Index origin = 0;  ///< of the first element
    Index bytes = 1;   ///< of all, gaps included
};

/// Boxes that lie otherwise in memory on each rank and on both sides: several to a peer, one of them too long for a
/// message.
inline void moves_any_memory_order(CommunicatorRef comm) {
    int const me = comm.rank();
    int const ranks = comm.size();
    auto const number = [&](int from, int to, int k) {
        return static_cast<unsigned>(mark(from, to, k, 17)) + 64U * static_cast<unsigned>(mark(to, from, k, 23));
    };
    auto const laid = [&](int from, int to, int k, unsigned way) {
        auto const n = static_cast<Index>(number(from, to, k));
        bool const is_long = k == 1 && to == (from + 1) % ranks;
        return Laid(16, {1 + n % 7, 1 + n / 7 % 5, is_long ? 36'000 / (1 + n % 7) / (1 + n / 7 % 5) : 1 + n % 11}, way);
    };
    // Most ranks have one way, as programs do.
    auto const way = [&](int rank, int k, int side, unsigned trial) {
        return trial == 0 ? 1U : number(rank, trial == 1 ? 0 : k, side) + trial;
    };
    for (unsigned trial = 0; trial != 3; ++trial) {
        std::vector<std::vector<std::byte>> memory;
        Letters letters;
        for (int r = 0; r != ranks; ++r) {
            for (int k = 0; k != 3; ++k) {
                Laid const from = laid(me, r, k, way(me, k, 0, trial));
                auto& out = memory.emplace_back(static_cast<std::size_t>(from.bytes));
                from.each([&](Index i, Index at) { out[static_cast<std::size_t>(at)] = mark(me, r, k, i); });
                letters.sends.push_back({r, out.data() + from.origin, from.box});
                Laid const to = laid(r, me, k, way(me, k, 1, trial));
                auto& in = memory.emplace_back(static_cast<std::size_t>(to.bytes));
                letters.receives.push_back({r, in.data() + to.origin, to.box});
            }
        }
        auto bound = comm.bind(letters.sends, letters.receives);
        for (int turn = 0; turn != 2; ++turn) {
            bound.start();
            bound.wait();
            Index wrong = 0;
            std::size_t place = 1;
            for (int r = 0; r != ranks; ++r) {
                for (int k = 0; k != 3; ++k, place += 2) {
                    auto& in = memory[place];
                    laid(r, me, k, way(me, k, 1, trial)).each([&](Index i, Index at) {
                        wrong +=
                            std::exchange(in[static_cast<std::size_t>(at)], std::byte{0}) != mark(r, me, k, i) ? 1 : 0;
                    });
                }
            }
            RESHARD_CHECK(wrong == 0);
        }
    }
}

/// Nine dimensions: the most a tensor with a dimension of addends has.
inline void moves_nine_dimensions(CommunicatorRef comm) {
    static_assert(max_dims + 1 == 9);
    transport::StridedBox from;
    transport::StridedBox to;
    from.element_bytes = to.element_bytes = 2;
    Index from_step = 2;
    Index to_step = 2;
    for (int d = 0; d != 9; ++d) {
        from.dims.push_back({2, from_step});  // first dimension fastest
        from_step *= 2;
        to.dims.push_back({2, 0});
    }
    for (int d = 8; d >= 0; --d) {
        to.dims[d].stride = to_step;  // last dimension fastest, every other one padded
        to_step *= d % 2 == 0 ? 3 : 2;
    }
    int const next = (comm.rank() + 1) % comm.size();
    int const previous = (comm.rank() + comm.size() - 1) % comm.size();
    std::vector<std::uint16_t> source(512);
    for (std::size_t i = 0; i != source.size(); ++i) {
        source[i] = static_cast<std::uint16_t>(static_cast<std::size_t>(comm.rank()) * 512U + i);
    }
    std::vector<std::uint16_t> destination(static_cast<std::size_t>(to_step / 2), 0xffffU);
    transport::Send const send{next, reinterpret_cast<std::byte const*>(source.data()), from};
    transport::Receive const receive{previous, reinterpret_cast<std::byte*>(destination.data()), to};
    comm.exchange({&send, 1}, {&receive, 1}).wait();
    int wrong = 0;
    for (unsigned i = 0; i != 512; ++i) {
        Index at = 0;
        for (int d = 0; d != 9; ++d) at += ((i >> static_cast<unsigned>(d)) & 1U) != 0 ? to.dims[d].stride / 2 : 0;
        wrong += destination[static_cast<std::size_t>(at)] != static_cast<unsigned>(previous) * 512U + i ? 1 : 0;
    }
    RESHARD_CHECK(wrong == 0);
}

/// What all ranks sent is what all ranks received; a rank's own transfers are local and nothing else.
inline void counts_traffic(CommunicatorRef comm) {
    Traffic const before = comm.traffic();
    auto const bytes = [](int from, int to, int nth) { return 1 + from * 5 + to * 3 + nth; };
    auto const count = [](int from, int to) { return from == to ? 1 : 2; };
    moves_in_order(comm, count, bytes);
    Traffic const moved = comm.traffic() - before;
    Index sent = 0;
    Index received = 0;
    for (int r = 0; r != comm.size(); ++r) {
        if (r == comm.rank()) continue;
        for (int k = 0; k != 2; ++k) {
            sent += bytes(comm.rank(), r, k);
            received += bytes(r, comm.rank(), k);
        }
    }
    RESHARD_CHECK(moved.bytes_sent == sent);
    RESHARD_CHECK(moved.bytes_received == received);
    // Two transfers to each peer: a transport may let them share a message.
    RESHARD_CHECK(moved.messages_sent >= comm.size() - 1);
    RESHARD_CHECK(moved.messages_sent <= 2 * (comm.size() - 1));
    RESHARD_CHECK(moved.messages_received >= comm.size() - 1);
    RESHARD_CHECK(moved.messages_received <= 2 * (comm.size() - 1));
    RESHARD_CHECK(moved.bytes_local == bytes(comm.rank(), comm.rank(), 0));
    std::vector<Traffic> all(static_cast<std::size_t>(comm.size()));
    all_gather(comm, std::as_bytes(std::span(&moved, 1)), std::as_writable_bytes(std::span(all)));
    Traffic sum;
    for (auto const& one : all) {
        sum.bytes_sent += one.bytes_sent;
        sum.bytes_received += one.bytes_received;
        sum.messages_sent += one.messages_sent;
        sum.messages_received += one.messages_received;
    }
    RESHARD_CHECK(sum.bytes_sent == sum.bytes_received);
    RESHARD_CHECK(sum.messages_sent == sum.messages_received);
}

inline void splits_by_colour_and_key(CommunicatorRef comm) {
    int const me = comm.rank();
    AnyCommunicator odd_even = comm.split(me % 2, -me);  // keys turn the order around
    int const members = (comm.size() + 1 - me % 2) / 2;
    RESHARD_CHECK(odd_even.size() == members);
    RESHARD_CHECK(odd_even.rank() == members - 1 - me / 2);
    sends_one_value_to_each_peer(odd_even);
    AnyCommunicator same = comm.split(0, 7);  // equal keys keep the order
    RESHARD_CHECK(same.size() == comm.size());
    RESHARD_CHECK(same.rank() == me);
    AnyCommunicator few = comm.split(me == 0 ? -1 : 5, 0);
    RESHARD_CHECK(few.size() == (me == 0 ? 1 : comm.size() - 1));
    RESHARD_CHECK(few.rank() == (me == 0 ? 0 : me - 1));
    sends_one_value_to_each_peer(few);
    AnyCommunicator alone = comm.split(-5, me);  // equal negative colours are no group either
    RESHARD_CHECK(alone.size() == 1);
    RESHARD_CHECK(alone.rank() == 0);
    AnyCommunicator again = few.split(0, few.rank());  // a group of one splits as well
    RESHARD_CHECK(again.size() == few.size());
    sends_one_value_to_each_peer(again);
    AnyCommunicator moved = std::move(again);
    sends_one_value_to_each_peer(moved);
    RESHARD_CHECK(moved.traffic().bytes_sent == 2 * 4 * (moved.size() - 1));  // a new group counts from zero
    sends_one_value_to_each_peer(comm);
}

template <Communicator C>
void splits_along_mesh_axes(C& comm) {
    Index const half = comm.size() / 2;
    if (half >= 1) {  // an odd group leaves its last rank outside the mesh
        Mesh const mesh{2, half};
        bool const inside = comm.rank() < 2 * half;
        C column = comm.split(mesh, 0);
        C row = comm.split(mesh, 1);
        RESHARD_CHECK(column.size() == (inside ? 2 : 1));
        RESHARD_CHECK(row.size() == (inside ? half : 1));
        RESHARD_CHECK(column.rank() == (inside ? comm.rank() / half : 0));
        RESHARD_CHECK(row.rank() == (inside ? comm.rank() % half : 0));
        sends_one_value_to_each_peer(column);
        sends_one_value_to_each_peer(row);
        C turned = comm.split(mesh.named("dp", "tp"), {"tp", "dp"});
        RESHARD_CHECK(turned.size() == (inside ? 2 * half : 1));
        RESHARD_CHECK(turned.rank() == (inside ? row.rank() * 2 + column.rank() : 0));
        std::vector<int> line(static_cast<std::size_t>(row.size()));
        int const me = comm.rank();
        all_gather(row, std::as_bytes(std::span(&me, 1)), std::as_writable_bytes(std::span(line)));
        for (std::size_t i = 0; i != line.size(); ++i) {
            RESHARD_CHECK(line[i] == (inside ? me - row.rank() + static_cast<int>(i) : me));
        }
    }
    Mesh const whole{1, comm.size()};
    RESHARD_CHECK_THROWS(static_cast<void>(comm.split(whole, 2)), MeshError);
    RESHARD_CHECK_THROWS(static_cast<void>(comm.split(whole, -1)), MeshError);
    RESHARD_CHECK_THROWS(static_cast<void>(comm.split(Mesh{1, comm.size() + 1}, 0)), MeshError);
    sends_one_value_to_each_peer(comm);  // arguments that all get wrong poison nothing
}

inline void agrees_on_nothing(CommunicatorRef comm) { RESHARD_CHECK(comm.agree({}).ok()); }

inline void agrees(CommunicatorRef comm) {
    transport::Verdict fine;
    fine.digest = 42;
    transport::Verdict const joint = comm.agree(fine);
    RESHARD_CHECK(joint.ok());
    RESHARD_CHECK(joint.digest == 42);
    for (int failing = 0; failing != comm.size(); ++failing) {
        transport::Verdict mine;
        if (comm.rank() >= failing) {  // of several, the lowest rank's counts
            mine.code = ErrorCode::buffer;
            mine.reason = errors::concat("rank ", comm.rank(), " has no buffer", std::string(300, '.'));
        }
        transport::Verdict const all = comm.agree(mine);
        RESHARD_CHECK(all.code == ErrorCode::buffer);
        RESHARD_CHECK(all.rank == failing);
        RESHARD_CHECK(all.reason == errors::concat("rank ", failing, " has no buffer", std::string(300, '.')));
    }
    for (int other = 1; other < comm.size(); ++other) {
        transport::Verdict mine;
        mine.digest = comm.rank() >= other ? 2 : 1;
        transport::Verdict const all = comm.agree(mine);
        RESHARD_CHECK(all.code == ErrorCode::mismatch);
        RESHARD_CHECK(all.rank == other);
        RESHARD_CHECK(all.reason.find("rank 0") != std::string::npos);
        RESHARD_CHECK(!all.apart);
    }
    for (bool const fails : {false, true}) {  // `words` is a pointer into the memory of its rank
        bool const last = comm.rank() == comm.size() - 1;
        std::string const text = errors::concat("rank ", comm.rank(), " in words");
        transport::Verdict mine;
        mine.code = fails && last ? ErrorCode::io : ErrorCode::none;
        mine.digest = !fails && last ? 2 : 1;
        mine.words = [](void const* about) { return *static_cast<std::string const*>(about); };
        mine.about = &text;
        std::string const all = comm.agree(mine).reason;
        if (comm.size() == 1 && !fails) continue;
        RESHARD_CHECK(all.find(errors::concat("rank ", comm.size() - 1, " in words")) == 0);
        RESHARD_CHECK((fails || all.find("but rank 0 rank 0 in words") != std::string::npos));
    }
    for (int other = 1; other < comm.size(); ++other) {
        for (bool const fails : {false, true}) {  // the last rank
            transport::Verdict mine;
            std::string const call = comm.rank() == other ? "one" : "two";  // of others nobody has a static text
            mine.call = call;
            mine.digest = comm.rank() == 1 && other > 1 ? 3 : 2;  // who is elsewhere counts before who differs
            if (fails && comm.rank() == comm.size() - 1) {
                mine.code = ErrorCode::io;
                mine.reason = "no file";
            }
            transport::Verdict const all = comm.agree(mine);
            RESHARD_CHECK(all.apart);
            RESHARD_CHECK(all.code == (fails ? ErrorCode::io : ErrorCode::mismatch));
            RESHARD_CHECK(all.rank == (fails ? comm.size() - 1 : other));
            bool const last = other == comm.size() - 1;
            RESHARD_CHECK(all.reason.find(!fails ? "is in one(), but rank 0 is in two(). Fix: "
                                          : last ? "no file (Rank 0 is in two(): "
                                                 : errors::concat("no file (Rank ", other, " is in one(): ")) == 0);
        }
    }
    sends_one_value_to_each_peer(comm);  // a failing verdict poisons nothing
}

/// A ring shift whose exchange is treated in every legal way.
inline void keeps_exchange_promises(CommunicatorRef comm) {
    int const next = (comm.rank() + 1) % comm.size();
    int const previous = (comm.rank() + comm.size() - 1) % comm.size();
    Index mine = comm.rank() + 100;
    Index got = -1;
    transport::Send const send{next, reinterpret_cast<std::byte const*>(&mine), box_of(8, {})};
    transport::Receive const receive{previous, reinterpret_cast<std::byte*>(&got), box_of(8, {})};
    auto start = [&] {
        got = -1;
        return comm.exchange({&send, 1}, {&receive, 1});
    };
    {
        [[maybe_unused]] auto request = start();  // destroyed without wait: the destructor waits
    }
    RESHARD_CHECK(got == previous + 100);
    {
        auto request = start();
        auto moved = std::move(request);
        RESHARD_CHECK(request.done());  // moved-from: nothing left to wait for
        request.wait();
        moved.wait();
        RESHARD_CHECK(moved.done());
        RESHARD_CHECK(got == previous + 100);
        moved.wait();  // twice is once
        RESHARD_CHECK(moved.test());
    }
    {
        auto request = start();
        while (!request.test()) {
        }
        RESHARD_CHECK(request.done());
        RESHARD_CHECK(got == previous + 100);
    }
    {
        auto request = start();
        request = AnyExchange();  // assigning over it waits as well
        RESHARD_CHECK(got == previous + 100);
        RESHARD_CHECK(request.done());
    }
    barrier(comm);
}

/// What each rank has for the next one, bound once.
struct BoundRing {
    Index mine = -1;
    Index got = -1;
    transport::Send send;
    transport::Receive receive;
    AnyExchange exchange;

    explicit BoundRing(CommunicatorRef comm)
        : send{(comm.rank() + 1) % comm.size(), reinterpret_cast<std::byte const*>(&mine), box_of(8, {})},
          receive{(comm.rank() + comm.size() - 1) % comm.size(), reinterpret_cast<std::byte*>(&got), box_of(8, {})},
          exchange(comm.bind({&send, 1}, {&receive, 1})) {}
    BoundRing(BoundRing const&) = delete;
    BoundRing& operator=(BoundRing const&) = delete;

    void start(CommunicatorRef comm, Index round) {
        mine = round * 100 + comm.rank();
        exchange.start();
    }
    [[nodiscard]] bool is_right(Index round) const { return got == round * 100 + receive.peer; }
};

/// Binding moves nothing and asks nobody, and what is bound need not be used. It moves what memory holds when it is
/// started, each time.
inline void replays_what_is_bound(CommunicatorRef comm) {
    AnyExchange const unused = comm.bind({}, {});
    {
        AnyExchange extra;
        if (comm.rank() == 0) extra = comm.bind({}, {});  // the others bind nothing: so much for an attempt that failed
    }
    agrees_on_nothing(comm);
    BoundRing ring(comm);
    ring.exchange.wait();  // nothing was started
    RESHARD_CHECK(ring.exchange.done());
    RESHARD_CHECK(ring.exchange.test());
    RESHARD_CHECK(ring.got == -1);
    for (Index round = 0; round != 4; ++round) {
        ring.start(comm, round);
        if (round == 1) {
            while (!ring.exchange.test()) {
            }
        } else if (round == 2) {
            ring.exchange = [&] { return std::move(ring.exchange); }();  // moved while it is under way
            ring.exchange.wait();
        } else {
            ring.exchange.wait();
        }
        RESHARD_CHECK(ring.is_right(round));
        agrees_on_nothing(comm);  // what one rank starts next does not meet what another has not finished
    }
}

/// Several exchanges may be under way: they are started in the same order everywhere, waited for in any order, and
/// other calls may come in between.
inline void keeps_several_under_way(CommunicatorRef comm) {
    BoundRing first(comm);
    BoundRing second(comm);
    BoundRing third(comm);
    for (Index round = 0; round != 3; ++round) {
        first.start(comm, round);
        second.start(comm, round + 1);
        if (round == 1) agrees_on_nothing(comm);
        third.start(comm, round + 2);
        if (comm.rank() % 2 == 0) {
            third.exchange.wait();
            first.exchange.wait();
            second.exchange.wait();
        } else {
            while (!second.exchange.test()) {
            }
            third.exchange.wait();
            first.exchange.wait();
        }
        RESHARD_CHECK(first.is_right(round));
        RESHARD_CHECK(second.is_right(round + 1));
        RESHARD_CHECK(third.is_right(round + 2));
    }
    {
        BoundRing dropped(comm);
        dropped.start(comm, 7);
        first.start(comm, 8);
    }
    first.exchange.wait();
    RESHARD_CHECK(first.is_right(8));
    // What is done may be started again, whether or not somebody has waited for it.
    first.start(comm, 9);
    second.start(comm, 9);
    second.exchange.wait();
    while (!first.exchange.done()) static_cast<void>(first.exchange.test());
    first.start(comm, 10);
    first.exchange.wait();
    RESHARD_CHECK(first.is_right(10));
    barrier(comm);
}

/// test() returns while rank 0 has not even come. It may be late by chance to find that out, so rank 0 is later each
/// time, and one of many times is enough.
inline void tests_without_blocking(CommunicatorRef comm) {
    if (comm.size() == 1) return;
    int value = 7;
    int got = 0;
    Letters letters;
    for (int r = 1; r != comm.size() && comm.rank() == 0; ++r)
        letters.sends.push_back({r, reinterpret_cast<std::byte const*>(&value), box_of(4, {})});
    if (comm.rank() != 0) letters.receives.push_back({0, reinterpret_cast<std::byte*>(&got), box_of(4, {})});
    bool all_returned = false;
    for (int late = 1; late <= 1024 && !all_returned; late *= 2) {
        if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(late));
        auto request = comm.exchange(letters.sends, letters.receives);
        char const returned = comm.rank() == 0 || !request.test() ? 1 : 0;
        request.wait();
        std::vector<char> all(static_cast<std::size_t>(comm.size()));
        all_gather(comm, std::as_bytes(std::span(&returned, 1)), std::as_writable_bytes(std::span(all)));
        all_returned = std::count(all.begin(), all.end(), 1) == comm.size();
    }
    RESHARD_CHECK(all_returned);  // else test() has waited for rank 0
}

/// When wait() has returned the memory is the caller's again, and what was sent needs no further call to arrive.
inline void is_done_when_wait_returns(CommunicatorRef comm) {
    int const last = comm.size() - 1;
    for (std::size_t bytes : {std::size_t{64}, std::size_t{3} << 20}) {
        std::vector<std::byte> memory(bytes, std::byte{5});
        std::vector<std::byte> const expected = memory;
        std::vector<std::byte> got(bytes);
        transport::Send const send{last, memory.data(), box_of(1, {{static_cast<Index>(bytes), 1}})};
        transport::Receive const receive{0, got.data(), send.box};
        {
            AnyCommunicator part = comm.split(0, 0);
            if (comm.rank() == last) std::this_thread::sleep_for(std::chrono::milliseconds(20));
            part.exchange({&send, comm.rank() == 0 ? 1U : 0U}, {&receive, comm.rank() == last ? 1U : 0U}).wait();
            memory.assign(bytes, std::byte{6});
        }  // nobody makes another call on it
        barrier(comm);
        RESHARD_CHECK((comm.rank() != last || std::memcmp(got.data(), expected.data(), bytes) == 0));
    }
}

/// What is under way cannot be started again; who tries is told so, and nothing is lost. For transports: a policy such
/// as AbortOnFailure makes of the error what it makes of any.
inline void refuses_a_second_start(CommunicatorRef comm) {
    BoundRing ring(comm);
    ring.start(comm, 5);
    RESHARD_CHECK_THROWS(ring.exchange.start(), TransportError);
    ring.exchange.wait();
    RESHARD_CHECK(ring.is_right(5));
    AnyExchange moved = std::move(ring.exchange);
    RESHARD_CHECK_THROWS(ring.exchange.start(), TransportError);
    RESHARD_CHECK_THROWS(AnyExchange().start(), TransportError);
    barrier(comm);
}

/// For programs that can count: `allocations_in(body)` runs body() and returns what this thread allocated meanwhile.
/// An exchange that is like one before allocates nothing.
template <class Count>
void exchanges_without_allocating(CommunicatorRef comm, Count const& allocations_in) {
    std::vector<std::byte> from(static_cast<std::size_t>(comm.size()) * 5000);
    std::vector<std::byte> to(from.size());
    Letters letters;
    for (int r = 0; r != comm.size(); ++r) {
        letters.sends.push_back({r, from.data() + r * 5000, box_of(1, {{100, 50}, {20, 1}})});
        letters.receives.push_back({r, to.data() + r * 5000, box_of(1, {{100, 30}, {20, 1}})});
    }
    auto const run = [&] { comm.exchange(letters.sends, letters.receives).wait(); };
    for (int round = 0; round != 3; ++round) run();
    RESHARD_CHECK(allocations_in(run) == 0);
}

inline void derives_collectives(CommunicatorRef comm) {
    barrier(comm);
    auto const ranks = static_cast<std::size_t>(comm.size());
    for (int root = 0; root != comm.size(); ++root) {
        std::vector<std::byte> text(33, std::byte{static_cast<unsigned char>(comm.rank() + 1)});
        broadcast(comm, text, root);
        RESHARD_CHECK(text == std::vector<std::byte>(33, std::byte{static_cast<unsigned char>(root + 1)}));
    }
    std::vector<std::byte> much((ranks << 16U) + 3);  // among five ranks and more it goes round in shares
    for (std::size_t i = 0; i != much.size(); ++i) much[i] = static_cast<std::byte>(i % 251);
    std::vector<std::byte> arrived = comm.rank() == 0 ? much : std::vector<std::byte>(much.size());
    broadcast(comm, arrived, 0);
    RESHARD_CHECK(arrived == much);
    std::vector<Index> counts(ranks);
    std::vector<Index> theirs(ranks, -1);
    for (std::size_t r = 0; r != ranks; ++r) counts[r] = comm.rank() * 100 + static_cast<Index>(r);
    all_to_all(comm, std::as_bytes(std::span(counts)), std::as_writable_bytes(std::span(theirs)));
    for (std::size_t r = 0; r != ranks; ++r) RESHARD_CHECK(theirs[r] == static_cast<Index>(r) * 100 + comm.rank());
    broadcast(comm, {}, 0);
    all_gather(comm, {}, {});
    all_to_all(comm, {}, {});
    RESHARD_CHECK_THROWS(broadcast(comm, {}, comm.size()), MeshError);
    std::vector<std::byte> short_by_one(ranks * 3 - 1);
    std::vector<std::byte> const three(3);
    RESHARD_CHECK_THROWS(all_gather(comm, three, short_by_one), BufferError);
}

/// Rows to the ranks they go to, as many as each pair says, also none, into memory with room to spare.
inline void sends_rows_by_counts(CommunicatorRef comm) {
    using Row = std::array<Index, 3>;
    auto const rows = [](int from, int to) { return Index{(3 * from + 5 * to) % 4}; };
    std::vector<Index> sent;
    std::vector<Row> from;
    std::vector<Row> expected;
    for (int r = 0; r < comm.size(); ++r) {
        sent.push_back(rows(comm.rank(), r));
        for (Index i = 0; i < rows(comm.rank(), r); ++i) from.push_back({comm.rank(), r, i});
        for (Index i = 0; i < rows(r, comm.rank()); ++i) expected.push_back({r, comm.rank(), i});
    }
    std::vector<Index> received(sent.size());
    all_to_all(comm, std::as_bytes(std::span(sent)), std::as_writable_bytes(std::span(received)));
    std::vector<Row> to(expected.size() + 2, Row{-1, -1, -1});
    expected.resize(to.size(), Row{-1, -1, -1});
    from.resize(from.size() + 1);
    all_to_all(comm, std::as_bytes(std::span(from)), sent, std::as_writable_bytes(std::span(to)), received,
               sizeof(Row));
    RESHARD_CHECK(to == expected);
}

/// Every rank sends every rank a column of floats as bfloat16, and a row of bfloat16 that becomes floats there. The
/// first is scaled by its sender, the second by its receiver. Traffic counts what is on the wire.
inline void converts_on_the_way(CommunicatorRef comm) {
    constexpr Index count = 301;
    auto const ranks = static_cast<std::size_t>(comm.size());
    std::vector<float> floats(static_cast<std::size_t>(count) * 2);
    std::vector<BFloat16> brains(static_cast<std::size_t>(count));
    std::vector<BFloat16> got_brains(ranks * static_cast<std::size_t>(count));
    std::vector<float> got_floats(ranks * static_cast<std::size_t>(count) * 3, -7.0F);
    for (std::size_t i = 0; i != static_cast<std::size_t>(count); ++i) {
        floats[2 * i] = static_cast<float>(i) * 1.37F + static_cast<float>(comm.rank());
        floats[2 * i + 1] = -7.0F;
        brains[i] = BFloat16(static_cast<float>(i) + static_cast<float>(comm.rank()));
    }
    Traffic const before = comm.traffic();
    Letters letters;
    for (int r = 0; r != comm.size(); ++r) {
        Index const place = r * count;
        letters.sends.push_back({r,
                                 reinterpret_cast<std::byte const*>(floats.data()),
                                 box_of(4, {{count, 8}}),
                                 {DType::f32, DType::bf16, 0.3, transport::convert}});
        letters.sends.push_back({r,
                                 reinterpret_cast<std::byte const*>(brains.data()),
                                 box_of(2, {{count, 2}}),
                                 {DType::bf16, DType::bf16, 1.0, transport::convert}});
        letters.receives.push_back({r,
                                    reinterpret_cast<std::byte*>(got_brains.data() + place),
                                    box_of(2, {{count, 2}}),
                                    {DType::bf16, DType::bf16, 1.0, transport::convert}});
        letters.receives.push_back({r,
                                    reinterpret_cast<std::byte*>(got_floats.data() + 3 * place),
                                    box_of(4, {{count, 12}}),
                                    {DType::f32, DType::bf16, -0.1, transport::convert}});
    }
    comm.exchange(letters.sends, letters.receives).wait();
    int wrong = 0;
    for (int r = 0; r != comm.size(); ++r) {
        for (Index i = 0; i != count; ++i) {
            auto const at = static_cast<std::size_t>(r * count + i);
            float const sent = static_cast<float>(i) * 1.37F + static_cast<float>(r);
            BFloat16 const value(static_cast<float>(i) + static_cast<float>(r));
            BFloat16 want_brain;
            float want_float = 0;
            transport::convert(reinterpret_cast<std::byte const*>(&sent), box_of(4, {}), DType::f32,
                               reinterpret_cast<std::byte*>(&want_brain), box_of(2, {}), DType::bf16, 0.3);
            transport::convert(reinterpret_cast<std::byte const*>(&value), box_of(2, {}), DType::bf16,
                               reinterpret_cast<std::byte*>(&want_float), box_of(4, {}), DType::f32, -0.1);
            wrong += got_brains[at].bits == want_brain.bits && got_floats[3 * at] == want_float ? 0 : 1;
            wrong += got_floats[3 * at + 1] == -7.0F && got_floats[3 * at + 2] == -7.0F ? 0 : 1;
        }
    }
    RESHARD_CHECK(wrong == 0);
    Traffic const moved = comm.traffic() - before;
    RESHARD_CHECK(moved.bytes_sent == (comm.size() - 1) * 2 * count * 2);
    RESHARD_CHECK(moved.bytes_received == (comm.size() - 1) * 2 * count * 2);
    RESHARD_CHECK(moved.bytes_local == 2 * count * 2);
}

/// What the last but one of the ranks sends to the last one, and what that one expects: bytes of each transfer.
struct Payloads {
    std::vector<Index> sent;
    std::vector<Index> expected;
    int nth = 0;  ///< the first that differs
};
inline std::vector<Payloads> const different_payloads = {
    {{24}, {32}, 0},    {{24, 8}, {24}, 1},
    {{24}, {24, 8}, 1}, {{24}, {}, 0},  // the receiver has no part in this exchange
    {{}, {24}, 0},                      // and here the sender has none
    {{1 << 20}, {}, 0},
};

/// Breaks the communicator, of two ranks or more: each case takes a fresh one. Both ranks get MismatchError with the
/// same words, the others PeerFailed: from that exchange, or from the next call where theirs was over before.
inline void notices_different_payloads(CommunicatorRef comm, Payloads const& one) {
    int const receiver = comm.size() - 1;
    int const sender = receiver - 1;
    std::vector<std::byte> const from(1 << 20);
    std::vector<std::byte> to(1 << 20, std::byte{0x77});
    Letters letters;
    for (Index bytes : one.sent)
        if (comm.rank() == sender) letters.sends.push_back({receiver, from.data(), box_of(1, {{bytes, 1}})});
    for (Index bytes : one.expected)
        if (comm.rank() == receiver) letters.receives.push_back({sender, to.data(), box_of(1, {{bytes, 1}})});
    ErrorCode code = ErrorCode::none;
    std::string text;
    try {
        comm.exchange(letters.sends, letters.receives).wait();
        barrier(comm);
        barrier(comm);
    } catch (Error const& error) {
        code = error.code();
        text = error.message();
    }
    RESHARD_CHECK(code == (comm.rank() >= sender ? ErrorCode::mismatch : ErrorCode::peer_failed));
    auto const says = [&](std::string const& part) { return text.find(part) != std::string::npos; };
    auto const side = [&](std::vector<Index> const& bytes) {
        auto const nth = static_cast<std::size_t>(one.nth);
        return nth < bytes.size() ? errors::concat(bytes[nth], " bytes") : std::string("nothing");
    };
    RESHARD_CHECK(says(errors::concat("rank ", sender, " sends ", side(one.sent))));
    RESHARD_CHECK(says(errors::concat("rank ", receiver, " expects ", side(one.expected))));
    RESHARD_CHECK_THROWS(barrier(comm), Error);  // a broken communicator stays broken
}

/// Breaks the communicator, of two ranks or more: the last rank starts what is alike in another order, when all start
/// it first or again. That rank and one of the others get MismatchError, and the rest this or PeerFailed.
inline void notices_another_order(CommunicatorRef comm, bool again) {
    BoundRing first(comm);
    agrees_on_nothing(comm);
    BoundRing second(comm);
    BoundRing third(comm);
    for (BoundRing* ring : {&first, &second, &third}) {
        if (!again) continue;
        ring->start(comm, 1);
        ring->exchange.wait();
    }
    bool const strays = comm.rank() == comm.size() - 1;
    ErrorCode code = ErrorCode::none;
    std::string text;
    try {
        agrees_on_nothing(comm);  // nobody strays while others are still above
        (strays ? third : second).start(comm, 2);
        (strays ? second : third).start(comm, 2);
        first.start(comm, 2);
        for (BoundRing* ring : {&first, &second, &third}) ring->exchange.wait();
        barrier(comm);
    } catch (Error const& error) {
        code = error.code();
        text = error.message();
    }
    RESHARD_CHECK((code == ErrorCode::mismatch || (code == ErrorCode::peer_failed && !strays)));
    auto const says = [&](std::string_view part) { return text.find(part) != std::string::npos; };
    RESHARD_CHECK(says("started an exchange that rank "));
    RESHARD_CHECK(says("Fix: make all ranks call the same things in the same order"));
    RESHARD_CHECK_THROWS(barrier(comm), Error);
}

/// The whole contract that can be tried without breaking the communicator. Collective.
template <Communicator C>
void conforms(C& comm) {
    static_assert(BoundExchange<typename C::exchange_type>);
    RESHARD_CHECK(comm.rank() >= 0);
    RESHARD_CHECK(comm.rank() < comm.size());
    sends_one_value_to_each_peer(comm);
    survives_empty_spans(comm);
    moves_strided_boxes(comm);
    moves_in_order(
        comm, [](int, int) { return 3; }, [](int from, int to, int k) { return 1 + k + from + to; });
    moves_in_order(
        comm, [](int from, int to) { return (from + 2 * to) % 3; },  // uneven, some pairs silent
        [](int from, int to, int k) { return (from + 1) * (to + 1) * 37 + k * 4099; });
    moves_in_order(
        comm, [](int, int) { return 200; }, [](int, int, int k) { return 1 + k % 9; });
    moves_in_order(
        comm, [](int from, int to) { return from == to ? 2 : 0; }, [](int, int, int) { return 70000; });
    moves_any_memory_order(comm);
    moves_nine_dimensions(comm);
    converts_on_the_way(comm);
    counts_traffic(comm);
    keeps_exchange_promises(comm);
    replays_what_is_bound(comm);
    keeps_several_under_way(comm);
    tests_without_blocking(comm);
    is_done_when_wait_returns(comm);
    agrees(comm);
    derives_collectives(comm);
    sends_rows_by_counts(comm);
    splits_by_colour_and_key(comm);
    splits_along_mesh_axes(comm);
}

}  // inline namespace
}  // namespace reshard::test
