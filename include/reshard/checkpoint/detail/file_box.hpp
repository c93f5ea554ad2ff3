// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/file_box.hpp
/// \brief  A box of a file that goes to a box of memory: where its bytes lie, and how a part of the file fills it.
/// \depends core, memory/place.hpp. No allocation, no input or output.
#pragma once

#include <reshard/memory/loop_nest.hpp>
#include <reshard/memory/place.hpp>

namespace reshard::inline v0_1::detail {

/// A box of a file that goes to a box of memory: element k of one is element k of the other (same extents). A zero
/// extent reads nothing; a box without dimensions is one element.
struct ReadBox {
    int file = 0;             ///< any number >= 0 that `read_at` knows
    Index offset = 0;         ///< bytes from the start of the file (or of its data section) to the box's first element
    StridedBox in_file;       ///< strides in bytes, in any order, zero or more
    std::byte* to = nullptr;  ///< address of the first element in memory; null: it is counted, or read and not kept
    StridedBox in_memory;     ///< strides in bytes
    MemoryPolicy const* onto = nullptr;  ///< what brings it there, where that is a device's
};

/// Where a box of a file lies: loops outer to inner by their strides in the file (`to` is the stride in the file,
/// `from` the one in memory), so that its bytes come in the order of the file.
///
/// Units are what reads are made of: parts of the file that are read as one whatever the options say, because at
/// most `page_bytes` lie between their runs. A box is never asked for its runs, only for its units, which are more than
/// a page apart (or `direct_bytes` long): listing them costs next to nothing beside reading them.
class FileBox {
public:
    /// What lies between two runs is read when it is at most a page: the operating system reads it in any case.
    static constexpr Index page_bytes = 4096;

    /// \pre box has elements. From direct_bytes on, a run whose memory is contiguous is a unit.
    FileBox(ReadBox const& box, Index direct_bytes) noexcept
        : nest_(loop_nest(box.in_memory, box.in_file)),
          to_(box.to + nest_.from_offset),
          begin_(box.offset + nest_.to_offset),
          element_bytes_(box.in_file.element_bytes),
          onto_(box.onto),
          file_(box.file) {
        int const loops = nest_.dims.size();
        // Loops that do not step over all that is inside them visit bytes out of order: one unit has them all.
        int tangled = loops;
        spans_[loops] = element_bytes_;
        for (int d = loops - 1; d >= 0; --d) {
            LoopDim const& dim = nest_.dims[d];
            if (dim.to < spans_[d + 1]) tangled = d;
            spans_[d] = (dim.extent - 1) * dim.to + spans_[d + 1];
        }
        unit_wanted_ = element_bytes_;
        unit_loop_ = loops;
        for (int d = loops - 1; d >= 0; --d) {
            LoopDim const& dim = nest_.dims[d];
            Index const span = spans_[d + 1];
            bool const dense = unit_is_dense_ && dim.to == span && dim.from == span;
            if (!dense && d < tangled) {
                if (unit_is_dense_ && span >= direct_bytes) break;
                if (dim.to - span > page_bytes) break;
            }
            unit_is_dense_ = dense;
            unit_wanted_ *= dim.extent;
            unit_loop_ = d;
        }
    }

    [[nodiscard]] int file() const noexcept { return file_; }
    /// First byte of the file that belongs to the box, and one past the last.
    [[nodiscard]] Index begin() const noexcept { return begin_; }
    [[nodiscard]] Index end() const noexcept { return begin_ + spans_[0]; }

    /// Bytes of a unit from its first to its last, and those of them that go to memory (again, if they go twice).
    [[nodiscard]] Index unit_bytes() const noexcept { return spans_[unit_loop_]; }
    [[nodiscard]] Index unit_wanted() const noexcept { return unit_wanted_; }
    /// Whether a unit is one run that is one run in memory too.
    [[nodiscard]] bool unit_is_dense() const noexcept { return unit_is_dense_; }

    /// Steps through the units in the order of the file.
    class Cursor {
    public:
        explicit Cursor(FileBox const& box) noexcept : box_(&box), begin_(box.begin_) {}
        [[nodiscard]] FileBox const& box() const noexcept { return *box_; }
        [[nodiscard]] Index begin() const noexcept { return begin_; }
        /// Null where nothing can be read straight into the box: it is only counted, or is memory of a device.
        [[nodiscard]] std::byte* to() const noexcept {
            return box_->to_ == nullptr || box_->onto_ != nullptr ? nullptr : box_->to_ + to_;
        }
        /// False when there are no more.
        [[nodiscard]] bool next() noexcept {
            for (int d = box_->unit_loop_ - 1; d >= 0; --d) {
                LoopDim const& dim = box_->nest_.dims[d];
                if (++at_[d] < dim.extent) {
                    begin_ += dim.to;
                    to_ += dim.from;
                    return true;
                }
                at_[d] = 0;
                begin_ -= dim.to * (dim.extent - 1);
                to_ -= dim.from * (dim.extent - 1);
            }
            return false;
        }

