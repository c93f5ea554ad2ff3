// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/consolidate_session.hpp
/// \brief  Rewriting a checkpoint on one rank of several: agree, check, write, vote, publish.
/// \depends checkpoint/detail/{consolidate_folder,consolidate_output,consolidate_run}, comm/collectives,
/// exec/agree_tensors.
#pragma once

#include <reshard/checkpoint/detail/consolidate_folder.hpp>
#include <reshard/checkpoint/detail/consolidate_output.hpp>
#include <reshard/checkpoint/detail/consolidate_run.hpp>
#include <reshard/exec/agree_tensors.hpp>

#include <algorithm>  // any_of, find

namespace reshard::inline v0_1::detail {

/// Between two exchanges nobody leaves: what fails is pending until all agree.
class RewriteSession {
public:
    using Clock = std::chrono::steady_clock;

    /// \pre options outlive this. (They are not copied before the first agreement: there may be no memory.)
    RewriteSession(std::string from, std::string to, CommunicatorRef comm, RewriteOptions const& options,
                   std::string_view index)
        : start_(Clock::now()),
          input_(std::move(from)),
          options_(options),
          call_(index == index_name ? "consolidate" : "shard_checkpoint"),
          commit_(std::move(to), comm, output_names(index), options.durable) {}

    /// Collective; all of it. `make(Catalogue const&, id)` says what is written; `text()` is that of all options.
    template <class Text, class Make>
    RewriteReport run(Text&& text, Make&& make) {
        read_list(text);
        agree_on_output(make);
        claim_folder();
        make_files();
        prepare();
        for (std::size_t window = 0; window + 1 < pieces_->windows.size(); ++window) {
            bool const last = window + 2 == pieces_->windows.size();
            commit_.agree([&] {
                runner_->run(window);
                if (options_.durable) shared_.sync();
                if (!last) return;
                shared_.close();
                in_.check_unchanged();
            });
        }
        verify_input();
        sum_output();
        publish();
        report_.collectives.agreements += commit_.agreements();
        report_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
        return std::move(report_);
    }

private:
    [[nodiscard]] CommunicatorRef comm() const noexcept { return commit_.comm(); }
    [[nodiscard]] Catalogue const& from() const noexcept { return in_.catalogue(); }

    /// What is there, on all ranks.
    template <class Text>
    void read_list(Text&& text) {
        commit_.agree([&] {
            std::string terms = text();
            std::uint64_t const digest = Digest{}.add_text(terms).value();
            commit_.set_terms(digest, std::move(terms), call_);
            check(options_);
            lists_.make_room(comm().size());
            if (commit_.is_first()) in_ = look();
        });
        share_list(in_, input_, comm(), 0, lists_, pending_);
        broadcast(comm(), std::as_writable_bytes(std::span(&id_, 1)), 0, lists_);
        ++report_.collectives.agreements;
        report_.collectives.broadcasts += 3;
        pending_.attempt([&, this] {
            in_.rename([&, this](Catalogue from) { return renamed(std::move(from), options_.rename); });
            report_.files_opened = commit_.is_first() ? lists_opened(from()) : 0;
        });
    }
    /// Local, on rank 0.
    [[nodiscard]] LoadFiles look() {
        if (path_kind(input_) == PathKind::missing) raise_io(input_, "cannot open", ENOENT, "check the path.");
        std::string const folder = input_folder(input_);
        // Before anything is made: what else is there may be left of runs that died.
        refuse_input(commit_.folder(), folder);
        refuse_save_under_way(folder);
        id_ = random_save_id();
        return look_at(input_);
    }
    template <class Make>
    void agree_on_output(Make&& make) {
        commit_.set_terms(0, {});
        BatchDigest digest;  // of what functions say of each tensor, then of all
        agree_on_work(
            comm(),
            [&, this] {
                pending_.raise_pending();
                check_coverage(from().manifest(), input_);
                output_ = make(from(), hex_text(id_, 16));
                check_replicas(from(), output_.catalogue, options_);
                maker_.emplace(PieceMaker{from(), output_.catalogue, options_.replica});
                for (StoredTensor const& tensor : output_.catalogue.tensors())
                    digest.tensors.push_back(Digest{}.add_text(output_text(tensor)).value());
                digest.tensors.push_back(output_.catalogue.digest());  // headers have theirs in it
            },
            [&, this](Verdict mine) {
                ++report_.collectives.agreements;
                agree_on_batch(comm(), std::move(mine), digest, [&, this](Index place) {
                    auto const tensors = output_.catalogue.tensors();
                    if (as_size(place) < tensors.size()) return output_text(tensors[as_size(place)]);
                    return concat("writes ", output_.catalogue.files().size(), " files of ", tensors.size(),
                                  " tensors, ", output_.file_bytes(), " bytes, of digest ", digest.tensors.back());
                });
            });
    }
    [[nodiscard]] static std::string output_text(StoredTensor const& tensor) {
        return concat("writes tensor ", quote_name(tensor.name), " ",
                      options_text({{"dtype", name(tensor.dtype)}, {"place", tensor.distribution}}));
    }

