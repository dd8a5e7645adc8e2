// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Puts the kernels of an extension module, which fibres run on the host, into the streams of the double of the CUDA
// runtime, and counts them.
#include "cuda/runtime_double.hpp"

#include "cuda/on_host.hpp"

#include <cstdint>
#include <functional>
#include <utility>

namespace {

std::uint64_t kernels = 0;

const bool uses_streams = [] {
  on_host::put = [](cudaStream_t stream, std::function<void()> work) {
    ++kernels;
    cuda_double::put(stream, std::move(work));
  };
  return true;
}();

} // namespace

extern "C" [[gnu::visibility("default")]] std::uint64_t spar_kernels_so_far() {
  static_cast<void>(uses_streams);
  return kernels;
}
