// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows: sums, selections and residuals of rows are those of an independent reference on plain values, rows of one value
// behave like plain values, and ranks with other rows end with an error that names both.
#include "support/collectives.hpp"
#include "support/models.hpp"
#include "support/ranks.hpp"

#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace spar_test {
namespace {

constexpr std::array<spar::rank_t, 5> some_ranks{1, 2, 3, 5, 8};
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();

/// The values of each rank.
template <class T>
using by_rank = std::vector<std::vector<T>>;

/// `count` rows of small whole numbers, of which `nonzero` in 100 have values other than zero.
template <class T, std::size_t W>
by_rank<T> whole_numbers(spar::rank_t ranks, std::size_t count, std::uint64_t nonzero) {
  by_rank<T> all;
  for (spar::rank_t r = 0; r < ranks; ++r) {
    std::mt19937_64 random(static_cast<std::uint64_t>(r) + 1);
    std::vector<T> x(count * W);
    for (std::size_t i = 0; i < x.size(); i += W) {
      if (random() % 100 >= nonzero) continue;
      for (std::size_t w = 0; w < W; ++w) x[i + w] = static_cast<T>(static_cast<int>(random() % 41) - 20);
    }
    all.push_back(x);
  }
  return all;
}

template <class T, std::size_t W, class Algorithm, class Op>
struct dense_program {
  by_rank<T>* x;
  Algorithm algorithm;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto call = spar::start_allreduce(net, spar::rows<W>((*x)[static_cast<std::size_t>(net.rank())]), algorithm, Op{});
    co_await std::move(call);
  }
};

/// Reduces rows by `algorithm`, and compares with `expected(a, b)` of all ranks' values, each alone.
template <class T, std::size_t W, class Op = spar::sum, class Algorithm, class Expected>
void expect_reduced(spar::rank_t ranks, std::size_t count, const Algorithm& algorithm, Expected expected) {
  SCOPED_TRACE(testing::Message() << Algorithm::name << ", P = " << ranks << ", " << count << " rows of " << W);
  const auto before = whole_numbers<T, W>(ranks, count, 30);
  auto x = before;
  run(mode::sim, ranks, dense_program<T, W, Algorithm, Op>{&x, algorithm});
  for (std::size_t i = 0; i < count * W; ++i) {
    T all = before[0][i];
    for (std::size_t r = 1; r < before.size(); ++r) all = expected(all, before[r][i]);
    for (std::size_t r = 0; r < before.size(); ++r) ASSERT_EQ(x[r][i], all) << "value " << i << " of rank " << r;
  }
}

constexpr auto plus = [](auto a, auto b) { return static_cast<decltype(a)>(a + b); };

