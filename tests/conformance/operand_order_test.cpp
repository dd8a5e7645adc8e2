// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule fixes the order of operands. With an operation that does not commute, all ranks get the same result, and
// it is the result of the documented order. Sums of floats have the bits of the parentheses in docs/guarantees.md.
#include "support/allreduce_program.hpp"

#include <spar/collective/allreduce/gather_and_merge.hpp>
#include <spar/collective/topk/balanced_owners.hpp>
#include <spar/collective/topk/tree_of_topk.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
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
using algorithms = joined<testing::Types, stream_schedules>;
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
        mine.view().to_dense(inputs.back(), spar::sum{});
      }
      std::vector<std::int32_t> dense(call.n);
      call.results[0].to_dense(dense, spar::sum{});
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
  expect_order<spar::sparcml>(ascending); // all streams are short
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
  expect_vector_order<stored<spar::storage::dense, spar::two_shot>>(ascending);
  expect_vector_order<stored<spar::storage::dense, spar::one_shot>>(ascending);
}

// The parentheses of a sum: each function returns the sum at an index in the given block from the values of the ranks
// there. They add floats in the order that docs/guarantees.md gives for the algorithm.

float left_fold(std::span<const float> v) {
  float sum = v[0];
  for (const float x : v.subspan(1)) sum += x;
  return sum;
}
/// The values of the active ranks after the fold of the other ranks into their neighbours.
std::vector<float> folded(std::span<const float> v) {
  std::size_t active = 1;
  while (2 * active <= v.size()) active *= 2;
  const std::size_t extra = v.size() - active;
  std::vector<float> sums;
  for (std::size_t r = 0; r < 2 * extra; r += 2) sums.push_back(v[r] + v[r + 1]);
  sums.insert(sums.end(), v.begin() + static_cast<std::ptrdiff_t>(2 * extra), v.end());
  return sums;
}
float by_rank(std::span<const float> v, spar::rank_t) { return left_fold(v); }
float by_sixteen_ranks(std::span<const float> v, spar::rank_t) {
  std::vector<float> sums;
  for (std::size_t r = 0; r < v.size(); r += 16)
    sums.push_back(left_fold(v.subspan(r, std::min<std::size_t>(16, v.size() - r))));
  return left_fold(sums);
}
float around(std::span<const float> v, spar::rank_t block) {
  std::vector<float> ordered(v.begin(), v.end());
  const auto ranks = static_cast<spar::rank_t>(v.size());
  std::rotate(ordered.begin(), ordered.begin() + (block + 1) % ranks, ordered.end());
  return left_fold(ordered);
}
float neighbours_first(std::span<const float> v, spar::rank_t) {
  auto sums = folded(v);
  for (; sums.size() > 1; sums.resize(sums.size() / 2))
    for (std::size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  return sums[0];
}
float farthest_first(std::span<const float> v, spar::rank_t) {
  auto sums = folded(v);
  for (; sums.size() > 1; sums.resize(sums.size() / 2))
    for (std::size_t i = 0; i < sums.size() / 2; ++i) sums[i] += sums[i + sums.size() / 2];
  return sums[0];
}
float binomial(std::span<const float> v, spar::rank_t) {
  std::vector<float> sums(v.begin(), v.end());
  for (std::size_t distance = 1; distance < sums.size(); distance *= 2)
    for (std::size_t r = 0; r + distance < sums.size(); r += 2 * distance) sums[r] += sums[r + distance];
  return sums[0];
}
using parentheses = float (*)(std::span<const float> v, spar::rank_t block);

struct float_program {
  std::vector<std::vector<float>>* x;
  std::function<spar::task<void>(spar::any_transport&, std::span<float>)> call;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    return call(net, std::span((*x)[static_cast<std::size_t>(net.rank())]));
  }
};

template <class Algorithm>
struct call_of {
  Algorithm algorithm;
  spar::task<void> operator()(spar::any_transport& net, std::span<float> x) const {
    auto pending = spar::start_allreduce(net, x, algorithm);
    co_await std::move(pending);
  }
};

template <class Algorithm>
void expect_parentheses(const char* name, parentheses sum, const Algorithm& algorithm, double zeros = 0) {
  for (const spar::rank_t ranks : {1, 2, 3, 5, 8, 13, 17, 35}) {
    constexpr std::size_t n = 90;
    std::mt19937_64 random(static_cast<std::uint64_t>(ranks));
    std::vector<std::vector<float>> x(static_cast<std::size_t>(ranks), std::vector<float>(n));
    for (auto& mine : x)
      for (float& value : mine) {
        const double u = static_cast<double>(random() % 100000) / 100000;
        value = u < zeros ? 0 : static_cast<float>(std::ldexp(u - 0.5, static_cast<int>(random() % 12)));
      }
    const auto before = x;
    const call_of<Algorithm> call{algorithm};
    run(mode::sim, ranks, float_program{&x, call});
    const spar::uniform_ownership owner{n, ranks};
    for (spar::rank_t b = 0; b < ranks; ++b) {
      for (std::uint64_t i = owner[b].begin; i < owner[b].end; ++i) {
        std::vector<float> values;
        for (const auto& mine : before) values.push_back(mine[i]);
        const float expected = sum(values, b);
        for (const auto& mine : x) ASSERT_EQ(mine[i], expected) << name << ", P = " << ranks << ", index " << i;
      }
    }
  }
}

