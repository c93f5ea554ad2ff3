// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/memory/copy.cuh
/// \brief  Strided boxes of device memory: copied (pack, unpack), or reduced and cast, many of them in one launch.
/// \depends core, memory/cuda_check.cuh, memory/detail/box_kernels.hpp.
///
///     device_copy(from, from_box, to, to_box, stream);                     // one box, one launch
///
///     DeviceBoxes boxes;                                                   // many, prepared once, run often
///     for (...) boxes.copy(from, from_box, to, to_box);
///     for (...) boxes.fold(Reduce::sum, DType::bf16, slots, slot_box, slot_bytes, ranks, DType::f32, to, to_box);
///     boxes.upload(workspace, stream);                                     // workspace_bytes() of the device
///     boxes.run(stream);                                                   // launches, nothing else
///
/// Copies move up to 16 bytes an access, as addresses, rows and strides allow; any alignment is legal. Folds take
/// addends in ascending order, with the accumulators of the host's fold(): the same bits, but for which NaN of several
/// is handed on.
#pragma once

#include <reshard/memory/cuda_check.cuh>
#include <reshard/memory/detail/box_kernels.hpp>

#include <vector>  // vector

namespace reshard::inline v0 {

namespace detail {

// Templates, so that every file that includes this may have them.
template <class Box>
__global__ void __launch_bounds__(box_threads) copy_box_kernel(Box box) {
    copy_thread(box, blockIdx.x, static_cast<int>(threadIdx.x));
}

/// The box a tile of a batch belongs to: the last one that starts at or before it. All threads read the same numbers.
[[nodiscard]] RESHARD_HOST_DEVICE constexpr int box_of_tile(Index const* starts, int boxes, Index tile) noexcept {
    int low = 0;
    int high = boxes;
    while (high - low > 1) {
        int const middle = low + (high - low) / 2;
        (starts[middle] <= tile ? low : high) = middle;
    }
    return low;
}

template <class Box>
__global__ void __launch_bounds__(box_threads) copy_boxes_kernel(Box const* boxes, Index const* starts, int count) {
    int const number = box_of_tile(starts, count, blockIdx.x);
    copy_thread(boxes[number], static_cast<Index>(blockIdx.x) - starts[number], static_cast<int>(threadIdx.x));
}

template <class A>
__global__ void __launch_bounds__(box_threads) fold_boxes_kernel(FoldBox const* boxes, Index const* starts, int count) {
    int const number = box_of_tile(starts, count, blockIdx.x);
    fold_thread<A>(boxes[number], static_cast<Index>(blockIdx.x) - starts[number], static_cast<int>(threadIdx.x));
}

[[nodiscard]] inline unsigned box_grid(Index tiles) {
    if (tiles > INT32_MAX) {
        raise(ErrorCode::shape, concat("reshard: boxes of ", tiles,
                                       " tiles need more blocks than a launch has. Fix: copy fewer at once."));
    }
    return static_cast<unsigned>(tiles);
}

inline void check_boxes(char const* who, StridedBox const& from, StridedBox const& to) {
    bool same = from.dims.size() == to.dims.size();
    for (int d = 0; same && d < to.dims.size(); ++d) same = from.dims[d].extent == to.dims[d].extent;
    if (same) return;
    raise(ErrorCode::shape, concat(who,
                                   ": the boxes have different extents. Fix: give both the same extents in the "
                                   "same order."));
}

inline void check_copy(char const* who, void const* from, StridedBox const& from_box, void const* to,
                       StridedBox const& to_box) {
    check_boxes(who, from_box, to_box);
    if (from_box.element_bytes != to_box.element_bytes || to_box.element_bytes < 1) {
        raise(ErrorCode::dtype,
              concat(who, ": elements of ", from_box.element_bytes, " bytes cannot be copied into those of ",
                     to_box.element_bytes, ". Fix: use fold(), which casts."));
    }
    check_device_memory(who, "the source", -1, from, to_box.elements());
    check_device_memory(who, "the destination", -1, to, to_box.elements());
}

}  // namespace detail

/// Element k of `from_box` becomes element k of `to_box`: copy() of memory/copy.hpp for device memory, and as there
/// boxes do not overlap. Returns at once; may be captured in a graph. Throws ShapeError for different extents,
/// DTypeError for elements of different sizes, BufferError for memory that is not the current device's, TransportError
/// when CUDA refuses the launch.
inline void device_copy(std::byte const* from, StridedBox const& from_box, std::byte* to, StridedBox const& to_box,
                        cudaStream_t stream) {
    detail::check_copy("reshard::device_copy", from, from_box, to, to_box);
    detail::CopyBox const box = detail::copy_box(from, from_box, to, to_box);
    if (box.loops.units == 0) return;
    unsigned const grid = detail::box_grid(ceil_div(box.loops.units, detail::box_tile));
    detail::copy_box_kernel<<<grid, detail::box_threads, 0, stream>>>(box);
    detail::check_cuda(cudaGetLastError(), "the launch of reshard's copy kernel");
}

/// Copies and folds of many boxes: one launch for all copies, one for the folds of each kind of accumulator. Boxes are
/// independent of each other: none reads what another writes. Used by one thread at a time.
class DeviceBoxes {
public:
    /// Throws as device_copy(); then the batch is as it was.
    void copy(std::byte const* from, StridedBox const& from_box, std::byte* to, StridedBox const& to_box) {
        detail::check_copy("reshard::DeviceBoxes::copy", from, from_box, to, to_box);
        copies_.add(detail::copy_box(from, from_box, to, to_box));
        uploaded_ = false;
    }

