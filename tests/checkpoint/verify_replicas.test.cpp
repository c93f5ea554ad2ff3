// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/verify_replicas.hpp.
#include <reshard/checkpoint/verify_replicas.hpp>

#include <doctest/doctest.h>

#include <reshard/comm/policy.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include "../support/fake_cuda.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {
using namespace reshard;
using Ranks = std::vector<int>;
constexpr std::span<LocalTensor const> no_tensors;

/// What a rank has of some tensors: memory for its part of each, and the list.
class Model {
public:
    explicit Model(int rank) : rank_(rank) {}

    /// Filled with the same numbers on every rank that holds the same elements.
    template <class T = float>
    void add(std::string name, DynamicDistribution const& d) {
        memory_.emplace_back();
        std::size_t const elements = d.contains(rank_) ? static_cast<std::size_t>(d.local_shape(rank_).size()) : 0;
        memory_.back().resize(elements * sizeof(T));
        auto* const data = reinterpret_cast<T*>(memory_.back().data());
        for (std::size_t i = 0; i < elements; ++i) data[i] = static_cast<T>(static_cast<float>(i % 100) / 4.0F + 1.0F);
        DynamicShape const shape = d.contains(rank_) ? d.local_shape(rank_) : DynamicShape(Shape{0});
        tensors.push_back({std::move(name), d, TensorView<T>(data, shape)});
    }
    template <class T = float>
    T& at(std::size_t tensor, std::size_t element) {
        return reinterpret_cast<T*>(tensors[tensor].view.data())[element];
    }
    [[nodiscard]] std::vector<std::vector<std::byte>> const& memory() const { return memory_; }

    std::vector<LocalTensor> tensors;

private:
    int rank_;
    std::vector<std::vector<std::byte>> memory_;
};

struct Outcome {
    ReplicaReport report;
    ErrorCode code = ErrorCode::none;
    std::string text;
    std::vector<std::vector<std::vector<std::byte>>> memory;  // per rank and tensor, afterwards
};

/// Runs on threads and checks that all ranks got the same.
template <class Build>
Outcome verify(int ranks, VerifyReplicasOptions const& options, Build const& build) {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
    Outcome first;
    first.memory.resize(outcomes.size());
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        Model model(comm.rank());
        build(model, comm.rank());
        Outcome& mine = outcomes[static_cast<std::size_t>(comm.rank())];
        try {
            mine.report = verify_replicas(model.tensors, comm, options);
        } catch (Error const& error) {
            mine.code = error.code();
            mine.text = error.message();
        }
        first.memory[static_cast<std::size_t>(comm.rank())] = model.memory();
    });
    for (Outcome const& outcome : outcomes) {
        CHECK(outcome.report == outcomes[0].report);
        CHECK(outcome.code == outcomes[0].code);
        CHECK(outcome.text == outcomes[0].text);
    }
    first.report = outcomes[0].report;
    first.code = outcomes[0].code;
    first.text = outcomes[0].text;
    return first;
}

/// Memory of a device that is lost: nothing can be brought from there.
class LostMemory final : public MemoryPolicy {
public:
    void check(std::string_view, void const*, Index) const override {}
    [[nodiscard]] Workspace allocate(Index) const override { return {}; }
    void deliver(std::span<transport::Send const>, std::span<transport::Receive const>) const override {
        errors::raise(ErrorCode::user, "the device is lost");
    }
    void fold(FoldWork const&) const override {}
    void fill_identity(Reduce, DType, std::byte*, transport::StridedBox const&) const override {}
    void scale(DType, std::byte*, transport::StridedBox const&, Index, Index) const override {}
};
class WithLostMemory : public PolicyBase<WithLostMemory, ThreadCommunicator> {
public:
    using PolicyBase::PolicyBase;
    using PolicyBase::split;
    [[nodiscard]] MemoryPolicy const* memory() const noexcept { return &memory_; }
    void check_memory(void const*) const {}
    [[nodiscard]] WithLostMemory split(int colour, int key) { return WithLostMemory(inner_.split(colour, key)); }

private:
    LostMemory memory_;
};

