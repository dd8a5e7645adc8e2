// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// zfp of fields: the bytes of libzfp, called on its own; what each mode promises; and the schedules that keep pieces
// whole, against exact sums.
#include "../support/extent.hpp"
#include "../support/ranks.hpp"

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/compressed/two_shot.hpp>
#include <spar/core/error.hpp>
#include <spar/storage/named_codec.hpp>
#include <spar/storage/zfp_field.hpp>
#include <spar/system/collectives.hpp>
#include <spar/tolerance.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>
#include <zfp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using storage = spar::storage::zfp_field;
using shape = std::array<std::size_t, 4>;

constexpr shape shapes[] = {{1},     {3},       {4},       {1000},       {1, 1},      {7, 5},
                            {64, 9}, {5, 6, 7}, {4, 4, 4}, {2, 3, 4, 5}, {8, 4, 4, 9}};

std::size_t length(const shape& of) {
  std::size_t n = 1;
  for (const std::size_t extent : of) n *= extent == 0 ? 1 : extent;
  return n;
}

template <class T>
std::vector<T> smooth(std::size_t n, std::uint64_t seed) {
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = static_cast<T>(std::sin(0.05 * static_cast<double>(i) + static_cast<double>(seed)));
  return x;
}
template <class T>
std::vector<T> noise(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> x(n);
  for (T& each : x) each = static_cast<T>(std::ldexp(static_cast<double>(random() >> 11), -52) - 1);
  return x;
}
/// Values of any bits: NaN of each kind, infinities, zeros of both signs, subnormal numbers.
template <class T>
std::vector<T> any_bits(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> x(n);
  for (T& each : x) {
    const std::uint64_t bits = random();
    std::memcpy(&each, &bits, sizeof(T));
  }
  using limits = std::numeric_limits<T>;
  const T special[] = {-T{0}, limits::infinity(), -limits::infinity(), limits::quiet_NaN(), limits::denorm_min()};
  std::copy_n(special, std::min(n, std::size(special)), x.begin());
  return x;
}

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

template <class T>
std::vector<std::byte> encoded(const storage& codec, const std::vector<T>& x) {
  std::vector<std::byte> bytes(codec.template encoded_bytes<T>(x.size()));
  bytes.resize(codec.encode(std::span<const T>(x), std::span(bytes), {}));
  return bytes;
}
template <class T>
std::vector<T> decoded(const storage& codec, const std::vector<std::byte>& bytes, std::size_t n) {
  std::vector<T> x(n);
  codec.decode(std::span<const std::byte>(bytes), std::span<T>(x));
  return x;
}

/// What libzfp makes of a whole field.
template <class T>
std::vector<std::byte> by_libzfp(const storage& how, std::vector<T> x) {
  const zfp_type type = sizeof(T) == 4 ? zfp_type_float : zfp_type_double;
  const auto& s = how.shape;
  ::zfp_field* field = s[1] == 0   ? zfp_field_1d(x.data(), type, s[0])
                       : s[2] == 0 ? zfp_field_2d(x.data(), type, s[0], s[1])
                       : s[3] == 0 ? zfp_field_3d(x.data(), type, s[0], s[1], s[2])
                                   : zfp_field_4d(x.data(), type, s[0], s[1], s[2], s[3]);
  zfp_stream* stream = zfp_stream_open(nullptr);
  if (how.rate != 0)
    zfp_stream_set_rate(stream, how.rate, type, zfp_field_dimensionality(field), 0);
  else if (how.precision != 0)
    zfp_stream_set_precision(stream, how.precision);
  else if (how.accuracy != 0)
    zfp_stream_set_accuracy(stream, how.accuracy);
  else
    zfp_stream_set_reversible(stream);
  std::vector<std::byte> bytes(zfp_stream_maximum_size(stream, field));
  bitstream* bits = stream_open(bytes.data(), bytes.size());
  zfp_stream_set_bit_stream(stream, bits);
  bytes.resize(zfp_compress(stream, field));
  stream_close(bits);
  zfp_stream_close(stream);
  zfp_field_free(field);
  return bytes;
}

std::vector<storage> modes_of(const shape& of) {
  return {{.shape = of}, {.shape = of, .rate = 8}, {.shape = of, .precision = 12}, {.shape = of, .accuracy = 1e-3}};
}

template <class T>
class zfp_field : public ::testing::Test {};
using types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(zfp_field, types);

