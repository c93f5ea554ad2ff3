// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/load_match.hpp
/// \brief  The tensors a caller wants, found in a catalogue: or what is wrong, in the same words on every rank.
/// \depends checkpoint/detail/read_schedule.hpp, exec/local_tensor.hpp, memory/place.hpp.
#pragma once

#include <reshard/checkpoint/detail/read_schedule.hpp>
#include <reshard/checkpoint/detail/whole_files.hpp>
#include <reshard/checkpoint/load_strategy.hpp>
#include <reshard/core/view_box.hpp>
#include <reshard/exec/local_tensor.hpp>
#include <reshard/memory/convert.hpp>
#include <reshard/memory/fold.hpp>
#include <reshard/memory/place.hpp>

#include <algorithm>  // any_of

namespace reshard::inline v0_1::detail {

/// What a rank needs of a box of an extent: nothing of a copy that is not its own. False when that is nothing.
[[nodiscard]] inline bool find_needs(Needs& needs, WantedExtent const& extent, Box const& box,
                                     LocalTensor const& target, Index rank) {
    DynamicDistribution const& to = target.distribution;
    return to.contains(rank) && extent.is_for(to.mesh(), rank) && needs.find(own_box(target, box), to, rank);
}
/// Bytes of a box of an extent that a rank needs.
[[nodiscard]] inline Index needed_bytes(Box const& box, WantedExtent const& extent, LocalTensor const& target,
                                        Index rank, Needs& needs) {
    return find_needs(needs, extent, box, target, rank) ? needs.elements() * bytes(extent.dtype) : 0;
}

/// visit(rank) for each rank that needs something of a box of an extent, each once, up to one for which it returns
/// false. Parts that the box meets are found by division, as the planner finds them: it takes a step for each rank that
/// is found.
template <class Visit>
void for_each_needing(WantedExtent const& extent, Box const& box, LocalTensor const& target, Visit&& visit) {
    DynamicDistribution const& to = target.distribution;
    Box const own = intersect(own_box(target, box), Box(to.shape()));
    if (own.empty()) return;
    Grid const grid(to);
    unsigned with_copies = 0;  // of a Partial with identities only coordinate 0 has values
    for (int axis = 0; axis < to.mesh().axes(); ++axis) {
        PlacementForm const& placement = to.signature()[axis];
        bool const has_copies =
            !placement.is_shard() && axis_change(Placement::replicate(), placement) != AxisChange::fill;
        if (has_copies) with_copies |= 1U << static_cast<unsigned>(axis);
    }
    AxisSubset const copies(to.mesh(), with_copies);
    bool more = true;
    auto const look = [&](auto const& self, int dim, Index ordinal) -> void {
        if (dim != own.rank()) {
            grid.for_each_part(dim, IndexSet(own[dim]), [&](IndexSet const& part, Index along_dim) {
                bool const meets = part.local_index(own.begin(dim)) != part.local_index(own.end(dim));
                if (more && meets) self(self, dim + 1, ordinal + along_dim);
            });
            return;
        }
        for (Index i = 0; i < copies.size() && more; ++i) {
            Index const rank = to.mesh().rank_at(ordinal + copies.ordinal(i));
            if (!extent.is_for(to.mesh(), rank)) continue;
            if constexpr (std::is_void_v<decltype(visit(rank))>) {
                visit(rank);
            } else {
                more = visit(rank);
            }
        }
    };
    look(look, 0, 0);
}

[[noreturn]] inline void raise_wanted(ErrorCode code, std::string_view tensor, std::string const& why) {
    raise(code, "reshard::load: tensor ", quote_name(tensor), ": ", why);
}

/// How far one name is from another, if less than `bound`: characters that are added, dropped or changed; 1 for all up
/// to a dot in front.
[[nodiscard]] inline std::size_t name_distance(std::string_view a, std::string_view b, std::size_t bound) {
    if (a.size() < b.size()) std::swap(a, b);
    if (a.size() > b.size() && a.ends_with(b) && a[a.size() - b.size() - 1] == '.') return 1;
    if (a.size() - b.size() >= bound) return bound;
    for (; !b.empty() && a.front() == b.front(); b.remove_prefix(1)) a.remove_prefix(1);
    for (; !b.empty() && a.back() == b.back(); b.remove_suffix(1)) a.remove_suffix(1);
    std::vector<std::size_t> row(b.size() + 1);  // from what was seen of a, to each beginning of b
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (char const c : a) {
        std::size_t corner = row[0]++;
        std::size_t least = row[0];
        for (std::size_t j = 0; j < b.size(); ++j) {
            std::size_t const kept = corner + (c == b[j] ? 0 : 1);
            corner = row[j + 1];
            row[j + 1] = smaller(kept, smaller(row[j], corner) + 1);
            least = smaller(least, row[j + 1]);
        }
        if (least >= bound) return bound;
    }
    return row.back();
}
/// The three nearest names, where there are any that share half with one that is not there: behind it in a sentence.
[[nodiscard]] inline std::string similar_names(std::span<StoredTensor const> tensors, std::string_view name) {
    std::vector<std::pair<std::size_t, std::string_view>> near;
    for (StoredTensor const& tensor : tensors) {
        std::size_t bound = larger(tensor.name.size(), name.size()) / 2 + 1;
        if (near.size() == 3) bound = smaller(bound, near.back().first);
        std::size_t const distance = name_distance(tensor.name, name, bound);
        if (distance >= bound) continue;
        if (near.size() == 3) near.pop_back();
        near.emplace_back(distance, tensor.name);
        sort_list(near);
    }
    std::string text;
    for (auto const& one : near) text += concat(text.empty() ? "; similar names: " : ", ", quote_name(one.second));
    return text;
}

[[noreturn]] inline void raise_not_found(Catalogue const& catalogue, std::string_view name, std::string_view plain) {
    auto const list = named_replicas(catalogue.tensors());
    auto const of_it = [&](NamedReplica const& copy) { return copy.name.tensor == plain; };
    auto const first = std::find_if(list.begin(), list.end(), of_it);
    auto const last = std::find_if_not(first, list.end(), of_it);
    std::string const fault =
        first == last ? std::string() : concat(" (", fault_of({first, last}, catalogue.tensors()), ")");
    raise_rule(SafetensorsRule::tensor_not_found, "reshard::load: none of the ", catalogue.tensors().size(),
               " tensors of the checkpoint is called ", quote_name(name), fault,
               similar_names(catalogue.tensors(), plain),
               ". Fix: check the name, say in LoadOptions::rename what the checkpoint calls it, or leave the tensor "
               "out of the list.");
}

/// The axes along which a target's ranks read different replicas, a bit each. Throws MeshError, and MismatchError where
/// several axes could be meant: ranks would read copies that others have saved.
[[nodiscard]] inline unsigned replica_axes_of(LocalTensor const& target, int replicas, LoadOptions const& options) {
    DynamicDistribution const& to = target.distribution;
    unsigned axes = 0;
    int only = -1;
    for (int axis : options.replica_axes) {
        if (axis < 0 || axis >= to.mesh().axes()) {
            raise_wanted(ErrorCode::mesh, target.name,
                         concat("replica_axes names axis ", axis, " of the mesh ", brief(to.mesh()),
                                ". Fix: name axes that the meshes of tensors with replicas have."));
        }
        if (to.signature()[axis].is_replicate()) axes |= 1U << static_cast<unsigned>(axis);
    }
    for (int axis = 0; axis < to.mesh().axes() && options.replica_axes.empty(); ++axis) {
        if (!to.signature()[axis].is_replicate() || to.mesh().extent(axis) == 1) continue;
        if (only >= 0) {
            raise_wanted(ErrorCode::mismatch, target.name,
                         concat("was saved in ", replicas, " copies, and which of them a rank reads is open: axes ",
                                only, " and ", axis, " of the mesh ", brief(to.mesh()),
                                " are both R. Fix: name in LoadOptions::replica_axes the axes that "
                                "SaveOptions::replica_axes named."));
        }
        axes = 1U << static_cast<unsigned>(only = axis);
    }
    return axes;
}

/// What a tensor of elements smaller than a byte is loaded as: F4 [rows, columns] is U8 [rows, columns / 2], as PyTorch
/// has it, or, as any of them, U8 [bytes].
[[nodiscard]] inline DynamicShape loaded_shape(StoredTensor const& stored, LocalTensor const& target) {
    DynamicShape shape = stored.shape;
    int const last = shape.rank() - 1;
    Index const row = last < 0 ? 1 : shape.extent(last) * bits(stored.dtype);
    if (row % 8 != 0 || whole_shape(target).rank() == 1)
        return DynamicShape(Shape{stored_bytes_of(stored.dtype, Box(shape))});
    Indices extents = shape.extents();
    extents[last] = row / 8;
    return DynamicShape(extents);
}

/// Throws ShapeError, MismatchError, TransitionError or DTypeError for a tensor that is not stored as the target says.
/// `shape` and `dtype` are those it is loaded as.
inline void check_target(StoredTensor const& stored, LocalTensor const& target, DType dtype, DynamicShape const& shape,
                         CheckpointKind kind) {
    bool const packed = !is_byte_sized(stored.dtype);
    std::string const note = !packed ? std::string()
                                     : concat(" (bytes of ", name(stored.dtype), " ", to_string(stored.shape),
                                              ", whose elements are smaller than a byte)");
    check_within(target.distribution.shape(), target.within,
                 [&](std::string const& why) { raise_wanted(ErrorCode::shape, target.name, why); });
    if (whole_shape(target) != shape) {
        DynamicShape const& asked = whole_shape(target);
        bool const whole = target.within.is_whole();
        bool const fits = whole && asked.rank() == shape.rank() && contains(Box(shape), Box(asked));
        raise_wanted(
            ErrorCode::mismatch, target.name,
            concat("the checkpoint has shape ", to_string(shape), note, ", the list says ", whole ? "" : "a box of ",
                   to_string(asked), ". Fix: ",
                   packed ? concat("list it as U8 ", to_string(shape)) : "build the list from the model that was saved",
                   fits ? "; of a box of the larger tensor, say in LocalTensor::within where it lies" : "",
                   kind == CheckpointKind::shards
                       ? "; see that the file of the last rank is there, for PyTorch's shards do not say how "
                         "many ranks saved"
                       : "",
                   "."));
    }
    if (target.view.dtype() != dtype) {
        raise_wanted(
            ErrorCode::mismatch, target.name,
            concat("the checkpoint has ", name(dtype), " elements", note, ", the list says ", name(target.view.dtype()),
                   ". Fix: load as ", name(dtype),
                   packed                                    ? ", and let the program unpack them."
                   : can_convert(dtype, target.view.dtype()) ? " and cast with reshard::redistribute(..., Casting{})."
                                                             : "; no cast leads from there to the other."));
    }
    check_reductions(target.distribution, dtype,
                     [&](std::string const& why) { raise_wanted(ErrorCode::dtype, target.name, why); });
}

/// Appends the extents of one target that some rank reads, and returns the place of the tensor that they are of: of the
/// tensor of that name; else, for `w.__tp_replica_5` of k copies, of copy (5 mod k) of w. Only what all ranks know
/// alike is looked at, so that all throw alike: name, distribution and element type.
inline std::size_t append_wanted(std::vector<WantedExtent>& wanted, Catalogue const& catalogue,
                                 LocalTensor const& target, std::size_t place, LoadOptions const& options) {
    std::string renamed;
    bool const is_renamed = std::any_of(options.rename.begin(), options.rename.end(), [&](auto const& rename) {
        return rename_to(rename.second, rename.first, target.name, renamed);
    });
    std::string const& name = is_renamed ? renamed : target.name;
    StoredTensor const* found = catalogue.find(name);
    auto const copy = found == nullptr ? replica_name(name) : std::nullopt;
    if (copy) found = catalogue.find(copy->tensor);
    if (found == nullptr) raise_not_found(catalogue, name, copy ? copy->tensor : std::string_view(name));
    StoredTensor const& stored = *found;
    auto const tensor = as_size(found - catalogue.tensors().data());
    LineTensor moved = line_tensor(stored, stored.dtype);
    if (moved.is_raw) moved.shape = loaded_shape(stored, target);
    check_target(stored, target, moved.from, moved.shape, catalogue.kind());
    bool const chosen = copy || stored.replicas == 1;
    unsigned const axes = chosen ? 0 : replica_axes_of(target, stored.replicas, options);
    auto const add = [&](std::size_t i, Box const& box, Box const&) {
        Extent const& extent = catalogue.extents()[i];
        int const replicas = chosen ? 1 : stored.replicas;
        WantedExtent one{place, i, extent.file, extent.begin, moved.from, box, extent.replica, replicas, axes};
        if (one.is_for_any(target.distribution.mesh())) wanted.push_back(one);
    };
    int const replica = copy ? copy->replica % stored.replicas : -1;
    for_each_part(catalogue, tensor, moved, replica, box_in_whole(target), add);
    return tensor;
}

/// Who wants rows of an extent that touch reads them together: the first of them all, the others nothing.
/// \pre `wanted` is sorted by extent
inline void read_together(std::span<WantedExtent> wanted, std::span<LocalTensor const> targets) {
    for (WantedExtent& one : wanted) {
        int const dim = row_dim(one.box);
        if (dim < one.box.rank()) one.rows = box_in_whole(targets[one.target])[dim];
    }
    sort_list(wanted, [](WantedExtent const& a, WantedExtent const& b) {
        int const p = a.box.rank();  // of packed elements two forms may be listed, whose rows are not the same
        int const q = b.box.rank();
        return std::tie(a.extent, p, a.rows.begin, a.target) < std::tie(b.extent, q, b.rows.begin, b.target);
    });
    WantedExtent* first = nullptr;
    for (WantedExtent& one : wanted) {
        bool const beside = first != nullptr && first->extent == one.extent && first->box == one.box;
        if (beside && one.rows.begin <= first->rows.end) {
            first->rows.end = larger(first->rows.end, one.rows.end);
            one.rows = {};
        } else {
            first = &one;
        }
    }
}

/// Throws FormatError (DuplicateKey) where two tensors are renamed to a name of the list, each by its whole name: of
/// patterns the first that fits counts.
inline void refuse_two_for(std::string_view name, Catalogue const& catalogue, LoadOptions const& options) {
    std::string const* first = nullptr;
    for (auto const& [tensor, renamed] : options.rename) {
        if (renamed != name || catalogue.find(tensor) == nullptr) continue;
        if (first != nullptr && *first != tensor) {
            raise_rule(SafetensorsRule::duplicate_key, "reshard::LoadOptions: rename makes both ", quote_name(*first),
                       " and ", quote_name(tensor), " of the checkpoint ", quote_name(name),
                       ". Fix: give each a name of its own.");
        }
        first = &tensor;
    }
}

/// Sorted by (file, begin), as the files are read and the catalogue is, then by what is read. `not_listed` gets the
/// names of tensors that no target is of. Throws FormatError (TensorNotFound), ShapeError, MismatchError, MeshError,
/// TransitionError, DTypeError.
[[nodiscard]] inline std::vector<WantedExtent> match(Catalogue const& catalogue, std::span<LocalTensor const> targets,
                                                     LoadOptions const& options = {},
                                                     std::vector<std::string>* not_listed = nullptr) {
    for (auto const& rename : options.rename) {
        if (is_rename(rename)) continue;
        raise(ErrorCode::format, "reshard::LoadOptions: rename of ", quote_name(rename.first), " to ",
              quote_name(rename.second), rename_fix);
    }
    std::vector<WantedExtent> wanted;
    wanted.reserve(targets.size());
    std::vector<bool> listed(catalogue.tensors().size());
    for (LocalTensor const& target : targets) refuse_two_for(target.name, catalogue, options);
    for (std::size_t i = 0; i < targets.size(); ++i)
        listed[append_wanted(wanted, catalogue, targets[i], i, options)] = true;
    for (std::size_t t = 0; t < listed.size() && not_listed != nullptr; ++t)
        if (!listed[t]) not_listed->push_back(catalogue.tensors()[t].name);
    read_together(wanted, targets);
    return wanted;
}

/// Throws TransitionError for identities on a device that is only copied.
inline void check_identities(std::span<LocalTensor const> targets, int rank, MemoryPolicy const* memory) {
    for (LocalTensor const& target : targets) {
        DynamicDistribution const& to = target.distribution;
        if (!to.contains(rank) || partial_part(to, to.mesh().coordinates(rank)).has_values) continue;
        MemoryPolicy const* const onto = policy_for(memory, target.view.data());
        if (onto == nullptr || onto->copies_only().empty()) continue;
        raise_wanted(ErrorCode::transition, target.name,
                     concat("holds the identity of a Partial on rank ", rank,
                            ", and this communicator only copies memory of a device. Fix: ", onto->copies_only()));
    }
}
/// Where a rank holds identities: nobody has to send them. On devices `memory` does it.
inline void fill_identities(std::span<LocalTensor const> targets, int rank, MemoryPolicy const* memory = nullptr) {
    for (LocalTensor const& target : targets) {
        DynamicDistribution const& to = target.distribution;
        if (!to.contains(rank)) continue;
        PartialPart const part = partial_part(to, to.mesh().coordinates(rank));
        if (part.has_values) continue;
        StridedBox const box = strided_box(target.view);
        if (MemoryPolicy const* const onto = policy_for(memory, target.view.data())) {
            onto->fill_identity(part.op, target.view.dtype(), target.view.data(), box);
        } else {
            fill_identity(part.op, target.view.dtype(), target.view.data(), box);
        }
    }
}

}  // namespace reshard::inline v0_1::detail
