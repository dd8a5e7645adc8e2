// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The part of CUDA C++ that spar's kernels use. nvcc provides the language itself. A program that defines the same
// names and SPAR_CUDA_ON_HOST before it includes this header can run the kernels on the host, as spar's tests do:
// kernels use no other part of the language.
#pragma once

#ifdef __CUDACC__
#include <spar/cuda/runtime.hpp>

#include <cuda_runtime.h>
/// Unrolls the next loop, so that arrays that it indexes stay in registers.
#define SPAR_UNROLL _Pragma("unroll")
#elif !defined(SPAR_CUDA_ON_HOST)
#error "compile headers of spar/cuda with nvcc"
#else
#define SPAR_UNROLL
#endif

#include <cstddef>
#include <cstdint>

namespace spar::inline v0_1 {

namespace detail {

inline constexpr unsigned warp_size = 32;
inline constexpr unsigned whole_warp = 0xffffffffU; // the mask of all lanes

#ifdef __CUDACC__

/// The shared memory of the block, as an object of type S. Kernels use it instead of __shared__ variables: the memory
/// is passed at the launch, so several blocks can run at the same time on the host as well.
template <class S>
__device__ S& block_memory() {
  extern __shared__ __align__(16) std::byte spar_block_memory[];
  return *reinterpret_cast<S*>(spar_block_memory);
}

/// Waits a little inside a loop that waits for another block.
__device__ inline void spin() { __nanosleep(32); }

/// Fills memory with zeros.
inline void clear(void* memory, std::size_t bytes, cudaStream_t stream) {
  check_cuda(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync");
}

/// Starts a kernel with `shared` bytes of shared memory per block, at most 48 KiB. Starts nothing without blocks.
/// Throws `invalid_argument` if CUDA has no grid of so many blocks.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::uint64_t blocks, unsigned threads, std::size_t shared,
            cudaStream_t stream, Arguments... arguments) {
  if (blocks == 0) return;
  constexpr std::uint64_t most = 0x7fffffff;
  if (blocks > most) raise<invalid_argument>({"a kernel needs ", blocks, " blocks; CUDA allows at most ", most});
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(blocks);
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "a kernel launch");
}

#endif

} // namespace detail

} // namespace spar::inline v0_1
