// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The rules on NaN and infinities, in a program that is compiled with -ffast-math, whose own comparisons cannot see
// such values: the test makes them from bits, and looks at bits.
#include "support/models.hpp"

#include <spar/sim.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

template <class T>
using bits_of = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
template <class T>
constexpr bits_of<T> infinite = sizeof(T) == 8 ? bits_of<T>(0x7ff0000000000000) : bits_of<T>(0x7f800000);
/// NaN, and infinity, of which the compiler does not know that they are.
template <class T>
T nan() {
  volatile bits_of<T> bits = infinite<T> | (infinite<T> & -infinite<T>) / 2;
  return std::bit_cast<T>(static_cast<bits_of<T>>(bits));
}
template <class T>
T infinity(bool negative = false) {
  volatile bits_of<T> bits = infinite<T> | (negative ? ~(~bits_of<T>{} >> 1) : 0);
  return std::bit_cast<T>(static_cast<bits_of<T>>(bits));
}
template <class T>
bits_of<T> magnitude_bits(T x) {
  return std::bit_cast<bits_of<T>>(x) & (~bits_of<T>{} >> 1);
}
template <class T>
bool is_nan(T x) {
  return magnitude_bits(x) > infinite<T>;
}
template <class T>
bool is_infinite(T x) {
  return magnitude_bits(x) == infinite<T>;
}

template <class T>
void check_operations() {
  const T values[] = {nan<T>(), -nan<T>(), infinity<T>(), infinity<T>(true), T(0), -T(0), T(1), T(-2)};
  for (const T a : values) {
    for (const T b : values) {
      const T least = spar::minimum{}(a, b), most = spar::maximum{}(a, b);
      const bool none = !is_nan(a) && !is_nan(b);
      EXPECT_EQ(is_nan(least), !none);
      EXPECT_EQ(is_nan(most), !none);
      EXPECT_TRUE(is_nan(spar::sum{}(a, nan<T>())));
      if (!none) continue;
      const auto order = [](T x) { return is_infinite(x) ? std::signbit(x) ? -9.0 : 9.0 : static_cast<double>(x); };
      EXPECT_EQ(order(least), std::min(order(a), order(b)));
      EXPECT_EQ(order(most), std::max(order(a), order(b)));
    }
  }
}
TEST(fast_math, minimum_and_maximum_keep_nan) {
  check_operations<float>();
  check_operations<double>();
}

/// The sentence of the invalid_argument that `f` throws; empty if `f` throws none.
template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
  return {};
}

TEST(fast_math, numbers_are_checked) {
  spar::thread_group group(1);
  group.run([](spar::threads& net) {
    EXPECT_NE(error_of([&] { net.set_deadline(nan<double>()); }), "");
    EXPECT_NE(error_of([&] { net.set_deadline(infinity<double>(true)); }), "");
    EXPECT_EQ(error_of([&] { net.set_deadline(infinity<double>()); }), "");
    std::vector<float> x(10, 1);
    for (const double density : {nan<double>(), infinity<double>(), -1.0}) {
      EXPECT_NE(error_of([&] { spar::topka<float>{{.select = {.density = density}}}(net, x); }), "");
    }
  });
}

TEST(fast_math, reject_nan_rejects) {
  spar::thread_group group(1);
  group.run([](spar::threads& net) {
    std::vector<float> x(100, 1);
    x[3] = nan<float>();
    spar::topka<float> reduce{{.select = {.k = 1}}, {.reject_nan = true}};
    EXPECT_EQ(error_of([&] { reduce(net, x); }), "the value at index 3 is NaN, which the option reject_nan forbids");
    using row = spar::row<float, 2>;
    std::vector<row> rows(50, row{{1, 1}});
    rows[7][1] = nan<float>();
    auto of_rows = spar::with_error_feedback<row>(spar::compose(spar::selector::nonzeros{}), {.reject_nan = true});
    EXPECT_EQ(error_of([&] { of_rows(net, rows); }),
              "the value at index 7 is NaN, which the option reject_nan forbids");
  });
}

