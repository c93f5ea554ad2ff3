// SPDX-License-Identifier: Apache-2.0
// reshard verify: reads every byte of a checkpoint once, and compares sizes, headers and checksums.
#include "verbs.hpp"

#include <reshard/checkpoint/verify_checkpoint.hpp>
#include <reshard/core/detail/explain_text.hpp>

#include <memory>

namespace command {
namespace {

using namespace reshard;

struct Verify {
    std::string path;

    void run(Session& session) const {
        session.on_ranks(Session::ranks_of_machine(), [&](CommunicatorRef comm) {
            std::vector<VerifyFault> faults;
            try {
                auto const report =
                    verify_checkpoint(path, comm, {}, default_window_bytes, session.progress(comm), &faults);
                if (comm.rank() == 0) session.say(text(report), record(report));
            } catch (Error const& error) {  // on all ranks
                if (!is_answer(error)) throw;
                if (comm.rank() == 0) session.say_no(error.message() + "\n", record(error, faults));
            }
        });
    }

private:
    /// A checkpoint is there, and not whole or not right: no rank has failed. Other IoErrors are about what cannot be
    /// looked at. By rules, not words: messages have names in them that strangers have chosen.
    [[nodiscard]] static bool is_answer(Error const& error) {
        switch (safetensors_rule(error)) {
            case SafetensorsRule::missing_files: return true;
            case SafetensorsRule::too_many_dimensions:  // these may be sound
            case SafetensorsRule::unknown_dtype:
            case SafetensorsRule::later_version: return false;
            default: return error.code() == ErrorCode::format;
        }
    }
    [[nodiscard]] std::string text(VerifyReport const& report) const {
        std::string text = errors::concat(path, ": ", detail::count_text(report.tensors, "tensor"), " in ",
                                          detail::count_text(report.extents, "shard"), " of ",
                                          detail::count_text(report.files, "file"), ", ",
                                          detail::bytes_text(report.bytes), " read once: ");
        bool const compared = report.extents_without_checksum < report.extents || report.extents == 0;
        text += compared ? "all as it should be" : "readable";
        if (report.extents_without_checksum != 0) {
            text += errors::concat("; nothing to compare with: ",
                                   detail::count_text(report.extents_without_checksum, "shard"), " without checksum");
        }
        return errors::concat(text, "\n", detail::kind_note(report.kind), detail::unlisted_text(report.unlisted));
    }
    [[nodiscard]] static Json record(VerifyReport const& report) {
        return {{"ok", true},
                {"kind", kind_text(report.kind, report.full)},
                {"files", report.files},
                {"tensors", report.tensors},
                {"shards", report.extents},
                {"shards_without_checksum", report.extents_without_checksum},
                {"bytes", report.bytes},
                {"unlisted", record_of(report.unlisted)},
                {"contradicting", contradicting(report.unlisted)}};
    }
    [[nodiscard]] static Json record(Error const& error, std::vector<VerifyFault> const& faults) {
        Json list = Json::array();
        for (VerifyFault const& fault : faults) {
            list.push_back({{"file", fault.file.empty() ? Json() : Json(fault.file)},
                            {"read", !fault.unread},
                            {"message", fault.text}});
        }
        Json record;
        record["ok"] = false;
        record.update(error_record(error));
        record["faults"] = list;
        return record;
    }
};

}  // namespace

void add_verify(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<Verify>();
    CLI::App* const command =
        add_verb(app, "verify", "reads every byte of a checkpoint once, and names all that is wrong",
                 "reshard verify checkpoint --ranks 8");
    command->add_option("CHECKPOINT", verb->path, "a folder of shards or of full files, or one file")
        ->required()
        ->check(some_path());
    add_ranks(*command, session);
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
