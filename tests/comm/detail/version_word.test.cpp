// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/comm/detail/version_word.hpp, and comm/detail/agree_in_words.hpp where a rank speaks
// otherwise.
#include <reshard/comm/detail/agree_in_words.hpp>
#include <reshard/comm/detail/version_word.hpp>
#include <reshard/comm/streams.hpp>

#include <doctest/doctest.h>

#include <span>
#include <string>
#include <utility>

using namespace reshard;
using namespace reshard::detail;

TEST_CASE("the word says the version for ever, and what is none is an older version's") {
    CHECK(version_text(0x7273'0203'0004'0005U) == "version 2.3.4 (protocol 5)");
    for (std::uint64_t word : {0U, 1U, 0xffff'ffffU}) CHECK(version_text(word) == "an older version");
    CHECK(is_version_word(version_word));
    CHECK(static_cast<std::int64_t>(version_word) > 0);  // MPI finds the largest, and the smallest as that of -word
    std::string const mine = version_text(version_word);
    CHECK(
        versions_differ_text("Some", 0, "rank 3", 0x7273'0203'0004'0005U) ==
        "reshard::Some: the program of rank 0 was built with " + mine +
            " of this library, that of rank 3 with version 2.3.4 (protocol 5). Fix: build all ranks with one version.");
}

TEST_CASE("what ranks tell each other is that of this protocol; where it changes, the number is raised") {
    CHECK(protocol_number == 1);
    CHECK(sizeof(FailureRecord) == 1032);
    CHECK(sizeof(StreamHead) == 48);
    CHECK(sizeof(TransferListing) == 104);
}

TEST_CASE("a verdict that makes no sense, as of a rank of another version, is a MismatchError") {
    for (std::pair<unsigned, unsigned> const& said : {std::pair{20U, 21U}, {0xffff'ffffU, 0U}}) {
        int calls = 0;
        auto const maximum = [&](std::span<std::uint64_t> words, std::chrono::milliseconds) {
            if (++calls == 1) words[0] = 1;  // the last rank has failed
            if (calls != 2) return;
            words[2] = said.first;
            words[3] = said.second;
        };
        CHECK_THROWS_WITH_AS(static_cast<void>(agree_in_words({}, 0, 2, maximum)),
                             doctest::Contains("Fix: build all ranks with one version."), MismatchError);
    }
}
