// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/checkpoint/detail/save_session.hpp
/// \brief  One save on one rank: agree, compare copies, write this rank's file, commit. What save() and start_save()
///         share.
/// \depends checkpoint/{coverage,save_plan},
/// checkpoint/detail/{manifest_json,save_extents,save_stream,replica_check}.
#pragma once

#include <reshard/algebra/notation.hpp>
#include <reshard/checkpoint/coverage.hpp>
#include <reshard/checkpoint/detail/file_entries.hpp>
#include <reshard/checkpoint/detail/file_list.hpp>
#include <reshard/checkpoint/detail/manifest_json.hpp>
#include <reshard/checkpoint/detail/replica_check.hpp>
#include <reshard/checkpoint/detail/save_commit.hpp>
#include <reshard/checkpoint/detail/save_extents.hpp>
#include <reshard/checkpoint/detail/save_names.hpp>
#include <reshard/checkpoint/detail/save_stream.hpp>
#include <reshard/checkpoint/safetensors_header.hpp>
#include <reshard/checkpoint/safetensors_layout.hpp>
#include <reshard/checkpoint/save_plan.hpp>
#include <reshard/exec/agree_tensors.hpp>
#include <reshard/memory/scratch.hpp>

#include <array>     // array
#include <atomic>    // atomic
#include <chrono>    // steady_clock
#include <iterator>  // ssize
#include <optional>  // optional

namespace reshard::inline v0_1::detail {

/// What all ranks must give alike.
[[nodiscard]] inline std::string text_of(SaveOptions const& options) {
    return options_text({{"dedup", name(options.dedup)},
                         {"small_bytes", options.small_bytes},
                         {"min_slice_bytes", options.min_slice_bytes},
                         {"replica_axes", axes_text(options.replica_axes)},
                         {"metadata", metadata_text(options.metadata)},
                         {"verify_replicas", options.verify_replicas},
                         {"durable", options.durable},
                         {"vote_bytes", options.vote_bytes}});
}

/// The files of a folder that a save may remove: those that saves make, by their names, and nothing else.
[[nodiscard]] inline SaveNames save_names() {
    return {manifest_name, files_of_manifest, is_shard_file, is_temporary_of_save};
}

/// The window of a rank's local tensor that is a box of the whole one. \pre the rank holds it, in one run of each
/// dimension.
[[nodiscard]] inline ConstDynamicView window_of(LocalTensor const& tensor, int rank, Box const& of_whole) {
    DynamicDistribution const& from = tensor.distribution;
    Box const box = own_box(tensor, of_whole);
    Indices const at = from.mesh().coordinates(rank);
    return tensor.view.window([&](int dim) {
        Index const begin = from.index_set(at, dim).local_index(box.begin(dim));
        return Interval{begin, begin + box.extent(dim)};
    });
}

/// The tensors whose copies are compared before all but one are dropped: copies that are kept apart are turned into
/// something that is never compared, addends.
[[nodiscard]] inline std::vector<LocalTensor> compared_tensors(std::span<LocalTensor const> tensors,
                                                               SaveOptions const& options) {
    std::vector<LocalTensor> result;
    for (LocalTensor const& tensor : tensors) {
        DynamicDistribution const& from = tensor.distribution;
        Placements placements = from.placements();
        Reduce op = Reduce::sum;
        for (Placement const& placement : placements)
            if (placement.is_partial()) op = placement.op();
        bool changed = false;
        for (int axis : options.replica_axes) {
            if (axis >= placements.size() || !placements[axis].is_replicate()) continue;
            placements[axis] = Placement::partial(op);
            changed = true;
        }
        result.push_back(tensor);
        if (!changed) continue;
        result.back().distribution =
            DynamicDistribution(from.mesh(), from.shape(), placements, printed_order(from.signature()));
    }
    return result;
}

/// Collective where it fails: a rank without memory for the list fails the agreement that the others are in.
[[nodiscard]] inline std::vector<LocalTensor> tensors_to_save(std::span<ConstLocalTensor const> tensors,
                                                              CommunicatorRef comm) {
    std::vector<LocalTensor> list;
    attempt_before_agreement(comm, [&] { list = only_read(tensors); });
    return list;
}

class SaveSession {
public:
    using Clock = std::chrono::steady_clock;

