// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/agree.hpp
/// \brief  What goes wrong on one rank, told to the others: the same error on all.
/// \depends comm/communicator.hpp, core/detail/watched.hpp.
#pragma once

#include <reshard/comm/communicator.hpp>
#include <reshard/core/detail/watched.hpp>

namespace reshard::inline v0_1 {

namespace detail {

[[nodiscard]] inline std::string_view words_of(Verdict const& verdict) noexcept {
    bool const wordless = verdict.code == ErrorCode::out_of_memory && verdict.reason.empty();
    return wordless ? std::string_view(no_memory_text) : std::string_view(verdict.reason);
}
/// The same with the rank in front. \pre of all ranks
[[nodiscard]] inline std::string words_of(Verdict const& all, int ranks) {
    return concat("rank ", all.rank, " of ", ranks, ": ", words_of(all));
}

/// What `check` throws, as a verdict of a rank in that call.
[[nodiscard]] inline Verdict verdict_of(FunctionRef<void()> check, std::string_view call = {}) {
    Verdict verdict;
    verdict.call = call;
    quietly([&] {
        watched(check, [&](ErrorCode code, std::string_view reason) noexcept {
            verdict.code = code;
            quietly([&] { verdict.reason = reason; });  // the code says enough to end the call on all ranks
        });
    });
    return verdict;
}

/// Throws what all ranks agreed on. One that has no memory for these words throws the error of the others without the
/// rank in front: what ranks do next depends on its type.
[[noreturn]] inline void raise_agreed(Verdict all, int ranks) {
    quietly([&] { all.reason = words_of(all, ranks); });
    raise_agreed(all.code, std::move(all.reason));
}

#if defined(__cpp_exceptions)
/// While `error` is handled: throws it with a sentence more, or with words in brackets, if there is memory for these.
[[noreturn, gnu::cold]] inline void raise_with(Error const& error, std::string_view more) {
    std::string_view const said = error.what();
    bool const ends = more.starts_with('(') || said.ends_with('.') || said.ends_with(".)");
    std::string words;
    if (!more.empty()) quietly([&] { words = concat(said, ends ? " " : ". ", more); });
    if (!words.empty()) raise_agreed(error.code(), std::move(words), error.is_agreed());
    throw;
}
#endif

/// Collective: comm.agree(mine). All ranks throw alike where one is lost meanwhile, has come too late, or is in another
/// call; behind that, one that had an error of its own says so.
template <class C>
[[nodiscard]] Verdict agreed(C&& comm, Verdict mine) {
#if defined(__cpp_exceptions)
    if (!mine.ok()) {
        std::string own;  // there may be no memory for it
        quietly([&] { own = words_of(mine); });
        try {
            return comm.agree(std::move(mine));
        } catch (Error const& error) {
            std::string_view const told = error.message();  // the communicator's failure may be the rank's own error
            if (own.empty() || told.find(own) != told.npos || own.find(told) != own.npos) throw;
            std::string more;
            quietly([&] { more = concat("(This rank's own error: ", own, ")"); });
            raise_with(error, more);
        }
    }
#endif
    return comm.agree(std::move(mine));
}

/// Collective: what went wrong on the lowest rank where something did, on every rank.
template <class C>
void agree_or_raise(C&& comm, Verdict mine) {
    Verdict all = agreed(comm, std::move(mine));
    if (!all.ok()) raise_agreed(std::move(all), comm.size());
}

/// Collective. As agree_on_errors(), and MismatchError where ranks do not have the same in hand: `work()` returns what
/// this one has, in words.
template <class C, class Work>
void agree_on_words(C&& comm, std::string_view call, Work&& work) {
    std::string words;
    Verdict mine = verdict_of([&] { words = work(); }, call);
    if (mine.ok()) {
        mine.digest = Digest{}.add_text(words).value();
        mine.reason = std::move(words);
    }
    agree_or_raise(comm, std::move(mine));
}

/// Collective where it fails: what a rank does ahead of a call that begins with an agreement. A rank that cannot fails
/// that agreement, which the others are in.
template <class C, class Work>
void attempt_before_agreement(C&& comm, Work&& work) {
    Verdict mine = verdict_of([&] { work(); });
    if (!mine.ok()) agree_or_raise(comm, std::move(mine));
}

/// An option that all ranks must give alike: its public name, and its value in words.
struct StatedOption {
    StatedOption(std::string_view option, Part value) noexcept : name(option), words(value) {}
    template <std::same_as<bool> Flag>
    StatedOption(std::string_view option, Flag set) noexcept : name(option), words(set ? "true" : "false") {}

    std::string_view name;
    Part words;
};
/// `with` them, behind which there may be more: what ranks compare, of which they are told the first that differs.
[[nodiscard]] inline std::string options_text(std::initializer_list<StatedOption> options, std::string text = "with") {
    for (StatedOption const& one : options) append(text, {transport::next_option, one.name, " ", one.words});
    return text;
}

/// Work of one rank, then agree(verdict of the work) where there is somebody to agree with: a world of one rank makes
/// no collective call.
template <class C, class Work, class Agree>
void agree_on_work(C&& comm, Work&& work, Agree&& agree) {
    Verdict mine = verdict_of(work);
    if (comm.size() != 1) return agree(std::move(mine));
    if (mine.ok()) return;
    if (mine.reason.empty()) quietly([&] { mine.reason = words_of(mine); });
    raise_agreed(mine.code, std::move(mine.reason));
}
template <class C, class Work>
void agree_after(C&& comm, std::uint64_t digest, Work&& work) {
    agree_on_work(comm, work, [&](Verdict mine) {
        mine.digest = digest;
        agree_or_raise(comm, std::move(mine));
    });
}

/// What a rank does between two agreements. A rank that left at its first error would be waited for in the next
/// exchange; so it stays, does no more work, and the next agreement ends the call on all ranks.
class PendingVerdict {
public:
    PendingVerdict() = default;
    explicit PendingVerdict(std::string_view call) noexcept : call_(call) {}
    /// Local; left out once something has failed.
    template <class Work>
    void attempt(Work&& work) {
        if (ok()) verdict_ = verdict_of([&] { work(); });
    }
    [[nodiscard]] bool ok() const noexcept { return verdict_.ok(); }
    /// Collective. As agree_or_raise(); after it nothing is pending.
    template <class C>
    void agree(C&& comm) {
        verdict_.call = call_;
        agree_or_raise(comm, std::exchange(verdict_, {}));
    }
    /// Local, within the work of another agreement: throws what is pending.
    void raise_pending() {
        if (ok()) return;
        Verdict const mine = std::exchange(verdict_, {});
        raise(mine.code, std::string(words_of(mine)));
    }

private:
    Verdict verdict_;
    std::string_view call_;
};

}  // namespace detail

/// Collective: every rank does `work` that concerns it alone, such as reading a file or taking memory, and none goes on
/// unless all succeeded. What fails on one is thrown on all: the error of the lowest rank that failed, with that rank
/// in front and its type if that is one of this library's, else as UserError, on the rank that threw it too. In `work`
/// no other rank may be waited for: no collective call, which a rank that has failed does not come to. `call` is what
/// messages name where others are in another call.
template <class C, class Work>
void agree_on_errors(C&& comm, Work&& work, std::string_view call = "agree_on_errors") {
    detail::agree_or_raise(comm, detail::verdict_of([&] { work(); }, call));
}

}  // namespace reshard::inline v0_1
