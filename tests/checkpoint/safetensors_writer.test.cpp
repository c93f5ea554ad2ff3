// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/safetensors_writer.hpp>

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <random>
#include <string>
#include <vector>

#include <reshard/checkpoint/checkpoint.hpp>

#include "support.hpp"

using namespace checkpoint_test;

namespace {

/// Files of this process cannot grow beyond `bytes`: what a full disk looks like to a writer.
class FileSizeLimit {
public:
    explicit FileSizeLimit(Index bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_) == 0);
        rlimit limit = old_;
        limit.rlim_cur = static_cast<rlim_t>(bytes);
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    FileSizeLimit(FileSizeLimit const&) = delete;
    FileSizeLimit& operator=(FileSizeLimit const&) = delete;
    ~FileSizeLimit() {
        static_cast<void>(::setrlimit(RLIMIT_FSIZE, &old_));
        std::signal(SIGXFSZ, old_handler_);
    }

private:
    rlimit old_{};
    void (*old_handler_)(int);
};

void check_contents(Checkpoint const& checkpoint, std::vector<TensorSpec> const& list) {
    REQUIRE(checkpoint.tensors().size() == list.size());
    for (TensorSpec const& spec : list) {
        CAPTURE(spec.name);
        auto const* const tensor = checkpoint.find(spec.name);
        REQUIRE(tensor != nullptr);
        CHECK(tensor->dtype == spec.dtype);
        CHECK(tensor->shape == spec.shape);
        std::vector<std::byte> bytes(static_cast<std::size_t>(tensor->bytes()));
        checkpoint.read(*tensor, bytes);
        REQUIRE(holds_expected(*tensor, 0, bytes));
    }
}

std::vector<TensorSpec> random_list(std::mt19937& random) {
    std::vector<TensorSpec> list;
    auto const count = random() % 12;
    for (std::size_t i = 0; i < count; ++i) {
        TensorSpec tensor;
        tensor.name = errors::concat("t", random() % 3 == 0 ? "\n\"\xc3\xa4" : ".", i);
        tensor.dtype = static_cast<DType>(random() % dtype_count);
        Indices extents;
        for (auto d = random() % 9; d > 0; --d) extents.push_back(static_cast<Index>(random() % 4));
        if (!is_byte_sized(tensor.dtype)) {
            if (extents.size() == max_dims) extents.pop_back();
            extents.push_back(8);  // fills its last byte whatever the other extents
        }
        tensor.shape = DynamicShape(extents);
        list.push_back(tensor);
    }
    return list;
}

}  // namespace

