// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes groups of zfp blocks, on any processor.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/zfp/codes.hpp>
#include <spar/storage/kernel/zfp/lanes.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace spar::inline v0_1::kernel::detail {

/// Writes the codes of a group one behind the other, `limit` bits each. The bits of a code from `limit` on must be 0.
/// May write up to 8 bytes beyond the group.
template <bool Wide>
[[gnu::always_inline]] inline void zfp_put(const std::uint64_t* low, const std::uint64_t* high, unsigned limit,
                                           std::byte* out) {
  __extension__ using wide = unsigned __int128;
  if (!Wide && limit % 8 == 0) {
    for (unsigned b = 0; b < zfp_blocks; ++b) zfp_store(out + b * (limit / 8), low[b]);
  } else if (!Wide && limit % 4 == 0) {
    for (unsigned b = 0; b < zfp_blocks; b += 2, out += limit / 4) {
      zfp_store(out, low[b]);
      zfp_store(out + limit / 8, low[b] >> (limit / 8 * 8) | low[b + 1] << 4);
    }
  } else {
    wide buffer = 0;
    unsigned filled = 0;
    const auto add = [&](std::uint64_t bits, unsigned length) {
      buffer |= static_cast<wide>(bits) << filled;
      filled += length;
      if (filled < 64) return;
      zfp_store(out, static_cast<std::uint64_t>(buffer));
      out += 8, buffer >>= 64, filled -= 64;
    };
    for (unsigned b = 0; b < zfp_blocks; ++b) {
      add(low[b], Wide ? 64 : limit);
      if constexpr (Wide) add(high[b], limit - 64);
    }
    zfp_store(out, static_cast<std::uint64_t>(buffer));
  }
}

/// The number of bytes of each coefficient, from the highest on, that have bits in a code of `limit` bits. At most four
/// planes of zeros come first, because the transform makes the largest coefficient at most 16 times smaller than the
/// largest value. Each further plane takes at least two bits.
template <class T>
constexpr unsigned zfp_parts_within(unsigned limit) {
  return std::min((4 + (limit - zfp_format<T>::header) / 2 + 7) / 8, unsigned{sizeof(T)});
}

/// Encodes groups of blocks. `Wide` means that `limit`, the number of bits of a block, is above 64. May write up to 8
/// bytes beyond the groups.
template <class T, bool Wide>
[[gnu::always_inline]] inline void zfp_encode_groups(const T* x, std::size_t groups, unsigned limit, std::byte* out) {
  using lanes = zfp_lanes<T>;
  using format = zfp_format<T>;
  __extension__ using wide = unsigned __int128;
  using word = std::conditional_t<Wide, wide, std::uint64_t>;
  const std::uint32_t* const codes = zfp_codes::get().pairs;
  const unsigned parts = zfp_parts_within<T>(limit);
  for (; groups > 0; --groups, x += 4 * zfp_blocks, out += zfp_blocks / 8 * limit) {
    alignas(16) typename format::bits pairs[sizeof(T)][zfp_blocks], headers[zfp_blocks];
    for (unsigned b = 0; b < zfp_blocks; b += lanes::count) {
      typename lanes::value v[4];
      typename lanes::bits u[4], header;
      lanes::load(x + 4 * b, v);
      lanes::transform(v, u, header);
      std::memcpy(headers + b, &header, sizeof(header));
      for (unsigned part = 0; part < parts; ++part) {
        const unsigned lowest = format::planes - 8 - 8 * part;
        typename lanes::bits p = (u[0] >> lowest & 0xff) | (u[1] >> lowest & 0xff) << 8 |
                                 (u[2] >> lowest & 0xff) << 16 | (u[3] >> lowest & 0xff) << 24;
        p = zfp_exchange<6>(zfp_exchange<12>(p, 0x0000f0f0), 0x00cc00cc); // four pairs of planes, a byte each
        std::memcpy(pairs[part] + b, &p, sizeof(p));
      }
    }
    std::uint64_t low[zfp_blocks], high[zfp_blocks];
    for (unsigned b = 0; b < zfp_blocks; ++b) {
      word code = headers[b];
      unsigned length = format::header, known = 0;
      if (code == 0) length = limit; // a block of zeros
      for (unsigned part = 0; part < parts && length < limit; part += 2) {
        std::uint64_t p = static_cast<std::uint64_t>(pairs[part][b]) << 32;
        if (part + 1 < parts) p |= pairs[part + 1][b];
        const auto add = [&] {
          const std::uint32_t next = codes[known + (p >> 56)];
          p <<= 8;
          code |= static_cast<word>(next & 0xffff) << length;
          length += next >> 16 & 31;
          known = next >> 16 & 0x700;
        };
        if (part == 0) add(), add(), add(); // at most 42 bits
        for (unsigned i = part == 0 ? 3 : 0; i < 8 && length < limit; ++i) add();
      }
      low[b] = static_cast<std::uint64_t>(code) & zfp_mask(limit);
      if constexpr (Wide) high[b] = static_cast<std::uint64_t>(code >> 64) & zfp_mask(limit - 64);
    }
    zfp_put<Wide>(low, high, limit, out);
  }
}

} // namespace spar::inline v0_1::kernel::detail
