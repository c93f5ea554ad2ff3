// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/staged.hpp
/// \brief  Staged<C>: transfers pass through contiguous memory of the communicator. Memory as a policy.
/// \depends comm/{policy,detail/box_pieces}.hpp, core/detail/watched.hpp, memory/deliver.hpp, <new>, <vector>.
///
/// For transports that move contiguous or registered memory best, and as the host model of what memory of a device
/// needs: pack, exchange, unpack. A cap on this memory is the plan's matter: only who knows what all ranks move can
/// cut an exchange into the same rounds everywhere.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/policy.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/memory/deliver.hpp>

#include <new>          // align_val_t, nothrow
#include <type_traits>  // remove_reference
#include <utility>      // exchange, move
#include <vector>

namespace reshard::inline v0 {

/// Where staging memory comes from: registered or pinned memory, say. `allocate` returns null when there is none left.
struct StagingOptions {
    static constexpr Index alignment = 64;  ///< of every transfer in the staging memory; a cache line
    Index reserve_bytes = 0;  ///< set aside at once; what an exchange needs beyond this, it allocates once
    std::byte* (*allocate)(Index bytes) noexcept = [](Index bytes) noexcept {
        return static_cast<std::byte*>(
            ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{alignment}, std::nothrow));
    };
    void (*release)(std::byte* memory, Index bytes) noexcept = [](std::byte* memory, Index) noexcept {
        ::operator delete (memory, std::align_val_t{alignment});
    };
};

namespace detail {

/// Memory that only grows and forgets what it held. Empty when the allocation failed.
class StagingMemory {
public:
    explicit StagingMemory(StagingOptions const& options) noexcept : options_(options) {}
    StagingMemory(StagingMemory&& other) noexcept
        : options_(other.options_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    StagingMemory& operator=(StagingMemory&& other) noexcept {
        std::swap(options_, other.options_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    StagingMemory(StagingMemory const&) = delete;
    StagingMemory& operator=(StagingMemory const&) = delete;
    ~StagingMemory() { release(); }

    [[nodiscard]] StagingOptions const& options() const noexcept { return options_; }
    [[nodiscard]] Index size() const noexcept { return size_; }
    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] bool grow(Index bytes) noexcept {
        if (bytes <= size_) return true;
        release();
        data_ = options_.allocate(bytes);
        size_ = data_ == nullptr ? 0 : bytes;
        return data_ != nullptr;
    }

private:
    void release() noexcept {
        if (data_ != nullptr) options_.release(data_, size_);
        data_ = nullptr;
        size_ = 0;
    }
    StagingOptions options_;
    std::byte* data_ = nullptr;
    Index size_ = 0;
};

/// Whether C, or what it goes around, says where tensors lie (transport::memory_of()): not simply on the host.
template <class C>
[[nodiscard]] consteval bool states_memory() {
    if constexpr (requires(C & comm) { comm.memory(); }) {
        return true;
    } else if constexpr (requires(C & comm) { comm.inner(); }) {
        return states_memory<std::remove_reference_t<decltype(std::declval<C&>().inner())>>();
    } else {
        return false;
    }
}

[[nodiscard]] constexpr Index staging_slot(Index bytes) noexcept {
    return (bytes + StagingOptions::alignment - 1) / StagingOptions::alignment * StagingOptions::alignment;
}

}  // namespace detail

/// An exchange whose payload is unpacked when it has arrived: in wait(), test() or the destructor.
template <class C>
class [[nodiscard]] StagedRequest {
public:
    StagedRequest() = default;
    StagedRequest(typename C::inner_type::request_type inner, C& comm) noexcept
        : inner_(std::move(inner)), comm_(&comm) {}
    StagedRequest(StagedRequest&& other) noexcept
        : inner_(std::move(other.inner_)), comm_(std::exchange(other.comm_, nullptr)) {}
    StagedRequest& operator=(StagedRequest&& other) noexcept {
        if (this == &other) return *this;
        detail::quietly([&] { wait(); });
        inner_ = std::move(other.inner_);
        comm_ = std::exchange(other.comm_, nullptr);
        return *this;
    }
    StagedRequest(StagedRequest const&) = delete;
    StagedRequest& operator=(StagedRequest const&) = delete;
    ~StagedRequest() {
        if (comm_ != nullptr) detail::quietly([&] { wait(); });
    }

    void wait() {
        if (comm_ == nullptr) return;
        ending([&] { inner_.wait(); });
        std::exchange(comm_, nullptr)->unpack();
    }
    [[nodiscard]] bool test() {
        if (comm_ == nullptr) return true;
        if (!ending([&] { return inner_.test(); })) return false;
        std::exchange(comm_, nullptr)->unpack();
        return true;
    }
    [[nodiscard]] bool done() const noexcept { return comm_ == nullptr; }

private:
    /// A failed exchange is over, and its destinations stay as they are.
    template <class Body>
    decltype(auto) ending(Body&& body) {
        return detail::watched(
            body, [&](ErrorCode, std::string_view) noexcept { std::exchange(comm_, nullptr)->busy_ = false; });
    }

