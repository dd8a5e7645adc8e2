// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs programs with calls in the order of streams, and captures the calls of a stream as a graph.
#pragma once

#include "over_nccl.hpp"

#include <spar/nccl_stream.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace in_order {

/// A stream whose calls are captured as a graph.
class graph {
 public:
  template <class Call>
  graph(cudaStream_t stream, Call call) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    call();
    cudaGraph_t captured = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &captured), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec_, captured, 0), cudaSuccess);
    cudaGraphDestroy(captured);
  }
  graph(const graph&) = delete;
  ~graph() { cudaGraphExecDestroy(exec_); }
  void launch(cudaStream_t stream) const { EXPECT_EQ(cudaGraphLaunch(exec_, stream), cudaSuccess); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

/// Runs `program(control, order)` on ranks with an `nccl_stream` and a short deadline, and returns their errors.
template <class Program>
std::vector<over_nccl::outcome> with_order(spar::rank_t ranks, std::uint64_t seed, Program program) {
  return over_nccl::outcomes_on_devices(ranks, seed, [&](spar::threads& control, over_nccl::outcome&) {
    control.set_deadline(2);
    spar::nccl_stream order(control);
    program(control, order);
    return std::vector<float>();
  });
}
inline void expect_no_errors(const std::vector<over_nccl::outcome>& ended) {
  for (const over_nccl::outcome& o : ended) EXPECT_EQ(o.error, "");
}

} // namespace in_order