TEST_SUITE("checkpoint/safetensors_writer") {
    TEST_CASE("all 22 dtypes, scalars and empty tensors come back as written") {
        TempFolder const folder;
        std::vector<TensorSpec> list;
        for (int i = 0; i < dtype_count; ++i) {
            auto const dtype = static_cast<DType>(i);
            list.push_back({errors::concat("full.", name(dtype)), dtype, Shape{2, 3, 4}});
            list.push_back({errors::concat("empty.", name(dtype)), dtype, Shape{4, 0, 2}});
            if (is_byte_sized(dtype)) list.push_back({errors::concat("scalar.", name(dtype)), dtype, {}});
        }
        write_safetensors(folder / "all.safetensors", list, fill_expected);
        check_contents(Checkpoint::open(folder / "all.safetensors"), list);
        CHECK(folder.leaves() == std::vector<std::string>{"all.safetensors"});
    }

    TEST_CASE("random lists come back as written, in one file and in several") {
        auto const seed = 20260912U;
        CAPTURE(seed);
        std::mt19937 random(seed);
        for (int trial = 0; trial < 150; ++trial) {
            CAPTURE(trial);
            TempFolder const folder;
            auto const list = random_list(random);
            Index const chunk = 1 + static_cast<Index>(random() % 300);
            Index const limit = static_cast<Index>(random() % 3000);
            write_safetensors(folder / "one.safetensors", list, fill_expected, default_metadata(), chunk);
            check_contents(Checkpoint::open(folder / "one.safetensors"), list);
            write_checkpoint(folder / "many", list, fill_expected, limit, {}, chunk);
            check_contents(Checkpoint::open(folder / "many"), list);
        }
    }

    TEST_CASE("a file is written from its own map: what was mapped is what is there") {
        TempFolder const folder;
        std::vector<TensorSpec> const list{{"w", DType::f32, Shape{300, 70}}, {"b", DType::u8, Shape{5}}};
        write_safetensors(folder / "m.safetensors", list, fill_expected);
        auto const old = SafetensorsFile::open(folder / "m.safetensors", Access::mmap);
        write_safetensors(folder / "m.safetensors", list,
                          [&](TensorInfo const& tensor, Index begin, std::span<std::byte> out) {
                              auto const from = old.mapped_bytes(old.at(tensor.name));
                              std::copy_n(from.begin() + begin, out.size(), out.begin());
                          });
        check_contents(Checkpoint::open(folder / "m.safetensors"), list);
    }

    TEST_CASE("fill is asked for whole elements, in order, in pieces of bounded size") {
        TempFolder const folder;
        Index next = 0;
        std::size_t largest = 0;
        write_safetensors(
            folder / "m.safetensors", {{"w", DType::f64, Shape{1000}}},
            [&](TensorInfo const& tensor, Index begin, std::span<std::byte> out) {
                CHECK(begin == next);
                CHECK(begin % 8 == 0);
                CHECK(out.size() % 8 == 0);
                next = begin + static_cast<Index>(out.size());
                largest = detail::larger(largest, out.size());
                fill_expected(tensor, begin, out);
            },
            default_metadata(), 1000);
        CHECK(next == 8000);
        CHECK(largest == 960);
        for (DType const dtype : {DType::f4, DType::f6_e2m3, DType::f6_e3m2, DType::c64}) {
            CAPTURE(name(dtype));
            int pieces = 0;
            write_safetensors(
                folder / "small.safetensors", {{"w", dtype, Shape{2048}}},
                [&](TensorInfo const& tensor, Index begin, std::span<std::byte> out) {
                    ++pieces;
                    CHECK(begin * 8 % bits(dtype) == 0);
                    CHECK(static_cast<Index>(out.size()) * 8 % bits(dtype) == 0);
                    fill_expected(tensor, begin, out);
                },
                default_metadata(), 64);
            CHECK(pieces > 1);
        }
    }

    TEST_CASE("a folder in several files has the names, the index and the sizes Hugging Face expects") {
        TempFolder const folder;
        write_checkpoint(folder / "m",
                         {{"b", DType::u8, Shape{6}}, {"a", DType::f32, Shape{1}}, {"c", DType::u8, Shape{9}}},
                         fill_expected, 10);
        CHECK(read_text(folder / "m/model.safetensors.index.json") == R"({
  "metadata": {
    "total_size": 19
  },
  "weight_map": {
    "a": "model-00001-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors"
  }
}
)");
        auto const checkpoint = Checkpoint::open(folder / "m");
        REQUIRE(checkpoint.files().size() == 2);
        CHECK(checkpoint.files()[1].metadata() == Metadata{{"format", "pt"}});
        CHECK(checkpoint.tensors()[0].name == "a");
        CHECK(checkpoint.tensors()[1].name == "b");
        CHECK(checkpoint.tensors()[2].file == 1);
        CHECK(checkpoint.total_bytes() == 19);
    }

    TEST_CASE("a folder in one file has no index, and is replaced in one step") {
        TempFolder const folder;
        for (char const* const tensor : {"first", "second"}) {
            write_checkpoint(folder / "m", {{tensor, DType::u8, Shape{3}}}, fill_expected);
            CHECK(std::filesystem::exists(folder / "m/model.safetensors"));
            CHECK_FALSE(std::filesystem::exists(folder / "m/model.safetensors.index.json"));
            check_contents(Checkpoint::open(folder / "m"), {{tensor, DType::u8, Shape{3}}});
        }
    }

    TEST_CASE("a checkpoint in the way of several files is left alone") {
        TempFolder const folder;
        std::vector<TensorSpec> const old{{"old", DType::u8, Shape{3}}};
        std::vector<TensorSpec> const two{{"a", DType::u8, Shape{3}}, {"b", DType::u8, Shape{3}}};
        write_checkpoint(folder / "one", old, fill_expected);
        check_io("in the way", [&] { write_checkpoint(folder / "one", two, fill_expected, 3); });
        check_contents(Checkpoint::open(folder / "one"), old);
        write_checkpoint(folder / "two", two, fill_expected, 3);
        check_io("in the way", [&] { write_checkpoint(folder / "two", two, fill_expected, 3); });
        check_io("in the way", [&] { write_checkpoint(folder / "two", old, fill_expected); });
        check_contents(Checkpoint::open(folder / "two"), two);
        // Who opens the folder would get the shards of a save, and not the new tensors.
        std::filesystem::create_directory(folder / "saved");
        write_text(folder / "saved/reshard.manifest.json", "{}");
        for (auto const& list : {old, two})
            check_io("in the way", [&] { write_checkpoint(folder / "saved", list, fill_expected, 3); });
        CHECK(read_text(folder / "saved/reshard.manifest.json") == "{}");
    }

    TEST_CASE("a fill that throws leaves nothing behind and the old file intact") {
        TempFolder const folder;
        std::string const path = folder / "m.safetensors";
        std::vector<TensorSpec> const list{{"a", DType::u8, Shape{3}}, {"b", DType::u8, Shape{4}}};
        write_safetensors(path, list, fill_expected);
        std::string const before = read_text(path);
        for (char const* const last : {"a", "b"}) {
            auto const fill = [&](CheckpointTensor const& tensor, Index, std::span<std::byte>) {
                if (tensor.name == last) errors::raise(ErrorCode::user, "no more");
            };
            CHECK(caught([&] { write_safetensors(path, list, fill); }).code == ErrorCode::user);
            CHECK(folder.leaves() == std::vector<std::string>{"m.safetensors"});
            CHECK(read_text(path) == before);
            CHECK(caught([&] { write_checkpoint(folder / "c", list, fill, 3); }).code == ErrorCode::user);
            CHECK_FALSE(std::filesystem::exists(folder / "c"));
            std::filesystem::create_directory(folder / "c");
            CHECK(caught([&] { write_checkpoint(folder / "c", list, fill, 3); }).code == ErrorCode::user);
            CHECK(std::filesystem::is_empty(folder / "c"));  // somebody else's
            std::filesystem::remove(folder / "c");
        }
    }

    TEST_CASE("a disk that fills up at any byte leaves the old file or the new one, never a mixture") {
        TempFolder const folder;
        std::string const path = folder / "m.safetensors";
        write_safetensors(path, {{"old", DType::u8, Shape{100}}}, fill_expected);
        std::string const before = read_text(path);
        std::vector<TensorSpec> const list{{"a", DType::f32, Shape{9}}, {"b", DType::u8, Shape{4}}};
        for (Index limit = 0;; ++limit) {
            CAPTURE(limit);
            auto const error = caught([&] {
                FileSizeLimit const full(limit);
                write_safetensors(path, list, fill_expected, default_metadata(), 64);
            });
            REQUIRE(folder.leaves() == std::vector<std::string>{"m.safetensors"});
            if (error.code == ErrorCode::none) {
                CHECK(limit == static_cast<Index>(std::filesystem::file_size(path)));
                break;  // every byte has been the one that did not fit
            }
            REQUIRE(error.code == ErrorCode::io);
            REQUIRE(contains(error.message, "m.safetensors"));
            REQUIRE(read_text(path) == before);
        }
        check_contents(Checkpoint::open(path), list);
    }

    TEST_CASE("a disk that fills up under several files leaves nothing") {
        std::vector<TensorSpec> const list{{"a", DType::u8, Shape{40}}, {"b", DType::u8, Shape{4000}}};
        TempFolder const folder;
        for (Index const limit : {0, 50, 200, 1000, 4000}) {
            CAPTURE(limit);
            auto const error = caught([&] {
                FileSizeLimit const full(limit);
                write_checkpoint(folder / "m", list, fill_expected, 100);
            });
            CHECK(error.code == ErrorCode::io);
            CHECK(folder.leaves().empty());
        }
    }

    TEST_CASE("files that cannot be put in place go away again") {
        TempFolder const folder;
        // A folder under the file's name: found out only by the rename.
        std::filesystem::create_directories(folder / "m.safetensors/keep");
        check_io("cannot rename", [&] {
            write_safetensors(folder / "m.safetensors", {{"a", DType::u8, Shape{1}}}, fill_expected);
        });
        CHECK(folder.leaves() == std::vector<std::string>{"m.safetensors"});
        CHECK(std::filesystem::exists(folder / "m.safetensors/keep"));

        // The index appears while the files are being written.
        auto const fill = [&](auto&&...) { write_text(folder / "c/model.safetensors.index.json", "{}"); };
        std::vector<TensorSpec> const two{{"a", DType::u8, Shape{4}}, {"b", DType::u8, Shape{4}}};
        check_io("in the way", [&] { write_checkpoint(folder / "c", two, fill, 4); });
        CHECK(read_text(folder / "c/model.safetensors.index.json") == "{}");
    }

    TEST_CASE("files already in place are taken away when one of them cannot follow") {
        TempFolder const folder;
        std::vector<TensorSpec> const three{
            {"a", DType::u8, Shape{4}}, {"b", DType::u8, Shape{4}}, {"c", DType::u8, Shape{4}}};
        // Somebody cleans up hidden files: the rename of the second one fails, after the first is in place.
        auto const fill = [&](CheckpointTensor const& tensor, Index, std::span<std::byte>) {
            for (std::string const& leaf : folder.leaves()) {
                if (tensor.name == "c" && contains(leaf, "model-00002-of-00003"))
                    std::filesystem::remove(folder / leaf);
            }
        };
        check_io("model-00002-of-00003.safetensors: cannot rename",
                 [&] { write_checkpoint(folder.path(), three, fill, 4); });
        for (std::string const& leaf : folder.leaves()) CHECK(leaf.front() == '.');
    }

    TEST_CASE("folders that cannot be written are named") {
        TempFolder const folder;
        std::vector<TensorSpec> const list{{"a", DType::u8, Shape{1}}};
        check_io("absent/m.safetensors: cannot create",
                 [&] { write_safetensors(folder / "absent/m.safetensors", list, fill_expected); });
        write_text(folder / "file", "");
        check_io("cannot create", [&] { write_safetensors(folder / "file/m.safetensors", list, fill_expected); });
        check_io("cannot create", [&] { write_checkpoint(folder / "file", list, fill_expected); });
        check_io("file/m: cannot create the folder", [&] { write_checkpoint(folder / "file/m", list, fill_expected); });
        if (::geteuid() != 0) {  // root writes anywhere
            REQUIRE(::chmod(folder.path().c_str(), 0500) == 0);
            check_io("Permission denied", [&] { write_safetensors(folder / "m.safetensors", list, fill_expected); });
            REQUIRE(::chmod(folder.path().c_str(), 0700) == 0);
        }
    }

    TEST_CASE("lists that make no valid file are refused before anything is created") {
        TempFolder const folder;
        std::vector<TensorSpec> const twice{{"a", DType::u8, Shape{1}}, {"a", DType::u8, Shape{1}}};
        check_rule(SafetensorsRule::duplicate_key, [&] { write_safetensors(folder / "m", twice, fill_expected); });
        check_rule(SafetensorsRule::duplicate_key, [&] { write_checkpoint(folder / "c", twice, fill_expected, 1); });
        CHECK(folder.leaves().empty());
    }

    TEST_CASE("two writers of one path do not meet") {
        TempFolder const folder;
        std::vector<TensorSpec> const list{{"a", DType::u8, Shape{1}}};
        std::string const path = folder / "m.safetensors";
        write_safetensors(path, list, [&](TensorInfo const&, Index, std::span<std::byte> first) {
            write_safetensors(path, list,
                              [](TensorInfo const&, Index, std::span<std::byte> second) { second[0] = std::byte{2}; });
            CHECK(read_text(path).back() == 2);
            first[0] = std::byte{1};
        });
        CHECK(read_text(folder / "m.safetensors").back() == 1);
        CHECK(folder.leaves() == std::vector<std::string>{"m.safetensors"});
    }
}
