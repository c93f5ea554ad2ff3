// SPDX-License-Identifier: Apache-2.0
// reshard consolidate: shards become full files with an index, as Hugging Face's tools read them.
#include "rewrite.hpp"

#include <memory>

namespace command {
namespace {

using namespace reshard;

struct Consolidate : Rewrite {
    std::string like;
    Index max_file_bytes = default_max_file_bytes;
    Index files = 0;
    bool one_file = false;
    bool manifest = false;

    void run_verb(Session& session) const {
        auto options = this->options<ConsolidateOptions>();
        options.max_file_bytes = one_file ? 0 : max_file_bytes;
        options.manifest = manifest;
        if (!like.empty()) options.weight_map = read_weight_map(like);
        if (files > 0 && !(in.empty() && model.empty()))
            options.weight_map = in_files(detail::renamed(catalogue(), options.rename));
        run(
            session, options, [&](Catalogue const& from, int ranks) { return plan_consolidate(from, ranks, options); },
            [&](CommunicatorRef comm, auto const& mine) { return consolidate(in, out, comm, mine); });
    }

private:
    /// Tensors in the order of their names, so many files of about the same size: a tensor is in the file in which its
    /// middle lies.
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> in_files(Catalogue const& from) const {
        if (files > static_cast<Index>(from.tensors().size())) {
            wrong(errors::concat("--files: ", files, " files for ", from.tensors().size(),
                                 " tensors. Fix: one tensor a file at most."));
        }
        Index all = 0;
        for (StoredTensor const& tensor : from.tensors()) all += stored_bytes_of(tensor.dtype, Box(tensor.shape));
        std::vector<std::pair<std::string, std::string>> map;
        Index before = 0;
        Index file = 0;
        for (StoredTensor const& tensor : from.tensors()) {
            Index const bytes = stored_bytes_of(tensor.dtype, Box(tensor.shape));
            auto const left = static_cast<Index>(from.tensors().size() - map.size());
            Index const place =
                all == 0 ? 0
                         : static_cast<Index>((static_cast<double>(before) + static_cast<double>(bytes) / 2) /
                                              static_cast<double>(all) * static_cast<double>(files));
            // No file is left out: each has a tensor, and so many are left for those behind it.
            if (!map.empty() && (place > file || left <= files - 1 - file)) file = detail::smaller(file + 1, files - 1);
            map.emplace_back(tensor.name, checkpoint_file_name(static_cast<int>(file), static_cast<int>(files)));
            before += bytes;
        }
        return map;
    }
};

}  // namespace

void add_consolidate(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<Consolidate>();
    CLI::App* const command = add_verb(app, "consolidate", "writes shards as full files with an index, or as one file",
                                       "mpirun -n 8 reshard consolidate sharded full --dtype bf16");
    verb->add_options(*command, session);
    auto* const like =
        command->add_option("--like", verb->like, "an index whose weight_map says which tensor goes to which file");
    auto* const size = command->add_option("--max-file-bytes", verb->max_file_bytes, "a file takes tensors up to this");
    size->transform(byte_size(1, Index{1} << 50))->capture_default_str();
    auto* const count = command->add_option("--files", verb->files, "so many files, of about the same size");
    count->check(whole_number(1, 99'999))->excludes(like)->excludes(size);
    command->add_flag("--one-file", verb->one_file, "one model.safetensors")
        ->excludes(like)
        ->excludes(size)
        ->excludes(count);
    command
        ->add_flag("--manifest", verb->manifest, "leave checksums beside the files, for reshard verify and for loads")
        ->excludes(command->get_option("--no-checksums"));
    command->callback([verb, &session] { verb->run_verb(session); });
}

}  // namespace command
