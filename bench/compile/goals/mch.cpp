// SPDX-License-Identifier: Apache-2.0
// Tables of managed-collision state, carried to another number of ranks.
#include <reshard/comm/threads.hpp>
#include <reshard/mch/redistribute.hpp>
#include <reshard/mch/row_moves.hpp>

using namespace reshard;

void carry_over(std::span<MchTransition const> tables, TensorView<float> const& rows, ThreadCommunicator& comm) {
    std::vector<MchChange> const changes = redistribute(tables, comm);
    apply_row_moves(changes[0].moves, tables[0].current, rows, comm);
}
