// SPDX-License-Identifier: Apache-2.0
/// \file   tests/checkpoint/power_support.hpp
/// \brief  What a disk may hold after a power cut: every prefix of the calls that were made, and of those that nothing
///         had made durable none, all, all but one, one, or some. Pillai et al., "All File Systems Are Not Created
///         Equal" (OSDI 2014), whose weakest file system this is: bytes are durable when their file is synced, names
///         when their folder is.
#pragma once

#include <map>      // map
#include <mutex>    // mutex
#include <random>   // mt19937
#include <set>      // set
#include <sstream>  // ostringstream

#include "faults_calls.hpp"
#include "support.hpp"

namespace checkpoint_test {

/// The files of one folder, by name.
using DiskState = std::map<std::string, std::string>;

class PowerCuts {
public:
    /// Records what `body` does to the folder, whose files are durable before. Names elsewhere are none of it.
    template <class Body>
    PowerCuts(std::string folder, Body const& body) : folder_(std::move(folder)) {
        for (auto const& entry : std::filesystem::directory_iterator(folder_)) {
            std::string const name = entry.path().filename();
            struct stat status {};
            REQUIRE(::stat(entry.path().c_str(), &status) == 0);
            files_[status.st_ino] = name_of_file(name);
            contents_.push_back(read_text(entry.path().string()));
        }
        after_call = [this](DiskCall const& call) { note(call); };
        body();
        after_call = {};
    }

    [[nodiscard]] std::size_t calls() const noexcept { return calls_.size(); }

    /// Calls f(state, whether all calls had returned) for the states that a cut after any call may leave, each once.
    template <class F>
    void for_each_state(F&& f) const {
        std::set<std::pair<DiskState, bool>> seen;
        std::mt19937 random(1);
        for (std::size_t end = 0; end <= calls_.size(); ++end) {
            std::vector<bool> keeps(end);
            std::vector<std::size_t> open;  // calls that may be lost
            for (std::size_t c = 0; c < end; ++c) {
                keeps[c] = is_durable(c, end);
                if (!keeps[c]) open.push_back(c);
            }
            auto const visit = [&](std::vector<bool> const& kept) {
                std::pair<DiskState, bool> state{after(kept), end == calls_.size()};
                if (seen.insert(state).second) f(state.first, state.second);
            };
            visit(keeps);
            std::vector<bool> all = keeps;
            for (std::size_t c : open) all[c] = true;
            visit(all);
            for (std::size_t c : open) {
                auto one = keeps;
                one[c] = true;
                visit(one);
                one = all;
                one[c] = false;
                visit(one);
            }
            for (int turn = 0; turn < 4 && open.size() > 2; ++turn) {
                auto some = keeps;
                for (std::size_t c : open) some[c] = random() % 2 == 0;
                visit(some);
            }
        }
    }

private:
    struct Call {
        DiskCall::Kind kind;
        int file = -1;  // a number of contents_
        std::string name{};
        std::string to{};
        std::size_t at = 0;
        std::string bytes{};
    };

    int name_of_file(std::string const& name) {
        auto const file = static_cast<int>(contents_.size());
        names_[name] = file;
        return file;
    }
    [[nodiscard]] std::string leaf(std::string const& path) const {
        std::filesystem::path const whole(path);
        return whole.parent_path() == folder_ ? whole.filename().string() : std::string();
    }
    void note(DiskCall const& call) {
        std::lock_guard<std::mutex> const lock(guard_);
        Call one{call.kind};
        struct stat status {};
        if (call.file >= 0) REQUIRE(::fstat(call.file, &status) == 0);
        switch (call.kind) {
            case DiskCall::Kind::create:
                one.name = leaf(call.path);
                if (one.name.empty() || now_.count(one.name) != 0 || names_.count(one.name) != 0) return;
                one.file = static_cast<int>(contents_.size());
                contents_.emplace_back();
                files_[status.st_ino] = one.file;  // numbers are used again
                now_.insert(one.name);
                break;
            case DiskCall::Kind::write:
            case DiskCall::Kind::sync_file: {
                auto const known = files_.find(status.st_ino);
                if (known == files_.end()) return;
                one.file = known->second;
                one.at = static_cast<std::size_t>(call.at);
                one.bytes = call.bytes;
                break;
            }
            case DiskCall::Kind::sync_folder: {
                struct stat own {};
                REQUIRE(::stat(folder_.c_str(), &own) == 0);
                if (status.st_dev != own.st_dev || status.st_ino != own.st_ino) return;
                break;
            }
            case DiskCall::Kind::rename:
                one.name = leaf(call.path);
                one.to = leaf(call.to);
                now_.erase(one.name);
                now_.insert(one.to);
                break;
            case DiskCall::Kind::remove:
                one.name = leaf(call.path);
                now_.erase(one.name);
                break;
        }
        calls_.push_back(std::move(one));
    }
    /// Whether a call before `end` has made it durable.
    [[nodiscard]] bool is_durable(std::size_t c, std::size_t end) const {
        Call const& call = calls_[c];
        bool const of_file = call.kind == DiskCall::Kind::write;
        if (call.kind == DiskCall::Kind::sync_file || call.kind == DiskCall::Kind::sync_folder) return true;
        for (std::size_t s = c + 1; s < end; ++s) {
            if (of_file ? calls_[s].kind == DiskCall::Kind::sync_file && calls_[s].file == call.file
                        : calls_[s].kind == DiskCall::Kind::sync_folder)
                return true;
        }
        return false;
    }
    [[nodiscard]] DiskState after(std::vector<bool> const& kept) const {
        std::map<std::string, int> names = names_;       // that are on the disk
        std::map<std::string, int> of_program = names_;  // that the program saw
        std::vector<std::string> contents = contents_;
        for (std::size_t c = 0; c < kept.size(); ++c) {
            Call const& call = calls_[c];
            switch (call.kind) {
                case DiskCall::Kind::create:
                    of_program[call.name] = call.file;
                    if (kept[c]) names[call.name] = call.file;
                    break;
                case DiskCall::Kind::write: {
                    if (!kept[c]) break;
                    std::string& text = contents[static_cast<std::size_t>(call.file)];
                    if (text.size() < call.at + call.bytes.size()) text.resize(call.at + call.bytes.size(), '\0');
                    text.replace(call.at, call.bytes.size(), call.bytes);
                    break;
                }
                case DiskCall::Kind::rename: {
                    int const file = of_program.at(call.name);
                    of_program.erase(call.name);
                    of_program[call.to] = file;
                    if (!kept[c]) break;
                    names.erase(call.name);
                    names[call.to] = file;
                    break;
                }
                case DiskCall::Kind::remove:
                    of_program.erase(call.name);
                    if (kept[c]) names.erase(call.name);
                    break;
                default: break;
            }
        }
        DiskState state;
        for (auto const& [name, file] : names) state[name] = contents[static_cast<std::size_t>(file)];
        return state;
    }

    std::filesystem::path folder_;
    std::mutex guard_;
    std::map<ino_t, int> files_;         ///< as the system numbers them now
    std::map<std::string, int> names_;   ///< before
    std::set<std::string> now_;          ///< that were made
    std::vector<std::string> contents_;  ///< before, by file
    std::vector<Call> calls_;
};

/// The folder as the disk has it.
inline void put(TempFolder const& folder, DiskState const& state) {
    for (std::string const& leaf : folder.leaves()) std::filesystem::remove_all(folder / leaf);
    for (auto const& [name, text] : state) write_text(folder / name, text);
}

}  // namespace checkpoint_test
