// SPDX-License-Identifier: Apache-2.0
// Mirrors include/reshard/checkpoint/{load,verify_replicas}.hpp over include/reshard/comm/mpi.hpp: processes that have
// files of their own, and memory that only messages reach.
#include <reshard/comm/mpi.hpp>

#include <reshard/comm/collectives.hpp>

#include <doctest/doctest.h>

#include <reshard/checkpoint/verify_replicas.hpp>

#include "checkpoint/load_support.hpp"
#include "support/random.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace {
using namespace checkpoint_test;
using namespace std::chrono_literals;

/// A folder that rank 0 makes and all ranks know.
class SharedFolder {
public:
    explicit SharedFolder(MpiCommunicator& comm) : comm_(comm) {
        char path[256] = {};
        if (comm.rank() == 0) {
            own_ = std::make_unique<TempFolder>();
            own_->path().copy(path, sizeof(path) - 1);
        }
        broadcast(comm, std::as_writable_bytes(std::span(path)), 0);
        path_ = path;
    }
    ~SharedFolder() { barrier(comm_); }  // nobody reads what rank 0 removes
    SharedFolder(SharedFolder const&) = delete;
    SharedFolder& operator=(SharedFolder const&) = delete;
    [[nodiscard]] std::string const& path() const noexcept { return path_; }

private:
    MpiCommunicator& comm_;
    std::unique_ptr<TempFolder> own_;
    std::string path_;
};

template <class Strategy>
void check_load(MpiCommunicator& comm, std::string const& path, std::vector<Goal> const& goals,
                Strategy const& strategy) {
    CAPTURE(strategy.name);
    LocalTensors tensors(goals, comm.rank());
    load(path, tensors.list(), comm, strategy);
    CHECK(tensors.wrong() == "");
}

/// The same error on every rank?
void check_thrown(MpiCommunicator& comm, std::string const& message, std::vector<std::string> const& parts) {
    char mine[512] = {};
    message.copy(mine, sizeof(mine) - 1);
    std::vector<char> all(sizeof(mine) * static_cast<std::size_t>(comm.size()));
    all_gather(comm, std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    CAPTURE(message);
    for (int r = 0; r < comm.size(); ++r) {
        CHECK(std::string(mine) == std::string(all.data() + static_cast<std::size_t>(r) * sizeof(mine)));
    }
    for (std::string const& part : parts) CHECK(contains(message, part));
}

template <class Call>
std::string thrown_by(Call&& call) {
    try {
        call();
    } catch (Error const& error) {
        return error.message();
    }
    return {};
}

}  // namespace

TEST_SUITE("comm/mpi") {
    TEST_CASE("every strategy leaves the same bits over MPI, within a node and between nodes") {
        for (int ranks_per_node : {0, 1}) {
            MpiOptions options;
            options.ranks_per_node = ranks_per_node;
            options.deadline = 60s;
            MpiCommunicator comm(MPI_COMM_WORLD, options);
            for (std::uint64_t seed : test::seeds(6)) {
                CAPTURE(seed);
                test::Limits limits;
                limits.max_elements = 20'000;
                limits.max_ranks = comm.size();
                limits.plain_ranks = true;
                limits.ops = {Reduce::sum};
                test::Random random(seed, limits);
                std::vector<Goal> goals;
                for (int i = 0; i < 5; ++i) {
                    DynamicShape const shape = random.shape();
                    goals.push_back({{errors::concat("t.", i), i % 2 == 0 ? DType::f32 : DType::bf16, shape},
                                     random.distribution(random.mesh(), shape)});
                }
                SharedFolder const folder(comm);
                if (comm.rank() == 0) write(folder.path(), goals, 4000);
                barrier(comm);
                Index const window = random.pick(std::vector<Index>{0, 100, 5000, 1 << 20});
                int const source = static_cast<int>(random.between(0, comm.size() - 1));
                check_load(comm, folder.path(), goals, OneRankReads<Scatter>{source, window});
                check_load(comm, folder.path(), goals, OneRankReads<Broadcast>{source, window});
                check_load(comm, folder.path(), goals, EachRankReadsItsBoxes{});
                check_load(comm, folder.path(), goals, CooperativeRead{window, {}, Cooperation::always, {}});
                check_load(comm, folder.path(), goals, CooperativeRead{});
                LocalTensors tensors(goals, comm.rank());
                agree_loaded(comm, load(Checkpoint::open(folder.path()), tensors.list(), comm.rank()));
                CHECK(tensors.wrong() == "");
            }
        }
    }

    TEST_CASE("a file that the last rank cannot find is the same error on all, and nothing hangs") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        SharedFolder const folder(comm);
        std::vector<Goal> const goals{goal("w", DType::f32, errors::concat("(", comm.size(), "):(S0)"), Shape{64, 3})};
        if (comm.rank() == 0) write(folder.path(), goals);
        barrier(comm);
        bool const last = comm.rank() == comm.size() - 1 && comm.size() > 1;
        LocalTensors tensors(goals, comm.rank());
        std::string const message = thrown_by(
            [&] { load(last ? "/no/such/folder" : folder.path(), tensors.list(), comm, EachRankReadsItsBoxes{}); });
        if (comm.size() == 1) {
            CHECK(message.empty());
        } else {
            check_thrown(comm, message,
                         {errors::concat("rank ", comm.size() - 1, " of ", comm.size(), ": IoError: "), "cannot open"});
            CHECK(tensors.untouched());
        }
        load(folder.path(), tensors.list(), comm, EachRankReadsItsBoxes{});  // the communicator is as good as before
        CHECK(tensors.wrong() == "");
    }

    TEST_CASE("replicas are compared, and mended, over MPI") {
        MpiCommunicator comm(MPI_COMM_WORLD);
        std::vector<float> memory(1000, 1.5F);
        std::vector<LocalTensor> const tensors{
            {"w", distribution(Mesh{comm.size()}, Shape{1000}, "R"), TensorView<float>(memory.data(), Shape{1000})}};
        CHECK(verify_replicas(tensors, comm).equal());
        if (comm.rank() == comm.size() - 1) memory[777] = -2.0F;
        VerifyReplicasOptions options;
        options.mode = VerifyMode::repair;
        options.root = 0;
        ReplicaReport const report = verify_replicas(tensors, comm, options);
        CHECK(report.equal() == (comm.size() == 1));
        CHECK(verify_replicas(tensors, comm).equal());
        if (comm.size() > 1) CHECK(memory[777] == 1.5F);
    }
}
