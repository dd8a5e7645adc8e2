// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What tests of kernels need to run on a GPU, if nvcc compiles them (scripts/gpu), or by fibres on the host.
#pragma once

#ifndef __CUDACC__
#include "on_host.hpp"
#endif

#include <spar/storage/kernel/magnitude.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#ifdef __CUDACC__
#include <spar/cuda/kernel/language.cuh>

#include <cuda_runtime.h>
#endif

namespace kernel_test {

/// Whether two values have the same bits. On a GPU every NaN counts as the same, because its arithmetic gives another
/// NaN than that of the host.
template <class T>
bool same_bits(T a, T b) {
#ifdef __CUDACC__
  if (a != a && b != b) return true;
#endif
  return std::bit_cast<spar::kernel::magnitude<T>>(a) == std::bit_cast<spar::kernel::magnitude<T>>(b);
}

#ifdef __CUDACC__

/// Memory that the processor and the GPU can access.
template <class T>
struct allocator {
  using value_type = T;

  allocator() = default;
  template <class U>
  allocator(const allocator<U>&) noexcept {}
  T* allocate(std::size_t n) {
    void* p = nullptr;
    spar::detail::check_cuda(cudaMallocManaged(&p, n * sizeof(T)), "cudaMallocManaged");
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t) noexcept {
    cudaDeviceSynchronize();
    cudaFree(p);
  }
  friend bool operator==(const allocator&, const allocator&) { return true; }
};
template <class T>
using vector = std::vector<T, allocator<T>>;

/// Waits for the kernels, and reports their errors.
inline void finish() { spar::detail::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

/// A GPU chooses the order itself.
inline void set_order(std::uint64_t /*seed*/, unsigned /*resident*/) {}

#else

template <class T>
using vector = std::vector<T>;

inline void finish() {}

/// The order of threads in the next launches, and the number of blocks that run at the same time.
inline void set_order(std::uint64_t seed, unsigned resident) {
  on_host::machine::seed = seed;
  on_host::machine::resident = resident;
}

#endif

/// An array for kernels that is aligned only as its values require, and ends at the end of its memory, so that the
/// sanitizer finds any access beyond it.
template <class X>
class unaligned {
 public:
  explicit unaligned(std::size_t n, X value = {}) : memory_(n + 1, value) {}
  explicit unaligned(const vector<X>& from) : unaligned(from.size()) { std::copy(from.begin(), from.end(), data()); }

  [[nodiscard]] X* data() { return memory_.data() + 1; }
  [[nodiscard]] vector<X> copy() const { return vector<X>(memory_.begin() + 1, memory_.end()); }

 private:
  vector<X> memory_;
};

} // namespace kernel_test