constexpr VerifyReplicasOptions reporting{.mode = VerifyMode::report};

TEST_CASE("equal replicas cost 16 bytes per rank and group, whatever the tensors are") {
    run_on_threads(4, [&](ThreadCommunicator& comm) {
        Model model(comm.rank());
        for (int i = 0; i < 10; ++i) {
            model.add(errors::concat("rows ", i), distribution(Mesh{2, 2}, Shape{101, 7}, "R,S0"));
            model.add(errors::concat("all ", i), distribution(Mesh{4}, Shape{33}, "R"));
            model.add(errors::concat("cut ", i), distribution(Mesh{4}, Shape{33}, "S0"));
        }
        Traffic const before = comm.traffic();
        ReplicaReport const report = verify_replicas(model.tensors, comm);
        Traffic const moved = comm.traffic() - before;
        CHECK(report == ReplicaReport{30, 20, {}});
        CHECK(moved.bytes_sent == 32);  // each rank is in two groups
    });
}

TEST_CASE("one difference among many tensors is found by the hashes of that tensor") {
    run_on_threads(8, [&](ThreadCommunicator& comm) {
        Model model(comm.rank());
        for (int i = 0; i < 1000; ++i) model.add(errors::concat("w", i), distribution(Mesh{4, 2}, Shape{8}, "S0,R"));
        if (comm.rank() == 3) model.at<std::uint32_t>(517, 1) ^= 1U;
        Traffic const before = comm.traffic();
        ReplicaReport const report = verify_replicas(model.tensors, comm, reporting);
        REQUIRE(report.differences.size() == 1);
        CHECK(report.differences[0].tensor == 517);
        CHECK((comm.traffic() - before).bytes_sent < Index{32} << 10);
    });
}

TEST_CASE("one flipped bit in one rank is found: who, where, and both values") {
    Outcome const outcome = verify(4, {}, [](Model& model, int rank) {
        model.add("norm", distribution(Mesh{4}, Shape{6}, "R"));
        model.add("weight", distribution(Mesh{4}, Shape{5, 4}, "R"));
        if (rank == 2) model.at<std::uint32_t>(1, 13) ^= 1U << 3U;
    });
    CHECK(outcome.code == ErrorCode::mismatch);
    CHECK(outcome.text ==
          "reshard::verify_replicas: 1 of 2 tensors with replicas differ\n  'weight' F32 on ranks 0-3: rank 2 is odd; "
          "first at [3,1]: 4.25000381 (0x40880008) on rank 2, 4.25 (0x40880000) on rank 0\n"
          "Fix: load these tensors again, sync() them from a rank that is right, or pass VerifyMode::repair.");
}

TEST_CASE("different random seeds on every rank make every tensor differ, and nobody is odd") {
    Outcome const outcome = verify(3, reporting, [](Model& model, int rank) {
        std::mt19937 rng(static_cast<unsigned>(rank));
        for (std::size_t i = 0; i < 4; ++i) {
            model.add(errors::concat("w", i), distribution(Mesh{3}, Shape{40}, "R"));
            for (std::size_t k = 0; k < 40; ++k) model.at(i, k) = static_cast<float>(rng() % 1000);
        }
    });
    REQUIRE(outcome.report.differences.size() == 4);
    for (ReplicaDifference const& d : outcome.report.differences) {
        CHECK(d.is_tie());
        CHECK(d.contents == Ranks{0, 1, 2});
        CHECK(d.spot.reference == 0);
        CHECK(d.spot.rank == 1);
        CHECK(d.spot.found);
    }
}

