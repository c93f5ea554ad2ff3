// SPDX-License-Identifier: Apache-2.0
// reshard compare: are two checkpoints equal, whatever files they lie in? If not: tensor, index and both values.
#include "verbs.hpp"

#include <reshard/checkpoint/compare_checkpoints.hpp>

#include <cmath>
#include <memory>
#include <utility>

namespace command {
namespace {

using namespace reshard;

struct Compare {
    std::string first;
    std::string second;
    std::string rename;
    CompareOptions asked{};

    void run(Session& session) const {
        for (auto const& [option, value] : {std::pair{"--rtol", asked.rtol}, {"--atol", asked.atol}}) {
            if (std::isfinite(value) && value >= 0) continue;
            wrong(errors::concat(option, ": no tolerance. Fix: give 0 or more; 0 asks for equal bits."));
        }
        CompareOptions options = asked;
        if (!rename.empty()) options.rename = renames_given("--rename", rename);
        session.on_ranks(Session::ranks_of_machine(), [&](CommunicatorRef comm) {
            CompareOptions mine = options;
            mine.progress = session.progress(comm);
            CompareReport const report = compare_checkpoints(first, second, comm, mine);
            if (comm.rank() != 0) return;
            if (report.equal()) return session.say(explain(report), record(report));
            session.say_no(explain(report), record(report));
        });
    }

private:
    [[nodiscard]] static Json record(CompareReport const& report) {
        constexpr char const* kinds[] = {"only_first", "only_second", "form", "values", "table"};
        Json list = Json::array();
        for (CheckpointDifference const& one : report.differences) {
            Json row{{"tensor", one.tensor}, {"kind", kinds[static_cast<int>(one.kind)]}};
            if (one.kind == DifferenceKind::table) {
                row["field"] = one.field;
                row["first"] = one.first_value;
                row["second"] = one.second_value;
                list.push_back(row);
                continue;
            }
            if (one.kind != DifferenceKind::only_second) {
                row["first"] = {{"dtype", name(one.dtype)}, {"shape", record_of(one.shape)}};
            }
            if (one.kind != DifferenceKind::only_first) {
                row["second"] = {{"dtype", name(one.other_dtype)}, {"shape", record_of(one.other_shape)}};
            }
            if (one.kind == DifferenceKind::values) {
                if (one.copy > 0) row["copy"] = one.copy;
                row["elements"] = one.elements;
                row["largest"] = one.measured > 0 ? Json(one.largest) : Json(nullptr);
                row["places"] = Json::array();
                for (DifferentElement const& element : one.places) {
                    row["places"].push_back({{"index", index_text(one, element.place)},
                                             {"first", value_text(one, element.first)},
                                             {"second", value_text(one, element.second, true)}});
                }
            }
            list.push_back(row);
        }
        return {{"equal", report.equal()},
                {"tensors_compared", report.tensors},
                {"bytes_compared", report.bytes},
                {"copies_not_compared", report.copies_not_compared},
                {"differences", list}};
    }
};

}  // namespace

void add_compare(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<Compare>();
    CLI::App* const command = add_verb(app, "compare",
                                       "says whether two checkpoints are equal, bit for bit or within tolerances, or "
                                       "which tensors differ, where, and how",
                                       "reshard compare sharded full");
    command->add_option("FIRST", verb->first, "a folder of shards or of full files, or one file")
        ->required()
        ->check(some_path());
    command->add_option("SECOND", verb->second, "another one; it may be cut otherwise")->required()->check(some_path());
    command->add_option("--rtol", verb->asked.rtol,
                        "floats a and b are equal if |a - b| <= ATOL + RTOL * |b|, as in NumPy");
    command->add_option("--atol", verb->asked.atol, "see --rtol");
    command->add_flag("--ignore-dtype", verb->asked.ignore_dtype, "compare floats of other element types, as numbers");
    command->add_option("--rename", verb->rename,
                        "a file with a line for each tensor of FIRST that SECOND has under another name, as of reshard "
                        "consolidate");
    command->add_option("--most", verb->asked.most_elements, "elements that are listed for each tensor")
        ->check(whole_number(0, 1'000'000))
        ->capture_default_str();
    add_ranks(*command, session);
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
