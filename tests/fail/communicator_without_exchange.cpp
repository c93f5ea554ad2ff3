// SPDX-License-Identifier: Apache-2.0
// expect-only: reshard: this communicator has no `exchange_type bind(std::span<transport::Send const>, std::span<
#include <reshard/comm/self.hpp>
#include <reshard/exec/batch.hpp>

using namespace reshard;

struct Mine : CommunicatorBase<Mine> {
    using CommunicatorBase<Mine>::split;
    using exchange_type = SelfCommunicator::exchange_type;
    static constexpr std::string_view name = "mine";

    [[nodiscard]] int rank() const noexcept { return self.rank(); }
    [[nodiscard]] int size() const noexcept { return self.size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return self.traffic(); }
    transport::Verdict agree(transport::Verdict verdict) { return self.agree(std::move(verdict)); }
    Mine split(int colour, int key) { return {{}, self.split(colour, key)}; }
    void abort(ErrorCode code, std::string_view reason) noexcept { self.abort(code, reason); }
#ifndef RESHARD_FAIL
    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        return self.bind(sends, receives);
    }
#endif

    SelfCommunicator self;
};

PreparedPlan sample(Batch const& batch, Mine& comm) { return prepare(batch, comm); }
