// SPDX-License-Identifier: Apache-2.0
//
// Built with -fno-exceptions -fno-rtti: policies work, and AbortOnFailure reports what nobody could catch.
#include <reshard/comm/abort_on_failure.hpp>
#include <reshard/comm/collectives.hpp>
#include <reshard/comm/self.hpp>
#include <reshard/comm/staged.hpp>
#include <reshard/comm/traced.hpp>

#include <string_view>

using namespace reshard;

namespace {

/// Called by the policy, once.
void check_report(ErrorCode code, char const* text) {
    std::string_view const line = text;
    bool const right =
        code == ErrorCode::mismatch &&
        line.starts_with("reshard: rank 0 of 1 (stub) ends the program: reshard::exchange: transfer 0") &&
        line.find("sends 4 bytes, rank 0 expects nothing") != std::string_view::npos;
    if (!right) std::_Exit(3);
}

/// A transport that ends the process in its own way: here, as a test that has passed.
class Stub : public SelfCommunicator {
public:
    static constexpr std::string_view name = "stub";
    using SelfCommunicator::split;
    Stub() = default;
    [[noreturn]] void terminate() const noexcept { std::_Exit(0); }
    explicit Stub(SelfCommunicator&& base) : SelfCommunicator(std::move(base)) {}
    [[nodiscard]] Stub split(int colour, int key) { return Stub(SelfCommunicator::split(colour, key)); }
    [[nodiscard]] Stub split(DynamicMesh const& mesh, int axis) { return Stub(SelfCommunicator::split(mesh, axis)); }
};

}  // namespace

int main() {
    failure_hook() = check_report;
    Trace trace(8);
    auto comm = compose<Staged, Traced, AbortOnFailure>(Stub(), trace);
    barrier(comm);
    int value = 1;
    int got = 0;
    transport::StridedBox box;
    box.element_bytes = 4;
    transport::Send const send{0, reinterpret_cast<std::byte const*>(&value), box};
    transport::Receive const receive{0, reinterpret_cast<std::byte*>(&got), box};
    comm.exchange({&send, 1}, {&receive, 1}).wait();
    if (got != 1 || trace.records().size() != 2) return 4;
    comm.exchange({&send, 1}, {}).wait();  // ends here
    return 5;
}
