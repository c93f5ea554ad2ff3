// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/agree_in_words.hpp
/// \brief  Agreement by reductions of a few words: one where nothing is wrong.
/// \depends comm/agree.hpp, core/digest.hpp, <cstring>, <vector>.
#pragma once

#include <reshard/comm/agree.hpp>

#include <chrono>   // milliseconds
#include <cstring>  // memcpy
#include <span>     // span
#include <vector>   // vector

namespace reshard::inline v0_1::detail {

/// As many as maximum() is given at a time, at most.
inline constexpr std::size_t most_words = 32;

/// `maximum(words, patience)` makes of each word the largest of all ranks; patience: for what may still complete
/// although somebody has gone on and failed.
[[nodiscard]] inline Verdict agree_in_words(
    Verdict const& mine, int rank, int ranks,
    FunctionRef<void(std::span<std::uint64_t> words, std::chrono::milliseconds patience)> maximum) {
    using Words = std::span<std::uint64_t>;
    constexpr std::uint64_t most_letters = std::uint64_t{1} << 30U;
    // Whoever failed may have left this very agreement before: then its end is on its way. If not, nobody waits long.
    constexpr std::chrono::milliseconds of_all{100};
    // Who has heard the verdict first throws it, and so may fail while others are still hearing it: they must get the
    // same error, not PeerFailed.
    constexpr std::chrono::milliseconds of_verdict{1000};
    // The largest of these is the lowest rank for which it is so.
    auto const this_if = [&](bool so) { return so ? static_cast<std::uint64_t>(ranks - rank) : 0U; };
    std::uint64_t const text = Digest{}.add_text(mine.reason).value();
    std::uint64_t const mark = mine.mark();
    std::uint64_t all[5] = {this_if(!mine.ok()), mark, ~mark, text, ~text};
    maximum(Words(all), of_all);
    if (all[0] == 0 && all[1] == ~all[2] && all[3] == ~all[4]) {
        Verdict joint = mine;
        joint.words = nullptr;
        joint.call = {};
        joint.rank = 0;
        return joint;
    }
    // The slow way: somebody fails or differs, so everybody hears the verdicts that matter. Where one speaks, the
    // others are silent: zeros.
    std::string const said = concat(mine.call, mine.said());
    std::string calls[2];
    auto const hear = [&](int from, std::string& call) {
        std::uint64_t head[4] = {};
        if (from == rank) {
            head[0] = static_cast<std::uint64_t>(mine.code);
            head[1] = mine.digest;
            head[2] = said.size();
            head[3] = mine.call.size();
        }
        maximum(Words(head), of_verdict);
        if (head[3] > head[2] || head[2] > most_letters) {
            raise(ErrorCode::mismatch,
                  "reshard::agree(): what a rank says makes no sense: the ranks' programs have different versions of "
                  "this library, or the transport has changed it. Fix: build all ranks with one version.");
        }
        std::vector<std::uint64_t> letters((head[2] + sizeof head[0] - 1) / sizeof head[0]);
        if (from == rank && !said.empty()) std::memcpy(letters.data(), said.data(), said.size());
        for (Words left(letters); !left.empty(); left = left.subspan(smaller(left.size(), most_words)))
            maximum(left.first(smaller(left.size(), most_words)), of_verdict);
        std::string_view const heard(reinterpret_cast<char const*>(letters.data()), head[2]);
        call = heard.substr(0, head[3]);
        Verdict verdict{static_cast<ErrorCode>(head[0]), from, std::string(heard.substr(head[3])), head[1]};
        verdict.call = call;
        return verdict;
    };
    auto const rank_of = [&](std::uint64_t word) { return ranks - static_cast<int>(word); };
    // joint_verdict() knows what to make of them: it sees the first and the one that stands out.
    Verdict seen[2] = {hear(all[0] != 0 ? rank_of(all[0]) : 0, calls[0]), {}};
    // Who is elsewhere comes before who differs.
    bool const elsewhere = mine.call != seen[0].call;
    bool const alike = !elsewhere && (all[0] != 0 || mine.digest == seen[0].digest);
    auto const most = static_cast<std::uint64_t>(ranks);
    std::uint64_t differs[1] = {this_if(!alike) + (elsewhere ? most : 0)};
    maximum(Words(differs), of_verdict);
    int const count = differs[0] != 0 ? 2 : 1;
    if (count == 2) seen[1] = hear(rank_of(differs[0] > most ? differs[0] - most : differs[0]), calls[1]);
    Verdict joint = transport::joint_verdict(count, [&](int i) -> Verdict const& { return seen[i]; });
    joint.rank = seen[joint.rank].rank;
    return joint;
}

}  // namespace reshard::inline v0_1::detail
