// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/mch/detail/checkpoint_sums.hpp
/// \brief  CRC-32C of saved tensors, one for every run of 64 KiB: parts of a tensor are checked without all of it.
/// \depends checkpoint/{checksum,safetensors,safetensors_layout}, mch/detail/checkpoint_json.
#pragma once

#include <reshard/checkpoint/checksum.hpp>
#include <reshard/checkpoint/safetensors.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>
#include <reshard/mch/detail/checkpoint_json.hpp>

#include <cstring>  // memcpy

namespace reshard::inline v0::detail {

inline constexpr Index mch_run_bytes = Index{1} << 16U;  ///< of the format: the last run of a tensor may be shorter

/// Where a file's metadata has the sums of a tensor.
[[nodiscard]] inline std::string sums_key(std::string_view tensor) { return concat("crc32c.", tensor); }

/// Eight hexadecimal digits.
[[nodiscard]] inline std::string sum_text(std::span<std::byte const> bytes) {
    constexpr char const* digits = "0123456789abcdef";
    std::uint32_t const sum = crc32c(bytes);
    std::string text;
    for (unsigned shift = 32; shift != 0; shift -= 4) text += digits[(sum >> (shift - 4)) & 15U];
    return text;
}
/// Those of every run, one behind the other.
[[nodiscard]] inline std::string sums_text(std::span<std::byte const> bytes) {
    std::string text;
    constexpr auto run = static_cast<std::size_t>(mch_run_bytes);
    for (; !bytes.empty(); bytes = bytes.subspan(smaller(run, bytes.size()))) {
        text += sum_text(bytes.first(smaller(run, bytes.size())));
    }
    return text;
}

/// The sums of one tensor of an open file.
class MchSums {
public:
    /// Throws FormatError for a file without sums of that tensor, or with more or less than it has runs. \pre the file
    /// and the tensor outlive this.
    MchSums(SafetensorsFile const& file, TensorInfo const& tensor) : file_(file), tensor_(tensor) {
        std::string const key = sums_key(tensor.name);
        for (auto const& [name, value] : file.metadata())
            if (name == key) text_ = &value;
        if (text_ == nullptr) refuse(concat("its metadata has no ", quote_name(key)));
        auto const wanted = 8 * static_cast<std::size_t>(ceil_div(tensor.bytes(), mch_run_bytes));
        if (text_->size() == wanted) return;
        refuse(concat("its metadata has ", text_->size(), " digits of sums for tensor ", quote_name(tensor.name),
                      ", which has ", wanted));
    }

    /// Bytes [begin, end) of the tensor. Every run that has one of them is read whole and compared with its sum: throws
    /// FormatError for the first that differs; `to` is unspecified then. Returns how many bytes were read.
    Index read(Index begin, Index end, std::byte* to) const {
        Index bytes = 0;
        std::vector<std::byte> rim;
        for (Index at = begin; at < end;) {
            Index const first = at / mch_run_bytes * mch_run_bytes;
            Index last = smaller(first + mch_run_bytes, tensor_.bytes());
            if (at == first && last <= end) {  // and as many behind it as are wanted whole
                if (end == tensor_.bytes()) last = end;
                last = larger(last, end / mch_run_bytes * mch_run_bytes);
                read_runs(at, {to, static_cast<std::size_t>(last - at)});
            } else {
                rim.resize(static_cast<std::size_t>(last - first));
                read_runs(first, rim);
                bytes += at - first + last - smaller(last, end);
                last = smaller(last, end);
                std::memcpy(to, rim.data() + (at - first), static_cast<std::size_t>(last - at));
            }
            bytes += last - at;
            to += last - at;
            at = last;
        }
        return bytes;
    }

private:
    void read_runs(Index begin, std::span<std::byte> to) const {
        file_.read_range(tensor_, begin, begin + static_cast<Index>(to.size()), to);
        std::string const found = sums_text(to);
        auto const first = static_cast<std::size_t>(begin / mch_run_bytes);
        for (std::size_t at = 0; at < found.size(); at += 8) {
            std::string_view const was = std::string_view(*text_).substr(8 * first + at, 8);
            std::string_view const is = std::string_view(found).substr(at, 8);
            if (is == was) continue;
            Index const run = begin + static_cast<Index>(at / 8) * mch_run_bytes;
            refuse(concat("bytes ", run, " to ", smaller(run + mch_run_bytes, tensor_.bytes()), " of tensor ",
                          quote_name(tensor_.name), " have CRC-32C ", is, ", but had ", was, " when they were saved"));
        }
    }
    [[noreturn]] void refuse(std::string_view what) const {
        refuse_mch_file(file_.path(), what, "restore the file of this save, or load another save.");
    }

    SafetensorsFile const& file_;
    TensorInfo const& tensor_;
    std::string const* text_ = nullptr;
};

}  // namespace reshard::inline v0::detail
