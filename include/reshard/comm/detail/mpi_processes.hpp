// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_processes.hpp
/// \brief  Which ranks are one node to this one: processes of one machine that know each other by number.
/// \depends comm/detail/mpi_call.hpp, comm/detail/process.hpp, <vector>.
#pragma once

#include <reshard/comm/detail/mpi_call.hpp>
#include <reshard/comm/detail/process.hpp>

#include <vector>

namespace reshard::inline v0::detail {

struct MpiProcess {
    std::uint64_t space = 0;  ///< where its number means something, see process_space()
    int pid = 0;
    int rank = 0;
};

/// Collective over `here`, ranks of one machine, among them `rank` of a communicator. Those of this rank's node, itself
/// included, in the order of `here`; at most `most` of them, if that is not 0, and then the same ones on all of them.
[[nodiscard]] inline std::vector<MpiProcess> mpi_processes_of_node(MPI_Comm here, int rank, int most) {
    MpiProcess const own{process_space(), own_pid(), rank};
    std::vector<MpiProcess> all(static_cast<std::size_t>(mpi_size(here)));
    auto const bytes = static_cast<int>(sizeof(own));
    mpi_check(MPI_Allgather(&own, bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, here), "MPI_Allgather");
    std::vector<MpiProcess> node;
    std::size_t place = 0;
    for (MpiProcess const& each : all) {
        if (each.rank == rank) place = node.size();
        if (each.rank == rank || (each.space == own.space && own.space != 0)) node.push_back(each);
    }
    if (most <= 0) return node;
    std::size_t const first = place / static_cast<std::size_t>(most) * static_cast<std::size_t>(most);
    std::size_t const last = smaller(first + static_cast<std::size_t>(most), node.size());
    return {node.begin() + static_cast<std::ptrdiff_t>(first), node.begin() + static_cast<std::ptrdiff_t>(last)};
}

}  // namespace reshard::inline v0::detail
