// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/core/error.hpp
/// \brief  Every error the library reports: a code that can travel between ranks, and a type per code.
/// \depends <exception>, <string>, <cstdlib>. Without exceptions an error calls a hook, then aborts.
#pragma once

#include <reshard/core/config.hpp>

#include <cstdint>           // uint64_t
#include <cstdio>            // fputs
#include <cstdlib>           // abort
#include <exception>         // exception
#include <initializer_list>  // initializer_list
#include <string>            // string, to_string
#include <string_view>       // string_view
#include <type_traits>       // is_integral
#include <utility>           // integer_sequence, move

namespace reshard::inline v0_1 {

/// What went wrong. The number is stable: ranks send it to each other so that all throw the same type.
enum class ErrorCode : int {
    none = 0,
    shape = 1,           ///< negative extent, too many dimensions, size beyond 64 bits
    mesh = 2,            ///< axis below 1, more mesh ranks than the communicator has, repeated rank
    placement = 3,       ///< dimension out of range, bad split rule, two reductions in one tensor
    notation = 4,        ///< text that is not the printed form of a distribution
    mismatch = 5,        ///< two things that must agree do not: meshes, shapes, dtypes, plans of ranks
    buffer = 6,          ///< a view of the wrong shape, overlapping or null memory, an option that means nothing
    dtype = 7,           ///< an element type the operation has no meaning for
    transition = 8,      ///< a plan asked for something it is not, such as a view of a collective
    peer_failed = 9,     ///< another rank threw, returned early or died
    deadline = 10,       ///< a wait took longer than its deadline
    transport = 11,      ///< the communication library reported an error
    format = 12,         ///< a file that is not what it claims to be
    io = 13,             ///< the operating system refused to open, read or write
    out_of_memory = 14,  ///< an allocation failed
    user = 15,           ///< an exception of the program's own, seen by the other ranks
};

namespace detail {
/// What is said of a rank without memory, where there may be none to write it down either.
inline constexpr char no_memory_text[] =
    "reshard: out of memory. Fix: free some on this rank, or do less at once: fewer tensors, smaller rounds or "
    "windows.";
/// What an error is made of, beside its code.
struct Said {
    std::string message;
    bool agreed = false;
};
/// What helps where ranks are in different calls.
inline constexpr std::string_view same_calls = "make all ranks call the same things in the same order.";
}  // namespace detail

/// Base of all errors. what() names the thing and the remedy; where there was no memory to write a message, too.
class Error : public std::exception {
public:
    /// Not in line: each of the types below would have all of it again.
    [[gnu::noinline]] Error(ErrorCode code, std::string&& message) : message_(std::move(message)), code_(code) {}
    [[gnu::noinline]] Error(ErrorCode code, detail::Said& said) : Error(code, std::move(said.message)) {
        agreed_ = said.agreed;
    }
    Error(Error const&) = default;
    Error& operator=(Error const&) = default;
    [[gnu::noinline]] ~Error() override = default;
    [[nodiscard]] char const* what() const noexcept override {
        bool const wordless = code_ == ErrorCode::out_of_memory && message_.empty();
        return wordless ? detail::no_memory_text : message_.c_str();
    }
    /// As what(), but empty where there was no memory for it.
    [[nodiscard]] std::string const& message() const noexcept { return message_; }
    [[nodiscard]] ErrorCode code() const noexcept { return code_; }
    /// Whether the ranks of a communicator have agreed to throw it, all of them: they are in step, and may call the
    /// next thing together. Otherwise it is of this rank, as far as it knows.
    [[nodiscard]] bool is_agreed() const noexcept { return agreed_; }

private:
    std::string message_;
    ErrorCode code_;
    bool agreed_ = false;
};

/// One C++ type per code, so that callers can catch what they can mend.
template <ErrorCode Code>
class CodedError final : public Error {
public:
    explicit CodedError(std::string message) : Error(Code, std::move(message)) {}
    explicit CodedError(detail::Said& said) : Error(Code, said) {}
};

using ShapeError = CodedError<ErrorCode::shape>;
using MeshError = CodedError<ErrorCode::mesh>;
using PlacementError = CodedError<ErrorCode::placement>;
using NotationError = CodedError<ErrorCode::notation>;
using MismatchError = CodedError<ErrorCode::mismatch>;
using BufferError = CodedError<ErrorCode::buffer>;
using DTypeError = CodedError<ErrorCode::dtype>;
using TransitionError = CodedError<ErrorCode::transition>;
using PeerFailed = CodedError<ErrorCode::peer_failed>;
using DeadlineExceeded = CodedError<ErrorCode::deadline>;
using TransportError = CodedError<ErrorCode::transport>;
using FormatError = CodedError<ErrorCode::format>;
using IoError = CodedError<ErrorCode::io>;
using OutOfMemory = CodedError<ErrorCode::out_of_memory>;
using UserError = CodedError<ErrorCode::user>;

/// Called with the error's code and text before abort() in programs built without exceptions.
using FailureHook = void (*)(ErrorCode, char const*);

/// The hook in force; null means print to stderr. Set it before ranks start.
inline FailureHook& failure_hook() noexcept {
    static FailureHook hook = nullptr;
    return hook;
}

namespace detail {

/// A part of a message: a text, or an integer.
struct Part {
    constexpr Part(char const* words) noexcept : text(words), kind(Kind::literal) {}
    constexpr Part(std::string_view words) noexcept : text(words.data()), number(words.size()), kind(Kind::text) {}
    Part(std::string const& words) noexcept : Part(std::string_view(words)) {}
    template <class T>
        requires std::is_integral_v<T>
    constexpr Part(T integer) noexcept
        : number(static_cast<std::uint64_t>(integer)), kind(std::is_signed_v<T> ? Kind::integer : Kind::natural) {}

    enum class Kind : unsigned char { literal, text, integer, natural };

    char const* text;
    std::uint64_t number;  ///< of a text, its length
    Kind kind;
};
/// Puts them behind a text. Texts are written where something has gone wrong, or for people.
[[gnu::cold]] void append(std::string& text, std::initializer_list<Part> parts);
[[noreturn, gnu::cold]] void raise_words(ErrorCode code, std::initializer_list<Part> words);
/// errors::raise(), of an error that is_agreed().
[[noreturn, gnu::cold]] void raise_agreed(ErrorCode code, std::string&& message, bool agreed = true);

}  // namespace detail

/// What errors are made with, for transports and programs that have some of their own.
namespace errors {
/// Joins texts and integers: the one way messages are put together. By value, so that literals of all lengths are one
/// type, and messages that differ in their words only are one function.
template <class... Parts>
[[nodiscard]] std::string concat(Parts... parts) {
    std::string text;
    detail::append(text, {parts...});
    return text;
}

/// Throws the type that belongs to `code` (or calls the hook and aborts).
[[noreturn]] void raise(ErrorCode code, std::string message);
/// The same with a message of several parts, as of concat().
template <class... Parts>
    requires(sizeof...(Parts) > 1)
[[noreturn]] void raise(ErrorCode code, Parts... words) { detail::raise_words(code, {words...}); }
}  // namespace errors

namespace detail {
using errors::concat;
using errors::raise;
}  // namespace detail

}  // namespace reshard::inline v0_1

#if !defined(RESHARD_COMPILED)
#include <reshard/core/error.ipp>
#endif