TEST(documented_parentheses, of_dense_vectors) {
  expect_parentheses("recursive_doubling", neighbours_first, spar::recursive_doubling{});
  expect_parentheses("ring", around, spar::ring{});
  expect_parentheses("rabenseifner", farthest_first, spar::rabenseifner{});
  expect_parentheses("two_shot", by_rank, spar::compose(spar::storage::dense{}, spar::two_shot{}));
  expect_parentheses("one_shot", by_rank, spar::compose(spar::storage::dense{}, spar::one_shot{}));
  expect_parentheses("dsar_split", by_rank, spar::dsar_split{});
}

#ifdef SPAR_HAS_HALF

template <class Algorithm>
struct half_program {
  Algorithm algorithm;
  std::vector<std::vector<spar::half>>* x;
  bool in_rows;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const std::span<spar::half> mine((*x)[static_cast<std::size_t>(net.rank())]);
    auto pending = in_rows ? spar::start_allreduce(net, spar::rows<3>(mine), algorithm)
                           : spar::start_allreduce(net, mine, algorithm);
    co_await std::move(pending);
  }
};

/// Sums of halves are added as floats, in the order of ranks, and rounded once for the `inside` ranks of each host, and
/// once for all hosts.
template <class Algorithm>
void expect_one_rounding(spar::rank_t ranks, spar::rank_t inside, const Algorithm& algorithm) {
  for (const bool in_rows : {false, true}) {
    std::mt19937_64 random(static_cast<std::uint64_t>(ranks));
    std::vector<std::vector<spar::half>> x(static_cast<std::size_t>(ranks), std::vector<spar::half>(270));
    for (auto& mine : x)
      for (spar::half& value : mine)
        value = static_cast<spar::half>(std::ldexp(static_cast<int>(random() % 2001) - 1000,
                                                   static_cast<int>(random() % 8) - 4)); // sums are exact as floats
    x.back()[0] = 60'000, x[0][0] = 60'000, x[x.size() / 2][0] = -60'000; // some partial sums are too large for a half
    const auto before = x;
    run(mode::sim, ranks, half_program<Algorithm>{algorithm, &x, in_rows});
    for (std::size_t i = 0; i < before[0].size(); ++i) {
      float sum = 0;
      for (std::size_t host = 0; host < before.size(); host += static_cast<std::size_t>(inside)) {
        float of_host = 0;
        for (std::size_t r = host; r < host + static_cast<std::size_t>(inside); ++r)
          of_host += static_cast<float>(before[r][i]);
        sum += inside == 1 ? of_host : static_cast<float>(static_cast<spar::half>(of_host));
      }
      for (const auto& mine : x)
        ASSERT_EQ(mine[i], static_cast<spar::half>(sum))
            << "P = " << ranks << ", index " << i << (in_rows ? ", rows" : "");
    }
  }
}

TEST(documented_parentheses, of_halves_have_one_rounding) {
  for (const spar::rank_t ranks : {2, 3, 5, 8, 13, 35}) {
    expect_one_rounding(ranks, 1, spar::compose(spar::storage::dense{}, spar::two_shot{.piece = 40}));
    expect_one_rounding(ranks, 1, spar::compose(spar::storage::dense{}, spar::one_shot{.piece = 40}));
  }
  for (const spar::rank_t inside : {2, 3}) {
    std::vector<spar::rank_t> host_of;
    for (spar::rank_t r = 0; r < 4 * inside; ++r) host_of.push_back(r / inside);
    const spar::tree_plans plans(spar::tree_of_hosts(host_of));
    expect_one_rounding(4 * inside, inside,
                        spar::compose(spar::storage::dense{}, spar::on_tree(plans), spar::two_shot{.piece = 40}));
  }
}

#endif

TEST(documented_parentheses, of_entries) {
  constexpr spar::selector::nonzeros some;
  constexpr spar::selector::exact_topk all{.k = 90};
  for (const double zeros : {0.0, 0.4, 0.9}) { // with more zeros, fewer sums turn dense, and none at 0.9 on few ranks
    SCOPED_TRACE(zeros);
    expect_parentheses("doubling", neighbours_first, spar::compose(some, spar::recursive_doubling{}), zeros);
    expect_parentheses("ring", around, spar::compose(some, spar::ring{}), zeros);
    expect_parentheses("rabenseifner", farthest_first, spar::compose(some, spar::rabenseifner{}), zeros);
    expect_parentheses("dsar_split", by_rank, spar::compose(some, spar::dsar_split{}), zeros);
    expect_parentheses("split_allgather", by_sixteen_ranks, spar::compose(some, spar::split_allgather{}), zeros);
    expect_parentheses("gather_and_merge", by_rank, spar::compose(some, spar::gather_and_merge{}), zeros);
    expect_parentheses("tree_of_topk", binomial, spar::compose(all, spar::tree_of_topk{}), zeros);
    expect_parentheses("balanced_owners", by_sixteen_ranks, spar::compose(all, spar::balanced_owners{}), zeros);
  }
}

} // namespace
} // namespace spar_test