    /// The folder is ours, it is empty, it has room, and all ranks see it.
    void claim_folder() {
        PassingPath file;
        std::string nonce;
        std::vector<std::byte> seen;
        commit_.agree([&] {
            nonce = commit_.path(concat(nonce_prefix, hex_text(id_, 16)));
            seen.resize(as_size(comm().size()));
            if (!commit_.is_first()) return;
            commit_.lock_folder();
            std::vector<std::string>& left = report_.left_over;
            commit_.for_each_lock([&, this](FolderLock& lock) { add_left_over(lock, commit_.folder(), left); });
            refuse_other_files(commit_.folder(), input_folder(input_), [&, this](std::string const& leaf) {
                return commit_.is_temporary(leaf) || std::ranges::find(left, leaf) != left.end();
            });
            remove_left_over(commit_.folder(), left);
            commit_.for_each_lock([](FolderLock& lock) { lock.note({}, false); });
            commit_.make_room();
            check_space(commit_.folder(), output_.file_bytes());
            file = make_nonce(nonce);
        });
        check_shared(comm(), commit_.folder(), nonce, seen, lists_);
        ++report_.collectives.exchanges;
    }

    /// Rank 0 makes them; the others are told what they are called.
    void make_files() {
        std::vector<std::byte> names;
        pending_.attempt([&, this] {
            if (!commit_.is_first()) return;
            auto const files = output_.catalogue.files();
            ByteWriter out;
            for (std::size_t i = 0; i < files.size(); ++i) {
                made_.push_back(
                    make_file(commit_.path(files[i].leaf), output_.starts[i], files[i].file_bytes, options_.durable));
                std::string const& path = made_.back().temporary_path();
                out.text(path.substr(path.rfind('/') + 1));
            }
            for (std::string const& leaf : report_.left_over) out.text(leaf);
            names = out.take();
        });
        broadcast_text(comm(), 0, names, lists_, pending_);
        ++report_.collectives.agreements;
        report_.collectives.broadcasts += 2;
        pending_.attempt([&, this] {
            report_.left_over.clear();
            for (ByteReader in(names); !in.at_end();) {
                std::string leaf;
                in.text(leaf);
                if (auto const i = shared_.size(); i < output_.starts.size()) {
                    shared_.add(commit_.path(leaf), output_.starts[i].size());
                } else {
                    report_.left_over.push_back(std::move(leaf));
                }
            }
        });
    }

    /// This rank's work: files are open, memory is there.
    void prepare() {
        commit_.agree([&] {
            pending_.raise_pending();
            report_.written = output_.catalogue.manifest();
            runs_.make_room(comm().size());
            blocks_.make_room(comm().size());
            pieces_.emplace(list_pieces(maker_->line, comm().rank(), comm().size(), options_));
            PieceSurvey const needs = survey(*maker_, *pieces_, options_);
            for (int const file : needs.read) in_.open(file);
            for (int const file : needs.written) shared_.open(as_size(file));
            runner_.emplace(*maker_, in_, shared_, *pieces_, options_, report_);
        });
    }

    /// What was read is what was saved, where somebody knows.
    void verify_input() {
        auto const extents = from().extents();
        bool const any = options_.verify_checksums &&
                         std::ranges::any_of(extents, [](Extent const& e) { return e.has_checksum && !e.box.empty(); });
        if (!any) return;
        SumVerdict mine;
        pending_.attempt([&] {
            mine = in_.sum();
            mine.parts.push_back({-1, 0, mine.bytes, 0});
        });
        std::vector<ExtentRun> all = join(runs_, mine.parts);
        pending_.attempt([&] {
            for (ExtentRun const& run : all) report_.bytes_verified += run.extent < 0 ? run.end : 0;
            SumVerdict const together = sum_up(from(), std::move(all));
            report_.bytes_verified += together.bytes;
            mine.wrong.insert(mine.wrong.end(), together.wrong.begin(), together.wrong.end());
            refuse_wrong(from(), mine.wrong, "reshard",
                         "fetch the file again; verify_checksums = false (of the command: --no-checksums) takes it as "
                         "it is.");
        });  // the next agreement is about it: before anything has its name
    }