    /// Collective. After it every rank knows what it will write, copies are equal, and the folder is this save's.
    /// `prepare(stream bytes)` allocates what the caller needs besides: where one rank cannot, all throw.
    template <class Prepare>
    SaveSession(std::string folder, std::span<LocalTensor const> tensors, CommunicatorRef comm,
                SaveOptions const& options, Index unit_bytes, Prepare&& prepare)
        : start_(Clock::now()),
          before_(comm.traffic()),
          commit_(std::move(folder), comm, save_names(), options.durable) {
        std::vector<LocalTensor> compared;
        std::optional<ReplicaCheck> copies;
        std::string name;  // of the folder
        ++agreements_;
        auto const task = [&] { return TensorTask{"save", "saves", text_of(options)}; };
        agree_on_tensors(comm, tensors, task, [&] {
            options_ = options;
            lists_.make_room(comm.size());
            SaveDealer dealt;  // rank 0 writes the manifest: of what all write
            plan_ = plan_save_of_rank(placed_tensors(tensors), comm.size(), comm.rank(), options,
                                      commit_.is_first() ? &dealt : nullptr);
            if (commit_.is_first()) all_.emplace(std::move(dealt), plan_.manifest);
            stream_ = SaveStream(spans(tensors), unit_bytes, plan_.manifest.block_bytes);
            prepare(stream_);
            record_.resize(2 + sums_of_mine());
            if (options.verify_replicas && plan_.bytes_held > plan_.bytes_written) {
                compared = compared_tensors(tensors, options);
                copies.emplace(comm, compared, false, Index{1} << 20);
            }
            name = commit_.folder();
            if (!commit_.is_first()) return;
            check_manifest_size();
            commit_.claim();
            say_what_is_replaced();
            id_ = random_save_id();
        });
        if (comm.size() > 1) {
            std::array<std::uint64_t, 2> told{id_, commit_.has_made_folder() ? 1U : 0U};
            broadcast(comm, std::as_writable_bytes(std::span(told)), 0, lists_);
            id_ = told[0];
            if (told[1] != 0 && !commit_.is_first()) commit_.share_folder(std::move(name));
            report_.collectives.broadcasts = 1;
        }
        if (copies) refuse_differences(*copies);
        report_.tensors = as_index(tensors.size());
        report_.bytes_saved = plan_.bytes_written;
        report_.bytes_deduplicated = plan_.bytes_held - plan_.bytes_written;
        count_traffic();
    }