    /// Element e of `to_box` = op over k = 0 ... slots - 1, ascending, of element e of slot k, which starts at
    /// `from + k * slot_stride` (bytes); sums of floats are divided by `divisor`; rounded once to `to_type`. One slot
    /// is a cast. Throws DTypeError for what can_fold_into() refuses, ShapeError for other extents or no slot,
    /// BufferError for memory that is not the device's or not aligned to its elements.
    void fold(Reduce op, DType from_type, std::byte const* from, StridedBox const& slot_box, Index slot_stride,
              Index slots, DType to_type, std::byte* to, StridedBox const& to_box, Index divisor = 1) {
        constexpr auto who = "reshard::DeviceBoxes::fold";
        detail::check_boxes(who, slot_box, to_box);
        if (!detail::can_fold_into(op, from_type, to_type) || slot_box.element_bytes != bytes(from_type) ||
            to_box.element_bytes != bytes(to_type)) {
            raise(ErrorCode::dtype,
                  concat(who, ": ", name(op), " of ", name(from_type), " into ", name(to_type), ", elements of ",
                         slot_box.element_bytes, " and ", to_box.element_bytes,
                         " bytes, is not defined. Fix: fold into the same type, or floats into floats of up to 32 "
                         "bits; element_bytes are those of the types."));
        }
        if (slots < 1 || divisor == 0) {
            raise(ErrorCode::shape, concat(who, ": ", slots, " slots divided by ", divisor,
                                           ". Fix: give at least one slot, and a divisor that is not 0."));
        }
        detail::check_device_memory(who, "the slots", -1, from, to_box.elements());
        detail::check_device_memory(who, "the destination", -1, to, to_box.elements());
        auto const box =
            detail::fold_box(op, from_type, from, slot_box, slot_stride, slots, to_type, to, to_box, divisor);
        if (box.loops.units != 0 && !detail::is_aligned(box)) {
            raise(ErrorCode::buffer, concat(who,
                                            ": elements are not aligned to their size. Fix: align addresses and "
                                            "strides; copies need no alignment."));
        }
        folds_[static_cast<int>(detail::carrier_of(from_type))].add(box);
        uploaded_ = false;
    }

