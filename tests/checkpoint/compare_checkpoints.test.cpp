// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/compare_checkpoints.hpp.
#include <reshard/checkpoint/compare_checkpoints.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/save.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/threads.hpp>

#include "sharded_support.hpp"
#include "support/thrown.hpp"

#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {
using namespace checkpoint_test;
using test::check_same;
using test::thrown_by;

/// Tensors that are cut along rows, along columns, not at all, and that have nothing to cut.
std::vector<Saved> model() {
    return {{{"columns", DType::bf16, Shape{6, 10}}, 1, {{0, 0, Box{{0, 6}, {0, 3}}}, {0, 1, Box{{0, 6}, {3, 10}}}}},
            {{"empty", DType::f32, Shape{0, 4}}, 1, {{0, 1, Box(Shape{0, 4})}}},
            {{"rows", DType::f32, Shape{1, 9, 2}},
             1,
             {{0, 0, Box{{0, 1}, {0, 8}, {0, 2}}}, {0, 2, Box{{0, 1}, {8, 9}, {0, 2}}}}},
            {{"scalar", DType::i64, Shape{}}, 1, {{0, 2, Box(Shape{})}}}};
}
std::vector<TensorSpec> specs_of(std::vector<Saved> const& model) {
    std::vector<TensorSpec> specs;
    for (Saved const& saved : model) specs.push_back(saved.spec);
    return specs;
}
void spoil(std::string const& path, Index from_end) {
    std::string text = read_text(path);
    text[text.size() - static_cast<std::size_t>(from_end)] ^= 1;
    write_text(path, text);
}
/// One file of one tensor of these values.
template <class T>
void write_values(std::string const& path, char const* name, DynamicShape const& shape, std::vector<T> const& values) {
    write_safetensors(
        path, {{name, dtype_of<T>, shape}}, [&](TensorInfo const&, Index begin, std::span<std::byte> out) {
            std::memcpy(out.data(), reinterpret_cast<std::byte const*>(values.data()) + begin, out.size());
        });
}
}  // namespace

