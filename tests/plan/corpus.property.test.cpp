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
    test::Random random(static_cast<std::uint64_t>(block) + 1, limits);
    for (int i = 0; i < transitions_per_block; ++i) add(digest, transition(random));
    return digest.value();
}

#if defined(__GLIBCXX__)  // std::shuffle differs between standard libraries, and so would the cases
constexpr std::uint64_t known[blocks] = {
    0xf8c9762073000d8a, 0x317866bc3bbc77fa, 0xdc0090555b258fe9, 0xacd7bd2a19666a30, 0x01bcf0c37d741736,
    0x0a802cd9e287bc55, 0x335b880875606402, 0x6bcac41febd5856a, 0x054a0064bfd53ab5, 0xce194fbb3e325e6e,
    0xfb918508c004500d, 0x510da783e9afdf77, 0xc0e273518a7282f1, 0xcda63f5530315e86, 0x1a28482d2dd70242,
    0x33a070839313df27, 0xebaa371085d08cb0, 0xa196dbfcf661c2ba, 0x8e4f5dbefde8d388, 0x3d16bd62b5521c3a,
    0xe9aa1059b57a89c3, 0xd693cc737774aeeb, 0x5e3cc3ca427304e5, 0xd3cd3cdef0ab83a2, 0x863d2470c0c6401f,
    0xd40e95684c8ac606, 0xc36a3e03e803422c, 0x570df68a1928bae7, 0xf730afd48f8a6050, 0xb38459c39c3b9725,
    0x8bbd0f740e8b618d, 0x82d0a885571cb1dd, 0x67f705a0a0df418d, 0x5fb044afbaf18f06, 0x01022ab233451fb8,
    0x329c2c2c7d2dc3d1, 0x7dffe9ace73abedd, 0xc8d849213a6b3d16, 0x2ef12d67fef0ef5a, 0x688981fc6d1d39d7,
    0x223396e483f56c4e, 0x4422926bcfd59c30, 0x745ca0fabf1796d8, 0x16d3eb3e33511ae6, 0xdaccd58cb0494a5c,
    0x2c98de7b92a0c464, 0x8c23ac892fdd4a42, 0xeec0c6efdd9a8b91, 0x6afd84f4939163a7, 0xb5cf15df22ddeb2a,
    0xd06ea3b236469552, 0x03a28e7b35088019, 0x94ed7e60d865b967, 0x436ac126291968b6, 0x0a98a9a62bd789b2,
    0x99f2044a347d97fe, 0xb1122ee94f76295e, 0xadfa5a8ebb3a1c2b, 0x9c881517e928651f, 0xe4ed2e9966ba808f,
    0xf8c91602998c58c0, 0x6e2cb90b0c5bdc51, 0xa35c7f80087ff7bc, 0xc7d35e6bc54c5795, 0x1700174f8622fc55,
    0x2ccb8b394b0872b8, 0x9a1abfc35e2ac2e6, 0x4434ec7f6e94b910, 0x207ea59478f993ef, 0x4868dbf25d64d570,
    0xc539993d2f94d31b, 0xeb7c8126b1be1f79, 0x1e4a59697492eb13, 0x7c84b30903d02c58, 0xbe2d9fea37401909,
    0x3998839a659c8b74, 0xf22619a3d37a8368, 0xc049b029e652deda, 0x22341ca3b77000e3, 0x0401cea3ad98d573,
    0x2bbcdb1c55f73275, 0x5caaf2dbfe72814c, 0x8a49f11bd548cfa5, 0x46b6eb7ad3b401e7, 0xdc304289b4e3fbbd,
    0xea9cf1576d005dbd, 0x41877ce93de70e99, 0x5251060bd70d13a8, 0xaa7fc650dffb1a5a, 0x33aab5f5377d647d,
    0xe2a96bcc56ea9b44, 0x341ea2cf2f4cbea7, 0x87167a17390f784d, 0xdf7417937c720c38, 0x698ebfee2537f417,
    0xb02f1d1d70ffdc49, 0x21bf4fa628e7d244, 0x582ebd5f189b9c29, 0x3152197ff29050f0, 0xca6d179fc5522fc9,
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
