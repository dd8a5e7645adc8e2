// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs CUDA kernels on the host, without nvcc and without a GPU: includes no CUDA, and defines the part of the language
// that spar's kernels use (spar/cuda/kernel/language.cuh). Each thread of a block is a fibre. A scheduler with a seed
// decides which fibre runs next, whenever a fibre waits, and several blocks are resident at the same time. This finds
// missing barriers, wrong bounds and lost ties; with sanitizers it also finds wrong accesses. It does not show what a
// fence between blocks orders, nor that a ballot orders no memory between the lanes of a warp, and threads change only
// where they wait, not between any two instructions.
#pragma once

#define SPAR_CUDA_ON_HOST
#undef __global__ // the header of the CUDA runtime may have defined them
#undef __device__
#undef __host__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

#include "support/unfailing_allocations.hpp"

#ifndef __x86_64__
#include <ucontext.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <type_traits>
#include <vector>

using cudaStream_t = struct CUstream_st*;

namespace on_host {

/// Puts the work of a kernel into a stream; null if kernels run as soon as they are launched.
inline void (*put)(cudaStream_t, std::function<void()>) = nullptr;

#ifdef __x86_64__
using context = void*; // the stack pointer
#else
using context = ucontext_t;
#endif

/// A thread of a block.
struct fibre {
  enum class state { ready, at_barrier, in_warp, ended };

  context registers{};                // while it does not run
  std::unique_ptr<std::byte[]> stack; // not initialised: most of its pages are never used
  void* sanitizer_stack = nullptr;
  struct block* of = nullptr;
  unsigned thread = 0;
  unsigned exchanges = 0; // warp operations so far
  state now = state::ready;
};

/// The values that the lanes of a warp exchange. There are two sets, used in turn: a lane may begin the next operation
/// while others still read the values of this one.
struct warp {
  std::uint64_t value[2][32]{};
  std::uint32_t arrived[2]{};
};

struct block {
  unsigned number = 0, threads = 0, waiting = 0, ended = 0;
  std::vector<std::max_align_t> memory;
  std::vector<warp> warps;
  std::vector<fibre> fibres;
};

/// What is wrong with a kernel, such as a barrier that not all threads reach.
struct kernel_error : std::logic_error {
  using std::logic_error::logic_error;
};

/// Runs the blocks of one launch.
class machine {
 public:
  static inline std::uint64_t seed = 1;                   ///< decides the order of the next launches
  static inline unsigned resident = 3;                    ///< the number of blocks that run at the same time
  static inline std::uint64_t most_switches = 20'000'000; ///< between threads, before a launch counts as endless
  static inline unsigned last_blocks = 0; ///< if not 0, only so many blocks of a launch run, the last ones
  static inline std::uint64_t launches = 0;
  static inline machine* current = nullptr;

  machine(unsigned blocks, unsigned threads, std::size_t shared, std::function<void()> kernel);

  void run();

  [[nodiscard]] fibre& running() { return *running_; }
  [[nodiscard]] unsigned blocks() const { return blocks_; }

  /// Lets other fibres run.
  void pause(fibre::state until = fibre::state::ready);
  void barrier();
  /// Gives a value to the other lanes of the warp, and returns the values of all lanes. The values remain valid until
  /// the thread's next warp operation.
  const std::uint64_t* exchange(std::uint32_t mask, std::uint64_t mine);
  /// Gives a value to the other lanes of the warp, and returns the value of the lane `from`.
  template <class T>
  T exchange_with(std::uint32_t mask, T mine, unsigned from) {
    static_assert(sizeof(T) <= 8);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &mine, sizeof(T));
    bits = exchange(mask, bits)[from];
    std::memcpy(&mine, &bits, sizeof(T));
    return mine;
  }

 private:
  void begin_block();
  void end_block(const block& ended);
  void wake(fibre& f, fibre::state from);
  fibre* choose();
  [[noreturn]] void throw_stuck() const;
  void enter(fibre& f);
  void leave(fibre& f, fibre* next);
  static void entry();

  unsigned blocks_, threads_;
  std::size_t shared_;
  std::function<void()> kernel_;
  std::mt19937_64 random_;
  unsigned begun_ = 0;
  std::uint64_t switches_ = 0;
  std::vector<std::unique_ptr<block>> resident_;
  std::vector<fibre*> ready_;
  fibre* running_ = nullptr;
  context home_{};
  void* sanitizer_home_ = nullptr;
  const void* home_stack_ = nullptr;
  std::size_t home_size_ = 0;
};