TEST_SUITE("checkpoint/compare_checkpoints") {
    TEST_CASE("full files, shards of two kinds: equal however they are cut, by any number of ranks in any windows") {
        TempFolder const full;
        TempFolder const ours;
        TempFolder const theirs;
        write_checkpoint(full.path(), specs_of(model()), fill_expected, 100);
        write_sharded(ours.path(), model(), 3, Described::by_manifest);
        write_sharded(theirs.path(), model(), 3, Described::by_shards);
        for (int ranks : {1, 2, 5}) {
            for (Index window : {1, 7, 1 << 20}) {
                run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                    CompareOptions options;
                    options.window_bytes = window;
                    Index told = 0;
                    options.progress = [&](Index done, Index total) {
                        CHECK(done > told);
                        CHECK(done <= total);
                        told = done;
                    };
                    for (auto const* other : {&ours, &theirs, &full}) {
                        told = 0;
                        CompareReport const report = compare_checkpoints(full.path(), other->path(), comm, options);
                        std::string const note =
                            "note: PyTorch's shards do not say how many ranks saved: see that the "
                            "last rank's file is there\n";
                        CHECK(explain(report) == "equal: 4 tensors, 200 B\n" + (other == &theirs ? note : ""));
                        CHECK(report.elements == 60 + 18 + 1);
                    }
                    told = 0;
                    CHECK(compare_checkpoints(ours.path(), theirs.path(), comm, options).equal());
                });
            }
        }
    }

    TEST_CASE("a value: tensor, index, both values and how far they are apart, the same on every rank") {
        TempFolder const folder;
        write_values<float>(folder / "a.safetensors", "w", Shape{2, 3}, {1, 2, 3, 4, 5, 6});
        write_values<float>(folder / "b.safetensors", "w", Shape{2, 3}, {1, 2, 3.5, 4, -5, 6});
        for (int ranks : {1, 2, 3, 8}) {
            run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                CompareOptions options;
                options.window_bytes = 4;
                auto const report =
                    compare_checkpoints(folder / "a.safetensors", folder / "b.safetensors", comm, options);
                CHECK(explain(report) ==
                      "not equal: 1 difference; 1 tensor, 24 B compared\n"
                      "  w: F32 [2,3], 2 of 6 elements differ, by 10 at most\n"
                      "    [0,2]: 3 (0x40400000) and 3.5 (0x40600000)\n"
                      "    [1,1]: 5 (0x40a00000) and -5 (0xc0a00000)\n");
                options.most_elements = 1;
                auto const fewer =
                    compare_checkpoints(folder / "a.safetensors", folder / "b.safetensors", comm, options);
                CHECK(fewer.differences.at(0).places == std::vector{report.differences.at(0).places.at(0)});
                CHECK(explain(fewer).ends_with("    [0,2]: 3 (0x40400000) and 3.5 (0x40600000)\n    and 1 more\n"));
            });
        }
    }

    TEST_CASE("bits decide: NaN equals itself, -0 is not 0, infinity has no distance; integers have none") {
        TempFolder const folder;
        SelfCommunicator comm;
        float const nan = std::numeric_limits<float>::quiet_NaN();
        float const infinity = std::numeric_limits<float>::infinity();
        write_values<float>(folder / "a.safetensors", "w", Shape{3}, {nan, 0.0F, 1.0F});
        write_values<float>(folder / "b.safetensors", "w", Shape{3}, {nan, -0.0F, infinity});
        auto const report = compare_checkpoints(folder / "a.safetensors", folder / "b.safetensors", comm);
        REQUIRE(report.differences.size() == 1);
        CHECK(report.differences[0].elements == 2);
        CHECK(report.differences[0].measured == 1);  // the zeros
        CHECK(report.differences[0].largest == 0);
        write_values<float>(folder / "e.safetensors", "w", Shape{3}, {-infinity, 1.0F, nan});
        write_values<float>(folder / "f.safetensors", "w", Shape{3}, {infinity, 3.0F, 7.0F});
        CHECK(contains(explain(compare_checkpoints(folder / "e.safetensors", folder / "f.safetensors", comm)),
                       "3 of 3 elements differ, finite ones by 2 at most\n"));
        write_values<std::int64_t>(folder / "c.safetensors", "ids", Shape{2}, {7, -1});
        write_values<std::int64_t>(folder / "d.safetensors", "ids", Shape{2}, {7, 1});
        CHECK(compare_checkpoints(folder / "c.safetensors", folder / "d.safetensors", comm).differences[0].measured ==
              0);
        CHECK(explain(compare_checkpoints(folder / "c.safetensors", folder / "d.safetensors", comm)) ==
              "not equal: 1 difference; 1 tensor, 16 B compared\n"
              "  ids: I64 [2], 1 of 2 elements differ\n"
              "    [1]: -1 and 1\n");
    }

    TEST_CASE("tolerances are those of numpy.allclose: absolute, and relative to the second; other bits stay others") {
        TempFolder const folder;
        SelfCommunicator comm;
        float const nan = std::numeric_limits<float>::quiet_NaN();
        float const infinity = std::numeric_limits<float>::infinity();
        auto const differ = [&](std::vector<float> const& a, std::vector<float> const& b, double rtol, double atol) {
            DynamicShape const shape(Indices{static_cast<Index>(a.size())});
            write_values<float>(folder / "a.safetensors", "w", shape, a);
            write_values<float>(folder / "b.safetensors", "w", shape, b);
            CompareOptions options;
            options.rtol = rtol;
            options.atol = atol;
            options.window_bytes = 8;
            std::vector<Index> places;
            auto const report = compare_checkpoints(folder / "a.safetensors", folder / "b.safetensors", comm, options);
            for (auto const& difference : report.differences)
                for (DifferentElement const& element : difference.places) places.push_back(element.place);
            return places;
        };
        using Places = std::vector<Index>;
        CHECK(differ({1, 2, 3}, {1.25F, 2.5F, 3}, 0, 0.25) == Places{1});
        CHECK(differ({8, 10, -8}, {10, 8, -10}, 0.2, 0) == Places{1});  // 2 <= 0.2 * 10, but not 0.2 * 8
        CHECK(differ({8, 10, -8}, {10, 8, -10}, 0.2, 0.5).empty());
        CHECK(differ({0.0F}, {-0.0F}, 0, 0) == Places{0});
        CHECK(differ({0.0F}, {-0.0F}, 0, 1e-9).empty());
        CHECK(differ({nan, infinity, infinity, 1, nan}, {nan, infinity, -infinity, infinity, 1}, 1e9, 1e9) ==
              Places{2, 3, 4});

        CompareOptions options;
        options.rtol = 1e-3;
        write_values<std::int64_t>(folder / "a.safetensors", "ids", Shape{1}, {1000000});
        write_values<std::int64_t>(folder / "b.safetensors", "ids", Shape{1}, {1000001});
        CHECK(explain(compare_checkpoints(folder / "a.safetensors", folder / "b.safetensors", comm, options)) ==
              "not equal within rtol 0.001 and atol 0: 1 difference; 1 tensor, 8 B compared\n"
              "  ids: I64 [1], 1 of 1 element differ\n"
              "    [0]: 1000000 and 1000001\n");
        CHECK(explain(compare_checkpoints(folder / "a.safetensors", folder / "a.safetensors", comm, options)) ==
              "equal within rtol 0.001 and atol 0: 1 tensor, 8 B\n");
    }

    TEST_CASE("floats of two element types are compared as numbers where that is asked for") {
        TempFolder const folder;
        float const nan = std::numeric_limits<float>::quiet_NaN();
        float const infinity = std::numeric_limits<float>::infinity();
        std::vector<float> const wide{1, 0, 1.01F, nan, -infinity, infinity, 3};
        std::vector<BFloat16> narrow;
        for (float const value : {1.0F, -0.0F, 1.01F, -nan, -infinity, 1.0F, 4.0F}) narrow.emplace_back(value);
        write_values(folder / "a.safetensors", "w", Shape{7}, wide);
        write_values(folder / "b.safetensors", "w", Shape{7}, narrow);
        for (int ranks : {1, 3}) {
            for (Index window : {1, 9, 1 << 20}) {
                run_on_threads(ranks, [&](ThreadCommunicator& comm) {
                    auto const text = [&](char const* first, char const* second, double rtol, bool ignore_dtype) {
                        CompareOptions options;
                        options.window_bytes = window;
                        options.rtol = rtol;
                        options.ignore_dtype = ignore_dtype;
                        return explain(compare_checkpoints(folder / first, folder / second, comm, options));
                    };
                    CHECK(text("a.safetensors", "b.safetensors", 0.1, false) ==
                          "not equal within rtol 0.1 and atol 0: 1 difference; 0 tensors, 0 B compared\n"
                          "  w: F32 [7] in the first, BF16 [7] in the second\n");
                    CHECK(text("a.safetensors", "b.safetensors", 0, true) ==
                          "not equal: 1 difference; 1 tensor, 28 B compared\n"
                          "  w: F32 [7] and BF16, 3 of 7 elements differ, finite ones by 1 at most\n"
                          "    [2]: 1.00999999 (0x3f8147ae) and 1.008 (0x3f81)\n"
                          "    [5]: inf (0x7f800000) and 1 (0x3f80)\n"
                          "    [6]: 3 (0x40400000) and 4 (0x4080)\n");
                    CHECK(text("b.safetensors", "a.safetensors", 0.01, true) ==
                          "not equal within rtol 0.01 and atol 0: 1 difference; 1 tensor, 14 B compared\n"
                          "  w: BF16 [7] and F32, 2 of 7 elements differ, finite ones by 1 at most\n"
                          "    [5]: 1 (0x3f80) and inf (0x7f800000)\n"
                          "    [6]: 4 (0x4080) and 3 (0x40400000)\n");
                });
            }
        }
        // Ranks that are asked otherwise would leave out what each of them takes for another's part.
        auto const thrown = thrown_by(3, [&](ThreadCommunicator& comm) {
            CompareOptions options;
            options.ignore_dtype = comm.rank() != 2;
            static_cast<void>(compare_checkpoints(folder / "a.safetensors", folder / "b.safetensors", comm, options));
        });
        check_same(thrown, ErrorCode::mismatch,
                   {"rank 2 of 3: compares with ignore_dtype false, but rank 0 compares with ignore_dtype true. Fix: "
                    "give every "
                    "rank the same arguments."});

        check_same(thrown_by(2,
                             [&](ThreadCommunicator& comm) {
                                 CompareOptions options;  // differ behind what is quoted
                                 options.rename = {{"w", std::string(200, 'x') + (comm.rank() == 1 ? "b" : "c")}};
                                 static_cast<void>(compare_checkpoints(folder / "a.safetensors",
                                                                       folder / "b.safetensors", comm, options));
                             }),
                   ErrorCode::mismatch, {"(digest ", "but rank 0"});

        // Numbers that are no floats are of another form all the same.
        write_values<std::int64_t>(folder / "c.safetensors", "w", Shape{7}, {1, 2, 3, 4, 5, 6, 7});
        SelfCommunicator comm;
        CompareOptions options;
        options.ignore_dtype = true;
        auto const report = compare_checkpoints(folder / "a.safetensors", folder / "c.safetensors", comm, options);
        CHECK(report.differences.at(0).kind == DifferenceKind::form);
    }

    TEST_CASE("tensors of one checkpoint only, another shape, another type: named; the others are compared") {
        TempFolder const folder;
        write_safetensors(folder / "a.safetensors",
                          {{"a", DType::u8, Shape{2}},
                           {"c", DType::u8, Shape{4}},
                           {"d", DType::u8, Shape{2}},
                           {"e", DType::f4, Shape{6}}},
                          fill_expected);
        write_safetensors(folder / "b.safetensors",
                          {{"b", DType::f64, Shape{2}},
                           {"c", DType::u8, Shape{2, 2}},
                           {"d", DType::i8, Shape{2}},
                           {"e", DType::f4, Shape{6}}},
                          fill_expected);
        spoil(folder / "b.safetensors", 1);  // of e, the narrowest
        run_on_threads(3, [&](ThreadCommunicator& comm) {
            auto const report = compare_checkpoints(folder / "a.safetensors", folder / "b.safetensors", comm);
            CHECK(report.tensors == 1);
            std::string const text = explain(report);
            CHECK(
                text.starts_with("not equal: 5 differences; 1 tensor, 3 B compared\n"
                                 "  a: U8 [2], only in the first\n"
                                 "  b: F64 [2], only in the second\n"
                                 "  c: U8 [4] in the first, U8 [2,2] in the second\n"
                                 "  d: U8 [2] in the first, I8 [2] in the second\n"
                                 "  e: F4 [6], 1 of 3 bytes differ\n"
                                 "    byte 2: "));
        });
    }

    TEST_CASE("random bytes changed in random files: every element that changed is counted, the first are listed") {
        std::mt19937 random(20261123);
        for (int round = 0; round < 40; ++round) {
            CAPTURE(round);
            Index const rows = 1 + static_cast<Index>(random() % 40);
            Index const columns = 1 + static_cast<Index>(random() % 9);
            std::vector<float> a(static_cast<std::size_t>(rows * columns));
            for (float& value : a) value = static_cast<float>(random() % 1000);
            std::vector<float> b = a;
            std::vector<Index> changed;
            for (std::size_t i = 0; i < a.size(); ++i) {
                if (random() % 7 != 0) continue;
                b[i] += 1;
                changed.push_back(static_cast<Index>(i));
            }
            TempFolder const folder;
            write_values(folder / "a.safetensors", "w", Shape{rows, columns}, a);
            write_values(folder / "b.safetensors", "w", Shape{rows, columns}, b);
            CompareOptions options;
            options.window_bytes = 1 + static_cast<Index>(random() % 100);
            options.most_elements = static_cast<int>(random() % 6);
            run_on_threads(1 + static_cast<int>(random() % 4), [&](ThreadCommunicator& comm) {
                auto const report =
                    compare_checkpoints(folder / "a.safetensors", folder / "b.safetensors", comm, options);
                CHECK(report.equal() == changed.empty());
                if (changed.empty()) return;
                REQUIRE(report.differences.size() == 1);
                CheckpointDifference const& one = report.differences[0];
                CHECK(one.elements == static_cast<Index>(changed.size()));
                CHECK(one.largest == 1);
                CHECK(one.places.size() ==
                      detail::smaller(changed.size(), static_cast<std::size_t>(options.most_elements)));
                for (std::size_t i = 0; i < one.places.size(); ++i) CHECK(one.places[i].place == changed[i]);
            });
        }
    }

    TEST_CASE("copies that were saved apart: each is compared with its own, the first where there are not as many") {
        TempFolder const apart;
        TempFolder const full;
        std::vector<Saved> const copies{
            {{"w", DType::f32, Shape{4}}, 2, {{0, 0, Box(Shape{4})}, {1, 1, Box(Shape{4})}}}};
        write_sharded(apart.path(), copies, 2, Described::by_manifest);
        write_safetensors(full / "model.safetensors", {{"w", DType::f32, Shape{4}}},
                          [](TensorInfo const& info, Index begin, std::span<std::byte> out) {
                              for (std::size_t i = 0; i < out.size(); ++i)
                                  out[i] = expected_byte(content_of(info.name, 0, 2), begin + static_cast<Index>(i));
                          });
        SelfCommunicator comm;
        for (bool swapped : {false, true}) {
            auto const report =
                compare_checkpoints(swapped ? full.path() : apart.path(), swapped ? apart.path() : full.path(), comm);
            CHECK(report.equal());
            CHECK(report.copies_not_compared == 1);
            CHECK(explain(report) ==
                  "equal: 1 tensor, 16 B\n"
                  "note: 1 copy was not compared: the other checkpoint has not as many of the tensor\n");
        }
        // Of files without a manifest, too, where names alone say that there are copies.
        for (std::string const leaf : {"one.safetensors", "two.safetensors"}) {
            std::vector<TensorSpec> const specs{{"v", DType::i8, Shape{2}},
                                                {"w.__tp_replica_0", DType::i8, Shape{2}},
                                                {"w.__tp_replica_1", DType::i8, Shape{2}}};
            write_safetensors(full / leaf, specs, [&](TensorInfo const& info, Index, std::span<std::byte> out) {
                for (std::byte& one : out) one = std::byte{info.name.ends_with('1') && leaf[0] == 't'};
            });
        }
        for (int ranks : {1, 2, 4}) {
            run_on_threads(ranks, [&](ThreadCommunicator& group) {
                auto const report = compare_checkpoints(full / "one.safetensors", full / "two.safetensors", group);
                CHECK(report.tensors == 2);
                CHECK(report.elements == 6);
                CHECK(report.copies_not_compared == 0);
                CHECK(explain(report) ==
                      "not equal: 1 difference; 2 tensors, 6 B compared\n"
                      "  w, copy 1: I8 [2], 2 of 2 elements differ\n"
                      "    [0]: 0 and 1\n"
                      "    [1]: 0 and 1\n");
            });
        }
    }

    TEST_CASE("tensors that the second has under other names are compared with those, and named so") {
        TempFolder const folder;
        write_safetensors(
            folder / "a.safetensors",
            {{"block.0", DType::u8, Shape{3}}, {"block.1", DType::u8, Shape{4}}, {"z", DType::u8, Shape{2}}},
            [](TensorInfo const& info, Index begin, std::span<std::byte> out) {
                for (std::byte& byte : out) byte = static_cast<std::byte>(info.shape.size() * 16 + begin++);
            });
        write_safetensors(
            folder / "b.safetensors",
            {{"a", DType::u8, Shape{2}}, {"layer.0", DType::u8, Shape{3}}, {"layer.1", DType::u8, Shape{4}}},
            [](TensorInfo const& info, Index begin, std::span<std::byte> out) {
                for (std::byte& byte : out)
                    byte = static_cast<std::byte>(info.shape.size() * 16 + begin++ + (info.name == "layer.1"));
            });
        auto const a = folder / "a.safetensors";
        auto const b = folder / "b.safetensors";
        run_on_threads(2, [&](ThreadCommunicator& comm) {
            CompareOptions options;
            CHECK(compare_checkpoints(a, b, comm, options).differences.size() == 6);
            options.rename = {{"z", "a"}, {"block.*", "layer.*"}};
            options.most_elements = 1;
            CHECK(explain(compare_checkpoints(a, b, comm, options)) ==
                  "not equal: 1 difference; 3 tensors, 9 B compared\n"
                  "  layer.1: U8 [4], 4 of 4 elements differ\n"
                  "    [0]: 64 and 65\n"
                  "    and 3 more\n");
        });
        auto const fails = [&](ErrorCode code, std::vector<std::string> const& parts, bool alike, char const* to) {
            check_same(thrown_by(2,
                                 [&](ThreadCommunicator& comm) {
                                     CompareOptions options;
                                     if (alike || comm.rank() == 0) options.rename = {{to, "a"}};
                                     (void)compare_checkpoints(a, b, comm, options);
                                 }),
                       code, parts);
        };
        fails(ErrorCode::format, {"rename names 'none', which is no tensor"}, true, "none");
        fails(ErrorCode::mismatch, {"rename []", "rename ['z' to 'a']"}, false, "z");
    }

    TEST_CASE("tables that differ in what is no tensor of theirs: the first field, with both values") {
        TempFolder const folder;
        using Texts = std::vector<std::pair<std::string, std::string>>;
        auto const put = [&](char const* leaf, Texts texts, std::string const& ids_name = "user.ids") {
            run_on_threads(2, [&](ThreadCommunicator& comm) {
                std::vector<std::int64_t> ids{comm.rank(), 7};
                auto const rows = distribution(Mesh{2}, Shape{4}, "S0");
                std::vector<LocalTensor> const tensors{
                    {ids_name, rows, TensorView<std::int64_t>(ids.data(), Shape{2})}};
                SaveOptions options;
                options.metadata = texts;
                save(folder / leaf, tensors, comm, options);
            });
        };
        auto const text = [](std::string const& policy, std::string const& cut, std::string const& rest) {
            return Texts{{"mch.table.user", R"({"version":3,"layout":"sorted","eviction":")" + policy +
                                                R"(","offsets":)" + cut +
                                                R"(,"hash_size":100,"hash_function":"","columns":[)" +
                                                R"({"name":"counts","bytes":8,"empty":0}],)" + rest + "}"}};
        };
        auto const compared = [&](Texts const& first, Texts const& second) {
            put("a", first);
            put("b", second);
            std::vector<std::string> said(3);
            run_on_threads(3, [&](ThreadCommunicator& comm) {
                said[static_cast<std::size_t>(comm.rank())] =
                    explain(compare_checkpoints(folder / "a", folder / "b", comm));
            });
            CHECK(said[1] == said[0]);
            CHECK(said[2] == said[0]);
            return said[0];
        };
        auto const differs = [](std::string const& what) {
            return "not equal: 1 difference; 1 tensor, 32 B compared\n  user: a table with " + what + "\n";
        };
        auto const plain = text("lru", "[0,2,4]", R"("iteration":5)");
        std::string const equal = "equal: 1 tensor, 32 B\n";
        CHECK(compared(plain, plain) == equal);
        put("a", plain);
        Texts later = text("lru", "[0,2,4]", R"("iteration":6)");
        later[0].first = "mch.table.client";
        put("b", later, "client.ids");
        SelfCommunicator alone;
        CompareOptions renamed;
        renamed.rename = {{"user.*", "client.*"}};
        CHECK(explain(compare_checkpoints(folder / "a", folder / "b", alone, renamed)) ==
              "not equal: 1 difference; 1 tensor, 32 B compared\n"
              "  client: a table with iteration 5 in the first, 6 in the second\n");
        CHECK(compared(plain, text("lru", "[0,4]", R"("iteration":5,"buckets":1,"decay_exponent":"1")")) == equal);
        CHECK(compared(plain, {}) == equal);  // one has no tables
        CHECK(compared(plain, text("lru", "[0,2,4]", R"("iteration":6)")) ==
              differs("iteration 5 in the first, 6 in the second"));
        CHECK(compared(plain, text("lfu", "[0,2,4]", R"("iteration":6)")) ==
              differs("eviction lru in the first, lfu in the second"));
        CHECK(compared(text("lru", "[]", R"("iteration":5,"decay_exponent":"0.5")"), plain) ==
              differs("decay_exponent 0.5 in the first, 1 in the second"));
        CHECK(compared(plain, text("lru", "[]", R"("iteration":5,"more":2)")) ==
              differs("more absent in the first, 2 in the second"));
        CHECK(compared(plain, {{"mch.table.user", "words"}}).find("  user: a table with ") != std::string::npos);
        CHECK(compared({{"mch.table.user", "no"}}, {{"mch.table.user", "words"}}) ==
              differs("text no in the first, words in the second"));

        put("a", plain);
        put("b", text("lru", "[0,2,4]", R"("iteration":6)"));
        SelfCommunicator comm;
        CompareReport const report = compare_checkpoints(folder / "a", folder / "b", comm);
        REQUIRE(report.differences.size() == 1);
        CHECK(report.differences[0].kind == DifferenceKind::table);
        CHECK(report.differences[0].field == "iteration");
        CHECK(report.differences[0].second_value == "6");
    }

    TEST_CASE("what cannot be compared is the same error on every rank") {
        TempFolder const folder;
        write_sharded(folder.path(), model(), 3, Described::by_manifest);
        auto const fails = [&](ErrorCode code, std::vector<std::string> const& parts, std::string const& first,
                               std::string const& second, CompareOptions const& options = {}) {
            check_same(
                thrown_by(3,
                          [&](ThreadCommunicator& comm) { (void)compare_checkpoints(first, second, comm, options); }),
                code, parts);
        };
        fails(ErrorCode::io, {"/none"}, folder / "none", folder.path());
        fails(ErrorCode::io, {"/none"}, folder.path(), folder / "none");
        CompareOptions options;
        options.window_bytes = 0;
        fails(ErrorCode::buffer, {"window_bytes is 0"}, folder.path(), folder.path(), options);
        options = {};
        options.most_elements = -1;
        fails(ErrorCode::buffer, {"most_elements is -1. Fix: 0 lists none."}, folder.path(), folder.path(), options);
        options = {};
        options.atol = -1;
        fails(ErrorCode::buffer, {"atol is -1. Fix: 0 asks for equal bits."}, folder.path(), folder.path(), options);
        options.atol = 0;
        options.rtol = std::numeric_limits<double>::quiet_NaN();
        fails(ErrorCode::buffer, {"rtol is nan. Fix: "}, folder.path(), folder.path(), options);
        check_same(thrown_by(3,
                             [&](ThreadCommunicator& comm) {
                                 CompareOptions own;
                                 own.most_elements = comm.rank();
                                 (void)compare_checkpoints(folder.path(), folder.path(), comm, own);
                             }),
                   ErrorCode::mismatch, {"most_elements 1, but rank 0 compares with", "most_elements 0"});
        std::string const lost = "shard-00002-of-00003.0123456789abcdef.safetensors";
        std::filesystem::remove(folder / lost);
        fails(ErrorCode::io, {lost}, folder.path(), folder.path());
    }
}