template <class T, std::size_t W, class Algorithm>
void expect_sums(const Algorithm& algorithm) {
  for (const spar::rank_t ranks : some_ranks) {
    for (const std::size_t count : {0U, 1U, 7U, 700U}) {
      expect_reduced<T, W>(ranks, count, algorithm, plus);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

template <class Values>
concept has_rows = requires(Values&& values) { spar::rows<4>(std::forward<Values>(values)); };
static_assert(has_rows<std::vector<float>&> && has_rows<const std::vector<float>&> && has_rows<float (&)[8]>);
static_assert(has_rows<std::span<float>> && has_rows<std::span<const float, 8>>);

TEST(rows, are_views_of_a_vector) {
  std::vector<int> x(12);
  std::iota(x.begin(), x.end(), 0);
  const auto rows = spar::rows<3>(x);
  static_assert(std::same_as<decltype(rows), const std::span<spar::row<int, 3>>>);
  static_assert(std::same_as<decltype(spar::rows<3>(std::as_const(x))), std::span<const spar::row<int, 3>>>);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[1][2], 5);
  EXPECT_EQ(spar::components(rows).data(), x.data());
  EXPECT_EQ(spar::components(rows).size(), 12U);
  try {
    (void)spar::rows<5>(x);
    FAIL() << "no error";
  } catch (const spar::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "the vector has length 12, which is not a whole number of rows; expected a multiple of 5");
  }
}

TEST(rows, are_summed_like_plain_values) {
  const auto selected = [](auto storage, auto schedule) {
    return spar::compose(spar::selector::nonzeros{}, storage, schedule);
  };
  expect_sums<float, 8>(selected(spar::storage::coded<>{}, spar::cheapest{}));
#if SPAR_ALL_CASES
  expect_sums<std::int32_t, 3>(selected(spar::storage::coo{}, spar::split_allgather{}));
  expect_sums<float, 8>(selected(spar::storage::coo{}, spar::cheapest{}));
  expect_sums<double, 5>(selected(spar::storage::coded<>{}, spar::recursive_doubling{}));
  expect_sums<std::int64_t, 2>(selected(spar::storage::coded<>{}, spar::gather_and_merge{}));
  expect_sums<std::uint32_t, 1>(selected(spar::storage::coded<>{}, spar::quantile_owners{}));
  expect_sums<float, 4>(spar::ring{});
  expect_sums<float, 1024>(spar::rabenseifner{});
#endif
}

TEST(rows, of_every_operation) {
  using floats = spar::row<float, 2>;
  using integers = spar::row<std::int32_t, 2>;
  const floats a{{6, -9}}, b{{-2, -3}};
  EXPECT_EQ(spar::minimum{}(a, b), (floats{{-2, -9}}));
  EXPECT_EQ(spar::maximum{}(a, b), (floats{{6, -3}}));
  EXPECT_EQ(spar::product{}(a, b), (floats{{-12, 27}}));
  EXPECT_EQ(spar::average::finalize(a, 3), (floats{{2, -3}}));
  EXPECT_EQ(spar::sum{}(integers{{INT32_MAX, 1}}, integers{{1, 2}}), (integers{{INT32_MIN, 3}})); // wraps
  EXPECT_EQ(spar::product::neutral<integers>(), (integers{{1, 1}}));
  EXPECT_EQ(spar::minimum::neutral<floats>(), (floats{{infinite, infinite}}));
  EXPECT_EQ(spar::maximum::neutral<integers>(), (integers{{INT32_MIN, INT32_MIN}}));
#if SPAR_ALL_CASES
  for (const spar::rank_t ranks : some_ranks) {
    expect_reduced<float, 8, spar::minimum>(ranks, 100, spar::sparcml{}, [](auto x, auto y) { return std::min(x, y); });
    expect_reduced<float, 8, spar::maximum>(ranks, 100, spar::sparcml{}, [](auto x, auto y) { return std::max(x, y); });
    expect_reduced<double, 8, spar::product>(ranks, 100, spar::sparcml{}, [](auto x, auto y) { return x * y; });
  }
#endif
}

/// A reference of the order of rows: the norm in extended precision; NaN last.
template <std::size_t W, class T>
long double norm(const T* x) {
  long double sum = 0;
  for (std::size_t w = 0; w < W; ++w) sum += static_cast<long double>(x[w]) * static_cast<long double>(x[w]);
  return std::isnan(sum) ? std::numeric_limits<long double>::infinity() : sum; // the tests have no infinite norms
}

/// The rows of largest norm, of equal ones the first.
template <std::size_t W, class T>
std::vector<std::size_t> largest_rows(const std::vector<T>& x, std::size_t k) {
  std::vector<std::size_t> order(x.size() / W);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return norm<W>(&x[a * W]) > norm<W>(&x[b * W]); });
  while (!order.empty() && (order.size() > k || norm<W>(&x[order.back() * W]) == 0)) order.pop_back();
  std::sort(order.begin(), order.end());
  return order;
}

template <class T, std::size_t W, class Select>
void expect_largest(std::size_t count, std::size_t k, std::uint64_t nonzero, const Select& select) {
  SCOPED_TRACE(testing::Message() << count << " rows of " << W << ", k = " << k);
  spar::pool memory;
  auto x = whole_numbers<T, W>(1, count, nonzero)[0]; // small numbers, so that many norms are equal
  if (count > 20) {
    if (std::numeric_limits<T>::has_quiet_NaN) x[7 * W + W / 2] = std::numeric_limits<T>::quiet_NaN();
    for (std::size_t w = 0; w < W; ++w) x[9 * W + w] = static_cast<T>(-0.0);
  }
  const auto before = x;
  const auto chosen = select(spar::rows<W>(x), memory);
  const auto expected = largest_rows<W>(before, k);
  ASSERT_EQ(chosen.count(), expected.size());
  for (std::size_t e = 0; e < expected.size(); ++e) {
    ASSERT_EQ(chosen.indices()[e], expected[e]);
    ASSERT_EQ(std::memcmp(chosen.values()[e].values, &before[expected[e] * W], W * sizeof(T)), 0);
    for (std::size_t w = 0; w < W; ++w)
      ASSERT_EQ(std::exchange(x[expected[e] * W + w], before[expected[e] * W + w]), T{});
  }
  ASSERT_EQ(std::memcmp(x.data(), before.data(), x.size() * sizeof(T)), 0) << "other rows have changed";
}

