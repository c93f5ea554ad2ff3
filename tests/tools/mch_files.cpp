// SPDX-License-Identifier: Apache-2.0
// What mch_from_dcp_test.py asks of the library: `read FOLDER` prints all that a folder holds, whole tables on one
// rank; `copy FOLDER TO RANKS` loads the tables on that many ranks, ids stay with their slots, and saves them again.
#include <reshard/comm/threads.hpp>
#include <reshard/mch/checkpoint.hpp>
#include <reshard/mch/checkpoint_save.hpp>
#include <reshard/mch/row_moves.hpp>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace {
using namespace reshard;

/// Buffers for one rank's shard of a saved table.
struct Buffers {
    std::map<std::string, std::vector<std::byte>> memory;
    MchState state;
    std::vector<MchRows> rows;

    Buffers(MchCheckpoint const& files, MchTable const& saved, MchTable const& table, Index rank) {
        Index const z = table.range(rank).size();
        auto const make = [&](std::string const& name, DType dtype, Indices const& shape) {
            std::vector<std::byte>& bytes = memory[name];
            bytes.resize(static_cast<std::size_t>(DynamicShape(shape).size() * reshard::bytes(dtype)));
            return DynamicView(bytes.data(), dtype, DynamicShape(shape));
        };
        state.ids = make("ids", DType::i64, {z});
        for (MchColumn const& column : table.metadata) {
            bool const scored = column.name == mch_counts || column.name == mch_last_access;
            state.metadata.push_back(
                {column.name, scored ? make("metadata." + column.name, DType::i64, {z})
                                     : make("metadata." + column.name, DType::u8, {z, column.bytes})});
        }
        for (MchRowsInfo const& info : files.rows(saved.name)) {
            Indices shape{z};
            for (Index extent : info.row_shape) shape.push_back(extent);
            rows.push_back({info.name, make("rows." + info.name, info.dtype, shape)});
        }
        if (table.layout == MchLayout::buckets) return;
        state.slots = make("slots", DType::i64, {z});
        state.segments = make("segments", DType::i64, {1025});
        state.iteration = make("iteration", DType::i64, {1});
    }
};

int read(std::string const& folder) {
    MchCheckpoint files = MchCheckpoint::open(folder);
    std::printf("ranks %d\n", static_cast<int>(files.ranks()));
    for (std::string const& name : files.names()) {
        MchTable const saved = files.table(name);
        MchTable const whole = saved.on(mch_slots(Mesh{1}, saved.size()));
        Buffers buffers(files, saved, whole, 0);
        files.load(name, whole, 0, buffers.state, buffers.rows);
        std::printf("table %s\n", to_string(saved).c_str());
        std::printf("function %s\n", saved.hash_function.c_str());
        for (Index offset : saved.offsets()) std::printf(" %lld", static_cast<long long>(offset));
        std::printf("\n");
        for (MchIdBounds const& ids : files.ids(name)) {
            std::printf(" %lld/%lld/%lld/%lld", static_cast<long long>(ids.live), static_cast<long long>(ids.negative),
                        static_cast<long long>(ids.lowest), static_cast<long long>(ids.highest));
        }
        std::printf("\n");
        for (auto const& [what, bytes] : buffers.memory) {
            std::printf("%s ", what.c_str());
            for (std::byte one : bytes) std::printf("%02x", std::to_integer<unsigned>(one));
            std::printf("\n");
        }
    }
    return 0;
}

int copy(std::string const& folder, std::string const& to, int ranks) {
    run_on_threads(ranks, [&](ThreadCommunicator& comm) {
        MchCheckpoint files = MchCheckpoint::open(folder);
        std::vector<Buffers> buffers;
        std::vector<MchSaving> tables;
        for (std::string const& name : files.names()) {
            MchTable const saved = files.table(name);
            MchTable table = saved.on(mch_slots(Mesh{ranks}, saved.size()));
            buffers.emplace_back(files, saved, table, comm.rank());
            files.load(name, table, comm.rank(), buffers.back().state, buffers.back().rows);
            MchOptions options;
            options.mode = MchMode::slot_owner;
            options.drop_unreachable = false;
            MchChange const change = redistribute(saved, table, buffers.back().state, comm, options);
            for (MchRows const& rows : buffers.back().rows) apply_row_moves(change.moves, table, rows.view, comm);
            tables.push_back({table, buffers.back().state, buffers.back().rows});
        }
        save(to, std::span<MchSaving const>(tables), comm);
    });
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        std::string const command = argc > 2 ? argv[1] : "";
        if (command == "read" && argc == 3) return read(argv[2]);
        if (command == "copy" && argc == 5) return copy(argv[2], argv[3], std::stoi(argv[4]));
        std::fputs("usage: reshard_mch_files read FOLDER | copy FOLDER TO RANKS\n", stderr);
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
    }
    return 1;
}
