// SPDX-License-Identifier: Apache-2.0
// What verbs share: how they answer, start ranks and read their arguments.
#include "support/model_lists.hpp"
#include "support/progress.hpp"
#include "support/ranks.hpp"
#include "verbs.hpp"

#include <reshard/exec/detail/check.hpp>
#include <reshard/plan/relay.hpp>

#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <cerrno>

#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

namespace command {

bool Session::speaks() { return demo::is_first_process(); }

void Session::say(std::string const& text, Json const& record) {
    // Names in files may be no UTF-8: such bytes are replaced, not refused.
    std::string const out = json ? record.dump(2, ' ', false, Json::error_handler_t::replace) + "\n" : text;
    if (std::fputs(out.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return;
    std::fprintf(stderr, "reshard: cannot write the answer: %s. Fix: check where stdout goes.\n", std::strerror(errno));
    status = 2;
}

void Session::say_no(std::string const& text, Json const& record) {
    status = 1;
    say(text, record);
}

void Session::on_ranks(int otherwise, std::function<void(reshard::CommunicatorRef)> const& body) {
    if (ranks > most_threads) wrong("--ranks: " + std::to_string(ranks) + " threads are too many. Fix: 4096 at most.");
    demo::RankOptions options;
    options.deadline = std::chrono::hours(1);  // of a vote: what the slowest disk needs until then
    int const ended = demo::run_ranks("reshard", ranks, otherwise, options, [&](reshard::CommunicatorRef comm) {
        try {
            body(comm);
        } catch (reshard::Error const& error) {
            if (json && comm.rank() == 0) say("", {{"error", error.message()}});
            throw;
        } catch (std::exception const& error) {
            if (json && comm.rank() == 0) say("", {{"error", error.what()}});
            throw;
        }
    });
    if (ended != 0) status = 2;
}

std::function<void(reshard::Index, reshard::Index)> Session::progress(reshard::CommunicatorRef comm) const {
    if (json || comm.rank() != 0 || ::isatty(STDERR_FILENO) == 0) return {};
    auto const start = demo::Progress::Clock::now();
    return [start, ranks = comm.size(), bar = std::shared_ptr<demo::Progress>()](reshard::Index done,
                                                                                 reshard::Index total) mutable {
        if (bar == nullptr) bar = std::make_shared<demo::Progress>(total * ranks, start);
        bar->update_bytes(done * ranks);
    };
}

int Session::ranks_of_machine() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8); }

CLI::App* add_verb(CLI::App& app, std::string const& name, std::string const& what, std::string const& example) {
    CLI::App* const verb = app.add_subcommand(name, what);
    verb->footer("Example:\n  " + example + "\n");
    return verb;
}

void add_ranks(CLI::App& verb, Session& session, int most) {
    std::string const also = most > most_threads ? ", 4096 at most, or of ranks that a dry run is about" : "";
    verb.add_option("--ranks", session.ranks, "number of threads" + also + "; under mpirun the launcher decides")
        ->check(CLI::Range(1, most));
}

void wrong(std::string const& message) { throw CLI::ValidationError(message); }

reshard::DynamicShape shape_given(std::string const& option, std::string const& text) {
    std::string list = text;
    if (!text.empty() && text.front() != '[') {
        std::replace(list.begin(), list.end(), 'x', ',');
        list = "[" + list + "]";
    }
    return given(option, [&] {
        try {
            return reshard::parse_shape(list);
        } catch (reshard::NotationError const&) {  // would show the list, which nobody has typed
            wrong(option + ": '" + text +
                  "' is no shape. Fix: write for example 8192x1024 or [8192,1024], of 8 dimensions and 63 bits each at "
                  "most, or [] for a scalar.");
        }
    });
}

Json record_of(reshard::DynamicShape const& shape) {
    Json list = Json::array();
    for (int dim = 0; dim < shape.rank(); ++dim) list.push_back(shape.extent(dim));
    return list;
}

Json record_of(std::vector<reshard::CheckpointFile> const& unlisted) {
    Json list = Json::object();
    for (reshard::CheckpointFile const& file : unlisted) list[file.leaf] = file.unlisted;
    return list;
}

reshard::DType dtype_given(std::string const& option, std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    std::string name = text;
    for (auto const& [torch, ours] :
         {std::pair{"TORCH.", ""}, {"FLOAT", "F"}, {"UINT", "U"}, {"INT", "I"}, {"COMPLEX", "C"}}) {
        std::size_t const at = name.find(torch);
        if (at != name.npos) name.replace(at, std::strlen(torch), ours);
    }
    if (name == "F8_E4M3FN") name = "F8_E4M3";  // PyTorch says of those without infinities that they have none
    if (name == "F8_E8M0FNU") name = "F8_E8M0";
    reshard::DType dtype{};
    if (reshard::parse_dtype(name, dtype)) return dtype;
    std::string known;
    for (int i = 0; i < reshard::dtype_count; ++i) {
        known += std::string(i == 0 ? "" : ", ") + std::string(reshard::name(static_cast<reshard::DType>(i)));
    }
    wrong(option + ": no element type is called '" + text + "'. Fix: one of " + known +
          "; or float32, bfloat16, float8_e4m3fn, int64 as in PyTorch.");
}

reshard::Plan<> plan_given(std::string const& from, std::string const& to, reshard::DynamicShape const& shape,
                           reshard::DType dtype, reshard::Index ranks_per_node) {
    auto const one = [&](char const* which, std::string const& text) {
        auto const distribution = given(which, [&] { return reshard::parse(text, shape); });
        if (distribution.mesh().size() > most_ranks)
            wrong(std::string(which) + " '" + text + "': more than 2^24 ranks. Fix: plan for a smaller mesh.");
        return distribution;
    };
    auto const source = one("FROM", from);
    auto const target = one("TO", to);
    auto const move = given("TO", [&] {
        reshard::Plan<> const direct =
            source.mesh() == target.mesh() ? plan(source, target) : plan_across(source, target);
        return ranks_per_node > 1 ? direct.relayed(ranks_per_node) : direct;
    });
    given("--dtype", [&] {
        reshard::planning::Steps const steps = move.steps();
        bool const averages = steps.find(reshard::planning::StepKind::scale) != nullptr;
        reshard::detail::check_byte_sized(dtype);
        reshard::detail::check_ops(steps, {.from = dtype, .to = dtype, .averages = averages});
    });
    return move;
}

std::vector<reshard::TensorSpec> model_given(std::string const& option, std::string const& name, int layers) {
    demo::ModelConfig config = given(option, [&] { return demo::model_called(name); });
    if (layers > 0) config.layers = layers;
    return demo::model_list(config);
}

}  // namespace command