TEST(rows, are_selected_by_their_norms) {
  const auto by = [](std::size_t k) {
    return [k](auto x, spar::pool& memory) { return spar::select(spar::selector::exact_topk{.k = k}, x, memory); };
  };
  for (const std::size_t count : {0U, 1U, 25U, 300U, 20000U}) {
    for (const std::size_t k : {std::size_t{0}, count / 50, count / 3, count}) {
      expect_largest<float, 8>(count, k, 40, by(k));
      expect_largest<std::int32_t, 2>(count, k, 40, by(k));
      expect_largest<double, 1>(count, k, 90, by(k));
    }
  }
  expect_largest<float, 4>(
      500, 500, 30, [](auto x, spar::pool& memory) { return spar::select(spar::selector::nonzeros{}, x, memory); });
}

TEST(rows, that_are_not_finite_rank_above_all_others) {
  const auto m = [](float a, float b) { return spar::kernel::magnitude_of(spar::row<float, 2>{{a, b}}); };
  const float tiny = std::numeric_limits<float>::denorm_min(), huge = std::numeric_limits<float>::max();
  EXPECT_EQ(m(0, -0.0F), 0U);
  EXPECT_LT(0U, m(0, tiny));
  EXPECT_LT(m(0, tiny), m(tiny, tiny));
  EXPECT_LT(m(3, 3), m(-3, 4));
  EXPECT_EQ(m(3, 4), m(-5, 0));
  EXPECT_LT(m(huge, 0), m(huge, huge));
  EXPECT_LT(m(huge, huge), m(0, -infinite));
  EXPECT_EQ(m(infinite, 1), m(infinite, -infinite));
  EXPECT_LT(m(infinite, infinite), m(0, nan_value));
  EXPECT_EQ(m(nan_value, 0), m(-nan_value, infinite));
  EXPECT_EQ(m(nan_value, 0), (spar::kernel::greatest_magnitude<spar::row<float, 2>>));
  // Squares of doubles may overflow or underflow.
  const auto d = [](double a, double b) { return spar::kernel::magnitude_of(spar::row<double, 2>{{a, b}}); };
  EXPECT_EQ(d(0, 1e-200), 1U);
  EXPECT_EQ(d(0, -0.0), 0U);
  EXPECT_EQ(d(1e200, 1), d(0, std::numeric_limits<double>::infinity()));
}

/// Calls of error feedback: the sums of all calls by rank, and the residuals.
template <class Reducer>
struct feedback_program {
  by_rank<float>* x; // of all calls; the sums afterwards
  std::vector<std::vector<std::byte>>* saved;
  Reducer start;
  int calls;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    using T = typename Reducer::value_type;
    const auto rank = static_cast<std::size_t>(net.rank());
    Reducer reduce(start.algorithm());
    const std::span<float> all((*x)[rank]);
    const std::size_t length = all.size() / static_cast<std::size_t>(calls);
    for (std::size_t at = 0; at < all.size(); at += length) {
      const auto part = all.subspan(at, length);
      const std::span<T> values(reinterpret_cast<T*>(part.data()), length * sizeof(float) / sizeof(T));
      auto call = reduce.start(net, values);
      co_await std::move(call);
    }
    const auto residual = std::as_bytes(reduce.residual());
    (*saved)[rank].assign(residual.begin(), residual.end());
  }
};
template <class T, class Composition>
auto fed_back(spar::rank_t ranks, by_rank<float>& x, const Composition& algorithm, int calls) {
  std::vector<std::vector<std::byte>> saved(x.size());
  using reducer = spar::error_feedback<T, Composition>;
  run(mode::sim, ranks, feedback_program<reducer>{&x, &saved, reducer(algorithm), calls});
  return saved;
}

template <class Composition>
void expect_plain_bits(const Composition& algorithm) {
  constexpr int calls = 4;
  for (const spar::rank_t ranks : some_ranks) {
    SCOPED_TRACE(testing::Message() << Composition::name << ", P = " << ranks);
    by_rank<float> plain(static_cast<std::size_t>(ranks), std::vector<float>(calls * 900));
    std::mt19937_64 random(5);
    for (auto& x : plain)
      for (float& value : x)
        value = std::ldexp(static_cast<float>(random() % 2001) - 1000, -static_cast<int>(random() % 20));
    plain[0][30] = nan_value, plain[0][31] = infinite;
    auto rows = plain;
    const auto residual = fed_back<float>(ranks, plain, algorithm, calls);
    ASSERT_EQ((fed_back<spar::row<float, 1>>(ranks, rows, algorithm, calls)), residual);
    for (std::size_t r = 0; r < plain.size(); ++r)
      ASSERT_EQ(std::memcmp(rows[r].data(), plain[r].data(), plain[r].size() * sizeof(float)), 0);
  }
}