    private:
        FileBox const* box_;
        Index begin_;
        Index to_ = 0;  // from box_->to_
        Index at_[max_dims + 1] = {};
    };

    /// Copies what belongs to the box of `bytes`, which are the file's from `offset` on; nothing where it goes nowhere.
    void fill(std::byte const* bytes, Index offset, Index count, CopyHint hint) const {
        if (to_ == nullptr) return;
        fill(0, begin_, to_, {bytes, offset, offset + count, hint});
    }

private:
    struct Window {
        std::byte const* bytes;
        Index begin;
        Index end;
        CopyHint hint;
    };

    /// The first step of a loop from `at` whose inside does not end before or at `position`.
    [[nodiscard]] Index first_step(int loop, Index at, Index position) const noexcept {
        Index const beyond = position - at - spans_[loop + 1];
        return beyond < 0 || nest_.dims[loop].to == 0 ? 0 : beyond / nest_.dims[loop].to + 1;
    }
    /// The last step of a loop that starts before `position`. \pre at < position
    [[nodiscard]] Index last_step(int loop, Index at, Index position) const noexcept {
        LoopDim const& dim = nest_.dims[loop];
        return dim.to == 0 ? dim.extent - 1 : smaller(dim.extent, ceil_div(position - at, dim.to)) - 1;
    }

    /// Steps that lie in the window whole are one copy; those that its ends cut are taken apart.
    void fill(int loop, Index at, std::byte* to, Window const& window) const {
        Index const span = spans_[loop];
        if (at + span <= window.begin || at >= window.end) return;
        if (at >= window.begin && at + span <= window.end) {
            return fill_steps(loop, loop < nest_.dims.size() ? nest_.dims[loop].extent : 1, at, to, window);
        }
        if (loop == nest_.dims.size()) {  // the window cuts an element
            Index const begin = larger(at, window.begin);
            Index const end = smaller(at + span, window.end);
            StridedBox const part{{StridedDim{end - begin, 1}}, 1};
            return place(onto_, {0, window.bytes + (begin - window.begin), part}, {0, to + (begin - at), part});
        }
        LoopDim const& dim = nest_.dims[loop];
        Index const end = last_step(loop, at, window.end) + 1;
        Index i = first_step(loop, at, window.begin);
        // What lies whole in the window; of steps that are all the same bytes the window cuts each.
        Index const room = window.end - spans_[loop + 1] - at;
        Index const whole_end = dim.to == 0 || room < 0 ? 0 : smaller(end, room / dim.to + 1);
        Index const whole = dim.to == 0 ? end : larger(i, ceil_div(window.begin - at, dim.to));
        auto const fill_to = [&](Index stop) {
            for (; i < stop; ++i) fill(loop + 1, at + i * dim.to, to + i * dim.from, window);
        };
        fill_to(smaller(whole, end));
        if (i < whole_end) fill_steps(loop, whole_end - i, at + i * dim.to, to + i * dim.from, window);
        i = larger(i, whole_end);
        fill_to(end);
    }

    /// Copies `steps` steps of a loop and all that is inside them.
    void fill_steps(int loop, Index steps, Index at, std::byte* to, Window const& window) const {
        std::byte const* from = window.bytes + (at - window.begin);
        if (from == to) return;  // read straight into its place
        StridedBox from_box{{}, element_bytes_};
        StridedBox to_box{{}, element_bytes_};
        for (int d = loop; d < nest_.dims.size(); ++d) {
            LoopDim const& dim = nest_.dims[d];
            Index const extent = d == loop ? steps : dim.extent;
            from_box.dims.push_back({extent, dim.to});
            to_box.dims.push_back({extent, dim.from});
        }
        place(onto_, {0, from, from_box}, {0, to, to_box}, window.hint);
    }

    LoopNest nest_;
    std::byte* to_;
    Index begin_;
    Index element_bytes_;
    Index spans_[max_dims + 2] = {};  ///< bytes from the first to the last of what loop d and those inside it visit
    Index unit_wanted_ = 0;
    int unit_loop_ = 0;  ///< the loops before it step from unit to unit
    MemoryPolicy const* onto_;
    int file_;
    bool unit_is_dense_ = true;
};

}  // namespace reshard::inline v0_1::detail
