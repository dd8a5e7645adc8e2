// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// spar_perf on values in device memory, against the same systems on host memory: kernels run by fibres, in the streams
// of a double of the CUDA runtime.
#include "runtime_double.hpp"

#ifdef SPAR_WITH_NCCL
#include <nccl.h> // before the language of kernels
#endif

#include "on_host.hpp"

#include "../../tools/spar_perf/count_device_calls.hpp"
#include "../../tools/spar_perf/device_systems.cuh"
#include "../../tools/spar_perf/measurement.hpp"
#include "../../tools/spar_perf/suite.hpp"

#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace spar::perf;

constexpr int ranks = 4;

/// The device memory of spar_perf with few systems that reduce on the device, which compile quickly.
struct few_systems : device_systems<spar::threads> {
  void place(std::vector<entry>& systems, const options& o, double density, const spar::tree& topology,
             const mpi_allreduce& mpi) const override {
    using spar::storage::named_codec;
    const auto there = std::make_shared<spar::perf::detail::systems_on_device<spar::threads>>(o, density, topology);
    there->add("ring", spar::ring{});
    for (const char* const codec : {"none", "bf16", "half", "qsgd:8", "zfp:8"})
      there->add_values(std::string("ring+") + codec, spar::compose(named_codec(codec), spar::ring{}));
    there->add("rec_doubling", spar::recursive_doubling{});
    there->add("rec_doubling+coded", spar::compose(spar::storage::coded<>{}, spar::recursive_doubling{}));
    there->add("rec_doubling+coded:fast",
               spar::compose(spar::storage::coded<>{.fast = true}, spar::recursive_doubling{}));
    there->add_values("rec_doubling+zfp:8", spar::compose(named_codec("zfp:8"), spar::recursive_doubling{}));
    there->add_values("two_shot+qsgd:8", spar::compose(named_codec("qsgd:8"), spar::two_shot{}));
    using spar::storage::then, spar::storage::coo;
    there->add_streams("dsar_qsgd8",
                       spar::compose(then<coo, named_codec>{{}, named_codec("qsgd:8")}, spar::dsar_split{}));
    const spar::selector::threshold_reuse select{
        .k = there->k(), .period = static_cast<std::uint64_t>(o.tau_prime), .epsilon = o.epsilon};
    there->add_feedback("gaussiank", spar::gaussiank_allreduce{.select = {.k = there->k()}});
    there->add_feedback("ok_topk", spar::compose(select, spar::balanced_owners{.tau = o.tau}));
    device_systems::place(systems, o, there, mpi);
  }
};

class spar_perf_on_device : public testing::Test {
 protected:
  void SetUp() override {
    on_host::put = [](cudaStream_t stream, std::function<void()> kernel) {
      cudaLaunchKernelExC(nullptr, nullptr, nullptr); // where it would be counted
      cuda_double::put(stream, std::move(kernel));
    };
    cuda_double::let_peers_reach_each_other(true);
  }
  void TearDown() override { on_host::put = nullptr; }
};

/// Measures the systems on four ranks that share a GPU, or on host memory.
std::vector<row> rows(double density, const std::vector<std::string>& systems, bool on_device,
                      const mpi_allreduce& mpi = {}) {
  options o;
  o.transport = "threads";
  o.count = 300;
  o.iterations = 3;
  o.warmup = 1;
  o.tau_prime = 2;
  o.check = o.dense_input = o.in_place = true;
  o.on_device = on_device;
  o.systems = o.names = systems;
  own_systems own;
  own.set_device(std::make_shared<few_systems>());
  const spar::tree flat = spar::tree::flat(ranks);
  const root_links links(flat);
  const auto all = measurement_of({o, density, ranks, flat, own, mpi});
  std::vector<record> records;
  spar::thread_group group(ranks);
  group.run([&](spar::threads& inner) {
    measured_net net(inner, links);
    auto its = all->on_rank(net);
    if (net.rank() == 0) records = std::move(its);
  });
  return all->rows(std::move(records));
}

/// Compares the rows of systems, whose memory must be that given.
void compare(double density, const std::vector<std::pair<std::string, std::string>>& memories) {
  std::vector<std::string> names;
  for (const auto& [name, memory] : memories) names.push_back(name);
  const std::vector<row> host = rows(density, names, false), device = rows(density, names, true);
  ASSERT_EQ(device.size(), memories.size());
  for (std::size_t s = 0; s < memories.size(); ++s) {
    const record &there = device[s].measured, &here = host[s].measured;
    SCOPED_TRACE(device[s].system);
    EXPECT_EQ(host[s].memory, "host");
    EXPECT_EQ(device[s].memory, memories[s].second);
    EXPECT_TRUE(device[s].correct()) << there.max_error << " > " << there.error_bound;
    EXPECT_TRUE(there.counted);
    EXPECT_EQ(there.seconds.size(), 3U);
    EXPECT_GT(here.largest.bytes_sent, 0U);
    for (const auto count : {&spar::statistics::messages_sent, &spar::statistics::bytes_sent,
                             &spar::statistics::bytes_received, &spar::statistics::compressions}) {
      EXPECT_EQ(there.largest.*count, here.largest.*count);
      EXPECT_EQ(there.total.*count, here.total.*count);
    }
    EXPECT_EQ(there.total_nnz_out, here.total_nnz_out);
    EXPECT_EQ(device[s].bound_bytes, host[s].bound_bytes);
  }
}

