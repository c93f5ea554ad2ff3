// SPDX-License-Identifier: Apache-2.0
//
// What consolidate() writes, read by the official Python package and the way transformers reads an index. Where the
// package (with numpy) is missing the test says so and passes; RESHARD_TEST_PYTHON names another interpreter.
#include <reshard/checkpoint/consolidate.hpp>

#include <doctest/doctest.h>

#include "consolidate_support.hpp"
#include "python_support.hpp"

#include <string>
#include <vector>

using namespace checkpoint_test;

namespace {

/// As transformers loads a folder: the index says which files there are, each is opened and must say its format.
constexpr char const* script = R"py(
import json, os, struct, sys
folder = sys.argv[1]
wanted = json.load(open(sys.argv[2]))
index = os.path.join(folder, "model.safetensors.index.json")
if os.path.isfile(index):
    index = json.load(open(index))
    files = sorted(set(index["weight_map"].values()))
    assert sorted(index["weight_map"]) == sorted(wanted)
    total = index["metadata"]["total_size"]
else:
    files, index, total = ["model.safetensors"], None, None
seen, size = {}, 0
for leaf in files:
    raw = open(os.path.join(folder, leaf), "rb").read()
    length = struct.unpack("<Q", raw[:8])[0]
    assert (8 + length) % 8 == 0
    header = json.loads(raw[8:8 + length])
    assert header.pop("__metadata__")["format"] == "pt"
    for name, info in header.items():
        assert index is None or index["weight_map"][name] == leaf
        begin, end = info["data_offsets"]
        seen[name] = [info["dtype"], info["shape"], raw[8 + length + begin:8 + length + end].hex()]
        size += end - begin
    if sys.argv[3] == "package":
        import safetensors
        for name, info in dict(safetensors.deserialize(raw)).items():
            assert [info["dtype"], list(info["shape"]), bytes(info["data"]).hex()] == wanted[name], name
assert seen == wanted
assert total is None or total == size
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

TEST_SUITE("checkpoint/consolidate") {
    TEST_CASE("the official package and readers of indexes open what is written") {
        if (!imports("json")) {
            MESSAGE("skipped: there is no " << python());
            return;
        }
        bool const has_package = imports("safetensors");
        if (!has_package) MESSAGE("without the official package: " << python() << " cannot import safetensors");
        std::vector<Saved> list;
        std::string wanted = "{";
        for (int i = 0; i < dtype_count; ++i) {
            auto const dtype = static_cast<DType>(i);
            Saved saved{{errors::concat("tensor.", i < 10 ? "0" : "", i), dtype, Shape{4, 8}}, 1, {}};
            if (is_byte_sized(dtype)) {
                saved.parts = {{0, 0, Box{{0, 4}, {0, 3}}}, {0, 1, Box{{0, 4}, {3, 8}}}};
            } else {
                saved.parts = {{0, i % 2, Box(saved.spec.shape)}};
            }
            wanted += wanted.size() > 1 ? "," : "";
            reshard::detail::append_json_string(wanted, saved.spec.name);
            wanted += errors::concat(":[\"", name(dtype), "\",[4,8],\"",
                                     hex(bytes_of_box(saved.spec.name, dtype, saved.spec.shape, Box(saved.spec.shape))),
                                     "\"]");
            list.push_back(saved);
        }
        TempFolder const folder;
        std::filesystem::create_directory(folder / "in");
        write_sharded(folder / "in", list, 2, Described::by_manifest);
        write_text(folder / "wanted.json", wanted + "}");
        write_text(folder / "check.py", script);
        for (Index const max_file_bytes : {Index{0}, Index{500}}) {
            std::string const out = folder / errors::concat("out", max_file_bytes);
            ConsolidateOptions options;
            options.max_file_bytes = max_file_bytes;
            on_ranks(3, [&](ThreadCommunicator& comm) { return consolidate(folder / "in", out, comm, options); });
            CHECK(runs_script(folder / "check.py", {out, folder / "wanted.json", has_package ? "package" : "alone"}));
        }
    }
}
