// SPDX-License-Identifier: Apache-2.0
// What a file of moves says, as values: a tensor, where it lies, where it goes.
#pragma once

#include <reshard/reshard.hpp>

#include <nlohmann/json.hpp>

#include <fstream>
#include <string>
#include <vector>

namespace runtime {

struct Move {
    std::string name;
    reshard::DType dtype;
    reshard::DynamicDistribution from;
    reshard::DynamicDistribution to;
    reshard::Plan<> plan;
};
struct Moves {
    int ranks = 0;
    std::vector<Move> list;
};

inline constexpr char const* sample_of_moves =
    "{'ranks': 4, 'tensors': [{'name': 'w', 'dtype': 'F32', 'shape': [8, 4], 'from': '(4):(S0)', 'to': "
    "'(2,2):(R,S1)'}]} with double quotes";

// Throws an Error that names the file, the tensor in it, and the remedy.
inline Moves read_moves(std::string const& path) {
    using namespace reshard;
    std::ifstream file(path);
    if (!file) errors::raise(ErrorCode::io, errors::concat(path, " cannot be read. Fix: name a file of moves."));
    auto const json = nlohmann::json::parse(file, nullptr, false);
    auto const wrong = [&](std::string const& what) {
        errors::raise(ErrorCode::format, errors::concat(path, ": ", what, ". Fix: write ", sample_of_moves, "."));
    };
    if (json.is_discarded()) wrong("this is not JSON");
    auto const is = [](nlohmann::json const& object, char const* key, auto check) {
        return object.is_object() && object.contains(key) && check(object[key]);
    };
    auto const text = [](nlohmann::json const& value) { return value.is_string(); };
    auto const list = [](nlohmann::json const& value) { return value.is_array(); };
    auto const count = [](nlohmann::json const& value) {
        return value.is_number_integer() && value >= 1 && value <= 64;
    };
    if (!is(json, "ranks", count)) wrong("\"ranks\" is not a number from 1 to 64");
    if (!is(json, "tensors", list)) wrong("\"tensors\" is not a list");
    Moves moves;
    moves.ranks = json["ranks"].get<int>();
    for (auto const& one : json["tensors"]) {
        std::string name = errors::concat("tensor ", moves.list.size());
        for (char const* key : {"name", "dtype", "from", "to"})
            if (!is(one, key, text)) wrong(errors::concat(name, " has no text \"", key, "\""));
        name = one["name"].get<std::string>();
        auto const extents = [&](nlohmann::json const& shape) {
            bool good = shape.is_array() && shape.size() <= static_cast<std::size_t>(max_dims);
            for (auto const& extent : shape) good = good && extent.is_number_integer() && extent >= 0;
            return good;
        };
        if (!is(one, "shape", extents)) wrong(errors::concat(name, " has no list of extents \"shape\""));
        Indices shape;
        for (auto const& extent : one["shape"]) shape.push_back(extent.get<Index>());
        DType dtype = DType::f32;
        std::string const type = one["dtype"].get<std::string>();
        if (!parse_dtype(type, dtype) || !is_floating(dtype)) {
            wrong(errors::concat(name, " is of ", type, ", which is no type of floating-point numbers"));
        }
        auto const side = [&](char const* key) {
            std::string const placed = one[key].get<std::string>();
            try {
                DynamicDistribution const where = parse(placed, DynamicShape(shape));
                if (where.mesh().last_rank() >= moves.ranks) {
                    errors::raise(ErrorCode::mesh,
                                  errors::concat("the mesh has rank ", where.mesh().last_rank(), " but there are ",
                                                 moves.ranks, " ranks. Fix: raise \"ranks\", or name another mesh."));
                }
                for (Placement const& placement : where.placements())
                    if (placement.is_partial())
                        errors::raise(ErrorCode::placement, "addends cannot be filled. Fix: R or S.");
                return where;
            } catch (Error const& error) {
                errors::raise(error.code(),
                              errors::concat(path, ": \"", key, "\" of ", name, " is ", placed, ": ", error.message()));
            }
        };
        DynamicDistribution const from = side("from");
        DynamicDistribution const to = side("to");
        moves.list.push_back(
            {name, dtype, from, to, from.mesh() == to.mesh() ? plan(from, to) : plan_across(from, to)});
    }
    return moves;
}

}  // namespace runtime