#if SPAR_ALL_CASES
TEST(rows, of_one_value_are_plain_values) {
  expect_plain_bits(
      spar::compose(spar::selector::threshold_reuse{.k = 40}, spar::storage::coded<>{}, spar::balanced_owners{}));
  expect_plain_bits(spar::compose(spar::selector::exact_topk{.k = 40}, spar::tree_of_topk{}));
  expect_plain_bits(
      spar::compose(spar::selector::bucket_topk{.k = 3, .bucket = 50}, spar::storage::coded<7>{}, spar::ssar_split{}));
}
#endif

/// Whole numbers, so that sums are exact: the sums of all calls and all residuals add up to all inputs.
template <std::size_t W, class Composition>
void expect_nothing_lost(const Composition& algorithm, double tolerance = 0) {
  constexpr int calls = 4;
  constexpr std::size_t count = 500;
  for (const spar::rank_t ranks : some_ranks) {
    SCOPED_TRACE(testing::Message() << Composition::name << ", P = " << ranks);
    auto x = whole_numbers<float, W>(ranks, calls * count, 50);
    std::vector<double> given(count * W), got(count * W);
    for (const auto& of_rank : x)
      for (std::size_t i = 0; i < of_rank.size(); ++i) given[i % (count * W)] += static_cast<double>(of_rank[i]);
    const auto residuals = fed_back<spar::row<float, W>>(ranks, x, algorithm, calls);
    for (std::size_t i = 0; i < x[0].size(); ++i) got[i % (count * W)] += static_cast<double>(x[0][i]);
    std::size_t rows_left = 0;
    for (std::size_t r = 0; r < x.size(); ++r) {
      ASSERT_EQ(std::memcmp(x[r].data(), x[0].data(), x[0].size() * sizeof(float)), 0) << "rank " << r << " differs";
      std::vector<float> residual(count * W);
      ASSERT_EQ(residuals[r].size(), residual.size() * sizeof(float));
      std::memcpy(residual.data(), residuals[r].data(), residuals[r].size());
      for (std::size_t i = 0; i < residual.size(); ++i) got[i] += static_cast<double>(residual[i]);
      for (std::size_t i = 0; i < residual.size(); i += W) rows_left += norm<W>(&residual[i]) > 0 ? 1U : 0U;
    }
    for (std::size_t i = 0; i < given.size(); ++i) ASSERT_NEAR(got[i], given[i], tolerance) << i;
    std::size_t rows_in_sums = 0;
    for (std::size_t i = 0; i < x[0].size(); i += W) rows_in_sums += norm<W>(&x[0][i]) > 0 ? 1U : 0U;
    EXPECT_GT(rows_left, 0U) << "nothing stayed in the residuals, so the test checks nothing";
    EXPECT_GT(rows_in_sums, 0U);
    // Each rank selects at most 2 k + k / 10 rows, and at most as many are in the sum of a call.
    EXPECT_LE(rows_in_sums, calls * x.size() * 105U);
  }
}

TEST(rows, that_are_not_selected_stay_in_the_residual) {
  expect_nothing_lost<8>(
      spar::compose(spar::selector::threshold_reuse{.k = 50}, spar::storage::coded<>{}, spar::balanced_owners{}));
  expect_nothing_lost<8>(
      spar::compose(spar::selector::exact_topk{.k = 50}, spar::storage::coded<4>{}, spar::ssar_split{}), 1e-3);
#if SPAR_ALL_CASES
  expect_nothing_lost<3>(
      spar::compose(spar::selector::exact_topk{.k = 50}, spar::storage::coded<>{}, spar::tree_of_topk{}));
  expect_nothing_lost<3>(
      spar::compose(spar::selector::exact_topk{.k = 50}, spar::storage::coded<4>{}, spar::recursive_doubling{}), 1e-3);
  expect_nothing_lost<3>(
      spar::compose(spar::selector::exact_topk{.k = 50}, spar::storage::coded<4>{}, spar::gather_and_merge{}), 1e-3);
  for_each_model(all_selectors, [&]<class Selector>(const model<Selector>& by) {
    if constexpr (spar::selects<Selector, spar::row<float, 2>, std::uint32_t> && spar::selector_with_bounds<Selector>)
      expect_nothing_lost<2>(spar::compose(by.part, spar::storage::coo{}, spar::quantile_owners{}));
  });
#endif
}

