// SPDX-License-Identifier: Apache-2.0
// Plans stay what they are, message by message: 10,000 random transitions on one mesh, between meshes and relayed, as
// digests made before the planner was last rewritten. Who changes what is sent on purpose prints new ones:
//     RESHARD_PRINT_CORPUS=1 <this test program> -tc='*corpus*'
#include <algorithm>
#include <reshard/plan/plan.hpp>
#include <string>

#include <reshard/plan/relay.hpp>

#include <doctest/doctest.h>
#include <cstdio>
#include <cstdlib>
#include <support/random.hpp>

using namespace reshard;

namespace {

constexpr int blocks = 100;
constexpr int transitions_per_block = 100;

void add(detail::Digest& digest, std::vector<planning::Message> const& messages) {
    digest.add_word(messages.size());
    for (planning::Message const& message : messages) {
        digest.add_word_signed(message.peer);
        for (Interval interval : message.box) digest.add_word_signed(interval.begin).add_word_signed(interval.end);
        digest.add_word_signed(message.repeats.size());
        for (planning::BoxRepeat const& repeat : message.repeats) {
            digest.add_word_signed(repeat.dim).add_word_signed(repeat.pitch).add_word_signed(repeat.count);
        }
    }
}

void add(detail::Digest& digest, Plan<> const& plan) {
    digest.add_word(static_cast<std::uint64_t>(plan.kind()));
    Index const ranks = std::max(plan.from().mesh().last_rank(), plan.to().mesh().last_rank()) + 1;
    for (Index rank = 0; rank < ranks; ++rank) {
        Cost cost = plan.cost(rank);
        // Of ranks outside both meshes as well: the digests are of before their cost said nothing of exchanges.
        if (plan.is_across()) cost.phases = plan.cost(plan.from().mesh().rank_at(0)).phases;
        digest.add_word_signed(cost.phases).add_word_signed(cost.sent).add_word_signed(cost.received);
        digest.add_word_signed(cost.messages_sent).add_word_signed(cost.messages_received);
        digest.add_word_signed(cost.workspace);
        for (int phase = 0; phase < cost.phases; ++phase) {
            planning::Exchange const exchange = plan.exchange(rank, phase);
            add(digest, exchange.sends);
            add(digest, exchange.receives);
            add(digest, exchange.kept);
        }
    }
}

/// One case: any two distributions of a shape, half of them on one mesh; a third of all relayed.
Plan<> transition(test::Random& random) {
    for (;;) {
        DynamicMesh const mesh = random.mesh();
        DynamicShape const shape = random.shape();
        DynamicDistribution const from = random.distribution(mesh, shape);
        bool const across = random.chance(40);
        DynamicDistribution const to = random.distribution(across && random.chance(80) ? random.mesh() : mesh, shape);
        Index const node = random.chance(33) ? random.between(2, 6) : 0;
        bool averages = false;  // those of sums alone
        for (int axis = 0; axis < to.mesh().axes(); ++axis) {
            PlacementForm const& target = to.signature()[axis];
            bool const sums = !across && from.signature()[axis].is_partial() && is_linear(from.signature()[axis].op());
            averages = averages || (!sums && target.is_partial() && target.op() == Reduce::avg);
        }
        if (averages) continue;
        return (across ? plan_across(from, to) : plan(from, to)).relayed(across && node == 6 ? all_ranks : node);
    }
}

std::uint64_t digest_of_block(int block) {
    detail::Digest digest;
    test::Limits limits;
    limits.max_elements = 2000;
    limits.mostly_cyclic = block % 4 == 3;
    limits.strided = false;  // the cases are those of before there were any
    test::Random random(static_cast<std::uint64_t>(block) + 1, limits);
    for (int i = 0; i < transitions_per_block; ++i) add(digest, transition(random));
    return digest.value();
}

#if defined(__GLIBCXX__)  // std::shuffle differs between standard libraries, and so would the cases
constexpr std::uint64_t known[blocks] = {
    0xb520478e60fae33c, 0x2ab57656ae67e36f, 0xb0cd575b894ff47d, 0x3d2ae2ec4de4fabd, 0xce4eeb48873840df,
    0x002e6eb86252f07b, 0x18e82241dcc82cb9, 0xc37e7388dc068bfe, 0xc791a788665d7668, 0x7dcfefec1f337177,
    0xee34a1d2e2372f04, 0x26e530d966bd0056, 0x8075f8dc5b737db0, 0xfd634aa0980e5d2b, 0x24517077f79a2982,
    0xf7207b46b83fe222, 0x33bac0acb16f64ad, 0xece765f160d76251, 0x8ca599547837ac74, 0xc37b7d86b3ed67c0,
    0x95a487b13650f7a4, 0x4529b4f1c62924de, 0x0a45cda8a0c6f998, 0x4512737d7a61088f, 0xb6d24e20c5896f1d,
    0x3d46b457eaef149c, 0x4139c1657216a907, 0xb8c7685a85817849, 0xe66381e1af4062c1, 0xfe217d0c7a129d84,
    0x6aa1a77618584266, 0x64ec4d45165680b0, 0x4b7c62ed31fd2522, 0x00393d07e4f50870, 0x2e4f92c00d7c704b,
    0x17db7dc38312fbbe, 0xef52451e502924a5, 0xb539889acaab7aab, 0xaee76004836761d2, 0xc5b8edf2b8d7e7ba,
    0x3be0132cf9b84b30, 0x42d69884b15727cd, 0x608e7a3fca75d8a1, 0x9fe214f9d7daf151, 0x11da07eaf6ca371d,
    0x3eed2d90afe512fd, 0x0a65e2d7af3f5d37, 0x1e5a0de09fc60402, 0xb16ea7b127919538, 0x83499b39bdbbc780,
    0x37021eb25ab3c6cd, 0x6210d0702a84f2b7, 0x2f06d10c46d66789, 0x90d3b528fa4f4817, 0x9ab5ce42082ec4e5,
    0x72c80ea1e5f0e640, 0xdab95bc0604f0ae0, 0xadfa5a8ebb3a1c2b, 0xdb297d319779cb39, 0xae2fcbe365b54e2f,
    0xffdffd9e57c2418b, 0x73845e71d0a52fcf, 0x973e300289faeca6, 0x9f73a4ad7e040cdc, 0xdedf8bdb5f689fce,
    0x0d3eb87cd6b5b4f2, 0xc91abd6ba482e5b5, 0x6484ff4cbc9296c0, 0x0645ee8512707858, 0x8a9594020b620eaf,
    0x6dae51e2368c95bd, 0x0034f995062ffe4d, 0x75dd047e8423b1be, 0x87d0c3eed9360be9, 0x08c7f9f7514c3229,
    0x80d0585f95f869ba, 0xa80d44546e024380, 0x291534fa3642365a, 0xcf02668b5fcd35e6, 0xfa3442c81e407d3d,
    0x4509890568a89d40, 0xfb0b95ed7f3cf7fc, 0x79b3916115a9330a, 0x7dee73ab76be0a1e, 0x62b15e564116f867,
    0xb4a91fa43cb8ecce, 0xdaa87429198fa0b7, 0x9bb863f23716bd6f, 0x60111f7a25de33c9, 0x2ecd5d10acc74836,
    0x7f4d96d914c0cfb9, 0xb9fef21183096236, 0xb346067661b2468c, 0x829a8b4fd0ebf2eb, 0xb8dc808d5c952c66,
    0x2c960a6318734a1e, 0x72dfa7304809ecb6, 0x2bd68c596eb64116, 0xd64ffd9198782198, 0x74d96b0c1378dd15,
};

TEST_CASE("corpus: the messages of 10,000 transitions are those they were") {
    bool const print = std::getenv("RESHARD_PRINT_CORPUS") != nullptr;
    for (int block = 0; block < blocks; block += test::fewer_seeds() && !print ? 20 : 1) {
        std::uint64_t const found = digest_of_block(block);
        if (print) std::printf("    0x%016llx,\n", static_cast<unsigned long long>(found));
        CAPTURE(block);
        if (!print) CHECK(found == known[block]);
    }
}
#endif

}  // namespace
