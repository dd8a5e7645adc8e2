// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Packs integers without loss: the differences of neighbours, in blocks of 128 values of one bit width each. The layout
// of a block is that of vector processors (Lemire and Boytsov 2015, SIMD-BP128).
#pragma once

#include <spar/core/util/algobase.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace spar::inline v0_1::kernel {

namespace detail {

/// A block has `packed_block` values, in rows of 16 bytes. The last block of an array may have fewer.
inline constexpr std::size_t packed_block = 128;

/// The vector of 16 bytes with lanes of the integer Int, and the numbers that follow from it. Uses the vector extension
/// of GCC and clang, which all processors have in some form.
template <class Int>
struct packed_rows {
  using lane = std::make_unsigned_t<Int>;
  using row [[gnu::vector_size(16)]] = lane;
  static constexpr unsigned bits = 8 * sizeof(Int);
  static constexpr std::size_t lanes = 16 / sizeof(Int);

  static row load(const void* from) noexcept {
    row r;
    std::memcpy(&r, from, sizeof(r));
    return r;
  }
  static void store(void* to, const row& r) noexcept { std::memcpy(to, &r, sizeof(r)); }
  /// Returns the values of `r` moved up by one lane; the lowest lane gets the highest value of `below`.
  static row shifted(const row& r, const row& below) noexcept {
    if constexpr (lanes == 4)
      return __builtin_shufflevector(below, r, 3, 4, 5, 6);
    else
      return __builtin_shufflevector(below, r, 1, 2);
  }
  /// Returns the sums of the values of `r` up to each lane, plus the highest value of `below`.
  static row sums(row r, const row& below) noexcept {
    const row zero{};
    if constexpr (lanes == 4) {
      r += __builtin_shufflevector(zero, r, 3, 4, 5, 6);
      r += __builtin_shufflevector(zero, r, 2, 3, 4, 5);
      return r + __builtin_shufflevector(below, below, 3, 3, 3, 3);
    } else {
      r += __builtin_shufflevector(zero, r, 1, 2);
      return r + __builtin_shufflevector(below, below, 1, 1);
    }
  }
  /// Maps differences of small magnitude to small numbers: 0, -1, 1, -2, ... to 0, 1, 2, 3, ...
  static row zigzag(const row& r) noexcept { return (r << 1) ^ -(r >> (bits - 1)); }
  static row unzigzag(const row& r) noexcept { return (r >> 1) ^ -(r & 1); }
  static constexpr std::size_t of(std::size_t values) noexcept { return (values + lanes - 1) / lanes; }
};

/// The bytes of `values` values of `width` bits: each lane has the bits of its values, and ends at a whole number.
template <class Int>
constexpr std::size_t packed_bytes(std::size_t values, unsigned width) noexcept {
  using rows = packed_rows<Int>;
  return (rows::of(values) * width + rows::bits - 1) / rows::bits * 16;
}

} // namespace detail

/// The largest number of bytes of `count` packed integers whose differences have at most `width` bits.
template <class Int>
constexpr std::size_t packed_room(std::size_t count, unsigned width) noexcept {
  constexpr std::size_t block = detail::packed_block;
  const std::size_t whole = count / block, rest = count % block;
  return whole * (1 + detail::packed_bytes<Int>(block, width)) +
         (rest > 0 ? 1 + detail::packed_bytes<Int>(rest, width) : 0);
}

/// What `pack_integers` returns for integers that need more bits than they may have.
inline constexpr std::size_t packed_too_wide = ~std::size_t{0};