TYPED_TEST(zfp_field, has_the_bytes_of_libzfp) {
  for (const shape& of : shapes) {
    for (const storage& codec : modes_of(of)) {
      const auto x = smooth<TypeParam>(length(of), 1);
      const auto expected = by_libzfp(codec, x);
      const auto bytes = encoded(codec, x);
      if (expected.size() >= x.size() * sizeof(TypeParam)) { // plain values are shorter
        ASSERT_EQ(bytes.size(), 8 + x.size() * sizeof(TypeParam));
        continue;
      }
      ASSERT_EQ(bytes.size(), 8 + expected.size());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), bytes.begin() + 8));
    }
  }
}

TYPED_TEST(zfp_field, loses_no_bit_without_a_mode) {
  for (const shape& of : shapes) {
    const storage codec{.shape = of};
    for (const auto& x :
         {smooth<TypeParam>(length(of), 2), any_bits<TypeParam>(length(of), 3), std::vector<TypeParam>(length(of))}) {
      const auto back = decoded<TypeParam>(codec, encoded(codec, x), x.size());
      EXPECT_TRUE(same_bits<TypeParam>(x, back));
    }
  }
}

TYPED_TEST(zfp_field, keeps_the_accuracy) {
  using T = TypeParam;
  constexpr double rounding = sizeof(T) == 4 ? 0x1p-22 : 0x1p-50;
  for (const shape& of : shapes) {
    for (const double accuracy : {1.0, 0.1, 1e-3, 1e-6, 1e-12, 1e-100}) {
      const storage codec{.shape = of, .accuracy = accuracy};
      for (const double scale : {1.0, 1e10, 1e-20, 1e-37}) {
        auto x = noise<T>(length(of), 4);
        for (T& each : x) each = static_cast<T>(each * static_cast<T>(scale));
        const auto back = decoded<T>(codec, encoded(codec, x), x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double smallest = sizeof(T) == 4 ? 0x1p-98 : 0x1p-962;
          ASSERT_LE(std::abs(static_cast<double>(x[i]) - static_cast<double>(back[i])),
                    accuracy + rounding * scale + smallest)
              << "accuracy " << accuracy << ", scale " << scale;
        }
      }
    }
  }
}

TYPED_TEST(zfp_field, rounds_a_block_by_at_most_its_largest_value) {
  using T = TypeParam;
  constexpr double rounding = sizeof(T) == 4 ? 0x1p-22 : 0x1p-50;
  for (const shape& of : {shape{64}, shape{8, 16}, shape{3, 3, 30}, shape{3, 3, 3, 12}}) {
    const storage codec{.shape = of, .accuracy = 1e-30};
    for (std::uint64_t seed = 0; seed < 200; ++seed) { // one block of noise among zeros, so that it is worth encoding
      std::vector<T> x(length(of));
      const auto values = noise<T>(x.size() / 8, seed);
      std::copy(values.begin(), values.end(), x.begin());
      const auto bytes = encoded(codec, x);
      ASSERT_LT(bytes.size(), x.size() * sizeof(T));
      const auto back = decoded<T>(codec, bytes, x.size());
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_LE(std::abs(static_cast<double>(x[i]) - static_cast<double>(back[i])), rounding);
    }
  }
}

/// Noise, values near the largest, and values of many magnitudes, in whole blocks and in parts of blocks.
TYPED_TEST(zfp_field, rounds_by_the_error_that_a_precision_states) {
  using T = TypeParam;
  double worst = 0;
  for (const shape& of :
       {shape{64}, shape{4, 64}, shape{3, 64}, shape{4, 4, 64}, shape{3, 2, 64}, shape{4, 3, 4, 64}}) {
    for (unsigned precision = 1; precision <= 8 * sizeof(T); ++precision) {
      const storage codec{.shape = of, .precision = precision};
      for (std::uint64_t seed = 0; seed < 30; ++seed) {
        std::vector<T> x(length(of)); // zeros behind the first blocks, so that it is worth encoding
        const auto values = noise<T>(x.size() / 16, seed);
        std::copy(values.begin(), values.end(), x.begin());
        double largest = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (seed % 3 == 1) x[i] = static_cast<T>(std::copysign(1 - std::abs(x[i]) / 1024, x[i]));
          if (seed % 3 == 2) x[i] = static_cast<T>(std::ldexp(x[i], -static_cast<int>(i % 20)));
          largest = std::max(largest, static_cast<double>(std::abs(x[i])));
        }
        const auto back = decoded<T>(codec, encoded(codec, x), x.size());
        const double bound = codec.template relative_error<T>() * largest + codec.template absolute_error<T>();
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double error = std::abs(static_cast<double>(x[i]) - static_cast<double>(back[i]));
          ASSERT_LE(error, bound) << "precision " << precision;
          worst = std::max(worst, error / bound);
        }
      }
    }
  }
  EXPECT_GT(worst, 0.5); // the bound is not much too large
}

