// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/agree_in_words.hpp
/// \brief  agree() of transports that reduce, gather and spread a few words: one reduction where nothing is wrong.
/// \depends comm/communicator.hpp.
#pragma once

#include <reshard/comm/communicator.hpp>

namespace reshard::inline v0::detail {

/// `maximum(words)`: the largest of each over all ranks. `gather(words)`: those of all ranks, in their order.
/// `spread(text, root, length)`: the text of rank `root`. What one returns stays until the next of them is called,
/// what `gather` returns to the end.
template <class Maximum, class Gather, class Spread>
[[nodiscard]] Verdict agree_in_words(Verdict const& mine, int ranks, Maximum&& maximum, Gather&& gather,
                                     Spread&& spread) {
    std::uint64_t const text = Digest{}.add_text(mine.reason).value();
    std::uint64_t const words[5] = {mine.ok() ? 0U : 1U, mine.digest, ~mine.digest, text, ~text};
    std::uint64_t const* const most = maximum(words);
    if (most[0] == 0 && most[1] == ~most[2] && most[3] == ~most[4]) {
        Verdict joint = mine;
        joint.words = nullptr;
        joint.rank = 0;
        return joint;
    }
    // The slow way: somebody fails or differs, so everybody looks at all verdicts and hears the texts that matter.
    std::string const said = mine.said();
    std::uint64_t const own[3] = {static_cast<std::uint64_t>(mine.code), mine.digest, said.size()};
    std::uint64_t const* const all = gather(own);
    auto const at = [&](int rank) { return all + Index{3} * rank; };
    int failing = 0;
    while (failing < ranks && at(failing)[0] == 0) ++failing;
    int differing = failing < ranks ? ranks : 1;
    while (differing < ranks && at(differing)[1] == at(0)[1]) ++differing;
    // joint_verdict() knows what to make of them: it sees the first and the one that stands out.
    int const from[2] = {failing < ranks ? failing : 0, differing};
    int const count = differing < ranks ? 2 : 1;
    Verdict seen[2];
    for (int i = 0; i < count; ++i) {
        seen[i].code = static_cast<ErrorCode>(at(from[i])[0]);
        seen[i].digest = at(from[i])[1];
        seen[i].reason = spread(said, from[i], at(from[i])[2]);
    }
    Verdict joint = transport::joint_verdict(count, [&](int i) -> Verdict const& { return seen[i]; });
    joint.rank = from[count - 1];
    return joint;
}

}  // namespace reshard::inline v0::detail
