// SPDX-License-Identifier: Apache-2.0
// reshard inspect: what is where in a checkpoint. Reads headers and manifests, and of files without one
// samples that tell their version.
#include "verbs.hpp"

#include <reshard/checkpoint/catalogue.hpp>
#include <reshard/checkpoint/detail/load_match.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/core/detail/explain_text.hpp>
#include <reshard/mch/detail/checkpoint_text.hpp>

#include <algorithm>  // none_of
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace command {
namespace {

using namespace reshard;

struct Inspect {
    std::string path;
    std::optional<std::string> tensor;  // one may be called ''

    void run(Session& session) const {
        if (!Session::speaks()) return;
        Catalogue const catalogue(Checkpoint::open(path));
        if (tensor && catalogue.find(*tensor) == nullptr) {
            errors::raise(ErrorCode::user, path, ": no tensor is called ", detail::quote_name(*tensor),
                          detail::similar_names(catalogue.tensors(), *tensor),
                          ". Fix: run reshard inspect without --tensor.");
        }
        session.say(session.json ? "" : text(catalogue), session.json ? record(catalogue) : Json());
    }

private:
    [[nodiscard]] static std::string kind_of(Catalogue const& catalogue) {
        auto const of_save = [](CheckpointFile const& file) { return detail::is_shard_file(file.leaf); };
        return kind_text(catalogue.kind(),
                         !catalogue.files().empty() && std::ranges::none_of(catalogue.files(), of_save));
    }
    /// The managed-collision table that a text of the metadata is about; none where it is about something else, or
    /// makes no sense.
    [[nodiscard]] std::optional<detail::MchSavedTable> table_of(Metadata::value_type const& item) const {
        if (!item.first.starts_with(detail::mch_table_key)) return {};
        try {
            return detail::tables_from({item}, path).front();
        } catch (FormatError const&) {  // of another release, or damaged: shown as it is
            return {};
        }
    }
    [[nodiscard]] static Index live_ids(detail::MchSavedTable const& saved) {
        Index live = 0;
        for (MchIdBounds const& bounds : saved.ids) live += bounds.live;
        return live;
    }
    [[nodiscard]] static std::string table_text(detail::MchSavedTable const& saved) {
        MchTable const& table = saved.table;
        bool const sorted = table.layout == MchLayout::sorted;
        std::string text = errors::concat(
            "  table ", detail::list_name(table.name), ": ", sorted ? "MCH, " : "HashZCH, ", name(table.eviction), ", ",
            detail::count_text(table.size(), "slot"), " on ", detail::count_text(table.parts(), "rank"), ", ",
            detail::count_text(live_ids(saved), "id"),
            sorted ? errors::concat(", iteration ", saved.iteration) : errors::concat(", ", table.buckets, " buckets"));
        for (MchRowsInfo const& rows : saved.rows)
            text += errors::concat(&rows == saved.rows.data() ? "; rows " : ", ", detail::list_name(rows.name), " ",
                                   name(rows.dtype), " ", to_string(DynamicShape(rows.row_shape)));
        return text + "\n";
    }
    [[nodiscard]] bool shows(StoredTensor const& one) const { return !tensor || one.name == *tensor; }
    static std::string sum_text(Extent const& extent) {
        char text[16];
        std::snprintf(text, sizeof text, "%08x", extent.crc32c);
        return text;
    }
    [[nodiscard]] static std::vector<Index> extents_by_file(Catalogue const& catalogue) {
        std::vector<Index> counts(catalogue.files().size());
        for (Extent const& extent : catalogue.extents()) ++counts[static_cast<std::size_t>(extent.file)];
        return counts;
    }

    [[nodiscard]] std::string text(Catalogue const& catalogue) const {
        Manifest const& manifest = catalogue.manifest();
        Index bytes = 0;
        for (Extent const& extent : catalogue.extents()) bytes += catalogue.extent_bytes(extent);
        std::string out = errors::concat(path, ": ", kind_of(catalogue), ", ", detail::bytes_text(bytes), "\n");
        if (!manifest.save.empty())
            out +=
                errors::concat("save ", manifest.save, " by ", detail::count_text(manifest.world_size, "rank"), "\n");
        if (!manifest.format.empty()) out += errors::concat("  format: ", detail::list_name(manifest.format), "\n");
        for (auto const& item : manifest.metadata) {
            auto const table = table_of(item);
            out +=
                table ? table_text(*table)
                      : errors::concat("  ", detail::list_name(item.first), ": ", detail::list_name(item.second), "\n");
        }
        out += errors::concat(detail::count_text(static_cast<Index>(manifest.files.size()), "file"), "\n");
        auto const extents = extents_by_file(catalogue);
        for (std::size_t f = 0; f < manifest.files.size(); ++f) {
            CheckpointFile const& file = manifest.files[f];
            out += errors::concat("  ", detail::list_name(file.leaf), "  ", detail::bytes_text(file.file_bytes), ", ",
                                  detail::count_text(extents[f], "shard"));
            if (file.writer >= 0) out += errors::concat(", written by rank ", file.writer);
            out += '\n';
        }
        out += errors::concat(detail::kind_note(catalogue.kind()),
                              detail::unlisted_text(detail::with_unlisted(manifest.files)));
        out += errors::concat(detail::count_text(static_cast<Index>(manifest.tensors.size()), "tensor"), "\n");
        for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
            if (shows(manifest.tensors[t])) out += tensor_text(catalogue, t);
        }
        return out;
    }
    [[nodiscard]] std::string tensor_text(Catalogue const& catalogue, std::size_t place) const {
        StoredTensor const& stored = catalogue.tensors()[place];
        Index summed = 0;
        std::string list;
        for (std::size_t const i : catalogue.extents_of(place)) {
            Extent const& extent = catalogue.extents()[i];
            summed += extent.has_checksum ? 1 : 0;
            if (!tensor) continue;
            list += errors::concat(
                "    ", to_string(extent.box),
                stored.replicas > 1 ? errors::concat(" of copy ", extent.replica) : std::string(), " in ",
                detail::list_name(catalogue.files()[static_cast<std::size_t>(extent.file)].leaf), " at ", extent.begin);
            if (extent.has_checksum) list += ", CRC-32C " + sum_text(extent);
            list += '\n';
        }
        std::string out = errors::concat("  ", detail::list_name(stored.name), "  ", name(stored.dtype), " ",
                                         to_string(stored.shape));
        if (!stored.distribution.empty()) out += "  " + detail::list_name(stored.distribution);
        auto const count = static_cast<Index>(catalogue.extents_of(place).size());
        out += errors::concat("  ", detail::count_text(count, "shard"), ", ",
                              summed == count ? "all" : std::to_string(summed), " with checksum");
        if (stored.replicas > 1) out += errors::concat(", ", stored.replicas, " copies");
        return out + "\n" + list;
    }

    [[nodiscard]] Json record(Catalogue const& catalogue) const {
        Manifest const& manifest = catalogue.manifest();
        Json files = Json::array();
        auto const extents = extents_by_file(catalogue);
        for (std::size_t f = 0; f < manifest.files.size(); ++f) {
            CheckpointFile const& file = manifest.files[f];
            files.push_back({{"file", file.leaf},
                             {"bytes", file.file_bytes},
                             {"shards", extents[f]},
                             {"writer", file.writer >= 0 ? Json(file.writer) : Json()},
                             {"unlisted", file.unlisted},
                             {"contradicts", file.contradicts.empty() ? Json() : Json(file.contradicts)}});
        }
        Json tensors = Json::array();
        for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
            StoredTensor const& stored = manifest.tensors[t];
            if (!shows(stored)) continue;
            Json shards = Json::array();
            for (std::size_t const i : catalogue.extents_of(t)) {
                Extent const& extent = catalogue.extents()[i];
                Json box = Json::array();
                for (int d = 0; d < extent.box.rank(); ++d) box.push_back({extent.box.begin(d), extent.box.end(d)});
                shards.push_back({{"box", box},
                                  {"copy", extent.replica},
                                  {"file", manifest.files[static_cast<std::size_t>(extent.file)].leaf},
                                  {"at", extent.begin},
                                  {"bytes", catalogue.extent_bytes(extent)},
                                  {"crc32c", extent.has_checksum ? Json(sum_text(extent)) : Json()}});
            }
            tensors.push_back({{"name", stored.name},
                               {"dtype", name(stored.dtype)},
                               {"shape", record_of(stored.shape)},
                               {"distribution", stored.distribution.empty() ? Json() : Json(stored.distribution)},
                               {"copies", stored.replicas},
                               {"shards", shards}});
        }
        Json metadata = Json::object();
        Json tables = Json::array();
        if (!manifest.format.empty()) metadata["format"] = manifest.format;
        for (auto const& item : manifest.metadata) {
            metadata[item.first] = item.second;
            auto const saved = table_of(item);
            if (!saved) continue;
            Json rows = Json::array();
            for (MchRowsInfo const& one : saved->rows)
                rows.push_back({{"name", one.name},
                                {"dtype", name(one.dtype)},
                                {"shape", record_of(DynamicShape(one.row_shape))}});
            tables.push_back({{"name", saved->table.name},
                              {"layout", name(saved->table.layout)},
                              {"policy", name(saved->table.eviction)},
                              {"slots", saved->table.size()},
                              {"ranks", saved->table.parts()},
                              {"ids", live_ids(*saved)},
                              {"iteration", saved->iteration},
                              {"rows", rows}});
        }
        return {{"path", path},
                {"kind", kind_of(catalogue)},
                {"save", manifest.save.empty() ? Json() : Json(manifest.save)},
                {"ranks", manifest.world_size == 0 ? Json() : Json(manifest.world_size)},
                {"metadata", metadata},
                {"tables", tables},
                {"files", files},
                {"tensors", tensors}};
    }
};

}  // namespace

void add_inspect(CLI::App& app, Session& session) {
    auto const verb = std::make_shared<Inspect>();
    CLI::App* const command = add_verb(app, "inspect", "lists files, tensors, shards and checksums of a checkpoint",
                                       "reshard inspect checkpoint --tensor model.norm.weight");
    command->add_option("CHECKPOINT", verb->path, "a folder of shards or of full files, or one file")
        ->required()
        ->check(some_path());
    command->add_option("--tensor", verb->tensor, "one tensor, shard by shard");
    command->callback([verb, &session] { verb->run(session); });
}

}  // namespace command
