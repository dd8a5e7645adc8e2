// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The stochastic rounding of QSGD.
#pragma once

#include <spar/core/compiler.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/storage/kernel/bits.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if !defined(__x86_64__)
#include <cmath>
#endif

namespace spar::inline v0_1::kernel::detail {

using spar::detail::splitmix_finalize;
using spar::detail::splitmix_step;

/// Generates 16 uniform random bits for each position of a vector, as a pure function of (seed, call, position). The
/// generator is wyrand (Wang Yi, wyhash): one 64-bit multiplication yields the bits of four positions.
class position_random {
 public:
  SPAR_HOST_DEVICE constexpr position_random(std::uint64_t seed, std::uint64_t call)
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
#if defined(__x86_64__) // by SSE2, without the intrinsics, whose headers compile slowly
  using floats [[gnu::vector_size(16)]] = float;
  using integers [[gnu::vector_size(16)]] = int;
  using shorts [[gnu::vector_size(16)]] = short;
  const auto four = [&](std::size_t e, shorts bits) {
    floats values;
    std::memcpy(&values, scaled + e, sizeof values);
    return (__builtin_ia32_cvtps2dq(values) + reinterpret_cast<integers>(bits)) >> 16;
  };
  const auto eight = [&](std::size_t e) {
    shorts bits;
    std::memcpy(&bits, random + e, sizeof bits);
    const integers low = four(e, __builtin_shufflevector(bits, shorts{}, 0, 8, 1, 9, 2, 10, 3, 11));
    const integers high = four(e + 4, __builtin_shufflevector(bits, shorts{}, 4, 12, 5, 13, 6, 14, 7, 15));
    const shorts levels = __builtin_ia32_packssdw128(low, high), most = shorts{} + static_cast<short>(Most);
    const shorts less = levels < most ? levels : most;
    return less > -most ? less : -most;
  };
  for (std::size_t e = 0; e < qsgd_block; e += 16) {
    const auto sixteen = __builtin_ia32_packsswb128(eight(e), eight(e + 8));
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

/// Finds the largest magnitude, and rounds floats to levels, by AVX2.
struct qsgd_avx2 {
  using longs [[gnu::vector_size(32)]] = unsigned long long;
  using integers [[gnu::vector_size(32)]] = int;
  using shorts [[gnu::vector_size(32)]] = short;
  using bytes [[gnu::vector_size(32)]] = signed char;
  using floats [[gnu::vector_size(32)]] = float;

  /// As `round_levels`, of x[0, count) * `factor`, where `count` is a multiple of 32. The first value has the position
  /// `position`.
  template <int Bits>
  static void round(const float* x, float factor, std::size_t count, const position_random& random,
                    std::uint64_t position, std::byte* out) {
    if (position % 4 == 0)
      round_from<Bits, true>(x, factor, count, random, position, out);
    else
      round_from<Bits, false>(x, factor, count, random, position, out);
  }
  /// The largest of the bits of |x[i]| as signed integers of type `Bits`, for a number of bytes that is a multiple of
  /// 128. Four independent vectors, because each maximum waits for the one before.
  template <class Bits, class T>
  [[gnu::target("avx2"), gnu::noinline]] static Bits largest(const T* x, std::size_t count) {
    using lanes [[gnu::vector_size(32)]] = Bits;
    constexpr std::size_t one = 32 / sizeof(Bits);
    lanes a{}, b{}, c{}, d{};
    for (const T* const end = x + count; x != end; x += 4 * one) {
      a = larger(a, magnitude<lanes>(x)), b = larger(b, magnitude<lanes>(x + one));
      c = larger(c, magnitude<lanes>(x + 2 * one)), d = larger(d, magnitude<lanes>(x + 3 * one));
    }
    const lanes top = larger(larger(a, b), larger(c, d));
    Bits most = 0;
    for (std::size_t l = 0; l < one; ++l) most = top[l] > most ? top[l] : most;
    return most;
  }

 private:
  template <class V>
  [[gnu::target("avx2"), gnu::always_inline]] static V larger(V a, V b) {
    return a > b ? a : b;
  }
  template <class V, class T>
  [[gnu::target("avx2"), gnu::always_inline]] static V magnitude(const T* x) {
    V bits;
    std::memcpy(&bits, x, sizeof bits);
    return bits & std::numeric_limits<std::remove_reference_t<decltype(bits[0])>>::max();
  }
  template <int Bits, bool Whole> // whole: position % 4 == 0
  [[gnu::target("avx2"), gnu::noinline]] static void round_from(const float* __restrict x, float factor,
                                                                std::size_t count, const position_random& random,
                                                                std::uint64_t position, std::byte* __restrict out) {
    constexpr auto step = position_random::step;
    const std::uint64_t first = random.state_of(position / 4);
    longs state{first, first + 2 * step, first + step, first + 3 * step}; // the order that `sixteen` needs
    const auto unused = static_cast<int>(position % 4 * 16); // random bits of positions before the first value
    // The compiler makes an instruction for the maximum of two variables only.
    const bytes most = bytes{} + opaque(static_cast<signed char>((1 << (Bits - 1)) - 1)), least = -most;
    longs words = words_of(state);
    for (std::size_t e = 0; e < count; e += 32, out += 4 * Bits) {
      const longs second = words_of(state += 4 * step), third = words_of(state += 4 * step);
      const longs low = Whole ? words : words >> unused | joined(words, second) << (64 - unused);
      const longs high = Whole ? second : second >> unused | joined(second, third) << (64 - unused);
      words = third;
      const shorts a = sixteen(x + e, factor, low), b = sixteen(x + e + 16, factor, high);
      auto levels = __builtin_bit_cast(
          bytes, __builtin_shufflevector(__builtin_bit_cast(integers, __builtin_ia32_packsswb256(a, b)), integers{}, 0,
                                         4, 1, 5, 2, 6, 3, 7));
      levels = larger(levels, least);
      if constexpr (Bits != 8) levels = packed<Bits>(levels < most ? levels : most);
      std::memcpy(out, &levels, 4 * Bits);
    }
  }
  /// The lowest bits of 32 levels, `Bits` of each, without gaps.
  template <int Bits>
  [[gnu::target("avx2"), gnu::always_inline]] static bytes packed(bytes levels) {
    using chars [[gnu::vector_size(32)]] = char;
    constexpr short two = 1 | 1 << (8 + Bits); // the factors of two levels
    shorts codes =
        __builtin_ia32_pmaddubsw256(__builtin_bit_cast(chars, levels & static_cast<signed char>((1 << Bits) - 1)),
                                    __builtin_bit_cast(chars, shorts{} + two));
    if constexpr (Bits == 2) { // four levels are in 32 bits, of which eight are used
      const integers four = __builtin_ia32_pmaddwd256(codes, __builtin_bit_cast(shorts, integers{} + (1 | 16 << 16)));
      codes = __builtin_ia32_packssdw256(four, four);
    }
    const auto all = __builtin_bit_cast(integers, __builtin_ia32_packuswb256(codes, codes));
    constexpr int next = Bits == 4 ? 1 : 4; // after 32 bits of each half
    return __builtin_bit_cast(bytes, __builtin_shufflevector(all, all, 0, next, 4, 5, 0, 1, 4, 5));
  }
  /// `position_random::word_of` of four states, with products of 32 bits.
  [[gnu::target("avx2"), gnu::always_inline]] static longs words_of(longs state) {
    const longs other = state ^ position_random::factor, state2 = state >> 32, other2 = other >> 32;
    const longs lowest = product(state, other);
    const longs middle = product(state2, other) + (lowest >> 32);
    const longs middle2 = product(state, other2) + (middle & 0xffffffff);
    const longs high = product(state2, other2) + (middle >> 32) + (middle2 >> 32);
    const auto low = __builtin_shufflevector(__builtin_bit_cast(integers, lowest),
                                             __builtin_bit_cast(integers, middle2), 0, 8, 2, 10, 4, 12, 6, 14);
    return high ^ __builtin_bit_cast(longs, low);
  }
  [[gnu::target("avx2"), gnu::always_inline]] static longs product(longs a, longs b) {
    return __builtin_bit_cast(
        longs, __builtin_ia32_pmuludq256(__builtin_bit_cast(integers, a), __builtin_bit_cast(integers, b)));
  }
  /// The last three words of `a` and the first of `b`, all in the order 0, 2, 1, 3.
  [[gnu::target("avx2"), gnu::always_inline]] static longs joined(longs a, longs b) {
    return __builtin_shufflevector(a, b, 2, 3, 1, 4);
  }
  /// The levels of 16 values, of which the vector has the values 0 to 3, 8 to 11, 4 to 7 and 12 to 15, by the random
  /// words 0, 2, 1 and 3.
  [[gnu::target("avx2"), gnu::always_inline]] static shorts sixteen(const float* x, float factor, longs words) {
    const shorts bits = __builtin_bit_cast(shorts, words), none{};
    const auto low = __builtin_shufflevector(bits, none, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
    const auto high = __builtin_shufflevector(bits, none, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31);
    floats a, b;
    std::memcpy(&a, x, sizeof a), std::memcpy(&b, x + 8, sizeof b);
    return __builtin_ia32_packssdw256(
        (__builtin_ia32_cvtps2dq256(a * factor) + __builtin_bit_cast(integers, low)) >> 16,
        (__builtin_ia32_cvtps2dq256(b * factor) + __builtin_bit_cast(integers, high)) >> 16);
  }
};

#endif

} // namespace spar::inline v0_1::kernel::detail
