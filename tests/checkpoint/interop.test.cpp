// SPDX-License-Identifier: Apache-2.0
//
// Files go to and fro between this library and the official Python package. Where that package (with numpy) is
// missing the test says so and passes; RESHARD_TEST_PYTHON names another interpreter than python3.
#include <reshard/checkpoint/checkpoint.hpp>
#include <reshard/checkpoint/safetensors_writer.hpp>
#include <reshard/checkpoint/save.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/init/initialize.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/text.hpp>

#include "../../examples/support/model_part.hpp"
#include "python_support.hpp"
#include "support.hpp"

#include <cstring>
#include <string>
#include <vector>

using namespace checkpoint_test;

namespace {

bool has_package() {
    bool const found = imports("numpy, safetensors, safetensors.numpy");
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

/// Puts the shards of a save together as PyTorch's reader of sharded safetensors files would, and compares them with
/// the whole tensors in whole.safetensors.
constexpr char const* join = R"py(
import glob, json, sys
import numpy, safetensors, safetensors.numpy
folder = sys.argv[1]
whole = safetensors.numpy.load_file(folder + "/whole.safetensors")
joined = {name: numpy.zeros_like(tensor) for name, tensor in whole.items()}
held = {name: numpy.zeros(tensor.shape, int) for name, tensor in whole.items()}
for path in glob.glob(folder + "/saved/shard-*.safetensors"):
    with safetensors.safe_open(path, "numpy") as file:
        info = json.loads(file.metadata()["DCP_SHARDING_INFO"])
        assert file.metadata()["format"] == "pt"
        assert sorted(info) == sorted(file.keys()), (info, file.keys())
        for key in file.keys():
            part = file.get_tensor(key)
            name = key.split(".__box_")[0]
            box = tuple(slice(b, b + n) for b, n in zip(info[key]["saved_offsets"], part.shape))
            joined[name][box] = part
            held[name][box] += 1
for name, tensor in whole.items():
    assert (held[name] == 1).all(), name
    assert tensor.tobytes() == joined[name].tobytes(), name
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
            std::vector<TensorSpec> list{{errors::concat("full \"\n\xc3\xa4 ", name(dtype)), dtype, Shape{2, 3, 4}},
                                         {errors::concat("empty.", name(dtype)), dtype, Shape{4, 0, 2}}};
            if (is_byte_sized(dtype)) list.push_back({errors::concat("scalar.", name(dtype)), dtype, {}});
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
            wanted += errors::concat(":[\"", name(tensor.dtype), "\",", to_string(tensor.shape), ",\"",
                                     hex(file.mapped_bytes(tensor)), "\"]");
        }
        write_text(folder / "wanted.json", wanted + "}");
        write_text(folder / "check.py", script);
        REQUIRE(runs_script(folder / "check.py", {folder.path()}));
        CHECK(read_text(folder / "theirs.safetensors") == read_text(folder / "numpy.safetensors"));
        CHECK(SafetensorsFile::open(folder / "theirs.safetensors").tensors().size() == numpy.size());
    }

    TEST_CASE("the official package reads the shards of a save, and they are the whole model") {
        if (!has_package()) return;
        TempFolder const folder;
        std::vector<PlacedTensor> held;
        std::vector<PlacedTensor> whole;
        auto const add = [&](std::string const& name, DType dtype, DynamicShape const& shape, char const* placements) {
            held.push_back({name, distribution(DynamicMesh(Mesh{2, 2}), shape, placements), dtype});
            whole.push_back({name, distribution(DynamicMesh(Mesh{1}), shape, "R"), dtype});
        };
        add("tiles", DType::f32, Shape{10, 7}, "S0,S1");
        add("rows", DType::f16, Shape{33, 5}, "R,S0");
        add("cyclic", DType::f64, Shape{50}, "S0:cyc3,R");
        add("copies", DType::f32, Shape{9}, "R,R");
        add("scalar", DType::f32, Shape{}, "R,R");
        SaveOptions options;
        options.dedup = SaveDedup::shared;
        options.small_bytes = 0;
        options.min_slice_bytes = 8;
        run_on_threads(4, [&](ThreadCommunicator& comm) {
            demo::ModelPart const part(held, comm.rank());
            initialize(part.tensors(), comm.rank(), 7, Normal{});
            save(folder / "saved", part.tensors(), comm, options);
        });
        demo::ModelPart const part(whole, 0);
        initialize(part.tensors(), 0, 7, Normal{});
        std::vector<TensorSpec> list;
        for (PlacedTensor const& target : whole)
            list.push_back({target.name, target.dtype, target.distribution.shape()});
        write_safetensors(folder / "whole.safetensors", list,
                          [&](TensorInfo const& tensor, Index begin, std::span<std::byte> out) {
                              for (LocalTensor const& one : part.tensors())
                                  if (one.name == tensor.name)
                                      std::memcpy(out.data(), one.view.data() + begin, out.size());
                          });
        write_text(folder / "join.py", join);
        CHECK(runs_script(folder / "join.py", {folder.path()}));
    }
}
