// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The storage coded: all bits come back, the bytes are close to what the entries contain, rounding is that of an
// independent reference, and damaged bytes are found or decode to a valid stream. Most encoding and decoding takes
// place between pages that cannot be accessed.
#include "support/extent.hpp"

#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

namespace spar_test {
namespace {

using spar::storage::coded;

template <class T, class Index>
struct entries {
  std::vector<Index> indices;
  std::vector<T> values;
  spar::index_range range;
};

template <class T>
T any_bits(std::mt19937_64& random) {
  const std::uint64_t bits = random();
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
std::uint64_t bits_of(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

/// Where arrays are in guarded memory.
enum class place { first, last };

/// Memory between two pages that cannot be accessed, so that any access before its first array, or beyond its last one,
/// ends the program.
class guarded {
 public:
  guarded() {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = (most + page - 1) / page * page;
    void* const all = mmap(nullptr, page + bytes_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(all) + page;
    if (mprotect(all, page, PROT_NONE) != 0 || mprotect(begin_ + bytes_, page, PROT_NONE) != 0) throw std::bad_alloc();
  }
  /// The first or last `count` elements, which are not initialised; replaces what was returned before.
  template <class T>
  std::span<T> room(std::size_t count, place where) {
    if (count * sizeof(T) > bytes_) throw std::bad_alloc();
    return {reinterpret_cast<T*>(begin_ + (where == place::first ? 0 : bytes_ - count * sizeof(T))), count};
  }
  /// A copy of `from` there.
  template <class T>
  std::span<const T> copy(const std::vector<T>& from, place where) {
    const std::span<T> to = room<T>(from.size(), where);
    if (!from.empty()) std::memcpy(static_cast<void*>(to.data()), from.data(), to.size_bytes());
    return to;
  }

 private:
  static constexpr std::size_t most = 1 << 20;
  std::byte* begin_;
  std::size_t bytes_;
};

template <class Codec, class T, class Index>
std::vector<std::byte> encoded(const Codec& codec, const entries<T, Index>& s, place where = place::last) {
  static guarded indices, values, room;
  const spar::coo_span<T, Index> view{indices.copy(s.indices, where), values.copy(s.values, where)};
  const auto bytes = room.room<std::byte>(codec.template bound<T, Index>(s.range, s.indices.size()), where);
  const std::size_t size = codec.encode(view, s.range, bytes);
  EXPECT_LE(size, bytes.size());
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)};
}

/// Decodes `count` entries, which must be valid. Throws what decode() throws.
template <class Codec, class T, class Index>
entries<T, Index> decoded(const std::vector<std::byte>& bytes, spar::index_range range, std::size_t count,
                          place where = place::last) {
  static guarded message, indices, values;
  const spar::entry_room<T, Index> to{indices.room<Index>(count, where), values.room<T>(count, where)};
  Codec::template decode<T, Index>(message.copy(bytes, where), range, to);
  const entries<T, Index> out{{to.indices.begin(), to.indices.end()}, {to.values.begin(), to.values.end()}, range};
  for (std::size_t e = 0; e < count; ++e) {
    const bool ascends = e == 0 ? out.indices[e] >= range.begin : out.indices[e] > out.indices[e - 1];
    if (!ascends || out.indices[e] >= range.end) throw std::logic_error("decode() accepted invalid indices");
  }
  return out;
}

/// The most bytes of a coded stream of k entries (docs/reference/costs.md). With `fast`, the packed numbers of indices
/// and values begin and end at multiples of 4 bytes.
template <class T, class Index>
std::size_t most_bytes(std::size_t k, bool fast = false) {
  return k == 0 ? 0
                : k * (sizeof(T) + sizeof(Index)) + 2 * ((k + 255) / 256) + 2 + sizeof(T) + sizeof(Index) +
                      (fast ? 4 * 3 : 0);
}

template <class Codec, class T, class Index>
void expect_same(const Codec& codec, const entries<T, Index>& s) {
  for (const place where : {place::first, place::last}) {
    const auto bytes = encoded(codec, s, where);
    ASSERT_LE(bytes.size(), (most_bytes<T, Index>(s.indices.size(), codec.fast)));
    const auto back = decoded<Codec, T, Index>(bytes, s.range, s.indices.size(), where);
    ASSERT_EQ(back.indices, s.indices);
    for (std::size_t e = 0; e < s.values.size(); ++e) ASSERT_EQ(bits_of(back.values[e]), bits_of(s.values[e])) << e;
  }
}

/// Indices of different structure: uniform, runs, strides, clusters, the two ends of the range.
template <class Index>
std::vector<Index> some_indices(int shape, std::size_t count, std::uint64_t begin, std::mt19937_64& random) {
  std::vector<Index> out;
  std::uint64_t next = begin;
  for (std::size_t e = 0; e < count; ++e) {
    std::uint64_t gap = 0;
    if (shape == 1) gap = random() % 3;
    if (shape == 2) gap = random() % 5000;
    if (shape == 3) gap = e % 64 == 0 ? random() % 9000 : 0;
    if (shape == 4) gap = 99;
    if (shape == 5) gap = random() % 50 == 0 ? random() % 1000000 : random() % 4;
    if (shape == 6) gap = std::uint64_t{1} << random() % 20;
    out.push_back(static_cast<Index>(next + gap));
    next += gap + 1;
  }
  return out;
}
constexpr int shapes = 7;

const std::vector<std::size_t> counts{0, 1, 2, 7, 127, 255, 256, 257, 511, 512, 513, 1000, 2049};

template <class Pair>
class coded_types : public testing::Test {};
template <class T, class Index>
struct types {
  using value = T;
  using index = Index;
};
struct pair { // a user's type
  float x, y;
};

} // namespace
} // namespace spar_test

template <>
inline constexpr spar::element_code spar::code_of<spar_test::pair> = static_cast<spar::element_code>(70);

namespace spar_test {
namespace {

using all_types =
    testing::Types<types<float, std::uint32_t>, types<float, std::uint64_t>, types<double, std::uint32_t>,
                   types<double, std::uint64_t>, types<std::int32_t, std::uint32_t>, types<std::int64_t, std::uint64_t>,
                   types<std::uint32_t, std::uint32_t>, types<std::uint64_t, std::uint32_t>,
#ifdef SPAR_HAS_HALF
                   types<spar::half, std::uint32_t>,
#endif
#ifdef SPAR_HAS_BFLOAT16
                   types<spar::bfloat16, std::uint32_t>,
#endif
                   types<pair, std::uint32_t>>;
TYPED_TEST_SUITE(coded_types, all_types);

TYPED_TEST(coded_types, preserves_all_bits) {
  using T = typename TypeParam::value;
  using Index = typename TypeParam::index;
  std::mt19937_64 random(1);
  const std::uint64_t largest = std::numeric_limits<Index>::max();
  for (const std::size_t count : counts) {
    for (int shape = 0; shape < shapes; ++shape) {
      for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{1000}, largest / 2 + 12345}) {
        entries<T, Index> s;
        s.indices = some_indices<Index>(shape, count, begin, random);
        const bool similar = shape % 2 == 0; // or any bits, with NaN and infinities among them
        for (std::size_t e = 0; e < count; ++e) s.values.push_back(any_bits<T>(random));
        if (similar && count > 0) std::fill(s.values.begin(), s.values.end(), s.values[0]);
        const std::uint64_t last = count == 0 ? begin : s.indices.back();
        s.range = {begin, last + random() % 3 + (last == largest ? 0 : 1)};
        if (s.range.end <= last) s.range.end = last + 1;
        SCOPED_TRACE(testing::Message() << count << " entries, shape " << shape << ", from " << begin);
        expect_same(coded<>{}, s);
        expect_same(coded<>{.fast = true}, s);
      }
    }
  }
}

TYPED_TEST(coded_types, takes_hardly_more_than_coordinates_whatever_the_entries_are) {
  using T = typename TypeParam::value;
  using Index = typename TypeParam::index;
  std::mt19937_64 random(2);
  for (const std::size_t count : counts) {
    std::set<Index> chosen;
    while (chosen.size() < count) chosen.insert(any_bits<Index>(random)); // of all indices
    entries<T, Index> s{{chosen.begin(), chosen.end()}, {}, {0, std::uint64_t{1} << (sizeof(Index) == 4 ? 32 : 63)}};
    if (sizeof(Index) == 8)
      s.range.end = count == 0 ? 1 : s.indices.back() == ~Index{} ? ~Index{} : s.indices.back() + 1;
    if (count > 0 && s.indices.back() >= s.range.end) s.indices.back() = static_cast<Index>(s.range.end - 1);
    for (std::size_t e = 0; e < count; ++e) s.values.push_back(any_bits<T>(random));
    expect_same(coded<>{}, s); // compares the bytes with most_bytes()
    if (count == 0 || !std::is_arithmetic_v<T>) continue;
    EXPECT_EQ((coded<>{}.bound<T, Index>(s.range, count)), (most_bytes<T, Index>(count) + 52)); // 52 bytes of room
  }
}

/// The most bytes of k indices over n as gaps (docs/reference/costs.md).
double most_bytes_of_gaps(double n, double k) { return 5 + k / 8 * (std::log2(n / k) + 2.03) + 3 * std::ceil(k / 256); }

/// Bits for each index.
double index_bits(const std::vector<std::uint32_t>& indices) {
  std::vector<std::byte> room(spar::kernel::coded_indices_bound<std::uint32_t>(indices.size()));
  const std::byte* const end =
      spar::kernel::encode_indices<std::uint32_t>(indices, 0, spar::kernel::coding::smallest, room.data());
  const auto k = static_cast<double>(indices.size()), bytes = static_cast<double>(end - room.data());
  if ((room[0] & std::byte{3}) == std::byte{1}) { // gaps, not runs
    EXPECT_LE(bytes, most_bytes_of_gaps(indices.back() + 1.0, k));
  }
  return 8 * bytes / k;
}
/// log2 of the number of sets of k of n indices, for each index.
double uniform_bound(double n, double k) {
  return (std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1)) / std::log(2.0) / k;
}

