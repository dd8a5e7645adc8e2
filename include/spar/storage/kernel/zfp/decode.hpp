// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decodes groups of zfp blocks, on any processor.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/zfp/codes.hpp>
#include <spar/storage/kernel/zfp/lanes.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace spar::inline v0_1::kernel::detail {

using zfp_four_words [[gnu::vector_size(16)]] = std::uint32_t;
using zfp_bytes16 [[gnu::vector_size(16)]] = std::uint8_t;

/// The bits of a block from its first plane on, of which some are decoded.
template <bool Wide>
struct zfp_reader {
  /// Space for the planes of a block, a byte each: each of at most 119 bits is a plane of zeros, then up to 64 planes.
  static constexpr std::size_t room = 192;

  std::uint64_t low, high; // what is left, with a one above
  std::uint64_t known;     // times 2 * zfp_codes::whole
  std::byte* at;           // where the next planes go

  [[gnu::always_inline]] void take(std::uint64_t entry) {
    zfp_store(at, entry >> 16);
    at += entry >> 12 & 15;
    low >>= entry & 63;
    if constexpr (Wide) {
      low |= high << 1 << (~entry & 63);
      high >>= entry & 63;
    }
    known = entry & zfp_codes::last;
  }
  /// Decodes some planes from a window that is known to be whole.
  [[gnu::always_inline]] void take_whole(const std::uint64_t* windows) {
    take(windows[known + zfp_codes::whole + low % zfp_codes::whole]);
  }
  [[gnu::always_inline]] void take_any(const std::uint64_t* windows) {
    const bool is_whole = low >= zfp_codes::whole || (Wide && high != 0);
    take(windows[known + (is_whole ? low % zfp_codes::whole + zfp_codes::whole : low)]);
  }
  /// Takes what is left as planes of four bits each. Returns the number of planes from `begin` on.
  template <unsigned Planes>
  [[gnu::always_inline]] std::size_t take_rest(const std::byte* begin) {
    const bool is_long = Wide && high != 0;
    const auto bits = static_cast<unsigned>(63 - __builtin_clzll(is_long ? high : low));
    (is_long ? high : low) ^= std::uint64_t{1} << bits;
    spread(low, at);
    for (unsigned p = 16; p < Planes; p += 16) spread(Wide && p == 16 ? high : 0, at + p);
    return static_cast<std::size_t>(at - begin) + (is_long ? 16 : 0) + (bits + 3) / 4;
  }

 private:
  /// Writes 16 groups of four bits to a byte each.
  [[gnu::always_inline]] static void spread(std::uint64_t word, std::byte* to) {
    using words [[gnu::vector_size(16)]] = std::uint64_t;
    const words two{word, 0}, mask = words{} + 0x0f0f0f0f0f0f0f0f;
    const auto even = __builtin_bit_cast(zfp_bytes16, two & mask),
               odd = __builtin_bit_cast(zfp_bytes16, two >> 4 & mask);
    const zfp_bytes16 all = __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    std::memcpy(to, &all, 16);
  }
};

/// The planes of a group of blocks.
template <class T>
struct zfp_decoded {
  static constexpr std::size_t room = zfp_reader<true>::room;

  alignas(16) std::byte planes[zfp_blocks * room]; // a byte each, the highest one first
  alignas(16) T factors[zfp_blocks];
  alignas(16) typename zfp_format<T>::bits kept[zfp_blocks];
  unsigned parts; // of eight planes; lower ones are zeros

  /// Decodes the codes of a group, of `limit` bits each. May read up to 15 bytes beyond the group.
  template <bool Wide>
  [[gnu::always_inline]] void parse(const std::byte* in, unsigned limit, const std::uint64_t* windows) {
    using format = zfp_format<T>;
    using reader = zfp_reader<Wide>;
    __extension__ using wide = unsigned __int128;
    using word = std::conditional_t<Wide, wide, std::uint64_t>;
    const std::uint64_t mask = zfp_mask(Wide ? limit - 64 : limit);
    const unsigned whole_windows = (limit - format::header) / zfp_codes::window;
    const bool is_in_word = limit % 8 == 0 || (limit % 4 == 0 && limit < 64); // of 8 bytes from a block's first byte on
    std::size_t most = 0;                                                     // planes of a block
    const auto begin = [&](unsigned b) {
      const std::byte* const from = in + b * limit / 8;
      const unsigned shift = b * limit % 8;
      const auto next = [&](const std::byte* p) {
        const std::uint64_t first = zfp_load(p) >> shift;
        return is_in_word ? first : first | static_cast<std::uint64_t>(p[8]) << 1 << (63 - shift);
      };
      word code = next(from);
      if constexpr (Wide)
        code |= static_cast<word>(next(from + 8) & mask) << 64;
      else
        code &= mask;
      const bool is_nonzero = (code & 1) != 0;
      if (!is_nonzero) code = 0;
      const auto exponent = static_cast<int>(code >> 1 & zfp_mask(format::header - 1));
      factors[b] = format::factor(exponent);
      if constexpr (format::is_double) kept[b] = format::kept(exponent);
      code = code >> format::header | word{1} << (limit - format::header);
      std::uint64_t high = 0;
      if constexpr (Wide) high = static_cast<std::uint64_t>(code >> 64);
      return reader{static_cast<std::uint64_t>(code), high, is_nonzero ? 0 : zfp_codes::last, planes + b * room};
    };
    // Four blocks at a time, because each look-up of a block waits for the one before.
    for (unsigned b = 0; b < zfp_blocks; b += 4) {
      reader p = begin(b), q = begin(b + 1), r = begin(b + 2), s = begin(b + 3);
      for (unsigned w = 0; w < 2 && w < whole_windows; ++w)
        p.take_whole(windows), q.take_whole(windows), r.take_whole(windows), s.take_whole(windows);
      while ((p.known & q.known & r.known & s.known) != zfp_codes::last)
        p.take_any(windows), q.take_any(windows), r.take_any(windows), s.take_any(windows);
      const std::byte* const first = planes + b * room;
      most = std::max(most, p.template take_rest<format::planes>(first));
      most = std::max(most, q.template take_rest<format::planes>(first + room));
      most = std::max(most, r.template take_rest<format::planes>(first + 2 * room));
      most = std::max(most, s.template take_rest<format::planes>(first + 3 * room));
    }
    parts = std::min((static_cast<unsigned>(most) + 7) / 8, unsigned{sizeof(T)});
  }

