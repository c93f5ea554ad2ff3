// SPDX-License-Identifier: Apache-2.0
/// \file   tools/reshard/rewrite.hpp
/// \brief  What `reshard consolidate` and `reshard shard` have in common: both write one checkpoint as another.
#pragma once

#include "verbs.hpp"

#include <reshard/checkpoint/consolidate.hpp>
#include <reshard/checkpoint/consolidate_plan.hpp>
#include <reshard/checkpoint/detail/consolidate_output.hpp>
#include <reshard/core/detail/explain_text.hpp>

#include <algorithm>  // any_of, none_of
#include <limits>
#include <string>
#include <vector>

namespace command {

struct Rewrite {
    std::string in;
    std::string out;
    std::string dtype;
    std::vector<std::string> keep;
    std::string rename;
    std::string model;
    std::string saved_as;
    bool dry_run = false;
    bool no_sync = false;
    bool no_checksums = false;
    int in_flight = 1;
    reshard::Index window = reshard::Index{32} << 20;
    int replica = -1;

    void add_options(CLI::App& command, Session& session) {
        using reshard::Index;
        command.add_option("IN", in, "a folder of shards or of full files, or one file; or --dry-run --model NAME");
        command.add_option("OUT", out, "a folder that is not there yet, or empty; --dry-run needs none");
        auto* const cast =
            command.add_option("--dtype", dtype, "what floating-point tensors are cast to: f16, bf16, f32 or f64");
        command
            .add_option("--keep", keep,
                        "tensors that --dtype does not cast: a name, or '*.weight_scale_inv' for all that end so; may "
                        "come again")
            ->allow_extra_args(false)
            ->needs(cast);
        command.add_option(
            "--rename", rename,
            "a file with a line for each tensor to rename: its name and another one; 'layers.* blocks.*' "
            "is for all that begin so");
        command
            .add_option(
                "--replica", replica,
                "which copy to take where copies were saved apart and differ; its remainder where there are fewer; -1: "
                "whichever, if they are equal")
            ->check(whole_number(-1, std::numeric_limits<int>::max()));
        command.add_flag("--dry-run", dry_run, "write nothing: say which rank would read and write what");
        command.add_option("--model", model, "what a dry run without files is about: a model's name");
        command.add_option("--saved-as", saved_as, "mesh and placements that it was saved with, if not (8):(S0)");
        add_ranks(command, session, 1 << 20);
        command.add_option("--in-flight", in_flight, "pieces that each rank has under way")
            ->check(whole_number(1, 256))
            ->capture_default_str();
        command.add_option("--window", window, "bytes of memory of each rank for them")
            ->transform(byte_size(Index{1} << 16, Index{1} << 40))
            ->capture_default_str();
        command.add_flag("--no-sync", no_sync, "do not wait until bytes are on the disk");
        command.add_flag("--no-checksums", no_checksums, "neither compare nor compute CRC-32C sums");
    }

    /// The options of both; those of one are the caller's to add.
    template <class Options>
    [[nodiscard]] Options options() const {
        using reshard::Index;
        Options result;
        if (!rename.empty()) result.rename = renames_given("--rename", rename);
        if (!dtype.empty()) {
            using enum reshard::DType;
            reshard::DType const to = dtype_given("--dtype", dtype);
            if (to != f16 && to != bf16 && to != f32 && to != f64)
                wrong("--dtype " + dtype +
                      ": weights become other floating-point numbers. Fix: f16, bf16, f32 or f64.");
            std::vector<std::string> tables;
            if (!in.empty()) {
                reshard::Catalogue from = catalogue();
                from = given("--rename", [&] { return reshard::detail::renamed(std::move(from), result.rename); });
                tables = tables_of(from.manifest().metadata);
                check_kept(from);
            }
            result.dtype = [tables, cast = reshard::floats_as(to, keep)](reshard::StoredTensor const& tensor) {
                bool const is_row = std::ranges::any_of(tables, [&](auto const& one) { return is_of(one, tensor); });
                return is_row ? tensor.dtype : cast(tensor);
            };
        }
        if (window / in_flight < Index{1} << 16) {
            wrong(reshard::errors::concat("--window ", window, ": less than ", Index{1} << 16, " for each of ",
                                          in_flight, " pieces. Fix: more of it, or a lower --in-flight."));
        }
        result.durable = !no_sync;
        result.checksums = result.verify_checksums = !no_checksums;
        result.in_flight = in_flight;
        result.window_bytes = window;
        result.replica = replica;
        return result;
    }

    /// What is there, or what ranks would have saved of a model.
    [[nodiscard]] reshard::Catalogue catalogue() const {
        if (model.empty()) return reshard::Catalogue(reshard::Checkpoint::open(in));
        auto const full = reshard::Catalogue::of(model_given("--model", model));
        auto const place =
            given("--saved-as", [&] { return reshard::placed_as(saved_as.empty() ? "(8):(S0)" : saved_as); });
        return given("--saved-as",
                     [&] { return reshard::detail::shard_output(full, place, {}, std::string(16, '0')).catalogue; });
    }

