// SPDX-License-Identifier: Apache-2.0
// How checkpoint/save.hpp is done.
#pragma once

#include <reshard/checkpoint/detail/save_session.hpp>
#include <reshard/checkpoint/save.hpp>

namespace reshard::inline v0_1 {

RESHARD_INLINE SaveReport save(std::string folder, std::span<LocalTensor const> tensors, CommunicatorRef comm,
                               SaveOptions const& options) {
    using detail::SaveStream;
    Scratch buffers;  // one for each thread: what short runs are put together in
    Index each = 0;
    auto const make_room = [&](SaveStream const& stream) {
        Index const threads = detail::smaller<Index>(options.in_flight, detail::as_index(stream.units()));
        if (threads == 0) return;
        Index const fair = detail::larger<Index>(options.window_bytes / threads, 4096);
        each = detail::smaller(fair, SaveStream::default_unit_bytes) / 64 * 64;
        buffers = Scratch(each * threads);
    };
    detail::SaveSession session(std::move(folder), tensors, comm, options, SaveStream::default_unit_bytes, make_room);
    SaveStream& stream = session.stream();
    auto const write = [&](std::size_t unit, int worker) {
        std::span<std::byte> const own(buffers.data() + each * worker, detail::as_size(each));
        stream.write(unit, own, [&](Index at, std::span<std::byte const> bytes) { session.write_at(at, bytes); });
        session.tell_progress(stream.unit_size(unit));
    };
    bool is_open = false;
    std::size_t done = 0;  // units
    SaveReport report = session.finish([&](std::size_t units, bool last) {
        if (!std::exchange(is_open, true)) session.open();
        std::size_t const first = std::exchange(done, units);
        detail::run_on_workers(units - first, session.options().in_flight,
                               [&](std::size_t unit, int worker) { write(first + unit, worker); });
        if (last) session.close();
    });
    report.extra_bytes = buffers.size();
    report.seconds_blocked = report.seconds;
    return report;
}
RESHARD_INLINE SaveReport save(std::string folder, std::span<ConstLocalTensor const> tensors, CommunicatorRef comm,
                               SaveOptions const& options) {
    auto const list = detail::tensors_to_save(tensors, comm);
    return save(std::move(folder), std::span<LocalTensor const>(list), comm, options);
}

}  // namespace reshard::inline v0_1
