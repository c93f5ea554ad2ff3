// SPDX-License-Identifier: Apache-2.0
// reshard draw: which ranks hold which part of a tensor.
#include "verbs.hpp"

#include <reshard/algebra/draw.hpp>

#include <map>
#include <memory>
#include <vector>

namespace command {
namespace {

using namespace reshard;

struct Draw {
    std::string where;
    std::string shape;
    bool svg = false;

    void run(Session& session) const {
        DynamicShape const extents = shape_given("--shape", shape);
        auto const distribution = given("WHERE", [&] { return parse(where, extents); });
        std::string const text = given("WHERE", [&] { return svg ? draw_svg(distribution) : draw(distribution); });
        Json const answer = session.json ? given("WHERE", [&] { return record(distribution); }) : Json();
        if (Session::speaks()) session.say(text, answer);
    }

private:
    /// Every box that some rank holds, in all dimensions, and who does.
    [[nodiscard]] static Json record(DynamicDistribution const& distribution) {
        DynamicMesh const& mesh = distribution.mesh();
        std::map<std::vector<Index>, std::vector<Index>> holders;  // by where boxes begin and end
        for (Index i = 0; i < mesh.size(); ++i) {
            Index const rank = mesh.rank_at(i);
            Index count = 1;
            for (int dim = 0; dim < distribution.shape().rank(); ++dim) {
                Index const segments = distribution.index_set(mesh.coordinates(rank), dim).segments();
                detail::check_drawable(segments);
                detail::check_drawable(count *= segments);
            }
            for (Box const& box : distribution.boxes(rank)) {
                std::vector<Index> ends;
                for (int dim = 0; dim < box.rank(); ++dim) ends.insert(ends.end(), {box.begin(dim), box.end(dim)});
                holders[ends].push_back(rank);
            }
            detail::check_drawable(static_cast<Index>(holders.size()));
        }
        Json parts = Json::array();
        for (auto const& [ends, ranks] : holders) {
            Json box = Json::array();
            for (std::size_t at = 0; at < ends.size(); at += 2) box.push_back({ends[at], ends[at + 1]});
            parts.push_back({{"box", box}, {"ranks", ranks}});
        }
        return {
            {"distribution", to_string(distribution)}, {"shape", record_of(distribution.shape())}, {"parts", parts}};
    }
};

}  // namespace

void add_draw(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<Draw>();
    CLI::App* const command = add_verb(app, "draw", "shows which ranks hold which part of a tensor",
                                       "reshard draw '(2,4):(R,S0)' --shape 9x6 --svg > parts.svg");
    command->add_option("WHERE", verb->where, "mesh and placements, such as '(2,4):(R,S0)'")->required();
    command
        ->add_option("--shape", verb->shape,
                     "of the tensor: 9x6 or [9,6]; two dimensions are drawn, and --json lists all")
        ->required();
    command->add_flag("--svg", verb->svg, "as a picture for a browser");
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
