// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls in the order of a stream as launches of a graph, in programs that run on a GPU.
#pragma once

#include <spar/cuda/runtime.hpp>

/// A call that the first launch captures as a graph.
class launched_graph {
 public:
  launched_graph() = default;
  launched_graph(const launched_graph&) = delete;
  ~launched_graph() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  }
  template <class Call>
  void launch(cudaStream_t stream, Call call) {
    using spar::detail::check_cuda;
    if (exec_ == nullptr) {
      cudaGraph_t captured = nullptr;
      check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
      call();
      check_cuda(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
      check_cuda(cudaGraphInstantiate(&exec_, captured, 0), "cudaGraphInstantiate");
      check_cuda(cudaGraphDestroy(captured), "cudaGraphDestroy");
    }
    check_cuda(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
};
