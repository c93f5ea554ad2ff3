// SPDX-License-Identifier: Apache-2.0
// How checkpoint/save.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/save_session.hpp>
#include <reshard/checkpoint/save.hpp>

namespace reshard::inline v0 {

namespace detail {

/// What the threads of one rank put short runs together in: one buffer each.
class SaveBuffers {
public:
    SaveBuffers() = default;
    SaveBuffers(SaveStream const& stream, SaveOptions const& options) {
        Index const threads = smaller<Index>(options.in_flight, static_cast<Index>(stream.units()));
        if (threads == 0) return;
        Index const fair = options.buffer_bytes / threads;
        each_ = smaller(larger<Index>(fair, 4096), SaveStream::default_unit_bytes) / 64 * 64;
        memory_ = Scratch(each_ * threads);
    }
    [[nodiscard]] std::span<std::byte> of(int worker) const noexcept {
        return {memory_.data() + each_ * worker, static_cast<std::size_t>(each_)};
    }
    [[nodiscard]] Index bytes() const noexcept { return memory_.size(); }

private:
    Index each_ = 0;
    Scratch memory_;
};

/// Local: writes this rank's file from the tensors' memory, several writes at once.
inline void write_from_tensors(SaveSession& session, SaveBuffers const& buffers) {
    session.open();
    SaveStream& stream = session.stream();
    run_on_workers(stream.units(), session.options().in_flight, [&](std::size_t unit, int worker) {
        stream.write(unit, buffers.of(worker),
                     [&](Index at, std::span<std::byte const> bytes) { session.write_at(at, bytes); });
        session.tell_progress(stream.unit_size(unit));
    });
    session.close();
}

}  // namespace detail

RESHARD_INLINE SaveReport save(std::string folder, std::span<LocalTensor const> tensors, CommunicatorRef comm,
                               SaveOptions const& options) {
    detail::SaveBuffers buffers;
    detail::SaveSession session(
        std::move(folder), tensors, comm, options, detail::SaveStream::default_unit_bytes,
        [&](detail::SaveStream const& stream) { buffers = detail::SaveBuffers(stream, options); });
    SaveReport report = session.finish(detail::verdict_of([&] { detail::write_from_tensors(session, buffers); }));
    report.extra_bytes = buffers.bytes();
    report.seconds_blocked = report.seconds;
    return report;
}
RESHARD_INLINE SaveReport save(std::string folder, std::span<ConstLocalTensor const> tensors, CommunicatorRef comm,
                               SaveOptions const& options) {
    auto const list = detail::tensors_to_save(tensors, comm);
    return save(std::move(folder), std::span<LocalTensor const>(list), comm, options);
}

}  // namespace reshard::inline v0
