// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/detail/mpi_roll_call.hpp
/// \brief  Which ranks of other nodes wait: asked at a deadline, before somebody is named who cannot be seen.
/// \depends comm/detail/mpi_call.hpp, <vector>.
#pragma once

#include <reshard/comm/detail/mpi_call.hpp>

#include <new>     // nothrow
#include <vector>  // vector

namespace reshard::inline v0_1::detail {

/// Sends memory that stays for ever, since nobody can say when it is no longer needed. Whether MPI took it.
inline bool mpi_post(void const* memory, std::size_t bytes, int to, int tag, MPI_Comm comm) noexcept {
    MPI_Request request = MPI_REQUEST_NULL;
    int sent = 0;
    return MPI_Isend(memory, static_cast<int>(bytes), MPI_BYTE, to, tag, comm, &request) == MPI_SUCCESS &&
           MPI_Test(&request, &sent, MPI_STATUS_IGNORE) == MPI_SUCCESS;
}
/// Whether a message was there, and who has sent it.
template <class T>
[[nodiscard]] bool mpi_fetch(T& message, int tag, MPI_Comm comm, int* from = nullptr) noexcept {
    int waiting = 0;
    MPI_Status status{};
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &waiting, &status) != MPI_SUCCESS || waiting == 0) return false;
    if (from != nullptr) *from = status.MPI_SOURCE;
    return MPI_Recv(&message, static_cast<int>(sizeof(message)), MPI_BYTE, status.MPI_SOURCE, tag, comm,
                    MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

/// Where a rank is: in which communicator, and in the how manieth of its calls.
struct MpiWhere {
    std::uint64_t scope = 0;
    std::uint64_t calls = 0;
};

/// Who waits, or looks how far an exchange is, answers; who computes, has left, is stopped or dead does not. Of a
/// family: ranks are those of `control`, its outermost communicator.
class MpiRollCall {
public:
    enum class Answer : std::uint8_t { none, elsewhere, here };

    explicit MpiRollCall(MPI_Comm control) noexcept : control_(control) {}

    /// Begins a new one: of those that are asked from now on.
    void begin() {
        ++round_;
        answers_.assign(as_size(mpi_size(control_)), Answer::none);
    }
    void ask(int rank) noexcept { post(rank, {{}, round_, true}); }
    /// Answers those who have asked, and hears what others answer: this rank is `here`, and waits.
    void answer(MpiWhere here) {
        Note note;
        for (int from = 0; mpi_fetch(note, tag, control_, &from);) {
            used_ = true;
            if (note.asks) {
                post(from, {here, note.round, false});
            } else if (note.round == round_ && !answers_.empty()) {
                bool const come = note.where.scope == here.scope && note.where.calls >= here.calls;
                answers_[as_size(from)] = come ? Answer::here : Answer::elsewhere;
            }
        }
    }
    /// \pre one has begun.
    [[nodiscard]] Answer of(int rank) const noexcept { return answers_[as_size(rank)]; }
    /// Whether messages of it may still be on their way.
    [[nodiscard]] bool was_used() const noexcept { return used_; }

private:
    static constexpr int tag = 2;

    struct Note {
        MpiWhere where;
        std::uint64_t round = 0;
        bool asks = false;
    };
    void post(int to, Note const& note) noexcept {
        used_ = true;
        auto* const kept = new (std::nothrow) Note(note);
        if (kept != nullptr) mpi_post(kept, sizeof(*kept), to, tag, control_);
    }

    MPI_Comm control_;
    std::uint64_t round_ = 0;
    std::vector<Answer> answers_;  ///< by rank
    bool used_ = false;
};

}  // namespace reshard::inline v0_1::detail
