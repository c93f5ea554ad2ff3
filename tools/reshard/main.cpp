// SPDX-License-Identifier: Apache-2.0
// One command for what this library does with files and plans. docs/command.md shows every verb.
//
//     reshard explain '(2,4):(R,S0)' '(2,4):(R,S1)' --shape 8192x1024 --dtype bf16
//     mpirun -n 8 reshard VERB ...                          ranks are processes; alone they are threads
#include "support/launcher.hpp"
#include "verbs.hpp"

#include <reshard/core/config.hpp>

#include <csignal>
#include <cstdio>
#include <iostream>

namespace {

/// CLI11's words, but where they say what it counts and not what to do.
std::string words_of(CLI::Error const& error) {
    std::string const text = error.what();
    std::string const option = text.substr(0, text.find(": "));
    if (text.find(": At Most 1 required but received") != text.npos) return option + " is given more than once";
    if (error.get_name() != "ArgumentMismatch" || !text.ends_with(" missing")) return text;
    return option == "--also" ? "--also needs two folders. Fix: --also IN OUT" : option + " needs a value";
}

}  // namespace

int main(int argc, char** argv) {
    std::signal(SIGXFSZ, SIG_IGN);  // a file that grows beyond ulimit -f is an error of a write, with words
    command::Session session;
    CLI::App app("What lives where, and how it gets elsewhere: plans, checkpoints, MCH tables.", "reshard");
    app.require_subcommand(0, 1);  // none is a mistake, too: said below, after words that are no verb
    app.fallthrough();
    app.add_flag("--json", session.json, "answer with one JSON document on stdout");
    app.set_version_flag("--version", "reshard " + std::to_string(RESHARD_VERSION_MAJOR) + "." +
                                          std::to_string(RESHARD_VERSION_MINOR) + "." +
                                          std::to_string(RESHARD_VERSION_PATCH));
    app.footer("reshard VERB --help shows an example. Exit status: 0 fine, 1 the answer is no, 2 there is none.\n");
    app.failure_message([](CLI::App const* all, CLI::Error const& error) {
        std::string verb;
        for (CLI::App const* one : all->get_subcommands()) verb = " " + one->get_name();
        if (verb.empty()) {
            std::string verbs;
            for (CLI::App const* one : all->get_subcommands({})) verbs += " " + one->get_name();
            return "reshard: " + words_of(error) + "\nVerbs:" + verbs + "; reshard VERB --help says more.\n";
        }
        return "reshard" + verb + ": " + words_of(error) + "\nRun reshard" + verb + " --help for an example.\n";
    });
    for (auto const add : {command::add_explain, command::add_draw, command::add_simulate, command::add_relabel,
                           command::add_inspect, command::add_verify, command::add_compare, command::add_consolidate,
                           command::add_shard, command::add_mch, command::add_plan_save, command::add_plan_load}) {
        add(app, session);
    }
    try {
        app.parse(argc, argv);
        if (app.get_subcommands().empty()) command::wrong("name a verb, such as reshard explain");
    } catch (CLI::ParseError const& error) {
        bool const asked = error.get_exit_code() == 0;                             // for help
        if (asked && app.get_subcommands().empty() && !app.remaining().empty()) {  // of a verb that there is not
            app.exit(CLI::ExtrasError(app.remaining()));
            return 2;
        }
        // Mistakes are printed by all processes: a launcher may end the one that speaks when another one exits first.
        if (!asked || demo::is_first_process()) app.exit(error);
        std::cout.flush();
        return asked && std::cout ? 0 : 2;
    } catch (std::exception const& error) {
        std::fprintf(stderr, "reshard: %s\n", error.what());
        if (session.json && command::Session::speaks()) session.say("", command::error_record(error));
        return 2;
    }
    return session.status;
}
