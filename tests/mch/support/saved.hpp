// SPDX-License-Identifier: Apache-2.0
/// \file   tests/mch/support/saved.hpp
/// \brief  Simulated worlds with rows, saved to a folder and loaded by position.
#pragma once

#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/comm/threads.hpp>
#include <reshard/mch/checkpoint.hpp>
#include <reshard/mch/checkpoint_save.hpp>

#include <checkpoint/support.hpp>
#include <mch/support/worlds.hpp>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

namespace reshard::test::torchrec {

/// What row `slot` of some weights holds: two numbers that tell slots apart.
inline float weight(Id slot, int column) { return static_cast<float>(slot) * 2.0F + static_cast<float>(column); }
/// And of an optimizer state, one number a row.
inline double momentum(Id slot) { return static_cast<double>(slot) + 0.5; }

/// Rows of one rank.
struct Rows {
    std::vector<float> weights;
    std::vector<double> momenta;

    explicit Rows(Module const& module) {
        for (Id slot = module.o; slot < module.o + module.z; ++slot) {
            weights.push_back(weight(slot, 0));
            weights.push_back(weight(slot, 1));
            momenta.push_back(momentum(slot));
        }
    }
    void clear() {
        std::fill(weights.begin(), weights.end(), -1.0F);
        std::fill(momenta.begin(), momenta.end(), -1.0);
    }
    [[nodiscard]] std::vector<MchRows> views() {
        auto const z = static_cast<Index>(momenta.size());
        return {{"weights", TensorView<float>(weights.data(), Shape{z, 2})},
                {"momentum", TensorView<double>(momenta.data(), Shape{z})}};
    }
    friend bool operator==(Rows const&, Rows const&) = default;
};

/// Every rank of the world saves; returns what each threw, "" for nothing.
template <class Spoil>
std::vector<std::string> save_world(std::string const& folder, World& world, Spoil const& spoil,
                                    SaveOptions const& options = {}) {
    std::vector<std::string> errors(world.ranks.size());
    MchTable const table = table_of(world);
    run_on_threads(static_cast<int>(world.ranks.size()), [&](ThreadCommunicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        Rows rows(world.ranks[r]);
        MchTableToSave saving{table, state_of(world.ranks[r]), rows.views()};
        std::string path = folder;
        spoil(comm.rank(), saving, path);
        try {
            save(path, saving, comm, options);
        } catch (Error const& error) {
            errors[r] = error.message();
        }
    });
    return errors;
}
inline void save_world(std::string const& folder, World& world, SaveOptions const& options = {}) {
    for (std::string const& error : save_world(
             folder, world, [](int, MchTableToSave&, std::string&) {}, options)) {
        REQUIRE(error == "");
    }
}

/// The manifest of a folder, and the file that a rank wrote.
inline Manifest manifest_in(std::string const& folder) {
    return manifest_from(checkpoint_test::read_text(folder + "/reshard.manifest.json"), "manifest");
}
inline std::string leaf_in(std::string const& folder, int rank) {
    for (CheckpointFile const& file : manifest_in(folder).files)
        if (file.writer == rank) return file.leaf;
    return {};
}

/// An untrained world of that many ranks, as a trainer has it before it loads.
inline World fresh_like(World const& saved, Id count) {
    return World(saved.slots, count, saved.policy, saved.hash_size);
}

}  // namespace reshard::test::torchrec