  /// Computes the values of the planes, and stores them to `x` or adds them to the values there.
  [[gnu::always_inline]] void transform(T* x, bool add) const {
    using lanes = zfp_lanes<T>;
    using format = zfp_format<T>;
    alignas(16) std::uint32_t bytes[sizeof(T)][zfp_blocks];
    for (unsigned part = 0; part < parts; ++part) {
      for (unsigned b = 0; b < zfp_blocks; b += 4) {
        using words [[gnu::vector_size(16)]] = std::uint64_t;
        using shorts [[gnu::vector_size(16)]] = std::uint16_t;
        const std::byte* const from = planes + b * room + 8 * part;
        const auto two = [](const std::byte* first) {
          const auto pairs = __builtin_bit_cast(shorts, words{zfp_load(first), zfp_load(first + room)});
          return __builtin_bit_cast(zfp_bytes16, (pairs << 4 | pairs >> 8) & 0xff);
        };
        auto all =
            __builtin_bit_cast(zfp_four_words, __builtin_shufflevector(two(from), two(from + 2 * room), 0, 2, 4, 6, 8,
                                                                       10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30));
        // A bit's number is (not p2, not p1, p0, r1, r0) with p its position in a byte and r its value; it becomes
        // (not r1, not r0, p2, p1, p0).
        all = zfp_exchange<9>(zfp_exchange<18>(all, 0x00003333), 0x00550055);
        all = zfp_exchange<1>(zfp_exchange<2>(all, 0x0c0c0c0c), 0x22222222);
        std::memcpy(bytes[part] + b, &all, 16);
      }
    }
    for (unsigned b = 0; b < zfp_blocks; b += lanes::count) {
      typename lanes::bits u[4] = {};
      for (unsigned part = 0; part < parts; ++part) {
        const unsigned lowest = format::planes - 8 - 8 * part;
        typename lanes::bits four;
        if constexpr (sizeof(T) == 4)
          std::memcpy(&four, bytes[part] + b, 16);
        else
          four = typename lanes::bits{bytes[part][b], bytes[part][b + 1]};
        u[0] |= (four >> 24 & 0xff) << lowest, u[1] |= (four >> 16 & 0xff) << lowest;
        u[2] |= (four >> 8 & 0xff) << lowest, u[3] |= (four & 0xff) << lowest;
      }
      if constexpr (format::is_double) {
        const typename lanes::bits k{kept[b], kept[b + 1]};
        u[0] &= k, u[1] &= k, u[2] &= k, u[3] &= k;
      }
      typename lanes::value v[4], factor;
      std::memcpy(&factor, factors + b, sizeof(factor));
      lanes::inverse(u, factor, v);
      lanes::store(v, x + 4 * b, add);
    }
  }
};

/// Decodes groups of blocks of `limit` bits to `x`, or adds their values to those at `x`. Any bits are valid. May read
/// up to 15 bytes beyond the groups.
template <class T, bool Wide>
[[gnu::always_inline]] inline void zfp_decode_groups(const std::byte* in, std::size_t groups, unsigned limit, T* x,
                                                     bool add) {
  const std::uint64_t* const windows = zfp_codes::get().windows;
  zfp_decoded<T> group;
  for (; groups > 0; --groups, x += 4 * zfp_blocks, in += zfp_blocks / 8 * limit) {
    group.template parse<Wide>(in, limit, windows);
    group.transform(x, add);
  }
}

} // namespace spar::inline v0_1::kernel::detail
