// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_run.hpp
/// \brief  How a program ends when a rank fails.
/// \depends comm/detail/mpi_team.hpp.
#pragma once

#include <reshard/comm/detail/mpi_team.hpp>

#include <cstdio>  // fprintf

namespace reshard::inline v0::detail {

/// The type of an error, by the number of its code.
[[nodiscard]] constexpr std::string_view error_name(ErrorCode code) noexcept {
    constexpr std::string_view names[] = {"exception",       "ShapeError",    "MeshError",        "PlacementError",
                                          "NotationError",   "MismatchError", "BufferError",      "DTypeError",
                                          "TransitionError", "PeerFailed",    "DeadlineExceeded", "TransportError",
                                          "FormatError",     "IoError",       "OutOfMemory"};
    auto const number = static_cast<std::size_t>(code);
    return names[number < std::size(names) ? number : 0];
}

/// Whether a text says of what type it is: "IoError: ...", "rank 0 of 2: IoError: ...".
[[nodiscard]] constexpr bool names_type(std::string_view text, std::string_view type) noexcept {
    constexpr std::string_view colon = ": ";
    for (std::size_t at = text.find(type); at != text.npos; at = text.find(type, at + 1)) {
        bool const begins = at == 0 || (at >= 2 && text.substr(at - 2, 2) == colon);
        if (begins && text.substr(at + type.size(), 2) == colon) return true;
    }
    return false;
}

inline void print_end(int rank, ErrorCode code, std::string_view text) noexcept {
    std::string_view const type = error_name(code);
    bool const named = names_type(text, type);
    std::fprintf(stderr, "reshard: rank %d: %.*s%s%.*s\n", rank, named ? 0 : static_cast<int>(type.size()), type.data(),
                 named ? "" : ": ", static_cast<int>(text.size()), text.data());
    std::fflush(stderr);
}

/// Tells the user what failed, if that is this rank's to tell: who has died, or sleeps, cannot do so himself.
inline void tell_failure(MpiFamily& family) noexcept {
    if (!family.poisoned() || !family.is_teller()) return;
    FailureRecord const& failure = family.failure();
    print_end(family.rank(), static_cast<ErrorCode>(failure.code), failure.reason);
}

/// Tells the others and, once, the user.
inline void report_end(MpiTeam& team, ErrorCode code, std::string_view text) noexcept {
    MpiFamily& family = *team.family();
    bool const first = team.poison(code, text);
    // The same failure, to which a rank may have added what concerns itself.
    std::string_view const reason = std::string_view(family.failure().reason).substr(0, 200);
    bool const known = code == ErrorCode::peer_failed || text.substr(0, reason.size()) == reason;
    if (first || !known) return print_end(family.rank(), code, text);
    tell_failure(family);
}

/// The last thing all ranks do together: learn whether all of them are well. Somebody who failed waits only a moment.
[[nodiscard]] inline bool all_ended_well(MpiTeam& team, bool well) noexcept {
    MpiFamily& family = *team.family();
    auto* const words = new (std::nothrow) int[2]{well ? 0 : 1, 0};  // kept for ever if somebody never comes
    if (words == nullptr) return false;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Iallreduce(words, words + 1, 1, MPI_INT, MPI_MAX, family.control(), &request) != MPI_SUCCESS) return false;
    auto looked = std::chrono::steady_clock::now();
    auto const patience = team.patience(std::chrono::seconds(2));
    auto limit = looked + patience;
    for (int turn = 0;; ++turn) {
        int done = 0;
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (done != 0) break;
        auto const now = std::chrono::steady_clock::now();
        if (well && (family.hear(true) || team.is_surprised() || team.lost_somebody(looked, now))) {
            well = false;
            tell_failure(family);
            limit = std::chrono::steady_clock::now() + patience;
        }
        if (!well && now >= limit) return false;
        if (turn < 1000) {
            sched_yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds(200));  // others may work for hours
        }
    }
    bool const all = words[1] == 0 && well;
    delete[] words;
    return all;
}

}  // namespace reshard::inline v0::detail
