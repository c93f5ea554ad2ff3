// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/save_versions.hpp
/// \brief  A small model whose bytes say which save they are of, for tests in which saves are cut short.
#pragma once

#include <reshard/checkpoint/save.hpp>
#include <reshard/comm/threads.hpp>

#include <string>
#include <vector>

#include "save_support.hpp"

namespace checkpoint_test {

inline std::vector<PlacedTensor> model() {
    return {source("w", DType::f32, "(3):(S0)", Shape{10, 33}), source("b", DType::bf16, "(3):(R)", Shape{77}),
            source("cyclic", DType::u8, "(3):(S0:cyc3)", Shape{20}), source("step", DType::i64, "(3):(R)", Shape{})};
}
inline SaveOptions options(int version) {
    return {.dedup = SaveDedup::shared,
            .small_bytes = 10,
            .min_slice_bytes = 16,
            .metadata = {{"version", std::to_string(version)}},
            .in_flight = 1};
}
inline void save_model(std::string const& folder, int version) {
    run_on_threads(3, [&](ThreadCommunicator& comm) {
        Trained mine(model(), comm.rank(), version);
        save(folder, mine.list(), comm, options(version));
    });
}
/// The version that the folder holds whole; 0 when it holds none.
inline int version_of(TempFolder const& folder) {
    if (!std::filesystem::exists(folder / manifest_name)) return 0;
    CHECK(damage(folder.path()) == "");
    int const version = std::stoi(read_manifest(folder.path()).metadata.at(0).second);
    CHECK(holds_version(folder.path(), model(), version));
    return version;
}
/// Whatever happened before: the next save succeeds, and nothing stays that it does not name.
inline void check_next_save(TempFolder const& folder, int version) {
    save_model(folder.path(), version);
    CHECK(version_of(folder) == version);
    CHECK(folder.leaves() == named_leaves(folder.path()));
}

}  // namespace checkpoint_test
