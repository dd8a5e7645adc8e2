// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies between host and device that have ended when they return.
#pragma once

#include <spar/cuda/memory.hpp>
#include <spar/cuda/runtime.hpp>

#include <cstddef>
#include <vector>

namespace images_on_gpu {

using spar::detail::check_cuda, spar::detail::device_array;

/// Replaces the values of an array that no work in a stream uses.
template <class T>
void upload(device_array<T>& to, const std::vector<T>& from) {
  to.reserve(from.size());
  check_cuda(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); // a small copy may end later than its call
}

/// The first values of an array after all work in the stream.
template <class T>
std::vector<T> download(const device_array<T>& from, std::size_t count, cudaStream_t after) {
  std::vector<T> values(count);
  check_cuda(cudaStreamSynchronize(after), "cudaStreamSynchronize");
  check_cuda(cudaMemcpy(values.data(), from.data(), count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return values;
}

} // namespace images_on_gpu
