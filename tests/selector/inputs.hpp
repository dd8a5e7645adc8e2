// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Vectors for the tests of selectors, and the expected selections, by sorting.
#pragma once

#include <spar/selector/selector.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace selector_test {

using index32 = std::uint32_t;

/// A type in a class: GoogleTest needs type_info, which g++ 12 lacks for half.
template <class T>
struct of {
  using type = T;
};
using elements = testing::Types<of<float>, of<double>, of<std::int32_t>, of<std::int64_t>, of<std::uint32_t>,
#ifdef SPAR_HAS_HALF
                                of<spar::half>,
#endif
                                of<std::uint64_t>>;

template <class T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// The magnitude, exact for all elements; an infinity counts less than NaN.
template <class T>
long double size_of_value(T x) {
  const auto wide = static_cast<long double>(x);
  if (wide != wide) return std::numeric_limits<long double>::infinity();
  const long double size = wide < 0 ? -wide : wide;
  return std::min(size, std::numeric_limits<long double>::max());
}

enum class kind { mixed, normal, few_values, constant, zeros, mostly_zeros, extremes, neighbours };
inline constexpr kind kinds[] = {kind::mixed, kind::normal,       kind::few_values, kind::constant,
                                 kind::zeros, kind::mostly_zeros, kind::extremes,   kind::neighbours};

template <class T>
std::vector<T> special_values() {
  std::vector<T> values{T{}, T{1}, T{2}, static_cast<T>(100)};
  if constexpr (spar::is_floating<T>) {
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double v : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), -0.0, -1.0, 6e-8, 65504.0})
      values.push_back(static_cast<T>(v));
    T least{}; // a denormal
    const unsigned char one = 1;
    std::memcpy(&least, &one, 1);
    values.push_back(least);
  } else {
    values.push_back(std::numeric_limits<T>::min());
    values.push_back(std::numeric_limits<T>::max());
    values.push_back(static_cast<T>(std::numeric_limits<T>::min() + 1));
    values.push_back(static_cast<T>(-1));
  }
  return values;
}

template <class T>
std::vector<T> make_input(std::size_t n, kind which, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto special = special_values<T>();
  std::vector<T> x(n);
  const auto some = [&] {
    const double scaled = 1000 * normal(random);
    return std::is_unsigned_v<T> ? static_cast<T>(scaled < 0 ? -scaled : scaled) : static_cast<T>(scaled);
  };
  for (T& value : x) {
    switch (which) {
    case kind::mixed:
      value = random() % 3 == 0 ? special[random() % special.size()] : some();
      break;
    case kind::normal:
      value = some();
      break;
    case kind::few_values:
      value = static_cast<T>(random() % 4);
      break;
    case kind::constant:
      value = T{3};
      break;
    case kind::zeros:
      break;
    case kind::mostly_zeros:
      value = random() % 200 == 0 ? some() : T{};
      break;
    case kind::extremes:
      value = special[random() % special.size()];
      break;
    case kind::neighbours: { // differ in the lowest bits, or are equal
      const auto lowest = static_cast<unsigned char>(random() % 16);
      value = T{1};
      std::memcpy(&value, &lowest, 1);
      break;
    }
    }
  }
  return x;
}

/// The indices of all nonzeros, the largest first; of equal values the lowest index first.
template <class T>
std::vector<index32> ranking(std::span<const T> x) {
  std::vector<index32> order(x.size());
  std::iota(order.begin(), order.end(), index32{0});
  std::erase_if(order, [&](index32 i) { return x[i] == T{}; });
  std::vector<long double> sizes;
  for (const T value : x) sizes.push_back(size_of_value(value));
  std::stable_sort(order.begin(), order.end(), [&](index32 a, index32 b) { return sizes[a] > sizes[b]; });
  return order;
}

/// The first k indices of a ranking, in ascending order.
inline std::vector<index32> first_of(const std::vector<index32>& order, std::uint64_t k) {
  std::vector<index32> chosen(order.begin(),
                              order.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(k, order.size())));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

template <class T, class Index>
std::vector<index32> indices_of(const spar::sparse_stream<T, Index>& s) {
  return {s.indices().begin(), s.indices().end()};
}

/// Each entry is either selected with its bits and zero in the residual, or unchanged in the residual.
template <class T>
void expect_moved(std::span<const T> before, std::span<const T> residual,
                  const spar::sparse_stream<T, index32>& selected) {
  ASSERT_FALSE(selected.is_dense());
  ASSERT_NO_THROW(spar::validate(selected.view()));
  ASSERT_EQ(selected.dimension(), before.size());
  std::size_t e = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (e < selected.count() && selected.indices()[e] == i) {
      ASSERT_TRUE(same_bits(selected.values()[e], before[i])) << "index " << i;
      ASSERT_TRUE(same_bits(residual[i], T{})) << "index " << i << " is still in the residual";
      ASSERT_TRUE(before[i] != T{}) << "a zero was selected";
      ++e;
    } else {
      ASSERT_TRUE(same_bits(residual[i], before[i])) << "index " << i << " has changed";
    }
  }
  ASSERT_EQ(e, selected.count());
}

/// Calls a selector, or one with its state.
template <class Selector, class T>
spar::sparse_stream<T, index32> select_by(Selector& by, std::span<T> x, spar::pool& memory) {
  if constexpr (requires { by.now; })
    return spar::select(by.options, x, memory, by.now);
  else
    return spar::select(by, x, memory);
}

/// Runs a selector on a copy of `input` that lies `offset` elements behind an aligned address, and checks that the
/// selector only moves entries. Returns the selected indices.
template <class T, class Selector>
std::vector<index32> take(Selector& by, std::span<const T> input, spar::pool& memory, std::size_t offset = 0) {
  std::vector<T> room(offset);
  room.insert(room.end(), input.begin(), input.end());
  const auto x = std::span<T>(room).subspan(offset);
  const auto selected = select_by(by, x, memory);
  expect_moved<T>(input, x, selected);
  return indices_of(selected);
}

} // namespace selector_test