TEST(coded, takes_four_bytes_for_a_distant_lowest_index) {
  for (const std::uint32_t step : {1U, 97U}) { // a run, gaps
    std::vector<std::uint32_t> near, far;
    for (std::uint32_t e = 0; e < 300; ++e) near.push_back(e * step), far.push_back((1U << 30) + e * step);
    EXPECT_NEAR((index_bits(far) - index_bits(near)) * 300 / 8, 4, 1e-6) << step;
  }
}

TEST(coded, takes_three_percent_more_than_the_entropy_of_uniform_indices) {
  for (const double density : {1e-4, 1e-3, 1e-2, 0.1, 0.5}) {
    std::mt19937_64 random(3);
    std::geometric_distribution<std::uint32_t> gap(density);
    std::vector<std::uint32_t> indices(65536);
    std::uint32_t next = 0;
    for (auto& i : indices) i = next += gap(random), ++next;
    if (density < 0.5) {
      EXPECT_LT(index_bits(indices), 1.03 * uniform_bound(next, 65536)) << density;
    }
    EXPECT_GT(index_bits(indices), 0.98 * uniform_bound(next, 65536)) << density; // else the bound is wrong
  }
}

TEST(coded, takes_half_a_bit_for_an_index_in_runs_of_64) {
  std::mt19937_64 random(4);
  std::vector<std::uint32_t> indices;
  for (std::uint32_t run = 0, next = 0; run < 1024; ++run) {
    next += 1 + static_cast<std::uint32_t>(random() % 12000);
    for (int e = 0; e < 64; ++e) indices.push_back(next++);
  }
  EXPECT_LT(index_bits(indices), 0.5);
}