/// Packs x[0, count) to `out`: the bit width of each block in a byte, then the blocks. Returns the number of bytes
/// written, at most `packed_room` of `most`; or `packed_too_wide` if a block needs more than `most` bits a value.
template <class Int>
[[gnu::noinline]] std::size_t pack_integers(const Int* __restrict x, std::size_t count, std::byte* __restrict out,
                                            unsigned most) {
  using rows = detail::packed_rows<Int>;
  using row = typename rows::row;
  constexpr std::size_t block = detail::packed_block;
  std::byte* widths = out;
  std::byte* to = out + (count + block - 1) / block;
  row before{}; // its highest value precedes the first of the block
  std::array<Int, block> last;
  for (std::size_t b = 0; b < count; b += block) {
    const std::size_t values = std::min(block, count - b);
    const Int* from = x + b;
    if (values < block) {
      std::memcpy(last.data(), from, values * sizeof(Int));
      std::fill_n(last.data() + values, block - values, from[values - 1]);
      from = last.data();
    }
    const std::size_t used = rows::of(values);
    std::array<row, block / rows::lanes> coded;
    row all{};
    for (std::size_t r = 0; r < used; ++r) {
      const row own = rows::load(from + r * rows::lanes);
      coded[r] = rows::zigzag(own - rows::shifted(own, before));
      all |= coded[r];
      before = own;
    }
    typename rows::lane any = 0;
    for (std::size_t l = 0; l < rows::lanes; ++l) any |= all[l];
    const auto width = static_cast<unsigned>(std::bit_width(any));
    if (width > most) return packed_too_wide;
    *widths++ = static_cast<std::byte>(width);
    if (width == 0) continue;
    row word{};
    unsigned filled = 0;
    for (std::size_t r = 0; r < used; ++r) {
      word |= coded[r] << filled;
      filled += width;
      if (filled < rows::bits) continue;
      rows::store(to, word);
      to += 16;
      filled -= rows::bits;
      word = filled > 0 ? coded[r] >> (width - filled) : row{};
    }
    if (filled > 0) {
      rows::store(to, word);
      to += 16;
    }
  }
  return static_cast<std::size_t>(to - out);
}

/// Whether `bytes` bytes at `in` may be what `pack_integers` has written for `count` integers whose differences have at
/// most `width` bits. If not, `unpack_integers` must not read them.
template <class Int>
[[nodiscard]] bool is_packed(const std::byte* in, std::size_t bytes, std::size_t count, unsigned width) noexcept {
  constexpr std::size_t block = detail::packed_block;
  const std::size_t blocks = (count + block - 1) / block;
  if (bytes < blocks) return false;
  std::size_t expected = blocks;
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto own = static_cast<unsigned>(in[b]);
    if (own > width) return false;
    expected += detail::packed_bytes<Int>(std::min(block, count - b * block), own);
  }
  return bytes == expected;
}

/// Unpacks `count` integers, which `is_packed`, to x[0, count), or adds them if `Add`; sums wrap around.
template <bool Add, class Int>
[[gnu::noinline]] void unpack_integers(const std::byte* __restrict in, std::size_t count, Int* __restrict x) {
  using rows = detail::packed_rows<Int>;
  using row = typename rows::row;
  constexpr std::size_t block = detail::packed_block;
  const std::byte* widths = in;
  const std::byte* from = in + (count + block - 1) / block;
  row before{};
  for (std::size_t b = 0; b < count; b += block) {
    const std::size_t values = std::min(block, count - b);
    const std::size_t used = values / rows::lanes;
    const auto width = static_cast<unsigned>(*widths++);
    const row mask = row{} + (width < rows::bits ? (typename rows::lane{1} << width) - 1 : ~typename rows::lane{0});
    row word{};
    unsigned left = 0; // bits of `word` that have not been read
    const auto next = [&] {
      row coded = word;
      if (left < width) {
        word = rows::load(from);
        from += 16;
        coded |= word << left;
        const unsigned taken = width - left;
        word = taken < rows::bits ? word >> taken : row{};
        left += rows::bits - width;
      } else {
        word = word >> width;
        left -= width;
      }
      before = rows::sums(rows::unzigzag(coded & mask), before);
    };
    for (std::size_t r = 0; r < used; ++r) {
      next();
      Int* const to = x + b + r * rows::lanes;
      rows::store(to, Add ? before + rows::load(to) : before);
    }
    if (const std::size_t rest = values % rows::lanes; rest > 0) {
      next();
      for (std::size_t l = 0; l < rest; ++l) {
        const typename rows::lane old = Add ? static_cast<typename rows::lane>(x[b + values - rest + l]) : 0;
        x[b + values - rest + l] = static_cast<Int>(old + before[l]);
      }
    }
  }
}

} // namespace spar::inline v0_1::kernel