TEST_CASE("a buffer left out of a broadcast is named, among tensors that were sent") {
    Outcome const outcome = verify(4, reporting, [](Model& model, int rank) {
        model.add("weight", distribution(Mesh{4}, Shape{8}, "R"));
        model.add("rotary.inv_freq", distribution(Mesh{4}, Shape{8}, "R"));
        for (std::size_t k = 0; k < 8 && rank != 0; ++k) model.at(1, k) = 0.0F;  // never received
    });
    REQUIRE(outcome.report.differences.size() == 1);
    ReplicaDifference const& d = outcome.report.differences[0];
    CHECK(d.tensor == 1);
    CHECK(d.name == "rotary.inv_freq");
    CHECK(d.odd == Ranks{0});  // most ranks agree on the wrong contents: a majority is no more than that
    CHECK(d.spot.index == Indices{0});
}

TEST_CASE("-0.0 against 0.0 and NaN payloads differ, unless values are made canonical") {
    auto const build = [](Model& model, int rank) {
        model.add("zero", distribution(Mesh{3}, Shape{4}, "R"));
        model.at(0, 2) = rank == 1 ? -0.0F : 0.0F;
        model.add<double>("nan", distribution(Mesh{3}, Shape{4}, "R"));
        model.at<std::uint64_t>(1, 3) = 0x7ff8000000000000U + (rank == 2 ? 1U : 0U);
        model.add<Float16>("half", distribution(Mesh{3}, Shape{4}, "R"));
        model.at<std::uint16_t>(2, 0) = rank == 0 ? 0xfe01U : 0x7e00U;
        model.add<BFloat16>("brain", distribution(Mesh{3}, Shape{4}, "R"));
        model.at<std::uint16_t>(3, 1) = rank == 0 ? 0x8000U : 0U;
        model.add<std::int32_t>("int", distribution(Mesh{3}, Shape{4}, "R"));
    };
    ReplicaReport const bits = verify(3, reporting, build).report;
    REQUIRE(bits.differences.size() == 4);
    CHECK(bits.differences[0].odd == Ranks{1});
    CHECK(to_string(bits.differences[0]).find("-0 (0x80000000) on rank 1, 0 (0x00000000) on rank 0") !=
          std::string::npos);
    CHECK(bits.differences[1].odd == Ranks{2});
    CHECK(bits.differences[2].odd == Ranks{0});
    CHECK(bits.differences[3].odd == Ranks{0});

    VerifyReplicasOptions values = reporting;
    values.canonicalise = true;
    CHECK(verify(3, values, build).report.equal());
    ReplicaReport const real = verify(3, values, [&](Model& model, int rank) {
                                   build(model, rank);
                                   if (rank == 1) model.at(0, 3) += 1.0F;  // behind a zero that differs in its bits
                               }).report;
    REQUIRE(real.differences.size() == 1);
    CHECK(real.differences[0].spot.index == Indices{3});
}

TEST_CASE("majorities, ties, and different odd ranks in different tensors") {
    auto const contents = [](std::vector<Ranks> const& per_tensor) {
        return verify(static_cast<int>(per_tensor[0].size()), reporting,
                      [&](Model& model, int rank) {
                          auto const ranks = static_cast<Index>(per_tensor[0].size());
                          for (std::size_t i = 0; i < per_tensor.size(); ++i) {
                              model.add(errors::concat("w", i), distribution(Mesh{ranks}, Shape{3}, "R"));
                              model.at(i, 1) = static_cast<float>(per_tensor[i][static_cast<std::size_t>(rank)]);
                          }
                      })
            .report.differences;
    };
    auto const four = contents({{5, 5, 5, 5}, {5, 5, 6, 5}, {5, 6, 6, 5}, {6, 5, 5, 5}, {1, 2, 3, 4}, {1, 2, 2, 3}});
    REQUIRE(four.size() == 5);
    CHECK(four[0].odd == Ranks{2});
    CHECK(four[0].spot.rank == 2);
    CHECK(four[0].spot.reference == 0);
    CHECK(four[1].is_tie());  // 2 against 2
    CHECK(four[1].contents == Ranks{0, 1, 1, 0});
    CHECK(four[2].odd == Ranks{0});
    CHECK(four[2].spot.rank == 0);
    CHECK(four[2].spot.reference == 1);
    CHECK(four[3].is_tie());
    CHECK(four[4].odd == Ranks{0, 3});  // the most common contents need no absolute majority
    CHECK(four[4].contents == Ranks{0, 1, 1, 2});
    auto const two = contents({{1, 2}});
    REQUIRE(two.size() == 1);
    CHECK(two[0].is_tie());
    CHECK(two[0].spot.rank == 1);
}