/// Reduces values of which one rank's at index 3 is NaN and at index 5 is infinite.
template <class T, class Composition>
void expect_kept(const Composition& by, std::string_view what) {
  SCOPED_TRACE(what);
  spar::thread_group group(3);
  group.run([&](spar::threads& net) {
    std::vector<T> x(64, T(net.rank()));
    if (net.rank() == 1) x[3] = nan<T>(), x[5] = infinity<T>(true);
    spar::allreduce(net, x, by);
    EXPECT_TRUE(is_nan(x[3]));
    EXPECT_TRUE(is_nan(x[5]) || is_infinite(x[5]));
  });
}
template <class T>
void check_storages_and_selectors() {
  using namespace spar_test;
  expect_kept<T>(spar::compose(spar::storage::qsgd<4>{.bucket = 8}, spar::ring{}), "qsgd");
  for_each_model(block_codecs, [](const auto& of) {
    auto store = of.part;
    if constexpr (requires { store.non_finite; }) store.non_finite = spar::storage::unsupported::exact;
    expect_kept<T>(spar::compose(store, spar::ring{}), of.name);
  });
  for_each_model(field_codecs, [](const auto& of) { expect_kept<T>(spar::compose(of.part, spar::ring{}), of.name); });
  for_each_model(code_storages, [](const auto& of) { expect_kept<T>(spar::compose(of.part, spar::ring{}), of.name); });
  for_each_model(stream_codecs, [](const auto& store) {
    expect_kept<T>(spar::compose(spar::selector::nonzeros{}, store.part, spar::dsar_split{}), store.name);
  });
  for_each_model(all_selectors, [](const auto& select) {
    expect_kept<T>(spar::compose(select.part, spar::ssar_split{}), select.name);
  });
}
TEST(fast_math, storages_and_selectors_keep_nan_and_infinities) {
  check_storages_and_selectors<float>();
#if SPAR_ALL_CASES
  check_storages_and_selectors<double>();
#endif
}

TEST(fast_math, rows_with_nan_rank_highest) {
  const spar::row<float, 2> row{{0, nan<float>()}};
  EXPECT_EQ(spar::kernel::magnitude_of(row), spar::kernel::greatest_magnitude<double>);
}

TEST(fast_math, a_dense_stream_keeps_nan_when_it_turns_sparse) {
  spar::pool memory;
  std::vector<float> x(10);
  x[4] = nan<float>();
  const auto sparse = spar::to_sparse(spar::dense_view(x), spar::sum{}, memory);
  ASSERT_EQ(sparse.count(), 1U);
  EXPECT_TRUE(is_nan(sparse.values()[0]));
  EXPECT_EQ(sparse.indices()[0], 4U);
}

/// The residual gets the rounding errors of finite values only.
TEST(fast_math, residuals_stay_finite) {
  const auto check = [](auto zero) {
    using T = decltype(zero);
    std::vector<T> residual(3, T(1));
    const std::vector<T> exact{T(3), infinity<T>(), nan<T>()}, decoded{T(2), infinity<T>(), nan<T>()};
    spar::kernel::add_difference(residual.data(), exact.data(), decoded.data(), 3);
    EXPECT_EQ(residual, (std::vector<T>{T(2), T(1), T(1)}));
  };
  check(0.0F), check(0.0);
}

struct patient {
  spar::task<void> operator()(spar::sim& net) const& {
    net.set_deadline(infinity<double>());
    if (net.rank() == 1) co_await net.sleep(1e9);
    std::vector<float> x(10, 1);
    auto call = spar::start_allreduce(net, x);
    co_await std::move(call);
    EXPECT_EQ(x, std::vector<float>(10, 2));
  }
};
TEST(fast_math, an_infinite_deadline_never_expires) {
  const patient program;
  spar::simulator network(2, {});
  network.run([&](spar::sim& rank) { return program(rank); });
  EXPECT_GE(network.time(), 1e9);
}

} // namespace
