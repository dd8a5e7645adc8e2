// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The conformance suite of stream allreduces: any algorithm, element and index type, on every in-process transport,
// against a reference in double precision or 64-bit integers. Each file that includes this header instantiates the
// suite for its combinations.
#pragma once

#include "support/compositions.hpp"
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

namespace spar_test {

/// One call and its results.
template <class T, class Index>
struct allreduce_case {
  pattern shape;
  std::uint64_t n;
  std::vector<contribution<T, Index>> inputs;
  std::vector<spar::sparse_stream<T, Index>> results;
};

/// Makes the calls one after the other on the same transport.
template <class T, class Index, class Algorithm, class Op>
struct allreduce_program {
  std::vector<allreduce_case<T, Index>>* cases;
  Algorithm algorithm{};
  Op op{};

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    for (auto& call : *cases) {
      auto pending = spar::start_allreduce(net, call.inputs[rank].view(), algorithm, op);
      call.results[rank] = co_await std::move(pending);
    }
  }
};

template <class T, class Index, class Value>
std::vector<allreduce_case<T, Index>> make_cases(spar::rank_t ranks, const std::vector<std::uint64_t>& dimensions,
                                                 const std::vector<pattern>& shapes, Value value) {
  std::vector<allreduce_case<T, Index>> cases;
  for (const std::uint64_t n : dimensions) {
    for (const pattern shape : shapes) {
      cases.push_back({shape, n,
                       contributions<T, Index>(shape, ranks, n, 17 * n + static_cast<std::uint64_t>(ranks), value),
                       std::vector<spar::sparse_stream<T, Index>>(static_cast<std::size_t>(ranks))});
    }
  }
  return cases;
}

/// Whether an algorithm chooses by the transport's network model; then its bits are equal on all transports only if the
/// models are equal.
template <class Algorithm>
inline constexpr bool depends_on_the_network = false;
template <>
inline constexpr bool depends_on_the_network<spar::sparcml> = true;
template <int Bits>
inline constexpr bool depends_on_the_network<quantised_sparcml<Bits>> = true;

/// The error of a lossless algorithm: none, if sums are exact.
template <class Algorithm>
struct loss_of {
  static double bound(double) { return 0; }
};
/// The error of quantisation: one level of the largest magnitude of the whole vector, which bounds that of each bucket.
template <int Bits, class Schedule>
struct loss_of<stored<then_qsgd<Bits>, Schedule>> {
  static double bound(double largest) { return 1.01 * largest / ((1 << (Bits - 1)) - 1); }
};

template <class T, class Index, class Algorithm, class Op>
void run_and_check(mode where, spar::rank_t ranks, std::vector<allreduce_case<T, Index>>& cases, Algorithm algorithm,
                   Op op) {
  run(where, ranks, allreduce_program<T, Index, Algorithm, Op>{&cases, algorithm, op});
  for (const auto& call : cases) {
    SCOPED_TRACE(testing::Message() << where << ", P = " << ranks << ", n = " << call.n << ", " << call.shape);
    const auto expected = expected_of(call.inputs, op);
    double largest = 0;
    for (const auto x : expected.values) largest = std::max(largest, std::abs(static_cast<double>(x)));
    const double loss = loss_of<Algorithm>::bound(largest);
    expect_result(call.results, expected, op, [&](std::size_t) { return loss; });
    if (testing::Test::HasFatalFailure()) return;
  }
}

} // namespace spar_test
