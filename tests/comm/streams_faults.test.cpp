// SPDX-License-Identifier: Apache-2.0
// Of include/reshard/comm/streams.hpp: transports with bugs. Each is found by what comes in front of messages and at
// their end: no number is silently wrong, and nobody waits for ever.
#include <reshard/comm/detail/version_word.hpp>
#include <reshard/comm/streams.hpp>

#include <doctest/doctest.h>

#include "consumer/runtime/pipes.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace reshard;

namespace {
enum class Fault {
    loses_the_first,  // byte of a message, and says that all have gone
    loses_a_value,
    loses_the_last,
    writes_a_value_twice,
    says_one_less,  // writes all
    says_one_more,
    reads_one_less,  // than it says
    reads_one_more,
    says_it_read_more,
    mistakes_the_receiver,
    mistakes_the_sender,
    swaps,
    repeats,
};
struct Bug {
    Fault fault = Fault::repeats;
    int at = 2;  // of the messages of rank 1 to rank 0
};

/// Rank 1 is at fault, once, in what it sends to rank 0; or rank 0 in what it reads.
class Faulty final : public runtime::Pipes {
public:
    using Pipes::Pipes;
    static inline Bug bug;

    Index write_some(int peer, Channel channel, std::span<std::byte const> bytes) override {
        auto const pass = [&](std::span<std::byte const> some) { return Pipes::write_some(peer, channel, some); };
        if (rank() != 1 || peer != 0 || channel != Channel::data) return pass(bytes);
        auto const size = bytes.size();
        auto const all = static_cast<Index>(size);
        std::size_t const value = size - 16;  // in front of the mark
        ++writes_;
        if (!held_.empty()) return pass(bytes), pass(std::exchange(held_, {})), all;
        if (writes_ != bug.at) return pass(bytes);
        switch (bug.fault) {
            case Fault::loses_the_first: return pass(bytes.last(size - 1)), all;
            case Fault::loses_a_value: return pass(bytes.first(value)), pass(bytes.subspan(value + 1)), all;
            case Fault::loses_the_last: return pass(bytes.first(size - 1)), all;
            case Fault::writes_a_value_twice: return pass(bytes.first(value + 1)), pass(bytes.subspan(value)), all;
            case Fault::says_one_less: return pass(bytes) - 1;
            case Fault::says_one_more: return pass(bytes) + 1;
            case Fault::mistakes_the_receiver: return Pipes::write_some(2, channel, bytes);
            case Fault::swaps: return held_.assign(bytes.begin(), bytes.end()), all;
            case Fault::repeats: return pass(bytes), pass(bytes);
            default: return pass(bytes);
        }
    }
    Index read_some(int peer, Channel channel, std::span<std::byte> bytes) override {
        bool const at_fault = rank() == 0 && peer == 1 && channel == Channel::data && reads_ == 2 * (bug.at - 1);
        bool const other = at_fault && bug.fault == Fault::mistakes_the_sender;
        Index const n = Pipes::read_some(other ? 2 : peer, channel, bytes);
        if (rank() != 0 || peer != 1 || channel != Channel::data || n <= 0) return n;
        ++reads_;  // a head, or what is behind it
        if (!at_fault) return n;
        std::byte more{};
        if (bug.fault == Fault::reads_one_less) return n - 1;
        if (bug.fault == Fault::reads_one_more) return Pipes::read_some(peer, channel, {&more, 1}), n;
        return bug.fault == Fault::says_it_read_more ? n + 1 : n;
    }

private:
    int writes_ = 0;
    int reads_ = 0;
    std::vector<std::byte> held_;
};

/// Rank 1 says that it is another one. It has no stream to itself: that one is closed, or nothing moves.
class Mistaken final : public runtime::Pipes {
public:
    using Pipes::Pipes;
    static inline int said = 0;
    static inline Index to_itself = 0;
    int rank() const noexcept override { return Pipes::rank() == 1 ? said : Pipes::rank(); }
    Index write_some(int peer, Channel channel, std::span<std::byte const> bytes) override {
        return peer == Pipes::rank() ? to_itself : Pipes::write_some(peer, channel, bytes);
    }
    Index read_some(int peer, Channel channel, std::span<std::byte> bytes) override {
        return peer == Pipes::rank() ? to_itself : Pipes::read_some(peer, channel, bytes);
    }
};

/// The first word of rank 1 is that of another version, behind which there are `more` bytes or everything.
class OtherVersion final : public runtime::Pipes {
public:
    using Pipes::Pipes;
    static inline std::uint64_t word = 0;
    static inline std::size_t more = 0;
    Index write_some(int peer, Channel channel, std::span<std::byte const> bytes) override {
        if (rank() != 1 || channel != Channel::data) return Pipes::write_some(peer, channel, bytes);
        Pipes::write_some(peer, channel, std::as_bytes(std::span(&word, 1)));
        if (more != 0) Pipes::write_some(peer, channel, bytes.subspan(sizeof word, more));
        return static_cast<Index>(bytes.size());
    }
};

struct Thrown {
    ErrorCode code = ErrorCode::none;
    std::string message;
    [[nodiscard]] bool says(std::string const& part) const { return message.find(part) != std::string::npos; }
};

/// Three ranks, each of which sends its number and the round to the others, again and again. With `stay` none closes
/// its streams before rank 0.
template <class Streams>
std::vector<Thrown> run(int rounds, std::chrono::milliseconds deadline = std::chrono::seconds(20), bool stay = false) {
    auto const ends = runtime::socket_pairs(3);
    REQUIRE(!ends.empty());
    std::vector<Thrown> thrown(3);
    std::vector<std::thread> threads;
    std::atomic<bool> over{false};
    for (int r = 0; r != 3; ++r) {
        threads.emplace_back([&, r] {
            auto const i = static_cast<std::size_t>(r);
            try {
                StreamCommunicator comm(std::make_unique<Streams>(r, ends[i]), deadline);
                for (int round = 0; round != rounds; ++round) {
                    int const mine = 10 * round + r;
                    int got[3] = {-1, -1, -1};
                    transport::StridedBox const box{{}, sizeof(int)};
                    std::vector<transport::Send> sends;
                    std::vector<transport::Receive> receives;
                    for (int p = 0; p != 3; ++p) {
                        sends.push_back({p, reinterpret_cast<std::byte const*>(&mine), box});
                        receives.push_back({p, reinterpret_cast<std::byte*>(got + p), box});
                    }
                    comm.exchange(sends, receives).wait();
                    for (int p = 0; p != 3; ++p) CHECK(got[p] == 10 * round + p);
                }
                while (stay && r != 0 && !over) std::this_thread::yield();
            } catch (Error const& error) {
                thrown[i] = {error.code(), error.message()};
            }
            if (r == 0) over = true;
        });
    }
    for (auto& thread : threads) thread.join();
    return thrown;
}
std::string const remedy =
    "the transport is at fault. Fix: see that its rank() is right, and that write_some() and read_some() move bytes of "
    "the peer they are given, in order, once, and return how many.";
}  // namespace

