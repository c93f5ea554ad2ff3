// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/plan/topology.hpp
/// \brief  What ranks are connected by, as data: tiers from the innermost (a node) to the outermost (the cluster).
/// \depends core, <vector>. Not part of the umbrella. No presets: numbers belong to a machine.
#pragma once

#include <reshard/core/detail/explain_text.hpp>
#include <reshard/core/error.hpp>
#include <reshard/core/index.hpp>

#include <vector>  // vector

namespace reshard::inline v0_1 {

inline constexpr int max_tiers = 8;

/// One kind of link. Units of a tier are groups of `ranks` consecutive ranks: 0 .. ranks - 1, and so on. Two ranks
/// meet in the innermost tier that has both in one unit, and talk over that tier's links.
struct Tier {
    std::string name;      ///< "node", "rack", "cluster"
    Index ranks = 0;       ///< per unit; 0, in the outermost tier only: all the ranks there are
    double latency = 0;    ///< seconds that a message costs whatever its size
    double bandwidth = 0;  ///< bytes per second that one rank sends here, and receives at the same time
    /// Bytes per second that a whole unit sends to the ranks outside, and receives from them at the same time: a
    /// node's NICs together. 0: the ranks' own bandwidth is the only limit.
    double uplink = 0;

    friend bool operator==(Tier const&, Tier const&) = default;
};

namespace detail {

/// 1.2e-05 -> "12.0 us".
[[nodiscard]] inline std::string seconds_text(double seconds) {
    auto const text = [](double value, int digits, std::string_view unit) {
        return concat(number_text(value, digits, std::chars_format::fixed), unit);
    };
    if (seconds < 1e-3) return text(1e6 * seconds, 1, " us");
    if (seconds < 1) return text(1e3 * seconds, 1, " ms");
    return text(seconds, 2, " s");
}

}  // namespace detail

/// Tiers, inner to outer. Throws MeshError when there are none or more than 8, a name is empty, units do not nest
/// (each outer unit holds a whole number, at least two, of inner ones), latency or uplink is negative or bandwidth is
/// not positive, or a number is not finite.
class Topology {
public:
    explicit Topology(std::vector<Tier> tiers) : tiers_(std::move(tiers)) {
        if (tiers_.empty() || size() > max_tiers) {
            errors::raise(ErrorCode::mesh, "reshard::Topology: ", tiers_.size(), " tiers. Fix: give 1 to ", max_tiers,
                          ", the innermost first.");
        }
        for (int i = 0; i < size(); ++i) check(i);
    }

    [[nodiscard]] int size() const noexcept { return static_cast<int>(tiers_.size()); }
    [[nodiscard]] Tier const& tier(int i) const& noexcept { return tiers_[detail::as_size(i)]; }
    [[nodiscard]] std::vector<Tier> const& tiers() const& noexcept { return tiers_; }
    [[nodiscard]] Tier tier(int i) && noexcept { return std::move(tiers_[detail::as_size(i)]); }
    [[nodiscard]] std::vector<Tier> tiers() && noexcept { return std::move(tiers_); }

    /// The unit of tier `i` that holds a rank.
    [[nodiscard]] Index unit(int i, Index rank) const noexcept { return tier(i).ranks == 0 ? 0 : rank / tier(i).ranks; }
    /// Where two ranks meet. \pre the outermost unit holds both.
    [[nodiscard]] int tier_of(Index a, Index b) const noexcept {
        int i = 0;
        while (i + 1 < size() && unit(i, a) != unit(i, b)) ++i;
        return i;
    }
    /// Throws MeshError when a rank lies outside the outermost tier.
    void require(Index rank) const {
        Tier const& last = tiers_.back();
        if (last.ranks == 0 || rank < last.ranks) return;
        errors::raise(ErrorCode::mesh, "reshard::Topology: rank ", rank, " is outside the outermost tier '", last.name,
                      "' of ", last.ranks, " ranks. Fix: make it larger, or 0 for all ranks.");
    }

    friend bool operator==(Topology const&, Topology const&) = default;

private:
    void check(int i) const {
        Tier const& own = tier(i);
        bool const last = i + 1 == size();
        if (own.name.empty()) fail(i, "has no name. Fix: name it, \"node\" for example.");
        if (own.ranks < 0 || (own.ranks == 0 && !last)) {
            fail(i, "has ", own.ranks,
                 " ranks per unit. Fix: give one or more; 0, all ranks, is for the outermost tier alone.");
        }
        if (i > 0 && own.ranks != 0) {
            Index const inner = tier(i - 1).ranks;
            if (own.ranks % inner != 0 || own.ranks / inner < 2) {
                fail(i, "has ", own.ranks, " ranks per unit, the tier inside it ", inner,
                     ". Fix: a unit holds two or more whole units of the tier inside.");
            }
        }
        if (!is_finite(own.latency) || own.latency < 0) fail(i, "has a bad latency. Fix: give seconds, 0 or more.");
        if (!is_finite(own.bandwidth) || own.bandwidth <= 0) {
            fail(i, "has a bad bandwidth. Fix: give bytes per second, more than 0.");
        }
        if (!is_finite(own.uplink) || own.uplink < 0) {
            fail(i, "has a bad uplink. Fix: give bytes per second, or 0 when only the ranks' bandwidth counts.");
        }
    }
    template <class... Parts>
    [[noreturn]] void fail(int i, Parts const&... what) const {
        errors::raise(ErrorCode::mesh, "reshard::Topology: tier ", i, " '", tier(i).name, "' ", what...);
    }

    /// By its bits, so that it holds under -ffast-math as well. Sums and products of what is below 1e300 stay finite.
    [[nodiscard]] static bool is_finite(double value) noexcept {
        auto const bits = __builtin_bit_cast(std::uint64_t, value) & ~(std::uint64_t{1} << 63U);
        return bits < __builtin_bit_cast(std::uint64_t, 1e300);
    }

    std::vector<Tier> tiers_;
};

/// One line a tier: `node: 8 ranks, 2.0 us, 450 GB/s a rank, 400 GB/s out of a unit`.
[[nodiscard]] inline std::string to_string(Topology const& topology) {
    std::string text;
    for (Tier const& tier : topology.tiers()) {
        text += errors::concat(tier.name, ": ", tier.ranks == 0 ? std::string("all") : std::to_string(tier.ranks),
                               " ranks, ", detail::seconds_text(tier.latency), ", ",
                               detail::number_text(tier.bandwidth / 1e9, 3), " GB/s a rank");
        if (tier.uplink > 0)
            text += errors::concat(", ", detail::number_text(tier.uplink / 1e9, 3), " GB/s out of a unit");
        text += '\n';
    }
    return text;
}

}  // namespace reshard::inline v0_1