// Hill climbing over mixtures of gaps, for sets on which the code is worst against the bound for any set of this size.
TEST(coded, never_takes_much_more_than_the_bound_of_uniform_indices) {
  std::mt19937_64 random(5);
  const auto excess_of = [](const std::vector<int>& widths) {
    std::mt19937_64 gaps(6);
    std::vector<std::uint32_t> indices;
    std::uint32_t next = 0;
    for (std::size_t e = 0; e < 16384; ++e) {
      const int width = widths[e % widths.size()];
      next += width == 0 ? 0 : static_cast<std::uint32_t>(gaps() >> (64 - width));
      indices.push_back(next++);
    }
    return index_bits(indices) - uniform_bound(next, 16384);
  };
  double worst = -1e9;
  for (int start = 0; start < 6; ++start) {
    std::vector<int> widths(std::size_t{1} << random() % 10);
    for (int& w : widths) w = static_cast<int>(random() % 17);
    double excess = excess_of(widths);
    for (int step = 0; step < 12; ++step) {
      auto changed = widths;
      changed[random() % changed.size()] = static_cast<int>(random() % 17);
      if (random() % 2 == 0) changed.push_back(changed[random() % changed.size()]);
      const double now = excess_of(changed);
      if (now > excess) excess = now, widths = changed;
    }
    worst = std::max(worst, excess);
  }
  for (int width = 0; width < 17; ++width) worst = std::max(worst, excess_of({width}));
  EXPECT_LT(worst, 0.65);
  RecordProperty("worst", std::to_string(worst));
}

