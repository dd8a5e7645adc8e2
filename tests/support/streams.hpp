// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The contributions of ranks in the tests, an independent computation of their sum, and the comparison of the two.
#pragma once

#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace spar_test {

/// One rank's input.
template <spar::element T, spar::index_type Index>
struct contribution {
  std::uint64_t n = 0;
  std::vector<Index> indices;
  std::vector<T> values;
  bool dense = false;

  [[nodiscard]] spar::stream_view<T, Index> view() const {
    return dense ? spar::dense_view<Index>(values) : spar::sparse_view(n, indices, values);
  }
};

/// Where each rank's entries lie.
enum class pattern {
  empty,      ///< no rank has any entry
  one,        ///< one rank has one entry
  identical,  ///< every rank has the same indices
  disjoint,   ///< no index is on two ranks; together, the ranks have nearly all indices
  random,     ///< a tenth of the indices, uniformly distributed
  clustered,  ///< one run of indices
  some_empty, ///< every third rank has entries
  full,       ///< k = n, as coordinates
  dense,      ///< a dense stream, half of it zeros
  mixed       ///< dense and sparse streams alternate
};
inline constexpr pattern all_patterns[] = {pattern::empty,  pattern::one,       pattern::identical,  pattern::disjoint,
                                           pattern::random, pattern::clustered, pattern::some_empty, pattern::full,
                                           pattern::dense,  pattern::mixed};

inline std::ostream& operator<<(std::ostream& out, pattern p) {
  constexpr const char* names[] = {"empty",     "one",        "identical", "disjoint", "random",
                                   "clustered", "some empty", "full",      "dense",    "mixed"};
  return out << names[static_cast<int>(p)];
}

/// Small integers, whose sums are exact in every type, also in half; a row of them if T is a row.
template <class T>
T exact_value(std::mt19937_64& random) {
  constexpr int choices[] = {-3, -2, -1, 1, 2, 3, 4};
  if constexpr (spar::is_row<T>) {
    T row;
    for (auto& value : row.values) value = exact_value<spar::component_of<T>>(random);
    return row;
  } else {
    return static_cast<T>(choices[random() % 7]);
  }
}
/// Few factors of two, so that products over 13 ranks are exact in every type.
template <class T>
T factor_value(std::mt19937_64& random) {
  constexpr int choices[] = {-1, 1, 1, 2};
  return static_cast<T>(choices[random() % 4]);
}
template <class T>
T positive_value(std::mt19937_64& random) {
  constexpr int choices[] = {2, 3, 4, 6, 12, 24};
  return static_cast<T>(choices[random() % 6]);
}
/// Both signs and six orders of magnitude, so that sums round.
template <class T>
T real_value(std::mt19937_64& random) {
  const double mantissa = static_cast<double>(random() % (1U << 24)) / (1U << 24) + 0.5;
  const double x = std::ldexp(mantissa, static_cast<int>(random() % 20) - 10);
  return static_cast<T>(random() % 2 == 0 ? x : -x);
}

template <spar::element T, spar::index_type Index, class Value>
std::vector<contribution<T, Index>> contributions(pattern p, spar::rank_t ranks, std::uint64_t n, std::uint64_t seed,
                                                  Value value) {
  std::vector<contribution<T, Index>> all(static_cast<std::size_t>(ranks));
  std::mt19937_64 shared(seed * 1000 + n);
  std::set<std::uint64_t> common;
  for (std::uint64_t e = 0; n > 0 && e < n / 8 + 1; ++e) common.insert(shared() % n);
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::mt19937_64 random(seed * 1'000'003 + r);
    auto& mine = all[r];
    mine.n = n;
    const auto add = [&](std::uint64_t index) {
      mine.indices.push_back(static_cast<Index>(index));
      mine.values.push_back(value(random));
    };
    const auto add_random = [&](std::uint64_t parts) {
      for (std::uint64_t i = 0; i < n; ++i)
        if (random() % parts == 0) add(i);
    };
    switch (p) {
    case pattern::empty:
      break;
    case pattern::one:
      if (n > 0 && r == all.size() / 2) add(n - 1);
      break;
    case pattern::identical:
      for (const auto index : common) add(index);
      break;
    case pattern::disjoint:
      for (std::uint64_t i = r; i < n; i += all.size()) add(i);
      break;
    case pattern::random:
      add_random(10);
      break;
    case pattern::clustered:
      if (n > 0) {
        const std::uint64_t begin = random() % n;
        for (std::uint64_t i = begin; i < std::min(n, begin + n / 5 + 1); ++i) add(i);
      }
      break;
    case pattern::some_empty:
      if (r % 3 == 1) add_random(4);
      break;
    case pattern::full:
      add_random(1);
      break;
    case pattern::dense:
    case pattern::mixed:
      if (p == pattern::mixed && r % 2 == 0) {
        add_random(6);
        break;
      }
      mine.dense = true;
      for (std::uint64_t i = 0; i < n; ++i) mine.values.push_back(random() % 2 == 0 ? T{} : value(random));
      break;
    }
  }
  return all;
}

