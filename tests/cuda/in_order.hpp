// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs programs with calls in the order of streams, and captures the calls of a stream as a graph.
#pragma once

#include "over_nccl.hpp"

#include <spar/cuda/device_span.hpp>
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
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t captured = nullptr;
    try {
      call();
    } catch (...) { // before the memory of the call is freed
      cudaStreamEndCapture(stream, &captured);
      cudaGraphDestroy(captured);
      throw;
    }
    const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
    const cudaError_t made = ended != cudaSuccess ? ended : cudaGraphInstantiate(&exec_, captured, 0);
    cudaGraphDestroy(captured);
    check(made, "cudaGraphInstantiate");
  }
  graph(const graph&) = delete;
  ~graph() { cudaGraphExecDestroy(exec_); }
  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch"); }

 private:
  static constexpr auto check = &spar::detail::check_cuda;

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

/// What a call puts into its stream, and what it sends by NCCL.
struct costs {
  std::uint64_t steps, groups, sends, bytes;
};
/// Checks the costs of three calls of `reduce`, and that they neither wait nor allocate.
template <class Reduce, class T>
void expect_costs(Reduce& reduce, spar::device_span<T> values, const costs& of_call) {
  const auto before = cuda_double::of_this_thread();
  const auto sent_before = nccl_double::of_this_thread();
  for (int call = 0; call < 3; ++call) reduce(values);
  const auto after = cuda_double::of_this_thread();
  const auto sent = nccl_double::of_this_thread();
  EXPECT_EQ(after.waits, before.waits);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.steps - before.steps, 3 * of_call.steps);
  EXPECT_EQ(sent.groups - sent_before.groups, 3 * of_call.groups);
  EXPECT_EQ(sent.sends - sent_before.sends, 3 * of_call.sends);
  EXPECT_EQ(sent.bytes_sent - sent_before.bytes_sent, 3 * of_call.bytes);
}
/// Checks that a graph with a call of `reduce` is all that the host launches for a call, and that it does not wait.
template <class Reduce, class T>
void expect_launches_alone(Reduce& reduce, spar::device_span<T> values) {
  const graph step(values.stream, [&] { reduce(values); });
  const auto captured = cuda_double::of_this_thread();
  for (int call = 0; call < 3; ++call) step.launch(values.stream);
  const auto after = cuda_double::of_this_thread();
  EXPECT_EQ(after.graphs - captured.graphs, 3);
  EXPECT_EQ(after.steps, captured.steps);
  EXPECT_EQ(after.waits, captured.waits);
  reduce.wait(values.stream); // before the graph is destroyed
}

} // namespace in_order
