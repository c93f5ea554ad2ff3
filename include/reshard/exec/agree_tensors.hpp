// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/agree_tensors.hpp
/// \brief  agree_on_tensors(): all ranks list the same tensors and every view fits, or the same typed error everywhere.
/// \depends exec/local_tensor, exec/detail/batch_check, memory/place. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/comm/agree.hpp>
#include <reshard/exec/detail/batch_check.hpp>
#include <reshard/exec/local_tensor.hpp>
#include <reshard/memory/place.hpp>

namespace reshard::inline v0_1 {

/// What a list of tensors is for, in the words of messages.
struct TensorTask {
    std::string_view function;  ///< that was called: "verify_replicas"
    std::string_view verb;      ///< "verifies", for "rank 3 of 4: verifies 2 tensors, ..., but rank 0 ..."
    std::string options{};      ///< that must be equal on all ranks, after the verb: see detail::options_text()
    bool by_host = true;        ///< the host, or comm.memory(), reads or writes the views; false: only exchanges do
};

namespace detail {

/// Throws MeshError for a mesh of ranks that the communicator does not have, DTypeError for elements smaller than a
/// byte, what check_local_tensor() throws. All name the tensor.
inline void check_tensors(std::span<LocalTensor const> tensors, int rank, int ranks, std::string_view function) {
    for (LocalTensor const& tensor : tensors) {
        check_mesh(tensor.distribution.mesh(), ranks, "reshard::", function, ": tensor '", tensor.name, "': ");
        if (!is_byte_sized(tensor.view.dtype())) {
            raise(ErrorCode::dtype, "reshard::", function, ": tensor '", tensor.name, "': elements of ",
                  name(tensor.view.dtype()),
                  " are smaller than a byte and have no address. Fix: view the storage as U8.");
        }
        check_local_tensor(tensor, rank, function);
    }
}

/// For who reads or writes it outside of exchanges: throws BufferError, naming the tensor, for memory that neither the
/// host nor the communicator's memory() can work on, or that the communicator cannot bring to the host.
inline void check_in_reach(LocalTensor const& tensor, CommunicatorRef comm, std::string_view function) {
    if (!tensor.distribution.contains(comm.rank())) return;
    MemoryPolicy const* const memory = policy_for(comm.memory(), tensor.view.data());
    if (memory == nullptr) return check_on_host(tensor, comm.rank(), function);
    memory->check(concat("tensor '", tensor.name, "'"), tensor.view.data(), bytes(tensor.view.dtype()));
    int const here = 0;
    if (verdict_of([&] { comm.check_memory(&here); }).ok()) return;
    raise(ErrorCode::buffer, "reshard::", function, ": tensor '", tensor.name, "' on rank ", comm.rank(),
          ": the view lies in memory of a device, and the transport '", comm.name(),
          "' moves no memory of the host. Fix: use one that moves both; for CUDA's StagedOnHost around a transport of "
          "the host, or DeviceThreadCommunicator.");
}

/// BufferError, naming both, when two tensors of this rank share memory that one of them writes; or two elements of it.
inline void check_apart(std::span<LocalTensor const> tensors, std::vector<ViewUse> const& uses, int rank,
                        std::string_view function) {
    for (ViewUse const& use : uses)
        if (use.written) check_written(tensors[use.tensor], rank, function);
    Clash const clash = find_clash(uses);
    if (clash.writer == clash.other) return;
    raise(ErrorCode::buffer, "reshard::", function, ": on rank ", rank, " the tensors '",
          tensors[smaller(clash.writer, clash.other)].name, "' and '", tensors[larger(clash.writer, clash.other)].name,
          "' overlap. Fix: give each its own memory, or list one of them (of tied weights any).");
}
/// The same for who writes to all of them.
inline void check_apart(std::span<LocalTensor const> tensors, int rank, std::string_view function) {
    std::vector<ViewUse> uses;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i].distribution.contains(rank)) uses.push_back({tensors[i].view, i, true});
    }
    check_apart(tensors, uses, rank, function);
}

[[nodiscard]] inline BatchDigest digest_of(std::span<LocalTensor const> tensors, std::string_view options) {
    BatchDigest result;
    result.options = Digest{}.add_text(options).value();
    result.tensors.reserve(tensors.size());
    for (LocalTensor const& tensor : tensors) {
        Digest one;
        digest(one, tensor.distribution);
        for (int dim = 0; dim < tensor.within.shape.rank(); ++dim)
            one.add_signed(tensor.within.shape.extent(dim)).add_signed(tensor.within.begin.values[dim]);
        one.add(static_cast<std::uint64_t>(tensor.view.dtype()));
        result.tensors.push_back(one.add_words(tensor.name).value());
    }
    return result;
}

/// Completes "rank 3 ..., but rank 0 ...". `place` as first_difference() gives it.
[[nodiscard]] inline std::string describe(std::span<LocalTensor const> tensors, Index place, TensorTask const& task) {
    if (place < 0) return concat(task.verb, " ", task.options);
    auto const i = as_size(place);
    if (i >= tensors.size()) return concat(task.verb, " ", tensors.size(), " tensors, without a tensor ", place);
    LocalTensor const& tensor = tensors[i];
    return concat(task.verb, " tensor ", place, " '", tensor.name, "' as ", to_string(tensor.distribution), " of ",
                  to_string(tensor.distribution.shape()), text_of(tensor.within), " ", name(tensor.view.dtype()));
}

}  // namespace detail

/// Collective over `comm`; one agreement, before any tensor is touched. Names, distributions, element types and order
/// must be the same on every rank; ranks outside a tensor's mesh list it too. `check()` is what else a rank can find
/// wrong, or allocates: it runs after the checks of this function, and what it throws reaches every rank.
///
/// Throws, the same on every rank: the error of the lowest rank that has one, MeshError, DTypeError, ShapeError or
/// BufferError as detail::check_tensors says or what check() threw; else MismatchError, naming the first tensor listed
/// differently.
///
/// `make_task()` makes the TensorTask: its words take memory, which a rank may not have.
inline void agree_on_tensors(CommunicatorRef comm, std::span<LocalTensor const> tensors,
                             detail::FunctionRef<TensorTask()> make_task, detail::FunctionRef<void()> check) {
    TensorTask task;
    detail::BatchDigest digest;
    transport::Verdict verdict = detail::verdict_of([&] {
        task = make_task();
        digest = detail::digest_of(tensors, task.options);
        detail::check_tensors(tensors, comm.rank(), comm.size(), task.function);
        for (LocalTensor const& tensor : tensors) {
            if (task.by_host) detail::check_in_reach(tensor, comm, task.function);
            bool const holds = tensor.distribution.contains(comm.rank()) && tensor.view.size() != 0;
            if (holds) comm.check_memory(tensor.view.data());  // an empty view may lie anywhere
        }
        check();
    });
    verdict.call = task.function;
    detail::agree_on_batch(comm, std::move(verdict), digest,
                           [&](Index place) { return detail::describe(tensors, place, task); });
}

}  // namespace reshard::inline v0_1
