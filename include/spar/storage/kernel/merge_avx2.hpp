// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Merge steps of eight entries, for values of four bytes, by AVX2. Eight entries are sorted by a bitonic network
// (Batcher, "Sorting networks and their applications", AFIPS 1968).
#pragma once

#include <spar/core/element.hpp>
#include <spar/storage/kernel/avx2.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace spar::inline v0_1::kernel::detail {

/// Whether `merge_avx2` merges entries of these types.
template <class T, class Index>
inline constexpr bool merges_by_avx2 =
    sizeof(T) == 4 && std::is_trivially_copyable_v<T> && std::is_same_v<Index, std::uint32_t>;

/// The largest number of entries that `merge_avx2` takes in one step: eight, and the second entry of a pair with equal
/// indices.
inline constexpr std::size_t avx2_step = 9;

#if defined(__x86_64__) && !defined(__CUDACC__)

class merge_avx2 {
 public:
  /// Takes `count` steps of `work`, a `merger`, at each of the four positions `at`. All indices must be below 2^31, and
  /// each operand must have eight entries left at each step.
  template <class Merger, class Position>
  [[gnu::target("avx2,popcnt"), gnu::noinline]] static void steps(const Merger& work, std::size_t count,
                                                                  Position (&at)[4]) {
    const Merger self = work; // local copies, because stores of values might alias `work` and `at`
    Position a = at[0], b = at[1], c = at[2], d = at[3];
    for (; count > 0; --count) step(self, a), step(self, b), step(self, c), step(self, d);
    at[0] = a, at[1] = b, at[2] = c, at[3] = d;
  }

 private:
  using words [[gnu::vector_size(32)]] = std::uint32_t;
  using integers [[gnu::vector_size(32)]] = std::int32_t;
  using floats [[gnu::vector_size(32)]] = float;

  /// For each mask of the lanes that come from the right: how many lanes before each lane, in four bits, come from the
  /// same side.
  static constexpr std::array<std::uint32_t, 256> same_side = [] {
    std::array<std::uint32_t, 256> counts{};
    for (unsigned mask = 0; mask < 256; ++mask) {
      unsigned seen[2] = {0, 0};
      for (unsigned lane = 0; lane < 8; ++lane) counts[mask] |= seen[mask >> lane & 1]++ << (4 * lane);
    }
    return counts;
  }();

  /// Writes the next eight entries. A key is twice an index, plus 1 on the right, so that keys are unique, and an entry
  /// of the left comes first.
  template <class Merger, class Position>
  [[gnu::target("avx2,popcnt"), gnu::always_inline]] static void step(const Merger& m, Position& at) {
    const words left = load<words>(m.left_index + at.left) << 1;
    const words right = load<words>(m.right_index + at.right) << 1 | 1;
    // Of two ascending sequences, the lesser ones of the first and the reversed second are the eight least keys.
    words keys = lesser(left, __builtin_shufflevector(right, right, 7, 6, 5, 4, 3, 2, 1, 0));
    const auto from_left = static_cast<std::size_t>(__builtin_popcount(lanes(keys == left)));
    keys = sorted(keys);
    const integers side = __builtin_bit_cast(integers, keys << 31);
    const integers place = __builtin_bit_cast(integers, (words{} + same_side[lanes(side)]) >>
                                                            words{0, 4, 8, 12, 16, 20, 24, 28}); // permutes by 3 bits
    const integers left_values = __builtin_ia32_permvarsi256(load<integers>(m.left_value + at.left), place);
    const integers right_values = __builtin_ia32_permvarsi256(load<integers>(m.right_value + at.right), place);
    const integers values = side < 0 ? right_values : left_values;
    keys >>= 1;
    std::memcpy(m.out_index + at.out, &keys, 32);
    std::memcpy(static_cast<void*>(m.out_value + at.out), &values, 32);
    at.left += from_left;
    at.right += 8 - from_left;
    if (!m.fold) {
      at.out += 8;
      return;
    }
    const unsigned pairs = lanes(keys == __builtin_shufflevector(keys, keys, 1, 2, 3, 4, 5, 6, 7, 7)) & 0x7f;
    at.out = pairs == 0 ? at.out + 8 : folded(m, at.out, pairs);
    if (m.out_index[at.out - 1] == m.right_index[at.right]) { // the second entry of a pair is not among the eight
      m.out_value[at.out - 1] = m.op(m.out_value[at.out - 1], m.right_value[at.right]);
      ++at.right;
    }
  }

  /// Folds the pairs of equal indices among eight entries of the output, from `begin` on: bit l of `pairs` is set if
  /// entries l and l + 1 are a pair. Returns the end of the entries that remain.
  template <class Merger>
  [[gnu::target("avx2,popcnt"), gnu::always_inline]] static std::size_t folded(const Merger& m, std::size_t begin,
                                                                               unsigned pairs) {
    std::size_t end = begin + 1;
    for (std::size_t e = begin + 1; e < begin + 8; ++e, pairs >>= 1) {
      if ((pairs & 1) != 0) {
        m.out_value[end - 1] = m.op(m.out_value[end - 1], m.out_value[e]);
      } else {
        m.out_index[end] = m.out_index[e];
        m.out_value[end] = m.out_value[e];
        ++end;
      }
    }
    return end;
  }

  /// Sorts a bitonic sequence.
  [[gnu::target("avx2,popcnt"), gnu::always_inline]] static words sorted(words k) {
    words other = __builtin_shufflevector(k, k, 4, 5, 6, 7, 0, 1, 2, 3);
    k = __builtin_shufflevector(lesser(k, other), greater(k, other), 0, 1, 2, 3, 12, 13, 14, 15);
    other = __builtin_shufflevector(k, k, 2, 3, 0, 1, 6, 7, 4, 5);
    k = __builtin_shufflevector(lesser(k, other), greater(k, other), 0, 1, 10, 11, 4, 5, 14, 15);
    other = __builtin_shufflevector(k, k, 1, 0, 3, 2, 5, 4, 7, 6);
    return __builtin_shufflevector(lesser(k, other), greater(k, other), 0, 9, 2, 11, 4, 13, 6, 15);
  }
  [[gnu::target("avx2,popcnt"), gnu::always_inline]] static words lesser(words a, words b) { return a < b ? a : b; }
  [[gnu::target("avx2,popcnt"), gnu::always_inline]] static words greater(words a, words b) { return a < b ? b : a; }
  /// The mask of the lanes whose highest bit is set.
  template <class V>
  [[gnu::target("avx2,popcnt"), gnu::always_inline]] static unsigned lanes(V v) {
    return static_cast<unsigned>(__builtin_ia32_movmskps256(__builtin_bit_cast(floats, v)));
  }
  template <class V>
  [[gnu::target("avx2,popcnt"), gnu::always_inline]] static V load(const void* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
};

#else

class merge_avx2 {
 public:
  /// Not called, because `has_avx2` is false.
  static void steps(const auto&, std::size_t, auto&) {}
};

#endif

} // namespace spar::inline v0_1::kernel::detail
