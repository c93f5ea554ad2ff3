// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/save.hpp
/// \brief  save(): distributed tensors into a folder, each byte once, all of them or none.
/// \depends checkpoint/detail/save_session. Link reshard::save (nlohmann_json, ISA-L, xxHash, threads).
///
///     save("checkpoint", tensors, comm);
///     save("checkpoint", tensors, comm, {.dedup = SaveDedup::shared, .replica_axes = {1}});
///
/// Each rank that has something to write makes one safetensors file, which every tool for them opens; then
/// `reshard.manifest.json` names the files and what lies where, with a checksum for each extent. Until that name is
/// there the folder holds the save that it held before.
#pragma once

#include <reshard/checkpoint/detail/save_session.hpp>
#include <reshard/comm/agree.hpp>

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

/// Collective over `comm`, which may be any group: other ranks are not involved. All ranks list the same tensors in the
/// same order, and the same options (see there); a rank outside a tensor's mesh lists it too and writes nothing of it.
/// Creates the folder if need be, not its parents; all ranks must see the same one. Nobody writes to the tensors
/// meanwhile. One agreement on the lists, then no talk until this rank's bytes are written.
///
/// All or nothing: files get their names when all are written and durable, the manifest gets its name when all files
/// have theirs, and files of the save before go after that, with what saves that died have left. When a rank fails, all
/// throw the same error, the save before it still loads, and what was written is removed again (where a rank is lost
/// half way, a file may stay until the next save). A second save into the folder meanwhile is refused.
///
/// Copies that the save leaves out are compared first, unless options say otherwise.
///
/// Throws, the same on every rank and naming the rank it belongs to: MismatchError for lists that differ and for copies
/// that are not equal, naming tensor and ranks; what plan_save() throws; BufferError for views that do not fit,
/// MeshError, DTypeError for elements smaller than a byte (view them as U8); IoError for what the file system refuses,
/// for a save under way in the same folder, and for one that has replaced the manifest meanwhile; OutOfMemory. Errors
/// of the transport as from any collective.
inline SaveReport save(std::string folder, std::span<LocalTensor const> tensors, CommunicatorRef comm,
                       SaveOptions const& options = {}) {
    detail::SaveBuffers buffers;
    detail::SaveSession session(
        std::move(folder), tensors, comm, options, detail::SaveStream::default_unit_bytes,
        [&](detail::SaveStream const& stream) { buffers = detail::SaveBuffers(stream, options); });
    SaveReport report = session.finish(detail::verdict_of([&] { detail::write_from_tensors(session, buffers); }));
    report.extra_bytes = buffers.bytes();
    report.seconds_blocked = report.seconds;
    return report;
}

}  // namespace reshard::inline v0
