// SPDX-License-Identifier: Apache-2.0
/// \file   tools/reshard/verbs.hpp
/// \brief  The verbs of the command `reshard`, and what each of them is given.
///
/// A verb is one file with one function, add_<verb>(app, session): it adds a subcommand (add_verb), its options, and a
/// callback that does the work and answers by session.say(). A verb is a thin face: what it can do, the library can.
///
/// Exit statuses, as of cmp and grep: 0 fine; 1 the answer is no (unequal, corrupt); 2 there is none, since the command
/// line is wrong (wrong()) or something failed (what a callback throws is printed by main).
#pragma once

#include <reshard/algebra/notation.hpp>
#include <reshard/checkpoint/manifest.hpp>
#include <reshard/checkpoint/placed_tensor.hpp>
#include <reshard/comm/any_communicator.hpp>
#include <reshard/plan/plan.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>   // max
#include <functional>  // function
#include <string>      // string
#include <utility>     // pair
#include <vector>      // vector

namespace command {

/// Keeps the order in which fields are added: that of the text.
using Json = nlohmann::ordered_json;

/// What the options in front of or behind any verb say, and what comes of them.
class Session {
public:
    bool json = false;  ///< --json: say() prints a record instead of text, and there are no progress bars
    int ranks = 0;      ///< --ranks, for verbs that have add_ranks(); 0: not given
    int status = 0;     ///< what the program exits with

    /// Whether this process answers: the only one, or the first of those that mpirun started. Verbs without ranks do
    /// their work there alone.
    [[nodiscard]] static bool speaks();
    /// The answer: `text`, or with --json the record. Once a run, by one rank. What cannot be written is status 2.
    void say(std::string const& text, Json const& record);
    /// The same, and status 1.
    void say_no(std::string const& text, Json const& record);
    /// Runs body(comm) on every rank: threads (--ranks of them, or `otherwise`), or the processes of mpirun. What a
    /// rank throws is printed, and is status 2.
    void on_ranks(int otherwise, std::function<void(reshard::CommunicatorRef)> const& body);
    /// A bar of the bytes of all ranks, for verbs in which their shares are equal; nothing where none is shown.
    [[nodiscard]] std::function<void(reshard::Index done, reshard::Index total)> progress(
        reshard::CommunicatorRef comm) const;
    /// How many ranks there are where the number does not follow from the arguments: one a processor, at most 8.
    [[nodiscard]] static int ranks_of_machine();
};

/// A subcommand with its help: a sentence and an example.
CLI::App* add_verb(CLI::App& app, std::string const& name, std::string const& what, std::string const& example);
/// The threads that on_ranks() starts at most.
inline constexpr int most_threads = 4096;
/// --ranks, for verbs that use on_ranks(); `most` is more where they also plan for ranks that are not started.
void add_ranks(CLI::App& verb, Session& session, int most = most_threads);

/// For check(): whole numbers between two.
[[nodiscard]] CLI::Validator whole_number(reshard::Index least, reshard::Index most);
/// For transform(): numbers of bytes, also with KiB, MiB, GiB, kB, KB, MB or GB behind.
[[nodiscard]] CLI::Validator byte_size(reshard::Index least, reshard::Index most);
/// For check(): a path that is not empty.
[[nodiscard]] CLI::Validator some_path();
/// For transform(): values that are a word of this library, whose `_` may be typed as `-`.
[[nodiscard]] CLI::Validator with_underscores();

/// Throws unless a folder can be made: it is not there, or empty but for `input` and, if `saved`, for what runs that
/// were killed have left, which the next one removes.
void check_empty(std::string const& folder, bool saved, std::string const& input = {});

/// The command line is wrong: printed, and status 2.
[[noreturn]] void wrong(std::string const& message);
/// What make() returns; its errors are about `option`, and are wrong() ones.
template <class Make>
auto given(std::string const& option, Make&& make) {
    try {
        return make();
    } catch (reshard::Error const& error) {
        wrong(option + ": " + error.message());
    }
}
/// `8192x1024` or `[8192,1024]`; `[]` is a scalar.
[[nodiscard]] reshard::DynamicShape shape_given(std::string const& option, std::string const& text);
/// A list of extents.
[[nodiscard]] Json record_of(reshard::DynamicShape const& shape);
/// Of each file the number of tensors that the index does not name.
[[nodiscard]] Json record_of(std::vector<reshard::CheckpointFile> const& unlisted);
/// Of each file whose metadata contradict an earlier one's, a key.
[[nodiscard]] Json contradicting(std::vector<reshard::CheckpointFile> const& files);
/// {"error": {"code", "message"}}, and "rule" where it is about one of the format.
[[nodiscard]] Json error_record(std::exception const& error);
/// What a checkpoint is, in words; `full` where no file is one of save().
[[nodiscard]] std::string kind_text(reshard::CheckpointKind kind, bool full);
/// `bf16`, `F32`, `float32`, `half`, `torch.float8_e4m3fn`: the names of safetensors and of PyTorch, in any case.
[[nodiscard]] reshard::DType dtype_given(std::string const& option, std::string const& text);
/// Of a world that is planned: a plan of one rank lists its peers.
inline constexpr reshard::Index most_ranks = reshard::Index{1} << 24;
/// A plan between two distributions of the notation, also of different meshes. Large worlds are refused, and what
/// elements of a type cannot do.
[[nodiscard]] reshard::Plan<> plan_given(std::string const& from, std::string const& to,
                                         reshard::DynamicShape const& shape, reshard::DType dtype,
                                         reshard::Index ranks_per_node);
/// The tensors of a public model, by its name (examples/support/model_lists.hpp); of so many layers, if not 0.
[[nodiscard]] std::vector<reshard::TensorSpec> model_given(std::string const& option, std::string const& name,
                                                           int layers = 0);
/// Of a file with a line for each tensor: its name, and another one.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> renames_given(std::string const& option,
                                                                             std::string const& file);
