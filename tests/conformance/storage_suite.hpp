// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every algorithm for streams with a storage. An exact storage must give the bits of coordinates; with another storage
// all ranks end with the same bits, the error is bounded, and all losses are in the residuals.
#pragma once

#include "support/allreduce_program.hpp"
#include "support/collectives.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace spar_test {

/// A schedule with the storage and the residual of its calls.
template <class Algorithm, class Storage, class T>
struct storing : spar::algorithm_defaults {
  static constexpr std::string_view name = Algorithm::name;
  Algorithm algorithm;
  Storage store{};
  spar::residual_view<T> residual{};

  template <spar::transport Net, spar::index_type Index, class Op>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine,
                                                       Op op) const& {
    return algorithm(net, mine, op, store, residual);
  }
};

/// A schedule with a plan that is made in the call.
struct planned_flexreduce {
  static constexpr std::string_view name = spar::chains::name;
  template <spar::transport Net, class T, class Index, class Op, class Storage>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine, Op op,
                                                       Storage store, spar::residual_view<T> residual) const& {
    const spar::flex_plan plan(two_hosts(net.size()), mine.dimension());
    const spar::on_plan over(plan);
    const spar::chains algorithm;
    co_return co_await algorithm(net, over, mine, op, store, residual);
  }
};
struct planned_tree_sparcml {
  static constexpr std::string_view name = spar::quantile_owners::name;
  template <spar::transport Net, class T, class Index, class Op, class Storage>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine, Op op,
                                                       Storage store, spar::residual_view<T> residual) const& {
    const spar::tree_plans plans(two_hosts(net.size()));
    const spar::quantile_owners algorithm;
    co_return co_await algorithm(net, spar::on_tree(plans), mine, op, store, residual);
  }
};
/// Reduce to a root, then broadcast.
struct reduce_and_broadcast {
  static constexpr std::string_view name = spar::binomial_reduce::name;
  template <spar::transport Net, class T, class Index, class Op, class Storage>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine, Op op,
                                                       Storage store, spar::residual_view<T> residual) const& {
    const spar::rank_t root = net.size() / 2;
    const spar::binomial_reduce reduce;
    const spar::binomial_broadcast broadcast;
    const auto sum = co_await reduce(net, mine, root, op, store, residual);
    co_return co_await broadcast(net, sum.view(), root, store, residual);
  }
};
/// Sums of three parts of the indices turn dense early, so that one side of an exchange may be dense and the other
/// sparse, and one part of the result dense and another sparse.
struct early_dense_doubling {
  static constexpr std::string_view name = spar::recursive_doubling::name;
  template <spar::transport Net, class T, class Index, class Op, class Storage>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine, Op op,
                                                       Storage store, spar::residual_view<T> residual) const& {
    const spar::recursive_doubling algorithm{.dense_from = 0.3, .parts = 3};
    co_return co_await algorithm(net, mine, op, store, residual);
  }
};

template <class T, class Index>
struct storage_results {
  std::vector<spar::sparse_stream<T, Index>> sums; // by rank
  std::vector<std::vector<T>> residuals;
  std::vector<std::uint64_t> bytes;
};

template <class T, class Index, class Algorithm, class Storage>
struct storage_program {
  const std::vector<allreduce_case<T, Index>>* cases;
  std::vector<storage_results<T, Index>>* results; // by case
  bool keeps = true;                               // whether to keep a residual

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    net.port().node().set_network({.beta = 1e-6}); // so slow that `cheapest` encodes
    for (std::size_t c = 0; c < cases->size(); ++c) {
      auto& out = (*results)[c];
      const spar::residual_view<T> residual = keeps ? std::span<T>(out.residuals[rank]) : std::span<T>();
      const storing<Algorithm, Storage, T> algorithm{{}, {}, {}, residual};
      auto pending = spar::start_allreduce(net, (*cases)[c].inputs[rank].view(), algorithm);
      out.sums[rank] = co_await std::move(pending);
      out.bytes[rank] = net.last_call().bytes_sent;
    }
  }
};

template <class Storage, class Algorithm, class T, class Index>
std::vector<storage_results<T, Index>>
results_of(mode where, spar::rank_t ranks, const std::vector<allreduce_case<T, Index>>& cases, bool keeps = true) {
  const auto p = static_cast<std::size_t>(ranks);
  std::vector<storage_results<T, Index>> results(cases.size());
  for (std::size_t c = 0; c < cases.size(); ++c) {
    results[c].sums = std::vector<spar::sparse_stream<T, Index>>(p);
    results[c].residuals.assign(p, std::vector<T>(cases[c].n));
    results[c].bytes.resize(p);
  }
  run(where, ranks, storage_program<T, Index, Algorithm, Storage>{&cases, &results, keeps});
  return results;
}

