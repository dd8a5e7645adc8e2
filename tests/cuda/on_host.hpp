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

#include "support/global_allocations.hpp"

#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef SPAR_SANITIZES_ADDRESSES
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
// The thread sanitizer takes the fibres of a launch for the host thread that runs the launch: what a kernel does comes
// after what this thread has done, and before what it does later. (With a fibre of the sanitizer for each of ours, a
// switch takes 20 microseconds.) The sanitizer must not see functions that never return, because it would never forget
// their calls; the calls that it reports below that of a kernel may be those of another fibre.
#ifdef SPAR_SANITIZES_THREADS
#define SPAR_UNSANITIZED [[gnu::no_sanitize("thread")]]
#else
#define SPAR_UNSANITIZED
#endif

using cudaStream_t = struct CUstream_st*;

namespace on_host {

/// Puts the work of a kernel into a stream; null if kernels run as soon as they are launched.
inline void (*put)(cudaStream_t, std::function<void()>) = nullptr;

class machine;

/// A thread of a block.
struct fibre {
  enum class state { ready, at_barrier, in_warp, ended };

  ucontext_t context{};
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
  std::deque<fibre> fibres;
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

  machine(unsigned blocks, unsigned threads, std::size_t shared, std::function<void()> kernel)
      : blocks_(blocks), threads_(threads), shared_(shared), kernel_(std::move(kernel)), random_(seed + launches++),
        begun_(last_blocks > 0 && last_blocks < blocks ? blocks - last_blocks : 0) {}

  void run() {
    current = this;
    while (resident_.size() < resident && begun_ < blocks_) begin_block();
    while (!resident_.empty()) {
      if (ready_.empty()) throw_stuck();
      if (++switches_ > most_switches) throw kernel_error("a kernel spins without an end");
      const std::size_t at = random_() % ready_.size();
      std::swap(ready_[at], ready_.back());
      fibre* const next = ready_.back();
      ready_.pop_back();
      resume(*next);
      if (next->now == fibre::state::ready) ready_.push_back(next);
      if (next->now == fibre::state::ended && ++next->of->ended == next->of->threads) end_block(*next->of);
    }
    current = nullptr;
  }

  [[nodiscard]] fibre& running() { return *running_; }
  [[nodiscard]] unsigned blocks() const { return blocks_; }

