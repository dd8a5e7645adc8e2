// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// User-defined codecs, as in docs/guide/composing.md: one for blocks of dense values, one for the entries of streams,
// and both in one storage.
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace {

/// A block codec: multiples of a step, in 16 bits each.
struct fixed_point {
  static constexpr spar::slot fills = spar::slot::storage;
  static constexpr std::string_view name = "fixed_point";

  double step = 0x1p-6;

  void options(auto&& f) const { f("step", step); }
  template <spar::element T>
    requires spar::is_floating<T>
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const {
    if (!(step > 0)) spar::raise<spar::invalid_argument>({"fixed_point needs a step above 0, not ", step});
    return 2 * count;
  }
  /// A block for which this function returns false is sent without encoding.
  template <spar::element T>
  [[nodiscard]] bool can_encode(std::span<const T> values) const {
    return std::all_of(values.begin(), values.end(),
                       [&](T x) { return std::abs(static_cast<double>(x)) < 32767 * step; });
  }
  template <spar::element T>
  void encode(std::span<const T> values, std::span<std::byte> out, spar::block_position) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto steps = static_cast<std::int16_t>(std::lround(static_cast<double>(values[i]) / step));
      std::memcpy(&out[2 * i], &steps, 2);
    }
  }
  template <spar::element T>
  void decode(std::span<const std::byte> in, std::span<T> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::int16_t steps;
      std::memcpy(&steps, &in[2 * i], 2);
      out[i] = static_cast<T>(steps * step);
    }
  }
};

/// A stream codec: each index in as few bytes as the range of the message needs, then the values unchanged.
struct narrow {
  static constexpr spar::slot fills = spar::slot::storage;
  static constexpr std::string_view name = "narrow";
  static constexpr bool exact = true;

  static constexpr std::size_t width(std::uint64_t indices) {
    std::size_t bytes = 1;
    while (bytes < 8 && indices > std::uint64_t{1} << (8 * bytes)) ++bytes;
    return bytes;
  }

  void options(auto&&) const {} // no options
  template <spar::element T, spar::index_type Index>
  [[nodiscard]] double entry_bits(std::uint64_t n, std::uint64_t) const {
    return 8.0 * static_cast<double>(sizeof(T) + width(n));
  }
  template <spar::element T, spar::index_type Index>
  [[nodiscard]] std::uint64_t delta(std::uint64_t n) const {
    const std::uint64_t entry = sizeof(T) + width(n);
    return n / entry * sizeof(T) + n % entry * sizeof(T) / entry;
  }
  template <spar::element T, spar::index_type Index>
  [[nodiscard]] std::size_t bound(spar::index_range range, std::size_t count) const {
    return count * (sizeof(T) + width(range.size()));
  }
  template <spar::element T, spar::index_type Index>
  std::size_t encode(spar::coo_span<T, Index> entries, spar::index_range range, std::span<std::byte> out) const {
    const std::size_t bytes = width(range.size());
    std::size_t at = 0;
    for (const Index i : entries.indices) {
      for (std::size_t b = 0; b < bytes; ++b) out[at++] = static_cast<std::byte>((i - range.begin) >> (8 * b));
    }
    if (!entries.empty()) std::memcpy(&out[at], entries.values.data(), entries.values.size_bytes());
    return at + entries.values.size_bytes();
  }
  template <spar::element T, spar::index_type Index>
  void decode(std::span<const std::byte> in, spar::index_range range, spar::entry_room<T, Index> to) const {
    const std::size_t bytes = width(range.size()), count = to.indices.size();
    if (in.size() != count * (sizeof(T) + bytes)) {
      spar::raise<spar::corrupt_message>({count, " narrow entries arrived in ", in.size(), " bytes"});
    }
    std::size_t at = 0;
    for (Index& i : to.indices) {
      std::uint64_t offset = 0;
      for (std::size_t b = 0; b < bytes; ++b) offset |= std::to_integer<std::uint64_t>(in[at++]) << (8 * b);
      i = static_cast<Index>(range.begin + offset);
    }
    if (count > 0) std::memcpy(to.values.data(), &in[at], to.values.size_bytes());
    spar::check_indices(std::span<const Index>(to.indices), range); // throws unless they ascend in range
  }
};