TYPED_TEST(zfp_field, sends_what_libzfp_cannot_encode_as_it_is) {
  using limits = std::numeric_limits<TypeParam>;
  for (const storage& codec : modes_of({8, 8, 8})) {
    for (const TypeParam special : {limits::quiet_NaN(), limits::infinity(), -limits::infinity(), limits::max() / 4}) {
      auto x = smooth<TypeParam>(512, 5);
      x[77] = special;
      EXPECT_TRUE(same_bits<TypeParam>(x, decoded<TypeParam>(codec, encoded(codec, x), x.size())));
    }
  }
}

TYPED_TEST(zfp_field, is_smaller_in_more_dimensions) {
  std::vector<TypeParam> x(32 * 32 * 32);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<TypeParam>(std::cos(0.1 * static_cast<double>(i % 32)) +
                                  std::cos(0.1 * static_cast<double>(i / 32 % 32)) +
                                  std::cos(0.1 * static_cast<double>(i / 1024)));
  const auto size = [&](shape of) { return encoded(storage{.shape = of, .accuracy = 1e-3}, x).size(); };
  EXPECT_LT(2 * size({32, 32, 32}), size({32768}));
}

TYPED_TEST(zfp_field, refuses_bytes_that_no_rank_writes) {
  const shape of{8, 8, 8};
  for (const storage& codec : modes_of(of)) {
    const auto good = encoded(codec, smooth<TypeParam>(512, 6));
    const auto refuses = [&](std::vector<std::byte> bytes) {
      EXPECT_THROW((void)decoded<TypeParam>(codec, bytes, 512), spar::corrupt_message);
    };
    refuses({});
    refuses(std::vector<std::byte>(7));
    refuses(std::vector<std::byte>(1'000'000));
    auto bytes = good;
    bytes.push_back({});
    refuses(bytes);
    bytes.resize(good.size() - 1);
    refuses(bytes);
    bytes = good;
    bytes[0] = std::byte{2};
    refuses(bytes);
    bytes[0] = std::byte{1}; // plain values of another length
    refuses(bytes);
  }
}

/// Calls `f` with each schedule that takes fields.
template <class F>
void for_each_schedule(const F& f) {
  f(spar::ring{});
  f(spar::recursive_doubling{});
  f(spar::rabenseifner{});
  f(spar::dsar_split{});
  f(spar::chains{});
  f(spar::two_shot{});
  f(spar::one_shot{});
}

/// The error of a call on n values, which is the same on both ranks; empty if there is none.
template <class Schedule>
std::string refusal(const storage& codec, std::uint64_t n, const Schedule& by) {
  std::array<std::string, 2> texts;
  spar::thread_group group(2);
  group.run([&](spar::threads& net) {
    std::string& text = texts[static_cast<std::size_t>(net.rank())];
    std::vector<float> x(n, 1);
    try {
      spar::allreduce(net, x, spar::compose(codec, by));
    } catch (const spar::invalid_argument& e) {
      text = e.what();
    }
    if (!text.empty() && net.last_call().messages_sent != 0) throw spar::error("a refused call has sent a message");
  });
  EXPECT_EQ(texts[0], texts[1]);
  return texts[0];
}

