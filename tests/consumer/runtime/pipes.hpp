// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes of one machine, forked by one parent, with a socket pair between every two of them and one
// more for what is said when something fails. reshard::StreamCommunicator makes a communicator of it.
#pragma once

#include <reshard/comm/any_communicator.hpp>
#include <reshard/comm/streams.hpp>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <vector>

namespace runtime {

class Pipes : public reshard::transport::Streams {
public:
    using Channel = reshard::transport::StreamChannel;

    Pipes(int rank, std::vector<int> sockets)
        : rank_(rank), size_(static_cast<int>(sockets.size() / 2)), sockets_(std::move(sockets)) {}
    ~Pipes() override {
        for (int fd : sockets_)
            if (fd >= 0) ::close(fd);
    }
    int rank() const noexcept override { return rank_; }
    int size() const noexcept override { return size_; }
    reshard::Index write_some(int peer, Channel channel, std::span<std::byte const> bytes) override {
        return moved(::send(socket(peer, channel), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    }
    reshard::Index read_some(int peer, Channel channel, std::span<std::byte> bytes) override {
        ssize_t const n = ::recv(socket(peer, channel), bytes.data(), bytes.size(), MSG_DONTWAIT);
        return n == 0 ? closed : moved(n);
    }

private:
    int socket(int peer, Channel channel) const {
        return sockets_[static_cast<std::size_t>(2 * peer + (channel == Channel::control ? 1 : 0))];
    }
    static reshard::Index moved(ssize_t n) {
        if (n >= 0) return n;
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : closed;
    }

    int rank_;
    int size_;
    std::vector<int> sockets_;  // two a peer: data, control
};

// What each rank's Pipes take: its ends of all socket pairs. Empty where there are not enough descriptors.
inline std::vector<std::vector<int>> socket_pairs(int ranks) {
    auto const count = static_cast<std::size_t>(ranks);
    std::vector<std::vector<int>> ends(count, std::vector<int>(2 * count, -1));
    bool good = true;
    for (std::size_t a = 0; a < count; ++a) {
        for (std::size_t b = a + 1; b < count; ++b) {
            for (std::size_t channel = 0; channel < 2 && good; ++channel) {
                int pair[2] = {-1, -1};
                good = ::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
                ends[a][2 * b + channel] = pair[0];
                ends[b][2 * a + channel] = pair[1];
            }
        }
    }
    if (good) return ends;
    for (auto const& mine : ends)
        for (int fd : mine)
            if (fd >= 0) ::close(fd);
    return {};
}

// Forks `ranks` processes that each run body(comm) and end with what it returns; an error is printed and ends its rank
// with status 1. Returns the largest status; -1 where processes or sockets cannot be had.
template <class Body>
int run_on_processes(int ranks, std::chrono::milliseconds deadline, Body&& body) {
    auto const ends = socket_pairs(ranks);
    bool good = !ends.empty();
    auto const close_but = [&](int kept) {  // an end that two processes hold never closes
        for (int r = 0; r < static_cast<int>(ends.size()); ++r)
            for (int fd : ends[static_cast<std::size_t>(r)])
                if (r != kept && fd >= 0) ::close(fd);
    };
    std::fflush(nullptr);
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks && good; ++rank) {
        pid_t const child = ::fork();
        good = child >= 0;
        if (child > 0) children.push_back(child);
        if (child != 0) continue;
        close_but(rank);
        int status = 1;
        try {
            reshard::StreamCommunicator comm(std::make_unique<Pipes>(rank, ends[static_cast<std::size_t>(rank)]),
                                             deadline);
            status = body(reshard::AnyCommunicator(std::move(comm)));
        } catch (std::exception const& error) {
            std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        }
        std::fflush(nullptr);
        ::_exit(status);
    }
    close_but(-1);
    int worst = good ? 0 : -1;
    for (pid_t child : children) {
        int status = 0;
        while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        int const code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (good && code > worst) worst = code;
    }
    return worst;
}

}  // namespace runtime