static_assert(spar::block_codec<fixed_point, float> && spar::block_codec<fixed_point, double>);
static_assert(!spar::block_codec<fixed_point, std::int32_t>);
static_assert(spar::stream_codec<narrow, float, std::uint32_t> &&
              spar::stream_codec<narrow, std::int64_t, std::uint64_t>);

using both = spar::storage::then<narrow, fixed_point>;

constexpr std::size_t n = 1000;

/// Multiples of the codec's step; one value of `one_of` is not zero.
std::vector<float> input(spar::rank_t rank, int step, std::size_t one_of = 1) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto random =
        (i + 1) * 2654435761U + static_cast<std::size_t>(rank) * 40503U + static_cast<std::size_t>(step) * 977U;
    if (i % one_of == 0) x[i] = (static_cast<float>(random % 201) - 100) / 64;
  }
  return x;
}
std::vector<float> plain_sum(spar::rank_t ranks, int step, std::size_t one_of = 1) {
  std::vector<float> sum(n);
  for (spar::rank_t r = 0; r < ranks; ++r) {
    const auto x = input(r, step, one_of);
    for (std::size_t i = 0; i < n; ++i) sum[i] += x[i];
  }
  return sum;
}

template <class Program>
void on_all_ranks(const Program& program) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 5}) {
    spar::thread_group group(ranks);
    group.run([&](spar::threads& net) { program(net); });
  }
}

template <class Schedule>
class OwnStorageIn : public testing::Test {};
using schedules = testing::Types<spar::cheapest, spar::ring, spar::recursive_doubling, spar::dsar_split>;
TYPED_TEST_SUITE(OwnStorageIn, schedules);

TYPED_TEST(OwnStorageIn, DenseValues) {
  on_all_ranks([](spar::threads& net) {
    auto x = input(net.rank(), 0);
    spar::allreduce(net, x, spar::compose(fixed_point{}, TypeParam{}));
    EXPECT_EQ(x, plain_sum(net.size(), 0)); // all partial sums are multiples of the step
  });
}

TYPED_TEST(OwnStorageIn, Streams) {
  on_all_ranks([](spar::threads& net) {
    auto x = input(net.rank(), 0, 10);
    const auto mine = spar::select(spar::selector::nonzeros{}, std::span(x), net.memory());
    for (const bool rounds : {false, true}) {
      const auto sum = rounds ? spar::allreduce(net, mine, spar::compose(both{}, TypeParam{}))
                              : spar::allreduce(net, mine, spar::compose(narrow{}, TypeParam{}));
      std::vector<float> all(n);
      sum.to_dense(all, spar::sum{});
      EXPECT_EQ(all, plain_sum(net.size(), 0, 10));
    }
  });
}

TYPED_TEST(OwnStorageIn, WhatItLosesIsInTheResidual) {
  on_all_ranks([](spar::threads& net) {
    const auto algorithm = spar::compose(spar::selector::exact_topk{.k = 200},
                                         both{.streams = {}, .blocks = {.step = 0x1p-3}}, TypeParam{});
    auto reduce = spar::with_error_feedback<float>(algorithm);
    std::vector<float> sums(n), brought(n);
    for (int step = 0; step < 5; ++step) {
      auto x = input(net.rank(), step);
      reduce(net, std::span(x));
      const auto all = plain_sum(net.size(), step);
      for (std::size_t i = 0; i < n; ++i) sums[i] += x[i], brought[i] += all[i];
    }
    std::vector<float> left(reduce.residual().begin(), reduce.residual().end());
    spar::allreduce(net, left);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(sums[i] + left[i], brought[i]) << i;
  });
}

