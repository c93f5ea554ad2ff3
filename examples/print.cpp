// SPDX-License-Identifier: Apache-2.0
// Prints a distribution or a plan from its notation: the pictures of the documentation, and yours.
//
//     reshard_print draw "(2,4):(R,S0) [9,6]"
//     reshard_print explain "(2,4):(R,S0) -> (2,4):(R,S1) [8192,1024] F32 rank 3"
#include <reshard/algebra/draw.hpp>
#include <reshard/reshard.hpp>

#include "support/launcher.hpp"

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {
using namespace reshard;

[[noreturn]] void usage() {
    std::fputs(
        "usage: reshard_print draw \"DISTRIBUTION [SHAPE]\"\n"
        "       reshard_print explain \"DISTRIBUTION -> DISTRIBUTION [SHAPE] DTYPE rank N\"\n",
        stderr);
    std::exit(2);
}

std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words(1);
    for (char c : text) {
        if (c != ' ') {
            words.back() += c;
        } else if (!words.back().empty()) {
            words.emplace_back();
        }
    }
    return words;
}

std::string answer(std::string_view command, std::vector<std::string> const& words) {
    if (command == "draw" && words.size() == 2) return draw(parse(words[0], parse_shape(words[1])));
    if (command != "explain" || words.size() != 7 || words[1] != "->" || words[5] != "rank") usage();
    DynamicShape const shape = parse_shape(words[3]);
    DType dtype{};
    if (!parse_dtype(words[4], dtype)) usage();
    auto const from = parse(words[0], shape);
    auto const to = parse(words[2], shape);
    Plan<> const move = from.mesh() == to.mesh() ? plan(from, to) : plan_across(from, to);
    return explain(move, std::stoll(words[6]), dtype);
}

}  // namespace

int main(int argc, char** argv) {
    if (!demo::is_first_process()) return 0;  // no ranks here: under mpirun one answer is enough
    if (argc != 3) usage();
    try {
        std::fputs(answer(argv[1], words_of(argv[2])).c_str(), stdout);
        return 0;
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
