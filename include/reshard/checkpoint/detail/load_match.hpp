// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_match.hpp
/// \brief  The tensors a caller wants, found in a catalogue: or what is wrong, in the same words on every rank.
/// \depends checkpoint/detail/read_schedule.hpp, exec/local_tensor.hpp.
#pragma once

#include <reshard/checkpoint/detail/piece_messages.hpp>
#include <reshard/checkpoint/detail/read_schedule.hpp>
#include <reshard/core/view_box.hpp>
#include <reshard/exec/local_tensor.hpp>
#include <reshard/memory/fold.hpp>

namespace reshard::inline v0::detail {

[[noreturn]] inline void raise_wanted(ErrorCode code, std::string_view tensor, std::string const& why) {
    raise(code, concat("reshard::load: tensor ", quote_name(tensor), ": ", why));
}

/// Throws MeshError for a tensor that lives on ranks which do not exist.
inline void check_meshes(std::span<LocalTensor const> targets, int ranks) {
    for (LocalTensor const& target : targets) {
        DynamicMesh const& mesh = target.distribution.mesh();
        if (mesh.last_rank() < ranks) continue;
        raise_wanted(ErrorCode::mesh, target.name,
                     concat("the mesh ", to_string(mesh), " has rank ", mesh.last_rank(), ", the communicator only ",
                            ranks, " ranks. Fix: use a mesh of ranks that exist."));
    }
}

/// Only what all ranks know alike is looked at, so that all throw alike: name, distribution and element type.
inline WantedTensor match(Catalogue const& catalogue, LocalTensor const& target, std::size_t place) {
    CheckpointTensor const* const stored = catalogue.find(target.name);
    if (stored == nullptr) {
        raise_rule(
            SafetensorsRule::tensor_not_found,
            concat("reshard::load: none of the ", catalogue.tensors().size(), " tensors of the checkpoint is called ",
                   quote_name(target.name), ". Fix: check the name, or leave the tensor out of the list."));
    }
    WantedTensor wanted{place, stored->file, stored->begin, stored->dtype, stored->shape};
    if (!is_byte_sized(stored->dtype)) {
        wanted.dtype = DType::u8;
        wanted.shape = Shape{stored->bytes()};
    }
    std::string_view const note =
        is_byte_sized(stored->dtype) ? "" : " (its elements are smaller than a byte, so that it is loaded as bytes)";
    if (target.distribution.shape() != wanted.shape) {
        raise_wanted(
            ErrorCode::mismatch, target.name,
            concat("the checkpoint has shape ", to_string(wanted.shape), note, ", the list says ",
                   to_string(target.distribution.shape()), ". Fix: build the list from the model that was saved."));
    }
    if (target.view.dtype() != wanted.dtype) {
        raise_wanted(ErrorCode::mismatch, target.name,
                     concat("the checkpoint has ", name(wanted.dtype), " elements", note, ", the list says ",
                            name(target.view.dtype()), ". Fix: load as ", name(wanted.dtype),
                            " and cast with reshard::redistribute(..., Casting{})."));
    }
    DynamicDistribution const& to = target.distribution;
    for (int axis = 0; axis < to.mesh().axes(); ++axis) {
        if (!to.placement(axis).is_partial()) continue;
        Reduce const op = to.placement(axis).op();
        if (op == Reduce::avg) {
            raise_wanted(ErrorCode::transition, target.name,
                         "Pavg has no identity to fill with. Fix: load as R and average later, or use P+.");
        }
        if (!supports(op, wanted.dtype)) {
            raise_wanted(ErrorCode::dtype, target.name,
                         concat(name(op), " is not defined for ", name(wanted.dtype),
                                ". Fix: use an op that the element type supports."));
        }
    }
    return wanted;
}

/// Sorted by (file, begin), as the files are read.
[[nodiscard]] inline std::vector<WantedTensor> match(Catalogue const& catalogue, std::span<LocalTensor const> targets) {
    std::vector<WantedTensor> wanted;
    wanted.reserve(targets.size());
    for (std::size_t i = 0; i < targets.size(); ++i) wanted.push_back(match(catalogue, targets[i], i));
    std::stable_sort(wanted.begin(), wanted.end(), [](WantedTensor const& a, WantedTensor const& b) {
        return a.file != b.file ? a.file < b.file : a.begin < b.begin;
    });
    return wanted;
}

/// Where a rank holds identities: nobody has to send them.
inline void fill_identities(std::span<LocalTensor const> targets, int rank) {
    for (LocalTensor const& target : targets) {
        DynamicDistribution const& to = target.distribution;
        if (!to.contains(rank)) continue;
        PartialPart const part = partial_part(to, to.mesh().coordinates(rank));
        if (part.has_values) continue;
        fill_identity(part.op, target.view.dtype(), target.view.data(), strided_box(target.view));
    }
}

}  // namespace reshard::inline v0::detail
