// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/detail/file_list.hpp: what a manifest names. Tests of checkpoints open the rest.
#include <reshard/checkpoint/detail/file_list.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../../support/random.hpp"
#include "../manifest_support.hpp"

using namespace checkpoint_test;
using reshard::detail::files_of_manifest;
using reshard::detail::manifest_without_tensors;

namespace {

/// With the sum of what it is now.
std::string sealed(std::string const& text) {
    std::string const body = text.substr(0, text.size() - reshard::detail::manifest_seal("").size());
    return body + reshard::detail::manifest_seal(body);
}

}  // namespace

TEST_SUITE("checkpoint/detail/file_list") {
    TEST_CASE("the files of a manifest are read without its tensors, unless somebody has written it in another way") {
        TempFolder const folder;
        std::string const path = folder / manifest_name;
        Manifest m = example_manifest();
        std::vector<std::string> leaves;
        for (CheckpointFile const& file : m.files) leaves.push_back(file.leaf);
        auto const reads = [&](std::string const& text, bool whole) {
            write_text(path, text);
            CHECK(manifest_without_tensors(path).empty() == whole);
            CHECK(files_of_manifest(path) == leaves);
        };
        std::string const text = to_json(m);
        reads(text, false);
        reads(sealed(with(text, "\"F32\"", "\"F33\"")), false);  // nobody has looked at them
        reads(with(text.substr(0, text.size() - 27) + "\n}\n", "\"version\": 2", "\"version\": 1"), true);
        reads(sealed(with(text, "\n  \"tensors\": [", " \"tensors\": [")), true);
        std::size_t const files = text.find("  \"files\"");
        std::size_t const tensors = text.find("  \"tensors\"");
        std::size_t const end = text.size() - 27;
        std::string const swapped = text.substr(0, files) + text.substr(tensors, end - tensors) + ",\n" +
                                    text.substr(files, tensors - files - 2) + text.substr(end);
        write_text(path, sealed(swapped));
        CHECK(files_of_manifest(path) == leaves);  // the tensors come first
        for (std::string const& damaged : {with(text, "\"F32\"", "\"F33\""), text.substr(0, 20), std::string()}) {
            write_text(path, damaged);
            CHECK(caught([&] { static_cast<void>(files_of_manifest(path)); }).code == ErrorCode::format);
        }
        m.files.clear();
        m.tensors.clear();
        m.extents.clear();
        leaves.clear();
        reads(to_json(m), false);
    }

    TEST_CASE("wherever the pieces that are read of a manifest end, its files are found") {
        TempFolder const folder;
        std::string const path = folder / manifest_name;
        Manifest m = example_manifest();
        std::string const name = "\n  \"tensors\": [";
        std::size_t const at = to_json(m).find(name);
        std::size_t const step = reshard::test::fewer_seeds() ? 4 : 1;  // 16 of them: both ends, and some between
        REQUIRE((name.size() + 1) % step == 0);
        for (std::size_t before = 0; before <= name.size() + 1; before += step) {
            m.metadata[0].second = "tiny" + std::string((std::size_t{2} << 20) - at - before, 'x');
            std::string const text = to_json(m);
            REQUIRE(text.find(name) + before == std::size_t{2} << 20);
            write_text(path, text);
            CHECK(manifest_from(manifest_without_tensors(path), "m").files == m.files);
        }
    }
}
