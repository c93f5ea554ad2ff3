// SPDX-License-Identifier: Apache-2.0
/// \file   examples/trainer/click_log.hpp
/// \brief  What was shown and whether it was clicked: made from a seed, or read from a file.
/// \depends reshard/init/philox.hpp.
#pragma once

#include <reshard/init/initialize.hpp>
#include <reshard/init/philox.hpp>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace trainer {
using reshard::Index;

/// Every rank reads all of a batch: ids are few bytes beside what they stand for.
struct ClickBatch {
    std::vector<Index> ids;  ///< `fields` of each sample, one sample behind the other
    std::vector<float> labels;
};

/// A number in [0, 1) that belongs to a stream and an index.
inline double uniform(std::uint64_t seed, std::string_view stream, std::uint64_t index) {
    return reshard::philox4x32(index, reshard::name_stream(stream), seed).words[0] / 4294967296.0;
}

class ClickLog {
public:
    /// Sample n of a log without end: a few ids of each field are common and most are rare, and each id has a hidden
    /// weight that makes clicks more or less likely.
    ClickLog(Index fields, Index ids_per_field, std::uint64_t seed)
        : fields_(fields), ids_per_field_(ids_per_field), seed_(seed) {}

    /// Lines of `label,id,id,...`: 0 or 1, and 63-bit ids, the same number in each. Throws reshard::Error, naming the
    /// line.
    explicit ClickLog(std::string const& path) : path_(path) {
        std::ifstream file(path);
        if (!file) fail(reshard::ErrorCode::io, 0, std::strerror(errno), "name a file that can be read");
        std::string line;
        for (Index number = 1; std::getline(file, line); ++number) {
            Index ids = -1;
            char const* at = line.data();
            char const* const end = at + line.size();
            for (; at <= end; ++ids) {
                Index value = -1;
                auto const [behind, error] = std::from_chars(at, end, value);
                bool const good = error == std::errc() && value >= 0 && (behind == end || *behind == ',');
                if (!good || (ids < 0 && value > 1) || value == INT64_MAX) {
                    fail(reshard::ErrorCode::format, number, "is not 'label,id,id,...'",
                         "write a label of 0 or 1 and ids from 0 to 2^63 - 2");
                }
                ids < 0 ? labels_.push_back(static_cast<float>(value)) : ids_.push_back(value);
                at = behind + 1;
            }
            if (number == 1) fields_ = ids;
            if (ids != fields_ || ids == 0) {
                fail(reshard::ErrorCode::format, number,
                     reshard::errors::concat("has ", ids, " ids, the first has ", fields_),
                     "write as many in each line, at "
                     "least one");
            }
        }
        if (labels_.empty()) fail(reshard::ErrorCode::format, 0, "has no samples", "write lines of label,id,id,...");
    }

    [[nodiscard]] Index fields() const noexcept { return fields_; }
    /// Throws unless there are so many samples: before anything is trained on those that are there.
    void require(Index samples) const {
        auto const there = static_cast<Index>(labels_.size());
        if (path_.empty() || there >= samples) return;
        reshard::errors::raise(
            reshard::ErrorCode::mismatch,
            reshard::errors::concat(path_, ": the data ends after ", there, " samples, but ", samples,
                                    " are needed. Fix: fewer --steps, a smaller --batch, or more data."));
    }
    [[nodiscard]] ClickBatch batch(Index first, Index samples) const {
        ClickBatch batch;
        for (Index n = first; n < first + samples; ++n) {
            if (path_.empty()) {
                make(n, batch);
                continue;
            }
            auto const at = static_cast<std::ptrdiff_t>(n);
            batch.labels.push_back(labels_[static_cast<std::size_t>(n)]);
            batch.ids.insert(batch.ids.end(), ids_.begin() + at * fields_, ids_.begin() + (at + 1) * fields_);
        }
        return batch;
    }

private:
    void make(Index sample, ClickBatch& batch) const {
        double score = 0;
        for (Index field = 0; field < fields_; ++field) {
            auto const place = static_cast<std::uint64_t>(sample * fields_ + field);
            double const u = uniform(seed_, "click.id", place);
            auto const item = static_cast<std::uint64_t>(u * u * u * static_cast<double>(ids_per_field_));
            auto const key = item * static_cast<std::uint64_t>(fields_) + static_cast<std::uint64_t>(field);
            score += 4 * uniform(seed_, "click.weight", key) - 2;
            auto const& words = reshard::philox4x32(key, reshard::name_stream("click.name"), seed_).words;
            batch.ids.push_back(static_cast<Index>(words[0]) << 31 | static_cast<Index>(words[1] >> 1));
        }
        double const likely = 1 / (1 + std::exp(-2 * score));
        bool const clicked = uniform(seed_, "click.label", static_cast<std::uint64_t>(sample)) < likely;
        batch.labels.push_back(clicked ? 1.0F : 0.0F);
    }
    [[noreturn]] void fail(reshard::ErrorCode code, Index line, std::string const& what, char const* remedy) const {
        reshard::errors::raise(
            code, reshard::errors::concat(path_, line == 0 ? "" : reshard::errors::concat(", line ", line), ": ", what,
                                          ". Fix: ", remedy, "."));
    }

    Index fields_ = 0;
    Index ids_per_field_ = 0;
    std::uint64_t seed_ = 0;
    std::string path_;
    std::vector<Index> ids_;
    std::vector<float> labels_;
};

}  // namespace trainer
