// SPDX-License-Identifier: Apache-2.0
// reshard mch: managed-collision tables for another number of ranks, or of another size; also those of TorchRec.
#include "mch_change.hpp"
#include "mch_front.hpp"
#include "verbs.hpp"

#include "support/progress.hpp"

#include <memory>
#include <optional>

namespace command {
namespace {

using namespace reshard;

struct Mch {
    std::string in;
    std::string out;
    Index ranks = 0;
    std::string mode = "route";
    std::vector<std::string> sizes;
    bool accept_strays = false;
    bool dry_run = false;
    std::vector<std::pair<std::string, std::string>> also;
    mch::FrontOptions front;

    void run(Session& session) const {
        if (ranks == 0 && sizes.empty()) wrong("nothing to do. Fix: --to RANKS, --size [TABLE=]SLOTS, or both");
        if (!dry_run && out.empty()) wrong("OUT is missing. Fix: name the folder that files go to, or add --dry-run");
        mch::Job job;
        job.in = in;
        job.out = dry_run ? "" : out;
        job.ranks = ranks;
        for (std::string const& text : sizes) add_size(job, text);
        job.options.mode = mode == "route" ? MchMode::route : MchMode::slot_owner;
        job.options.accept_strays = accept_strays;
        bool const torch = mch::is_dcp(in);
        if (!torch && (!also.empty() || !front.arguments().empty())) {
            wrong("'" + in +
                  "' is no folder of torch.distributed.checkpoint. Fix: leave out --also, --hash-size, "
                  "--buckets, --decay-exponent, --rows and --no-rows: it says these itself");
        }
        if (!Session::speaks()) return;
        std::vector<std::pair<std::string, std::string>> folders{{in, out}};
        folders.insert(folders.end(), also.begin(), also.end());
        if (!out.empty() && torch) mch::check_to_rename(folders);
        if (!out.empty() && !torch) mch::check_new(out, true);
        job.memory = mch::parent_of(folders[0].second);  // the current folder where there is no OUT
        std::optional<demo::Progress> bar;
        job.progress = [&](Index done, Index total, std::string const& what) {
            if (session.json || ::isatty(STDERR_FILENO) == 0) return;
            if (!bar) bar.emplace(total);
            bar->update(done, what);
        };
        std::vector<mch::Outcome> const outcomes = torch ? change_dcp(job, folders) : change_work(job);
        session.say(text_of(outcomes), session.json ? record_of(outcomes) : Json());
    }

private:
    static void add_size(mch::Job& job, std::string const& text) {
        std::size_t const at = text.rfind('=');
        std::string const name = at == std::string::npos ? "" : text.substr(0, at);
        std::string const digits = at == std::string::npos ? text : text.substr(at + 1);
        bool const number = !digits.empty() && digits.size() <= 13 &&
                            digits.find_first_not_of("0123456789") == std::string::npos && std::stoll(digits) > 0;
        if (!number) wrong("--size " + text + ": not a number of slots from 1 to 10^13 - 1. Fix: --size [TABLE=]SLOTS");
        if (!job.sizes.emplace(name, std::stoll(digits)).second)
            wrong("--size " + text + ": given twice. Fix: once for all tables, or once per table");
    }
    std::vector<mch::Outcome> change_dcp(mch::Job job,
                                         std::vector<std::pair<std::string, std::string>> const& folders) const {
        mch::WorkFolder const work(out.empty() ? "reshard-mch" : folders[0].second);
        std::vector<std::string> arguments = front.arguments();
        if (ranks != 0) arguments.push_back(errors::concat("--to=", ranks));
        if (dry_run) arguments.push_back("--ids-only");
        for (auto const& one : folders) arguments.push_back(one.first);
        mch::run_front("read", work.path(), arguments);
        job.in = work.path() + "/in";
        if (!dry_run) job.out = work.path() + "/out";
        std::vector<mch::Outcome> outcomes = change_work(job);
        if (dry_run) return outcomes;
        arguments.clear();
        for (std::size_t i = 0; i < folders.size(); ++i) {
            arguments.push_back(folders[i].first);
            arguments.push_back(errors::concat(work.path(), "/folder", i));
        }
        mch::run_front("write", work.path(), arguments);
        for (std::size_t i = folders.size(); i-- > 0;)  // the model last: with it, all are there
            mch::put_in_place(arguments[2 * i + 1], folders[i].second);
        return outcomes;
    }

