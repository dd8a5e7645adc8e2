// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The codes of bit planes of zfp blocks, in tables for several planes at a time.
#pragma once

#include <spar/storage/kernel/zfp/format.hpp>

#include <bit>
#include <cstdint>

namespace spar::inline v0_1::kernel::detail {

/// The codes of planes of bits.
struct zfp_codes {
  /// By `known` * 256 + the bits of two planes, those of value i in the bits 2 i + 1 (the upper plane) and 2 i: their
  /// codes, the codes' length from bit 16 on, and the next `known` from bit 24 on.
  std::uint32_t pairs[5 * 256];

  /// What the next bits of a code decode to, by `known` * 2 * `whole` + index. The index is the next `window` bits with
  /// a one above them; or all bits that are left, with a one above them.
  ///
  /// Bits 0 to 5 of an entry are the length of the planes' codes. The bits 10 and 11 are the next `known`, where `last`
  /// means that the remaining bits are planes of four bits each, or that no bits remain. Bits 12 to 15 are the number
  /// of planes, at most 6, which follow in a byte each.
  static constexpr unsigned window = 9, whole = 1U << window, last = 3 * 2 * whole;
  std::uint64_t windows[4 * 2 * whole];

  zfp_codes() {
    for (unsigned known = 0; known <= 4; ++known) {
      for (unsigned index = 0; index < 256; ++index) {
        unsigned upper = 0, lower = 0;
        for (unsigned i = 0; i < 4; ++i) upper |= (index >> (2 * i + 1) & 1) << i, lower |= (index >> (2 * i) & 1) << i;
        const zfp_plane a = zfp_code_of(upper, known), b = zfp_code_of(lower, a.known);
        pairs[256 * known + index] = a.code | b.code << a.length | (a.length + b.length) << 16 | b.known << 24;
      }
    }
    for (unsigned known = 0; known < 4; ++known) {
      for (unsigned index = 0; index < 2 * whole; ++index) windows[2 * whole * known + index] = window_of(known, index);
    }
  }

  /// The table, which the first call computes.
  static const zfp_codes& get() {
    static const zfp_codes all;
    return all;
  }

 private:
  static std::uint64_t window_of(unsigned known, unsigned index) {
    if (index == 0) return 0;
    auto left = static_cast<unsigned>(std::bit_width(index)) - 1;
    const bool is_end = left < window;
    unsigned length = 0, planes = 0;
    std::uint64_t found = 0;
    for (index ^= 1U << left; left > 0 && known < 3 && planes < 6;) {
      const zfp_plane next = decode(index, known, left);
      // Whether the code goes on beyond the window depends on the bits there, unless the block ends.
      if (!is_end && (decode(index, known, 32).length > left || decode(index | ~0U << left, known, 32).length > left))
        break;
      found |= static_cast<std::uint64_t>(next.bits) << (8 * planes++);
      known = next.known;
      index >>= next.length;
      left -= next.length;
      length += next.length;
    }
    if (is_end && left == 0) known = 3;
    return length | std::uint64_t{2 * whole} * (known < 3 ? known : 3) | planes << 12 | found << 16;
  }
  /// Decodes the plane at the begin of `code`, of which `left` bits are left. If the code ends within zeros before a
  /// value's bit, that value has the bit.
  static zfp_plane decode(unsigned code, unsigned known, unsigned left) {
    zfp_plane plane{0, code, 0, known};
    const auto next = [&] { return code >> plane.length++ & 1; };
    for (unsigned i = 0; i < known && plane.length < left; ++i) plane.bits |= next() << i;
    while (plane.known < 4 && plane.length < left && next() != 0) {
      while (plane.known < 3 && plane.length < left && next() == 0) ++plane.known;
      plane.bits |= 1U << plane.known++;
    }
    return plane;
  }
};

} // namespace spar::inline v0_1::kernel::detail
