// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs a program over NCCL, on doubles of NCCL and of the CUDA runtime, with kernels as fibres in the double's streams.
#pragma once

#include "nccl_double.hpp"
#include "on_ranks.hpp"
#include "runtime_double.hpp"
#include "support/extent.hpp"

#include <spar/nccl.hpp> // before on_host.hpp, because nccl.h includes all of the CUDA runtime

#include "on_host.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace over_nccl {

using net_type = spar::nccl<spar::threads>;

inline constexpr double deadline = 20; // seconds; a deadlock becomes a failure

inline std::vector<float> values_of(spar::rank_t rank, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank) * 1000 + static_cast<unsigned>(n));
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

/// What a rank got, and did.
struct outcome {
  std::vector<float> values;
  std::string error; // empty if there was none
  nccl_double::counts did;
  std::uint64_t cuda_calls = 0;
  std::size_t pinned_bytes = 0; // of all ranks, at the end of this one
};

/// Runs `program(control)` on each rank, which has a device of its own, and checks that nothing was allocated while
/// NCCL worked, and that nothing is left.
template <class Program>
std::vector<outcome> outcomes_on_devices(spar::rank_t ranks, std::uint64_t seed, Program program) {
  cuda_double::reset(seed);
  nccl_double::reset(seed);
  auto ended = on_ranks(ranks, [&](spar::threads& control) {
    control.set_deadline(deadline);
    cuda_double::set_device(control.rank());
    outcome o;
    try {
      o.values = program(control, o);
    } catch (const std::exception& e) {
      o.error = e.what();
    }
    o.did = nccl_double::of_this_thread();
    o.cuda_calls = cuda_double::calls();
    return o;
  });
  for (const outcome& o : ended) {
    EXPECT_EQ(o.did.aborts + o.did.destroys, o.did.joins) << o.error;
    EXPECT_EQ(o.did.hazards, 0U) << o.error;
  }
  EXPECT_EQ(nccl_double::communicators(), 0U);
  EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
  EXPECT_EQ(cuda_double::device_allocations(), 0U);
  return ended;
}
/// The same with `program(net)`, whose `net` is over NCCL.
template <class Program>
std::vector<outcome> outcomes(spar::rank_t ranks, std::uint64_t seed, const spar::nccl_options& options,
                              Program program) {
  return outcomes_on_devices(ranks, seed, [&](spar::threads& control, outcome& o) {
    net_type net(control, options);
    auto values = program(net);
    o.pinned_bytes = cuda_double::pinned_bytes();
    return values;
  });
}

/// A test whose kernels run in the streams of the double.
class on_device_nccl : public testing::Test {
 protected:
  void SetUp() override { on_host::put = cuda_double::put; }
  void TearDown() override { on_host::put = nullptr; }
};

} // namespace over_nccl
