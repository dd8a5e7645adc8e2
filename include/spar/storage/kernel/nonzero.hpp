// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels that count the nonzeros of a dense vector, and move them to a stream (SparCML, section 5.1).
#pragma once

#include <spar/core/element.hpp>
#include <spar/storage/kernel/bits.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace spar::inline v0_1::kernel {

/// What `take_nonzero` does with -0, which is no nonzero.
enum class negative_zeros : bool {
  keep,
  clear ///< -0 becomes +0
};

namespace detail {

/// A type whose bits tell zeros from nonzeros: every element type except rows and types of the program.
template <class T>
concept zero_by_bits = ranked<T> && !is_row<T>;

/// Returns whether `value` is neither +0 nor -0; NaN, infinities and denormals count as nonzero.
template <class T>
[[gnu::always_inline]] inline bool is_nonzero(const T& value) {
  if constexpr (zero_by_bits<T>)
    return magnitude_of(value) != 0;
  else
    return !(value == T{});
}

/// Returns whether a bit of the 64 values is set.
template <class T>
[[gnu::always_inline]] inline bool any_bit_of_64(const T* values) {
#if defined(__x86_64__)
  using lanes = lanes_of<8>::type;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(values);
  const auto load = [bytes](std::size_t at) {
    lanes x;
    std::memcpy(&x, bytes + at, sizeof x);
    return x;
  };
  lanes a{}, b{}, c{}, d{}; // four chains, so that an instruction need not wait for the one before
  for (std::size_t at = 0; at < 64 * sizeof(T); at += 64) {
    a |= load(at);
    b |= load(at + 16);
    c |= load(at + 32);
    d |= load(at + 48);
  }
  const lanes all = (a | b) | (c | d);
  return (all[0] | all[1]) != 0;
#else
  bits_of<T> any = 0;
  for (std::size_t e = 0; e < 64; ++e) any = static_cast<bits_of<T>>(any | std::bit_cast<bits_of<T>>(values[e]));
  return any != 0;
#endif
}

/// Returns a mask of 64 values: bit e is set if `values[e]` is nonzero.
template <class T>
[[gnu::always_inline]] inline std::uint64_t nonzero_mask(const T* values) {
  if constexpr (zero_by_bits<T>) {
    return at_least_mask(values, 1);
  } else {
    std::uint8_t bytes[64];
    for (std::size_t e = 0; e < 64; ++e) bytes[e] = static_cast<std::uint8_t>(is_nonzero(values[e]));
    return mask_of_bytes(bytes);
  }
}

/// Sets the zeros x[0, n), of either sign, to +0. Reads before it writes, because few vectors contain -0.
template <class T>
void clear_signs(T* x, std::size_t n) {
  if constexpr (zero_by_bits<T> && !is_floating<T>) return;
  if constexpr (zero_by_bits<T>) {
    std::size_t e = 0;
    while (e + 64 <= n && !any_bit_of_64(x + e)) e += 64;
    while (e < n && std::bit_cast<bits_of<T>>(x[e]) == 0) ++e;
    if (e == n) return;
  }
  fill(x, n, T{});
}

} // namespace detail

/// Returns the number of values that are neither +0 nor -0.
template <element T>
[[gnu::noinline]] std::size_t count_nonzero(const T* x, std::size_t n) {
  std::size_t count = 0, e = 0;
  if constexpr (detail::zero_by_bits<T>) {
    // Counts without comparisons, because SSE2 cannot compare 64-bit integers: either m or 0 - m has its highest bit
    // set unless m is 0.
    using bits = magnitude<T>;
    constexpr std::size_t block = 64; // a constant, so that the loop is vectorised; its count fits into any `bits`
    for (; e + block <= n; e += block) {
      bits in_block = 0;
      for (std::size_t b = 0; b < block; ++b) {
        const bits m = magnitude_of(x[e + b]);
        const bits negated = static_cast<bits>(0 - m);
        in_block =
            static_cast<bits>(in_block + static_cast<bits>(static_cast<bits>(m | negated) >> (8 * sizeof(T) - 1)));
      }
      count += in_block;
    }
  }
  for (; e < n; ++e) count += static_cast<std::size_t>(detail::is_nonzero(x[e]));
  return count;
}

/// Returns whether `x` probably has more than `most` nonzeros, by a sample of one value at a pseudo-random position in
/// each of 256 equal parts of `x`. Returns false for a short vector, whose nonzeros are soon counted.
template <element T>
[[gnu::noinline]] bool seems_fuller(const T* x, std::size_t n, std::size_t most) {
  constexpr std::size_t parts = 256, shortest = 64 * parts;
  if (n < shortest) return false;
  const std::size_t length = n / parts;
  std::size_t count = 0;
  for (std::size_t p = 0; p < parts; ++p)
    count += static_cast<std::size_t>(detail::is_nonzero(x[p * length + detail::scatter_of(p, length)]));
  return count * length > most;
}

/// Moves the values that are neither +0 nor -0 to the output arrays as entries `(begin + position, value)`, in
/// ascending order of the positions, and leaves zeros in `x`. If there are more than `room` nonzeros, stops early, with
/// up to 255 entries of the room unused.
template <negative_zeros Negative, element T, index_type Index>
[[gnu::noinline]] taken take_nonzero(T* x, std::size_t n, std::uint64_t begin, Index* __restrict out_i,
                                     T* __restrict out_v, std::size_t room) {
  taken all;
  const auto found = [&](std::size_t base, const std::uint16_t* at, std::size_t here) {
    if (here > room - all.count) return false;
    for (std::size_t f = 0; f < here; ++f) {
      T& from = x[base + at[f]];
      out_i[all.count + f] = static_cast<Index>(begin + base + at[f]);
      out_v[all.count + f] = from;
      from = T{};
    }
    all.count += here;
    if constexpr (Negative == negative_zeros::clear) detail::clear_signs(x + base, n - base < 256 ? n - base : 256);
    return true;
  };
  const auto mask = [](const T* values) { return detail::nonzero_mask(values); };
  const auto one = [](const T* value) { return detail::is_nonzero(*value); };
  all.seen = detail::for_chosen<true>(x, n, mask, one, found);
  return all;
}

} // namespace spar::inline v0_1::kernel
