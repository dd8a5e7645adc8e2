// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the calls in the order of a CUDA stream have in common: the sum, whose number of entries only the device knows,
// and the words by which kernels tell the host what has gone wrong.
#pragma once

#include <spar/collective/basic/barrier.hpp>
#include <spar/collective/topk/owners_call.hpp>
#include <spar/core/address.hpp>
#include <spar/core/element.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/padded.cuh>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/runtime.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// The room of a slice between two of `ranks` ranks, of which each selects at most `most` entries: a P-th of what an
/// owner gets within quotas, but no more than a rank selects. The same for the share of an owner in the sum of Ok-Topk.
inline std::uint64_t slice_quota(std::uint64_t ranks, std::uint64_t most) {
  const std::uint64_t of_owner = most_within_quotas(most + ranks, ranks);
  return std::min(most, (of_owner + ranks - 1) / ranks);
}

/// A call by which the ranks agree on the options of a composition before they use them.
template <class Composition>
struct ordered_agreement : dissemination_barrier {
  static constexpr std::string_view name = Composition::name;
  const Composition* parts;

  explicit ordered_agreement(const Composition& of) noexcept : parts(&of) {}
  void options(auto&& f) const { parts->options(f); }
};

/// Words in page-locked memory, which kernels write and the host reads without a wait.
struct ordered_words {
  kernel::slice_counts entries; // of this rank
  std::uint64_t dropped = 0;    // sums of this rank for which its message had no room, in all calls
  std::uint64_t too_many = 0;   // entries in a message that had room for fewer; 0: none
  std::uint64_t disordered = 0; // whether the indices of a message did not ascend in their range
  std::uint32_t refused = 0;    // whether a codec could not encode a value
};

/// The page-locked memory of calls in a stream.
class ordered_host_memory {
 public:
  ordered_host_memory() {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, sizeof(ordered_words)), "cudaMallocHost");
    words_ = new (memory) ordered_words;
  }
  ordered_host_memory(const ordered_host_memory&) = delete;
  ~ordered_host_memory() {
    cudaFreeHost(staging_);
    cudaFreeHost(words_);
  }

  [[nodiscard]] ordered_words& words() const noexcept { return *words_; }
  /// Page-locked memory from which a call copies `bytes` bytes to the device, before the next call writes to it.
  [[nodiscard]] std::byte* staging(std::size_t bytes) {
    if (bytes > staging_bytes_) {
      cudaFreeHost(std::exchange(staging_, nullptr));
      staging_bytes_ = 0;
      check_cuda(cudaMallocHost(&staging_, bytes), "cudaMallocHost");
      staging_bytes_ = bytes;
    }
    return static_cast<std::byte*>(staging_);
  }
  /// A word, as the device has left it by now.
  template <class Word>
  [[nodiscard]] static Word read(const Word& word) noexcept {
    return __atomic_load_n(&word, __ATOMIC_RELAXED);
  }

 private:
  ordered_words* words_ = nullptr;
  void* staging_ = nullptr;
  std::size_t staging_bytes_ = 0;
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
