// SPDX-License-Identifier: Apache-2.0
//
// Files go to and fro between this library and the official Python package. Where that package (with numpy) is
// missing the test says so and passes; RESHARD_TEST_PYTHON names another interpreter than python3.
#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>

#include <doctest/doctest.h>

#include <cstdlib>

#include "support.hpp"

using namespace checkpoint_test;

namespace {

std::string python() {
    char const* const chosen = std::getenv("RESHARD_TEST_PYTHON");
    return chosen != nullptr ? chosen : "python3";
}

/// Exit status zero?
bool runs(std::string const& command) { return std::system(command.c_str()) == 0; }

bool has_package() {
    bool const found = runs("'" + python() + "' -c 'import numpy, safetensors, safetensors.numpy' 2>/dev/null");
    if (!found) MESSAGE("skipped: " << python() << " cannot import numpy and safetensors");
    return found;
}

/// Reads our file, compares every byte with the raw copy beside it, and writes the tensors numpy knows anew.
constexpr char const* script = R"py(
import json, struct, sys
import numpy, safetensors, safetensors.numpy
folder = sys.argv[1]
ours = open(folder + "/ours.safetensors", "rb").read()
wanted = json.load(open(folder + "/wanted.json"))
got = dict(safetensors.deserialize(ours))
assert sorted(got) == sorted(wanted), (sorted(got), sorted(wanted))
for name, (dtype, shape, data) in wanted.items():
    info = got[name]
    assert info["dtype"] == dtype, (name, info["dtype"])
    assert list(info["shape"]) == shape, (name, info["shape"])
    assert bytes(info["data"]).hex() == data, name
with safetensors.safe_open(folder + "/numpy.safetensors", "numpy") as file:
    assert file.metadata() == {"format": "pt"}, file.metadata()
tensors = safetensors.numpy.load_file(folder + "/numpy.safetensors")
safetensors.numpy.save_file(tensors, folder + "/theirs.safetensors", metadata={"format": "pt"})
)py";

std::string hex(std::span<std::byte const> bytes) {
    std::string text;
    for (auto const byte : bytes) {
        text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4U];
        text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15U];
    }
    return text;
}

}  // namespace

TEST_SUITE("checkpoint/interop") {
    TEST_CASE("the official package reads what we write, and writes the same bytes") {
        if (!has_package()) return;
        TempFolder const folder;
        std::vector<TensorSpec> all;
        std::vector<TensorSpec> numpy;
        for (int i = 0; i < dtype_count; ++i) {
            auto const dtype = static_cast<DType>(i);
            std::vector<TensorSpec> list{{concat("full \"\n\xc3\xa4 ", name(dtype)), dtype, Shape{2, 3, 4}},
                                         {concat("empty.", name(dtype)), dtype, Shape{4, 0, 2}}};
            if (is_byte_sized(dtype)) list.push_back({concat("scalar.", name(dtype)), dtype, {}});
            all.insert(all.end(), list.begin(), list.end());
            bool const known = is_integer(dtype) || (is_floating(dtype) && dtype != DType::bf16);
            if (known || dtype == DType::boolean) numpy.insert(numpy.end(), list.begin(), list.end());
        }
        // A Boolean is 0 or 1 in both; floats must survive numpy, whose copies keep every bit.
        auto const fill = [](TensorInfo const& tensor, Index begin, std::span<std::byte> out) {
            fill_expected(tensor, begin, out);
            if (tensor.dtype == DType::boolean) {
                for (auto& byte : out) byte &= std::byte{1};
            }
        };
        write_safetensors(folder / "ours.safetensors", all, fill);
        write_safetensors(folder / "numpy.safetensors", numpy, fill);
        std::string wanted = "{";
        auto const file = SafetensorsFile::open(folder / "ours.safetensors", Access::mmap);
        for (auto const& tensor : file.tensors()) {
            if (wanted.size() > 1) wanted += ',';
            reshard::detail::append_json_string(wanted, tensor.name);
            wanted += concat(":[\"", name(tensor.dtype), "\",", to_string(tensor.shape), ",\"",
                             hex(file.mapped_bytes(tensor)), "\"]");
        }
        write_text(folder / "wanted.json", wanted + "}");
        write_text(folder / "check.py", script);
        REQUIRE(runs("'" + python() + "' '" + (folder / "check.py") + "' '" + folder.path() + "'"));
        CHECK(read_text(folder / "theirs.safetensors") == read_text(folder / "numpy.safetensors"));
        CHECK(SafetensorsFile::open(folder / "theirs.safetensors").tensors().size() == numpy.size());
    }
}