/// The exponents of the smallest and of the largest normal numbers, and the bits of a mantissa.
template <class T>
struct float_format {
  static constexpr int least = std::numeric_limits<T>::min_exponent - 1,
                       most = std::numeric_limits<T>::max_exponent - 1;
  static constexpr int digits = std::numeric_limits<T>::digits - 1;
};
#ifdef SPAR_HAS_HALF
template <>
struct float_format<spar::half> { // not all standard libraries have its limits
  static constexpr int least = -14, most = 15, digits = 10;
};
#endif

/// Rounds to `Mantissa` bits by the processor's rounding of doubles.
template <unsigned Mantissa, class T>
T rounded(T value) {
  using format = float_format<T>;
  const auto x = static_cast<double>(value);
  if (x == 0 || !std::isfinite(x) || Mantissa >= format::digits) return value;
  // Subnormal numbers have the spacing of the smallest normal one.
  const int exponent = std::max(std::ilogb(x), format::least);
  const double spacing = std::ldexp(1.0, exponent - static_cast<int>(Mantissa));
  const double nearest = std::nearbyint(x / spacing) * spacing;
  const double largest = std::ldexp(2 - std::ldexp(1.0, -static_cast<int>(Mantissa)), format::most);
  return static_cast<T>(std::clamp(nearest, -largest, largest));
}

template <unsigned Mantissa, class T>
void expect_rounded() {
  using format = float_format<T>;
  std::mt19937_64 random(7);
  entries<T, std::uint32_t> s;
  for (std::uint32_t i = 0; i < 20000; ++i) {
    s.indices.push_back(i);
    s.values.push_back(any_bits<T>(random));
  }
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double largest = std::ldexp(2 - std::ldexp(1.0, -format::digits), format::most);
  const double half_a_spacing = std::ldexp(1.0, -static_cast<int>(Mantissa) - 1);
  const double special[] = {0.0,
                            -0.0,
                            inf,
                            -inf,
                            largest,
                            -largest,
                            std::ldexp(1.0, format::least),
                            std::ldexp(1.0, format::least - format::digits),
                            std::numeric_limits<double>::quiet_NaN(),
                            1 + half_a_spacing, // a tie, as the next one
                            1 + 3 * half_a_spacing,
                            1 + half_a_spacing / 2,
                            1 + half_a_spacing + std::ldexp(1.0, -format::digits),
                            -1 - half_a_spacing};
  std::transform(std::begin(special), std::end(special), s.values.begin(), [](double x) { return static_cast<T>(x); });
  const std::uint64_t nan = bits_of(static_cast<T>(inf)) + 1; // a NaN whose kept bits are those of an infinity
  std::memcpy(&s.values[std::size(special)], &nan, sizeof(T));
  s.range = {0, 20000};
  for (const bool fast : {false, true}) {
    const auto back = decoded<coded<Mantissa>, T, std::uint32_t>(encoded(coded<Mantissa>{.fast = fast}, s), s.range,
                                                                 s.indices.size());
    for (std::size_t e = 0; e < s.values.size(); ++e) {
      const auto exact = static_cast<double>(s.values[e]), got = static_cast<double>(back.values[e]);
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(got)) << e;
        ASSERT_EQ(std::signbit(got), std::signbit(exact)) << e;
      } else {
        ASSERT_EQ(bits_of(back.values[e]), bits_of(rounded<Mantissa>(s.values[e]))) << exact;
      }
    }
    expect_same(coded<Mantissa>{.fast = fast}, back); // rounding again changes nothing
  }
}