TEST(OwnBlockCodec, WhatItCannotCarryTravelsAsItIs) {
  on_all_ranks([](spar::threads& net) {
    std::vector<float> x(n, 1.0F + 0x1p-20F);
    x[n / 2] = 1e6F;
    spar::allreduce(net, x, spar::compose(fixed_point{}, spar::ring{.piece = n}));
    EXPECT_EQ(x[n / 2], 1e6F * static_cast<float>(net.size()));
  });
}

TEST(OwnBlockCodec, OptionsAreCheckedBeforeAnythingIsSent) {
  spar::thread_group group(2);
  group.run([](spar::threads& net) {
    std::vector<float> x(n);
    EXPECT_THROW(spar::allreduce(net, x, spar::compose(fixed_point{.step = 0}, spar::ring{})), spar::invalid_argument);
    spar::allreduce(net, x, spar::compose(fixed_point{}, spar::ring{})); // the ranks are still in step
  });
}

TEST(OwnBlockCodec, RanksWithOtherOptionsEndInMismatch) {
  spar::thread_group group(2);
  const auto run = [&] {
    group.run([](spar::threads& net) {
      std::vector<float> x(n);
      spar::allreduce(net, x, spar::compose(fixed_point{.step = net.rank() == 0 ? 0x1p-6 : 0x1p-5}, spar::ring{}));
    });
  };
  EXPECT_THROW(run(), spar::mismatch);
}

/// In Ok-Topk every message is a stream: the sums are the same, with fewer bytes.
TEST(OwnStreamCodec, OkTopk) {
  on_all_ranks([](spar::threads& net) {
    const spar::selector::threshold_reuse select{.density = 0.05};
    const auto as_it_is = spar::compose(select, spar::balanced_owners{});
    const auto in_fewer_bytes = spar::compose(select, narrow{}, spar::balanced_owners{});
    auto expected = spar::with_error_feedback<float>(as_it_is);
    auto reduce = spar::with_error_feedback<float>(in_fewer_bytes);
    std::vector<float> sums(n), brought(n);
    for (int step = 0; step < 5; ++step) {
      auto x = input(net.rank(), step), y = x;
      const std::uint64_t before = net.statistics().bytes_sent;
      reduce(net, std::span(x));
      const std::uint64_t between = net.statistics().bytes_sent;
      expected(net, std::span(y));
      const std::uint64_t after = net.statistics().bytes_sent;
      EXPECT_EQ(x, y);
      EXPECT_TRUE(net.size() == 1 || between - before < after - between);
      const auto all = plain_sum(net.size(), step);
      for (std::size_t i = 0; i < n; ++i) sums[i] += x[i], brought[i] += all[i];
    }
    std::vector<float> left(reduce.residual().begin(), reduce.residual().end());
    spar::allreduce(net, left);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(sums[i] + left[i], brought[i]) << i;
  });
}

TEST(OwnStreamCodec, DamagedBytesAreFound) {
  const std::vector<std::uint32_t> indices{300, 301, 999};
  const std::vector<float> values{1, 2, 3};
  const spar::coo_span<float, std::uint32_t> entries{indices, values};
  const spar::index_range range{300, 1000};
  std::vector<std::byte> bytes(narrow{}.bound<float, std::uint32_t>(range, 3));
  ASSERT_EQ(narrow{}.encode(entries, range, bytes), bytes.size());
  std::vector<std::uint32_t> got(3);
  std::vector<float> decoded(3);
  const auto decode = [&](std::span<const std::byte> in) {
    narrow{}.decode(in, range, spar::entry_room<float, std::uint32_t>{got, decoded});
  };
  decode(bytes);
  EXPECT_EQ(got, indices);
  EXPECT_EQ(decoded, values);
  EXPECT_THROW(decode(std::span(bytes).first(bytes.size() - 1)), spar::corrupt_message);
  bytes[5] = std::byte{255}; // out of range
  EXPECT_THROW(decode(bytes), spar::corrupt_message);
}

} // namespace