TEST(zfp_field_options, are_checked_before_anything_is_sent) {
  const auto expect = [](const storage& codec, const std::string& text) {
    for_each_schedule([&](const auto& by) { EXPECT_EQ(refusal(codec, 60, by), text) << by.name; });
  };
  const std::string extents = "; expected one to four extents of at least 1, then 0, and at most 2^60 values";
  expect({}, "the shape of storage zfp_field is 0 x 0 x 0 x 0" + extents);
  expect({.shape = {60, 0, 1}}, "the shape of storage zfp_field is 60 x 0 x 1 x 0" + extents);
  expect({.shape = {std::size_t{1} << 40, std::size_t{1} << 40}},
         "the shape of storage zfp_field is 1099511627776 x 1099511627776 x 0 x 0" + extents);
  expect({.shape = {std::size_t{1} << 31, std::size_t{1} << 31, 3}},
         "the shape of storage zfp_field is 2147483648 x 2147483648 x 3 x 0" + extents);
  expect({.shape = {std::numeric_limits<std::size_t>::max(), 4, 4}},
         "the shape of storage zfp_field is 18446744073709551615 x 4 x 4 x 0" + extents);
  const std::string of_other =
      ", with 0 for an unused dimension, but the vector has 60 values; expected the product of "
      "the extents";
  expect({.shape = {3, 4, 4}}, "the shape of storage zfp_field is 3 x 4 x 4 x 0" + of_other);
  expect({.shape = {61}}, "the shape of storage zfp_field is 61 x 0 x 0 x 0" + of_other);
  expect({.shape = {3, 4, 5}, .rate = 0.5}, "the rate of storage zfp_field is 0.5; expected a rate in [1, 32] bits per "
                                            "value");
  expect({.shape = {3, 4, 5}, .rate = 33}, "the rate of storage zfp_field is 33; expected a rate in [1, 32] bits per "
                                           "value");
  expect({.shape = {3, 4, 5}, .precision = 33}, "the precision of storage zfp_field is 33; expected at most 32");
  expect({.shape = {3, 4, 5}, .accuracy = -1},
         "the accuracy of storage zfp_field is -1; expected a positive, finite number, and no subnormal one");
  expect({.shape = {3, 4, 5}, .accuracy = std::numeric_limits<double>::quiet_NaN()},
         "the accuracy of storage zfp_field is nan; expected a positive, finite number, and no subnormal one");
  expect(
      {.shape = {3, 4, 5}, .rate = 8, .accuracy = 1},
      "the storage zfp_field has the rate 8, the precision 0 and the accuracy 1; expected at most one that is not 0");
  expect({.shape = {3, 4, 5}}, "");
}

TEST(zfp_field_options, are_checked_by_decode) {
  const std::vector<std::byte> plain(8 + 8 * sizeof(float), std::byte{1});
  std::vector<float> x(8);
  for (const storage& codec :
       {storage{.shape = {8}, .rate = 8, .accuracy = 1}, storage{.shape = {8}, .rate = 33}, storage{.shape = {8, 0, 3}},
        storage{.shape = {std::size_t{1} << 32, std::size_t{1} << 32, 1}}})
    EXPECT_THROW(codec.decode(std::span<const std::byte>(plain), std::span(x)), spar::invalid_argument);
}

TEST(zfp_field_options, are_compared_among_ranks) {
  for (const storage& other : {storage{.shape = {4, 3, 5}, .rate = 8}, storage{.shape = {3, 4, 5}, .rate = 9},
                               storage{.shape = {3, 4, 5}, .precision = 8}, storage{.shape = {3, 4, 5}}}) {
    for_each_schedule([&](const auto& by) {
      spar::thread_group group(2);
      const auto differ = [&](spar::threads& net) {
        std::vector<float> x(60, 1);
        const storage mine = net.rank() == 0 ? storage{.shape = {3, 4, 5}, .rate = 8} : other;
        spar::allreduce(net, x, spar::compose(mine, by));
      };
      EXPECT_THROW(group.run(differ), spar::mismatch) << by.name;
    });
  }
}

using spar::composes, spar::verdict_of, spar::flat;
using everything = spar::selector::everything;
template <class Schedule>
inline constexpr bool takes_fields = composes<verdict_of<everything, storage, flat, Schedule>>;
static_assert(takes_fields<spar::ring> && takes_fields<spar::recursive_doubling>);
static_assert(takes_fields<spar::two_shot> && takes_fields<spar::one_shot>);
static_assert(takes_fields<spar::rabenseifner> && takes_fields<spar::dsar_split>);
static_assert(takes_fields<spar::split_allgather<>> && !takes_fields<spar::ssar_split>);
static_assert(!takes_fields<spar::cheapest>);
static_assert(composes<verdict_of<everything, storage, spar::on_tree, spar::two_shot>>);
static_assert(composes<verdict_of<everything, storage, spar::on_tree, spar::chains>>);
static_assert(!composes<verdict_of<everything, storage, spar::on_plan, spar::chains>>);
static_assert(!composes<verdict_of<everything, storage, spar::on_tree, spar::cheapest>>);

