// SPDX-License-Identifier: Apache-2.0
/// \file   tests/support/oracle.hpp
/// \brief  The dumbest correct program: which rank holds which elements, and what a distributed tensor means.
///
/// The tensor is one array in one process, and a cut is made by walking over a list of indices, as the definitions
/// of the split rules say. No closed form of the library is used: of a distribution only its plain data is read
/// (mesh extents and rank list, shape, placements, cutting order).
///
///     auto locals = oracle::scatter(global, from, rng);    // one local array per rank number
///     ... run the program under test ...
///     CHECK(oracle::gather(locals, to) == global);         // throws when replicas differ
#pragma once

#include <reshard/algebra/distribution.hpp>

#include <algorithm>  // binary_search
#include <cstring>    // memcmp
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace reshard::oracle {

using Coordinates = std::vector<Index>;
using Elements = std::vector<Index>;  ///< indices along one dimension, or row-major positions in the whole tensor

inline std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// ---- Ranks -------------------------------------------------------------------------------------------------------

/// The rank numbers of the mesh in row-major order.
inline std::vector<Index> ranks(DynamicDistribution const& distribution) {
    DynamicMesh const& mesh = distribution.mesh();
    Index count = 1;
    for (Index extent : mesh.extents()) count *= extent;
    std::vector<Index> result;
    for (Index i = 0; i < count; ++i) {
        result.push_back(mesh.ranks().ranks.empty() ? mesh.ranks().first + i : mesh.ranks().ranks[i]);
    }
    return result;
}

/// One coordinate per axis, counted up like an odometer; empty when the rank is not in the mesh.
inline Coordinates coordinates(DynamicDistribution const& distribution, Index rank) {
    Indices const& extents = distribution.mesh().extents();
    Coordinates position(at(extents.size()), 0);
    for (Index candidate : ranks(distribution)) {
        if (candidate == rank) return position;
        for (int axis = extents.size() - 1; axis >= 0; --axis) {
            if (++position[at(axis)] < extents[axis]) break;
            position[at(axis)] = 0;
        }
    }
    return {};
}

/// How many local arrays scatter makes: the highest rank number plus one.
inline Index rank_limit(DynamicDistribution const& distribution) {
    Index limit = 0;
    for (Index rank : ranks(distribution)) limit = std::max(limit, rank + 1);
    return limit;
}

// ---- Cutting, by definition --------------------------------------------------------------------------------------

/// Deals a list out to `parts` by the rule.
inline std::vector<Elements> cut(Elements const& list, SplitRule const& rule, Index parts) {
    std::vector<Elements> result(at(parts));
    auto const size = static_cast<Index>(list.size());
    if (rule.kind == SplitKind::chunk) {  // the smallest length that is enough for all, taken until nothing is left
        Index length = 0;
        while (length * parts < size) ++length;
        Index next = 0;
        for (auto& piece : result)
            for (Index i = 0; i < length && next < size; ++i) piece.push_back(list[at(next++)]);
    } else if (rule.kind == SplitKind::balanced) {  // sizes dealt one by one, then filled in order
        std::vector<Index> sizes(at(parts), 0);
        for (Index i = 0; i < size; ++i) ++sizes[at(i % parts)];
        Index next = 0;
        for (Index p = 0; p < parts; ++p)
            for (Index i = 0; i < sizes[at(p)]; ++i) result[at(p)].push_back(list[at(next++)]);
    } else if (rule.kind == SplitKind::boundaries) {
        for (Index p = 0; p < parts; ++p)
            for (Index i = rule.boundaries[p]; i < rule.boundaries[p + 1]; ++i) result[at(p)].push_back(list[at(i)]);
    } else if (rule.kind == SplitKind::strided) {  // every piece of the list is a list
        for (Elements const& piece : cut(list, {}, rule.block)) {
            std::vector<Elements> const shares = cut(piece, {}, parts);
            for (Index p = 0; p < parts; ++p)
                result[at(p)].insert(result[at(p)].end(), shares[at(p)].begin(), shares[at(p)].end());
        }
    } else {  // blocks like cards
        Index player = 0;
        Index in_block = 0;
        for (Index element : list) {
            result[at(player)].push_back(element);
            if (++in_block == rule.block) {
                in_block = 0;
                player = player + 1 == parts ? 0 : player + 1;
            }
        }
    }
    return result;
}

/// Per dimension the global indices the rank holds, in local order, which is ascending. \pre the rank is in the mesh.
inline std::vector<Elements> held_indices(DynamicDistribution const& distribution, Index rank) {
    Coordinates const position = coordinates(distribution, rank);
    std::vector<Elements> result;
    for (int dim = 0; dim < distribution.shape().rank(); ++dim) {
        Elements held;
        for (Index i = 0; i < distribution.shape().extent(dim); ++i) held.push_back(i);
        for (int axis : distribution.cuts(dim)) {
            SplitRule const& rule = distribution.placement(axis).rule();
            if (held.empty()) break;  // an empty piece has nothing to cut, whatever the rule's numbers say
            held = cut(held, rule, distribution.mesh().extent(axis))[at(position[at(axis)])];
        }
        result.push_back(held);
    }
    return result;
}

/// Row-major positions in the whole tensor of the elements a rank holds, in the order of its local memory.
inline Elements elements(DynamicDistribution const& distribution, Index rank) {
    std::vector<Elements> const held = held_indices(distribution, rank);
    Elements result{0};
    for (int dim = 0; dim < distribution.shape().rank(); ++dim) {
        Elements longer;
        longer.reserve(result.size() * held[at(dim)].size());
        for (Index prefix : result)
            for (Index i : held[at(dim)]) longer.push_back(prefix * distribution.shape().extent(dim) + i);
        result.swap(longer);
    }
    return result;
}

/// Calls visit(position, offset) for each of elements(), in that order, without a list of them: `offset` is where the
/// element lies in a local view with these strides.
template <class Visit>
void each_element(DynamicDistribution const& distribution, Index rank, Indices const& strides, Visit&& visit) {
    std::vector<Elements> const held = held_indices(distribution, rank);
    auto const walk = [&](auto const& self, int dim, Index position, Index offset) -> void {
        if (dim == distribution.shape().rank()) return visit(position, offset);
        Index const first = position * distribution.shape().extent(dim);
        for (Index i : held[at(dim)]) {
            self(self, dim + 1, first + i, offset);
            offset += strides[dim];
        }
    };
    walk(walk, 0, 0, 0);
}

/// How many elements the rank needs under `to` and does not hold under `from`, other meshes included: the least it
/// must receive. \pre no Partial in `from`.
inline Index missing(DynamicDistribution const& from, DynamicDistribution const& to, Index rank) {
    if (coordinates(to, rank).empty()) return 0;
    std::vector<Elements> const needed = held_indices(to, rank);
    Index wanted = 1;
    Index present = 1;
    for (auto const& list : needed) wanted *= static_cast<Index>(list.size());
    if (coordinates(from, rank).empty()) return wanted;
    std::vector<Elements> const held = held_indices(from, rank);
    for (std::size_t dim = 0; dim != needed.size(); ++dim) {
        Index both = 0;
        for (Index i : needed[dim]) both += std::binary_search(held[dim].begin(), held[dim].end(), i) ? 1 : 0;
        present *= both;
    }
    return wanted - present;
}

// ---- Meaning of Partial ------------------------------------------------------------------------------------------

/// The op all Partial axes share (sum when there are none), and how many addends there are.
struct Owed {
    Reduce op = Reduce::sum;
    Index addends = 1;
};
inline Owed owed(DynamicDistribution const& distribution) {
    Owed result;
    for (int axis = 0; axis < distribution.mesh().axes(); ++axis) {
        if (!distribution.placement(axis).is_partial()) continue;
        result.op = distribution.placement(axis).op();
        result.addends *= distribution.mesh().extent(axis);
    }
    return result;
}

/// Which addend a rank holds: its position among the Partial axes, row-major.
inline Index addend_of(DynamicDistribution const& distribution, Index rank) {
    Coordinates const position = coordinates(distribution, rank);
    Index result = 0;
    for (int axis = 0; axis < distribution.mesh().axes(); ++axis) {
        if (distribution.placement(axis).is_partial()) {
            result = result * distribution.mesh().extent(axis) + position[at(axis)];
        }
    }
    return result;
}

/// Integers wrap as unsigned 64-bit numbers do; 16-bit floats are computed in float.
template <class T>
using Wide = std::conditional_t<std::is_integral_v<T>, std::uint64_t,
                                std::conditional_t<std::is_same_v<T, double>, double, float>>;

template <class T>
Wide<T> widen(T value) {
    return static_cast<Wide<T>>(value);
}
template <class T>
T narrow(Wide<T> value) {
    return static_cast<T>(value);
}

/// One reduction step, in the order written.
template <class T>
T fold_two(Reduce op, T a, T b) {
    Wide<T> const x = widen(a);
    Wide<T> const y = widen(b);
    switch (op) {
        case Reduce::sum:
        case Reduce::avg: return narrow<T>(x + y);
        case Reduce::product: return narrow<T>(x * y);
        case Reduce::min:
            if constexpr (std::is_integral_v<T>)
                return b < a ? b : a;
            else
                return y < x ? b : a;
        case Reduce::max:
            if constexpr (std::is_integral_v<T>)
                return a < b ? b : a;
            else
                return x < y ? b : a;
        default: break;
    }
    if constexpr (std::is_integral_v<T>) {
        if (op == Reduce::band) return narrow<T>(x & y);
        if (op == Reduce::bor) return narrow<T>(x | y);
        return narrow<T>(x ^ y);
    }
    throw std::logic_error("oracle: bit operations need integers");
}

/// The value that addends mean.
template <class T>
T fold(Reduce op, std::vector<T> const& addends) {
    if constexpr (!std::is_integral_v<T>) {
        if (op == Reduce::sum || op == Reduce::avg || op == Reduce::product) {  // rounded once, at the end
            Wide<T> total = widen(addends[0]);
            for (std::size_t i = 1; i != addends.size(); ++i) {
                total = op == Reduce::product ? total * widen(addends[i]) : total + widen(addends[i]);
            }
            return narrow<T>(op == Reduce::avg ? total / static_cast<Wide<T>>(addends.size()) : total);
        }
    }
    if (op == Reduce::avg) throw std::logic_error("oracle: averages need floats");
    T total = addends[0];
    for (std::size_t i = 1; i != addends.size(); ++i) total = fold_two(op, total, addends[i]);
    return total;
}

/// `count` random addends whose reduction is exactly `value`. Floats: whole numbers up to 64 stay exact in every
/// format, bf16 included, for up to 24 addends.
template <class T>
std::vector<T> random_addends(Reduce op, T value, Index count, std::mt19937_64& rng) {
    std::vector<T> result(at(count), value);
    std::size_t const last = result.size() - 1;
    auto const small = [&] { return static_cast<int>(rng() % 8); };
    std::size_t const keeper = rng() % result.size();
    if constexpr (std::is_integral_v<T>) {
        std::uint64_t const whole = widen(value);
        std::uint64_t rest = whole;
        switch (op) {
            case Reduce::avg: throw std::logic_error("oracle: averages need floats");
            case Reduce::sum:
                for (std::size_t i = 0; i != last; ++i) rest -= widen(result[i] = static_cast<T>(rng()));
                result[last] = narrow<T>(rest);
                return result;
            case Reduce::bxor:
                for (std::size_t i = 0; i != last; ++i) rest ^= widen(result[i] = static_cast<T>(rng()));
                result[last] = narrow<T>(rest);
                return result;
            case Reduce::band: {
                std::uint64_t common = ~std::uint64_t{0};  // bits all extra bits share: the last one must lack them
                for (std::size_t i = 0; i != last; ++i) {
                    std::uint64_t const extra = rng();
                    common &= extra;
                    result[i] = narrow<T>(whole | extra);
                }
                result[last] = narrow<T>(whole | (rng() & ~common));
                if (last == 0) result[0] = value;
                return result;
            }
            case Reduce::bor: {
                std::uint64_t covered = 0;
                for (std::size_t i = 0; i != last; ++i) {
                    std::uint64_t const kept = rng();
                    covered |= kept;
                    result[i] = narrow<T>(whole & kept);
                }
                result[last] = narrow<T>(whole & (rng() | ~covered));
                return result;
            }
            case Reduce::min:
            case Reduce::max:
                for (std::size_t i = 0; i != result.size(); ++i) {
                    if (i == keeper) continue;
                    auto const step = static_cast<T>(small());
                    if (op == Reduce::min) {
                        result[i] = value > std::numeric_limits<T>::max() - step ? value : static_cast<T>(value + step);
                    } else {
                        result[i] = value < std::numeric_limits<T>::min() + step ? value : static_cast<T>(value - step);
                    }
                }
                return result;
            case Reduce::product: {  // factors of plus or minus one (modulo 2^bits) around the value
                for (std::size_t i = 0; i != result.size(); ++i) {
                    if (i == keeper) continue;
                    bool const negative = rng() % 2 != 0;
                    result[i] = narrow<T>(negative ? ~std::uint64_t{0} : std::uint64_t{1});
                    if (negative) rest = std::uint64_t{0} - rest;
                }
                result[keeper] = narrow<T>(rest);
                return result;
            }
        }
    } else {
        auto const number = [](int whole) { return narrow<T>(static_cast<Wide<T>>(whole)); };
        Wide<T> rest = widen(value);
        switch (op) {
            case Reduce::sum:
                for (std::size_t i = 0; i != last; ++i) rest -= widen(result[i] = number(small() - 4));
                result[last] = narrow<T>(rest);
                return result;
            case Reduce::avg:  // deviations that cancel
                for (std::size_t i = 0; i != last; ++i) {
                    int const deviation = small() - 4;
                    result[i] = narrow<T>(widen(value) + static_cast<Wide<T>>(deviation));
                    rest -= static_cast<Wide<T>>(deviation);
                }
                result[last] = narrow<T>(rest);
                return result;
            case Reduce::min:
            case Reduce::max:
                for (std::size_t i = 0; i != result.size(); ++i) {
                    auto const step = static_cast<Wide<T>>(i == keeper ? 0 : small());
                    result[i] = narrow<T>(op == Reduce::min ? widen(value) + step : widen(value) - step);
                }
                return result;
            case Reduce::product:
                for (std::size_t i = 0; i != result.size(); ++i) {
                    if (i == keeper) continue;
                    bool const negative = rng() % 2 != 0;
                    result[i] = number(negative ? -1 : 1);
                    if (negative) rest = -rest;
                }
                result[keeper] = narrow<T>(rest);
                return result;
            default: break;
        }
    }
    throw std::logic_error("oracle: bit operations need integers");
}

// ---- Whole tensor to local arrays and back -----------------------------------------------------------------------

/// Per rank number the local array; empty for numbers outside the mesh.
template <class T>
using Locals = std::vector<std::vector<T>>;

/// Local arrays that mean `global` (row-major). Partial axes get random addends.
template <class T>
Locals<T> scatter(std::vector<T> const& global, DynamicDistribution const& distribution, std::mt19937_64& rng) {
    Owed const debt = owed(distribution);
    std::vector<std::vector<T>> addends(at(debt.addends), std::vector<T>(global.size()));
    for (std::size_t i = 0; i != global.size(); ++i) {
        std::vector<T> const parts = random_addends(debt.op, global[i], debt.addends, rng);
        for (std::size_t a = 0; a != parts.size(); ++a) addends[a][i] = parts[a];
    }
    Locals<T> result(at(rank_limit(distribution)));
    for (Index rank : ranks(distribution)) {
        std::vector<T> const& source = addends[at(addend_of(distribution, rank))];
        for (Index i : elements(distribution, rank)) result[at(rank)].push_back(source[at(i)]);
    }
    return result;
}

/// What local arrays mean. Throws std::runtime_error, in words, when one has the wrong size, when ranks that hold
/// the same addend differ in a bit, or when nobody holds an element.
template <class T>
std::vector<T> gather(Locals<T> const& locals, DynamicDistribution const& distribution) {
    Owed const debt = owed(distribution);
    Index size = 1;
    for (Index extent : distribution.shape().extents()) size *= extent;
    std::vector<std::vector<T>> addends(at(debt.addends), std::vector<T>(at(size)));
    std::vector<std::vector<Index>> holder(at(debt.addends), std::vector<Index>(at(size), -1));
    for (Index rank : ranks(distribution)) {
        Elements const held = elements(distribution, rank);
        std::vector<T> const& local = locals.at(at(rank));
        if (local.size() != held.size()) {
            throw std::runtime_error(
                errors::concat("oracle: rank ", rank, " has ", local.size(), " elements, not ", held.size()));
        }
        auto const a = at(addend_of(distribution, rank));
        for (std::size_t k = 0; k != held.size(); ++k) {
            auto const i = at(held[k]);
            if (holder[a][i] < 0) {
                holder[a][i] = rank;
                addends[a][i] = local[k];
            } else if (std::memcmp(&addends[a][i], &local[k], sizeof(T)) != 0) {
                throw std::runtime_error(errors::concat("oracle: ranks ", holder[a][i], " and ", rank,
                                                        " hold different copies of element ", held[k]));
            }
        }
    }
    std::vector<T> result(at(size));
    std::vector<T> parts(at(debt.addends));
    for (std::size_t i = 0; i != result.size(); ++i) {
        for (std::size_t a = 0; a != parts.size(); ++a) {
            if (holder[a][i] < 0) throw std::runtime_error(errors::concat("oracle: nobody holds element ", i));
            parts[a] = addends[a][i];
        }
        result[i] = fold(debt.op, parts);
    }
    return result;
}

}  // namespace reshard::oracle
