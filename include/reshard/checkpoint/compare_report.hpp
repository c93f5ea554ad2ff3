// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/compare_report.hpp
/// \brief  What comparing two checkpoints is told, and what it finds.
/// \depends checkpoint/read_options, core. Values only.
#pragma once

#include <reshard/checkpoint/read_options.hpp>
#include <reshard/core/dtype.hpp>
#include <reshard/core/shape.hpp>

#include <cstdint>     // uint64_t
#include <functional>  // function
#include <string>      // string
#include <vector>      // vector

namespace reshard::inline v0 {

/// How a tensor of one checkpoint differs from that of the other.
enum class DifferenceKind : int {
    only_first,   ///< the second checkpoint has none of that name
    only_second,  ///< the first has none
    form,         ///< another shape or element type: no values are compared
    values,
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
    std::string tensor;
    DType dtype = DType::u8;  ///< in the first checkpoint, if it has the tensor; so is the shape
    DynamicShape shape;
    DType other_dtype = DType::u8;  ///< in the second, if it has the tensor
    DynamicShape other_shape;
    Index elements = 0;                    ///< that differ
    double largest = 0;                    ///< distance of two numbers that differ; floats only, NaN and infinity apart
    std::vector<DifferentElement> places;  ///< the first of them, CompareOptions::most_elements at most
};

struct CompareOptions {
    int most_elements = 5;                ///< listed for each tensor; all are counted
    Index window_bytes = Index{8} << 20;  ///< of each checkpoint, that a rank holds at once; one element at least
    ReadOptions reads{};
    /// Called with the bytes that this rank has compared, and all that it compares.
    std::function<void(Index done, Index total)> progress{};
};

/// The same on every rank.
struct CompareReport {
    Index tensors = 0;                              ///< with that name, shape and type in both
    Index elements = 0;                             ///< of these
    Index bytes = 0;                                ///< of these, in one of the checkpoints
    std::vector<CheckpointDifference> differences;  ///< sorted by the tensor's name

    [[nodiscard]] bool equal() const noexcept { return differences.empty(); }
};

}  // namespace reshard::inline v0
