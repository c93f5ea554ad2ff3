// SPDX-License-Identifier: Apache-2.0
// What verbs share: how they answer, start ranks and read their arguments.
#include "support/ranks.hpp"
#include "verbs.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <thread>

namespace command {

bool Session::speaks() { return demo::is_first_process(); }

void Session::say(std::string const& text, Json const& record) const {
    // Names in files may be no UTF-8: such bytes are replaced, not refused.
    std::string const out = json ? record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : text;
    std::fputs(out.c_str(), stdout);
    std::fflush(stdout);
}

void Session::on_ranks(int otherwise, std::function<void(reshard::CommunicatorRef)> const& body) {
    demo::RankOptions options;
    options.deadline = std::chrono::hours(1);  // of a vote: what the slowest disk needs until then
    int const ended = demo::run_ranks("reshard", ranks, otherwise, options, [&](auto& comm) {
        try {
            body(comm);
        } catch (reshard::Error const& error) {
            if (json && comm.rank() == 0) say("", {{"error", error.message()}});
            throw;
        }
    });
    if (ended != 0) status = ended;
}

int Session::ranks_of_machine() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8); }

CLI::App* add_verb(CLI::App& app, std::string const& name, std::string const& what, std::string const& example) {
    CLI::App* const verb = app.add_subcommand(name, what);
    verb->footer("Example:\n  " + example + "\n");
    return verb;
}

void add_ranks(CLI::App& verb, Session& session) {
    verb.add_option("--ranks", session.ranks, "number of threads; under mpirun the launcher decides")
        ->check(CLI::Range(1, 4096));
}

void wrong(std::string const& message) { throw CLI::ValidationError(message); }

reshard::DynamicShape shape_given(std::string const& option, std::string text) {
    if (!text.empty() && text.front() != '[') {
        std::replace(text.begin(), text.end(), 'x', ',');
        text = "[" + text + "]";
    }
    return given(option, [&] { return reshard::parse_shape(text); });
}

Json record_of(reshard::DynamicShape const& shape) {
    Json list = Json::array();
    for (int dim = 0; dim < shape.rank(); ++dim) list.push_back(shape.extent(dim));
    return list;
}

reshard::DType dtype_given(std::string const& option, std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    reshard::DType dtype{};
    if (!reshard::parse_dtype(text, dtype))
        wrong(option + ": no element type is called '" + text + "'. Fix: bf16, f32, i64, ...");
    return dtype;
}

}  // namespace command
