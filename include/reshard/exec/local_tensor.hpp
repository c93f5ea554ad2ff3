// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/exec/local_tensor.hpp
/// \brief  LocalTensor: one rank's part of a named, distributed tensor. What is loaded, initialised, synchronised and
/// verified is a list of them. \depends exec/detail/{check,batch_check}. Opt-in: not part of the umbrella.
#pragma once

#include <reshard/exec/detail/batch_check.hpp>

#include <string>  // string

namespace reshard::inline v0 {

/// One rank's part of a distributed tensor, under the name that all ranks know it by.
struct LocalTensor {
    std::string name;
    DynamicDistribution distribution;
    DynamicView view;  ///< of shape distribution.local_shape(rank); outside the mesh only the element type counts
};

namespace detail {

/// Throws BufferError, naming the tensor, unless the view is what the distribution gives this rank: its shape, memory
/// behind it, and an element for every index. `who` is the function that was called.
inline void check_local_tensor(LocalTensor const& tensor, int rank, std::string_view who) {
    if (!tensor.distribution.contains(rank)) return;
    auto const refuse = [&](auto const&... parts) {
        raise(ErrorCode::buffer,
              concat("reshard::", who, ": tensor '", tensor.name, "' on rank ", rank, ": ", parts...));
    };
    DynamicShape const wanted = tensor.distribution.local_shape(rank);
    if (tensor.view.shape() != wanted) {
        refuse("the view has shape ", to_string(tensor.view.shape()), ", but ", to_string(tensor.distribution), " of ",
               to_string(tensor.distribution.shape()), " has ", to_string(wanted),
               " there. Fix: allocate local_shape(rank).");
    }
    if (tensor.view.data() == nullptr && tensor.view.size() != 0) {
        refuse("the view is null. Fix: pass memory for ", to_string(wanted), " elements.");
    }
    if (!is_injective(tensor.view)) {
        refuse("strides ", to_string(tensor.view.strides()), " overlap. Fix: give every element memory of its own.");
    }
}

/// The same for a list; BufferError also when two tensors of this rank share memory, naming both.
inline void check_local_tensors(std::span<LocalTensor const> tensors, int rank, std::string_view who) {
    std::vector<Stretch> stretches;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        check_local_tensor(tensors[i], rank, who);
        if (tensors[i].distribution.contains(rank)) stretches.push_back({tensors[i].view, i, true});
    }
    Clash const clash = find_clash(stretches);
    if (clash.writer == clash.other) return;
    raise(ErrorCode::buffer, concat("reshard::", who, ": on rank ", rank, " the tensors '", tensors[smaller(clash.writer, clash.other)].name,
                                    "' and '", tensors[larger(clash.writer, clash.other)].name, "' overlap. Fix: give each its own memory."));
}

/// Collective: the one agreement about a list of tensors, which is the same on every rank but for the memory behind it.
/// `mine` is what this rank has found wrong; `options` a digest of whatever else must be equal. Throws the error of the
/// lowest rank that has one, else MismatchError that names the first tensor listed differently, on every rank.
template <Communicator C>
void agree_on_tensors(C& comm, Verdict mine, std::span<LocalTensor const> tensors, std::uint64_t options,
                      std::string_view who) {
    BatchDigest digest;
    digest.options = options;
    for (LocalTensor const& tensor : tensors) {
        Digest one;
        for (char c : tensor.name) one.add(static_cast<unsigned char>(c));
        detail::digest(one, tensor.distribution);
        digest.tensors.push_back(one.add(static_cast<std::uint64_t>(tensor.view.dtype())).value());
    }
    agree_on_batch(comm, std::move(mine), digest, [&](Index place) {
        if (place < 0) return concat("called reshard::", who, " with other options");
        auto const i = static_cast<std::size_t>(place);
        if (i >= tensors.size()) return concat("lists ", tensors.size(), " tensors, without a tensor ", place);
        LocalTensor const& tensor = tensors[i];
        return concat("lists tensor ", place, " '", tensor.name, "' as ", name(tensor.view.dtype()), " ",
                      to_string(tensor.distribution.shape()), " under ", to_string(tensor.distribution));
    });
}

}  // namespace detail

}  // namespace reshard::inline v0