template <class T, class Index>
std::vector<T> values_of(const spar::sparse_stream<T, Index>& s) {
  std::vector<T> x(s.dimension());
  s.to_dense(x, spar::sum{});
  return x;
}

/// The largest dimension. `cheapest` encodes no short streams, and random streams have a tenth of the values.
template <class Algorithm>
constexpr std::uint64_t most_values = std::is_same_v<Algorithm, spar::cheapest> ? 8000 : 1000;

/// The numbers of ranks and the patterns of the suite of allreduces, with fewer dimensions.
template <class Algorithm, class T, class Index, class Value>
std::vector<allreduce_case<T, Index>> storage_cases(spar::rank_t ranks, Value value) {
  const auto p = static_cast<std::uint64_t>(ranks);
  return make_cases<T, Index>(ranks, {0, 1, p - 1, 100, most_values<Algorithm>},
                              {std::begin(all_patterns), std::end(all_patterns)}, value);
}

/// With an exact stream codec the values are those of coordinates, bit for bit.
template <class Storage, class Algorithm, class T, class Index>
void expect_bits_of_coordinates(mode where, spar::rank_t ranks) {
  const auto cases = storage_cases<Algorithm, T, Index>(ranks, exact_value<T>);
  const auto plain = results_of<spar::storage::coo, Algorithm>(where, ranks, cases);
  const auto coded = results_of<Storage, Algorithm>(where, ranks, cases);
  std::uint64_t plain_bytes = 0, coded_bytes = 0;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    SCOPED_TRACE(testing::Message() << Algorithm::name << ", " << where << ", P = " << ranks << ", n = " << cases[c].n
                                    << ", " << cases[c].shape);
    const std::vector<T> expected = values_of(plain[c].sums[0]);
    for (std::size_t r = 0; r < coded[c].sums.size(); ++r) {
      const auto& sum = coded[c].sums[r];
      ASSERT_TRUE(same_stream(coded[c].sums[0], sum)) << "rank " << r;
      ASSERT_NO_THROW(spar::validate(sum.view()));
      const std::vector<T> got = values_of(sum);
      ASSERT_TRUE(same_bits<T>(got, expected)) << "rank " << r;
      for (const T lost : coded[c].residuals[r]) ASSERT_EQ(lost, T{});
      if (cases[c].n == most_values<Algorithm> && cases[c].shape == pattern::random) {
        plain_bytes += plain[c].bytes[r];
        coded_bytes += coded[c].bytes[r];
      }
    }
  }
  if (ranks > 1) {
    EXPECT_LT(coded_bytes, plain_bytes) << Algorithm::name << ", P = " << ranks;
  }
}

template <class T>
T thousandths(std::mt19937_64& random) {
  return static_cast<T>(static_cast<double>(random() % 2000) / 1000 + 0.001);
}
/// Of up to 20 of these numbers, 16-bit floats have the exact sum.
template <class T>
T up_to_100(std::mt19937_64& random) {
  return static_cast<T>(static_cast<double>(random() % 100 + 1));
}

/// `relative` is the error of one encoding relative to the largest magnitude, and `rounding` the error of the sums of
/// all `value`s.
template <class Storage, class Algorithm, class T, class Index>
void expect_bounded_loss(mode where, spar::rank_t ranks, double relative, T (*value)(std::mt19937_64&) = thousandths<T>,
                         double rounding = 4e-6) {
  const auto cases = storage_cases<Algorithm, T, Index>(ranks, value);
  const double encodings = ranks == 1 ? 1 : static_cast<double>(ranks) + 2; // no algorithm encodes more often
  const auto results = results_of<Storage, Algorithm>(where, ranks, cases);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    SCOPED_TRACE(testing::Message() << Algorithm::name << ", " << where << ", P = " << ranks << ", n = " << cases[c].n
                                    << ", " << cases[c].shape);
    const auto expected = expected_of(cases[c].inputs, spar::sum{});
    double largest = 0;
    for (const double w : expected.weight) largest = std::max(largest, w);
    const auto& sums = results[c].sums;
    for (const auto& sum : sums) ASSERT_TRUE(same_stream(sums[0], sum));
    ASSERT_NO_THROW(spar::validate(sums[0].view()));
    const std::vector<T> got = values_of(sums[0]);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(got[i]), expected.values[i], largest * encodings * relative + 1e-6) << i;
      double all = static_cast<double>(got[i]);
      for (const auto& residual : results[c].residuals) all += static_cast<double>(residual[i]);
      ASSERT_NEAR(all, expected.values[i], rounding * (1 + largest)) << "sum and residuals, index " << i;
    }
  }
}

using stored_algorithms =
    joined<testing::Types, without<spar::sparcml, stream_schedules>,
           std::tuple<early_dense_doubling, spar::split_allgather<>, spar::gather_and_merge, spar::cheapest,
                      planned_flexreduce, planned_tree_sparcml, reduce_and_broadcast>>;

} // namespace spar_test