TEST_F(spar_perf_on_device, dense_values) {
  compare(1, {{"ring", "device"},
              {"ring+none", "device"},
              {"ring+bf16", "device"},
              {"ring+half", "device"},
              {"ring+qsgd:8", "device"},
              {"ring+zfp:8", "device"},
              {"rec_doubling+zfp:8", "device"},
              {"two_shot+qsgd:8", "device"},
              {"dense", "staged"},
              {"ring+bf16+p2p", "staged"}});
}

TEST_F(spar_perf_on_device, selected_entries) {
  compare(0.05, {{"rec_doubling", "device"},
                 {"rec_doubling+coded", "entries"},
                 {"rec_doubling+coded:fast", "device"},
                 {"ok_topk", "device"},
                 {"ring", "device"},
                 {"sparcml", "entries"},
                 {"gtopk", "entries"},
                 {"gaussiank", "device"}});
}

/// On the device, rounding errors return to the residual, so that other entries are selected from the second call on.
TEST_F(spar_perf_on_device, quantised_blocks) {
  const std::vector<row> found = rows(0.3, {"dsar_qsgd8", "dsar_split"}, true);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].memory, "device");
  EXPECT_TRUE(found[0].correct()) << found[0].measured.max_error << " > " << found[0].measured.error_bound;
  EXPECT_GT(found[0].measured.largest.compressions, 0U);
  EXPECT_LT(found[0].measured.largest.bytes_sent, found[1].measured.largest.bytes_sent);
}

TEST_F(spar_perf_on_device, calls_of_the_runtime) {
  const std::vector<row> found = rows(1, {"ring", "dense", "ring+bf16"}, true);
  ASSERT_EQ(found.size(), 3U);
  const auto calls = [&](std::size_t s) { return found[s].measured.device.value_or(device_calls{}); };
  const auto rank_calls = static_cast<std::uint64_t>(ranks) * 3; // of the ranks in the iterations
  EXPECT_EQ(calls(0).launches, rank_calls * (ranks - 1));        // one for each block that a rank reduces
  EXPECT_EQ(calls(0).waits, 0U);
  EXPECT_EQ(calls(1).launches, 0U);
  EXPECT_GE(calls(1).waits, rank_calls); // for the copy to the host
  EXPECT_GT(calls(2).launches, calls(0).launches);
  EXPECT_GE(calls(2).waits, rank_calls); // bfloat16 may refuse a piece
  EXPECT_FALSE(rows(1, {"ring"}, false)[0].measured.device);
}

#ifdef SPAR_WITH_NCCL
TEST_F(spar_perf_on_device, nccl) {
  const std::vector<row> found = rows(1, {"ring", "nccl"}, true);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].memory, "device");
  EXPECT_TRUE(found[1].correct());
  EXPECT_FALSE(found[1].measured.counted);
  EXPECT_FALSE(found[1].bound_bytes);
  ASSERT_TRUE(found[1].measured.device);
  EXPECT_EQ(found[1].measured.device->waits, 0U);
  EXPECT_THROW(rows(1, {"ring", "nccl"}, false), missing);
}
#endif

/// A stand-in for MPI_Allreduce among the threads.
TEST_F(spar_perf_on_device, mpi_is_staged) {
  const mpi_allreduce times_ranks = [](const void* in, void* out, std::uint64_t n) {
    EXPECT_EQ(in, nullptr);
    for (std::uint64_t i = 0; i < n; ++i) static_cast<float*>(out)[i] *= ranks;
  };
  const std::vector<row> found = rows(1, {"ring", "mpi"}, true, times_ranks);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].memory, "staged");
  EXPECT_FALSE(found[1].measured.counted);
  EXPECT_FALSE(found[1].correct()); // the contributions of the ranks differ
  EXPECT_TRUE(found[0].compared_to_mpi);
}

TEST_F(spar_perf_on_device, refuses_partial_systems) {
  EXPECT_THROW(rows(1, {"ring", "eager_solo+ring"}, true), missing);
}

TEST_F(spar_perf_on_device, command_line) {
  const std::string json = testing::TempDir() + "spar_perf_on_device.json";
  std::vector<std::string> words{"spar_perf_gpu", "--json", json};
  std::istringstream options("--memory device --ranks 4 --check --count 500 --density 1 --iterations 1 --warmup 0 "
                             "--systems ring,mine=dense");
  for (std::string word; options >> word;) words.push_back(word);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  auto perf = suite().add_device(std::make_shared<few_systems>());
  testing::internal::CaptureStdout();
  const int status = perf.run(static_cast<int>(arguments.size()), arguments.data());
  const std::string table = testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0);
  std::ostringstream written;
  written << std::ifstream(json).rdbuf();
  std::remove(json.c_str());
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  };
  for (const char* const part :
       {"# values in device memory", "launches  graphs   waits", "ring          device", "mine          staged"})
    expect(table, part);
  for (const char* const part : {R"("memory": "device")", R"("memory": "staged")", R"("correct": true)",
                                 R"("launches": 3.0)", R"("graph_launches": 0.0)", R"("host_waits": 0.0)"})
    expect(written.str(), part);
}

} // namespace
