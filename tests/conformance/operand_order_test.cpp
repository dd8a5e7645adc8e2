// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule fixes the order of operands. With an operation that does not commute, all ranks get the same result, and
// it is the result of the documented order.
#include "support/allreduce_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

namespace spar_test {

namespace {

/// Returns the left operand unless it is zero: associative, with a neutral element, but not commutative.
struct leftmost {
  static constexpr std::string_view name = "leftmost";
  template <class T>
  constexpr T operator()(T a, T b) const {
    return a != T{} ? a : b;
  }
  template <class T>
  static constexpr T neutral() {
    return T{};
  }
};

template <class T, class Index>
std::vector<allreduce_case<T, Index>> signed_cases(spar::rank_t ranks, const std::vector<pattern>& shapes) {
  auto cases = make_cases<T, Index>(ranks, {3, 100, 1000}, shapes, exact_value<T>);
  for (auto& call : cases) // each rank marks its values by their sign
    for (std::size_t r = 0; r < call.inputs.size(); ++r)
      for (T& x : call.inputs[r].values)
        if (x != T{}) x = static_cast<T>(r + 1);
  return cases;
}

template <class Algorithm>
class operand_order : public testing::Test {};
using algorithms = testing::Types<spar::recursive_doubling, spar::ring, spar::rabenseifner, spar::ssar_split,
                                  spar::dsar_split, spar::sparcml>;
TYPED_TEST_SUITE(operand_order, algorithms);

TYPED_TEST(operand_order, is_the_same_on_all_ranks) {
  using program = allreduce_program<float, std::uint32_t, TypeParam, leftmost>;
  for (const spar::rank_t ranks : {2, 3, 4, 5, 7, 8, 13}) {
    for (const mode where : {mode::threads, mode::sim_synchronous}) {
      auto cases = signed_cases<float, std::uint32_t>(ranks, {std::begin(all_patterns), std::end(all_patterns)});
      run(where, ranks, program{&cases});
      for (const auto& call : cases) {
        for (const auto& result : call.results) {
          ASSERT_TRUE(same_stream(call.results[0], result))
              << where << ", P = " << ranks << ", n = " << call.n << ", " << call.shape;
        }
      }
    }
  }
}

using order_of_ranks = std::vector<spar::rank_t>;

/// The order of ranks in which their shares of block b are merged, from left to right.
order_of_ranks ascending(spar::rank_t ranks, spar::rank_t) {
  order_of_ranks order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  return order;
}
/// A ring passes a block from its owner's right neighbour around to its owner.
order_of_ranks around_the_ring(spar::rank_t ranks, spar::rank_t block) {
  auto order = ascending(ranks, block);
  std::rotate(order.begin(), order.begin() + (block + 1) % ranks, order.end());
  return order;
}
/// Recursive halving merges the most distant ranks first: active ranks in the order of the reversed bits of their
/// numbers.
order_of_ranks by_halving(spar::rank_t ranks, spar::rank_t) {
  spar::rank_t active = 1;
  while (2 * active <= ranks) active *= 2;
  const spar::rank_t folded = ranks - active;
  order_of_ranks order;
  for (spar::rank_t place = 0; place < active; ++place) {
    spar::rank_t number = 0;
    for (spar::rank_t bit = 1; bit < active; bit *= 2)
      if ((place & bit) != 0) number |= active / 2 / bit;
    if (number < folded) order.push_back(2 * number);
    order.push_back(number < folded ? 2 * number + 1 : number + folded);
  }
  return order;
}
using order_of_block = order_of_ranks (*)(spar::rank_t ranks, spar::rank_t block);

/// The first nonzero value in this order of ranks; `value(rank)` is the value of a rank.
template <class Value>
std::int32_t leftmost_of(const order_of_ranks& order, const Value& value) {
  for (const spar::rank_t r : order)
    if (const std::int32_t x = value(static_cast<std::size_t>(r)); x != 0) return x;
  return 0;
}

template <class Algorithm>
void expect_order(order_of_block order) {
  using program = allreduce_program<std::int32_t, std::uint32_t, Algorithm, leftmost>;
  for (const spar::rank_t ranks : {2, 3, 4, 5, 7, 8, 13}) {
    // All streams of a case are of one kind: if a dense stream met a sparse one, the dense one would be the left
    // operand.
    auto cases = signed_cases<std::int32_t, std::uint32_t>(ranks, {pattern::identical, pattern::dense});
    for (auto& call : cases) { // few indices of many, and not all the same
      if (call.shape == pattern::dense) continue;
      call.n *= 100;
      for (std::size_t r = 0; r < call.inputs.size(); ++r) {
        auto& mine = call.inputs[r];
        mine.n = call.n;
        for (auto& i : mine.indices) i = i * 100 + static_cast<std::uint32_t>((i + r) % 3);
      }
    }
    run(mode::sim, ranks, program{&cases});
    for (const auto& call : cases) {
      std::vector<std::vector<std::int32_t>> inputs;
      for (const auto& mine : call.inputs) {
        inputs.emplace_back(call.n);
        mine.view().to_dense(inputs.back());
      }
      std::vector<std::int32_t> dense(call.n);
      call.results[0].to_dense(dense);
      const spar::uniform_ownership owner{call.n, ranks};
      for (spar::rank_t b = 0; b < ranks; ++b) {
        const auto ranks_in_order = order(ranks, b);
        for (std::uint64_t i = owner[b].begin; i < owner[b].end; ++i) {
          ASSERT_EQ(dense[i], leftmost_of(ranks_in_order, [&](std::size_t r) { return inputs[r][i]; }))
              << Algorithm::name << ", P = " << ranks << ", n = " << call.n << ", " << call.shape << ", index " << i;
        }
      }
    }
  }
}

TEST(documented_order, of_streams) {
  expect_order<spar::recursive_doubling>(ascending);
  expect_order<spar::ssar_split>(ascending);
  expect_order<spar::dsar_split>(ascending);
  expect_order<spar::ring>(around_the_ring);
  expect_order<spar::rabenseifner>(by_halving);
}

template <class Algorithm>
struct vector_program {
  std::vector<std::vector<std::int32_t>>* x;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const std::span<std::int32_t> mine((*x)[static_cast<std::size_t>(net.rank())]);
    auto pending = spar::start_allreduce(net, mine, Algorithm{}, leftmost{});
    co_await std::move(pending);
  }
};

template <class Algorithm>
void expect_vector_order(order_of_block order) {
  for (const spar::rank_t ranks : {2, 3, 4, 5, 7, 8, 13}) {
    constexpr std::size_t n = 100;
    std::vector<std::vector<std::int32_t>> x(static_cast<std::size_t>(ranks), std::vector<std::int32_t>(n));
    for (std::size_t r = 0; r < x.size(); ++r)
      for (std::size_t i = 0; i < n; ++i) x[r][i] = (i * 7 + r * 5) % 3 == 0 ? 0 : static_cast<std::int32_t>(r + 1);
    const auto before = x;
    run(mode::sim, ranks, vector_program<Algorithm>{&x});
    const spar::uniform_ownership owner{n, ranks};
    for (spar::rank_t b = 0; b < ranks; ++b) {
      for (std::uint64_t i = owner[b].begin; i < owner[b].end; ++i) {
        const std::int32_t expected = leftmost_of(order(ranks, b), [&](std::size_t r) { return before[r][i]; });
        for (const auto& mine : x)
          ASSERT_EQ(mine[i], expected) << Algorithm::name << ", P = " << ranks << ", index " << i;
      }
    }
  }
}

TEST(documented_order, of_dense_vectors) {
  expect_vector_order<spar::recursive_doubling>(ascending);
  expect_vector_order<spar::ring>(around_the_ring);
  expect_vector_order<spar::rabenseifner>(by_halving);
}

} // namespace
} // namespace spar_test
