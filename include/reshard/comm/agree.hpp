// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/agree.hpp
/// \brief  What goes wrong on one rank, told to the others: the same error on all.
/// \depends comm/communicator.hpp, <new>.
#pragma once

#include <reshard/comm/communicator.hpp>

#include <new>  // bad_alloc

namespace reshard::inline v0::detail {

/// What `check` throws, as a verdict.
template <class Check>
[[nodiscard]] Verdict verdict_of(Check&& check) {
    Verdict verdict;
#if defined(__cpp_exceptions)
    try {
        check();
    } catch (Error const& error) {
        verdict.code = error.code();
        verdict.reason = error.message();
    } catch (std::bad_alloc const&) {
        verdict.code = ErrorCode::out_of_memory;
        verdict.reason =
            "reshard: out of memory. Fix: free some on this rank, or do less at once: fewer tensors, "
            "smaller rounds or windows.";
    } catch (std::exception const& error) {
        verdict.code = ErrorCode::user;
        verdict.reason = error.what();
    }
#else
    check();
#endif
    return verdict;
}

/// Collective: what went wrong on the lowest rank where something did, on every rank.
template <class C>
void agree_or_raise(C&& comm, Verdict mine) {
    Verdict const all = comm.agree(std::move(mine));
    if (!all.ok()) raise(all.code, concat("rank ", all.rank, " of ", comm.size(), ": ", all.reason));
}

}  // namespace reshard::inline v0::detail
