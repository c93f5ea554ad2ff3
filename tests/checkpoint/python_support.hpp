// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/python_support.hpp
/// \brief  Scripts of other tools on our files. RESHARD_TEST_PYTHON names another interpreter than python3.
#pragma once

#include <cstdlib>           // getenv, system
#include <initializer_list>  // initializer_list
#include <string>            // string

namespace checkpoint_test {

inline std::string python() {
    char const* const chosen = std::getenv("RESHARD_TEST_PYTHON");
    return chosen != nullptr ? chosen : "python3";
}

/// Whether it has these modules, separated by commas.
inline bool imports(std::string const& modules) {
    return std::system(("'" + python() + "' -c 'import " + modules + "' 2>/dev/null").c_str()) == 0;
}

/// Whether the script ends well.
inline bool runs_script(std::string const& script, std::initializer_list<std::string> arguments) {
    std::string command = "'" + python() + "' '" + script + "'";
    for (std::string const& argument : arguments) command += " '" + argument + "'";
    return std::system(command.c_str()) == 0;
}

}  // namespace checkpoint_test