template <class T, class Algorithm>
struct allreduce_of {
  std::vector<std::vector<T>>* x;
  Algorithm algorithm;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto call = spar::start_allreduce(net, (*x)[static_cast<std::size_t>(net.rank())], algorithm);
    co_await call;
  }
};

/// The sums of all ranks by `algorithm`, whose bits must be those of rank 0.
template <class T, class Algorithm>
std::vector<T> sum_of(mode where, spar::rank_t ranks, const std::vector<std::vector<T>>& x, Algorithm algorithm) {
  std::vector<std::vector<T>> sums(x);
  run(where, ranks, allreduce_of<T, Algorithm>{&sums, algorithm});
  for (const auto& sum : sums) EXPECT_TRUE(same_bits<T>(sums[0], sum));
  return sums[0];
}

/// The quick set compiles the schedules for float only. The tests of the codec alone have both types there, too.
using other_type = std::conditional_t<compiles_all_cases, double, float>;

/// Noise of each rank, and its exact sum.
template <class T>
std::pair<std::vector<std::vector<T>>, std::vector<double>> noise_of_ranks(spar::rank_t ranks, const shape& of) {
  std::vector<std::vector<T>> x;
  std::vector<double> exact(length(of));
  for (spar::rank_t r = 0; r < ranks; ++r) {
    x.push_back(noise<T>(length(of), static_cast<std::uint64_t>(r) + 10));
    for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += static_cast<double>(x.back()[i]);
  }
  return {std::move(x), std::move(exact)};
}

template <class T>
void expect_bounded_sums(mode where, spar::rank_t ranks, const shape& of) {
  constexpr double accuracy = 1e-2;
  const auto all = noise_of_ranks<T>(ranks, of);
  const auto& x = all.first;
  const auto& exact = all.second;
  const storage codec{.shape = of, .accuracy = accuracy};
  const auto expect = [&](auto by, int encodings) {
    const auto sum = sum_of(where, ranks, x, spar::compose(codec, by));
    const double bound = encodings * (accuracy + 0x1p-20 * ranks);
    for (std::size_t i = 0; i < exact.size(); ++i)
      ASSERT_LE(std::abs(exact[i] - static_cast<double>(sum[i])), bound) << ranks << " ranks, index " << i;
  };
  const int encodings = ranks == 1 ? 0 : ranks;
  expect(spar::rabenseifner{}, encodings);
  expect(spar::dsar_split{}, ranks); // encodes its dense second phase also with one rank
  for (const std::uint64_t piece : {1, 100, 32768}) {
    expect(spar::ring{.piece = piece}, encodings);
    expect(spar::recursive_doubling{.piece = piece}, 2 * encodings);
    expect(spar::two_shot{.piece = piece}, encodings);
    expect(spar::one_shot{.piece = piece}, encodings);
  }
  // Without a mode, the bits are those of values that are not encoded, where the order of additions does not depend on
  // the cut of the vector.
  const storage lossless{.shape = of};
  const spar::storage::named_codec plain("none");
  const auto expect_bits = [&](auto by) {
    EXPECT_TRUE(same_bits<T>(sum_of(where, ranks, x, spar::compose(lossless, by)),
                             sum_of(where, ranks, x, spar::compose(plain, by))));
  };
  expect_bits(spar::recursive_doubling{.piece = 100});
  expect_bits(spar::two_shot{.piece = 100});
  expect_bits(spar::one_shot{.piece = 100});
  expect_bits(spar::rabenseifner{});
  expect_bits(spar::dsar_split{});
}

/// A tree of racks with two hosts, which alternate between one and two ranks.
spar::tree racks(spar::rank_t ranks) {
  spar::tree_node root;
  for (spar::rank_t r = 0; r < ranks;) {
    spar::tree_node rack;
    for (spar::rank_t host = 0; host < 2 && r < ranks; ++host) {
      spar::tree_node of;
      for (spar::rank_t i = 0; i <= host && r < ranks; ++i) of.children.push_back({.rank = r++});
      rack.children.push_back(std::move(of));
    }
    root.children.push_back(std::move(rack));
  }
  return spar::tree(root);
}

/// The largest number of messages of the reduce-scatter of a plan that carry a sum of the same index.
std::size_t most_messages(const spar::flex_plan& plan) {
  std::vector<std::size_t> messages(plan.dimension());
  for (std::size_t level = 0; level < plan.levels(); ++level) {
    for (const auto& call : plan.calls(level))
      for (std::uint64_t i = call.range.begin; i < call.range.end; ++i) messages[i] += call.last - call.first - 1;
  }
  return *std::max_element(messages.begin(), messages.end());
}