TEST_CASE("replicated on one axis and cut on the other: each shard has its own replicas") {
    Outcome const outcome = verify(8, reporting, [](Model& model, int rank) {
        // Rows 0-2, 3-5, 6, none: the last shard is empty.
        model.add("w", distribution(Mesh{2, 4}, Shape{7, 3}, "R,S0"));
        if (rank == 5) model.at(0, 4) = -1.0F;
        if (rank == 2) model.at(0, 2) = -1.0F;
    });
    REQUIRE(outcome.report.differences.size() == 2);
    ReplicaDifference const& first = outcome.report.differences[0];
    CHECK(first.ranks == Ranks{1, 5});
    CHECK(first.spot.index == Indices{3, 1});  // chunks of 2: rank 1 holds rows 2 and 3
    CHECK(outcome.report.differences[1].ranks == Ranks{2, 6});
    CHECK(outcome.report.differences[1].spot.index == Indices{4, 2});
}

TEST_CASE("addends along a Partial axis differ by right; their copies must not") {
    auto const build = [](int wrong) {
        return [=](Model& model, int rank) {
            model.add("grad", distribution(Mesh{2, 2}, Shape{4}, "P+,R"));
            model.at(0, 0) = rank < 2 ? 10.0F : 20.0F;
            if (rank == wrong) model.at(0, 3) = 0.0F;
        };
    };
    CHECK(verify(4, {}, build(-1)).report.equal());
    ReplicaReport const report = verify(4, reporting, build(3)).report;
    REQUIRE(report.differences.size() == 1);
    CHECK(report.differences[0].ranks == Ranks{2, 3});
}

TEST_CASE("tensors on different meshes, lists of ranks, and ranks of none of them") {
    Outcome const outcome = verify(6, reporting, [](Model& model, int rank) {
        model.add("a", distribution(Mesh{2}.on({0, {4, 1}}), Shape{9}, "R"));
        model.add("b", distribution(Mesh{3}.on(first_rank(2)), Shape{9}, "R"));
        model.add("c", distribution(Mesh{1}.on(first_rank(5)), Shape{9}, "R"));
        if (rank == 4) model.at(0, 7) = 0.0F;
        if (rank == 4) model.at(1, 8) = 0.0F;
        if (rank == 5) model.at(2, 0) = 0.0F;  // a group of one: nothing to compare
    });
    REQUIRE(outcome.report.differences.size() == 2);
    CHECK(outcome.report.compared == 2);
    CHECK(outcome.report.differences[0].ranks == Ranks{1, 4});
    CHECK(outcome.report.differences[1].ranks == Ranks{2, 3, 4});
    CHECK(outcome.report.differences[1].odd == Ranks{4});
}

TEST_CASE("block-cyclic shards: the local view is dense, the index is that of the whole tensor") {
    Outcome const outcome = verify(4, reporting, [](Model& model, int rank) {
        model.add("w", distribution(Mesh{2, 2}, Shape{11, 2}, "S0:cyc2,R"));
        if (rank == 3) model.at(0, 5) = 0.0F;  // rank 3: rows 2 3 6 7 10; local row 2 is row 6
    });
    REQUIRE(outcome.report.differences.size() == 1);
    CHECK(outcome.report.differences[0].spot.index == Indices{6, 1});
}

