// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/load_files.hpp.
#include <reshard/checkpoint/detail/load_files.hpp>

#include <doctest/doctest.h>

#include "../../support/random.hpp"
#include "../support.hpp"

#include <algorithm>
#include <thread>
#include <vector>

namespace {
using namespace checkpoint_test;
using detail::ExtentRun;
using detail::ExtentSums;
using detail::SumVerdict;

/// Extents one after the other in two files of bytes; every third has no checksum, some have one for each block.
struct Files {
    explicit Files(reshard::test::Random& random) {
        Manifest manifest;
        manifest.block_bytes = random.between(1, 30);
        for (int f = 0; f < 2; ++f) {
            manifest.files.push_back({errors::concat("f", f), 0, 0, -1});
            Index begin = 0;
            for (Index i = random.between(1, 6); i > 0; --i) {
                Index const size = random.between(0, 40);
                std::size_t const t = manifest.tensors.size();
                manifest.tensors.push_back({errors::concat("t", 100 + t), DType::u8, Shape{size}, 1, ""});
                Extent extent{t, 0, f, begin, Box(Shape{size})};
                for (Index k = 0; k < size; ++k) data[f].push_back(static_cast<std::byte>(random.between(0, 255)));
                extent.has_checksum = t % 3 != 2;
                auto const bytes = std::span(data[f]).last(static_cast<std::size_t>(size));
                if (extent.has_checksum) extent.crc32c = crc32c(bytes);
                auto const block = static_cast<std::size_t>(manifest.block_bytes);
                bool const blocks = extent.has_checksum && bytes.size() > block && random.chance(50);
                for (std::size_t at = 0; blocks && at < bytes.size(); at += block)
                    extent.block_sums.push_back(crc32c(bytes.subspan(at, detail::smaller(block, bytes.size() - at))));
                manifest.extents.push_back(extent);
                begin += size;
            }
        }
        catalogue = Catalogue(manifest);
    }
    [[nodiscard]] std::vector<ExtentRun> all() const { return detail::whole_runs(catalogue); }
    [[nodiscard]] Index summed() const {
        Index sum = 0;
        for (Extent const& extent : catalogue.extents())
            if (extent.has_checksum) sum += catalogue.extent_bytes(extent);
        return sum;
    }
    std::vector<std::byte> data[2];
    Catalogue catalogue;
};
}  // namespace

