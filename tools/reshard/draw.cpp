// SPDX-License-Identifier: Apache-2.0
// reshard draw: which ranks hold which part of a tensor.
#include "verbs.hpp"

#include <reshard/algebra/draw.hpp>

#include <memory>

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
        if (Session::speaks()) session.say(text, session.json ? record(distribution) : Json());
    }

private:
    [[nodiscard]] Json record(DynamicDistribution const& distribution) const {
        DrawnParts const drawn = drawn_parts(distribution);
        Json parts = Json::array();
        auto holders = drawn.holders.begin();
        for (std::size_t r = 0; r + 1 < drawn.rows.size(); ++r) {
            for (std::size_t c = 0; c + 1 < drawn.columns.size(); ++c) {
                Json box = Json::array();
                if (distribution.shape().rank() >= 1) box.push_back({drawn.rows[r], drawn.rows[r + 1]});
                if (distribution.shape().rank() >= 2) box.push_back({drawn.columns[c], drawn.columns[c + 1]});
                parts.push_back({{"box", box}, {"ranks", *holders++}});
            }
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
    command->add_option("--shape", verb->shape, "of the tensor: 9x6 or [9,6]; two dimensions are drawn")->required();
    command->add_flag("--svg", verb->svg, "as a picture for a browser");
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
