// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The stochastic rounding of QSGD.
#pragma once

#include <spar/core/compiler.hpp>
#include <spar/core/util/splitmix.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#else
#include <cmath>
#endif

namespace spar::inline v0_1::kernel::detail {

using spar::detail::splitmix_finalize;
using spar::detail::splitmix_step;

/// Generates 16 uniform random bits for each position of a vector, as a pure function of (seed, call, position). The
/// generator is wyrand (Wang Yi, wyhash): one 64-bit multiplication yields the bits of four positions.
class position_random {
 public:
  constexpr position_random(std::uint64_t seed, std::uint64_t call)
      : key_(splitmix_finalize(splitmix_finalize(seed + splitmix_step) + call * splitmix_step)) {}

  /// The random bits of the positions [4 * four, 4 * four + 4), 16 bits each, those of the first position lowest.
  SPAR_HOST_DEVICE constexpr std::uint64_t of_four(std::uint64_t four) const { return word_of(state_of(four)); }
  SPAR_HOST_DEVICE constexpr std::uint64_t state_of(std::uint64_t four) const { return key_ + four * step; }

  /// Writes the random bits of `Count` positions, 16 bits each, to `out`. The first position is `position`, rounded
  /// down to a multiple of four. `Count` must be a multiple of four.
  template <std::size_t Count>
  [[gnu::always_inline]] inline void fill(std::uint64_t position, std::uint16_t* __restrict out) const {
    std::uint64_t state = state_of(position / 4);
    for (std::size_t e = 0; e < Count; e += 4, state += step) {
      const std::uint64_t four = word_of(state);
      if constexpr (std::endian::native == std::endian::little) {
        std::memcpy(out + e, &four, sizeof four);
      } else {
        for (std::size_t b = 0; b < 4; ++b) out[e + b] = static_cast<std::uint16_t>(four >> (b * 16));
      }
    }
  }

  static constexpr std::uint64_t step = 0xA0761D6478BD642FU, factor = 0xE7037ED1A0B428DBU;
  __extension__ using wide = unsigned __int128;

 private:
  SPAR_HOST_DEVICE static constexpr std::uint64_t word_of(std::uint64_t state) {
    const wide product = static_cast<wide>(state) * (state ^ factor);
    return static_cast<std::uint64_t>(product ^ (product >> 64));
  }
  std::uint64_t key_;
};

/// The number of entries that `encode_bucket` rounds and packs at a time.
inline constexpr std::size_t qsgd_block = 64;

/// Rounds `qsgd_block` fixed-point numbers with 16 fractional bits to integer levels: adds to each number its 16 random
/// bits, and drops the fraction. Clamps each level to [-Most, Most], because a rounding error may make a number exceed
/// the largest level.
template <int Most>
[[gnu::always_inline]] inline void round_levels(const float* __restrict scaled, const std::uint16_t* __restrict random,
                                                std::uint8_t* __restrict codes) {
#if defined(__x86_64__)
  const auto four = [&](std::size_t e, __m128i bits) {
    return _mm_srai_epi32(_mm_add_epi32(_mm_cvtps_epi32(_mm_loadu_ps(scaled + e)), bits), 16);
  };
  const auto eight = [&](std::size_t e) {
    __m128i bits;
    std::memcpy(&bits, random + e, sizeof bits);
    const __m128i low = four(e, _mm_unpacklo_epi16(bits, _mm_setzero_si128()));
    const __m128i high = four(e + 4, _mm_unpackhi_epi16(bits, _mm_setzero_si128()));
    return _mm_max_epi16(_mm_min_epi16(_mm_packs_epi32(low, high), _mm_set1_epi16(Most)), _mm_set1_epi16(-Most));
  };
  for (std::size_t e = 0; e < qsgd_block; e += 16) {
    const __m128i sixteen = _mm_packs_epi16(eight(e), eight(e + 8));
    std::memcpy(codes + e, &sixteen, sizeof sixteen);
  }
#else
  for (std::size_t e = 0; e < qsgd_block; ++e) {
    const std::int32_t level = (static_cast<std::int32_t>(std::nearbyint(scaled[e])) + random[e]) >> 16;
    codes[e] = static_cast<std::uint8_t>(level < -Most ? -Most : level > Most ? Most : level);
  }
#endif
}

#if defined(__x86_64__) && !defined(__CUDACC__) // the front end of nvcc fails

/// Rounds floats to levels by AVX2, 32 at a time.
struct qsgd_avx2 {
  using longs [[gnu::vector_size(32)]] = unsigned long long;
  using integers [[gnu::vector_size(32)]] = int;
  using shorts [[gnu::vector_size(32)]] = short;
  using bytes [[gnu::vector_size(32)]] = signed char;
  using floats [[gnu::vector_size(32)]] = float;