    typename C::inner_type::request_type inner_;
    C* comm_ = nullptr;
};

/// Transfers pass through contiguous memory that the communicator keeps: packed in exchange() (and converted, where
/// the sender's Conversion asks for it), unpacked when the request completes. Transfers to oneself as well. Memory
/// grows to what the largest exchange needed and stays; nothing is allocated after that. Tensors lie on the host:
/// prepare() refuses others, and communicators of devices do not compile here.
///
/// exchange() throws OutOfMemory when there is no memory to grow, and tells the others.
template <class C>
class Staged : public MeshSplit<Staged<C>> {
    static_assert(Communicator<C>, "reshard::Staged: wraps a communicator. Fix: see the concept Communicator.");
    static_assert(!detail::states_memory<C>(),
                  "reshard::Staged: packs on the host, but tensors lie elsewhere for this communicator, as its member "
                  "memory() says: on devices. Fix: leave Staged out; such communicators pack for themselves.");

public:
    static constexpr std::string_view name = C::name;
    using inner_type = C;
    using request_type = StagedRequest<Staged>;
    using MeshSplit<Staged<C>>::split;

    explicit Staged(C inner, StagingOptions const& options = {}) noexcept : inner_(std::move(inner)), memory_(options) {
        static_cast<void>(memory_.grow(options.reserve_bytes));  // if there is none, an exchange says so
    }

    [[nodiscard]] C& inner() noexcept { return inner_; }
    [[nodiscard]] int rank() const noexcept { return inner_.rank(); }
    [[nodiscard]] int size() const noexcept { return inner_.size(); }
    [[nodiscard]] Traffic traffic() const noexcept { return inner_.traffic(); }
    /// Bytes of staging memory held.
    [[nodiscard]] Index staging_bytes() const noexcept { return memory_.size(); }

    request_type exchange(std::span<Send const> sends, std::span<Receive const> receives) {
        if (busy_) {  // the peers still read what is packed
            raise(ErrorCode::transport, concat("reshard::Staged (", std::string_view(name),
                                               "): an exchange is under way. Fix: wait() for its request first, or "
                                               "split the communicator."));
        }
        make_room(sends, receives);
        pack(sends, receives);
        caller_receives_ = receives;
        busy_ = true;
        return request_type(detail::watched([&] { return inner_.exchange(sends_, receives_); },
                                            [&](ErrorCode, std::string_view) noexcept { busy_ = false; }),
                            *this);
    }
    [[nodiscard]] Verdict agree(Verdict mine) { return inner_.agree(std::move(mine)); }
    [[nodiscard]] Staged split(int colour, int key) {
        StagingOptions options = memory_.options();
        options.reserve_bytes = 0;  // what a part needs is not what the whole needed
        return Staged(inner_.split(colour, key), options);
    }
    void abort(ErrorCode code, std::string_view reason) noexcept { inner_.abort(code, reason); }

private:
    friend class StagedRequest<Staged>;

    /// Memory for everything, before anything is packed.
    void make_room(std::span<Send const> sends, std::span<Receive const> receives) {
        Index bytes = 0;
        for (auto const& send : sends) bytes += detail::staging_slot(send.payload_bytes());
        for (auto const& receive : receives) bytes += detail::staging_slot(receive.payload_bytes());
        detail::watched(
            [&] {
                sends_.resize(sends.size());
                receives_.resize(receives.size());
                if (memory_.grow(bytes)) return;
                raise(ErrorCode::out_of_memory,
                      concat("reshard::Staged (", std::string_view(name), "): no memory for ", bytes,
                             " bytes of staging. Fix: move less at once, or give StagingOptions a larger source."));
            },
            [&](ErrorCode, std::string_view reason) noexcept { inner_.abort(ErrorCode::out_of_memory, reason); });
    }
    void pack(std::span<Send const> sends, std::span<Receive const> receives) noexcept {
        Index offset = 0;
        CopyHint const hint = hint_of(sends);
        for (std::size_t k = 0; k < sends.size(); ++k) {
            Send const& send = sends[k];
            std::byte* const at = memory_.data() + offset;
            sends_[k] = detail::packed_at<std::byte const>(at, send);
            deliver(send, detail::packed_at(at, send), hint);
            offset += detail::staging_slot(send.payload_bytes());
        }
        for (std::size_t k = 0; k < receives.size(); ++k) {
            receives_[k] = detail::packed_at(memory_.data() + offset, receives[k]);
            offset += detail::staging_slot(receives[k].payload_bytes());
        }
    }
    void unpack() noexcept {
        CopyHint const hint = hint_of(caller_receives_);
        for (std::size_t k = 0; k < caller_receives_.size(); ++k) {
            std::byte const* const at = receives_[k].base;
            deliver(detail::packed_at(at, caller_receives_[k]), caller_receives_[k], hint);
        }
        busy_ = false;
    }
    template <class Byte>
    [[nodiscard]] static CopyHint hint_of(std::span<Transfer<Byte> const> transfers) noexcept {
        Index bytes = 0;
        for (auto const& transfer : transfers) bytes += transfer.payload_bytes();
        return bytes >= streaming_payload_bytes ? CopyHint::streaming : CopyHint::cached;
    }

    C inner_;
    detail::StagingMemory memory_;
    std::vector<Send> sends_;  ///< as the transport sees them, like receives_
    std::vector<Receive> receives_;
    std::span<Receive const> caller_receives_;  ///< valid until the request is done
    bool busy_ = false;
};

template <>
inline constexpr PolicyKind policy_kind<Staged> = PolicyKind::memory;

}  // namespace reshard::inline v0