/// A mesh axis, by its number or its name; `where` is the option that has the mesh.
[[nodiscard]] int axis_given(std::string const& option, std::string const& text, std::string const& where,
                             reshard::DynamicMesh const& mesh);
/// The ranks that a plan for tensors of any shape is about; wrong() where they are too many to plan for each.
[[nodiscard]] int planned_ranks(std::string const& option, reshard::PlacementRule const& rule);
/// wrong() where a placement for tensors of any shape needs `dims` dimensions to cut, and none of these has as many:
/// all would be copied.
template <class Tensors>
void check_cuts(std::string const& option, int dims, Tensors const& tensors) {
    int most = 1;  // what has scalars alone is copied
    for (auto const& one : tensors) most = std::max(most, one.shape.rank());
    if (dims > most)
        wrong(reshard::errors::concat(option, ": no tensor has a dimension ", dims - 1,
                                      ". Fix: S0 cuts rows, S1 columns."));
}
/// Tensors by such a placement, checked so. Those with elements smaller than a byte are loaded and saved as their
/// bytes.
template <class Tensors>
[[nodiscard]] std::vector<reshard::PlacedTensor> placed_given(std::string const& option,
                                                              reshard::PlacementRule const& rule,
                                                              Tensors const& tensors) {
    check_cuts(option, rule.dims(), tensors);
    std::vector<reshard::PlacedTensor> placed;
    for (auto const& one : tensors) {
        bool const as_bytes = !is_byte_sized(one.dtype);
        reshard::DynamicShape shape = one.shape;
        if (as_bytes) shape = reshard::Shape{reshard::stored_bytes_of(one.dtype, reshard::Box(one.shape))};
        reshard::DType const dtype = as_bytes ? reshard::DType::u8 : one.dtype;
        placed.push_back({one.name, given(option, [&] { return rule.of(shape, one.dtype); }), dtype});
    }
    return placed;
}

// ---- The verbs ---------------------------------------------------------------------------------------------------
void add_explain(CLI::App& app, Session& session);
void add_simulate(CLI::App& app, Session& session);
void add_relabel(CLI::App& app, Session& session);
void add_draw(CLI::App& app, Session& session);
void add_inspect(CLI::App& app, Session& session);
void add_verify(CLI::App& app, Session& session);
void add_compare(CLI::App& app, Session& session);
void add_consolidate(CLI::App& app, Session& session);
void add_shard(CLI::App& app, Session& session);
void add_mch(CLI::App& app, Session& session);
void add_plan_save(CLI::App& app, Session& session);
void add_plan_load(CLI::App& app, Session& session);

}  // namespace command