    void sum_output() {
        if (!options_.checksums) return;
        std::vector<Index> words;  // a block, its sum, ...
        pending_.attempt([&] {
            auto const& parts = runner_->written().parts();
            for (std::size_t i = 0; i < parts.size(); ++i)
                if (parts[i] != 0) words.insert(words.end(), {as_index(i), Index{parts[i]}});
        });
        words = join(blocks_, words);
        pending_.attempt([&] {
            BlockSums& sums = runner_->written();
            std::fill(sums.parts().begin(), sums.parts().end(), 0);
            for (std::size_t i = 0; i < words.size(); i += 2)
                sums.parts()[as_size(words[i])] ^= static_cast<std::uint32_t>(words[i + 1]);
            for (std::size_t e = 0; e < report_.written.extents.size(); ++e) {
                Extent& extent = report_.written.extents[e];
                auto const blocks = sums.blocks(e);
                extent.has_checksum = true;
                extent.crc32c = sums.whole(e);
                extent.block_sums.assign(blocks.begin(), blocks.end());
            }
        });
    }
    /// Collective. The lists of all ranks, on all.
    template <class T>
    [[nodiscard]] std::vector<T> join(GatheredLists<T>& room, std::vector<T> const& mine) {
        ++report_.collectives.agreements;
        report_.collectives.exchanges += 2;
        room.gather(comm(), mine, pending_);
        return std::move(room.all);
    }

    /// Everything gets its name. Shards mean nothing without their manifest: it comes last. Whole files mean something
    /// alone: the index comes first, and readers miss the files that it names until all of them are there. A manifest
    /// beside them is last too: until it is there they are whole files without checksums.
    void publish() {
        commit_.agree([&] {
            pending_.raise_pending();
            report_.kind = from().kind();
            report_.unlisted = with_unlisted(from().manifest().files);
            report_.bytes_total = maker_->line.bytes();
            report_.files_opened += in_.count() + shared_.count();
        });
        commit_.agree([&] {  // all ranks are done: before that nothing has its name
            if (!commit_.is_first()) return;
            auto const add_text = [&, this](std::size_t place, std::string_view leaf, std::string const& text) {
                auto const at = static_cast<std::ptrdiff_t>(place);
                made_.insert(made_.begin() + at, text_file(commit_.path(leaf), text, options_.durable));
            };
            if (!output_.index.empty()) add_text(0, index_name, output_.index);
            if (output_.manifest) add_text(made_.size(), manifest_name, to_json(report_.written));
            std::vector<NotedFile> files;
            for (TemporaryFile const& file : made_) files.push_back(noted(file));
            commit_.lock().note(note_of(files), options_.durable);
            sync_names();  // the lock's, too: files that have theirs while nobody knows whose they are stay in the way
            PublishedNames names;
            for (std::size_t i = 0; i < files.size(); ++i) {
                bool const is_last = files[i].leaf == manifest_name;
                if (is_last) sync_names();
                if (is_last || files[i].leaf == index_name) commit_.refuse_replaced(files[i].leaf);
                names.add(made_[i]);
                if (files[i].leaf == index_name) sync_names();
            }
            names.keep();
            commit_.keep_folder();
            commit_.sync_index();
        });
        commit_.agree([&] { commit_.tidy({}); });
    }
    /// As who comes after a power cut will see it: others have written to it, and what they have synced is its bytes.
    [[nodiscard]] NotedFile noted(TemporaryFile const& file) const {
        std::string const& path = file.temporary_path();
        FileDescriptor const handle = open_file(path, O_RDONLY);
        if (!handle.is_open() || (options_.durable && uninterrupted([&] { return ::fsync(handle.get()); }) < 0))
            raise_io(path, "cannot make its times durable", errno, "check the file system.");
        auto const stamp = noted_stamp_at(path);
        if (!stamp) raise_io(path, "cannot stat", ENOENT, "let nobody remove files of a run that is under way.");
        return {file.path().substr(file.path().rfind('/') + 1), *stamp};
    }
    /// What is renamed before it and behind it is durable in that order.
    void sync_names() {
        if (options_.durable) sync_folder(commit_.folder(), files_go_again);
    }

    Clock::time_point start_;
    std::string input_;
    RewriteOptions const& options_;
    std::string_view call_;
    SaveCommit commit_;
    PendingVerdict pending_;
    TransferLists lists_;
    GatheredLists<ExtentRun> runs_;
    GatheredLists<Index> blocks_;
    std::uint64_t id_ = 0;
    LoadFiles in_;
    OutputFiles output_;
    std::vector<TemporaryFile> made_;  ///< on rank 0: the files, in the end the texts that name them as well
    SharedFiles shared_;
    std::optional<PieceList> pieces_;  // it is never without memory
    std::optional<PieceMaker> maker_;
    std::optional<PieceRunner> runner_;
    RewriteReport report_;
};

}  // namespace reshard::inline v0_1::detail
