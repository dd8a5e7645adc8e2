// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// QSGD buckets: 2, 4 or 8 bits per entry and one scale per bucket (SparCML, section 6; Alistarh et al., NIPS 2017).
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/avx2.hpp>
#include <spar/storage/kernel/magnitude.hpp>
#include <spar/storage/kernel/qsgd_rounding.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace spar::inline v0_1::kernel {

/// The QSGD code with `Bits` bits per entry. An entry x of a bucket becomes the level floor(x / scale * s + u) in
/// [-s, s], where s = 2^(Bits-1) - 1, scale is the largest |x| of the bucket, and u is uniform in [0, 1). The error is
/// below scale / s, and an entry with |x| = scale is exact. The expectation of the decoded value differs from x only by
/// the rounding errors of the arithmetic (relative 2^-22) and by up to 2^-17 * scale / s, because u has 16 bits.
///
/// Layout: the buckets follow one another. A bucket consists of its scale as a T (unaligned), followed by its levels in
/// two's complement, packed from the lowest bits of the first byte on, and padded to whole bytes. A range of whole
/// buckets is therefore a range of bytes.
///
/// The code -2^(Bits-1) means NaN: a NaN is decoded as NaN, and does not affect the other entries. If a bucket contains
/// an infinity, the scale is infinite, infinities stay infinite, and finite entries become 0. A zero of either sign
/// becomes +0.
template <int Bits>
struct qsgd_codec {
  static constexpr std::size_t default_bucket = 1024;
  /// The largest level, s = 2^(Bits-1) - 1.
  static constexpr int levels = (1 << (Bits - 1)) - 1;

  /// Returns the size in bytes of `count` encoded entries, in buckets of up to `bucket` entries. Each bucket takes
  /// ceil(entries * Bits / 8) + sizeof(T) bytes. Throws `invalid_argument` if `bucket` is 0.
  template <element T>
  static constexpr std::size_t encoded_bytes(std::size_t count, std::size_t bucket = default_bucket) {
    check_bucket(bucket);
    const std::size_t whole = count / bucket, rest = count % bucket;
    return whole * (sizeof(T) + packed(bucket)) + (rest == 0 ? 0 : sizeof(T) + packed(rest));
  }

  /// Encodes x[0, count) into `encoded_bytes<T>(count, bucket)` bytes. `position` is the index of x[0] in the whole
  /// vector. Rounding depends only on (seed, call, position), so encoding each bucket separately gives the same bytes
  /// as encoding the vector at once, with or without AVX2.
  template <element T>
    requires is_floating<T>
  static void encode(const T* x, std::size_t count, std::size_t bucket, std::byte* out, std::uint64_t seed,
                     std::uint64_t call, std::uint64_t position, bool by_avx2 = detail::has_avx2()) {
    check_bucket(bucket);
    const detail::position_random random(seed, call);
    while (count > 0) {
      const std::size_t length = std::min(bucket, count);
      encode_bucket(x, length, out, random, position, by_avx2);
      x += length;
      out += sizeof(T) + packed(length);
      position += length;
      count -= length;
    }
  }

  /// Decodes `count` entries: a level becomes level * scale / s. Any bytes are valid input, with any scale.
  template <element T>
    requires is_floating<T>
  static void decode(const std::byte* in, std::size_t count, std::size_t bucket, T* out) {
    check_bucket(bucket);
    while (count > 0) {
      const std::size_t length = std::min(bucket, count);
      decode_bucket(in, length, out);
      in += sizeof(T) + packed(length);
      out += length;
      count -= length;
    }
  }

  // The parts of the code that the device's version (cuda/kernel/qsgd.cuh) shares.
  static constexpr std::size_t per_byte = 8 / Bits;
  static constexpr unsigned nan_code = 1u << (Bits - 1);

  template <class T>
  using real = std::conditional_t<code_of<T> == element_code::float64, double, float>;

  template <class Real>
  using bits_of_real = std::conditional_t<sizeof(Real) == 8, std::uint64_t, std::uint32_t>;

  // Constants, because device code cannot call the functions of std::numeric_limits.
  template <class Real>
  static constexpr Real nan = std::numeric_limits<Real>::quiet_NaN();
  template <class Real>
  static constexpr Real infinity = std::numeric_limits<Real>::infinity();

  SPAR_HOST_DEVICE static constexpr std::size_t packed(std::size_t count) {
    return count / per_byte + static_cast<std::size_t>(count % per_byte != 0);
  }

  /// The entries of a bucket whose scale is below `least_scale` are magnified. Otherwise, s / scale might overflow, or
  /// the scale might be denormal and have lost bits.
  template <class Real>
  static constexpr Real least_scale = static_cast<Real>(std::is_same_v<Real, double> ? 0x1p-500 : 0x1p-60);