TEST_SUITE("comm/streams_faults") {
    TEST_CASE("a transport that counts wrong or mistakes ranks or orders is said to be at fault, and where") {
        struct Case {
            Fault fault;
            std::size_t seen_by;
            std::string text;
            std::string also = {};
        };
        std::string const second = "reshard::streams: message 2 from rank 1 to rank 0 was expected, but ";
        std::string const third = "reshard::streams: message 3 from rank 1 to rank 0 was expected, but ";
        std::string const bytes = "in it bytes are missing, or too many: ";
        for (Case const& one : std::vector<Case>{
                 {Fault::loses_the_first, 0, second + bytes},
                 {Fault::loses_a_value, 0, second + bytes},
                 {Fault::loses_the_last, 0, second + bytes},
                 {Fault::writes_a_value_twice, 0, second + bytes},
                 {Fault::says_one_less, 0, third + bytes},
                 {Fault::reads_one_less, 0, second + bytes},
                 {Fault::reads_one_more, 0, second + bytes},
                 {Fault::says_one_more, 1,
                  "was given 168 bytes, with rank 0 as peer, and says that it has moved 169: it"},
                 {Fault::says_it_read_more, 0, "48 bytes, with rank 1 as peer, and says that it has moved 49: it"},
                 {Fault::mistakes_the_sender, 0, second, " from rank 2 to rank 0 came: "},
                 {Fault::swaps, 0, second + "message 3 from rank 1 to rank 0 came: "},
                 {Fault::repeats, 0, third + "message 2 from rank 1 to rank 0 came: "},
             }) {
            CAPTURE(one.text);
            Faulty::bug = {one.fault, 2};
            auto const thrown = run<Faulty>(6);
            for (std::size_t r = 0; r != thrown.size(); ++r) {
                CHECK(thrown[r].code == (r == one.seen_by ? ErrorCode::transport : ErrorCode::peer_failed));
                CHECK(thrown[r].says(one.text));
                CHECK(thrown[r].says(one.also));
                CHECK(thrown[r].says(remedy.substr(remedy.find("is at fault"))));
            }
        }
    }

    TEST_CASE("a message to another rank is seen by that one, or missed by the one that it was for") {
        Faulty::bug = {Fault::mistakes_the_receiver, 2};
        for (Thrown const& one : run<Faulty>(6)) {
            bool const seen =
                one.says("from rank 1 to rank 2 was expected, but message 2 from rank 1 to rank 0 came: ");
            bool const missed = one.says("message 2 from rank 1 to rank 0 was expected, but message 3 from rank 1 ");
            CHECK((seen || missed));
            CHECK(one.says(remedy));
        }
    }

    TEST_CASE("what the last message lacks is not waited for in silence, and what is too much in it is found") {
        Faulty::bug = {Fault::writes_a_value_twice, 2};
        CHECK(run<Faulty>(2)[0].code == ErrorCode::transport);
        for (Fault fault : {Fault::loses_the_first, Fault::loses_a_value, Fault::loses_the_last}) {
            Faulty::bug = {fault, 2};
            for (bool stay : {false, true}) {
                if (stay && fault == Fault::loses_the_first)
                    continue;  // which is found at once, or late where all are busy
                CAPTURE(stay);
                auto const thrown = run<Faulty>(2, std::chrono::milliseconds(stay ? 800 : 20'000), stay);
                bool const found = fault == Fault::loses_the_first;  // where the head is whole
                CHECK(thrown[0].code == (found  ? ErrorCode::transport
                                         : stay ? ErrorCode::deadline
                                                : ErrorCode::peer_failed));
                if (!found)
                    CHECK(thrown[0].says("Of message 2 from it 167 bytes have come: where the transport is new"));
                CHECK(thrown[0].says(remedy.substr(remedy.find("its rank()"))));
            }
        }
    }

    TEST_CASE("a rank whose program has another version of the library is told so, as are all") {
        for (std::uint64_t other : {detail::version_word + 1, std::uint64_t{1}}) {
            for (std::size_t more : {0U, 16U, 60U}) {
                CAPTURE(more);
                OtherVersion::word = other;
                OtherVersion::more = more;
                for (Thrown const& one : run<OtherVersion>(2)) {
                    CHECK(one.code == ErrorCode::mismatch);
                    CHECK(one.says("was built with " + detail::version_text(detail::version_word) +
                                   " of this library, that of rank 1 with " + detail::version_text(other) +
                                   ". Fix: build all ranks with one version."));
                }
            }
        }
    }

    TEST_CASE("a byte that the first message lacks is the transport's fault, not another version") {
        Faulty::bug = {Fault::loses_the_first, 1};
        CHECK(run<Faulty>(2)[0].says("message 1 from rank 1 to rank 0 was expected, but in it bytes are missing"));
    }

    TEST_CASE("a transport that is mistaken in its rank") {
        for (int said : {0, 2}) {
            for (Index to_itself : {Index{0}, transport::Streams::closed}) {
                CAPTURE(said);
                CAPTURE(to_itself);
                Mistaken::said = said;
                Mistaken::to_itself = to_itself;
                auto const thrown = run<Mistaken>(2);
                for (Thrown const& one : thrown) {
                    CHECK(one.code != ErrorCode::none);
                    CHECK(one.says("rank() is right"));
                }
                if (to_itself != 0) continue;
                CHECK(std::any_of(thrown.begin(), thrown.end(),
                                  [](Thrown const& one) { return one.code == ErrorCode::transport; }));
            }
        }
        for (int said : {-1, 3}) {
            Mistaken::said = said;
            auto const thrown = run<Mistaken>(2);
            CHECK(thrown[1].code == ErrorCode::transport);
            CHECK(thrown[1].says("the transport says that it is rank " + std::to_string(said) + " of 3: "));
            for (std::size_t r : {0U, 2U}) CHECK(thrown[r].code == ErrorCode::peer_failed);
        }
    }
}