    /// What is wrong with a file that was made for this is wrong with the folder that it was made from, and remedies
    /// are those of a command.
    [[nodiscard]] std::vector<mch::Outcome> change_work(mch::Job const& job) const {
        try {
            return mch::change_tables(job);
        } catch (Error const& error) {
            std::string text = error.message();
            auto const say = [&](std::string const& was, std::string const& is) {
                for (std::size_t at = 0; (at = text.find(was, at)) != std::string::npos; at += is.size())
                    text.replace(at, was.size(), is);
            };
            if (job.in != in) say(job.in + "/model.safetensors", in);
            say("MchMode::route", "--mode route");
            say("MchOptions::accept_strays", "--accept-strays");
            say("validate() says where", "take another save");
            detail::raise_agreed(error.code(), std::move(text), error.is_agreed());
        }
    }

    [[nodiscard]] std::string text_of(std::vector<mch::Outcome> const& outcomes) const {
        std::string text;
        for (mch::Outcome const& one : outcomes) {
            text +=
                errors::concat("table ", detail::quote_name(one.before.name), ": ", one.before.size(), " slots on ",
                               one.before.parts(), " ranks, now ", one.after.size(), " on ", one.after.parts(), "; ",
                               one.kept, " of ", one.ids, " ids kept, ", one.moved, " of them in another row\n");
            if (one.unreachable != 0)
                text += errors::concat("    ", one.unreachable, " of them where no look-up finds them\n");
            add_list(text, "evicted for want of slots on their rank, lowest score first", one.evicted);
            add_list(text, "left out, since no look-up would find them", one.left_out);
        }
        return text + (dry_run ? "nothing was written (--dry-run)\n" : errors::concat("'", out, "' is written\n"));
    }
    static void add_list(std::string& text, std::string const& why, std::vector<Index> const& ids) {
        if (ids.empty()) return;
        text += errors::concat("    ", ids.size(), " ", why, ":");
        for (std::size_t i = 0; i < ids.size() && i < 3; ++i) text += errors::concat(" ", ids[i]);
        text += ids.size() > 3 ? " ... (--json lists all)\n" : "\n";
    }
    [[nodiscard]] Json record_of(std::vector<mch::Outcome> const& outcomes) const {
        Json tables = Json::array();
        for (mch::Outcome const& one : outcomes) {
            tables.push_back({{"name", one.before.name},
                              {"layout", name(one.before.layout)},
                              {"policy", name(one.before.eviction)},
                              {"slots", {one.before.size(), one.after.size()}},
                              {"ranks", {one.before.parts(), one.after.parts()}},
                              {"ids", one.ids},
                              {"kept", one.kept},
                              {"moved", one.moved},
                              {"unreachable", one.unreachable},
                              {"evicted", one.evicted},
                              {"left_out", one.left_out}});
        }
        return {{"tables", tables}, {"written", !dry_run}};
    }
};

}  // namespace

void add_mch(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<Mch>();
    CLI::App* const command = add_verb(
        app, "mch", "managed-collision tables (TorchRec's MCH and HashZCH) for another number of ranks or slots",
        "reshard mch model model.8 --to 8 --also optimizer optimizer.8      folders of torch.distributed.checkpoint\n"
        "  reshard mch checkpoint other --to 8 --size user=1000000            a checkpoint of this library");
    command->add_option("IN", verb->in, "a checkpoint with tables, or a folder of torch.distributed.checkpoint")
        ->required()
        ->check(some_path());
    command->add_option("OUT", verb->out,
                        "the folder to make: of the same kind, with all else that IN has; --dry-run needs none");
    command->add_option("--to", verb->ranks, "ranks that will load it (default: as many as saved it)")
        ->check(whole_number(1, 4096));
    command->add_option("--size", verb->sizes, "[TABLE=]SLOTS: another size; what no longer fits is evicted and listed")
        ->allow_extra_args(false);
    command->add_option("--mode", verb->mode, "route: ids go where they are looked up; slot_owner: with their slots")
        ->check(CLI::IsMember({"route", "slot_owner"}))
        ->transform(with_underscores())
        ->capture_default_str();
    command->add_flag("--accept-strays", verb->accept_strays,
                      "ids that lie where no look-up finds them are no mistake");
    command->add_flag("--dry-run", verb->dry_run, "say what would become of the ids, and write nothing");
    auto* const torch = command->add_option_group("torch.distributed.checkpoint");
    torch
        ->add_option("--also", verb->also, "IN OUT: another folder with tensors of the tables, such as the optimizer's")
        ->check(some_path());
    mch::FrontOptions& front = verb->front;
    torch->add_option("--hash-size", front.hash_size, "[TABLE=]N: input_hash_size, where it was configured");
    torch->add_option("--buckets", front.buckets, "[TABLE=]N: of HashZCH tables saved without _hash_zch_bucket");
    torch->add_option("--decay-exponent", front.decay_exponent, "[TABLE=]E: of the eviction policy (default: 1)");
    torch->add_option("--rows", front.rows, "TABLE=KEY: rows that are not named after their table");
    torch->add_option("--no-rows", front.no_rows, "TABLE[=KEY]: it has no weights to carry, or these are not its own");
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