  /// Returns the factor that converts the entries of a bucket to levels with 16 fractional bits. `scale` is the scale
  /// of the bucket, and must be at least `least_scale`.
  template <class Real>
  SPAR_HOST_DEVICE static Real factor_of(Real scale) {
    constexpr auto limit = static_cast<Real>(levels << 16);
    const Real factor = limit / scale;
    // Rounds the factor up so that the largest entry reaches the largest level. With a smaller factor, the largest
    // entry would get a lower level once in about 10^5 draws.
    return scale * factor < limit ? __builtin_bit_cast(Real, __builtin_bit_cast(bits_of_real<Real>, factor) + 1)
                                  : factor;
  }

  /// Returns the decoded value of a code. A level of 0 is decoded as 0 even if the scale is infinite.
  template <class Real>
  SPAR_HOST_DEVICE static constexpr Real value_of(unsigned code, Real scale) {
    const int level = static_cast<int>(code) - (code > nan_code ? 1 << Bits : 0);
    const Real value = scale * fraction_of<Real>(level);
    return code == nan_code ? nan<Real> : code == 0 ? Real(0) : value;
  }

  /// Returns level / levels, rounded correctly, by two multiplications: a GPU divides by some ten instructions. The
  /// first product is exact, so a contraction to a fused multiply-add changes nothing.
  template <class Real>
  SPAR_HOST_DEVICE static constexpr Real fraction_of(int level) {
    constexpr unsigned unit = (levels + 1) << 16;
    constexpr Real high = static_cast<Real>(unit / levels) / static_cast<Real>(unit);
    constexpr Real low = (1 - high * static_cast<Real>(levels)) / static_cast<Real>(levels);
    return static_cast<Real>(level) * high + static_cast<Real>(level) * low;
  }

 private:
  static constexpr std::size_t block = detail::qsgd_block;
  static constexpr unsigned mask = (1u << Bits) - 1;

  static constexpr void check_bucket(std::size_t bucket) {
    if (bucket == 0) raise<invalid_argument>({"a QSGD bucket has 0 entries; expected at least 1"});
  }

  template <class T>
  static void encode_bucket(const T* __restrict x, std::size_t count, std::byte* __restrict out,
                            const detail::position_random& random, std::uint64_t position, bool by_avx2) {
    using real_type = real<T>;
    bool has_nan = false;
    const T stored = largest(x, count, has_nan, by_avx2);
    std::memcpy(out, &stored, sizeof(T));
    out += sizeof(T);
    const auto scale = static_cast<real_type>(stored);
    if (scale == 0 && !has_nan) {
      std::memset(out, 0, packed(count));
      return;
    }
    const bool finite = spar::detail::is_finite(scale);
    const bool usual = !has_nan && finite && scale >= least_scale<real_type>;
    // Magnifies the entries of a bucket with a scale below `least_scale`. If the scale is infinite, finite entries
    // become 0.
    const real_type magnify = !finite ? 0 : scale < least_scale<real_type> ? 1 / least_scale<real_type> : 1;
    const real_type factor = factor_of(scale > 0 && finite ? scale * magnify : real_type(1));
    std::array<float, block> scaled;
    std::array<std::uint8_t, block> codes;
    std::array<std::uint16_t, block + 4> bits;
    std::size_t e = 0;
    if (by_avx2 && usual) {
      e = count / block * block;
      encode_blocks_by_avx2(x, e, factor, out, random, position);
    }
    for (; e < count; e += block) {
      const std::size_t length = std::min(block, count - e);
      // Stores the random words early, because loading words as vectors just after storing them is slow.
      random.fill<block + 4>(position + e, bits.data());
      if (usual && length == block) {
        scale_block(x + e, factor, scaled.data());
      } else {
        scaled = {};
        for (std::size_t b = 0; b < length; ++b) {
          const auto value = static_cast<real_type>(x[e + b]);
          if (spar::detail::is_finite(value)) scaled[b] = static_cast<float>(value * magnify * factor);
        }
      }
      detail::round_levels<levels>(scaled.data(), bits.data() + (position + e) % 4, codes.data());
      if (!usual) put_special(x + e, length, codes.data());
      if (length == block)
        pack(codes.data(), block, out + e / per_byte);
      else
        pack(codes.data(), length, out + e / per_byte);
    }
  }

