// SPDX-License-Identifier: Apache-2.0
/// \file   examples/trainer/report.hpp
/// \brief  What people see of a training: transitions before it, the curve of the loss after it.
/// \depends transitions.hpp.
#pragma once

#include "transitions.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace trainer {

/// One line for each transition of a step, over all ranks; and the bytes of a step.
inline Index explain(std::span<Transitions* const> all, bool print) {
    Index step = 0;
    if (print) {
        std::printf("%-12s %-31s %-26s %-11s %8s %10s %10s\n", "when", "what", "transition", "is a", "messages",
                    "bytes", "bound");
    }
    for (Transitions const* at : all)
        for (Transitions::One const& one : at->list()) {
            Figures const figures = figures_of(one);
            step += figures.bytes;
            if (!print) continue;
            std::string const from = to_string(one.plan.from());
            std::string const to = to_string(one.plan.to());
            std::string const both = from + " -> " + to.substr(to.find(':') + 1);
            std::string const bound = figures.bound < 0 ? "unknown" : std::to_string(figures.bound);
            std::printf("%-12s %-31s %-26s %-11s %8lld %10lld %10s\n", at->what().c_str(), one.name.c_str(),
                        both.c_str(), std::string(name(one.plan.kind())).c_str(),
                        static_cast<long long>(figures.messages), static_cast<long long>(figures.bytes), bound.c_str());
        }
    return step;
}

struct LossPoint {
    Index step = 0;
    double loss = 0;
};

inline std::string curve_csv(std::vector<LossPoint> const& curve) {
    std::string text = "step,loss\n";
    char line[64];
    for (LossPoint const& point : curve) {
        std::snprintf(line, sizeof(line), "%lld,%.17g\n", static_cast<long long>(point.step), point.loss);
        text += line;
    }
    return text;
}

inline std::string curve_svg(std::vector<LossPoint> const& curve) {
    constexpr double width = 640, height = 360, margin = 48;
    double most = 0;
    for (LossPoint const& point : curve) most = std::max(most, point.loss);
    auto const first = static_cast<double>(curve.front().step);
    double const span = std::max(static_cast<double>(curve.back().step) - first, 1.0);
    char text[256];
    std::snprintf(text, sizeof(text),
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" "
                  "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                  width, height);
    std::string svg = text;
    for (int i = 0; i <= 4; ++i) {
        double const y = height - margin - (height - 2 * margin) * i / 4;
        std::snprintf(
            text, sizeof(text),
            "<path d=\"M%g %gH%g\" stroke=\"#ddd\"/><text x=\"%g\" y=\"%g\" text-anchor=\"end\">%.3f</text>\n", margin,
            y, width - margin, margin - 6, y + 4, most * i / 4);
        svg += text;
    }
    svg += "<polyline fill=\"none\" stroke=\"#1f77b4\" stroke-width=\"1.5\" points=\"";
    for (LossPoint const& point : curve) {
        double const x = margin + (width - 2 * margin) * (static_cast<double>(point.step) - first) / span;
        double const y = height - margin - (height - 2 * margin) * point.loss / (most > 0 ? most : 1);
        std::snprintf(text, sizeof(text), "%.1f,%.1f ", x, y);
        svg += text;
    }
    std::snprintf(text, sizeof(text), "\"/>\n<text x=\"%g\" y=\"%g\">loss, steps %lld to %lld</text>\n</svg>\n", margin,
                  height - 16, static_cast<long long>(curve.front().step), static_cast<long long>(curve.back().step));
    return svg + text;
}

/// The file is the text, or what it was before.
inline void write_text(std::string const& path, std::string const& text) {
    std::string const unfinished = path + ".unfinished";
    std::ofstream file(unfinished, std::ios::binary);
    file << text;
    file.close();
    if (file && std::rename(unfinished.c_str(), path.c_str()) == 0) return;
    reshard::errors::raise(reshard::ErrorCode::io,
                           reshard::errors::concat(path, ": ", std::strerror(errno),
                                                   ". Fix: name a file in a folder that can be written to."));
}

}  // namespace trainer