TEST_CASE("blocks: the first element that differs, of the first block that does") {
    VerifyReplicasOptions options = reporting;
    options.block_bytes = 43;  // 10 floats
    Outcome const outcome = verify(2, options, [](Model& model, int rank) {
        model.add("w", distribution(Mesh{2}, Shape{95}, "R"));
        for (std::size_t k : {34U, 37U, 38U, 61U, 94U}) {
            if (rank == 1) model.at(0, k) = -1.0F;
        }
    });
    REQUIRE(outcome.report.differences.size() == 1);
    ReplicaSpot const& spot = outcome.report.differences[0].spot;
    CHECK(spot.index == Indices{34});
}

TEST_CASE("a repair makes bits equal and says what it did; a second look finds nothing") {
    run_on_threads(8, [&](ThreadCommunicator& comm) {
        Model model(comm.rank());
        model.add("all", distribution(Mesh{8}, Shape{1000}, "R"));
        model.add("rows", distribution(Mesh{4, 2}, Shape{33, 5}, "R,S0"));
        if (comm.rank() == 3) model.at(0, 999) = 0.0F;
        if (comm.rank() == 6) model.at(0, 0) = 0.0F;
        if (comm.rank() == 5) model.at(1, 1) = 7.0F;
        VerifyReplicasOptions options{.mode = VerifyMode::repair};
        ReplicaReport const report = verify_replicas(model.tensors, comm, options);
        REQUIRE(report.differences.size() == 2);
        CHECK(report.differences[0].source == 0);
        CHECK(report.differences[0].repaired == Ranks{3, 6});
        CHECK(report.differences[1].ranks == Ranks{1, 3, 5, 7});
        CHECK(report.differences[1].source == 1);
        CHECK(report.differences[1].repaired == Ranks{5});
        CHECK(model.at(0, 999) == 25.75F);
        CHECK(model.at(1, 1) == 1.25F);
        CHECK(verify_replicas(model.tensors, comm).equal());
    });
}

TEST_CASE("a tie is repaired from the replica of a named rank, and from nobody else's") {
    auto const build = [](Model& model, int rank) {
        model.add("rows", distribution(Mesh{2, 2}, Shape{4}, "R,S0"));  // groups {0,2}, {1,3}
        model.at(0, 0) = static_cast<float>(rank);
        model.add("some", distribution(Mesh{2}, Shape{2}, "R"));
    };
    Outcome const nobody = verify(4, {.mode = VerifyMode::repair}, build);
    CHECK(nobody.code == ErrorCode::mismatch);
    CHECK(nobody.text.find("'rows' cannot be repaired: ranks 0,2 hold equally many copies of different contents. Fix: "
                           "name the rank that is right in VerifyReplicasOptions::root.\n1 of 2 tensors") !=
          std::string::npos);
    for (int rank = 0; rank < 4; ++rank) {  // nothing was written
        float value = -1.0F;
        std::memcpy(&value, nobody.memory[static_cast<std::size_t>(rank)][0].data(), sizeof(value));
        CHECK(value == static_cast<float>(rank));
    }
    Outcome const named = verify(4, {.mode = VerifyMode::repair, .root = 2}, build);
    CHECK(named.code == ErrorCode::none);
    REQUIRE(named.report.differences.size() == 2);
    CHECK(named.report.differences[1].source == 3);  // of the replica that rank 2 is part of
    CHECK(named.memory[0][0] == named.memory[2][0]);
    CHECK(named.memory[1][0] == named.memory[3][0]);
    CHECK(named.memory[2][0] != named.memory[3][0]);

    Outcome const outside = verify(4, {.mode = VerifyMode::repair, .root = 3}, [](Model& model, int rank) {
        model.add("some", distribution(Mesh{2}, Shape{2}, "R"));
        if (rank == 1) model.at(0, 0) = 0.0F;
    });
    CHECK(outside.code == ErrorCode::mismatch);
    CHECK(outside.text.find("'some' cannot be repaired from rank 3, which holds nothing of it. Fix: name a rank of the "
                            "mesh (2) in VerifyReplicasOptions::root.") != std::string::npos);
}