#if SPAR_ALL_CASES
struct tree_program {
  by_rank<float>* x;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const spar::tree_plans plans(two_hosts(net.size()));
    const auto rows = spar::rows<8>((*x)[static_cast<std::size_t>(net.rank())]);
    const auto chains =
        spar::compose(spar::selector::nonzeros{}, spar::storage::coded<>{}, spar::on_tree(plans), spar::chains{});
    auto first = spar::start_allreduce(net, rows, chains);
    co_await std::move(first);
    const auto owners = spar::compose(spar::selector::nonzeros{}, spar::storage::coded<>{}, spar::on_tree(plans),
                                      spar::quantile_owners{});
    auto second = spar::start_allreduce(net, rows, owners);
    co_await std::move(second);
  }
};
TEST(rows, are_summed_on_trees) {
  for (const spar::rank_t ranks : some_ranks) {
    const auto before = whole_numbers<float, 8>(ranks, 300, 20);
    auto x = before;
    run(mode::sim, ranks, tree_program{&x});
    for (std::size_t i = 0; i < x[0].size(); ++i) {
      float all = 0;
      for (const auto& of_rank : before) all += of_rank[i];
      for (std::size_t r = 0; r < x.size(); ++r) ASSERT_EQ(x[r][i], all * static_cast<float>(ranks));
    }
  }
}
#endif

TEST(rows, turn_dense_when_dense_rows_take_fewer_bytes) {
  using eight = spar::row<float, 8>;
  EXPECT_EQ((spar::dense_threshold<eight, std::uint32_t>(900)), 800U); // 32 of 36 bytes
  EXPECT_EQ((spar::storage::coded<>::delta<eight, std::uint32_t>(2560)), 2550U);
  EXPECT_EQ((spar::storage::coo::bound<eight, std::uint32_t>({0, 100}, 10)), 360U);
}

TEST(rows, are_encoded_like_as_many_values) {
  using eight = spar::row<float, 8>;
  const auto x = whole_numbers<float, 8>(1, 300, 100)[0];
  std::vector<std::uint32_t> indices(300);
  for (std::size_t e = 0; e < indices.size(); ++e) indices[e] = static_cast<std::uint32_t>(e * e + 1);
  const spar::index_range range{0, 100000};
  const spar::storage::coded<10> codec;
  std::vector<std::byte> bytes(codec.bound<eight, std::uint32_t>(range, 300));
  bytes.resize(codec.encode(spar::coo_span<eight, std::uint32_t>{indices, spar::rows<8>(x)}, range, bytes));
  EXPECT_LT(bytes.size(), 300 * (8 * (1 + 10 + 5) + 13) / 8U); // sign, mantissa and a part of the exponent; index
  const std::size_t in_memory = 300 * (sizeof(eight) + sizeof(std::uint32_t)), index_blocks = 2, value_blocks = 10;
  const std::size_t most = in_memory + index_blocks + value_blocks + 2 + 4 + 4; // docs/reference/costs.md
  const spar::storage::coded<> exact;
  std::vector<std::byte> room(exact.bound<eight, std::uint32_t>(range, 300));
  EXPECT_EQ(room.size(), most + 52);
  std::vector<eight> any(300);
  std::mt19937_64 random(3);
  for (float& value : spar::components(std::span(any))) value = std::bit_cast<float>(static_cast<unsigned>(random()));
  EXPECT_LE(exact.encode(spar::coo_span<eight, std::uint32_t>{indices, any}, range, room), most);
  std::vector<std::uint32_t> same_indices(300);
  std::vector<eight> same(300);
  codec.decode<eight, std::uint32_t>(bytes, range, {same_indices, same});
  EXPECT_EQ(same_indices, indices);
  EXPECT_EQ(std::memcmp(same.data(), x.data(), x.size() * sizeof(float)), 0); // whole numbers have short mantissas
  bytes.pop_back();
  EXPECT_THROW((codec.decode<eight, std::uint32_t>(bytes, range, {same_indices, same})), spar::corrupt_message);
}

/// Makes a call with rows of W values on rank 0 and another one on rank 1. Returns the error that a rank finds.
template <class First, class Second>
std::string mismatch_of(First first, Second second) {
  std::string found;
  try {
    spar::thread_group ranks(2);
    ranks.run([&](spar::threads& net) { net.rank() == 0 ? first(net) : second(net); });
  } catch (const spar::error& e) {
    found = e.what();
  }
  return found;
}