  /// Lets other fibres run.
  void pause(fibre::state until = fibre::state::ready) {
    running_->now = until;
    leave(*running_);
  }
  void barrier() {
    block& b = *running_->of;
    if (++b.waiting < b.threads) return pause(fibre::state::at_barrier);
    b.waiting = 0;
    for (fibre& f : b.fibres) wake(f, fibre::state::at_barrier);
    pause(); // any thread may be the first to go on
  }
  /// Gives a value to the other lanes of the warp, and returns the values of all lanes. The values remain valid until
  /// the thread's next warp operation.
  const std::uint64_t* exchange(std::uint32_t mask, std::uint64_t mine) {
    if (mask != 0xffffffffU) throw kernel_error("a warp operation without all lanes");
    fibre& self = *running_;
    const unsigned lane = self.thread % 32, set = self.exchanges++ % 2;
    warp& w = self.of->warps[self.thread / 32];
    w.value[set][lane] = mine;
    w.arrived[set] |= 1U << lane;
    if (w.arrived[set] != mask) {
      pause(fibre::state::in_warp);
    } else {
      w.arrived[1 - set] = 0; // all lanes have left the operation before this one
      for (unsigned l = 0; l < 32; ++l) wake(self.of->fibres[self.thread / 32 * 32 + l], fibre::state::in_warp);
    }
    return w.value[set];
  }
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
  void begin_block() {
    block& b = *resident_.emplace_back(std::make_unique<block>());
    b.number = begun_++;
    b.threads = threads_;
    b.memory.resize((shared_ + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
    const auto bytes = std::as_writable_bytes(std::span(b.memory));
    std::fill(bytes.begin(), bytes.end(), std::byte{0xa5}); // shared memory is not initialised
    b.warps.resize(threads_ / 32);
    for (unsigned t = 0; t < threads_; ++t) {
      fibre& f = b.fibres.emplace_back();
      f.of = &b;
      f.thread = t;
      if (stacks_.empty()) stacks_.push_back(std::make_unique_for_overwrite<std::byte[]>(stack_bytes));
      f.stack = std::move(stacks_.back());
      stacks_.pop_back();
      getcontext(&f.context);
      f.context.uc_stack = {f.stack.get(), 0, stack_bytes};
      f.context.uc_link = nullptr;
      makecontext(&f.context, entry, 0);
      prepare_stack(f);
      ready_.push_back(&f);
    }
  }
  void end_block(const block& ended) {
    for (std::size_t i = 0; i < resident_.size(); ++i) {
      if (resident_[i].get() != &ended) continue;
      for (fibre& f : resident_[i]->fibres) stacks_.push_back(std::move(f.stack));
      resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    if (begun_ < blocks_) begin_block();
  }
  void wake(fibre& f, fibre::state from) {
    if (f.now != from) return;
    f.now = fibre::state::ready;
    ready_.push_back(&f);
  }
  [[noreturn]] void throw_stuck() const {
    std::string text = "no thread can go on:";
    for (const auto& b : resident_) {
      unsigned barrier = 0, inside = 0, over = 0;
      for (const fibre& f : b->fibres) {
        barrier += f.now == fibre::state::at_barrier ? 1 : 0;
        inside += f.now == fibre::state::in_warp ? 1 : 0;
        over += f.now == fibre::state::ended ? 1 : 0;
      }
      text += " block " + std::to_string(b->number) + " has " + std::to_string(barrier) + " threads at a barrier, " +
              std::to_string(inside) + " in a warp operation, " + std::to_string(over) + " that have ended;";
    }
    throw kernel_error(text);
  }

  void resume(fibre& f) {
    running_ = &f;
    enter_stack(&sanitizer_home_, f.stack.get(), stack_bytes);
    swapcontext(&home_, &f.context);
    leave_stack(sanitizer_home_, nullptr, nullptr);
    running_ = nullptr;
  }
  SPAR_UNSANITIZED void leave(fibre& f) {
    enter_stack(f.now == fibre::state::ended ? nullptr : &f.sanitizer_stack, home_stack_, home_size_);
    swapcontext(&f.context, &home_);
    leave_stack(f.sanitizer_stack, nullptr, nullptr);
  }
  SPAR_UNSANITIZED static void entry() {
    machine& m = *current;
    leave_stack(nullptr, &m.home_stack_, &m.home_size_);
    m.kernel_();
    m.running_->now = fibre::state::ended;
    m.leave(*m.running_);
  }
#ifdef SPAR_SANITIZES_ADDRESSES
  static void enter_stack(void** kept, const void* stack, std::size_t size) {
    __sanitizer_start_switch_fiber(kept, stack, size);
  }
  static void leave_stack(void* kept, const void** stack, std::size_t* size) {
    __sanitizer_finish_switch_fiber(kept, stack, size);
  }
  /// Forgets the frames of the stack's last fibre. Without the size of the stack in the context, the address sanitizer
  /// does not forget all frames whenever it switches to the fibre, which would take a third of the time of the tests.
  static void prepare_stack(fibre& f) {
    __asan_unpoison_memory_region(f.stack.get(), stack_bytes);
    f.context.uc_stack = {};
  }
  static constexpr std::size_t stack_bytes = 96 << 10;
#else
  static void enter_stack(void**, const void*, std::size_t) {}
  static void leave_stack(void*, const void**, std::size_t*) {}
  static void prepare_stack(fibre&) {}
  static constexpr std::size_t stack_bytes = 64 << 10;
#endif

  unsigned blocks_, threads_;
  std::size_t shared_;
  std::function<void()> kernel_;
  std::mt19937_64 random_;
  unsigned begun_ = 0;
  std::uint64_t switches_ = 0;
  std::vector<std::unique_ptr<block>> resident_;
  std::vector<fibre*> ready_;
  static inline std::vector<std::unique_ptr<std::byte[]>> stacks_; // of blocks that have ended, for later ones
  fibre* running_ = nullptr;
  ucontext_t home_{};
  void* sanitizer_home_ = nullptr;
  const void* home_stack_ = nullptr;
  std::size_t home_size_ = 0;
};

/// The coordinates of the running thread, like CUDA's variables of the same meaning.
struct coordinates {
  unsigned x;
  static coordinates of_thread() { return {machine::current->running().thread}; }
  static coordinates of_block() { return {machine::current->running().of->number}; }
  static coordinates of_grid() { return {machine::current->blocks()}; }
};

} // namespace on_host

#define threadIdx (::on_host::coordinates::of_thread())
#define blockIdx (::on_host::coordinates::of_block())
#define gridDim (::on_host::coordinates::of_grid())

inline void __syncthreads() { on_host::machine::current->barrier(); }

inline void __syncwarp() { on_host::machine::current->exchange(0xffffffffU, 0); }

inline std::uint32_t __ballot_sync(std::uint32_t mask, bool mine) {
  const std::uint64_t* const all = on_host::machine::current->exchange(mask, mine ? 1 : 0);
  std::uint64_t bits = 0;
  for (unsigned l = 0; l < 32; ++l) bits |= all[l] << l;
  return static_cast<std::uint32_t>(bits);
}
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
  const spar_test::unfailing_allocations of_double;
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
