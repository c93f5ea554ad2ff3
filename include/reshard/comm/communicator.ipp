// SPDX-License-Identifier: Apache-2.0
// How comm/communicator.hpp is done.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/core/detail/watched.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE transport::BoundTransfers transport::bound_transfers(std::string_view who,
                                                                    std::span<transport::Send const> sends,
                                                                    std::span<transport::Receive const> receives,
                                                                    int ranks) {
    auto const add_up = [&](auto transfers) {
        Index bytes = 0;
        int last = 0;
        for (auto const& transfer : transfers) {
            if (transfer.peer < last || transfer.peer >= ranks) {
                errors::raise(ErrorCode::transport, "reshard::", who, ": a transfer names rank ", transfer.peer,
                              " after rank ", last, " in a group of ", ranks,
                              ". Fix: sort transfers by peer, and name ranks that exist.");
            }
            last = transfer.peer;
            bytes += transfer.payload_bytes();
        }
        return bytes;
    };
    return {sends, receives, add_up(sends), add_up(receives), 0, false};
}

// ---- Exchanges one after the other -----------------------------------------------------------------------------

RESHARD_INLINE void transport::Engine::complete() {
    check_process();
    if (under_way_) static_cast<void>(go_on(true));
}
RESHARD_INLINE bool transport::Engine::go_on(bool may_block) {
    detail::watched(
        [&, this] {
            do under_way_ = !advance(may_block);
            while (may_block && under_way_);
        },
        [&, this](ErrorCode code, std::string_view reason) noexcept {
            under_way_ = false;
            if (failed_ != 0) return;
            failed_ = started_;
            code_ = code;
            detail::quietly([&] { reason_ = reason; });
        });
    return !under_way_;
}

RESHARD_INLINE transport::InOrder& transport::InOrder::operator=(InOrder&& other) noexcept {
    if (this == &other) return *this;
    detail::quietly([&] { wait(); });
    engine_ = std::exchange(other.engine_, nullptr);
    transfers_ = other.transfers_;
    notes_ = std::move(other.notes_);
    number_ = std::exchange(other.number_, 0);
    return *this;
}
RESHARD_INLINE transport::InOrder::~InOrder() {
    detail::quietly([&] { wait(); });
}
RESHARD_INLINE void transport::InOrder::start() {
    if (done()) wait();  // another start may have completed it, or found it wrong
    if (engine_ == nullptr || number_ != 0) {
        errors::raise(ErrorCode::transport,
                      number_ != 0
                          ? "reshard::exchange: it is under way. Fix: wait() for it before it is started again."
                          : "reshard::exchange: nothing is bound. Fix: start what bind() has returned.");
    }
    engine_->complete();
    ++engine_->started_;
    transfers_.notes = &notes_;
    engine_->start(transfers_);  // if this throws, nothing is under way
    engine_->under_way_ = true;
    transfers_.is_replay = true;
    number_ = engine_->started_;
}
RESHARD_INLINE bool transport::InOrder::advance(bool may_block) {
    std::uint64_t const number = std::exchange(number_, 0);  // if this throws, the exchange is over
    if (number == 0) return true;
    if (number == engine_->started_ && engine_->under_way_) {
        engine_->check_process();
        if (engine_->go_on(may_block)) return true;
        number_ = number;
        return false;
    }
    if (engine_->failed_ != 0 && number >= engine_->failed_) errors::raise(engine_->code_, engine_->reason_);
    return true;
}

RESHARD_INLINE transport::MeshLine transport::mesh_line(DynamicMesh const& mesh, MeshAxes const& axes, int rank,
                                                        int ranks) {
    Indices const along = mesh.axis_numbers(axes);
    if (mesh.last_rank() >= ranks) {
        errors::raise(ErrorCode::mesh, "reshard::split: the mesh holds rank ", mesh.last_rank(),
                      " but the communicator has ", ranks, " ranks. Fix: use a mesh of ranks that exist.");
    }
    if (!mesh.contains(rank)) return {};
    Indices const at = mesh.coordinates(rank);
    Index place = 0;
    Index first = mesh.ordinal(rank);  // of its part
    for (Index number : along) {
        int const axis = static_cast<int>(number);
        place = place * mesh.extent(axis) + at[axis];
        first -= at[axis] * mesh.stride(axis);
    }
    return {static_cast<int>(first), static_cast<int>(place)};
}