template <class T>
void expect_bounded_sums_on_a_tree(mode where, spar::rank_t ranks, const shape& of) {
  constexpr double accuracy = 1e-2;
  const auto all = noise_of_ranks<T>(ranks, of);
  const spar::tree topology = racks(ranks);
  const spar::tree_plans plans(topology);
  std::size_t branches = 0;
  for (std::size_t level = 0; level < topology.levels(); ++level) branches += topology.branches(level).size();
  const std::size_t encodings = most_messages(plans.cells().plan()) + 1;
  EXPECT_LE(encodings, static_cast<std::size_t>(ranks) + branches - 1);
  const storage codec{.shape = of, .accuracy = accuracy}, lossless{.shape = of};
  const auto expect = [&, &values = all.first, &sums = all.second](auto by, std::size_t most) {
    const auto sum = sum_of(where, ranks, values, spar::compose(codec, spar::on_tree(plans), by));
    const double bound = ranks == 1 ? 0 : static_cast<double>(most) * (accuracy + 0x1p-20 * ranks);
    for (std::size_t i = 0; i < sums.size(); ++i)
      ASSERT_LE(std::abs(sums[i] - static_cast<double>(sum[i])), bound) << ranks << " ranks, index " << i;
    const auto bits = sum_of(where, ranks, values, spar::compose(lossless, spar::on_tree(plans), by));
    for (std::size_t i = 0; i < sums.size(); ++i)
      ASSERT_LE(std::abs(sums[i] - static_cast<double>(bits[i])), 0x1p-20 * ranks) << ranks << " ranks, index " << i;
  };
  expect(spar::chains{}, encodings);
  expect(spar::two_shot{.piece = 100}, static_cast<std::size_t>(ranks));
  expect(spar::ring{.piece = 100}, static_cast<std::size_t>(ranks));
  expect(spar::recursive_doubling{.piece = 100}, 2 * static_cast<std::size_t>(ranks));
}

TEST(zfp_field_sums, are_within_the_bound_on_a_tree) {
  for (const spar::rank_t ranks : all_ranks) {
    for (const mode where : free_modes) {
      expect_bounded_sums_on_a_tree<float>(where, ranks, {7, 5, 29});
      expect_bounded_sums_on_a_tree<other_type>(where, ranks, {3, 2, 3, 9});
    }
  }
}
/// A tree of hosts with two ranks each, where two shots encode only between hosts.
TEST(zfp_field_sums, are_equal_on_hosts_with_equally_many_ranks) {
  const storage codec{.shape = {7, 5, 29}};
  for (const spar::rank_t ranks : {2, 4, 6}) {
    std::vector<spar::rank_t> host_of;
    for (spar::rank_t r = 0; r < ranks; ++r) host_of.push_back(r / 2);
    const spar::tree_plans plans(spar::tree_of_hosts(host_of));
    const auto all = noise_of_ranks<double>(ranks, codec.shape);
    for (const mode where : free_modes) {
      const auto sum =
          sum_of(where, ranks, all.first, spar::compose(codec, spar::on_tree(plans), spar::two_shot{.piece = 50}));
      for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(all.second[i], sum[i], 1e-14 * ranks);
    }
  }
}

TEST(zfp_field_sums, are_within_the_bound_and_equal_on_all_ranks) {
  for (const spar::rank_t ranks : all_ranks) {
    for (const mode where : free_modes) {
      expect_bounded_sums<float>(where, ranks, {7, 5, 29});
      expect_bounded_sums<other_type>(where, ranks, {3, 2, 3, 9});
      expect_bounded_sums<other_type>(where, ranks, {130});
    }
  }
}

