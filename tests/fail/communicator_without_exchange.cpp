// SPDX-License-Identifier: Apache-2.0
// expect-error: reshard: this communicator has no exchange(). Fix: add `request_type exchange(
#include <reshard/comm/self.hpp>
#include <reshard/exec/batch.hpp>

using namespace reshard;

struct Mine : MeshSplit<Mine> {
    using MeshSplit<Mine>::split;
    using request_type = SelfCommunicator::request_type;
    static constexpr std::string_view name = "mine";

    [[nodiscard]] int rank() const noexcept { return self.rank(); }
    [[nodiscard]] int size() const noexcept { return self.size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return self.traffic(); }
    Verdict agree(Verdict verdict) { return self.agree(std::move(verdict)); }
    Mine split(int colour, int key) { return {{}, self.split(colour, key)}; }
    void abort(ErrorCode code, std::string_view reason) noexcept { self.abort(code, reason); }
#ifndef RESHARD_FAIL
    request_type exchange(std::span<Send const> sends, std::span<Receive const> receives) {
        return self.exchange(sends, receives);
    }
#endif

    SelfCommunicator self;
};

PreparedPlan sample(Batch const& batch, Mine& comm) { return prepare(batch, comm); }
