// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/ranks.hpp
/// \brief  One program, two ways to start it: alone its ranks are threads, under mpirun they are processes.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/comm/collectives.hpp>

#include "launcher.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace demo {

/// What both kinds of ranks can be told.
struct RankOptions {
    std::chrono::milliseconds deadline = std::chrono::minutes(5);  ///< of a wait for other ranks
    bool apart = false;  ///< processes send messages even inside a node, as they do between nodes; threads cannot
};

/// Runs body(comm) on every rank and returns the program's exit status. `ranks` is the number of threads; 0 asks for
/// `otherwise` threads, or for as many ranks as the launcher started. Errors are printed, with the rank they belong to.
int run_ranks(char const* program, int ranks, int otherwise, RankOptions const& options,
              std::function<void(reshard::CommunicatorRef)> const& body);
inline int run_ranks(char const* program, int ranks, int otherwise,
                     std::function<void(reshard::CommunicatorRef)> const& body) {
    return run_ranks(program, ranks, otherwise, RankOptions{}, body);
}

/// What the ranks of a communicator are, for headings.
inline std::string ranks_text(reshard::CommunicatorRef comm) {
    return reshard::errors::concat(comm.size(), " ranks (", comm.name(), ")");
}

/// The text of rank 0, on every rank.
inline std::string share_text(reshard::CommunicatorRef comm, std::string const& text) {
    reshard::Index size = static_cast<reshard::Index>(text.size());
    reshard::broadcast(comm, std::as_writable_bytes(std::span(&size, 1)), 0);
    std::string result = comm.rank() == 0 ? text : std::string(static_cast<std::size_t>(size), ' ');
    reshard::broadcast(comm, std::as_writable_bytes(std::span(result)), 0);
    return result;
}

/// `mine` of every rank, rank after rank, on every rank. The same number everywhere.
template <class T>
std::vector<T> gather_records(reshard::CommunicatorRef comm, std::vector<T> const& mine) {
    std::vector<T> all(mine.size() * static_cast<std::size_t>(comm.size()));
    reshard::all_gather(comm, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    return all;
}

/// As gather_records(), for lists of any lengths; `begin` receives where each rank's begins, and the end.
template <class T>
std::vector<T> gather_lists(reshard::CommunicatorRef comm, std::vector<T> const& mine,
                            std::vector<std::size_t>* begin = nullptr) {
    auto const sizes = gather_records(comm, std::vector<std::size_t>{mine.size()});
    std::vector<T> padded = mine;
    for (std::size_t size : sizes) padded.resize(size > padded.size() ? size : padded.size());
    std::vector<T> const all = gather_records(comm, padded);
    std::vector<T> result;
    if (begin != nullptr) begin->assign(1, 0);
    for (std::size_t r = 0; r < sizes.size(); ++r) {
        auto const first = all.begin() + static_cast<std::ptrdiff_t>(r * padded.size());
        result.insert(result.end(), first, first + static_cast<std::ptrdiff_t>(sizes[r]));
        if (begin != nullptr) begin->push_back(result.size());
    }
    return result;
}

}  // namespace demo
