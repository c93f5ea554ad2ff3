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

void add(Digest& digest, std::vector<Message> const& messages) {
    digest.add_word(messages.size());
    for (Message const& message : messages) {
        digest.add_word_signed(message.peer);
        for (Interval interval : message.box) digest.add_word_signed(interval.begin).add_word_signed(interval.end);
        digest.add_word_signed(message.repeats.size());
        for (BoxRepeat const& repeat : message.repeats) {
            digest.add_word_signed(repeat.dim).add_word_signed(repeat.pitch).add_word_signed(repeat.count);
        }
    }
}

void add(Digest& digest, Plan<> const& plan) {
    digest.add_word(static_cast<std::uint64_t>(plan.kind()));
    Index const ranks = std::max(plan.from().mesh().last_rank(), plan.to().mesh().last_rank()) + 1;
    for (Index rank = 0; rank < ranks; ++rank) {
        Cost const cost = plan.cost(rank);
        digest.add_word_signed(cost.phases).add_word_signed(cost.sent).add_word_signed(cost.received);
        digest.add_word_signed(cost.messages_sent).add_word_signed(cost.messages_received);
        digest.add_word_signed(cost.workspace);
        for (int phase = 0; phase < cost.phases; ++phase) {
            Exchange const exchange = plan.exchange(rank, phase);
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
    Digest digest;
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
    0x2ba5f6105cf228c3, 0xf730b01ec7010dd8, 0x02882c0b571fcc66, 0x643707278707e45c, 0xb54e84c2e5090f2a,
    0x193ef177a1c7d24e, 0x206e428574fce83e, 0x04c0f49400bb961c, 0x8d77db5a92164c54, 0x1dc31ac440fc6be6,
    0xbce6261aa45de523, 0x9fadf34e9c5cc66b, 0x8761bb0c68f2b888, 0xc5fe8a79251ca85f, 0xf68c807f257928ee,
    0xf7207b46b83fe222, 0x6ca0d5a0fd245c83, 0x2c4cc5a7e1bb1f12, 0x29b5edb83c229cfa, 0x73aa3d53f2f7da19,
    0x7861a298dc6a52c8, 0x1182ca469ab95fbd, 0x3ffddea9893c97a7, 0x7f5d471bcf1145e4, 0x6f491d8bd439fad9,
    0xc70a84dada0c4a21, 0xb62d045e1c61f2c4, 0xb8c7685a85817849, 0x5b725f2514c1abe9, 0xfe217d0c7a129d84,
    0x6814c8d290ba2690, 0x64ec4d45165680b0, 0x088a3e5ac4ba328f, 0x00393d07e4f50870, 0x77b1a1a338fe59e7,
    0xb03e53b7ee382799, 0xe7d625c4f435cdaa, 0x1875034d2e35bc07, 0xaee76004836761d2, 0x3988df61215fb935,
    0xc6fe3c664bb31734, 0x8e6b26414cf271f1, 0x3b0809917382f8c5, 0xb82fe09eef2c1902, 0x9bf850bbd940f626,
    0xed6ce1904f25aada, 0x18272d2858159f53, 0x4f67d27751fe3d93, 0x6bab55ebcb9630db, 0xa7f8aabfd2f4b3da,
    0xbcb44b12802066d8, 0x83147f37f26e3028, 0xcaf2e347d8668956, 0xb4eb793e4a42c4ab, 0x6b302b0f5383f92b,
    0x72c80ea1e5f0e640, 0xcf1bc5359d15922f, 0xadfa5a8ebb3a1c2b, 0xdb297d319779cb39, 0xa961e0d458e7d1ab,
    0x58fefa7a4947083e, 0x7dfbd3e9469e3f14, 0xb426fac7500f1747, 0x9f73a4ad7e040cdc, 0x7ec176f1b6aba29f,
    0x32c3eeb36829b16c, 0xe65025c4f001adc7, 0x0fb108ff6c56ac19, 0x0645ee8512707858, 0x1293430ae5dea659,
    0x7d79989b30ef1da0, 0x686cdcefe6342259, 0x36b76cb49ddc9bf4, 0xa8a66aaccc027623, 0x239ad1b33fcf0a4a,
    0xc4e8d77c94d8ebfd, 0x5f6148c3ee3d92ec, 0x5d6bc9c582267a5b, 0xcf02668b5fcd35e6, 0xb5c8b58366eacbd4,
    0xfd4e70f25a855e53, 0x234e413d9bf3b36b, 0xab39d79f20c5d55b, 0x7dee73ab76be0a1e, 0x62b15e564116f867,
    0x62105b36383a35b7, 0x975300e4e7715a38, 0xa40745207758e7f7, 0xb42e1b5a17407d6b, 0x2ecd5d10acc74836,
    0xca8aa68d5516f7f2, 0xb9fef21183096236, 0xa272e00bc8a97896, 0xc8445513b457f745, 0x4ad7a2876d020cf7,
    0xfa499eb479136c0b, 0x52e88f2dd826c489, 0x325d2f201b69eb19, 0xab931f5e6834f4ef, 0x74d96b0c1378dd15,
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
