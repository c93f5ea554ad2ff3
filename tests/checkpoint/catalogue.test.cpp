// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/catalogue.hpp and checkpoint/detail/catalogue_bytes.hpp.
#include <reshard/checkpoint/catalogue.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/detail/load_files.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>
#include <reshard/checkpoint/save_plan.hpp>

#include "support.hpp"
#include "support/random.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace {
using namespace checkpoint_test;

std::vector<TensorSpec> specs() {
    return {{"a", DType::f32, Shape{3, 4}},
            {"b", DType::bf16, Shape{5}},
            {"scalar", DType::i64, DynamicShape(Shape<>{})},
            {"none", DType::u8, Shape{0, 7}}};
}

std::vector<std::size_t> near(Catalogue const& catalogue, std::size_t tensor, Box const& box) {
    std::vector<std::size_t> places;
    catalogue.for_each_near(tensor, box, [&](std::size_t place) { places.push_back(place); });
    return places;
}
}  // namespace

TEST_SUITE("checkpoint/catalogue") {
    TEST_CASE("a catalogue of a checkpoint that might be written is that of the one that is") {
        TempFolder const folder;
        write_checkpoint(
            folder.path(), specs(), [](auto const&, Index, std::span<std::byte>) {}, 50);
        for (std::string const& path : {folder.path(), folder.path() + "//", folder / "model.safetensors.index.json"}) {
            Catalogue const written(Checkpoint::open(path));
            Catalogue const planned = Catalogue::of(specs(), 50);
            CHECK(std::equal(written.tensors().begin(), written.tensors().end(), planned.tensors().begin(),
                             planned.tensors().end()));
            CHECK(std::equal(written.extents().begin(), written.extents().end(), planned.extents().begin(),
                             planned.extents().end()));
            CHECK(written.kind() == planned.kind());
            REQUIRE(written.files().size() == planned.files().size());
            for (std::size_t i = 0; i < written.files().size(); ++i) {
                CHECK(written.files()[i].leaf == planned.files()[i].leaf);
                CHECK(written.files()[i].file_bytes == planned.files()[i].file_bytes);
            }
        }
    }

    TEST_CASE("it is found by name, and arrives elsewhere as it was") {
        Catalogue const catalogue = Catalogue::of(specs(), 50);
        REQUIRE(catalogue.find("b") != nullptr);
        CHECK(catalogue.find("b")->shape == DynamicShape(Shape{5}));
        CHECK(catalogue.find("c") == nullptr);
        Catalogue const copy = detail::catalogue_from(detail::list_text(catalogue));
        CHECK(copy == catalogue);
        CHECK(copy.kind() == catalogue.kind());
        CHECK(copy.digest() == catalogue.digest());
        REQUIRE(copy.find("scalar") != nullptr);
        auto const places = copy.extents_of(static_cast<std::size_t>(copy.find("scalar") - copy.tensors().data()));
        REQUIRE(places.size() == 1);
        CHECK(copy.extent_bytes(copy.extents()[places[0]]) == 8);
    }

    TEST_CASE("its numbers and texts arrive whatever they are, and take little room") {
        detail::ByteWriter out;
        std::int64_t const numbers[] = {0, 1, 127, 128, 16384, -1, INT64_MAX, INT64_MIN};
        std::string const texts[] = {"",           "model.1.a", "model.1.b", "model.1",
                                     "model.10.b", "",          "x",         std::string(300, 'y')};
        for (std::int64_t number : numbers) out.number(number);
        for (std::string const& text : texts) out.text(text);
        out.word(std::uint64_t{0xfedcba9876543210U});
        out.number(-5);
        auto const bytes = out.take();
        detail::ByteReader in(bytes);
        std::int64_t got = 0;
        std::string got_text;
        std::uint64_t got_word = 0;
        for (std::int64_t number : numbers) {
            in.number(got);
            CHECK(got == number);
        }
        for (std::string const& text : texts) {
            in.text(got_text);
            CHECK(got_text == text);
        }
        in.word(got_word);
        CHECK(got_word == 0xfedcba9876543210U);
        in.number(got);
        CHECK(got == -5);
        CHECK(in.at_end());

        std::vector<TensorSpec> many;
        for (int i = 0; i < 1000; ++i) {
            many.push_back(
                {errors::concat("model.layers.", i / 10, ".mlp.experts.", i % 10), DType::bf16, Shape{64, 64}});
        }
        Catalogue const catalogue = Catalogue::of(many);
        auto const text = detail::list_text(catalogue);
        CHECK(text.size() < 31'000);
        CHECK(detail::catalogue_from(text) == catalogue);
    }

    TEST_CASE("extents near a box are all that meet it, whatever they overlap, each once") {
        for (std::uint64_t const seed : test::seeds(100)) {
            test::Random random(seed);
            Index const rows = random.between(1, 200);
            bool const columns = random.chance(50);  // are what is cut
            auto const box = [&](Interval cut) { return columns ? Box{{0, 2}, cut} : Box{cut, {0, 2}}; };
            Manifest manifest;
            manifest.files.push_back({"model.safetensors", INT64_MAX, 0, -1, 0});
            manifest.tensors.push_back({"scalar", DType::u8, DynamicShape(Shape<>{}), 1, ""});
            manifest.tensors.push_back({"t", DType::u8, box({0, rows}).shape(), 1, ""});
            Index const most = random.chance(50) ? rows : 3;
            Index const extents = random.between(0, 60);
            for (Index i = 0; i < extents; ++i) {
                Index const begin = random.between(0, rows);
                Extent extent;
                extent.tensor = 1;
                extent.box = box({begin, begin + random.between(0, std::min(most, rows - begin))});
                extent.begin = 1000 * i;
                manifest.extents.push_back(extent);
            }
            Catalogue const catalogue(manifest, CheckpointKind::manifest);
            CAPTURE(seed);
            for (int turn = 0; turn < 20; ++turn) {
                Index const begin = random.between(0, rows);
                Box const wanted = box({begin, random.between(begin, rows)});
                auto const places = near(catalogue, 1, wanted);
                for (std::size_t const i : catalogue.extents_of(1)) {
                    bool const meets = !intersect(catalogue.extents()[i].box, wanted).empty();
                    auto const visits = std::count(places.begin(), places.end(), i);
                    CHECK(visits <= 1);
                    CHECK((visits == 1 || !meets));
                }
            }
        }
    }

    TEST_CASE("extents near a box are few, along whichever dimension the tensor was cut") {
        for (int const dim : {0, 1, 2}) {
            DynamicShape const shape = Shape{512, 512, 512};
            std::vector<PlacedTensor> const list{{"w", parse(errors::concat("(512):(S", dim, ")"), shape), DType::u8}};
            Catalogue const catalogue(plan_save(list, 512).manifest);
            Box slab(shape);
            slab.set(dim, {100, 102});
            CAPTURE(dim);
            CHECK(near(catalogue, 0, slab).size() == 2);
        }
    }

    TEST_CASE("other names, sizes, places or headers are another digest") {
        auto const base = specs();
        std::uint64_t const digest = Catalogue::of(base, 50).digest();
        auto changed = base;
        changed[0].name = "z";
        CHECK(Catalogue::of(changed, 50).digest() != digest);
        changed = base;
        changed[1].shape = Shape{6};
        CHECK(Catalogue::of(changed, 50).digest() != digest);
        CHECK(Catalogue::of(base, 1000).digest() != digest);

        TempFolder const folder;  // same names and sizes, but dtypes change places
        write_safetensors(folder / "x.safetensors", {{"a", DType::f32, Shape{2}}, {"b", DType::i32, Shape{2}}},
                          fill_expected);
        write_safetensors(folder / "y.safetensors", {{"a", DType::i32, Shape{2}}, {"b", DType::f32, Shape{2}}},
                          fill_expected);
        CHECK(SafetensorsFile::open(folder / "x.safetensors").header_digest() !=
              SafetensorsFile::open(folder / "y.safetensors").header_digest());
    }
}