    /// plan(catalogue, ranks) for a dry run; else write(comm, options) on every rank.
    template <class Options, class MakePlan, class Write>
    void run(Session& session, Options const& options, MakePlan&& plan, Write&& write) const {
        bool const from_list = dry_run && !model.empty();
        if (!dry_run && !model.empty()) wrong("--model is for --dry-run. Fix: add it, or name IN OUT instead.");
        if (!from_list && in.empty()) wrong("IN is missing. Fix: name two folders, IN OUT.");
        if (!dry_run && out.empty()) wrong("OUT is missing. Fix: name two folders, IN OUT, or add --dry-run.");
        if (!dry_run && out.ends_with(".safetensors"))
            wrong("OUT is a folder, and '" + out + "' is named like a file. Fix: name the folder that files go to.");
        if (model.empty() && !saved_as.empty()) wrong("--saved-as is for --model. Fix: leave it out.");
        if (from_list && !in.empty()) wrong("--model " + model + " takes the place of IN. Fix: leave one of them out.");
        if (dry_run) {
            if (!Session::speaks()) return;
            if (!out.empty()) check_empty(out, true, in);
            int const ranks = session.ranks == 0 ? Session::ranks_of_machine() : session.ranks;
            reshard::Catalogue const from = catalogue();
            reshard::RewritePlan const planned = plan(from, ranks);
            auto const kept = kept_tables(reshard::detail::renamed(from, options.rename).manifest());
            return session.say(explain(planned) + kept_text(kept), record(planned, kept));
        }
        session.on_ranks(Session::ranks_of_machine(), [&](reshard::CommunicatorRef comm) {
            Options mine = options;
            mine.progress = session.progress(comm);
            reshard::RewriteReport const report = write(comm, mine);
            if (comm.rank() != 0) return;
            auto const kept = kept_tables(report.written);
            session.say(text(report) + kept_text(kept), record(report, kept));
        });
    }

private:
    void check_kept(reshard::Catalogue const& from) const {
        for (std::string const& pattern : keep) {
            auto const fits = [&](auto const& one) { return reshard::detail::fits_name(pattern, one.name); };
            if (std::ranges::none_of(from.tensors(), fits))
                wrong("--keep '" + pattern + "': no tensor is called so. Fix: `reshard inspect` lists their names.");
        }
    }
    /// Managed-collision tables. They load with the types they were saved with, and are no tables in others.
    [[nodiscard]] static std::vector<std::string> tables_of(reshard::Metadata const& metadata) {
        std::vector<std::string> names;
        for (auto const& item : metadata) {
            if (item.first.starts_with(reshard::detail::mch_table_key))
                names.push_back(item.first.substr(reshard::detail::mch_table_key.size()));
        }
        return names;
    }
    /// Whether it is a column or rows of the table.
    [[nodiscard]] static bool is_of(std::string const& table, reshard::StoredTensor const& tensor) {
        return tensor.name.starts_with(table + ".rows.") || tensor.name.starts_with(table + ".metadata.");
    }
    /// Which tables have floats of another type than was asked for. With the names that tensors get.
    [[nodiscard]] std::vector<std::string> kept_tables(reshard::Manifest const& written) const {
        if (dtype.empty()) return {};
        std::vector<std::string> names = tables_of(written.metadata);
        auto const cast = reshard::floats_as(dtype_given("--dtype", dtype), keep);
        std::erase_if(names, [&](std::string const& table) {
            return std::ranges::none_of(written.tensors,
                                        [&](auto const& one) { return is_of(table, one) && cast(one) != one.dtype; });
        });
        return names;
    }
    [[nodiscard]] static std::string kept_text(std::vector<std::string> const& tables) {
        std::string text;
        for (std::string const& table : tables)
            text += reshard::errors::concat("note: the rows of table ", reshard::detail::quote_name(table),
                                            " keep their types: with others it would load no more\n");
        return text;
    }
    [[nodiscard]] std::string text(reshard::RewriteReport const& report) const {
        using namespace reshard;
        std::string result =
            errors::concat(out, ": ", detail::count_text(static_cast<Index>(report.written.tensors.size()), "tensor"),
                           ", ", detail::bytes_text(report.bytes_total), " in ",
                           detail::count_text(static_cast<Index>(report.written.files.size()), "file"));
        if (report.bytes_verified > 0)
            result += errors::concat("; checksums of ", detail::bytes_text(report.bytes_verified),
                                     " that were read: as saved");
        for (std::string const& file : report.left_over)
            result += errors::concat("\n  removed what a killed run had left: ", detail::list_name(file));
        return errors::concat(result, "\n", detail::kind_note(report.kind), detail::unlisted_text(report.unlisted));
    }
    [[nodiscard]] Json record(reshard::RewriteReport const& report, std::vector<std::string> const& kept) const {
        Json files = Json::array();
        for (auto const& file : report.written.files)
            files.push_back({{"file", file.leaf}, {"bytes", file.file_bytes}});
        return {{"out", out},
                {"tensors", report.written.tensors.size()},
                {"bytes", report.bytes_total},
                {"bytes_verified", report.bytes_verified},
                {"files", files},
                {"left_over", report.left_over},
                {"unlisted", record_of(report.unlisted)},
                {"contradicting", contradicting(report.unlisted)},
                {"tables_not_cast", kept},
                {"seconds", report.seconds}};
    }
    [[nodiscard]] static Json record(reshard::RewritePlan const& plan, std::vector<std::string> const& kept) {
        Json shares = Json::array();
        for (auto const& share : plan.shares) {
            shares.push_back({{"begin", share.begin},
                              {"end", share.end},
                              {"bytes_read", share.bytes_read},
                              {"reads", share.reads},
                              {"files_read", share.files_read},
                              {"runs", share.runs},
                              {"files_written", share.files_written}});
        }
        return {{"ranks", plan.ranks},
                {"tensors", plan.tensors},
                {"files_in", plan.files_in},
                {"files_out", plan.files_out},
                {"bytes_in", plan.bytes_in},
                {"bytes_out", plan.bytes_out},
                {"memory_of_a_rank", plan.memory},
                {"unlisted", record_of(plan.unlisted)},
                {"contradicting", contradicting(plan.unlisted)},
                {"tables_not_cast", kept},
                {"shares", shares}};
    }
};

}  // namespace command
