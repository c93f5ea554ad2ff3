// SPDX-License-Identifier: Apache-2.0
// What verbs share: how they answer, start ranks and read their arguments.
#include "support/model_lists.hpp"
#include "support/progress.hpp"
#include "support/ranks.hpp"
#include "verbs.hpp"

#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>
#include <reshard/plan/relay.hpp>

#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>  // from_chars
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>  // bad_alloc
#include <sstream>
#include <string_view>
#include <system_error>  // errc
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
        } catch (std::exception const& error) {
            if (json && comm.rank() == 0) say("", error_record(error));
            auto const* const ours = dynamic_cast<reshard::Error const*>(&error);
            bool const of_all = comm.size() == 1 || (ours != nullptr && ours->is_agreed());
            if (!demo::started_by_launcher() || !of_all) throw;
            // Nobody is waited for: processes end by themselves, and the status is theirs, not that of MPI_Abort.
            if (comm.rank() == 0) std::fprintf(stderr, "reshard: %s\n", error.what());
            status = 2;
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
        ->check(whole_number(1, most));
}

namespace {

/// Nothing, and the number in `text`, or what is wrong.
std::string read_number(std::string& text, reshard::Index least, reshard::Index most, bool is_size) {
    constexpr std::pair<std::string_view, int> units[] = {{"", 1},           {"KiB", 1 << 10},     {"MiB", 1 << 20},
                                                          {"GiB", 1 << 30},  {"kB", 1'000},        {"KB", 1'000},
                                                          {"MB", 1'000'000}, {"GB", 1'000'000'000}};
    char const* const end = text.data() + text.size();
    reshard::Index number = 0;
    auto const [rest, error] = std::from_chars(text.data(), end, number);
    for (auto const& [unit, factor] : units) {
        reshard::Index size = 0;
        if (error != std::errc() || std::string_view(rest, end) != unit || (!unit.empty() && !is_size)) continue;
        if (!reshard::detail::multiply_fits(number, reshard::Index{factor}, size) || size < least || size > most)
            continue;
        text = std::to_string(size);
        return {};
    }
    return reshard::errors::concat("'", text, "' is no number from ", least, " to ", most,
                                   is_size ? "; KiB, MiB, GiB, kB, MB or GB may stand behind it" : "");
}
CLI::Validator number_validator(reshard::Index least, reshard::Index most, bool is_size) {
    return {[=](std::string& text) { return read_number(text, least, most, is_size); },
            reshard::errors::concat(least, " to ", most)};
}

}  // namespace

CLI::Validator whole_number(reshard::Index least, reshard::Index most) { return number_validator(least, most, false); }
CLI::Validator byte_size(reshard::Index least, reshard::Index most) { return number_validator(least, most, true); }
CLI::Validator some_path() {
    return {[](std::string const& text) { return std::string(text.empty() ? "'' is no path" : ""); }, ""};
}
CLI::Validator with_underscores() {
    return {[](std::string& text) {
                std::replace(text.begin(), text.end(), '-', '_');
                return std::string();
            },
            ""};
}

void check_empty(std::string const& folder, bool saved, std::string const& input) {
    namespace names = reshard::detail;
    std::error_code ignored;
    auto const refuse = [&](std::string_view what, std::string_view fix) {
        reshard::errors::raise(reshard::ErrorCode::user,
                               reshard::errors::concat("'", folder, "' ", what, ". Fix: ", fix));
    };
    if (std::filesystem::exists(folder, ignored) && !std::filesystem::is_directory(folder, ignored))
        refuse("is no folder", "name another one.");
    for (auto const& entry : std::filesystem::directory_iterator(folder, ignored)) {
        std::string const leaf = entry.path().filename().string();
        bool const is_lock =
            leaf == names::lock_name(reshard::manifest_name) || leaf == names::lock_name(names::index_name);
        bool const is_left = names::is_shard_file(leaf) || names::is_temporary_of_save(leaf);  // by a save that died
        if (saved && (is_lock || is_left)) continue;
        if (!input.empty() && std::filesystem::equivalent(entry.path(), input, ignored)) continue;
        refuse(reshard::errors::concat("is not empty: there is ", names::quote_name(leaf)),
               "name a folder that is not there yet.");
    }
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
    for (reshard::CheckpointFile const& file : unlisted)
        if (file.unlisted > 0) list[file.leaf] = file.unlisted;
    return list;
}
Json contradicting(std::vector<reshard::CheckpointFile> const& files) {
    Json list = Json::object();
    for (reshard::CheckpointFile const& file : files)
        if (!file.contradicts.empty()) list[file.leaf] = file.contradicts;
    return list;
}

Json error_record(std::exception const& error) {
    constexpr char const* codes[] = {"none",   "shape", "mesh",          "placement",   "notation", "mismatch",
                                     "buffer", "dtype", "transition",    "peer_failed", "deadline", "transport",
                                     "format", "io",    "out_of_memory", "user"};
    auto const* const ours = dynamic_cast<reshard::Error const*>(&error);
    bool const no_memory = dynamic_cast<std::bad_alloc const*>(&error) != nullptr;
    auto const code = ours != nullptr ? ours->code()
                      : no_memory     ? reshard::ErrorCode::out_of_memory
                                      : reshard::ErrorCode::user;
    Json record;
    record["code"] = codes[static_cast<int>(code)];
    auto const rule = ours != nullptr ? safetensors_rule(*ours) : reshard::SafetensorsRule::none;
    if (rule != reshard::SafetensorsRule::none) record["rule"] = name(rule);
    record["message"] = error.what();
    return {{"error", record}};
}

std::string kind_text(reshard::CheckpointKind kind, bool full) {
    constexpr char const* words[] = {"one file", "files with an index", "shards of PyTorch DCP",
                                     "shards with a manifest"};
    bool const written_full = kind == reshard::CheckpointKind::manifest && full;
    return written_full ? "full files with a manifest" : words[static_cast<int>(kind)];
}

reshard::DType dtype_given(std::string const& option, std::string const& text) {
    std::string name = text;
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (name.starts_with("TORCH.")) name.erase(0, 6);
    for (auto const& [torch, ours] : {std::pair{"HALF", "F16"}, {"FLOAT", "F32"}, {"DOUBLE", "F64"}})
        if (name == torch) name = ours;
    for (auto const& [torch, ours] :
         {std::pair{"FLOAT", "F"}, {"FP", "F"}, {"UINT", "U"}, {"INT", "I"}, {"COMPLEX", "C"}}) {
        std::size_t const at = name.find(torch);
        if (at != name.npos) name.replace(at, std::strlen(torch), ours);
    }
    if (name == "F8_E4M3FN") name = "F8_E4M3";  // PyTorch says of those without infinities that they have none
    if (name == "F8_E8M0FNU") name = "F8_E8M0";
    reshard::DType dtype{};
    if (reshard::parse_dtype(name, dtype)) return dtype;
    std::string known;
    for (int i = 0; i < reshard::dtype_count; ++i) {
        known += std::string(i == 0 ? "" : ", ") + std::string(reshard::enums::name(static_cast<reshard::DType>(i)));
    }
    wrong(option + ": no element type is called '" + text + "'. Fix: one of " + known +
          "; or half, float32, bfloat16, float8_e4m3fn, int64 as in PyTorch.");
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
        reshard::detail::check_byte_sized("prepare", dtype);
        reshard::detail::check_ops("prepare", move.steps(), dtype);
    });
    return move;
}