    /// Bytes of device memory, aligned to 256, that upload() asks for and run() goes on using.
    [[nodiscard]] Index workspace_bytes() const {
        Index total = copies_.bytes();
        for (auto const& list : folds_) total += list.bytes();
        return total;
    }

    /// Hands the list to the device. Not to be captured: a graph captures run().
    void upload(std::span<std::byte> workspace, cudaStream_t stream) {
        detail::check_device_span("reshard::DeviceBoxes::upload", "workspace", workspace, workspace_bytes(), 16);
        std::byte* at = copies_.upload(workspace.data(), stream);
        for (auto& list : folds_) at = list.upload(at, stream);
        uploaded_ = true;
    }

    /// Launches. Throws TransitionError when boxes were added since upload().
    void run(cudaStream_t stream) const {
        if (!uploaded_) {
            if (workspace_bytes() == 0) return;
            raise(ErrorCode::transition,
                  "reshard::DeviceBoxes::run: the list is not on the device. Fix: call upload() after the last box.");
        }
        if (copies_.tiles != 0) {
            detail::copy_boxes_kernel<<<detail::box_grid(copies_.tiles), detail::box_threads, 0, stream>>>(
                copies_.device, copies_.device_starts, copies_.count());
        }
        run_folds<float>(detail::FoldCarrier::f32, stream);
        run_folds<double>(detail::FoldCarrier::f64, stream);
        run_folds<std::int64_t>(detail::FoldCarrier::i64, stream);
        run_folds<std::uint64_t>(detail::FoldCarrier::u64, stream);
        detail::check_cuda(cudaGetLastError(), "the launch of reshard's box kernels");
    }

private:
    template <class Box>
    struct List {
        std::vector<Box> boxes;
        std::vector<Index> starts;  ///< first tile of each box
        Index tiles = 0;
        Box* device = nullptr;
        Index* device_starts = nullptr;

        [[nodiscard]] int count() const { return static_cast<int>(boxes.size()); }
        void add(Box const& box) {
            if (box.loops.units == 0) return;
            Index const more = ceil_div(box.loops.units, detail::box_tile);
            static_cast<void>(detail::box_grid(tiles + more));
            boxes.push_back(box);
            starts.push_back(tiles);
            tiles += more;
        }
        [[nodiscard]] static Index rounded(std::size_t bytes) { return static_cast<Index>((bytes + 255) / 256 * 256); }
        [[nodiscard]] Index bytes() const {
            return rounded(boxes.size() * sizeof(Box)) + rounded(starts.size() * sizeof(Index));
        }
        std::byte* upload(std::byte* at, cudaStream_t stream) {
            if (boxes.empty()) return at;
            device = reinterpret_cast<Box*>(at);
            at += rounded(boxes.size() * sizeof(Box));
            device_starts = reinterpret_cast<Index*>(at);
            at += rounded(starts.size() * sizeof(Index));
            detail::check_cuda(
                cudaMemcpyAsync(device, boxes.data(), boxes.size() * sizeof(Box), cudaMemcpyHostToDevice, stream),
                "cudaMemcpyAsync");
            detail::check_cuda(cudaMemcpyAsync(device_starts, starts.data(), starts.size() * sizeof(Index),
                                               cudaMemcpyHostToDevice, stream),
                               "cudaMemcpyAsync");
            return at;
        }
    };

    template <class A>
    void run_folds(detail::FoldCarrier carrier, cudaStream_t stream) const {
        List<detail::FoldBox> const& list = folds_[static_cast<int>(carrier)];
        if (list.tiles == 0) return;
        detail::fold_boxes_kernel<A><<<detail::box_grid(list.tiles), detail::box_threads, 0, stream>>>(
            list.device, list.device_starts, list.count());
    }

    List<detail::CopyBox> copies_;
    List<detail::FoldBox> folds_[4];
    bool uploaded_ = false;
};

}  // namespace reshard::inline v0