TEST(coded, rounds_to_nearest_and_ties_to_even) {
  expect_rounded<1, float>();
  expect_rounded<7, float>();
  expect_rounded<10, float>();
  expect_rounded<22, float>();
  static_assert(coded<>::exact && !coded<7>::exact);
}
TEST(coded, rounds_doubles_to_nearest_and_ties_to_even) {
  expect_rounded<1, double>();
  expect_rounded<7, double>();
  expect_rounded<30, double>();
  expect_rounded<51, double>();
}
#ifdef SPAR_HAS_HALF
TEST(coded, rounds_halves_to_nearest_and_ties_to_even) {
  expect_rounded<1, spar::half>();
  expect_rounded<7, spar::half>();
  expect_rounded<9, spar::half>();
  expect_rounded<10, spar::half>(); // all bits
}
#endif

TEST(coded, takes_hardly_more_bits_for_a_value_than_are_unknown) {
  std::mt19937_64 random(8);
  std::exponential_distribution<double> above(3);
  std::vector<float> values(65536);
  for (float& v : values) v = static_cast<float>((random() % 2 == 0 ? 1 : -1) * 0.01 * std::exp(above(random)));
  std::vector<std::byte> room(spar::kernel::coded_values_bound<float>(values.size()));
  const auto bits = [&](auto encode) { return 8.0 * static_cast<double>(encode(room.data()) - room.data()) / 65536; };
  const std::span<const float> v(values);
  using spar::kernel::coding;
  EXPECT_LT(bits([&](std::byte* out) { return spar::kernel::encode_values<0>(v, coding::smallest, out); }), 24.7);
  EXPECT_LT(bits([&](std::byte* out) { return spar::kernel::encode_values<16>(v, coding::smallest, out); }), 8.8);
  for (float& value : values)
    value = std::ldexp(static_cast<float>(random() >> 40), -24); // uniform: most are close to the largest
  EXPECT_LT(bits([&](std::byte* out) { return spar::kernel::encode_values<0>(v, coding::smallest, out); }), 26.6);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  EXPECT_LT(bits([&](std::byte* out) { return spar::kernel::encode_values<0>(v, coding::smallest, out); }), 27.4);
  EXPECT_LT(bits([&](std::byte* out) { return spar::kernel::encode_values<16>(v, coding::smallest, out); }), 11.4);
}

