// SPDX-License-Identifier: Apache-2.0
#include <reshard/checkpoint/safetensors.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>

#include <sys/stat.h>
#include <thread>
#include <type_traits>
#include <vector>

#include <reshard/checkpoint/safetensors_layout.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>

#include "support.hpp"

using namespace checkpoint_test;

static_assert(std::is_nothrow_move_constructible_v<SafetensorsFile>);
static_assert(std::is_nothrow_move_assignable_v<SafetensorsFile>);
static_assert(!std::is_copy_constructible_v<SafetensorsFile>);

namespace {

std::vector<TensorSpec> const some{
    {"w", DType::f32, Shape{3, 5}}, {"b", DType::bf16, Shape{7}}, {"s", DType::f64, {}},
    {"e", DType::i32, Shape{0, 4}}, {"q", DType::f4, Shape{6}},
};

}  // namespace

TEST_SUITE("checkpoint/safetensors") {
    TEST_CASE("pread and mmap give the same bytes, whole and in ranges") {
        TempFolder const folder;
        write_safetensors(folder / "m.safetensors", some, fill_expected);
        auto const read = SafetensorsFile::open(folder / "m.safetensors");
        auto const mapped = SafetensorsFile::open(folder / "m.safetensors", Access::mmap);
        CHECK_FALSE(read.is_mapped());
        CHECK(mapped.is_mapped());
        REQUIRE(read.tensors().size() == some.size());
        CHECK(read.metadata() == Metadata{{"format", "pt"}});
        CHECK(read.data_offset() % 8 == 0);
        for (auto const& tensor : read.tensors()) {
            CAPTURE(tensor.name);
            for (Index begin = 0; begin <= tensor.bytes(); ++begin) {
                for (Index end = begin; end <= tensor.bytes(); ++end) {
                    std::vector<std::byte> bytes(static_cast<std::size_t>(end - begin));
                    read.read_range(tensor, begin, end, bytes);
                    REQUIRE(holds_expected(tensor, begin, bytes));
                }
            }
            std::vector<std::byte> all(static_cast<std::size_t>(tensor.bytes()));
            mapped.read(tensor, all);
            CHECK(holds_expected(tensor, 0, all));
            auto const window = mapped.mapped_bytes(tensor);
            CHECK(static_cast<Index>(window.size()) == tensor.bytes());
            CHECK(holds_expected(tensor, 0, window));
        }
    }

    TEST_CASE("a view has the tensor's dtype, shape and address") {
        TempFolder const folder;
        write_safetensors(folder / "m.safetensors", some, fill_expected);
        auto const file = SafetensorsFile::open(folder / "m.safetensors", Access::mmap);
        auto const view = file.view(file.at("w"));
        CHECK(view.dtype() == DType::f32);
        CHECK(view.shape() == DynamicShape(Shape{3, 5}));
        CHECK(view.stride(0) == 5);
        CHECK(view.data() == file.mapped_bytes(file.at("w")).data());
        CHECK(file.view(file.at("e")).size() == 0);
        CHECK(file.view(file.at("s")).rank() == 0);
    }

    TEST_CASE("views are refused without a map, and for elements smaller than a byte") {
        TempFolder const folder;
        write_safetensors(folder / "m.safetensors", some, fill_expected);
        auto const read = SafetensorsFile::open(folder / "m.safetensors");
        auto const unmapped = caught([&] { (void)read.view(read.at("w")); });
        CHECK(unmapped.code == ErrorCode::buffer);
        CHECK(contains(unmapped.message, "Access::mmap"));
        auto const mapped = SafetensorsFile::open(folder / "m.safetensors", Access::mmap);
        auto const small = caught([&] { (void)mapped.view(mapped.at("q")); });
        CHECK(small.code == ErrorCode::dtype);
        CHECK(contains(small.message, "'q' is F4"));
        CHECK(mapped.mapped_bytes(mapped.at("q")).size() == 3);
    }

    TEST_CASE("a name nobody has is TensorNotFound") {
        TempFolder const folder;
        write_safetensors(folder / "m.safetensors", some, fill_expected);
        auto const file = SafetensorsFile::open(folder / "m.safetensors");
        CHECK(file.find("x") == nullptr);
        check_rule(SafetensorsRule::tensor_not_found, [&] { (void)file.at("x"); });
    }

    TEST_CASE("buffers of the wrong size and ranges outside the tensor are refused") {
        TempFolder const folder;
        write_safetensors(folder / "m.safetensors", some, fill_expected);
        auto const file = SafetensorsFile::open(folder / "m.safetensors");
        TensorInfo const& w = file.at("w");
        std::vector<std::byte> bytes(60);
        std::span<std::byte> const span(bytes);
        auto const code = [&](TensorInfo const& tensor, Index begin, Index end, std::size_t size) {
            return caught([&] { file.read_range(tensor, begin, end, span.first(size)); }).code;
        };
        CHECK(code(w, 0, 60, 60) == ErrorCode::none);
        CHECK(code(w, 0, 60, 59) == ErrorCode::buffer);
        CHECK(code(w, 0, 59, 60) == ErrorCode::buffer);
        CHECK(code(w, 1, 61, 60) == ErrorCode::buffer);
        CHECK(code(w, -1, 59, 60) == ErrorCode::buffer);
        CHECK(code(w, 3, 2, 0) == ErrorCode::buffer);
        CHECK(code({"elsewhere", DType::u8, Shape{60}, 1000, 1060}, 0, 60, 60) == ErrorCode::buffer);
        CHECK(code({"elsewhere", DType::u8, Shape{60}, -60, 0}, 0, 60, 60) == ErrorCode::buffer);
    }

    TEST_CASE("files that cannot be opened say which and why") {
        TempFolder const folder;
        check_io("absent.safetensors: cannot open: No such file",
                 [&] { (void)SafetensorsFile::open(folder / "absent.safetensors"); });
        check_io(folder.path() + ": not a file", [&] { (void)SafetensorsFile::open(folder.path()); });
        check_io("/dev/null: not a regular file", [] { (void)SafetensorsFile::open("/dev/null"); });
        REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
        check_io("pipe: not a regular file", [&] { (void)SafetensorsFile::open(folder / "pipe"); });
    }

    TEST_CASE("rules are checked on files too, without reading what a header only claims") {
        TempFolder const folder;
        auto const open = [&](std::string_view text) {
            write_text(folder / "bad", text);
            (void)SafetensorsFile::open(folder / "bad");
        };
        check_rule(SafetensorsRule::header_too_small, [&] { open(""); });
        check_rule(SafetensorsRule::header_too_small, [&] { open("1234567"); });
        check_rule(SafetensorsRule::header_too_large, [&] { open(length_bytes(~0ULL)); });
        check_rule(SafetensorsRule::invalid_header_length, [&] { open(length_bytes(100'000'000)); });
        check_rule(SafetensorsRule::metadata_incomplete_buffer, [&] { open(safetensors_text("{}", 1)); });
        auto const error = caught([&] { open(safetensors_text("{}", 1)); });
        CHECK(contains(error.message, "bad"));
    }

    TEST_CASE("a file cut short while open is an IoError, mapped or not") {
        TempFolder const folder;
        for (Access const access : {Access::pread, Access::mmap}) {
            write_safetensors(folder / "m.safetensors", some, fill_expected);
            auto const file = SafetensorsFile::open(folder / "m.safetensors", access);
            REQUIRE(::truncate((folder / "m.safetensors").c_str(), file.data_offset() + 10) == 0);
            std::vector<std::byte> bytes(60);
            check_io("cut short while open", [&] { file.read(file.at("w"), bytes); });
            check_io("m.safetensors", [&] { file.read(file.at("w"), bytes); });
            std::vector<std::byte> first(8);
            file.read(file.at("s"), first);  // what is still there can be read
            CHECK(holds_expected(file.at("s"), 0, first));
        }
    }

    TEST_CASE("an open file survives being replaced, and being moved from") {
        TempFolder const folder;
        write_safetensors(folder / "m.safetensors", some, fill_expected);
        auto first = SafetensorsFile::open(folder / "m.safetensors", Access::mmap);
        auto const before = first.view(first.at("w"));
        write_safetensors(folder / "m.safetensors", {{"other", DType::u8, Shape{1}}}, fill_expected);
        SafetensorsFile const moved = std::move(first);
        CHECK(moved.view(moved.at("w")).data() == before.data());
        CHECK(holds_expected(moved.at("w"), 0, moved.mapped_bytes(moved.at("w"))));
        CHECK(SafetensorsFile::open(folder / "m.safetensors").tensors().size() == 1);
    }

    TEST_CASE("the version of a file of almost 2^63 bytes is told by bytes of all of it") {
        TempFolder const folder;
        Index const bytes = (Index{1} << 60) - 8;
        std::vector<TensorSpec> specs;
        for (int i = 0; i < 7; ++i) specs.push_back({errors::concat("t", i), DType::u8, Shape{bytes}});
        SafetensorsLayout const layout = safetensors_layout(specs, {});
        std::string const path = folder / "m.safetensors";
        write_text(path, layout.start);
        if (::truncate(path.c_str(), static_cast<off_t>(layout.start.size()) + 7 * bytes) != 0) {
            MESSAGE("this file system has no files of that size: not tested");
            return;
        }
        auto const version = SafetensorsFile::open(path).version_digest();
        int const file = ::open(path.c_str(), O_WRONLY);
        REQUIRE(::pwrite(file, "x", 1, static_cast<off_t>(layout.start.size()) + 7 * bytes - 1) == 1);
        ::close(file);
        CHECK(SafetensorsFile::open(path).version_digest() != version);
    }

    TEST_CASE("several threads read one file") {
        TempFolder const folder;
        write_safetensors(folder / "m.safetensors", {{"w", DType::u8, Shape{100'000}}}, fill_expected);
        auto const file = SafetensorsFile::open(folder / "m.safetensors");
        TensorInfo const& w = file.at("w");
        int bad[4] = {0, 0, 0, 0};
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                std::vector<std::byte> bytes(1000);
                for (Index begin = t * 1000; begin < 100'000; begin += 4000) {
                    file.read_range(w, begin, begin + 1000, bytes);
                    if (!holds_expected(w, begin, bytes)) ++bad[t];
                }
            });
        }
        for (auto& thread : threads) thread.join();
        for (int const count : bad) CHECK(count == 0);
    }
}