std::vector<reshard::TensorSpec> model_given(std::string const& option, std::string const& name, int layers) {
    demo::ModelConfig config = given(option, [&] { return demo::model_called(name); });
    if (layers > 0) config.layers = layers;
    return demo::model_list(config);
}

std::vector<std::pair<std::string, std::string>> renames_given(std::string const& option, std::string const& path) {
    std::ifstream file(path);
    if (!file) wrong(option + ": cannot open '" + path + "'. Fix: name a file with a line OLD NEW for each name.");
    std::vector<std::pair<std::string, std::string>> list;
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
        std::istringstream words(line);
        std::string from, to, more;
        if (!(words >> from) || from.front() == '#') continue;
        if (!(words >> to) || words >> more) {
            if (line.back() == '\r') line.pop_back();
            std::size_t const tab = line.find('\t');  // names may have blanks
            if (tab != line.npos && tab != 0 && tab + 1 != line.size() && tab == line.rfind('\t')) {
                list.emplace_back(line.substr(0, tab), line.substr(tab + 1));
                continue;
            }
            wrong(option + ": line " + std::to_string(number) + " of '" + path +
                  "' has not two words. Fix: NAME OTHER_NAME, with a tab between them where names have blanks");
        }
        list.emplace_back(from, to);
    }
    if (file.bad()) wrong(option + ": cannot read '" + path + "'.");  // a folder, for one
    return list;
}

int axis_given(std::string const& option, std::string const& text, std::string const& where,
               reshard::DynamicMesh const& mesh) {
    int axis = 0;
    char const* const end = text.data() + text.size();
    auto const [rest, error] = std::from_chars(text.data(), end, axis);
    bool const number = error == std::errc() && rest == end;
    if (!number && mesh.is_named()) return given(option, [&] { return mesh.axis(text); });
    if (number && axis >= 0 && axis < mesh.axes()) return axis;
    std::string const has = number ? reshard::errors::concat("has ", mesh.axes(), mesh.axes() == 1 ? " axis" : " axes")
                                   : std::string("gives its axes no names");
    wrong(reshard::errors::concat(option, " ", text, ": the mesh of ", where, " ", has,
                                  ". Fix: they count from 0, or give a name that ", where,
                                  " gives, as '(dp=2,tp=4):(R,S0)' does."));
}

int planned_ranks(std::string const& option, reshard::PlacementRule const& rule) {
    reshard::Index const ranks = rule.mesh().last_rank() + 1;
    if (ranks > 4096) wrong(option + ": more than 4096 ranks. Fix: plan for a smaller mesh.");
    return static_cast<int>(ranks);
}

}  // namespace command
