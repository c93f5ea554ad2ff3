// SPDX-License-Identifier: Apache-2.0
// How comm/mpi.hpp is done.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/comm/detail/mpi_exchange.hpp>
#include <reshard/comm/mpi.hpp>

#include <unistd.h>  // _exit

#include <cerrno>
#include <chrono>   // milliseconds
#include <cstring>  // strerror
#include <thread>   // sleep_for

namespace reshard::inline v0_1 {

RESHARD_INLINE MpiCommunicator::MpiCommunicator(MPI_Comm comm, MpiOptions const& options) : GroupCommunicator(nullptr) {
    detail::check_mpi_environment(comm);
    MPI_Comm own = MPI_COMM_NULL;
    detail::mpi_check(MPI_Comm_dup(comm, &own), "MPI_Comm_dup");
    engine_ = detail::MpiExchange::make(std::make_shared<detail::MpiTeam>(own, nullptr, 0, options));
}
RESHARD_INLINE MPI_Comm MpiCommunicator::native() const noexcept { return engine().team()->comm(); }
RESHARD_INLINE MpiPath MpiCommunicator::path() const noexcept {
    return engine().team()->attach() ? MpiPath::attach : MpiPath::messages;
}
RESHARD_INLINE detail::MpiExchange& MpiCommunicator::engine() const noexcept {
    return static_cast<detail::MpiExchange&>(*engine_);
}
RESHARD_INLINE transport::InOrder MpiCommunicator::bind(std::span<transport::Send const> sends,
                                                        std::span<transport::Receive const> receives) {
    auto const check = [](auto transfers) {
        for (auto const& transfer : transfers) {
            if (detail::larger(transfer.wire_element_bytes(), transfer.box.element_bytes) <= detail::piece_bytes)
                continue;
            errors::raise(ErrorCode::transport, "reshard::MpiCommunicator: elements of ", transfer.box.element_bytes,
                          " bytes. Fix: describe long runs as a dimension of smaller elements.");
        }
    };
    check(sends);
    check(receives);
    return GroupCommunicator::bind(sends, receives);
}
RESHARD_INLINE void MpiCommunicator::terminate() noexcept {
    if (!engine_->is_ours()) _exit(1);  // a child that was forked: MPI is its parent's
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();  // MPI_Abort does not return, but MPI does not say so
}
RESHARD_INLINE detail::MpiMemory MpiCommunicator::allocate_bytes(Index elements, Index element_bytes) {
    engine().enter(detail::TeamCall::allocate);
    detail::MpiTeam& mine = *engine().team();
    detail::MpiFamily& family = *mine.family();
    family.forget_reopened();
    std::uint64_t const key = family.next_segment();
    auto const out_of_memory = [&](std::string_view what, int error) {
        bool const files = error == EMFILE || error == ENFILE;
        errors::raise(ErrorCode::out_of_memory, "reshard::MpiCommunicator: ", what, " for a buffer of ",
                      elements * element_bytes, " bytes (", std::strerror(error), "). Fix: ",
                      files ? "raise the limit on open files (ulimit -n): each buffer takes one."
                            : "allocate less, or give the process more memory.");
    };
    auto const agreeing = [&](detail::FunctionRef<void()> work) {
        detail::watched([&] { agree_on_errors(mine, work, "allocate"); },
                        [&](ErrorCode, std::string_view) noexcept { family.release(key); });
    };
    detail::MpiNode* const node = mine.node().get();
    std::byte* data = nullptr;
    agreeing([&] {
        Index bytes = 0;
        if (elements < 0 || !detail::multiply_fits(elements, element_bytes, bytes) || bytes > INT64_MAX - 4095) {
            errors::raise(
                ErrorCode::buffer,
                "reshard::allocate: a count below zero, or of more bytes than fit 64 bits. Fix: check the count.");
        }
        Index const padded =
            detail::larger<Index>(detail::ceil_div(bytes, 4096) * 4096, 4096);  // empty ones have an address as well
        detail::SharedMemory memory = detail::SharedMemory::create(padded);
        if (!memory && node == nullptr) memory = detail::SharedMemory::create_unshared(padded);
        family.own_segments.push_back({detail::own_pid(), key, key, std::move(memory)});
        detail::SharedMemory const& made = family.own_segments.back().memory;
        data = made.data();
        if (data == nullptr) out_of_memory("no memory", errno);
        if (node == nullptr) return;
        node->own().offer_bytes = padded;
        node->own().offer_segment = key;
        node->own().offer_file = made.file();
    });
    agreeing([&] {
        Index offered = 0;  // each was there by itself, of pages that nobody has taken yet
        for (int l = 0; node != nullptr && l < node->ranks(); ++l) offered += node->seat(l).offer_bytes;
        if (offered > detail::available_memory()) {
            out_of_memory(errors::concat("all ranks of the node ask for ", offered, " bytes, and there is no memory"),
                          ENOMEM);
        }
        for (int l = 0; node != nullptr && l < node->ranks(); ++l) {
            if (l == node->me()) continue;
            detail::MpiSeat const& seat = node->seat(l);
            family.peer_segments.push_back({seat.pid, seat.offer_segment, key,
                                            detail::SharedMemory::open(seat.pid, seat.offer_file, seat.offer_bytes)});
            if (!family.peer_segments.back().memory) out_of_memory("no address", errno);
        }
    });
    return {data, {mine.family(), key}};
}
RESHARD_INLINE void detail::MpiRelease::operator()(std::byte*) const noexcept { family->release(key); }

RESHARD_INLINE int detail::run_on_mpi(MpiOptions const& options, FunctionRef<void(MpiCommunicator&)> body) {
    if (mpi_is_finalised()) {
        std::fputs(
            "reshard: run_on_mpi: MPI is already finalised. Fix: call it once, or initialise MPI around all calls.\n",
            stderr);
        return 1;
    }
    bool const ours = !mpi_is_initialised();
    if (ours) {
        int level = 0;
        if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
            std::fputs("reshard: MPI_Init_thread failed.\n", stderr);
            return 1;
        }
    }
    std::shared_ptr<MpiTeam> team;
    bool well = false;
    try {
        MpiCommunicator comm(MPI_COMM_WORLD, options);
        team = static_cast<MpiExchange&>(*engine_of(comm)).team();
        auto const run = [&] {
            body(comm);
            well = true;
            team->leave();
        };
        MpiFamily const& family = *team->family();
        auto const fail = [&](ErrorCode code, std::string_view text) noexcept {
            family.is_ours() ? report_end(*team, code, text) : print_end(family.rank, code, text);
        };
        quietly([&] { watched(run, fail); });
        if (!family.is_ours()) {  // a child that was forked: the others have not lost anybody
            std::fflush(nullptr);
            _exit(well ? 0 : 1);
        }
    } catch (std::exception const& error) {  // from the constructor
        std::fprintf(stderr, "reshard: %s\n", error.what());
        std::fflush(nullptr);
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    if (all_ended_well(*team, well)) {
        team.reset();  // it gives its communicators back, for which MPI must be there
        if (ours && !mpi_is_finalised()) MPI_Finalize();
        return 0;
    }
    // MPI_Finalize waits for messages that will never come.
    std::fflush(nullptr);
    // MPICH's launcher drops what it has not forwarded when a rank aborts: the words that say why, above all.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

}  // namespace reshard::inline v0_1
