// expect-error: ignoring return value
#include <reshard/comm/self.hpp>
#include <reshard/mch/row_moves.hpp>

#pragma GCC diagnostic error "-Wunused-result"

/// Rows of weights stay behind when the moves are thrown away.
void carry(reshard::MchTable const& saved, reshard::MchTable const& current, reshard::MchState const& state,
           reshard::DynamicView const& weights, reshard::SelfCommunicator& comm) {
#ifndef RESHARD_FAIL
    reshard::MchChange const change = reshard::redistribute(saved, current, state, comm);
    reshard::apply_row_moves(change.moves, current, weights, comm);
#else
    reshard::redistribute(saved, current, state, comm);
    static_cast<void>(weights);
#endif
}