RESHARD_INLINE std::string transport::order_text(int rank, int other) {
    return errors::concat("reshard::exchange: rank ", detail::smaller(rank, other), " started an exchange that rank ",
                          detail::larger(rank, other),
                          " has not started; that one started another. Fix: ", detail::same_calls, who_agrees);
}
namespace detail {
/// Words in which options are listed, as a sentence: with that one alone, or, 0, with all.
[[nodiscard]] inline std::string sentence_with(std::size_t option, std::string_view words) {
    if (words.empty()) return "is in another call";
    std::string text;
    for (std::size_t i = 0;; ++i) {
        std::size_t const end = words.find(transport::next_option);
        if (i == 0 || i == option || option == 0)
            append(text, {i == 0 ? "" : i == 1 || i == option ? " " : ", ", words.substr(0, end)});
        if (end == words.npos) return text;
        words.remove_prefix(end + transport::next_option.size());
    }
}
/// "is in save()", and what the rank has in hand there, without options.
[[nodiscard]] inline std::string place_text(std::string_view call, std::string const& words) {
    std::string text("is in ");
    append(text, {call.empty() ? "another call" : call, call.empty() || call.back() == ')' ? "" : "()"});
    if (!words.empty() && words.find(transport::next_option.front()) == words.npos) append(text, {" (", words, ")"});
    return text;
}
}  // namespace detail

RESHARD_INLINE void transport::tell_difference(Verdict& joint, Verdict const& other, int its_rank) {
    using detail::append;
    joint.settle();
    joint.apart = other.call != joint.call;
    std::string& first = joint.reason;
    if (!joint.ok()) {  // who failed before it had a name for its call may be in the same
        if (first.empty() || joint.call.empty() || other.call.empty()) return;
        append(first, {" (Rank ", other.rank < 0 ? its_rank : other.rank, " ", detail::place_text(other.call, {}), ": ",
                       detail::same_calls, ")"});
        return;
    }
    joint.code = ErrorCode::mismatch;
    joint.rank = its_rank;
    std::string const mine = other.said();
    if (!joint.apart && mine.empty() && first.empty()) {
        first = differs;
        return;
    }
    std::size_t option = 0;  // the first that differs
    for (std::size_t i = 0; i < detail::smaller(mine.size(), first.size()) && mine[i] == first[i]; ++i)
        if (mine[i] == next_option.front()) ++option;
    std::string text;
    std::string of_first;
    for (;;) {
        text = joint.apart ? detail::place_text(other.call, mine) : detail::sentence_with(option, mine);
        of_first = joint.apart ? detail::place_text(joint.call, first) : detail::sentence_with(option, first);
        if (option == 0 || text != of_first) break;
        option = 0;  // there is none that both list
    }
    append(text,
           {", but rank 0 ", of_first, ". Fix: ",
            joint.apart || mine.empty() || first.empty() ? detail::same_calls : "give every rank the same arguments."});
    first = std::move(text);
}

RESHARD_INLINE std::string transport::mismatch_text(int sender, TransferSide sent, int receiver, TransferSide expected,
                                                    int nth) {
    bool const same_bytes = sent.bytes == expected.bytes;
    bool const converts = same_bytes && sent.wire != expected.wire;
    using detail::append;
    std::string text =
        errors::concat("reshard::exchange: transfer ", nth, " from rank ", sender, " to rank ", receiver, ": ");
    auto const add = [&](TransferSide side) {
        if (converts)
            return append(text, {side.wire < 0 ? "elements as they are" : name(static_cast<DType>(side.wire))});
        side.bytes < 0 ? append(text, {"nothing"}) : append(text, {side.bytes, " bytes"});
    };
    if (same_bytes && !converts) {
        append(text, {"both sides move "});
        add(sent);
        append(text, {" but list different extents"});
    } else {
        append(text, {"rank ", sender, " sends "});
        add(sent);
        append(text, {", rank ", receiver, " expects "});
        add(expected);
    }
    append(text, {converts ? ". Fix: cast on both sides or on neither, to the same type on the way."
                           : ". Fix: build both sides from the same plan, or counts."});
    return text;
}
RESHARD_INLINE std::string transport::mismatch_text(int sender, std::span<transport::Send const> sends, int receiver,
                                                    std::span<transport::Receive const> receives) {
    for (std::size_t k = 0; k < detail::larger(sends.size(), receives.size()); ++k) {
        transport::Send const* const send = k < sends.size() ? &sends[k] : nullptr;
        transport::Receive const* const receive = k < receives.size() ? &receives[k] : nullptr;
        if (send != nullptr && receive != nullptr && same_extents(*send, *receive)) continue;
        return mismatch_text(sender, side_of(send), receiver, side_of(receive), static_cast<int>(k));
    }
    return {};
}

}  // namespace reshard::inline v0_1
