// SPDX-License-Identifier: Apache-2.0
/// \file   examples/support/options.hpp
/// \brief  The command line of a program that several processes may run at once.
/// \depends CLI11, in options.cpp alone: it takes longer to compile than most of the examples.
#pragma once

#include <reshard/core/index.hpp>

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace demo {

/// What an option takes, said where it is added.
class Option {
public:
    explicit Option(CLI::Option* option) : option_(option) {}
    Option const& within(reshard::Index least, reshard::Index most) const;
    Option const& within_reals(double least, double most) const;
    Option const& positive() const;
    Option const& one_of(std::vector<std::string> const& words) const;
    Option const& required() const;
    Option const& show_default() const;  ///< help says what it is otherwise
    Option const& excludes(std::string const& name) const;
    Option const& needs(std::string const& name) const;

private:
    CLI::Option* option_;
};

/// A program's options, or those of one of its commands.
class Options {
public:
    explicit Options(std::string const& what);

    /// Names that do not begin with "-" are of what stands without a name. A bool is a flag; lists are of ints and
    /// Indexes.
    template <class Value>
    Option add(std::string const& name, Value& value, std::string const& what) const;
    [[nodiscard]] Option at(std::string const& name) const;

    [[nodiscard]] Options command(std::string const& name, std::string const& what) const;
    [[nodiscard]] bool chosen() const;  ///< whether a command was given

    /// Whether the program goes on; if not, `status` is what it exits with. Help is printed by one process; mistakes by
    /// all, because a launcher may end the one that speaks when another one exits first.
    bool parse(int argc, char** argv, int& status) const;

private:
    explicit Options(std::shared_ptr<CLI::App> app);

    std::shared_ptr<CLI::App> app_;
};

}  // namespace demo
