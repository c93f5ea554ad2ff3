// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/load.hpp: what is loaded, what is refused, and what all ranks then say.
#include <reshard/checkpoint/load.hpp>
#include <reshard/checkpoint/load_forecast.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/detail/load_staged.hpp>
#include <reshard/checkpoint/detail/read_schedule.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/comm/traced.hpp>

#include "load_support.hpp"
#include "support/fake_cuda.hpp"
#include "support/thrown.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace {
using namespace checkpoint_test;
using test::check_same;
using test::thrown_by;

/// Three tensors in two files, onto three ranks.
std::vector<Goal> three() {
    return {goal("embed", DType::f32, "(3):(S0)", Shape{10, 4}), goal("norm", DType::bf16, "(3):(R)", Shape{7}),
            goal("head", DType::f32, "(3):(S1)", Shape{5, 6})};
}

constexpr Index small_files = 200;  // bytes: `embed` in a file of its own

/// Every strategy with a communicator fails alike on all ranks, before anything is written.
template <class Spoil>
void check_refused(ErrorCode code, std::vector<std::string> const& parts, Spoil const& spoil) {
    TempFolder const folder;
    auto const goals = three();
    write(folder.path(), goals, small_files);
    auto const attempt = [&](auto const& strategy) {
        CAPTURE(strategy.name);
        std::atomic<int> touched{0};
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 LocalTensors tensors(goals, comm.rank());
                                 std::string path = folder.path();
                                 auto mine = strategy;
                                 spoil(tensors.list(), path, mine, comm.rank());
                                 try {
                                     static_cast<void>(load(path, tensors.list(), comm, mine));
                                 } catch (...) {
                                     if (!tensors.untouched()) ++touched;
                                     throw;
                                 }
                             }),
                   code, parts);
        CHECK(touched == 0);
    };
    attempt(OneRankReads<Scatter>{});
    attempt(OneRankReads<Broadcast>{});
    attempt(EachRankReadsItsBoxes{});
    attempt(CooperativeRead{});
}
/// Memory that the driver calls a device's, and that the host can work on all the same; counts what is asked of it.
class CountingMemory final : public MemoryPolicy {
public:
    mutable std::atomic<int> delivered{0};
    mutable std::atomic<int> filled{0};

    void check(std::string_view, void const*, Index) const override {}
    [[nodiscard]] Workspace allocate(Index) const override { return {}; }
    void deliver(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) const override {
        for (std::size_t k = 0; k < sends.size(); ++k)
            transport::copy(sends[k].base, sends[k].box, receives[k].base, receives[k].box);
        delivered += static_cast<int>(sends.size());
    }
    void fold(FoldWork const&) const override {}
    void fill_identity(Reduce op, DType dtype, std::byte* to, transport::StridedBox const& box) const override {
        reshard::transport::fill_identity(op, dtype, to, box);
        ++filled;
    }
    void scale(DType, std::byte*, transport::StridedBox const&, Index, Index) const override {}
};
/// A communicator that states such memory, and with `devices_only` moves no other.
class OfDevices : public PolicyBase<OfDevices, ThreadCommunicator> {
public:
    using PolicyBase::split;
    OfDevices(ThreadCommunicator inner, CountingMemory& memory, bool devices_only)
        : PolicyBase(std::move(inner)), memory_(&memory), devices_only_(devices_only) {}
    [[nodiscard]] MemoryPolicy const* memory() const noexcept { return memory_; }
    void check_memory(void const* memory) const {
        if (devices_only_ && !is_device_memory(memory)) errors::raise(ErrorCode::buffer, "tests: memory of the host.");
    }
    [[nodiscard]] OfDevices split(int colour, int key) { return {inner_.split(colour, key), *memory_, devices_only_}; }

private:
    CountingMemory* memory_;
    bool devices_only_;
};

}  // namespace

