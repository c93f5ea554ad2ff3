// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard::Staged: packs on the host, but tensors lie elsewhere for this communicator
#include <reshard/comm/self.hpp>
#include <reshard/comm/staged.hpp>
#include <reshard/comm/traced.hpp>

using namespace reshard;

/// Says where the tensors of its plans lie, as communicators of devices do.
class Devices : public SelfCommunicator {
public:
    using SelfCommunicator::split;
    explicit Devices(SelfCommunicator&& base) : SelfCommunicator(std::move(base)) {}
    [[nodiscard]] Devices split(int colour, int key) { return Devices(SelfCommunicator::split(colour, key)); }
    [[nodiscard]] Devices split(DynamicMesh const& mesh, int axis) {
        return Devices(SelfCommunicator::split(mesh, axis));
    }
    [[nodiscard]] MemoryPolicy const* memory() const { return nullptr; }
};

#ifndef RESHARD_FAIL
using Comm = Staged<Traced<SelfCommunicator>>;
#else
using Comm = Staged<Traced<Devices>>;
#endif
int size(Comm const& comm) { return comm.size(); }
