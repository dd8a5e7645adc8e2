// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What Thrust and CUB of the CUDA toolkit offer in place of spar's kernels, for bench/gpu_kernels.cu. Compile with
// nvcc. CUB has a top-k from version 3.2 on: with an older one, there is none here.
#pragma once

#include <spar/cuda/runtime.hpp>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_select.cuh>
#if __has_include(<cub/device/device_topk.cuh>)
#include <cub/device/device_topk.cuh>
#define SPAR_BENCH_TOPK
#endif
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/merge.h>
#include <thrust/reduce.h>
#include <thrust/transform.h>
#include <thrust/tuple.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

namespace baselines {

/// Gives Thrust its temporary memory: a block of device memory, from the start again for each call.
class scratch {
 public:
  using value_type = char;

  explicit scratch(std::size_t bytes) : bytes_(bytes) {
    spar::detail::check_cuda(cudaMalloc(reinterpret_cast<void**>(&memory_), bytes), "cudaMalloc");
  }
  scratch(const scratch&) = delete;
  ~scratch() { cudaFree(memory_); }

  char* allocate(std::ptrdiff_t bytes) {
    constexpr std::size_t line = 256;
    const std::size_t at = used_;
    used_ += (static_cast<std::size_t>(bytes) + line - 1) / line * line;
    if (used_ > bytes_) throw std::bad_alloc();
    return memory_ + at;
  }
  void deallocate(char*, std::size_t) {}
  void restart() { used_ = 0; }
  [[nodiscard]] void* memory() const { return memory_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  char* memory_ = nullptr;
  std::size_t bytes_, used_ = 0;
};

struct reaches {
  float threshold;
  template <class Entry>
  __device__ bool operator()(const Entry& entry) const {
    return fabsf(thrust::get<1>(entry)) >= threshold;
  }
};
struct keep_below {
  float threshold;
  __device__ float operator()(float value) const { return fabsf(value) >= threshold ? 0 : value; }
};

/// Copies the entries that reach a threshold: indices and values in, indices and values out, in one pass.
inline void select(const float* x, std::uint64_t n, float threshold, std::uint32_t* out_i, float* out_v,
                   std::uint64_t* count, scratch& temporary) {
  const auto in = thrust::make_zip_iterator(thrust::counting_iterator<std::uint32_t>(0), x);
  std::size_t bytes = temporary.size();
  spar::detail::check_cuda(cub::DeviceSelect::If(temporary.memory(), bytes, in, thrust::make_zip_iterator(out_i, out_v),
                                                 count, static_cast<std::int64_t>(n), reaches{threshold}),
                           "cub::DeviceSelect::If");
}

/// Adds the residual, selects, and zeroes what was selected, in three passes.
inline void select_in_three_passes(const float* residual, float* x, std::uint64_t n, float threshold,
                                   std::uint32_t* out_i, float* out_v, std::uint64_t* count, scratch& temporary) {
  const auto policy = thrust::cuda::par_nosync;
  thrust::transform(policy, residual, residual + n, x, x, thrust::plus<float>());
  select(x, n, threshold, out_i, out_v, count, temporary);
  thrust::transform(policy, x, x + n, x, keep_below{threshold});
}

/// Merges two streams, and then adds the values of equal indices. `merged` and `merged_v` have room for all entries.
inline void merge(const std::uint32_t* left_i, const float* left_v, std::uint64_t lefts, const std::uint32_t* right_i,
                  const float* right_v, std::uint64_t rights, std::uint32_t* merged_i, float* merged_v,
                  std::uint32_t* out_i, float* out_v, scratch& temporary) {
  temporary.restart();
  const auto policy = thrust::cuda::par_nosync(temporary);
  thrust::merge_by_key(policy, left_i, left_i + lefts, right_i, right_i + rights, left_v, right_v, merged_i, merged_v);
  thrust::reduce_by_key(policy, merged_i, merged_i + lefts + rights, merged_v, out_i, out_v);
}

/// Sorts entries, whose indices are below n, and then adds the values of equal indices, in no order.
inline void coalesce(const std::uint32_t* indices, const float* values, std::uint64_t entries, std::uint64_t n,
                     std::uint32_t* sorted_i, float* sorted_v, std::uint32_t* out_i, float* out_v, std::uint64_t* count,
                     scratch& temporary) {
  std::size_t bytes = temporary.size();
  spar::detail::check_cuda(cub::DeviceRadixSort::SortPairs(temporary.memory(), bytes, indices, sorted_i, values,
                                                           sorted_v, entries, 0, std::bit_width(n - 1)),
                           "cub::DeviceRadixSort::SortPairs");
  bytes = temporary.size();
  spar::detail::check_cuda(cub::DeviceReduce::ReduceByKey(temporary.memory(), bytes, sorted_i, out_i, sorted_v, out_v,
                                                          count, thrust::plus<float>(),
                                                          static_cast<std::int64_t>(entries)),
                           "cub::DeviceReduce::ReduceByKey");
}

#ifdef SPAR_BENCH_TOPK
struct magnitude_bits {
  __device__ std::uint32_t operator()(float value) const { return __float_as_uint(value) & 0x7fffffff; }
};
/// Copies the k entries of the largest magnitude, in no order: indices and magnitudes. The values stay where they are.
/// With null `memory`, only sets `bytes` to what it needs.
inline void top_k(const float* x, std::uint64_t n, std::uint64_t k, std::uint32_t* out_i, std::uint32_t* out_magnitude,
                  void* memory, std::size_t& bytes) {
  const auto any_order = cuda::execution::require(cuda::execution::determinism::not_guaranteed,
                                                  cuda::execution::output_ordering::unsorted);
  spar::detail::check_cuda(
      cub::DeviceTopK::MaxPairs(memory, bytes, thrust::make_transform_iterator(x, magnitude_bits{}), out_magnitude,
                                thrust::counting_iterator<std::uint32_t>(0), out_i, static_cast<std::int64_t>(n),
                                static_cast<std::int64_t>(k), any_order),
      "cub::DeviceTopK::MaxPairs");
}
#endif

} // namespace baselines