    [[nodiscard]] SaveStream& stream() noexcept { return stream_; }
    [[nodiscard]] SaveOptions const& options() const noexcept { return options_; }
    [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

    /// Local: the file with its header, under a temporary name. A rank that writes nothing has none.
    void open() {
        plan_.manifest.save = hex_text(id_, 16);
        report_.save_id = plan_.manifest.save;
        if (mine().empty()) return;
        SafetensorsLayout const layout = shard_layout(plan_.manifest, mine(), default_metadata());
        data_offset_ = as_index(layout.start.size());
        record_[0] = static_cast<std::uint64_t>(data_offset_ + layout.data_bytes);
        record_[1] = safetensors_header_digest(std::string_view(layout.start).substr(8));
        file_.emplace(commit_.path(leaf_of(comm().rank())));
        file_->write_at(0, std::as_bytes(std::span<char const>(layout.start)));
    }
    /// Local; any thread: bytes of the data section into the file. \pre open()
    void write_at(Index position, std::span<std::byte const> bytes) {
        file_->write_at(data_offset_ + position, bytes);
        Index const before = written_.fetch_add(std::ssize(bytes), std::memory_order_relaxed);
        bool const votes = before / options_.vote_bytes != (before + std::ssize(bytes)) / options_.vote_bytes;
        if (votes && options_.durable) file_->sync();  // or the last vote would wait for the disk to take all of it
    }
    /// Local: sums and sizes are known, the bytes are durable.
    void close() {
        if (!file_) return;
        std::vector<std::uint32_t> const sums = stream_.sums();
        for (std::size_t i = 0; i < sums.size(); ++i) record_[2 + i] = sums[i];
        file_->finish(options_.durable);
    }
    /// Any thread: after every piece, with the bytes it had.
    void tell_progress(Index bytes) {
        if (!options_.progress) return;
        std::lock_guard<std::mutex> const lock(progress_mutex_);
        done_ += bytes;
        options_.progress(done_, stream_.bytes());
    }

    /// Collective: the rest of the protocol. While they write, ranks vote: who waits for others waits for what they
    /// write between two votes, no longer. `written(units, last)` returns with so many units of the stream behind it,
    /// in the end with all of them and the file closed, and throws what has failed.
    template <class Written>
    SaveReport finish(Written&& written) {
        before_ = comm().traffic();  // others may have used the communicator since it began
        Index const votes = larger<Index>(ceil_div(plan_.bytes_busiest, options_.vote_bytes), 1);
        for (Index vote = 1; vote < votes; ++vote) {
            double const share = static_cast<double>(vote) / static_cast<double>(votes);
            auto const units = static_cast<std::size_t>(share * static_cast<double>(stream_.units()));
            commit_.agree([&] {
                written(units, false);
                state_terms();
            });
        }
        TransferLists mail;
        commit_.agree([&] {
            written(stream_.units(), true);
            state_terms();
            mail = records_to_send();
        });
        mail.deliver(comm());
        ++report_.collectives.exchanges;
        commit_.agree(
            [&] {
                if (file_) commit_.publish(*file_);
            },
            true);
        commit_.expect_index();
        commit_.agree(
            [&] {
                if (!commit_.is_first()) return;
                complete_files();
                for (CheckpointFile const& file : plan_.manifest.files)
                    commit_.check_visible(file.leaf, file.file_bytes);
                auto const covered = [&, this](std::size_t tensor) {
                    auto const extents = (*all_)(tensor);
                    std::string const fault = coverage_fault(plan_.manifest, tensor, extents);
                    if (!fault.empty()) refuse_manifest(commit_.path(manifest_name), fault);
                    return extents;
                };
                commit_.write_index_in_pieces(
                    [&, this](auto const& take) { write_manifest(plan_.manifest, all_->has_blocks(), covered, take); });
            },
            true);
        std::vector<std::string> leaves;
        commit_.agree([&, this] {
            if (!commit_.is_first()) return;
            for (CheckpointFile const& file : plan_.manifest.files) leaves.push_back(file.leaf);
            commit_.rename_index();
        });
        commit_.agree([&, this] { commit_.tidy(std::move(leaves), commit_.is_first() && has_replaced_tables()); });
        report_.extents = as_index(mine().size());
        report_.bytes_written = as_index(record_[0]);
        report_.files_opened = (file_ ? 1 : 0) + (commit_.is_first() ? 1 : 0);
        report_.collectives.agreements = agreements_ + commit_.agreements();
        count_traffic();
        report_.seconds = seconds();
        return std::move(report_);
    }

private:
    [[nodiscard]] CommunicatorRef comm() const noexcept { return commit_.comm(); }
    [[nodiscard]] std::span<Extent const> mine() const noexcept { return plan_.extents_of(comm().rank()); }
    [[nodiscard]] std::string leaf_of(int writer) const {
        return shard_file_name(writer, plan_.ranks, plan_.manifest.save);
    }

    [[nodiscard]] std::vector<SaveSpan> spans(std::span<LocalTensor const> tensors) const {
        std::vector<SaveSpan> result;
        auto source = plan_.sources.begin();  // a rank's plan lists its own extents only
        for (Extent const& extent : mine()) {
            LocalTensor const& tensor = tensors[*source++];
            Index const bytes = plan_.bytes_of(extent);
            result.push_back({bytes == 0 ? tensor.view : window_of(tensor, comm().rank(), extent.box), extent.begin,
                              bytes, policy_for(comm().memory(), tensor.view.data())});
        }
        return result;
    }
    /// Which save this is: of several that are under way ranks may wait for different ones.
    void state_terms() {
        commit_.set_terms(Digest{}.add_text(plan_.manifest.save).value(),
                          concat("waits for its save into ", commit_.folder()), "SaveRequest::wait");
    }
    void count_traffic() { report_.traffic += comm().traffic() - before_; }
    /// See SaveExtents::record().
    [[nodiscard]] std::size_t sums_of_mine() const noexcept {
        std::size_t count = 0;
        for (Extent const& extent : mine())
            count += SaveStream::sums_of(plan_.bytes_of(extent), plan_.manifest.block_bytes);
        return count;
    }

    void refuse_differences(ReplicaCheck& copies) {
        ReplicaReport const found = copies.run();
        ++report_.collectives.exchanges;
        ++agreements_;
        if (found.equal()) return;
        raise_agreed(
            ErrorCode::mismatch,
            concat("reshard::save: copies of which one would be saved differ, nothing was written: ", explain(found),
                   "\nFix: make them equal (verify_replicas with VerifyMode::repair), or keep them apart "
                   "(SaveOptions::replica_axes)."));
    }

    /// To rank 0, in one exchange.
    [[nodiscard]] TransferLists records_to_send() {
        TransferLists mail;
        if (!mine().empty()) mail.send(0, std::span<std::uint64_t const>(record_));
        for (std::size_t f = 0; commit_.is_first() && f < plan_.manifest.files.size(); ++f)
            mail.receive(plan_.manifest.files[f].writer, all_->record(f));
        return mail;
    }
    /// Before anything is written, a manifest that readers would refuse is; one that is far from that is not made for
    /// it.
    void check_manifest_size() {
        Index about = 128 * std::ssize(*all_) + 8 * as_index(all_->words());
        for (auto const& [key, value] : plan_.manifest.metadata) about += std::ssize(value);
        if (about < max_manifest_bytes / 8) return;
        plan_.manifest.save = std::string(16, '0');
        complete_files();  // with sums of 0, which take as much room as others
        write_manifest(
            plan_.manifest, all_->has_blocks(), [&, this](std::size_t tensor) { return (*all_)(tensor); },
            [](std::string_view) {});
    }
    /// On rank 0: in the manifest.
    void say_what_is_replaced() {
        tables_before_ = old_tables_in(commit_.folder());
        Metadata& metadata = plan_.manifest.metadata;
        std::erase_if(metadata, [](auto const& item) { return item.first == mch_replaced_key; });  // of another folder
        if (!tables_before_ || tables_before_->empty()) return;
        metadata.emplace_back(mch_replaced_key, *tables_before_);
        sort_list(metadata);
    }
    /// On rank 0, when the manifest is there: whether what older releases have left of tables may go. Not where one of
    /// them is saving, or has saved meanwhile.
    [[nodiscard]] bool has_replaced_tables() const {
        bool same = false;
        static_cast<void>(verdict_of([&, this] {
            same = tables_before_ && path_kind(commit_.path(lock_name(mch_old_index))) == PathKind::missing &&
                   old_tables_in(commit_.folder()) == tables_before_;
        }));
        return same;
    }
    void complete_files() {
        for (std::size_t f = 0; f < plan_.manifest.files.size(); ++f) {
            CheckpointFile& file = plan_.manifest.files[f];
            file.leaf = leaf_of(file.writer);
            file.file_bytes = as_index(all_->record(f)[0]);
            file.header_digest = all_->record(f)[1];
        }
    }

    Clock::time_point start_;
    Traffic before_;
    SaveOptions options_;
    SaveCommit commit_;
    SavePlan plan_;
    SaveStream stream_;
    std::uint64_t id_ = 0;
    std::optional<std::string> tables_before_;  ///< rank 0: see old_tables_in()
    TransferLists lists_;
    Index agreements_ = 0;
    std::optional<TemporaryFile> file_;
    Index data_offset_ = 0;
    std::atomic<Index> written_{0};
    std::vector<std::uint64_t> record_;
    std::optional<SaveExtents> all_;  ///< rank 0: of all ranks, with their records
    std::mutex progress_mutex_;
    Index done_ = 0;  ///< bytes that progress was told of
    SaveReport report_;
};

}  // namespace reshard::inline v0_1::detail
