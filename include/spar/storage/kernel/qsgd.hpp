// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// QSGD buckets: 2, 4 or 8 bits an entry and one scale a bucket (SparCML, section 6; Alistarh et al., NIPS 2017).
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/mix.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace spar::kernel {

namespace detail {

using spar::detail::mix;
using spar::detail::mix_step;

/// 32 uniform random bits for each position, a pure function of (seed, call, position).
class position_random {
 public:
  constexpr position_random(std::uint64_t seed, std::uint64_t call)
      : key_(mix(mix(seed + mix_step) + call * mix_step)) {}

  constexpr std::uint32_t operator()(std::uint64_t position) const {
    const std::uint64_t pair = both(position / 2);
    return static_cast<std::uint32_t>(position % 2 == 0 ? pair : pair >> 32);
  }

  /// The bits of `Count` positions (an even number) from `position`, or the even one before it, on.
  template <std::size_t Count>
  [[gnu::always_inline]] inline void fill(std::uint64_t position, std::uint32_t* __restrict out) const {
    for (std::size_t e = 0; e < Count; e += 2) {
      const std::uint64_t pair = both(position / 2 + e / 2);
      out[e] = static_cast<std::uint32_t>(pair);
      out[e + 1] = static_cast<std::uint32_t>(pair >> 32);
    }
  }

 private:
  constexpr std::uint64_t both(std::uint64_t half) const { return mix(key_ + half * mix_step); }
  std::uint64_t key_;
};

} // namespace detail

/// The QSGD code of `Bits` bits. An entry x of a bucket becomes the level sign(x) * floor(|x| / scale * s + u) of
/// -s..s, s = 2^(Bits-1) - 1, where scale is the largest |x| of the bucket and u is uniform in [0, 1). The error is
/// below scale / s, an entry with |x| = scale is exact, and the expectation of the decoded value is x but for the
/// roundings of the arithmetic (relative 2^-22, for double 2^-51) and 2^-24 of scale / s, as u has 24 bits (4-bit
/// levels: 28, 2: 30).
///
/// Layout: bucket after bucket, each the scale as a T (unaligned), then its levels in two's complement, the first entry
/// in the lowest bits of the first byte, padded to whole bytes. So a range of whole buckets is a range of bytes.
///
/// The code -2^(Bits-1) means NaN: NaN stays NaN in its place and does not disturb the others. Where a bucket has an
/// infinity, its scale is infinite, infinities stay and its finite entries become 0. A zero of either sign becomes +0.
template <int Bits>
  requires(Bits == 2 || Bits == 4 || Bits == 8)
struct qsgd_codec {
  static constexpr std::size_t default_bucket = 1024;
  /// The largest level.
  static constexpr int levels = (1 << (Bits - 1)) - 1;

  /// Bytes of `count` entries in buckets of `bucket`: ceil(entries * Bits / 8) + sizeof(T) for each bucket.
  template <element T>
  static constexpr std::size_t encoded_bytes(std::size_t count, std::size_t bucket = default_bucket) {
    check(bucket);
    const std::size_t whole = count / bucket, rest = count % bucket;
    return whole * (sizeof(T) + packed(bucket)) + (rest == 0 ? 0 : sizeof(T) + packed(rest));
  }

  /// Encodes x[0, count) into `encoded_bytes<T>(count, bucket)` bytes. `position` is the place of x[0] in the whole
  /// vector; as rounding depends on (seed, call, position) alone, it does not matter in how many calls that is encoded.
  template <element T>
    requires is_floating<T>
  static void encode(const T* x, std::size_t count, std::size_t bucket, std::byte* out, std::uint64_t seed,
                     std::uint64_t call, std::uint64_t position) {
    check(bucket);
    const detail::position_random random(seed, call);
    while (count > 0) {
      const std::size_t length = std::min(bucket, count);
      encode_bucket(x, length, out, random, position);
      x += length;
      out += sizeof(T) + packed(length);
      position += length;
      count -= length;
    }
  }

  /// Decodes `count` entries. Any bytes have a meaning: levels times scale / s, whatever the scale is.
  template <element T>
    requires is_floating<T>
  static void decode(const std::byte* in, std::size_t count, std::size_t bucket, T* out) {
    check(bucket);
    while (count > 0) {
      const std::size_t length = std::min(bucket, count);
      decode_bucket(in, length, out);
      in += sizeof(T) + packed(length);
      out += length;
      count -= length;
    }
  }

 private:
  static constexpr std::size_t block = 64;
  static constexpr std::size_t per_byte = 8 / Bits;
  static constexpr unsigned mask = (1u << Bits) - 1;
  static constexpr unsigned nan_code = 1u << (Bits - 1);
  /// Bits of a fixed-point level behind the point: levels * 2^fraction + 2^fraction - 1 just fits into 31 bits.
  static constexpr int fraction = 32 - Bits;

  template <class T>
  using real = std::conditional_t<code_of<T> == element_code::float64, double, float>;

  template <class Real>
  using bits_of_real = std::conditional_t<sizeof(Real) == 8, std::uint64_t, std::uint32_t>;

  static constexpr void check(std::size_t bucket) {
    if (bucket == 0) throw invalid_argument("a QSGD bucket has 0 entries, at least 1 is needed");
  }

  static constexpr std::size_t packed(std::size_t count) {
    return count / per_byte + static_cast<std::size_t>(count % per_byte != 0);
  }

  /// |x| and, for the sign bit, 0 or -1: by bits, so that loops over them vectorise.
  static float absolute(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu); }
  static double absolute(double x) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & 0x7fffffffffffffffu);
  }
  static std::int32_t sign_mask(float x) { return std::bit_cast<std::int32_t>(x) >> 31; }
  static std::int32_t sign_mask(double x) {
    return static_cast<std::int32_t>(std::bit_cast<std::uint64_t>(x) >> 32) >> 31;
  }

  /// How the entries of one bucket become levels.
  template <class Real>
  struct scaling {
    Real prescale, factor;

    explicit scaling(Real scale) {
      // s / scale overflows for the smallest scales, and has lost bits where the scale is denormal.
      constexpr Real small = static_cast<Real>(std::is_same_v<Real, double> ? 0x1p-500 : 0x1p-60);
      prescale = scale < small ? Real(1) / small : Real(1);
      factor = scale > 0 ? limit() / (scale * prescale) : Real(0);
      // Rounded so that the largest entry gets there: else it would be rounded down once in some 10^5 draws.
      if (scale * prescale * factor < limit())
        factor = std::bit_cast<Real>(std::bit_cast<bits_of_real<Real>>(factor) + 1);
    }

    static constexpr Real limit() { return static_cast<Real>(static_cast<std::int64_t>(levels) << fraction); }

    /// Level of x, |x| <= scale, with sign.
    [[gnu::always_inline]] inline std::int32_t operator()(Real x, std::uint32_t random) const {
      const Real magnitude = absolute(x);
      // The product may exceed the limit by its rounding, which is too little to overflow.
      const auto product = static_cast<std::int32_t>(magnitude * prescale * factor + Real(0.5));
      const std::int32_t fixed = std::min(product, levels << fraction);
      const std::int32_t level = (fixed + static_cast<std::int32_t>(random >> (32 - fraction))) >> fraction;
      const std::int32_t sign = sign_mask(x);
      return (level ^ sign) - sign;
    }
  };

  template <class T>
  static void encode_bucket(const T* __restrict x, std::size_t count, std::byte* __restrict out,
                            const detail::position_random& random, std::uint64_t position) {
    using real_type = real<T>;
    bool nan = false;
    const T scale = largest(x, count, nan);
    std::memcpy(out, &scale, sizeof(T));
    out += sizeof(T);
    const auto top = static_cast<real_type>(scale);
    if (nan || top > std::numeric_limits<real_type>::max()) return encode_special(x, count, top, out, random, position);
    const scaling<real_type> level(top);
    std::array<std::uint8_t, block> codes;
    std::array<std::uint32_t, block + 2> bits;
    std::size_t e = 0;
    for (; e + block <= count; e += block) {
      const std::uint64_t first = position + e;
      random.fill<block + 2>(first, bits.data());
      const std::uint32_t* __restrict u = bits.data() + first % 2;
      for (std::size_t b = 0; b < block; ++b)
        codes[b] = static_cast<std::uint8_t>(level(static_cast<real_type>(x[e + b]), u[b]));
      pack(codes.data(), block, out + e / per_byte);
    }
    for (std::size_t b = 0; e + b < count; ++b)
      codes[b] = static_cast<std::uint8_t>(level(static_cast<real_type>(x[e + b]), random(position + e + b)));
    pack(codes.data(), count - e, out + e / per_byte);
  }

  /// The largest |x| that is not NaN; sets `nan` where one is.
  template <class T>
  static T largest(const T* __restrict x, std::size_t count, bool& nan) {
    using real_type = real<T>;
    constexpr std::size_t lanes = 16;
    std::array<real_type, lanes> top{};
    std::array<std::uint8_t, lanes> wrong{};
    std::size_t e = 0;
    const auto look = [&](std::size_t lane, T entry) {
      const auto value = static_cast<real_type>(entry);
      const real_type magnitude = absolute(value);
      top[lane] = magnitude > top[lane] ? magnitude : top[lane];
      wrong[lane] |= static_cast<std::uint8_t>(value != value);
    };
    for (; e + lanes <= count; e += lanes)
      for (std::size_t b = 0; b < lanes; ++b) look(b, x[e + b]);
    for (; e < count; ++e) look(0, x[e]);
    for (std::size_t b = 1; b < lanes; ++b) {
      top[0] = std::max(top[0], top[b]);
      wrong[0] |= wrong[b];
    }
    nan = wrong[0] != 0;
    return static_cast<T>(top[0]);
  }

  /// A bucket with NaN or an infinity.
  template <class T>
  static void encode_special(const T* x, std::size_t count, real<T> scale, std::byte* out,
                             const detail::position_random& random, std::uint64_t position) {
    using real_type = real<T>;
    const bool infinite = scale > std::numeric_limits<real_type>::max();
    const scaling<real_type> level(infinite ? real_type(1) : scale);
    for (std::size_t e = 0; e < count; e += per_byte) {
      std::array<std::uint8_t, per_byte> codes{};
      const std::size_t length = std::min(per_byte, count - e);
      for (std::size_t b = 0; b < length; ++b) {
        const auto value = static_cast<real_type>(x[e + b]);
        if (value != value)
          codes[b] = static_cast<std::uint8_t>(nan_code);
        else if (!infinite)
          codes[b] = static_cast<std::uint8_t>(level(value, random(position + e + b)));
        else if (value == scale)
          codes[b] = static_cast<std::uint8_t>(levels);
        else if (value == -scale)
          codes[b] = static_cast<std::uint8_t>(-levels);
      }
      pack(codes.data(), length, out + e / per_byte);
    }
  }

  /// The low bits of `codes[0, count)`, tight.
  static void pack(const std::uint8_t* __restrict codes, std::size_t count, std::byte* __restrict out) {
    if constexpr (Bits == 8) {
      std::memcpy(out, codes, count);
    } else {
      std::size_t e = 0;
      for (; e + per_byte <= count; e += per_byte) {
        unsigned byte = 0;
        for (std::size_t b = 0; b < per_byte; ++b) byte |= (codes[e + b] & mask) << (b * Bits);
        out[e / per_byte] = static_cast<std::byte>(byte);
      }
      if (e == count) return;
      unsigned byte = 0;
      for (std::size_t b = 0; e + b < count; ++b) byte |= (codes[e + b] & mask) << (b * Bits);
      out[e / per_byte] = static_cast<std::byte>(byte);
    }
  }

  /// Value of the level with this code; a level of 0 is 0 even where the scale is infinite.
  template <class Real>
  static constexpr Real value_of(unsigned code, Real scale) {
    if (code == nan_code) return std::numeric_limits<Real>::quiet_NaN();
    if (code == 0) return Real(0);
    const int level = static_cast<int>(code) - (code > nan_code ? 1 << Bits : 0);
    return scale * (static_cast<Real>(level) / static_cast<Real>(levels));
  }

  template <class Real>
  static constexpr auto fractions = [] {
    std::array<Real, std::size_t{1} << Bits> values{};
    for (unsigned code = 0; code <= mask; ++code) values[code] = value_of(code, Real(1));
    return values;
  }();

  template <class T>
  static void decode_bucket(const std::byte* __restrict in, std::size_t count, T* __restrict out) {
    using real_type = real<T>;
    T stored;
    std::memcpy(&stored, in, sizeof(T));
    in += sizeof(T);
    const auto scale = static_cast<real_type>(stored);
    std::size_t e = 0;
    if constexpr (Bits == 8) { // a table of 256 values for each bucket would cost more than it saves
      const bool finite = absolute(scale) <= std::numeric_limits<real_type>::max();
      for (; finite && e < count; ++e)
        out[e] = static_cast<T>(scale * fractions<real_type>[static_cast<std::size_t>(in[e])]);
      for (; e < count; ++e) out[e] = static_cast<T>(value_of(static_cast<unsigned>(in[e]), scale));
    } else {
      std::array<T, std::size_t{1} << Bits> values;
      for (unsigned code = 0; code <= mask; ++code) values[code] = static_cast<T>(value_of(code, scale));
      for (; e + per_byte <= count; e += per_byte) {
        const auto byte = static_cast<unsigned>(in[e / per_byte]);
        for (std::size_t b = 0; b < per_byte; ++b) out[e + b] = values[(byte >> (b * Bits)) & mask];
      }
      if (e == count) return;
      const auto byte = static_cast<unsigned>(in[e / per_byte]);
      for (std::size_t b = 0; e + b < count; ++b) out[e + b] = values[(byte >> (b * Bits)) & mask];
    }
  }
};

} // namespace spar::kernel
