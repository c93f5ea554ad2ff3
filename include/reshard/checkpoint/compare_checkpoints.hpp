// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/compare_checkpoints.hpp
/// \brief  Are two checkpoints equal, however they are cut into files? If not: which tensor, where, and both values.
/// \depends checkpoint/{manifest,read_options}, comm/any_communicator. Link reshard::checkpoint.
///
///     CompareReport const report = compare_checkpoints("sharded", "full", comm);
///     std::fputs(explain(report).c_str(), stdout);
#pragma once

#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/read_options.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/core/dtype.hpp>
#include <reshard/core/shape.hpp>

#include <functional>  // function
#include <vector>      // vector

namespace reshard::inline v0_1 {

/// How a tensor of one checkpoint differs from that of the other.
enum class DifferenceKind : int {
    only_first,   ///< the second checkpoint has none of that name
    only_second,  ///< the first has none
    form,         ///< another shape, or an element type that is not compared with this one
    values,
    table,  ///< a managed-collision table of both, in what is no tensor of it: hash size, policy, iteration
};

/// Bits of one element in both.
struct DifferentElement {
    Index place = 0;  ///< in row-major order of the tensor, or of its bytes where elements are smaller than one
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    friend bool operator==(DifferentElement const&, DifferentElement const&) = default;
};

struct CheckpointDifference {
    DifferenceKind kind = DifferenceKind::values;
    std::string tensor;       ///< or table, of which nothing else is said here than the last three
    int copy = 0;             ///< kind values: of those that were saved apart
    DType dtype = DType::u8;  ///< in the first checkpoint, if it has the tensor; so is the shape
    DynamicShape shape;
    DType other_dtype = DType::u8;  ///< in the second, if it has the tensor
    DynamicShape other_shape{};
    Index elements = 0;  ///< that differ; bytes, where elements are smaller than one
    Index measured = 0;  ///< of these, those with a distance: floats, neither of them NaN or infinite
    double largest = 0;  ///< distance of two of these
    std::vector<DifferentElement> places{};  ///< the first of them, CompareOptions::most_elements at most
    std::string field{};                     ///< of a table: the first that differs, as docs/mch-format.md calls it
    std::string first_value{};               ///< of the field; "absent" where there is none
    std::string second_value{};
};

/// All ranks give the same tolerances, ignore_dtype, rename and most_elements, or get MismatchError.
struct CompareOptions {
    /// Floats a of the first and b of the second checkpoint are equal if |a - b| <= atol + rtol * |b|, as for
    /// numpy.allclose and torch.testing.assert_close, or if their bits are. 0 and 0: if their bits are.
    double rtol = 0;
    double atol = 0;
    /// Floats of different element types are compared, too, as numbers: -0 equals 0, and any NaN any other.
    bool ignore_dtype = false;
    /// (name in the first checkpoint, name in the second), as in RewriteOptions: the first is compared as if it had
    /// been written with these, and the report has the new names.
    std::vector<std::pair<std::string, std::string>> rename{};
    int most_elements = 5;                ///< listed for each tensor; all are counted
    Index window_bytes = Index{8} << 20;  ///< of each checkpoint, that a rank holds at once; one element at least
    ReadOptions reads{};
    /// Called with the bytes that this rank has compared, and all that it compares.
    std::function<void(Index done, Index total)> progress{};
};

/// The same on every rank.
struct CompareReport {
    CheckpointKind first_kind = CheckpointKind::file;
    CheckpointKind second_kind = CheckpointKind::file;
    Index tensors = 0;   ///< with that name and shape in both, and a type that is compared
    Index elements = 0;  ///< of these, and of their copies
    Index bytes = 0;     ///< of these, in the first checkpoint
    double rtol = 0;     ///< as they were asked for
    double atol = 0;
    Index copies_not_compared = 0;  ///< of these, of both checkpoints, beyond the first, where they have not as many
    std::vector<CheckpointDifference> differences;  ///< sorted by the name of the tensor, or table

    [[nodiscard]] bool equal() const noexcept { return differences.empty(); }
};

/// Collective over `comm`. Both are as in Checkpoint::open(): shards of this library or of PyTorch's DCP, full files.
/// All ranks give the same paths and see the same folders. Each rank compares an equal part of the bytes, of both
/// checkpoints, a window at a time: memory does not grow with tensors or files, and of files only those are open that
/// the part lies in.
///
/// Elements are equal if their bits are: -0 and 0 differ, and a NaN is equal to itself; options let floats that are
/// close be equal, too. Copies that were saved apart are compared one by one where both checkpoints have as many of a
/// tensor, else the first of each. Metadata, file names and how tensors are cut do not count, but for what metadata say
/// of managed-collision tables that both have (not of which ranks had which slots). Sums are not compared:
/// verify_checkpoint() does that.
///
/// Throws the same error on every rank: what Checkpoint::open() throws, IoError for files that cannot be read or that
/// change meanwhile, FormatError for renames that no tensor has or after which two have one name, BufferError for
/// options that mean nothing, OutOfMemory.
[[nodiscard]] CompareReport compare_checkpoints(std::string const& first, std::string const& second,
                                                CommunicatorRef comm, CompareOptions const& options = {});

/// A line for each difference, below it the elements that are listed; `equal: ...` where there is none. A note where
/// one of the two is of PyTorch's shards.
[[nodiscard]] std::string explain(CompareReport const& report);

/// `[3,7]`: the index of an element of a difference. For elements smaller than a byte, `byte 7`.
[[nodiscard]] std::string index_text(CheckpointDifference const& difference, Index place);
/// `1.25 (0x3fa00000)`; integers without their bits. Of the second checkpoint where `other`.
[[nodiscard]] std::string value_text(CheckpointDifference const& difference, std::uint64_t bits, bool other = false);

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED_CHECKPOINT)
#include <reshard/checkpoint/compare_checkpoints.ipp>
#endif
