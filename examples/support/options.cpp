// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "launcher.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace demo {

using reshard::Index;

Option const& Option::within(Index least, Index most) const {
    option_->check(CLI::Range(least, most));
    return *this;
}

Option const& Option::within_reals(double least, double most) const {
    option_->check(CLI::Range(least, most));
    return *this;
}

Option const& Option::positive() const {
    option_->check(CLI::PositiveNumber);
    return *this;
}

Option const& Option::one_of(std::vector<std::string> const& words) const {
    option_->check(CLI::IsMember(words));
    return *this;
}

Option const& Option::required() const {
    option_->required();
    return *this;
}

Option const& Option::show_default() const {
    option_->capture_default_str();
    return *this;
}

Option const& Option::excludes(std::string const& name) const {
    option_->excludes(name);
    return *this;
}

Option const& Option::needs(std::string const& name) const {
    option_->needs(name);
    return *this;
}

Options::Options(std::string const& what) : app_(std::make_shared<CLI::App>(what)) {}
Options::Options(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}

template <class Value>
Option Options::add(std::string const& name, Value& value, std::string const& what) const {
    if constexpr (std::is_same_v<Value, bool>) {
        return Option(app_->add_flag(name, value, what));
    } else {
        CLI::Option* const option = app_->add_option(name, value, what);
        if (option->get_expected_max() > 1) option->delimiter(',');  // a list
        return Option(option);
    }
}
template Option Options::add(std::string const&, bool&, std::string const&) const;
template Option Options::add(std::string const&, int&, std::string const&) const;
template Option Options::add(std::string const&, Index&, std::string const&) const;
template Option Options::add(std::string const&, std::uint64_t&, std::string const&) const;
template Option Options::add(std::string const&, double&, std::string const&) const;
template Option Options::add(std::string const&, std::string&, std::string const&) const;
template Option Options::add(std::string const&, std::vector<int>&, std::string const&) const;
template Option Options::add(std::string const&, std::vector<Index>&, std::string const&) const;

Option Options::at(std::string const& name) const { return Option(app_->get_option(name)); }

Options Options::command(std::string const& name, std::string const& what) const {
    app_->require_subcommand(0, 1);
    return Options({app_, app_->add_subcommand(name, what)});
}

bool Options::chosen() const { return app_->parsed(); }

bool Options::parse(int argc, char** argv, int& status) const {
    try {
        app_->parse(argc, argv);
        return true;
    } catch (CLI::ParseError const& error) {
        status = error.get_exit_code();
        if (status != 0 || is_first_process()) status = app_->exit(error);
        return false;
    }
}

}  // namespace demo