/// Damages bytes, and shortens and lengthens the bytes: decode() throws or gives valid indices, and never reads
/// beyond the bytes (the address sanitizer would stop).
template <class T, class Index>
void damage_all(int shape, std::size_t count, bool fast) {
  std::mt19937_64 random(9);
  entries<T, Index> s;
  s.indices = some_indices<Index>(shape, count, 500, random);
  for (std::size_t e = 0; e < count; ++e) s.values.push_back(static_cast<T>(random() % 1000));
  s.range = {500, std::uint64_t{s.indices.back()} + 1};
  const auto bytes = encoded(coded<>{.fast = fast}, s);
  const auto is_rejected = [&](const std::vector<std::byte>& damaged, std::size_t expected, spar::index_range range) {
    try {
      (void)decoded<coded<>, T, Index>(damaged, range, expected);
      return false;
    } catch (const spar::corrupt_message& e) {
      EXPECT_NE(std::string(e.what()).find(std::to_string(damaged.size()) + " bytes"), std::string::npos) << e.what();
      return true;
    }
  };
  const std::size_t step = runs_all_cases() ? 1 : 5; // damages every byte, or each fifth
  for (std::size_t e = 0; e < bytes.size(); e += step) {
    for (const unsigned flip : {1U, 0x80U, 0xFFU}) {
      auto damaged = bytes;
      damaged[e] ^= static_cast<std::byte>(flip);
      (void)is_rejected(damaged, count, s.range); // many damages are other valid streams
    }
    auto shorter = bytes;
    shorter.resize(e);
    EXPECT_TRUE(is_rejected(shorter, count, s.range)) << e << " of " << bytes.size() << " bytes";
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_TRUE(is_rejected(longer, count, s.range));
  EXPECT_TRUE(is_rejected(bytes, count, {500, s.indices.back()}));
  EXPECT_TRUE(is_rejected(bytes, count, {501, std::uint64_t{s.indices.back()} + 1})); // each index is one too large
  EXPECT_TRUE(is_rejected({}, count, s.range));
}

TEST(coded, finds_damaged_bytes) {
  for (int shape = 0; shape < shapes; ++shape) {
    for (const bool fast : {false, true}) {
      damage_all<float, std::uint32_t>(shape, 300, fast);
      damage_all<double, std::uint64_t>(shape, 257, fast);
      damage_all<std::int32_t, std::uint32_t>(shape, 3, fast);
    }
  }
}

/// Each value of each byte of the headers: the code of the indices, the distance of the first one, the number of runs,
/// the base of the values, and the first byte of the first blocks.
template <class T, class Index>
void damage_headers(int shape) {
  std::mt19937_64 random(11);
  entries<T, Index> s;
  s.indices = some_indices<Index>(shape, 300, 500, random);
  for (std::size_t e = 0; e < 300; ++e) s.values.push_back(static_cast<T>(random() % 1000));
  s.range = {s.indices.front() - 77U, std::uint64_t{s.indices.back()} + 1};
  const auto bytes = encoded(coded<>{}, s);
  std::vector<std::byte> of_indices(spar::kernel::coded_indices_bound<Index>(300));
  const auto values_at = static_cast<std::size_t>(
      spar::kernel::encode_indices<Index>(s.indices, s.range.begin, spar::kernel::coding::smallest, of_indices.data()) -
      of_indices.data());
  const auto head = static_cast<unsigned>(bytes[0]);
  const bool runs = (head & 3) == 2;
  ASSERT_EQ(runs, shape == 3);
  const auto is_accepted = [&](std::size_t at, unsigned value) {
    auto damaged = bytes;
    damaged[at] = static_cast<std::byte>(value);
    try {
      (void)decoded<coded<>, T, Index>(damaged, s.range, 300);
      return true;
    } catch (const spar::corrupt_message&) {
      return false;
    }
  };
  const std::size_t runs_at = 1 + (head >> 2), first_block = runs ? runs_at + sizeof(Index) : runs_at,
                    base = values_at + 1, block_of_values = base + sizeof(T);
  ASSERT_EQ(runs_at, 2U);
  for (unsigned value = 0; value < 256; ++value) {
    const bool every_byte = runs_all_cases() || value % 15 == 0;
    if (value != head && value != (head ^ 3)) {
      EXPECT_FALSE(is_accepted(0, value)) << value; // the code of the indices
    }
    EXPECT_EQ(is_accepted(1, value), value <= static_cast<unsigned>(bytes[1])) << value; // the distance
    for (std::size_t at = runs_at; every_byte && at < first_block; ++at) {               // the number of runs
      EXPECT_EQ(is_accepted(at, value), value == static_cast<unsigned>(bytes[at])) << at << ", " << value;
    }
    EXPECT_EQ(is_accepted(values_at, value), value < 2) << value; // whether values count from the largest one
    for (std::size_t at = base; every_byte && at < block_of_values; ++at)
      EXPECT_TRUE(is_accepted(at, value)); // any base is valid
    for (const std::size_t at : {first_block, block_of_values}) {
      const unsigned bits = value & 0x7F, most = at == first_block ? 8 * sizeof(Index) : 8 * sizeof(T);
      const bool accepted = is_accepted(at, value);
      if (bits > most || (bits == most && value != bits)) {
        EXPECT_FALSE(accepted) << at << ", " << value;
      }
    }
  }
}

TEST(coded, finds_damaged_headers) {
  for (const int shape : {2, 3}) { // gaps, runs
    damage_headers<float, std::uint32_t>(shape);
    damage_headers<double, std::uint64_t>(shape);
    damage_headers<std::int32_t, std::uint32_t>(shape);
  }
}

/// A stream of which indices and values change their distribution every few entries, or never.
template <class T, class Index>
entries<T, Index> any_stream(std::mt19937_64& random) {
  const std::size_t count = random() % 8 == 0 ? 250 + random() % 600 : random() % 40;
  const std::uint64_t change = random() % 3 == 0 ? 1 : 1 + random() % 300;
  const std::uint64_t widest = random() % (sizeof(Index) == 4 ? 22 : 50);
  entries<T, Index> s{{}, {}, {random() % 1000, 0}};
  std::uint64_t next = s.range.begin, mask = 0;
  T value{};
  int kind = 0;
  for (std::size_t e = 0; e < count; ++e) {
    if (e % change == 0) {
      mask = (std::uint64_t{1} << random() % (widest + 1)) - 1;
      kind = static_cast<int>(random() % 5);
    }
    next += random() & mask;
    s.indices.push_back(static_cast<Index>(next++));
    if (kind == 1) value = any_bits<T>(random);
    if (kind == 2) value = static_cast<T>(random() % 2000);
    if (kind == 3) value = static_cast<T>(1 / (1 + static_cast<double>(random() % 4096)));
    if (kind == 4) value = random() % 2 == 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest();
    s.values.push_back(value);
  }
  s.range.end = next + random() % 2;
  return s;
}

template <class T, class Index>
void expect_any_same(std::mt19937_64& random) {
  const auto s = any_stream<T, Index>(random);
  SCOPED_TRACE(testing::Message() << s.indices.size() << " entries");
  expect_same(coded<>{.fast = random() % 4 == 0}, s);
  if constexpr (spar::is_floating<T>) {
    const coded<7> rounding{.fast = random() % 4 == 0};
    const auto once = decoded<coded<7>, T, Index>(encoded(rounding, s), s.range, s.indices.size());
    ASSERT_EQ(once.indices, s.indices);
    expect_same(rounding, once);
  }
}

TEST(coded, preserves_a_million_streams) {
  const int streams = runs_all_cases() ? 1'000'000 : 1'000;
  std::mt19937_64 random(12);
  for (int i = 0; i < streams && !testing::Test::HasFatalFailure(); ++i) {
    SCOPED_TRACE(i);
    if (i % 4 == 0) expect_any_same<float, std::uint32_t>(random);
    if (i % 4 == 1) expect_any_same<double, std::uint64_t>(random);
    if (i % 4 == 2) expect_any_same<std::int32_t, std::uint64_t>(random);
    if (i % 4 == 3) expect_any_same<std::uint64_t, std::uint32_t>(random);
  }
}

TEST(coded, turns_dense_where_a_bit_for_each_index_is_more_than_dense_values) {
  static_assert(coded<>::delta<float, std::uint32_t>(3200) == 3100);
  static_assert(coded<>::delta<double, std::uint32_t>(6400) == 6300);
  for (const double density : {0.5, 0.9, 0.96}) {
    std::mt19937_64 random(10);
    entries<float, std::uint32_t> s{{}, {}, {0, 65536}};
    for (std::uint32_t i = 0; i < 65536; ++i) {
      if (static_cast<double>(random() >> 11) * 0x1p-53 >= density) continue;
      s.indices.push_back(i);
      s.values.push_back(static_cast<float>(static_cast<double>(random()) / 1e9));
    }
    EXPECT_LT(encoded(coded<>{}, s).size(), 4 * 65536U) << density;
  }
}

} // namespace
} // namespace spar_test