TEST_CASE("tied weights, listed twice, are repaired twice") {
    run_on_threads(3, [&](ThreadCommunicator& comm) {
        std::vector<float> memory(8, comm.rank() == 1 ? 1.0F : 2.0F);
        LocalTensor const embed{"embed", distribution(Mesh{3}, Shape{8}, "R"),
                                TensorView<float>(memory.data(), Shape{8})};
        LocalTensor head = embed;
        head.name = "head";
        std::vector<LocalTensor> const tensors{embed, head};
        CHECK(verify_replicas(tensors, comm, {.mode = VerifyMode::repair}).differences.size() == 2);
        CHECK(memory == std::vector<float>(8, 2.0F));
    });
}

TEST_CASE("tensors that repeat elements are compared, and not repaired") {
    for (VerifyMode const mode : {VerifyMode::report, VerifyMode::repair}) {
        auto const all = verify(3, {.mode = mode}, [&](Model& model, int rank) {
            model.add("w", parse("(3):(R)", Shape{2, 5}));
            LocalTensor& w = model.tensors[0];
            if (rank == 1) model.at(0, 3) = 7;
            std::copy_n(&model.at(0, 0), 5, &model.at(0, 5));  // on rank 2 the same is written out
            if (rank != 2) w.view = DynamicView(w.view.data(), DType::f32, Shape{2, 5}, {0, 1});
        });
        if (mode == VerifyMode::repair) {
            CHECK(all.code == ErrorCode::buffer);
            CHECK(all.text.find("tensor 'w' on rank 0: the view has strides [0,1] that overlap. Fix: ") !=
                  std::string::npos);
            continue;
        }
        REQUIRE(all.report.differences.size() == 1);
        CHECK(all.report.differences[0].name == "w");
        CHECK(all.report.differences[0].odd == Ranks{1});
    }
}

TEST_CASE("const tensors are compared, and not repaired") {
    run_on_threads(2, [](ThreadCommunicator& comm) {
        std::vector<float> const values{1, 2, comm.rank() == 0 ? 3.0F : 4.0F};
        std::vector<ConstLocalTensor> const tensors{
            {"w", parse("(2):(R)", Shape{3}), TensorView(values.data(), Shape{3})}};
        ReplicaReport const report = verify_replicas(tensors, comm, {.mode = VerifyMode::report});
        CHECK(report.compared == 1);
        CHECK(report.differences.size() == 1);
        CHECK_THROWS_WITH_AS(verify_replicas(tensors, comm, {.mode = VerifyMode::repair}),
                             doctest::Contains("reshard::verify_replicas: VerifyMode::repair writes, and the tensors "
                                               "are const. Fix: list them as LocalTensor, or "),
                             BufferError);
    });
}

TEST_CASE("a rank alone, and a list of nothing, are equal") {
    SelfCommunicator self;
    Model model(0);
    model.add("w", distribution(Mesh{1}, Shape{9}, "R"));
    CHECK(verify_replicas(model.tensors, self) == ReplicaReport{1, 0, {}});
    run_on_threads(3, [](ThreadCommunicator& comm) {
        CHECK(verify_replicas(no_tensors, comm).equal());
        comm = comm.split(comm.rank() == 0 ? -1 : 0, comm.rank());  // groups of other sizes
        CHECK(verify_replicas(no_tensors, comm).equal());
    });
}