TEST(zfp_field_sums, are_within_error_bound) {
  constexpr shape of{7, 5, 29};
  for (const spar::rank_t ranks : all_ranks) {
    const auto all = noise_of_ranks<float>(ranks, of);
    for (const storage& codec : {storage{.shape = of, .precision = 14}, storage{.shape = of, .precision = 24},
                                 storage{.shape = of, .accuracy = 1e-2}, storage{.shape = of}}) {
      const auto expect = [&](auto by) {
        const auto algorithm = spar::compose(codec, by);
        const double bound = spar::error_bound<float>(algorithm, ranks, 1.0);
        EXPECT_LT(bound, 0.1 * ranks * ranks);
        const auto sum = sum_of(mode::threads, ranks, all.first, algorithm);
        for (std::size_t i = 0; i < sum.size(); ++i)
          ASSERT_LE(std::abs(all.second[i] - static_cast<double>(sum[i])), bound) << ranks << " ranks, index " << i;
      };
      expect(spar::ring{.piece = 200});
      expect(spar::recursive_doubling{.piece = 200});
      expect(spar::rabenseifner{});
      expect(spar::dsar_split{});
      expect(spar::two_shot{.piece = 200});
      expect(spar::one_shot{.piece = 200});
    }
  }
  const auto by_rate = spar::compose(storage{.shape = of, .rate = 8}, spar::ring{});
  EXPECT_EQ(spar::error_bound<float>(by_rate, 2, 1.0), std::numeric_limits<double>::infinity());
}

/// The ring adds in an order that depends on the cut of the vector, which is the same where each rank owns as many
/// slabs.
TEST(zfp_field_sums, of_a_ring_have_the_bits_of_plain_values_without_a_mode) {
  for (const spar::rank_t ranks : all_ranks) {
    const storage lossless{.shape = {3, 5, 8 * static_cast<std::size_t>(ranks)}};
    std::vector<std::vector<double>> x;
    for (spar::rank_t r = 0; r < ranks; ++r)
      x.push_back(noise<double>(length(lossless.shape), static_cast<std::uint64_t>(r)));
    for (const mode where : free_modes) {
      EXPECT_TRUE(same_bits<double>(sum_of(where, ranks, x, spar::compose(lossless, spar::ring{})),
                                    sum_of(where, ranks, x, spar::ring{})))
          << ranks << " ranks";
    }
  }
}

/// In every mode, a NaN or an infinity of one rank, and an infinity that only the sum has, are those of plain values.
TEST(zfp_field_sums, keep_nan_and_infinities) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  constexpr spar::rank_t ranks = 3;
  const shape of{4, 3, 25};
  std::vector<std::vector<float>> x;
  for (spar::rank_t r = 0; r < ranks; ++r) x.push_back(noise<float>(length(of), static_cast<std::uint64_t>(r)));
  x[0][7] = std::numeric_limits<float>::quiet_NaN();
  x[1][100] = -infinity;
  for (auto& each : x) each[290] = most / 2;
  const spar::tree_plans plans(racks(ranks));
  for (const storage& codec : {storage{.shape = of, .rate = 8}, storage{.shape = of, .precision = 12},
                               storage{.shape = of, .accuracy = 1e-3}, storage{.shape = of}}) {
    const auto expect = [&](const auto& algorithm) {
      const auto sum = sum_of(mode::threads, ranks, x, algorithm);
      EXPECT_TRUE(std::isnan(sum[7]));
      EXPECT_EQ(sum[100], -infinity);
      EXPECT_EQ(sum[290], infinity);
      EXPECT_TRUE(std::isfinite(sum[150]));
    };
    expect(spar::compose(codec, spar::ring{.piece = 48}));
    expect(spar::compose(codec, spar::recursive_doubling{.piece = 48}));
    expect(spar::compose(codec, spar::two_shot{.piece = 48}));
    expect(spar::compose(codec, spar::one_shot{.piece = 48}));
    expect(spar::compose(codec, spar::rabenseifner{}));
    expect(spar::flexreduce(plans, codec));
    expect(spar::compose(codec, spar::dsar_split{}));
  }
}

TEST(zfp_field_sums, has_a_message_for_each_slab) {
  constexpr spar::rank_t ranks = 3;
  const storage codec{.shape = {5, 4, 36}, .rate = 8}; // nine slabs of 80 values, three for each rank
  std::vector<spar::statistics> cost(ranks);
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) {
    std::vector<float> x = smooth<float>(720, 1);
    spar::allreduce(net, x, spar::compose(codec, spar::ring{.piece = 100}));
    cost[static_cast<std::size_t>(net.rank())] = net.last_call();
  });
  // A slab has 2 x 1 x 1 blocks of 64 values, of 64 bytes each, after 8 bytes.
  for (const auto& each : cost) {
    EXPECT_EQ(each.messages_sent, 2U * (ranks - 1) * 3);
    EXPECT_EQ(each.bytes_sent, each.messages_sent * (8 + 2 * 64));
  }
}

} // namespace
} // namespace spar_test