/// The type in which the references are computed.
template <class T>
using wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

/// A user-defined operation: the greatest common divisor of positive whole numbers, with the neutral element 0 and no
/// inverse.
struct greatest_divisor {
  static constexpr std::string_view name = "greatest_divisor";
  template <class T>
  constexpr T operator()(T a, T b) const {
    return static_cast<T>(std::gcd(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)));
  }
  template <class T>
  static constexpr T neutral() {
    return T{};
  }
};

// References of the operations in the wide type, without the library.
template <class W>
W reference_of(spar::sum, W a, W b) {
  return a + b;
}
template <class W>
W reference_of(spar::product, W a, W b) {
  return a * b;
}
template <class W>
W reference_of(spar::minimum, W a, W b) {
  return std::min(a, b);
}
template <class W>
W reference_of(spar::maximum, W a, W b) {
  return std::max(a, b);
}
template <class W>
W reference_of(greatest_divisor, W a, W b) {
  return static_cast<W>(std::gcd(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)));
}

/// The result that all ranks should have.
template <class T>
struct expectation {
  std::vector<wide<T>> values; ///< by index
  std::vector<char> present;   ///< by index: whether any rank has an entry there
  std::vector<double> weight;  ///< by index: the sum of the magnitudes, to which rounding errors are relative
};

template <spar::element T, spar::index_type Index, class Op>
expectation<T> expected_of(const std::vector<contribution<T, Index>>& all, Op op) {
  const std::uint64_t n = all.front().n;
  expectation<T> result{std::vector<wide<T>>(n), std::vector<char>(n), std::vector<double>(n)};
  const auto add = [&](std::size_t i, T x) {
    const auto value = static_cast<wide<T>>(x);
    result.values[i] = result.present[i] != 0 ? reference_of(op, result.values[i], value) : value;
    result.present[i] = 1;
    result.weight[i] += std::abs(static_cast<double>(x));
  };
  for (const auto& mine : all) {
    for (std::size_t e = 0; e < mine.values.size(); ++e)
      add(mine.dense ? e : static_cast<std::size_t>(mine.indices[e]), mine.values[e]);
  }
  if constexpr (std::is_same_v<Op, spar::average>) {
    for (auto& x : result.values) x /= static_cast<wide<T>>(all.size());
  }
  return result;
}

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// Both streams have the same representation, indices, and bits.
template <class T, class Index>
testing::AssertionResult same_stream(const spar::sparse_stream<T, Index>& a, const spar::sparse_stream<T, Index>& b) {
  if (a.dimension() != b.dimension()) return testing::AssertionFailure() << a.dimension() << " != " << b.dimension();
  if (a.is_dense() != b.is_dense()) return testing::AssertionFailure() << "only one of the streams is dense";
  if (a.count() != b.count()) return testing::AssertionFailure() << a.count() << " != " << b.count() << " entries";
  if (!same_bits(a.indices(), b.indices())) return testing::AssertionFailure() << "indices differ";
  if (!same_bits(a.values(), b.values())) return testing::AssertionFailure() << "values differ";
  return testing::AssertionSuccess();
}

/// Checks that the results of all ranks are the same, that the stream is well formed, and that it equals `expected` to
/// within `bound(index)`.
template <class T, class Index, class Op, class Bound>
void expect_result(const std::vector<spar::sparse_stream<T, Index>>& results, const expectation<T>& expected, Op op,
                   const Bound& bound) {
  for (std::size_t r = 1; r < results.size(); ++r)
    ASSERT_TRUE(same_stream(results[0], results[r])) << "the results differ between rank 0 and rank " << r;
  const auto& result = results[0];
  ASSERT_EQ(result.dimension(), expected.values.size());
  ASSERT_NO_THROW(spar::validate(result.view()));
  const T neutral = op.template neutral<T>();
  std::vector<T> dense(expected.values.size());
  result.to_dense(dense, op);
  for (std::size_t i = 0; i < dense.size(); ++i) {
    const T exact = expected.present[i] != 0 ? static_cast<T>(expected.values[i]) : neutral;
    const double tolerance = bound(i);
    if (tolerance == 0) {
      ASSERT_TRUE(dense[i] == exact) << "index " << i << ": " << static_cast<double>(dense[i]) << ", expected "
                                     << static_cast<double>(exact);
    } else {
      ASSERT_NEAR(static_cast<double>(dense[i]), static_cast<double>(expected.values[i]), tolerance) << "index " << i;
    }
  }
}

inline constexpr auto exactly = [](std::size_t) { return 0.0; };

} // namespace spar_test