TEST_CASE("a view that is null, a tensor that only one rank lists, options that differ: the same error everywhere") {
    auto const build = [](auto const& change) {
        return [&change](Model& model, int rank) {
            model.add("a", distribution(Mesh{3}, Shape{4}, "R"));
            model.add("b", distribution(Mesh{3}, Shape{4}, "R"));
            if (rank == 1) change(model);
        };
    };
    auto const null = [](Model& m) { m.tensors[1].view = TensorView<float>(nullptr, Shape{4}); };
    CHECK(verify(3, {}, build(null)).text ==
          "rank 1 of 3: reshard::verify_replicas: tensor 'b' on rank 1: the view is null. Fix: pass memory for [4] "
          "elements.");
    CHECK(verify(3, {}, build(null)).code == ErrorCode::buffer);
    auto const other = [](Model& m) { m.tensors[1].name = "c"; };
    CHECK(verify(3, {}, build(other)).code == ErrorCode::mismatch);
    CHECK(
        verify(3, {}, build(other)).text ==
        "rank 1 of 3: verifies tensor 1 'c' as (3):(R) of [4] F32, but rank 0 verifies tensor 1 'b' as (3):(R) of [4] "
        "F32. Fix: give every rank the same arguments.");
    auto const nothing = [](Model&) {};
    CHECK(verify(2, {}, build(nothing)).code == ErrorCode::mesh);
    CHECK(verify(3, {.root = 3}, build(nothing)).code == ErrorCode::mesh);
    CHECK(verify(3, {.block_bytes = 0}, build(nothing)).code == ErrorCode::buffer);
}

TEST_CASE("memory that cannot be read on one rank is the same error everywhere") {
    test::FakeCuda const cuda;
    if (!cuda.works()) return;
    std::vector<float> far(4);
    cuda.claim(far.data(), 16);
    std::vector<std::string> texts(3);
    run_on_threads(3, [&](ThreadCommunicator& threads) {
        auto const rank = static_cast<std::size_t>(threads.rank());
        Model model(threads.rank());
        model.add("w", distribution(Mesh{3}, Shape{4}, "R"));
        if (rank == 1) model.tensors[0].view = TensorView<float>(far.data(), Shape{4});
        WithLostMemory comm(std::move(threads));
        try {
            verify_replicas(model.tensors, comm);
        } catch (Error const& error) {
            texts[rank] = error.message();
        }
    });
    for (std::string const& text : texts) CHECK(text == "rank 1 of 3: the device is lost");
}

TEST_CASE("options are part of what ranks agree on, each of them") {
    auto const check = [](VerifyReplicasOptions const& other, std::string const& one, std::string const& usual) {
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            try {
                verify_replicas(no_tensors, comm, comm.rank() == 1 ? other : VerifyReplicasOptions{});
                CHECK(false);
            } catch (MismatchError const& error) {
                CHECK(error.message() == "rank 1 of 2: verifies with " + one + ", but rank 0 verifies with " + usual +
                                             ". Fix: give every rank the same arguments.");
            }
        });
    };
    check({.mode = VerifyMode::report}, "mode report", "mode error");
    check({.canonicalise = true}, "canonicalise true", "canonicalise false");
    check({.root = 0}, "root 0", "root -1");
    check({.block_bytes = 1}, "block_bytes 1", "block_bytes 1048576");
}

TEST_CASE("a rank that throws before the call fails the others in the transport's words") {
    int failed = 0;
    CHECK_THROWS_WITH_AS(run_on_threads(3,
                                        [&](ThreadCommunicator& comm) {
                                            Model model(comm.rank());
                                            model.add("a", distribution(Mesh{3}, Shape{4}, "R"));
                                            if (comm.rank() == 2) errors::raise(ErrorCode::io, "the disk is gone");
                                            try {
                                                verify_replicas(model.tensors, comm);
                                            } catch (PeerFailed const&) {
                                                __atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
                                                throw;
                                            }
                                        }),
                         "the disk is gone", IoError);
    CHECK(failed == 2);
}

}  // namespace
