// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads and writes neighbouring values, and numbers in bytes, by one instruction where their address allows it.
#pragma once

#include <spar/cuda/kernel/language.cuh>

#include <cstddef>
#include <cstdint>

namespace spar::inline v0_1::detail {

/// Four neighbouring values. A thread accesses at most 16 bytes at once.
template <class T>
struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) four {
  T value[4];
};

template <class Whole>
__device__ bool is_aligned_for(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % alignof(Whole) == 0;
}

/// The first `count` values at an address that need not be aligned for four; the others are T{}.
template <class T>
__device__ four<T> load_some(const T* from, std::uint64_t count) {
  four<T> x;
  SPAR_UNROLL
  for (unsigned i = 0; i < 4; ++i) x.value[i] = i < count ? from[i] : T{};
  return x;
}
template <class T>
__device__ void store_some(T* to, const four<T>& x, std::uint64_t count) {
  SPAR_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    if (i < count) to[i] = x.value[i];
  }
}

/// Reads or writes an unsigned number at an address of any alignment, the lowest byte first.
template <class Word>
__device__ Word load_word(const std::byte* from) {
  if (is_aligned_for<Word>(from)) return *reinterpret_cast<const Word*>(from);
  Word word = 0;
  SPAR_UNROLL
  for (unsigned b = 0; b < sizeof(Word); ++b) word |= static_cast<Word>(static_cast<Word>(from[b]) << (8 * b));
  return word;
}
template <class Word>
__device__ void store_word(std::byte* to, Word word) {
  if (is_aligned_for<Word>(to)) {
    *reinterpret_cast<Word*>(to) = word;
    return;
  }
  SPAR_UNROLL
  for (unsigned b = 0; b < sizeof(Word); ++b) to[b] = static_cast<std::byte>(word >> (8 * b) & 0xff);
}

} // namespace spar::inline v0_1::detail