/// The coordinates of the running thread, like CUDA's variables of the same meaning.
struct coordinates {
  unsigned x;
  static coordinates of_thread();
  static coordinates of_block();
  static coordinates of_grid();
};

} // namespace on_host

#define threadIdx (::on_host::coordinates::of_thread())
#define blockIdx (::on_host::coordinates::of_block())
#define gridDim (::on_host::coordinates::of_grid())

inline void __syncthreads() { on_host::machine::current->barrier(); }

inline void __syncwarp() { on_host::machine::current->exchange(0xffffffffU, 0); }

std::uint32_t __ballot_sync(std::uint32_t mask, bool mine);

template <class T>
T __shfl_up_sync(std::uint32_t mask, T mine, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  return on_host::machine::current->exchange_with(mask, mine, lane < distance ? lane : lane - distance);
}
template <class T>
T __shfl_xor_sync(std::uint32_t mask, T mine, unsigned bits) {
  const unsigned lane = threadIdx.x % 32;
  return on_host::machine::current->exchange_with(mask, mine, lane ^ bits);
}

inline void __threadfence() {} // the host's memory is coherent

inline int __popc(std::uint32_t x) { return std::popcount(x); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<std::uint64_t>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<std::uint32_t>(x)) + 1; }

inline double __dmul_rn(double x, double y) { return x * y; }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }

/// Other threads may run before an atomic operation, as on a GPU.
template <class T>
T atomicAdd(T* to, std::type_identity_t<T> x) {
  on_host::machine::current->pause();
  const T before = *to;
  *to = before + x;
  return before;
}

template <class T>
T atomicMax(T* to, std::type_identity_t<T> x) {
  on_host::machine::current->pause();
  const T before = *to;
  *to = std::max(before, x);
  return before;
}

template <class T>
T atomicOr(T* to, std::type_identity_t<T> x) {
  on_host::machine::current->pause();
  const T before = *to;
  *to = before | x;
  return before;
}

namespace spar::inline v0_1::detail {

template <class S>
S& block_memory() {
  return *reinterpret_cast<S*>(on_host::machine::current->running().of->memory.data());
}
inline void spin() { on_host::machine::current->pause(); }

template <class Work>
void put(cudaStream_t stream, const Work& work) {
  const spar_doubles::unfailing_allocations of_double;
  if (on_host::put != nullptr)
    on_host::put(stream, work);
  else
    work();
}
inline void clear(void* memory, std::size_t bytes, cudaStream_t stream) {
  put(stream, [=] { std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{0}); });
}

/// A stable sort in place of CUB's (see cuda/kernel/coalesce.cuh), which leaves its memory full of other bits.
template <class Key, class Payload>
std::size_t sort_bytes(std::uint64_t count, unsigned /*bits*/) {
  return count;
}
template <class Key, class Payload>
void start_sort(const Key* keys, const Payload* payloads, std::uint64_t count, unsigned bits, Key* sorted_keys,
                Payload* sorted_payloads, void* memory, std::size_t bytes, cudaStream_t stream) {
  put(stream, [=] {
    std::vector<std::uint64_t> order(count);
    for (std::uint64_t e = 0; e < count; ++e) order[e] = e;
    const auto key = [&](std::uint64_t e) { return keys[e] & static_cast<Key>(~std::uint64_t{0} >> (64 - bits)); };
    std::stable_sort(order.begin(), order.end(), [&](std::uint64_t a, std::uint64_t b) { return key(a) < key(b); });
    for (std::uint64_t e = 0; e < count; ++e) sorted_keys[e] = keys[order[e]], sorted_payloads[e] = payloads[order[e]];
    std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{0xa5});
  });
}

/// Runs a kernel to its end.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::uint64_t blocks, unsigned threads, std::size_t shared,
            cudaStream_t stream, Arguments... arguments) {
  if (blocks > 0x7fffffff || shared > 48 << 10)
    throw on_host::kernel_error("CUDA has no grid with so many blocks, or no block with so much shared memory");
  put(stream, [=] {
    on_host::machine(static_cast<unsigned>(blocks), threads, shared, [&] {
      kernel(static_cast<Parameters>(arguments)...);
    }).run();
  });
}

} // namespace spar::inline v0_1::detail
