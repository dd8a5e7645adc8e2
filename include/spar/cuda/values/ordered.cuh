// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the calls in the order of a CUDA stream have in common: the sum, whose number of entries only the device knows,
// and the words by which kernels tell the host what has gone wrong.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/element.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/runtime.hpp>

#include <cstdint>

namespace spar::inline v0_1 {

namespace detail {

/// Words in page-locked memory, which kernels write and the host reads without a wait.
struct ordered_words {
  std::uint64_t sent = 0;       // this rank's entries in the last call
  std::uint64_t too_many = 0;   // entries in a message that had room for fewer; 0: none
  std::uint64_t disordered = 0; // whether the indices of a message did not ascend in their range
};

/// Keeps `ordered_words` in page-locked memory.
class ordered_state {
 public:
  ordered_state() {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, sizeof(ordered_words)), "cudaMallocHost");
    words_ = new (memory) ordered_words;
  }
  ordered_state(const ordered_state&) = delete;
  ~ordered_state() { cudaFreeHost(words_); }

  [[nodiscard]] ordered_words& words() const noexcept { return *words_; }
  /// A word, as the device has left it by now.
  [[nodiscard]] static std::uint64_t read(const std::uint64_t& word) noexcept {
    return __atomic_load_n(&word, __ATOMIC_RELAXED);
  }

 private:
  ordered_words* words_ = nullptr;
};

/// The sum of a call, with room for `room` entries.
template <kernel::ranked T, index_type Index>
class ordered_sum {
 public:
  explicit ordered_sum(std::uint64_t room) : room_(room) {
    indices_.reserve(room);
    values_.reserve(room);
    count_.reserve(1);
  }

  [[nodiscard]] Index* indices() const noexcept { return indices_.data(); }
  [[nodiscard]] T* values() const noexcept { return values_.data(); }
  [[nodiscard]] std::uint64_t* count() const noexcept { return count_.data(); }
  [[nodiscard]] ordered_entries<T, Index> view() const noexcept { return {indices(), values(), count(), room_}; }

  /// Starts to end the operation on all values, and writes them to `x`, with zeros where there is no entry.
  template <class Op>
  void write(device_span<T> x, Op op, rank_t ranks) const {
    if constexpr (requires { op.finalize(T{}, ranks); }) // also of what is beyond the entries, which nobody reads
      kernel::start_finalize(values(), room_, ranks, op, x.stream);
    const std::uint64_t* const entries = count();
    kernel::start_write_entries(indices(), values(), entries, 0, x.data, x.size, T{}, x.stream);
  }

 private:
  std::uint64_t room_;
  device_array<Index> indices_;
  device_array<T> values_;
  device_array<std::uint64_t> count_;
};

} // namespace detail

} // namespace spar::inline v0_1