TEST_SUITE("checkpoint/load") {
    // ---- What is loaded --------------------------------------------------------------------------------------------

    TEST_CASE("every rank has the file: a part is read, nothing is sent, and memory stays a shard's") {
        TempFolder const folder;
        std::vector<Goal> const goals{goal("w", DType::f32, "(4):(S0)", Shape{4096, 256})};
        write(folder.path(), goals);
        Checkpoint const checkpoint = Checkpoint::open(folder.path());
        LocalTensors tensors(goals, 2);
        LoadReport const report = load(checkpoint, tensors.list(), 2);  // no communicator to be found
        CHECK(tensors.wrong() == "");
        CHECK(report.bytes_read == 1024 * 256 * 4);
        CHECK(report.bytes_loaded == report.bytes_read);
        CHECK(report.reads == 1);
        CHECK(report.extra_bytes == 0);  // straight into its place
        CHECK(report.traffic == Traffic{});
        CHECK(report.collectives == Collectives{});
        static_assert(!EveryRankReads::communicates);
    }

    TEST_CASE("a mapped checkpoint gives the part as a window: no copy, no memory") {
        TempFolder const folder;
        std::vector<Goal> const goals{goal("w", DType::f32, "(2,2):(R,S1)", Shape{6, 8})};
        write(folder.path(), goals);
        Checkpoint const checkpoint = Checkpoint::open(folder.path(), Access::mmap);
        ConstDynamicView const window = local_view(checkpoint, "w", goals[0].to, 3);
        CHECK(window.shape() == DynamicShape(Shape{6, 4}));
        CHECK(window.stride(0) == 8);
        CHECK(window.data() == checkpoint.view(checkpoint.at("w")).data() + 4 * 4);
        CHECK_THROWS_AS(static_cast<void>(local_view(checkpoint, "w", parse("(2):(S0:cyc1)", Shape{6, 8}), 0)),
                        TransitionError);
        CHECK_THROWS_AS(static_cast<void>(local_view(checkpoint, "v", goals[0].to, 0)), FormatError);
        CHECK_THROWS_AS(static_cast<void>(local_view(checkpoint, "w", parse("(2):(S0)", Shape{6, 9}), 0)),
                        MismatchError);
        Checkpoint const unmapped = Checkpoint::open(folder.path());
        CHECK_THROWS_AS(static_cast<void>(local_view(unmapped, "w", goals[0].to, 0)), BufferError);
        LocalTensors tensors(goals, 1);  // and it can be read like any other
        load(checkpoint, tensors.list(), 1);
        CHECK(tensors.wrong() == "");
    }

    TEST_CASE("one rank has the files: the others give a path that does not exist") {
        TempFolder const folder;
        auto const goals = three();
        write(folder.path(), goals, small_files);
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            std::string const path = comm.rank() == 1 ? folder.path() : "/no/such/folder";
            for (Index window : {Index{0}, Index{40}, Index{1} << 20}) {
                LocalTensors scattered(goals, comm.rank());
                auto const report = load(path, scattered.list(), comm, OneRankReads<Scatter>{1, window});
                CHECK(scattered.wrong() == "");
                CHECK(report.bytes_read == (comm.rank() == 1 ? 160 + 14 + 120 : 0));
                if (window == 0) CHECK(report.collectives.scatters == 3);        // tensor by tensor
                if (window == 1 << 20) CHECK(report.collectives.scatters == 1);  // all in one
                if (window == 40) CHECK(report.extra_bytes <= 40 + 160);
                LocalTensors copied(goals, comm.rank());
                load(path, copied.list(), comm, OneRankReads<Broadcast>{1, window});
                CHECK(copied.wrong() == "");
            }
        });
    }

    TEST_CASE("a scatter sends what is needed, once; a broadcast all of it") {
        TempFolder const folder;
        std::vector<Goal> const goals{goal("w", DType::f32, "(4):(S0)", Shape{4096, 16})};
        write(folder.path(), goals);
        Index const bytes = 4096 * 16 * 4;
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            LocalTensors tensors(goals, comm.rank());
            auto const scatter = load(folder.path(), tensors.list(), comm, OneRankReads<Scatter>{});
            auto const all = load(folder.path(), tensors.list(), comm, OneRankReads<Broadcast>{});
            auto const list = load(folder.path(), {}, comm, OneRankReads<Scatter>{}).traffic;
            if (comm.rank() == 0) {
                CHECK((scatter.traffic - list).bytes_sent == bytes / 4 * 3);
                CHECK((all.traffic - list).bytes_sent == bytes * 3);
            }
        });
    }

    TEST_CASE("a broadcast to many ranks goes round in shares: the reader sends the bytes twice, not once a rank") {
        TempFolder const folder;
        std::vector<Goal> const goals{goal("w", DType::f32, "(6):(R)", Shape{4099, 31})};
        write(folder.path(), goals);
        Index const bytes = 4099 * 31 * 4;
        Catalogue const catalogue(Checkpoint::open(folder.path()));
        PlacedTensor const target{"w", goals[0].to, DType::f32};
        LoadForecast const forecast = forecast_load(catalogue, {&target, 1}, 6, OneRankReads<Broadcast>{2});
        CHECK(forecast.messages == 5 * 5);
        CHECK(forecast.bytes_on_wire == 5 * bytes);
        std::vector<Traffic> traffic(6);
        run_on_threads(6, [&](ThreadCommunicator& comm) {
            LocalTensors tensors(goals, comm.rank());
            auto const all = load(folder.path(), tensors.list(), comm, OneRankReads<Broadcast>{2});
            CHECK(tensors.wrong() == "");
            CHECK(all.collectives.broadcasts == forecast.collectives.broadcasts);
            auto const list = load(folder.path(), {}, comm, OneRankReads<Broadcast>{2}).traffic;
            traffic[static_cast<std::size_t>(comm.rank())] = all.traffic - list;
        });
        Index sent = 0;
        for (Traffic const& of_rank : traffic) sent += of_rank.bytes_sent;
        CHECK(sent == forecast.bytes_on_wire);
        CHECK(traffic[2].bytes_sent <= 2 * bytes);
    }

    TEST_CASE("of small tensors as many share a window as its lists have room for") {
        TempFolder const folder;
        std::vector<Goal> goals;
        Index const more = 5;
        constexpr auto most = static_cast<Index>(detail::most_window_pieces);
        for (Index i = 0; i < 2 * most + more; ++i) {
            goals.push_back(goal(errors::concat("w", i), DType::u8, i % 7 == 0 ? "(2):(R)" : "(2):(S0)", Shape{3}));
        }
        write(folder.path(), goals);
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            LocalTensors tensors(goals, comm.rank());
            auto const report = load(folder.path(), tensors.list(), comm, OneRankReads<Scatter>{});
            CHECK(tensors.wrong() == "");
            CHECK(report.collectives.scatters == 3);
            if (comm.rank() == 0) CHECK(report.extra_bytes == 3 * most);
        });
    }

    TEST_CASE("together every byte is read once, and files are opened files + ranks - 1 times at most") {
        TempFolder const folder;
        std::vector<Goal> goals;
        for (int i = 0; i < 40; ++i)
            goals.push_back(goal(errors::concat("layer.", i), DType::f32, "(4):(R)", Shape{16, 16}));
        write(folder.path(), goals, 5 * 16 * 16 * 4);
        std::atomic<Index> read{0};
        std::atomic<Index> opened{0};
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            LocalTensors tensors(goals, comm.rank());
            auto const report =
                load(folder.path(), tensors.list(), comm, CooperativeRead{4096, {}, Cooperation::always, {}});
            CHECK(tensors.wrong() == "");
            CHECK(report.bytes_read == 10 * 16 * 16 * 4);  // a quarter each
            CHECK(report.collectives.exchanges == 3);      // windows of four tensors
            CHECK_FALSE(report.read_directly);
            read += report.bytes_read;
            opened += report.files_opened;
        });
        CHECK(read == 40 * 16 * 16 * 4);
        CHECK(opened <= 8 + 4 - 1);
    }

    TEST_CASE(
        "without a strategy each byte is read once, if that pays; who reads alone scatters unless told otherwise") {
        static_assert(std::is_same_v<decltype(OneRankReads{}), OneRankReads<Scatter>>);
        TempFolder const folder;
        auto const goals = three();
        write(folder.path(), goals, small_files);
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            LocalTensors tensors(goals, comm.rank());
            auto const report = load(folder.path(), tensors.list(), comm);
            CHECK(report.strategy == CooperativeRead::name);
            CHECK(tensors.wrong() == "");
        });
    }

    TEST_CASE("the model decides: replicas are read together, shards by whom they belong to") {
        TempFolder const folder;
        std::vector<Goal> const replicas{goal("w", DType::f32, "(4):(R)", Shape{1024, 256})};
        std::vector<Goal> const shards{goal("w", DType::f32, "(4):(S0)", Shape{1024, 256})};
        write(folder.path(), replicas);
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            CooperativeRead strategy;
            strategy.model = {1e9, 1e9, 1e-6, 1e12, 1e-6};  // exchanges cost next to nothing
            LocalTensors whole(replicas, comm.rank());
            CHECK_FALSE(load(folder.path(), whole.list(), comm, strategy).read_directly);
            LocalTensors parts(shards, comm.rank());
            CHECK(load(folder.path(), parts.list(), comm, strategy).read_directly);
            strategy.model = {1e12, 1e12, 1e-6, 1e6, 1e-6};  // exchanges cost more than reads
            CHECK(load(folder.path(), whole.list(), comm, strategy).read_directly);
            CHECK(whole.wrong() == "");
            CHECK(parts.wrong() == "");
            strategy.cooperation = Cooperation::always;
            CHECK_FALSE(load(folder.path(), parts.list(), comm, strategy).read_directly);
            strategy.cooperation = Cooperation::never;
            CHECK(load(folder.path(), parts.list(), comm, strategy).read_directly);
        });
    }

    TEST_CASE("elements smaller than a byte are loaded as their bytes") {
        TempFolder const folder;
        write_checkpoint(
            folder.path(),
            {{"odd", DType::f4, Shape{2, 3}}, {"q", DType::f4, Shape{6, 4}}, {"six", DType::f6_e2m3, Shape{3, 8}}},
            [](CheckpointTensor const& tensor, Index begin, std::span<std::byte> out) {
                fill_expected(tensor, begin, out);
            });
        auto const refused = [&](DType dtype, char const* name, auto shape) {
            LocalTensors wrong({goal(name, dtype, "(1):(R)", shape)}, 0);
            Caught const error = caught([&] { load(Checkpoint::open(folder.path()), wrong.list(), 0); });
            CHECK(error.code == ErrorCode::mismatch);
            return error.message;
        };
        std::vector<Goal> const each[] = {
            {goal("q", DType::u8, "(2):(S0)", Shape{12}), goal("six", DType::u8, "(2):(R)", Shape{18})},
            {goal("q", DType::u8, "(2):(S0)", Shape{6, 2}), goal("six", DType::u8, "(2):(S1)", Shape{3, 6})},
            {goal("q", DType::u8, "(2):(S0)", Shape{6, 2}), goal("q", DType::u8, "(2):(S0)", Shape{12})},
            {goal("q", DType::u8, "(2):(S1)", Shape{6, 2}), goal("odd", DType::u8, "(2):(S0)", Shape{3})}};
        for (std::vector<Goal> const& goals : each) {
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                LocalTensors tensors(goals, comm.rank());
                load(folder.path(), tensors.list(), comm, EachRankReadsItsBoxes{});
                CHECK(tensors.wrong() == "");
                load(folder.path(), tensors.list(), comm, OneRankReads{});
                CHECK(tensors.wrong() == "");
            });
        }
        CHECK(contains(refused(DType::u8, "q", Shape{6, 4}),
                       "the checkpoint has shape [6,2] (bytes of F4 [6,4], whose elements are smaller than a byte), "
                       "the list says [6,4]. Fix: list it as U8 [6,2]."));
        CHECK(contains(refused(DType::u8, "odd", Shape{2, 1}), "Fix: list it as U8 [3]."));  // its rows share a byte
        CHECK(contains(refused(DType::f32, "q", Shape{6, 2}),
                       "the checkpoint has U8 elements (bytes of F4 [6,4], whose elements are smaller than a byte), "
                       "the list says F32. Fix: load as U8, and let the program unpack them."));
    }

    TEST_CASE("a group of one, a policy around it, an empty list, ranks without a tensor") {
        TempFolder const folder;
        std::vector<Goal> const goals{goal("w", DType::f32, "(1):(R)", Shape{3, 5})};
        write(folder.path(), goals);
        SelfCommunicator alone;
        for (int i = 0; i < 2; ++i) {
            LocalTensors tensors(goals, 0);
            if (i == 0) load(folder.path(), tensors.list(), alone, OneRankReads<Scatter>{});
            if (i == 1) load(folder.path(), tensors.list(), alone, CooperativeRead{});
            CHECK(tensors.wrong() == "");
        }
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            Trace trace(1000);
            auto traced = compose<Traced>(comm.split(0, comm.rank()), trace);
            LocalTensors tensors(goals, comm.rank());
            load(folder.path(), tensors.list(), traced, OneRankReads<Broadcast>{2, 8});
            CHECK(tensors.wrong() == "");
            CHECK(load(folder.path(), {}, traced, CooperativeRead{}).bytes_read == 0);
        });
    }

    // ---- Errors: the same on every rank ----------------------------------------------------------------------------

    using Tensors = std::vector<LocalTensor>;

    TEST_CASE("what is wrong with the list is said on all ranks before anything is touched") {
        check_refused(ErrorCode::format, {"TensorNotFound", "none of the 3 tensors of the checkpoint is called 'tail'"},
                      [](Tensors& tensors, std::string&, auto&, int) { tensors[2].name = "tail"; });
        check_refused(ErrorCode::format,
                      {"called 'model.head'; similar names: 'head'. Fix: check the name, say in LoadOptions::rename "},
                      [](Tensors& tensors, std::string&, auto&, int) { tensors[2].name = "model.head"; });
        check_refused(ErrorCode::mismatch, {"tensor 'head'", "the checkpoint has shape [5,6], the list says [6,5]"},
                      [](Tensors& tensors, std::string&, auto&, int rank) {
                          tensors[2].distribution = parse("(3):(S0)", Shape{6, 5});
                          auto const local = tensors[2].distribution.local_shape(rank);
                          tensors[2].view = DynamicView(tensors[2].view.data(), DType::f32, local);
                      });
        check_refused(ErrorCode::mismatch,
                      {"tensor 'norm'", "has shape [7], the list says [6]",
                       "; of a box of the larger tensor, say in "
                       "LocalTensor::within where it lies."},
                      [](Tensors& tensors, std::string&, auto&, int) {
                          tensors[1].distribution = parse("(3):(R)", Shape{6});
                          tensors[1].view = DynamicView(tensors[1].view.data(), DType::bf16, Shape{6});
                      });
        check_refused(ErrorCode::mismatch,
                      {"tensor 'norm'", "the checkpoint has BF16 elements, the list says F16", "and cast"},
                      [](Tensors& tensors, std::string&, auto&, int) {
                          tensors[1].view = DynamicView(tensors[1].view.data(), DType::f16, Shape{7});
                      });
        check_refused(ErrorCode::mismatch, {"tensor 'norm'", "Fix: load as BF16; no cast leads from there"},
                      [](Tensors& tensors, std::string&, auto&, int) {
                          tensors[1].view = DynamicView(tensors[1].view.data(), DType::f8_e4m3, Shape{7});
                      });
        check_refused(
            ErrorCode::dtype, {"tensor 'norm'", "bor is not defined for BF16"},
            [](Tensors& tensors, std::string&, auto&, int) { tensors[1].distribution = parse("(3):(P|)", Shape{7}); });
        check_refused(
            ErrorCode::mesh, {"tensor 'norm'", "the mesh (4) has rank 3, the communicator only 3 ranks"},
            [](Tensors& tensors, std::string&, auto&, int) { tensors[1].distribution = parse("(4):(R)", Shape{7}); });
    }

    TEST_CASE("what is wrong on one rank is said on all") {
        check_refused(ErrorCode::buffer, {"rank 2 of 3: reshard::load: tensor 'norm' on rank 2: the view is null"},
                      [](Tensors& tensors, std::string&, auto&, int rank) {
                          if (rank == 2) tensors[1].view = DynamicView(nullptr, DType::bf16, Shape{7});
                      });
        check_refused(
            ErrorCode::buffer,
            {"rank 1 of 3: reshard::load: on rank 1 the tensors 'embed' and 'norm' overlap", "(of tied weights any)"},
            [](Tensors& tensors, std::string&, auto&, int rank) {
                if (rank == 1) tensors[1].view = DynamicView(tensors[0].view.data(), DType::bf16, Shape{7});
            });
        check_refused(ErrorCode::buffer,
                      {"rank 1 of 3: reshard::load: tensor 'norm' on rank 1: the view has strides [0] that overlap."},
                      [](Tensors& tensors, std::string&, auto&, int rank) {
                          DynamicView& view = tensors[1].view;
                          if (rank == 1) view = DynamicView(view.data(), view.dtype(), view.shape(), Indices{0});
                      });
        check_refused(ErrorCode::mismatch, {"rank 1 of 3: loads tensor 0 'norm'", "but rank 0 loads tensor 0 'embed'"},
                      [](Tensors& tensors, std::string&, auto&, int rank) {
                          if (rank == 1) std::swap(tensors[0], tensors[1]);
                      });
        check_refused(ErrorCode::buffer, {"rank 1 of 3: reshard::ReadOptions: in_flight is 0"},
                      [](Tensors&, std::string&, auto& strategy, int rank) {
                          if (rank == 1) strategy.reads.in_flight = 0;
                      });
    }

    TEST_CASE("tensors are found under the names that a list of renames gives, with every strategy") {
        TempFolder const folder;
        auto const stored = three();
        write(folder.path(), stored, small_files);
        auto named = stored;
        named[0].stored.name = "wte";
        named[2].stored.name = "model.head";
        LoadOptions options;
        options.rename = {{"embed", "wte"}, {"*", "model.*"}};
        auto const attempt = [&](auto strategy) {
            CAPTURE(strategy.name);
            strategy.options = options;
            run_on_threads(3, [&](ThreadCommunicator& comm) {
                LocalTensors tensors(named, comm.rank());
                load(folder.path(), tensors.list(), comm, strategy);
                auto const original = [&](Goal const& goal) {
                    std::string const& name = goal.stored.name;
                    return name == "wte" ? "embed" : name == "model.head" ? "head" : name;
                };
                CHECK(tensors.wrong(original) == "");
            });
        };
        attempt(OneRankReads<Scatter>{});
        attempt(OneRankReads<Broadcast>{});
        attempt(EachRankReadsItsBoxes{});
        attempt(CooperativeRead{});
        LocalTensors tensors(named, 0);
        EveryRankReads alone;
        alone.options.rename = {{"embed", "wte"}, {"model.*", "head"}};
        CHECK_THROWS_WITH_AS(static_cast<void>(load(Checkpoint::open(folder.path()), tensors.list(), 0, alone)),
                             doctest::Contains("rename of 'model.*' to 'head'. Fix: name two tensors"), FormatError);
        alone.options.rename = {{"embed", "wte"}, {"model.*.ln", "ln.*"}};
        CHECK_THROWS_WITH_AS(static_cast<void>(load(Checkpoint::open(folder.path()), tensors.list(), 0, alone)),
                             doctest::Contains("rename of 'model.*.ln' to 'ln.*'. Fix: name two tensors"), FormatError);
        alone.options.rename = {{"model.*.ln", "head.*.ln"}};
        CHECK_THROWS_WITH_AS(static_cast<void>(load(Checkpoint::open(folder.path()), tensors.list(), 0, alone)),
                             doctest::Contains("rename of 'model.*.ln' to 'head.*.ln'"), FormatError);
        alone.options.rename = {{"embedding", "wte"}};
        CHECK_THROWS_WITH_AS(static_cast<void>(load(Checkpoint::open(folder.path()), tensors.list(), 0, alone)),
                             doctest::Contains("'embedding'"), FormatError);
        for (char const* const first : {"norm", "embed"}) {
            alone.options.rename = {{first, "wte"}, {first[0] == 'n' ? "embed" : "norm", "wte"}};
            Caught const twice =
                caught([&] { static_cast<void>(load(Checkpoint::open(folder.path()), tensors.list(), 0, alone)); });
            CHECK(twice.rule == SafetensorsRule::duplicate_key);
            std::string const other = first[0] == 'n' ? "embed" : "norm";
            std::string const both = errors::concat("both '", first, "' and '", other, "' of the checkpoint 'wte'");
            CHECK_MESSAGE(contains(twice.message, both), twice.message);
        }
        CHECK(tensors.untouched());
        alone.options.rename = {
            {"embed", "wte"}, {"embed", "wte"},      {"head", "model.head"}, {"none", "of these"},
            {"none", "wte"},  {"embed", "unlisted"}, {"norm", "unlisted"}};  // what the checkpoint or the list does not
                                                                             // have is in nobody's way
        static_cast<void>(load(Checkpoint::open(folder.path()), tensors.list(), 0, alone));
        CHECK_FALSE(tensors.untouched());
        check_refused(ErrorCode::mismatch, {"rank 1 of 3"}, [](Tensors&, std::string&, auto& strategy, int rank) {
            strategy.options.rename = {{rank == 1 ? "embed" : "norm", "other"}};
        });
    }

    TEST_CASE("tensors that the list does not name are told, and so are the texts that were saved with them") {
        TempFolder const folder;
        auto const stored = three();
        write(folder.path(), stored, small_files);
        SaveOptions options;
        options.metadata = {{"epoch", "3"}, {"step", "4000"}};
        std::string id;
        std::string const saved = folder / "saved";
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            LocalTensors tensors(stored, comm.rank());
            load(folder.path(), tensors.list(), comm);
            SaveReport const report = save(saved, tensors.list(), comm, options);
            if (comm.rank() == 0) id = report.save_id;
        });
        std::vector<Goal> const goals{goal("embed", DType::f32, "(3):(S0)", Shape{10, 4})};
        std::vector<std::string> const others{"head", "norm"};  // sorted, as all names are
        auto const check = [&](LoadReport const& report) {
            CHECK(report.metadata == options.metadata);
            CHECK(report.save_id == id);
            CHECK(report.not_listed == others);
            CHECK(contains(explain(report), "\n  2 tensors of the checkpoint not in the list: 'head', 'norm'\n"));
        };
        auto const attempt = [&](auto const& strategy) {
            CAPTURE(strategy.name);
            run_on_threads(3, [&](ThreadCommunicator& comm) {
                LocalTensors tensors(goals, comm.rank());
                check(load(saved, tensors.list(), comm, strategy));
                CHECK(load(folder.path(), tensors.list(), comm, strategy).metadata.empty());
            });
            LocalTensors tensors(goals, 0);
            auto const forecast =
                forecast_load(Catalogue(Checkpoint::open(saved)), placed_tensors(tensors.list()), 3, strategy);
            CHECK(forecast.not_listed == others);
            CHECK(contains(explain(forecast), "\n  2 tensors of the checkpoint not in the list: 'head', 'norm'\n"));
        };
        attempt(OneRankReads<Scatter>{});
        attempt(OneRankReads<Broadcast>{});
        attempt(EachRankReadsItsBoxes{});
        attempt(CooperativeRead{});
        run_on_threads(3, [&](ThreadCommunicator& comm) {  // options of the strategy that is nowhere named
            LocalTensors tensors(goals, comm.rank());
            check(load(saved, tensors.list(), comm, {.options = {.rename = {{"none", "of these"}}}}));
            CHECK(tensors.wrong() == "");
        });
        LocalTensors tensors(goals, 1);
        check(load(Checkpoint::open(saved), tensors.list(), 1));
        LocalTensors all(stored, 1);
        CHECK(load(Checkpoint::open(saved), all.list(), 1).not_listed.empty());
    }

    TEST_CASE("memory of a device is refused, on all ranks where they load together") {
        test::FakeCuda const cuda;
        if (!cuda.works()) return;
        std::vector<std::uint16_t> far(7);  // what ranks allocate anew may lie where something else lay
        cuda.claim(far.data(), 14);
        check_refused(ErrorCode::buffer, {"rank 2 of 3: reshard::load: tensor 'norm' on rank 2: the view lies in"},
                      [&](Tensors& tensors, std::string&, auto&, int rank) {
                          if (rank == 2) tensors[1].view = DynamicView(far.data(), DType::bf16, Shape{7});
                      });
        TempFolder const folder;
        auto const goals = three();
        write(folder.path(), goals);
        LocalTensors tensors(goals, 0);
        cuda.claim(tensors.list()[2].view.data(), 4);
        CHECK_THROWS_WITH_AS(static_cast<void>(load(Checkpoint::open(folder.path()), tensors.list(), 0)),
                             doctest::Contains("tensor 'head' on rank 0: the view lies in memory of a CUDA device"),
                             BufferError);
        CHECK(tensors.untouched());
    }

    TEST_CASE("over a communicator that states memory, tensors of devices are placed and filled by that memory alone") {
        test::FakeCuda const cuda;
        if (!cuda.works()) return;
        std::vector<Goal> const goals{goal("addends", DType::f32, "(3):(P+)", Shape{5, 6}),
                                      goal("rows", DType::f32, "(3):(S0)", Shape{10, 4})};
        TempFolder const folder;
        write(folder.path(), goals);
        std::vector<std::byte> far(3 * 1024, std::byte{0xEE});
        cuda.claim(far.data(), far.size());
        auto const attempt = [&](bool devices_only, auto const& strategy, auto const& check) {
            CAPTURE(strategy.name);
            run_on_threads(3, [&](ThreadCommunicator& threads) {
                CountingMemory memory;
                LocalTensors tensors(goals, threads.rank());
                std::byte* at = far.data() + 1024 * threads.rank();
                for (LocalTensor& tensor : tensors.list()) {
                    tensor.view = DynamicView(at, DType::f32, tensor.view.shape());
                    at += 512;
                }
                int const rank = threads.rank();
                OfDevices comm(std::move(threads), memory, devices_only);
                check(comm, tensors, memory, rank, [&] { return load(folder.path(), tensors.list(), comm, strategy); });
            });
        };
        auto const placed = [](OfDevices&, LocalTensors& tensors, CountingMemory& memory, int rank, auto const& run) {
            static_cast<void>(run());
            CHECK(tensors.wrong() == "");
            CHECK(memory.filled == (rank == 0 ? 0 : 1));
        };
        attempt(false, EachRankReadsItsBoxes{}, placed);
        attempt(false, OneRankReads<Broadcast>{}, placed);
        attempt(false, OneRankReads<Scatter>{}, placed);
        attempt(false, EachRankReadsItsBoxes{},
                [&](auto& comm, auto& tensors, auto& memory, int rank, auto const& run) {
                    placed(comm, tensors, memory, rank, run);
                    CHECK(memory.delivered >= (rank == 0 ? 2 : 1));
                });
        attempt(true, EachRankReadsItsBoxes{}, [&](auto&, auto&, auto&, int, auto const& run) {
            CHECK_THROWS_WITH_AS(
                static_cast<void>(run()),
                doctest::Contains(
                    "rank 0 of 3: reshard::load: tensor 'addends' on rank 0: the view lies "
                    "in memory of a device, and the transport 'threads' moves no memory of the host. Fix: "),
                BufferError);
        });
    }

    TEST_CASE("a checkpoint that is not there, or whose index names a missing file, is an IoError on all") {
        check_refused(ErrorCode::io, {"rank 0 of 3: IoError: /no/such/folder: cannot open the checkpoint"},
                      [](Tensors&, std::string& path, auto&, int) { path = "/no/such/folder"; });
        TempFolder const folder;
        auto const goals = three();
        write(folder.path(), goals, small_files);
        std::filesystem::remove(folder / "model-00002-of-00002.safetensors");
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 LocalTensors tensors(goals, comm.rank());
                                 load(folder.path(), tensors.list(), comm, CooperativeRead{});
                             }),
                   ErrorCode::io,
                   {"rank 0 of 3", "1 of the 2 files it names are missing: 'model-00002-of-00002.safetensors'"});
    }

    TEST_CASE("a source or a window that cannot be is refused by all") {
        TempFolder const folder;
        auto const goals = three();
        write(folder.path(), goals);
        for (auto const& wrong : {OneRankReads<Scatter>{3, 1}, {-1, 1}, {0, -1}}) {
            check_same(thrown_by(3,
                                 [&](ThreadCommunicator& comm) {
                                     LocalTensors tensors(goals, comm.rank());
                                     load(folder.path(), tensors.list(), comm, wrong);
                                 }),
                       wrong.window_bytes < 0 ? ErrorCode::buffer : ErrorCode::mesh, {"reshard::load: "});
        }
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 LocalTensors tensors(goals, comm.rank());
                                 load(folder.path(), tensors.list(), comm, OneRankReads<Scatter>{comm.rank() / 2, 1});
                             }),
                   ErrorCode::mismatch, {"rank 2 of 3: loads with root 1, but rank 0 loads with root 0. Fix: "});
    }

    TEST_CASE("ranks that load with other options are told which") {
        TempFolder const folder;
        auto const goals = three();
        write(folder.path(), goals);
        auto const check = [&](std::string const& one, std::string const& usual, auto const& change) {
            check_same(thrown_by(3,
                                 [&](ThreadCommunicator& comm) {
                                     LocalTensors tensors(goals, comm.rank());
                                     CooperativeRead strategy;
                                     if (comm.rank() == 1) change(strategy);
                                     load(folder.path(), tensors.list(), comm, strategy);
                                 }),
                       ErrorCode::mismatch,
                       {"rank 1 of 3: loads with " + one + ", but rank 0 loads with " + usual + ". Fix: "});
        };
        check("verify_checksums none", "verify_checksums whole_blocks",
              [](auto& s) { s.options.verify_checksums = Checksums::none; });
        check("verify_checksums touched_blocks", "verify_checksums whole_blocks",
              [](auto& s) { s.options.verify_checksums = Checksums::touched_blocks; });
        check("replica_axes [0,2]", "replica_axes []", [](auto& s) { s.options.replica_axes = {0, 2}; });
        check("rename ['x' to 'a', 'y.*' to 'b.*']", "rename []", [](auto& s) {
            s.options.rename = {{"x", "a"}, {"y.*", "b.*"}};
        });
        std::string const long_name(200, 'x');  // differs behind what is quoted
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 LocalTensors tensors(goals, comm.rank());
                                 LoadOptions options;
                                 options.rename = {{"a", long_name + (comm.rank() == 1 ? "b" : "c")}};
                                 load(folder.path(), tensors.list(), comm, OneRankReads<Scatter>{0, 0, {}, options});
                             }),
                   ErrorCode::mismatch, {"(digest ", "but rank 0"});
        check("window_bytes 9", "window_bytes 33554432", [](auto& s) { s.window_bytes = 9; });
        check("cooperation never", "cooperation by_model", [](auto& s) { s.cooperation = Cooperation::never; });
        check("reads.in_flight 3", "reads.in_flight 4", [](auto& s) { s.reads.in_flight = 3; });
        check("model.storage_bandwidth 5", "model.storage_bandwidth 4000000000",
              [](auto& s) { s.model.storage_bandwidth = 5; });
        check_same(
            thrown_by(3,
                      [&](ThreadCommunicator& comm) {
                          LocalTensors tensors(goals, comm.rank());
                          if (comm.rank() == 1) return load(folder.path(), tensors.list(), comm, CooperativeRead{});
                          return load(folder.path(), tensors.list(), comm, OneRankReads<Scatter>{});
                      }),
            ErrorCode::mismatch,
            {"rank 1 of 3: loads with strategy 'cooperative read', but rank 0 loads with strategy 'one rank reads, "
             "scatter'. Fix: "});
    }

    TEST_CASE("a file that one rank does not have, or has in another version, is an error on all") {
        TempFolder const folder;
        TempFolder const poor;
        TempFolder const other;
        auto const goals = three();
        write(folder.path(), goals, small_files);
        auto changed = goals;
        changed[2].stored.name = "heal";
        write(other.path(), changed, small_files);
        auto const attempt = [&](std::string const& path, auto const& strategy) {
            return thrown_by(3, [&](ThreadCommunicator& comm) {
                LocalTensors tensors(goals, comm.rank());
                load(comm.rank() == 1 ? path : folder.path(), tensors.list(), comm, strategy);
            });
        };
        for (auto const& thrown : {attempt(poor.path(), EachRankReadsItsBoxes{}),
                                   attempt(poor.path(), CooperativeRead{1 << 20, {}, Cooperation::always, {}})}) {
            check_same(thrown, ErrorCode::io, {"rank 1 of 3: IoError: " + poor.path() + "/model-0000", "cannot open"});
        }
        // In the second file of rank 1 no tensor is called 'head'.
        check_same(attempt(other.path(), EachRankReadsItsBoxes{}), ErrorCode::mismatch,
                   {"rank 1 of 3: reshard: " + other.path(), "another header", "saw another version of it"});
        TempFolder const turned;
        auto shapes = goals;
        shapes[0].stored.shape = Shape{4, 10};  // in the first file
        write(turned.path(), shapes, small_files);
        check_same(attempt(turned.path(), EachRankReadsItsBoxes{}), ErrorCode::mismatch,
                   {"rank 1 of 3: reshard: " + turned.path(), "another header or other data, of the same size",
                    "saw another version of it"});
        // The same model after another training: headers and sizes are equal, some bytes are not.
        TempFolder const trained;
        write(trained.path(), goals, small_files);
        for (auto const& entry : std::filesystem::directory_iterator(trained.path())) {
            std::string bytes = read_text(entry.path());
            bytes.back() ^= 1;
            write_text(entry.path(), bytes);
        }
        for (auto const& thrown : {attempt(trained.path(), EachRankReadsItsBoxes{}),
                                   attempt(trained.path(), CooperativeRead{1 << 20, {}, Cooperation::always, {}})}) {
            check_same(thrown, ErrorCode::mismatch, {"rank 1 of 3: reshard: " + trained.path(), "or other data"});
        }

        // Without a communicator nobody else can know; afterwards all can.
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 bool const odd = comm.rank() == 2;
                                 LocalTensors tensors(odd ? changed : goals, comm.rank());
                                 agree_loaded(comm, load(Checkpoint::open(odd ? other.path() : folder.path()),
                                                         tensors.list(), comm.rank()));
                             }),
                   ErrorCode::mismatch, {"rank 2 of 3: loaded 3 tensors from files with digest"});
    }

    TEST_CASE("full files of another training are told apart by the manifests beside them, where nothing is compared") {
        TempFolder const folder;
        auto const goals = three();
        std::string const one = folder / "one";
        std::string const again = folder / "again";
        std::string const trained = folder / "trained";
        ConsolidateOptions with_sums;
        with_sums.manifest = true;
        {
            TempFolder const plain;
            write(plain.path(), goals, small_files);
            consolidate(plain.path(), one, with_sums);
            consolidate(plain.path(), again, with_sums);  // the same bytes under another id
            for (auto const& entry : std::filesystem::directory_iterator(plain.path())) {
                if (entry.path().extension() != ".safetensors") continue;
                std::string bytes = read_text(entry.path());
                bytes.back() ^= 1;
                write_text(entry.path(), bytes);
            }
            consolidate(plain.path(), trained, with_sums);
        }
        LoadOptions options;
        options.verify_checksums = Checksums::none;
        auto const attempt = [&](std::string const& path, auto const& strategy) {
            return thrown_by(3, [&](ThreadCommunicator& comm) {
                LocalTensors tensors(goals, comm.rank());
                load(comm.rank() == 1 ? path : one, tensors.list(), comm, strategy);
                CHECK(tensors.wrong() == "");
            });
        };
        EachRankReadsItsBoxes const alone{{}, options};
        CooperativeRead const together{1 << 20, {}, Cooperation::always, {}, options};
        for (auto const& thrown : {attempt(trained, alone), attempt(trained, together)}) {
            check_same(thrown, ErrorCode::mismatch,
                       {"rank 1 of 3: reshard: " + trained + "/model", "has other data, as the checksums",
                        "saw another version of it"});
        }
        for (auto const& thrown : {attempt(again, alone), attempt(again, together)}) {
            for (auto const& of_rank : thrown) CHECK_MESSAGE(of_rank.message.empty(), of_rank.message);
        }
    }

    TEST_CASE(
        "a rank that does not see the folder of a save, or misses a file of it, says so and not that saves go on") {
        TempFolder const folder;
        TempFolder const poor;
        auto const goals = three();
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            LocalTensors tensors(goals, comm.rank());
            save(folder.path(), tensors.list(), comm);
        });
        for (std::string const& leaf : folder.leaves()) {  // without what rank 1 has written
            if (!leaf.starts_with("shard-00002")) std::filesystem::copy_file(folder / leaf, poor / leaf);
        }
        auto const check = [&](std::string const& path, std::vector<std::string> const& parts) {
            auto const thrown = thrown_by(3, [&](ThreadCommunicator& comm) {
                LocalTensors tensors(goals, comm.rank());
                load(comm.rank() == 1 ? path : folder.path(), tensors.list(), comm, EachRankReadsItsBoxes{});
            });
            check_same(thrown, ErrorCode::io, parts);
            CHECK_FALSE(contains(thrown[0].message, detail::overtaken_words));
        };
        std::string const away = folder / "not-mounted";
        check(away, {"rank 1 of 3: IoError: " + away + ": this rank does not see the reshard.manifest.json that was",
                     "a folder that they share"});
        check(away + "/reshard.manifest.json", {"rank 1 of 3: IoError: " + away + ": this rank does not see"});
        check(poor.path(), {"rank 1 of 3: IoError: " + poor.path() + "/shard-00002-of-00003.",
                            "this rank does not see it, and reshard.manifest.json names it", "Fix: fetch it"});
    }

    TEST_CASE("a tensor in two files of the index is refused") {
        TempFolder const folder;
        write_safetensors(folder / "a.safetensors", {{"w", DType::u8, Shape{4}}}, fill_expected);
        write_safetensors(folder / "b.safetensors", {{"w", DType::u8, Shape{4}}, {"v", DType::u8, Shape{4}}},
                          fill_expected);
        write_text(folder / "model.safetensors.index.json",
                   R"({"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}})");
        check_rule(SafetensorsRule::invalid_index, [&] { static_cast<void>(Checkpoint::open(folder.path())); });
        write_text(folder / "model.safetensors.index.json",
                   R"({"weight_map": {"w": "a.safetensors", "w": "b.safetensors"}})");
        check_rule(SafetensorsRule::duplicate_key, [&] { static_cast<void>(Checkpoint::open(folder.path())); });
    }

    TEST_CASE("a file that is cut short half-way fails all ranks, and they say that tensors are partly filled") {
        Index const window = 1024;  // 8 of them
        std::vector<Goal> const goals{goal("a", DType::u8, "(3):(R)", Shape{64, window / 16}),
                                      goal("b", DType::u8, "(3):(S0)", Shape{64, window / 16})};
        for (auto const spread : {detail::Spread::scatter, detail::Spread::broadcast, detail::Spread::exchange}) {
            CAPTURE(static_cast<int>(spread));
            TempFolder const folder;
            write(folder.path(), goals);
            bool const together = spread == detail::Spread::exchange;
            auto const load_cut = [&](ThreadCommunicator& comm) {
                Checkpoint const checkpoint = Checkpoint::open(folder.path());
                barrier(comm);  // all have opened it, and now rank 0 cuts it
                if (comm.rank() == 0) {
                    std::filesystem::resize_file(
                        folder / "model.safetensors",
                        static_cast<std::uintmax_t>(checkpoint.files()[0].data_offset() + 7 * window - window / 8));
                }
                barrier(comm);
                LocalTensors tensors(goals, comm.rank());
                auto const wanted = detail::match(Catalogue(checkpoint), tensors.list());
                auto const schedule =
                    together ? detail::spans_read(wanted, 3, window) : detail::spans_read(wanted, 1, window, 1);
                detail::LoadFiles files(checkpoint);
                files.open(0);
                LoadReport report;
                detail::StagedLoad load(comm, wanted, tensors.list(), schedule, spread, report);
                try {
                    load.run(files, {});
                } catch (Error const& error) {
                    auto const& [scatters, broadcasts, exchanges, agreements] = report.collectives;
                    CHECK(scatters + broadcasts + exchanges == (together ? 1 : 6));  // the windows that were whole
                    CHECK(agreements == 1 + (together ? 2 : 7));
                    detail::raise_with(error, detail::partly_filled);
                }
            };
            check_same(thrown_by(3, load_cut), ErrorCode::io,
                       {errors::concat("rank ", together ? 2 : 1, " of 3: IoError: "), "it was cut short while open",
                        "The tensors are partly filled"});
        }
    }

    TEST_CASE("a file that is written to, or cut, under an open or mapped checkpoint fails the rank that reads it") {
        for (Access access : {Access::pread, Access::mmap}) {
            TempFolder const folder;
            std::vector<Goal> const goals{goal("a", DType::u8, "(1):(R)", Shape{64, 64})};
            write(folder.path(), goals);
            Checkpoint const checkpoint = Checkpoint::open(folder.path(), access);
            LocalTensors tensors(goals, 0);
            load(checkpoint, tensors.list(), 0);
            std::string text = read_text(folder / "model.safetensors");
            text.back() = static_cast<char>(text.back() + 1);
            std::filesystem::last_write_time(folder / "model.safetensors",
                                             std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
            write_text(folder / "model.safetensors", text);
            check_io("it was written to while it was read", [&] { load(checkpoint, tensors.list(), 0); });
            std::filesystem::resize_file(folder / "model.safetensors", text.size() - 1);
            Caught const error = caught([&] { load(checkpoint, tensors.list(), 0); });
            CHECK(error.code == ErrorCode::io);
            CHECK(contains(error.message, "The tensors are partly filled: load them again."));
        }
    }

    TEST_CASE("without a communicator the rank that fails throws alone, and the others hear of it when they agree") {
        TempFolder const folder;
        auto const goals = three();
        write(folder.path(), goals);
        auto const thrown = thrown_by(3, [&](ThreadCommunicator& comm) {
            LocalTensors tensors(goals, comm.rank());
            try {
                auto const report =
                    load(Checkpoint::open(comm.rank() == 1 ? "/no/such" : folder.path()), tensors.list(), comm.rank());
                CHECK(tensors.wrong() == "");
                agree_loaded(comm, report);
            } catch (IoError const& error) {
                comm.abort(error.code(), error.message());
                throw;
            }
        });
        CHECK(thrown[1].code == ErrorCode::io);
        for (std::size_t r : {0U, 2U}) {
            CHECK(thrown[r].code == ErrorCode::peer_failed);
            CHECK(contains(thrown[r].message, "cannot open the checkpoint"));
        }
    }
}
