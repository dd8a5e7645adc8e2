// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shared by the tests of the local kernels: streams, random patterns, and references on std::map.
#pragma once

#include <spar/core/coo_span.hpp>
#include <spar/core/op.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace kernel_test {

/// Neither commutative nor associative, so a result shows the places of the operands and the order of the fold.
struct skew {
  static constexpr std::string_view name = "skew";
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) * 31u) + static_cast<U>(b));
    } else {
      return static_cast<T>(a * T(0.5) + b);
    }
  }
  template <class T>
  static constexpr T neutral() {
    return T{};
  }
};
static_assert(spar::reduction<skew, float> && spar::reduction<skew, std::int64_t>);

template <class T, class Index>
struct pair_of {
  using value = T;
  using index = Index;
};
#ifndef SPAR_ALL_CASES
#error "tests of all_pairs are EXTENDED in tests/CMakeLists.txt"
#elif SPAR_ALL_CASES
using all_pairs = ::testing::Types<pair_of<float, std::uint32_t>, pair_of<double, std::uint32_t>,
                                   pair_of<std::int32_t, std::uint32_t>, pair_of<std::int64_t, std::uint32_t>,
                                   pair_of<float, std::uint64_t>, pair_of<double, std::uint64_t>,
                                   pair_of<std::int32_t, std::uint64_t>, pair_of<std::int64_t, std::uint64_t>>;
#else
using all_pairs = ::testing::Types<pair_of<float, std::uint32_t>, pair_of<double, std::uint64_t>,
                                   pair_of<std::int32_t, std::uint64_t>, pair_of<std::int64_t, std::uint32_t>>;
#endif

template <class T, class Index>
using reference = std::map<Index, T>;

template <class T, class Index>
struct entries {
  std::vector<Index> indices;
  std::vector<T> values;
  entries() = default;
  explicit entries(const reference<T, Index>& from) {
    for (const auto& [index, value] : from) {
      indices.push_back(index);
      values.push_back(value);
    }
  }
  spar::coo_span<T, Index> view() const { return {std::span<const Index>(indices), std::span<const T>(values)}; }
};

/// Compares bits, except that any NaN equals any other NaN.
template <class T>
bool same(T a, T b) {
  if (a != a || b != b) return a != a && b != b;
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T, class Index>
void expect_entries(const Index* indices, const T* values, std::size_t count, const reference<T, Index>& expected) {
  ASSERT_EQ(count, expected.size());
  std::size_t e = 0;
  for (const auto& [index, value] : expected) {
    ASSERT_EQ(indices[e], index) << "entry " << e;
    ASSERT_TRUE(same(values[e], value)) << "entry " << e << ": " << +values[e] << " for " << +value;
    ++e;
  }
}

/// A random value; now and then one of the values that kernels easily mishandle.
template <class T>
T random_value(std::mt19937_64& random) {
  if constexpr (std::is_integral_v<T>) {
    if (random() % 16 == 0) return random() % 2 == 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
    return static_cast<T>(random());
  } else {
    using limits = std::numeric_limits<T>;
    const T special[] = {limits::quiet_NaN(),
                         limits::infinity(),
                         -limits::infinity(),
                         T(0),
                         -T(0),
                         limits::denorm_min(),
                         -limits::denorm_min(),
                         T(1e-30),
                         limits::max(),
                         limits::lowest()};
    if (random() % 16 == 0) return special[random() % 10];
    return static_cast<T>(std::ldexp(static_cast<double>(random() % (1u << 24)), static_cast<int>(random() % 9) - 28)) *
           (random() % 2 == 0 ? T(1) : T(-1));
  }
}

/// About `count` entries in [begin, begin + range), either scattered or in runs of up to `run`.
template <class T, class Index>
reference<T, Index> random_entries(std::mt19937_64& random, std::uint64_t begin, std::uint64_t range, std::size_t count,
                                   std::uint64_t run) {
  reference<T, Index> map;
  for (std::size_t made = 0; made < count;) {
    const std::uint64_t first = random() % range, length = 1 + random() % run;
    for (std::uint64_t e = first; e < first + length && e < range && made < count; ++e, ++made)
      map[static_cast<Index>(begin + e)] = random_value<T>(random);
  }
  return map;
}

/// A left fold in the order of the parts.
template <class T, class Index, class Op>
reference<T, Index> fold(const std::vector<reference<T, Index>>& parts, Op op) {
  reference<T, Index> result;
  for (const auto& part : parts) {
    for (const auto& [index, value] : part) {
      const auto [at, fresh] = result.try_emplace(index, value);
      if (!fresh) at->second = op(at->second, value);
    }
  }
  return result;
}

} // namespace kernel_test
