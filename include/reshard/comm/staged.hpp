// SPDX-License-Identifier: Apache-2.0
/// \file   reshard/comm/staged.hpp
/// \brief  Staged<C>: transfers pass through contiguous memory of the communicator. Memory as a policy.
/// \depends comm/{policy,detail/box_pieces}.hpp, core/detail/{keep_for_good,watched}.hpp, memory/copy.hpp, <memory>,
/// <new>, <vector>.
///
/// For transports that move contiguous or registered memory best, and as the host model of what memory of a device
/// needs: pack, exchange, unpack. A cap on this memory is the plan's matter: only who knows what all ranks move can
/// cut an exchange into the same rounds everywhere.
#pragma once

#include <reshard/comm/detail/box_pieces.hpp>
#include <reshard/comm/policy.hpp>
#include <reshard/core/detail/keep_for_good.hpp>
#include <reshard/core/detail/watched.hpp>
#include <reshard/memory/copy.hpp>

#include <memory>  // unique_ptr
#include <new>     // align_val_t, nothrow
#include <vector>

namespace reshard::inline v0_1 {

class AnyCommunicator;

/// Where staging memory comes from: registered or pinned memory, say. `allocate` returns null when there is none left.
struct StagingOptions {
    static constexpr Index alignment = 64;  ///< of every transfer in the staging memory; a cache line
    Index reserve_bytes = 0;  ///< set aside at once; what an exchange needs beyond this, it allocates once
    std::byte* (*allocate)(Index bytes) noexcept = [](Index bytes) noexcept {
        return static_cast<std::byte*>(
            ::operator new (detail::as_size(bytes), std::align_val_t{alignment}, std::nothrow));
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

    [[nodiscard]] StagingOptions const& options() const noexcept { return options_; }
    [[nodiscard]] Index size() const noexcept { return data_ == nullptr ? 0 : data_.get_deleter().bytes; }
    [[nodiscard]] std::byte* data() const noexcept { return data_.get(); }
    [[nodiscard]] bool grow(Index bytes) noexcept {
        if (bytes <= size()) return true;
        data_.reset();
        data_ = {options_.allocate(bytes), {options_.release, bytes}};
        return data_ != nullptr;
    }
    /// Lets go of the memory, or, if somebody may still use it, of the right to free it, which would be to wait for
    /// ever.
    void close(bool stuck) noexcept {
        if (stuck && data_ != nullptr) keep_for_good(std::move(data_));
        data_.reset();
    }

private:
    struct Release {
        void (*release)(std::byte* memory, Index bytes) noexcept;
        Index bytes;
        void operator()(std::byte* memory) const noexcept { release(memory, bytes); }
    };
    StagingOptions options_;
    std::unique_ptr<std::byte, Release> data_;
};

[[nodiscard]] constexpr Index staging_slot(Index bytes) noexcept {
    return (bytes + StagingOptions::alignment - 1) / StagingOptions::alignment * StagingOptions::alignment;
}

/// Packs into memory that it keeps, exchanges, unpacks.
template <class C>
class StagedEngine final : public transport::Engine {
public:
    StagedEngine(C&& inner, StagingOptions const& options) noexcept : inner_(std::move(inner)), memory_(options) {
        static_cast<void>(memory_.grow(options.reserve_bytes));  // if there is none, an exchange says so
    }
    ~StagedEngine() {
        if (stuck_) memory_.close(true);
    }
    [[nodiscard]] C& inner() noexcept { return inner_; }
    [[nodiscard]] StagingMemory const& memory() const noexcept { return memory_; }

