// SPDX-License-Identifier: Apache-2.0
// How comm/communicator.hpp is done.
#pragma once

#include <reshard/comm/communicator.hpp>

namespace reshard::inline v0 {

RESHARD_INLINE transport::MeshLine transport::mesh_line(DynamicMesh const& mesh, int axis, int rank, int ranks) {
    if (axis < 0 || axis >= mesh.axes()) {
        raise(ErrorCode::mesh,
              concat("reshard::split: axis ", axis, " of a mesh with ", mesh.axes(), " axes. Fix: axes count from 0."));
    }
    if (mesh.last_rank() >= ranks) {
        raise(ErrorCode::mesh,
              concat("reshard::split: the mesh holds rank ", mesh.last_rank(), " but the communicator has ", ranks,
                     " ranks. Fix: use a mesh of ranks that exist."));
    }
    if (!mesh.contains(rank)) return {};
    Indices const at = mesh.coordinates(rank);
    Index line = 0;
    for (int a = 0; a < mesh.axes(); ++a) {
        if (a != axis) line = line * mesh.extent(a) + at[a];
    }
    return {static_cast<int>(line), static_cast<int>(at[axis])};
}

RESHARD_INLINE std::string transport::mismatch_text(int sender, Index sent, int receiver, Index expected, int nth) {
    if (sent == expected) {
        return concat("reshard::exchange: transfer ", nth, " from rank ", sender, " to rank ", receiver,
                      ": both sides move ", sent,
                      " bytes but list different extents. Fix: build both sides from the "
                      "same plan.");
    }
    return concat("reshard::exchange: transfer ", nth, " from rank ", sender, " to rank ", receiver, ": rank ", sender,
                  sent < 0 ? std::string(" sends nothing") : concat(" sends ", sent, " bytes"), ", rank ", receiver,
                  expected < 0 ? std::string(" expects nothing") : concat(" expects ", expected, " bytes"),
                  ". Fix: build both sides from the same plan.");
}

RESHARD_INLINE std::string transport::wire_text(int sender, int sent, int receiver, int expected, int nth) {
    auto const text = [](int wire) { return wire < 0 ? "elements as they are" : name(static_cast<DType>(wire)); };
    return concat("reshard::exchange: transfer ", nth, " from rank ", sender, " to rank ", receiver, ": rank ", sender,
                  " sends ", text(sent), ", rank ", receiver, " expects ", text(expected),
                  ". Fix: cast on both sides or on neither, to the same type on the way.");
}
RESHARD_INLINE std::string transport::mismatch_text(int sender, Send const* send, int receiver, Receive const* receive,
                                                    int nth) {
    Index const sent = send != nullptr ? send->payload_bytes() : -1;
    Index const expected = receive != nullptr ? receive->payload_bytes() : -1;
    if (sent == expected) {
        auto const wire = [](Conversion const& c) { return c.is_active() ? static_cast<int>(c.wire) : -1; };
        int const a = wire(send->conversion);
        int const b = wire(receive->conversion);
        if (a != b) return wire_text(sender, a, receiver, b, nth);
    }
    return mismatch_text(sender, sent, receiver, expected, nth);
}

}  // namespace reshard::inline v0