  /// As `round_levels`, of x[0, count) * `factor`, where `count` is a multiple of 32. The first value has the position
  /// `position`.
  template <int Most>
  static void round(const float* x, float factor, std::size_t count, const position_random& random,
                    std::uint64_t position, std::uint8_t* codes) {
    if (position % 4 == 0)
      round_from<Most, true>(x, factor, count, random, position, codes);
    else
      round_from<Most, false>(x, factor, count, random, position, codes);
  }

 private:
  template <int Most, bool Whole> // whole: position % 4 == 0
  [[gnu::target("avx2"), gnu::noinline]] static void
  round_from(const float* __restrict x, float factor, std::size_t count, const position_random& random,
             std::uint64_t position, std::uint8_t* __restrict codes) {
    constexpr auto step = position_random::step;
    const std::uint64_t first = random.state_of(position / 4);
    longs state{first, first + step, first + 2 * step, first + 3 * step};
    const auto unused = static_cast<int>(position % 4 * 16); // random bits of positions before the first value
    longs words = words_of(state);
    for (std::size_t e = 0; e < count; e += 32) {
      const longs second = words_of(state += 4 * step), third = words_of(state += 4 * step);
      const longs low = Whole ? words : words >> unused | joined(words, second) << (64 - unused);
      const longs high = Whole ? second : second >> unused | joined(second, third) << (64 - unused);
      words = third;
      const shorts a = sixteen(x + e, factor, low), b = sixteen(x + e + 16, factor, high);
      auto levels = __builtin_bit_cast(
          bytes, __builtin_shufflevector(__builtin_bit_cast(integers, __builtin_ia32_packsswb256(a, b)), integers{}, 0,
                                         4, 1, 5, 2, 6, 3, 7));
      constexpr auto most = static_cast<signed char>(Most), least = static_cast<signed char>(-Most);
      levels = levels < most ? levels : bytes{} + most;
      levels = levels > least ? levels : bytes{} + least;
      std::memcpy(codes + e, &levels, sizeof levels);
    }
  }
  /// `position_random::word_of` of four states, with products of 32 bits.
  [[gnu::target("avx2"), gnu::always_inline]] static longs words_of(longs state) {
    const longs other = state ^ position_random::factor, state2 = state >> 32, other2 = other >> 32;
    const longs lowest = product(state, other);
    const longs middle = product(state2, other) + (lowest >> 32);
    const longs middle2 = product(state, other2) + (middle & 0xffffffff);
    const longs high = product(state2, other2) + (middle >> 32) + (middle2 >> 32);
    return high ^ ((lowest & 0xffffffff) | middle2 << 32);
  }
  [[gnu::target("avx2"), gnu::always_inline]] static longs product(longs a, longs b) {
    return __builtin_bit_cast(
        longs, __builtin_ia32_pmuludq256(__builtin_bit_cast(integers, a), __builtin_bit_cast(integers, b)));
  }
  /// The last three words of `a` and the first of `b`.
  [[gnu::target("avx2"), gnu::always_inline]] static longs joined(longs a, longs b) {
    return __builtin_shufflevector(a, b, 1, 2, 3, 4);
  }
  /// The levels of 16 values, of which the vector has the values 0 to 3, 8 to 11, 4 to 7 and 12 to 15.
  [[gnu::target("avx2"), gnu::always_inline]] static shorts sixteen(const float* x, float factor, longs words) {
    using eight [[gnu::vector_size(16)]] = unsigned short;
    const longs none{};
    const auto low = __builtin_bit_cast(eight, __builtin_shufflevector(words, none, 0, 1));
    const auto high = __builtin_bit_cast(eight, __builtin_shufflevector(words, none, 2, 3));
    floats a, b;
    std::memcpy(&a, x, sizeof a), std::memcpy(&b, x + 8, sizeof b);
    return __builtin_ia32_packssdw256(
        (__builtin_ia32_cvtps2dq256(a * factor) + __builtin_convertvector(low, integers)) >> 16,
        (__builtin_ia32_cvtps2dq256(b * factor) + __builtin_convertvector(high, integers)) >> 16);
  }
};

#endif

} // namespace spar::inline v0_1::kernel::detail
