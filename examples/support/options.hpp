// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/options.hpp
/// \brief  The command line of a program that several processes may run at once.
/// \depends CLI11.
#pragma once

#include "launcher.hpp"

#include <CLI/CLI.hpp>

namespace demo {

/// Whether the program goes on; if not, `status` is what it exits with. Help is printed by one process; mistakes by
/// all, because a launcher may end the one that speaks when another one exits first.
inline bool parse_options(CLI::App& app, int argc, char** argv, int& status) {
    try {
        app.parse(argc, argv);
        return true;
    } catch (CLI::ParseError const& error) {
        status = error.get_exit_code();
        if (status != 0 || is_first_process()) status = app.exit(error);
        return false;
    }
}

}  // namespace demo