TEST(rows, of_another_width_on_another_rank_are_a_mismatch) {
  const auto call = []<std::size_t W>(std::integral_constant<std::size_t, W>, std::size_t values) {
    return [values](spar::threads& net) {
      std::vector<float> x(values);
      spar::allreduce(net, spar::rows<W>(x), spar::ring{});
    };
  };
  const auto plain = [](spar::threads& net) {
    std::vector<float> x(80);
    spar::allreduce(net, x, spar::ring{});
  };
  const auto eight = call(std::integral_constant<std::size_t, 8>{}, 80);
  const std::integral_constant<std::size_t, 4> four{};
  for (const std::size_t values : {40U, 80U}) { // as many rows, or as many values
    const std::string widths = mismatch_of(eight, call(four, values));
    EXPECT_NE(widths.find("sum of rows of 8 values"), widths.npos) << widths;
    EXPECT_NE(widths.find("sum of rows of 4 values"), widths.npos) << widths;
  }
  const std::string types = mismatch_of(eight, plain);
  EXPECT_NE(types.find("has rows of float"), types.npos) << types;
  const std::string dimensions = mismatch_of(eight, [](spar::threads& net) {
    std::vector<float> x(160);
    spar::allreduce(net, spar::rows<8>(x), spar::ring{});
  });
  EXPECT_NE(dimensions.find("the dimension n"), dimensions.npos) << dimensions;
}

TEST(rows, in_a_residual_are_saved_with_their_width) {
  const auto algorithm = spar::compose(spar::selector::exact_topk{.k = 1}, spar::ssar_split{});
  auto eight = spar::with_error_feedback<spar::row<float, 8>>(algorithm);
  std::vector<float> x(80);
  std::iota(x.begin(), x.end(), 1.0F);
  spar::thread_group alone(1);
  alone.run([&](spar::threads& net) { eight(net, spar::rows<8>(x)); });
  auto again = spar::with_error_feedback<spar::row<float, 8>>(algorithm);
  again.load(eight.save());
  ASSERT_EQ(again.residual().size(), 10U);
  EXPECT_EQ(again.residual()[0][7], 8.0F);
  EXPECT_EQ(again.residual()[9], (spar::row<float, 8>{}));
  try {
    spar::with_error_feedback<spar::row<float, 4>>(algorithm).load(eight.save());
    FAIL() << "no error";
  } catch (const spar::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "the saved residual has rows of 8 values, but this reducer has rows of 4");
  }
  EXPECT_THROW(spar::with_error_feedback<float>(algorithm).load(eight.save()), spar::invalid_argument);
  x[20] = nan_value;
  auto rejecting = spar::with_error_feedback<spar::row<float, 8>>(algorithm, {.reject_nan = true});
  alone.run([&](spar::threads& net) { EXPECT_THROW(rejecting(net, spar::rows<8>(x)), spar::invalid_argument); });
}

TEST(rows, of_weights_take_the_same_steps) {
  spar::thread_group ranks(2);
  ranks.run([](spar::threads& net) {
    std::vector<float> plain(80, 1.0F), rows = plain, gradient(80);
    for (std::size_t i = 0; i < gradient.size(); ++i)
      gradient[i] = static_cast<float>(i) + static_cast<float>(net.rank());
    auto copy = gradient;
    spar::sgd_step(net, plain, gradient, 0.25F, spar::ring{});
    spar::sgd_step(net, spar::rows<8>(rows), spar::rows<8>(copy), 0.25F, spar::ring{});
    EXPECT_EQ(rows, plain);
    auto reduce = spar::with_error_feedback<spar::row<float, 8>>(
        spar::compose(spar::selector::exact_topk{.k = 2}, spar::ssar_split{}));
    std::fill(copy.begin(), copy.end(), 1.0F);
    copy[8] = 5, copy[79] = 6;
    const auto expected = [&](std::size_t i) { return plain[i] - (i / 8 == 1 || i / 8 == 9 ? 0.5F * copy[i] : 0.0F); };
    std::vector<float> due(80);
    for (std::size_t i = 0; i < due.size(); ++i) due[i] = expected(i);
    spar::sgd_step(net, spar::rows<8>(rows), spar::rows<8>(copy), 0.5F, reduce);
    EXPECT_EQ(rows, due);
  });
}

} // namespace
} // namespace spar_test