TEST_SUITE("checkpoint/detail/load_files") {
    TEST_CASE("files that are opened for a catalogue keep no list of their own, and a broken one is still named") {
        TempFolder const folder;
        std::string const path = folder / "model.safetensors";
        std::string const start = safetensors_layout({{"b", DType::u8, Shape{3}}, {"a", DType::u8, Shape{2}}}).start;
        write_text(path, start + "22333");
        Catalogue const known(Checkpoint::open(path));
        auto const see = [&](detail::LoadFiles files) {
            SafetensorsFile const& file = files.open(0);
            CHECK(file.tensors().empty());
            CHECK(file.header_digest() == SafetensorsFile::open(path).header_digest());
            std::byte last[2];
            files.read(0, 3, last);
            CHECK(last[1] == std::byte{'3'});
            CHECK_THROWS_AS(files.read(0, 4, last), BufferError);
        };
        see(detail::look_at(path));
        see(detail::LoadFiles(path, known));

        auto const code = [&](std::string const& text) {
            write_text(path, text);
            return caught([&] { static_cast<void>(detail::LoadFiles(path, known).open(0)); }).rule;
        };
        CHECK(code(start + "22334") == SafetensorsRule::none);  // another version
        CHECK(code(start + "2233") == SafetensorsRule::metadata_incomplete_buffer);
        CHECK(code(start.substr(0, 9) + '!' + start.substr(10) + "22333") ==
              SafetensorsRule::invalid_header_deserialization);
    }

    TEST_CASE("a header that a save writes for a manifest's extents is known, and no other is") {
        TempFolder const folder;
        std::string const shard = "shard-00001-of-00001.0123456789abcdef.safetensors";
        Manifest known;
        known.save = "0123456789abcdef";
        known.world_size = 1;
        known.metadata = {{"step", "7"}};
        known.tensors = {{"a\"b", DType::f32, Shape{4}, 1, ""}, {"w", DType::u8, Shape{3, 2}, 1, ""}};
        known.extents = {{0, 0, 0, 0, Box{{0, 4}}}, {1, 0, 0, 16, Box{{1, 3}, {0, 2}}, "w.1"}};
        // Whether it is known, and what opening the file says.
        auto const see = [&](Manifest const& manifest, std::string const& leaf, std::string const& start) {
            Index const length = std::ssize(start) - 8;
            Manifest listed = manifest;
            std::uint64_t const digest = safetensors_header_digest(std::string_view(start).substr(8));
            listed.files = {{leaf, 8 + length + 20, digest}};
            write_text(folder / leaf, start + std::string(20, 'x'));
            bool const is_known = detail::is_saved_header(listed, 0, length);
            Caught const error =
                caught([&] { static_cast<void>(detail::LoadFiles(folder.path(), Catalogue(listed)).open(0)); });
            CHECK((!is_known || error.code == ErrorCode::none));
            return std::pair(is_known, error.rule == SafetensorsRule::none && error.code == ErrorCode::format
                                           ? "contradicts"
                                           : std::string(name(error.rule)));
        };
        using Seen = std::pair<bool, std::string>;
        std::string const start = detail::shard_layout(known, known.extents, default_metadata()).start;
        CHECK(see(known, shard, start) == Seen{true, "none"});
        auto const changed = [&](auto&& change) {
            Manifest manifest = known;
            change(manifest);
            return see(manifest, shard, start);
        };
        CHECK(changed([](Manifest& m) { m.extents[1].key = "w.2"; }) == Seen{false, "contradicts"});
        CHECK(changed([](Manifest& m) { m.extents[1].begin = 17; }) == Seen{false, "contradicts"});
        CHECK(changed([](Manifest& m) { m.extents[1].box = Box{{0, 2}, {0, 2}}; }) == Seen{false, "none"});
        CHECK(changed([](Manifest& m) { m.extents[1].box = Box{{0, 2}, {0, 1}}; }) == Seen{false, "contradicts"});
        CHECK(changed([](Manifest& m) { m.tensors[0].dtype = DType::i32; }) == Seen{false, "contradicts"});
        CHECK(changed([](Manifest& m) { m.extents.pop_back(); }) == Seen{false, "none"});
        CHECK(changed([](Manifest& m) { m.save[0] = '1'; }) == Seen{false, "none"});
        CHECK(changed([](Manifest& m) { m.format = "np"; }) == Seen{false, "none"});

        // Rules that a header breaks are named, whatever its manifest says.
        Manifest broken = known;
        broken.extents[1].begin = 15;
        std::string text = start;
        text.replace(text.find("[16,20]"), 7, "[15,19]");
        CHECK(see(broken, shard, text) == Seen{false, "InvalidOffset"});
        text = start;
        text.replace(text.find("\"format\":\"pt\""), 13, "\"format\":\"pt\x80");
        CHECK(see(known, shard, text) == Seen{false, "InvalidHeader"});

        // Full files have the texts of all.
        Metadata texts = known.metadata;
        texts.emplace_back("format", "pt");
        known.extents[1] = {1, 0, 0, 16, Box{{0, 2}, {0, 2}}};
        known.tensors[1].shape = Shape{2, 2};
        auto const full = [&](Metadata const& all) {
            return safetensors_layout({{"a\"b", DType::f32, Shape{4}}, {"w", DType::u8, Shape{2, 2}}}, all).start;
        };
        CHECK(see(known, "model.safetensors", full(texts)) == Seen{true, "none"});
        CHECK(see(known, "model.safetensors", full(default_metadata())) == Seen{false, "none"});
        known.metadata.emplace_back("format", "pt");  // is none of these
        CHECK(see(known, "model.safetensors", full(texts)) == Seen{true, "none"});
    }

    TEST_CASE("runs cut anywhere, read in any order, by several, some twice, come to the sums of the extents") {
        for (std::uint64_t seed : reshard::test::seeds(200)) {
            CAPTURE(seed);
            reshard::test::Random random(seed);
            Files files(random);
            bool const spoil = random.chance(50);
            Index spoilt = -1;
            if (spoil && !files.data[0].empty()) {
                spoilt = random.between(0, static_cast<Index>(files.data[0].size()) - 1);
                files.data[0][static_cast<std::size_t>(spoilt)] ^= std::byte{1};
            }
            std::vector<std::tuple<int, Index, Index>> reads;
            for (int f = 0; f < 2; ++f) {
                auto const size = static_cast<Index>(files.data[f].size());
                for (Index begin = 0; begin < size;) {
                    Index const end = std::min(size, begin + random.between(1, 50));
                    reads.emplace_back(f, begin, end);
                    if (random.chance(10)) reads.emplace_back(f, begin, end);
                    begin = end;
                }
            }
            std::shuffle(reads.begin(), reads.end(), random.engine());
            ExtentSums ranks[2] = {ExtentSums(files.all()), ExtentSums(files.all())};
            for (auto const& [f, begin, end] : reads) {
                ranks[random.chance(50) ? 1 : 0].add(
                    files.catalogue, f, begin,
                    std::span(files.data[f])
                        .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
            }
            // Each rank by itself first; what is left of both together.
            std::vector<ExtentRun> left;
            SumVerdict both;
            for (ExtentSums const& rank : ranks) {
                SumVerdict const one = detail::sum_up(files.catalogue, rank.runs());
                both.bytes += one.bytes;
                both.wrong.insert(both.wrong.end(), one.wrong.begin(), one.wrong.end());
                left.insert(left.end(), one.parts.begin(), one.parts.end());
            }
            SumVerdict const rest = detail::sum_up(files.catalogue, left);
            both.wrong.insert(both.wrong.end(), rest.wrong.begin(), rest.wrong.end());
            std::vector<ExtentRun> everything = ranks[0].runs();
            everything.insert(everything.end(), ranks[1].runs().begin(), ranks[1].runs().end());
            SumVerdict const all = detail::sum_up(files.catalogue, everything);
            CHECK(all.bytes == files.summed());
            CHECK(all.parts.empty());

            Index wrong = -1;
            for (std::size_t i = 0; i < files.catalogue.extents().size(); ++i) {
                Extent const& extent = files.catalogue.extents()[i];
                bool const hit = extent.file == 0 && extent.has_checksum && spoilt >= extent.begin &&
                                 spoilt < extent.begin + files.catalogue.extent_bytes(extent);
                if (hit) wrong = static_cast<Index>(i);
            }
            REQUIRE(all.wrong.size() == (wrong >= 0 ? 1 : 0));
            if (wrong >= 0) CHECK(all.wrong[0].extent == wrong);
            for (ExtentRun const& run : both.wrong) CHECK(run.extent == wrong);
        }
    }

    TEST_CASE("parts of an extent that nobody has read whole are neither right nor wrong") {
        Manifest manifest;
        manifest.files = {{"f", 0, 0, -1}};
        manifest.tensors = {{"w", DType::u8, Shape{10}, 1, ""}};
        manifest.extents = {{0, 0, 0, 4, Box(Shape{10}), "", true, 0xdeadbeefU}};
        Catalogue const catalogue(manifest);
        std::vector<std::byte> const bytes(20);
        ExtentSums sums(detail::whole_runs(catalogue));
        sums.add(catalogue, 0, 0, std::span(bytes).first(8));
        sums.add(catalogue, 0, 8, std::span(bytes).first(3));
        SumVerdict verdict = detail::sum_up(catalogue, sums.runs());
        CHECK(verdict.bytes == 0);
        CHECK(verdict.wrong.empty());
        REQUIRE(verdict.parts.size() == 1);
        CHECK(verdict.parts[0].begin == 0);
        CHECK(verdict.parts[0].end == 7);
        sums.add(catalogue, 0, 11, std::span(bytes).first(9));
        verdict = detail::sum_up(catalogue, sums.runs());
        CHECK(verdict.bytes == 10);
        REQUIRE(verdict.wrong.size() == 1);
        Caught const error = caught([&] { detail::refuse_wrong(catalogue, verdict.wrong); });
        CHECK(error.code == ErrorCode::format);
        for (std::string_view part : {"box [0:10] of tensor 'w'", "in 'f' at byte 4 of its data", "0xdeadbeef"}) {
            CAPTURE(error.message);
            CHECK(contains(error.message, part));
        }
    }

    TEST_CASE("several threads add at once") {
        reshard::test::Random random(1);
        Files const files(random);
        ExtentSums sums(files.all());
        std::vector<std::thread> threads;
        for (int f = 0; f < 2; ++f) {
            threads.emplace_back([&sums, &files, f] {
                for (std::size_t i = 0; i < files.data[f].size(); ++i) {
                    sums.add(files.catalogue, f, static_cast<Index>(i), std::span(files.data[f]).subspan(i, 1));
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        SumVerdict const verdict = detail::sum_up(files.catalogue, sums.runs());
        CHECK(verdict.bytes == files.summed());
        CHECK(verdict.wrong.empty());
    }
}