    void start(transport::BoundTransfers const& transfers) override {
        transfers_ = transfers;
        make_room();
        pack();
        watched([&, this] { moving_ = transport::exchange_for(transfers_, inner_, sends_, receives_); }, losing());
    }
    [[nodiscard]] bool advance(bool may_block) override {
        if (!watched([&, this] { return may_block ? (moving_.wait(), true) : moving_.test(); }, losing())) return false;
        unpack();
        return true;
    }

private:
    /// What an error of the transport means: it may still use what it was given.
    [[nodiscard]] auto losing() noexcept {
        return [this](ErrorCode, std::string_view) noexcept { stuck_ = true; };
    }
    /// Memory for everything, before anything is packed.
    void make_room() {
        Index bytes = 0;
        for (auto const& send : transfers_.sends) bytes += staging_slot(send.payload_bytes());
        for (auto const& receive : transfers_.receives) bytes += staging_slot(receive.payload_bytes());
        watched(
            [&] {
                sends_.resize(transfers_.sends.size());
                receives_.resize(transfers_.receives.size());
                if (memory_.grow(bytes)) return;
                raise(ErrorCode::out_of_memory, "reshard::Staged (", std::string_view(C::name), "): no memory for ",
                      bytes, " bytes of staging. Fix: move less at once, or give StagingOptions a larger source.");
            },
            [&](ErrorCode, std::string_view reason) noexcept { inner_.abort(ErrorCode::out_of_memory, reason); });
    }
    void pack() noexcept {
        Index offset = 0;
        CopyHint const hint = hint_for(transfers_.send_bytes);
        for (std::size_t k = 0; k < sends_.size(); ++k) {
            Send const& send = transfers_.sends[k];
            std::byte* const at = memory_.data() + offset;
            sends_[k] = packed_at<std::byte const>(at, send);
            deliver(send, packed_at(at, send), hint);
            offset += staging_slot(send.payload_bytes());
        }
        for (std::size_t k = 0; k < receives_.size(); ++k) {
            receives_[k] = packed_at(memory_.data() + offset, transfers_.receives[k]);
            offset += staging_slot(receives_[k].payload_bytes());
        }
    }
    void unpack() noexcept {
        CopyHint const hint = hint_for(transfers_.receive_bytes);
        for (std::size_t k = 0; k < receives_.size(); ++k) {
            Receive const& receive = transfers_.receives[k];
            std::byte const* const at = receives_[k].base;
            deliver(packed_at(at, receive), receive, hint);
        }
    }

    C inner_;
    StagingMemory memory_;
    transport::BoundTransfers transfers_;
    std::vector<Send> sends_;  ///< as the transport sees them, like receives_
    std::vector<Receive> receives_;
    typename C::exchange_type moving_;
    bool stuck_ = false;  ///< a transport may still write to the memory
};

}  // namespace detail

/// Transfers pass through contiguous memory that the communicator keeps: packed when an exchange starts (and converted,
/// where the sender's Conversion asks for it), unpacked when it completes. Transfers to oneself as well. Memory grows
/// to what the largest exchange needed and stays; nothing is allocated after that. Tensors lie on the host: prepare()
/// refuses others, and communicators of devices do not compile here.
///
/// An exchange throws OutOfMemory when there is no memory to grow, and tells the others.
template <class C>
class Staged : public detail::Around<Staged<C>, C> {
    static_assert(Communicator<C>, "reshard::Staged: wraps a communicator. Fix: see the concept Communicator.");
    static constexpr bool is_any = std::same_as<C, AnyCommunicator>;
    static_assert(!is_any,
                  "reshard::Staged: an AnyCommunicator may hold one of devices, and Staged packs on the host. "
                  "Fix: put it inside, around the communicator that you have: "
                  "AnyCommunicator{compose<Staged>(std::move(yours))}.");
    static_assert(is_any || std::same_as<decltype(std::declval<C&>().memory()), std::nullptr_t>,
                  "reshard::Staged: packs on the host, but tensors lie elsewhere for this communicator, as its member "
                  "memory() says: on devices. Fix: leave Staged out; such communicators pack for themselves.");
    using Base = detail::Around<Staged, C>;

public:
    using exchange_type = transport::InOrder;
    using Base::split;

    explicit Staged(C inner, StagingOptions const& options = {})
        : engine_(std::make_unique<detail::StagedEngine<C>>(std::move(inner), options)) {}

    [[nodiscard]] C& inner() const noexcept { return engine_->inner(); }
    /// Bytes of staging memory held.
    [[nodiscard]] Index staging_bytes() const noexcept { return engine_->memory().size(); }

    exchange_type bind(std::span<transport::Send const> sends, std::span<transport::Receive const> receives) {
        return {*engine_, transport::bound_transfers("Staged", sends, receives, this->size())};
    }
    [[nodiscard]] transport::Verdict agree(transport::Verdict mine) {
        engine_->finish();
        return Base::agree(std::move(mine));
    }
    [[nodiscard]] Staged split(int colour, int key) {
        engine_->finish();
        StagingOptions options = engine_->memory().options();
        options.reserve_bytes = 0;  // what a part needs is not what the whole needed
        return Staged(inner().split(colour, key), options);
    }

private:
    std::unique_ptr<detail::StagedEngine<C>> engine_;
};

template <>
inline constexpr PolicyKind policy_kind<Staged> = PolicyKind::memory;

}  // namespace reshard::inline v0_1
