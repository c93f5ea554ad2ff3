// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_output.hpp
/// \brief  What the options of rewriting files come to: the names of the tensors, and the files that will be written,
///         to the byte, but for what the tensors hold.
/// \depends checkpoint/{catalogue,consolidate_options,save_plan,safetensors_layout}, comm/agree. No I/O: every rank
/// computes the same.
#pragma once

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/consolidate_options.hpp>
#include <reshard/checkpoint/detail/file_entries.hpp>
#include <reshard/checkpoint/detail/file_list.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/detail/whole_files.hpp>
#include <reshard/checkpoint/save_plan.hpp>
#include <reshard/comm/agree.hpp>
#include <reshard/core/sorting.hpp>
#include <reshard/memory/convert.hpp>

#include <algorithm>  // adjacent_find, any_of, find_if, lower_bound

namespace reshard::inline v0_1::detail {

/// Throws BufferError for options that mean nothing.
inline void check(RewriteOptions const& options) {
    check_option("RewriteOptions", "in_flight", options.in_flight, 1, "allow at least one piece.");
    check_option("RewriteOptions", "vote_bytes", options.vote_bytes, 1, "millions of bytes between two votes.");
    check_option("RewriteOptions", "replica", options.replica, -1, "-1 is any copy, 0 the first.");
    Index const least = Index{64} << 10;
    check_option("RewriteOptions", "window_bytes", options.window_bytes, least * options.in_flight,
                 concat("allow ", least, " bytes for each piece in flight."));
}

/// What all ranks must do and give alike, but for the types, which are a function.
[[nodiscard]] inline std::string text_of(RewriteOptions const& options, std::string does,
                                         std::initializer_list<StatedOption> own) {
    return options_text({{"replica", options.replica},
                         {"rename", renames_text(options.rename)},
                         {"metadata", metadata_text(options.metadata)},
                         {"verify_checksums", options.verify_checksums},
                         {"checksums", options.checksums},
                         {"durable", options.durable},
                         {"vote_bytes", options.vote_bytes}},
                        options_text(own, std::move(does)));
}
[[nodiscard]] inline std::string text_of(ConsolidateOptions const& options) {
    Digest digest;
    for (auto const& [tensor, file] : options.weight_map) digest.add_text(tensor).add_text(file);
    return text_of(options, "consolidates with",
                   {{"max_file_bytes", options.max_file_bytes},
                    {"weight_map", concat("of ", options.weight_map.size(), " tensors, digest ", digest.value())},
                    {"manifest", options.manifest}});
}
[[nodiscard]] inline std::string text_of(ShardOptions const& options) {
    return text_of(options, "shards with",
                   {{"dedup", name(options.dedup)}, {"replica_axes", axes_text(options.replica_axes)}});
}

/// Whether what a table's name is followed by makes it the name of a tensor of the table (docs/mch-format.md).
[[nodiscard]] inline bool is_of_table(std::string_view rest) noexcept {
    return rest == ".ids" || rest == ".slots" || rest.starts_with(".metadata.") || rest.starts_with(".rows.");
}

/// Tables go by other names with their tensors: a table is found by what these are called. Where they do not all get
/// the same one: apart(table, tensor, its name, the name that goes with the others), and the table is none any more.
/// Throws FormatError where a text is there under the new name already. \pre tensors are sorted
template <class NameAfter, class Apart, class Refuse>
void rename_tables(Manifest& manifest, NameAfter const& name_after, Apart const& apart, Refuse const& refuse) {
    std::vector<std::string> tables;
    for (auto const& item : manifest.metadata)
        if (item.first.starts_with(mch_table_key)) tables.push_back(item.first.substr(mch_table_key.size()));
    sort_list(tables);
    auto const rename_table = [&](std::string& key) {
        std::string const table = key.substr(mch_table_key.size());
        std::string const prefix = table + '.';
        auto const is_of_another = [&](std::string_view tensor) {  // called so that it could be of this one, too
            for (auto other = std::ranges::lower_bound(tables, prefix);
                 other != tables.end() && other->starts_with(prefix); ++other)
                if (tensor.starts_with(*other) && is_of_table(tensor.substr(other->size()))) return true;
            return false;
        };
        std::string to;
        for (auto tensor = std::ranges::lower_bound(manifest.tensors, prefix, {}, &StoredTensor::name);
             tensor != manifest.tensors.end() && tensor->name.starts_with(prefix); ++tensor) {  // the ids come first
            std::string_view const rest = std::string_view(tensor->name).substr(table.size());
            if (to.empty() ? rest != ".ids" : !is_of_table(rest) || is_of_another(tensor->name)) continue;
            std::string const name = name_after(tensor->name);
            if (to.empty() && name.ends_with(rest)) to = name.substr(0, name.size() - rest.size());
            if (!to.empty() && name == concat(to, rest)) continue;
            apart(table, tensor->name, name, to.empty() ? concat("OTHER", rest) : quote_name(concat(to, rest)));
            return false;
        }
        if (!to.empty()) key = concat(mch_table_key, to);
        return true;
    };
    Metadata texts;
    for (auto& item : manifest.metadata)
        if (!item.first.starts_with(mch_table_key) || rename_table(item.first)) texts.push_back(std::move(item));
    manifest.metadata = std::move(texts);
    sort_list(manifest.metadata);
    auto const twice = std::ranges::adjacent_find(manifest.metadata, {}, &Metadata::value_type::first);
    if (twice != manifest.metadata.end())
        refuse(SafetensorsRule::duplicate_key, "makes two texts ", quote_name(twice->first),
               ". Fix: give the table a name of its own.");
}

/// Throws FormatError for a rename that no tensor has, that is no rename, after which two tensors have one name, or,
/// unless those of a table `may_part`, tensors of one table are called after two.
[[nodiscard]] inline Catalogue renamed(Catalogue from, std::vector<std::pair<std::string, std::string>> const& renames,
                                       bool may_part = false) {
    if (renames.empty()) return from;
    auto const refuse = [](SafetensorsRule rule, auto const&... parts) {
        raise_rule(rule, "reshard: rename ", parts...);
    };
    CheckpointKind const kind = from.kind();
    Manifest manifest = std::move(from).manifest();
    for (Extent& extent : manifest.extents) extent.key = std::string(key_of(manifest, extent));
    std::vector<bool> used(renames.size());
    for (auto const& [name, to] : renames) {
        if (is_rename({name, to})) continue;
        refuse(SafetensorsRule::invalid_index, "of ", quote_name(name), " to ", quote_name(to), rename_fix);
    }
    auto const name_after = [&](std::string const& name) {
        std::string to = name;
        for (std::size_t i = 0; i < renames.size(); ++i) {  // the first that fits
            if (!rename_to(renames[i].first, renames[i].second, name, to)) continue;
            used[i] = true;
            break;
        }
        return to;
    };
    auto const apart = [&](std::string const& table, std::string const& tensor, std::string const& name,
                           std::string const& other) {
        if (may_part) return;
        refuse(
            SafetensorsRule::invalid_index, "takes table ", quote_name(table), " apart: its tensor ",
            quote_name(tensor), " would be ", quote_name(name), ", not ", other,
            ". Fix: rename all tensors of a table alike, as 'TABLE.*' to 'OTHER.*' does, or none; one tensor alone by "
            "LoadOptions::rename, when it is loaded.");
    };
    rename_tables(manifest, name_after, apart, refuse);
    for (StoredTensor& tensor : manifest.tensors) tensor.name = name_after(tensor.name);
    for (std::size_t i = 0; i < used.size(); ++i) {
        if (used[i]) continue;
        refuse(SafetensorsRule::tensor_not_found, "names ", quote_name(renames[i].first),
               ", which is no tensor of the checkpoint, or one that an earlier line renames. Fix: leave it out.");
    }
    sort_tensors(manifest);
    for (std::size_t t = 1; t < manifest.tensors.size(); ++t) {
        if (manifest.tensors[t].name != manifest.tensors[t - 1].name) continue;
        refuse(SafetensorsRule::duplicate_key, "makes two tensors ", quote_name(manifest.tensors[t].name),
               ". Fix: give each a name of its own.");
    }
    return Catalogue(std::move(manifest), kind);
}

/// Files, what lies where in them, and the texts that name them.
struct OutputFiles {
    Catalogue catalogue;
    std::vector<std::string> starts;  ///< per file: length, header and padding
    std::string index;                ///< the text of that of whole files; empty: there is none
    bool manifest = false;            ///< there is one, whose text follows from checksums: of shards, or of whole files
    /// Bytes of all files together.
    [[nodiscard]] Index file_bytes() const noexcept {
        Index sum = 0;
        for (CheckpointFile const& file : catalogue.files()) sum += file.file_bytes;
        return sum;
    }
};

/// Tensors as they will be written. Throws DTypeError for types that do not convert, naming the tensor.
[[nodiscard]] inline std::vector<TensorSpec> output_tensors(Catalogue const& from, RewriteOptions const& options) {
    std::vector<TensorSpec> specs;
    for (StoredTensor const& tensor : from.tensors()) {
        DType const to = options.dtype ? options.dtype(tensor) : tensor.dtype;
        if (to != tensor.dtype && !can_convert(tensor.dtype, to)) {
            raise(ErrorCode::dtype, "reshard::RewriteOptions: tensor ", quote_name(tensor.name), " of ",
                  name(tensor.dtype), " cannot be written as ", name(to),
                  ". Fix: leave its type, or cast numbers of whole bytes only.");
        }
        specs.push_back({tensor.name, to, tensor.shape});
    }
    return specs;
}

/// The options' texts. Where these are the default, the format that all files have that are read.
[[nodiscard]] inline Metadata own_metadata(Catalogue const& from, RewriteOptions const& options) {
    std::string const& format = from.manifest().format;
    bool const keeps = !format.empty() && options.metadata == default_metadata();
    return keeps ? Metadata{{"format", format}} : options.metadata;
}
/// The texts of each full file: these, and those of the save that the options do not name.
[[nodiscard]] inline Metadata output_metadata(Catalogue const& from, RewriteOptions const& options) {
    Metadata result = own_metadata(from, options);
    for (auto const& item : from.manifest().metadata) {
        bool const named = std::any_of(options.metadata.begin(), options.metadata.end(),
                                       [&](auto const& own) { return own.first == item.first; });
        if (!named && item.first != mch_replaced_key) result.push_back(item);
    }
    return result;
}

/// Which tensors share a file. Throws FormatError for a weight_map that does not name each tensor once.
[[nodiscard]] inline std::vector<FileSpec> group_tensors(std::vector<TensorSpec> specs,
                                                         ConsolidateOptions const& options) {
    if (options.weight_map.empty())
        return split_into_files(std::move(specs), options.max_file_bytes == 0 ? INT64_MAX : options.max_file_bytes);
    std::vector<FileSpec> files;
    auto const refuse = [](SafetensorsRule rule, auto const&... parts) {
        raise_rule(rule, "reshard::ConsolidateOptions: weight_map ", parts...);
    };
    auto map = options.weight_map;
    sort_list(map);
    for (std::size_t i = 0; i < map.size() || i < specs.size(); ++i) {  // both are sorted by name
        int const order = i == map.size() ? 1 : i == specs.size() ? -1 : map[i].first.compare(specs[i].name);
        if (order > 0) {
            refuse(SafetensorsRule::tensor_not_found, "does not say where tensor ", quote_name(specs[i].name),
                   " goes. Fix: name every tensor of the checkpoint.");
        }
        auto const& [tensor, leaf] = map[i];
        if (i > 0 && map[i - 1].first == tensor)
            refuse(SafetensorsRule::duplicate_key, "names ", quote_name(tensor), " twice. Fix: name it once.");
        if (order < 0) {
            refuse(SafetensorsRule::tensor_not_found, "names ", quote_name(tensor),
                   ", which the checkpoint does not have. Fix: leave it out.");
        }
        auto file = std::ranges::find(files, leaf, &FileSpec::leaf);
        if (file == files.end()) {
            if (!is_output_leaf(leaf)) {
                refuse(SafetensorsRule::invalid_index, "names the file ", quote_name(leaf),
                       ". Fix: name files '*.safetensors', without a folder.");
            }
            file = files.insert(files.end(), {leaf, {}});
        }
        file->tensors.push_back(std::move(specs[i]));
    }
    sort_list(files, [](FileSpec const& a, FileSpec const& b) { return a.leaf < b.leaf; });
    return files;
}

/// Whole tensors in the files that Hugging Face's tools read. `id`: of their manifest, 16 digits. Throws BufferError
/// for a limit below 0, and for a manifest without checksums.
[[nodiscard]] inline OutputFiles full_output(Catalogue const& from, ConsolidateOptions const& options,
                                             std::string const& id) {
    check_option("ConsolidateOptions", "max_file_bytes", options.max_file_bytes, 0, "0 means one file.");
    if (options.manifest && !options.checksums) {
        raise(ErrorCode::buffer,
              "reshard::ConsolidateOptions: manifest is true, but checksums is false: there is nothing to write into "
              "it. Fix: set both, or none.");
    }
    Metadata metadata = output_metadata(from, options);
    WholeFiles made = whole_files(group_tensors(output_tensors(from, options), options), metadata);
    made.manifest.metadata = from.manifest().metadata;
    if (options.manifest) {
        made.manifest.format = format_of(metadata);
        drop_texts_of_file(metadata);
        sort_list(metadata);
        made.manifest.metadata = std::move(metadata);  // what the files say that are opened without it
        made.manifest.save = id;
        made.manifest.world_size = 1;
        Index bytes = 0;
        for (Extent const& extent : made.manifest.extents) bytes += extent_bytes(made.manifest, extent);
        made.manifest.block_bytes = block_bytes_for(bytes);
    }
    OutputFiles result;
    result.manifest = options.manifest;
    result.starts = std::move(made.starts);
    if (result.starts.size() > 1 || made.manifest.files.front().leaf != single_name)
        result.index = index_text(made.manifest);
    result.catalogue = Catalogue(std::move(made.manifest), CheckpointKind::index);
    return result;
}

/// The files that ranks of a mesh would save, with their manifest. `id`: of the save, 16 digits.
[[nodiscard]] inline OutputFiles shard_output(Catalogue const& from, PlaceTensor const& place,
                                              ShardOptions const& options, std::string const& id) {
    std::vector<PlacedTensor> sources;
    Index ranks = 1;
    std::vector<TensorSpec> const specs = output_tensors(from, options);
    for (std::size_t t = 0; t < specs.size(); ++t) {
        DynamicDistribution const to = place(from.tensors()[t]);
        if (to.shape() != specs[t].shape) {
            raise(ErrorCode::mismatch, "reshard::shard_checkpoint: tensor ", quote_name(specs[t].name), " of shape ",
                  to_string(specs[t].shape), " is placed as ", to_string(to), " of ", to_string(to.shape()),
                  ". Fix: place it in the shape it has.");
        }
        ranks = larger(ranks, to.mesh().last_rank() + 1);
        sources.push_back({specs[t].name, to, specs[t].dtype});
    }
    SaveOptions planned;
    planned.dedup = options.dedup;
    planned.replica_axes = options.replica_axes;
    SavePlan plan = plan_save(sources, static_cast<int>(ranks), planned);
    OutputFiles result;
    Manifest& manifest = plan.manifest;
    manifest.metadata = from.manifest().metadata;
    manifest.save = id;
    Metadata const texts = own_metadata(from, options);
    manifest.format = format_of(texts);
    for (std::size_t f = 0; f < manifest.files.size(); ++f) {
        int const writer = manifest.files[f].writer;
        SafetensorsLayout layout = shard_layout(manifest, plan.extents_of(writer), texts);
        manifest.files[f] = described_file(shard_file_name(writer, plan.ranks, id), layout);
        manifest.files[f].writer = writer;
        result.starts.push_back(std::move(layout.start));
    }
    result.catalogue = Catalogue(std::move(manifest));
    result.manifest = true;
    return result;
}

/// Copies that were saved apart and that checksums do not show to be equal: somebody must choose, unless all of them
/// are written.
inline void check_replicas(Catalogue const& from, Catalogue const& to, RewriteOptions const& options) {
    if (options.replica >= 0) return;
    for (std::size_t t = 0; t < from.tensors().size(); ++t) {
        if (from.tensors()[t].replicas <= larger(to.tensors()[t].replicas, 1)) continue;
        for (std::size_t const a : from.extents_of(t)) {
            Extent const& first = from.extents()[a];
            if (first.replica != 0 || first.box.empty()) continue;
            auto const refuse = [&](auto const&... why) {
                raise(ErrorCode::mismatch, "reshard::RewriteOptions: copies ", why...,
                      ". Fix: choose one with RewriteOptions::replica (of the command: --replica).");
            };
            std::string const name = quote_name(from.tensors()[t].name);
            int copies = 0;
            bool summed = true;
            from.for_each_near(t, first.box, [&](std::size_t b) {
                Extent const& other = from.extents()[b];
                if (other.box != first.box) return;
                ++copies;
                summed = summed && other.has_checksum;
                if (summed && other.crc32c != first.crc32c)
                    refuse("0 and ", other.replica, " of tensor ", name, " differ in box ", to_string(first.box));
            });
            if (copies != from.tensors()[t].replicas)
                refuse("of tensor ", name,
                       " are cut in different places, so their checksums cannot say whether they are equal");
            if (!summed)
                refuse("of tensor ", name, " were saved without checksums, which would say whether they are equal");
        }
    }
}

}  // namespace reshard::inline v0_1::detail