  template <class T>
  [[gnu::always_inline]] inline static void scale_block(const T* __restrict x, real<T> factor,
                                                        float* __restrict scaled) {
    for (std::size_t b = 0; b < block; ++b) scaled[b] = static_cast<float>(static_cast<real<T>>(x[b]) * factor);
  }

#if defined(__x86_64__) && !defined(__CUDACC__)
  template <class Top, class T>
  static Top largest_by_avx2(const T* x, std::size_t count) {
    return detail::qsgd_avx2::largest<Top>(x, count);
  }
  /// Encodes x[0, count), whole blocks of a usual bucket.
  template <class T>
  static void encode_blocks_by_avx2(const T* x, std::size_t count, real<T> factor, std::byte* out,
                                    const detail::position_random& random, std::uint64_t position) {
    if constexpr (code_of<T> == element_code::float32) {
      detail::qsgd_avx2::round<Bits>(x, factor, count, random, position, out);
    } else {
      constexpr std::size_t most = 8 * block;
      std::array<float, most> scaled;
      for (std::size_t e = 0; e < count; e += most) {
        const std::size_t length = std::min(most, count - e);
        for (std::size_t b = 0; b < length; b += block) scale_block(x + e + b, factor, scaled.data() + b);
        detail::qsgd_avx2::round<Bits>(scaled.data(), 1, length, random, position + e, out + e / per_byte);
      }
    }
  }
#else
  template <class Top, class T>
  static Top largest_by_avx2(const T*, std::size_t) {
    return 0;
  }
  template <class T>
  static void encode_blocks_by_avx2(const T*, std::size_t, real<T>, std::byte*, const detail::position_random&,
                                    std::uint64_t) {}
#endif

  /// Returns the largest |x| that is not NaN, and sets `has_nan` if there is a NaN. Compares the bits of |x| as signed
  /// integers, which have the same order as |x|, with NaN ranking highest, because compilers
  /// vectorise a maximum of integers (of 64-bit integers on x86-64 only with SSE4.2 or later).
  template <class T>
  static T largest(const T* __restrict x, std::size_t count, bool& has_nan, bool by_avx2) {
    using bits = std::make_signed_t<magnitude<T>>;
    constexpr auto infinite = std::bit_cast<bits>(static_cast<T>(infinity<real<T>>));
    const std::size_t whole = count / block * block;
    bits top = 0;
    if (by_avx2) {
      top = largest_by_avx2<bits>(x, whole);
    } else {
      bits tops[block] = {};
      for (std::size_t e = 0; e < whole; e += block)
        for (std::size_t b = 0; b < block; ++b) tops[b] = std::max(tops[b], static_cast<bits>(magnitude_of(x[e + b])));
      for (std::size_t b = 0; b < block; ++b) top = std::max(top, tops[b]);
    }
    for (std::size_t e = whole; e < count; ++e) top = std::max(top, static_cast<bits>(magnitude_of(x[e])));
    has_nan = top > infinite;
    if (has_nan) {
      top = 0;
      for (std::size_t e = 0; e < count; ++e)
        if (const auto m = static_cast<bits>(magnitude_of(x[e])); m <= infinite) top = std::max(top, m);
    }
    return std::bit_cast<T>(top);
  }

  /// Overwrites the codes of the entries of `x` that are NaN or infinite.
  template <class T>
  static void put_special(const T* x, std::size_t count, std::uint8_t* codes) {
    for (std::size_t e = 0; e < count; ++e) {
      const auto value = static_cast<real<T>>(x[e]);
      if (spar::detail::is_nan(value))
        codes[e] = static_cast<std::uint8_t>(nan_code);
      else if (!spar::detail::is_finite(value))
        codes[e] = static_cast<std::uint8_t>(value > 0 ? levels : -levels);
    }
  }

  /// Converts a word between the byte order of the machine and little-endian.
  static constexpr std::uint64_t little_endian(std::uint64_t word) {
    return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
  }

  /// Returns a mask of the lowest `bits` bits of each field of `width` bits in a word.
  static constexpr std::uint64_t fields(int bits, int width) {
    std::uint64_t all = 0;
    for (int at = 0; at < 64; at += width) all |= ((std::uint64_t{1} << bits) - 1) << at;
    return all;
  }

  /// Packs the lowest `Bits` bits of each of `block` codes without gaps. The codes from `count` on must be 0.
  [[gnu::always_inline]] inline static void pack(const std::uint8_t* codes, std::size_t count,
                                                 std::byte* __restrict out) {
    if constexpr (Bits == 8) {
      std::memcpy(out, codes, count);
    } else {
      // Packs eight codes at a time: joins neighbouring codes into pairs, pairs into groups of four, and two groups of
      // four into one word.
      std::array<std::byte, block / per_byte> bytes;
      for (std::size_t e = 0; e < block; e += 8) {
        std::uint64_t word;
        std::memcpy(&word, codes + e, sizeof word);
        word = little_endian(word) & fields(Bits, 8);
        word = (word | word >> (8 - Bits)) & fields(2 * Bits, 16);
        word = (word | word >> (16 - 2 * Bits)) & fields(4 * Bits, 32);
        word = little_endian(word | word >> (32 - 4 * Bits));
        std::memcpy(bytes.data() + e / per_byte, &word, 8 / per_byte);
      }
      std::memcpy(out, bytes.data(), packed(count));
    }
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
    if constexpr (Bits == 8) { // no table of 256 values per bucket: it would cost more than it saves
      const bool finite = spar::detail::is_finite(scale);
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

} // namespace spar::inline v0_1::kernel
