// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduce of dense spans, in place and out of place.
#include "support/ranks.hpp"
#include "support/schedules.hpp"
#include "support/streams.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

namespace spar_test {

namespace {

/// The vectors of all ranks before and after a call.
template <class T>
struct dense_case {
  std::vector<std::vector<T>> inputs;
  std::vector<std::vector<T>> outputs;
};

template <class T, class Algorithm, class Op>
struct dense_program {
  std::vector<dense_case<T>>* cases;
  bool in_place = true;
  Algorithm algorithm{};
  Op op{};

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    for (auto& call : *cases) {
      auto& out = call.outputs[rank];
      const std::span<const T> in(call.inputs[rank]);
      if (in_place) {
        out = call.inputs[rank];
        auto pending = spar::start_allreduce(net, std::span<T>(out), algorithm, op);
        co_await std::move(pending);
      } else {
        out.assign(in.size(), T{});
        auto pending = spar::start_allreduce(net, in, std::span<T>(out), algorithm, op);
        co_await std::move(pending);
      }
    }
  }
};

template <class T, class Value>
std::vector<dense_case<T>> make_dense_cases(spar::rank_t ranks, Value value) {
  const auto p = static_cast<std::size_t>(ranks);
  std::vector<dense_case<T>> cases;
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{1}, std::size_t{3}, p - 1, p, p + 1, std::size_t{100}, std::size_t{5000}}) {
    std::mt19937_64 random(n * 100 + p);
    dense_case<T> call{std::vector<std::vector<T>>(p, std::vector<T>(n)), std::vector<std::vector<T>>(p)};
    for (auto& x : call.inputs)
      for (T& element : x) element = value(random);
    cases.push_back(std::move(call));
  }
  return cases;
}

template <class T, class Algorithm, class Op, class Value>
void check_dense(Op op, Value value) {
  for (std::size_t position = 0; position < all_ranks.size(); ++position) {
    const spar::rank_t ranks = all_ranks[position];
    for (const mode where : all_modes) {
      for (const bool in_place : {true, false}) {
        if (!runs_case(4, position, position_of(where), in_place ? 2 : 0)) continue;
        auto cases = make_dense_cases<T>(ranks, value);
        const auto before = cases;
        run(where, ranks, dense_program<T, Algorithm, Op>{&cases, in_place, {}, op});
        for (std::size_t c = 0; c < cases.size(); ++c) {
          const auto& call = cases[c];
          const std::size_t n = call.inputs[0].size();
          SCOPED_TRACE(testing::Message() << where << ", P = " << ranks << ", n = " << n << ", in place: " << in_place);
          ASSERT_EQ(call.inputs, before[c].inputs) << "the call changed its input";
          for (const auto& out : call.outputs) ASSERT_TRUE(same_bits<T>(out, call.outputs[0]));
          for (std::size_t i = 0; i < n; ++i) {
            auto exact = static_cast<wide<T>>(call.inputs[0][i]);
            for (std::size_t r = 1; r < call.inputs.size(); ++r)
              exact = reference_of(op, exact, static_cast<wide<T>>(call.inputs[r][i]));
            if constexpr (std::is_same_v<Op, spar::average>) exact /= static_cast<wide<T>>(ranks);
            ASSERT_TRUE(call.outputs[0][i] == static_cast<T>(exact)) << "index " << i;
          }
        }
      }
    }
  }
}

template <class Algorithm>
class dense_spans : public testing::Test {};

using algorithms = joined<testing::Types, dense_schedules>;
TYPED_TEST_SUITE(dense_spans, algorithms);

TYPED_TEST(dense_spans, sum) {
  check_dense<float, TypeParam>(spar::sum{}, exact_value<float>);
  if constexpr (compiles_all_cases) {
    check_dense<double, TypeParam>(spar::sum{}, exact_value<double>);
    check_dense<std::int32_t, TypeParam>(spar::sum{}, exact_value<std::int32_t>);
    check_dense<std::int64_t, TypeParam>(spar::sum{}, exact_value<std::int64_t>);
  }
#ifdef SPAR_HAS_HALF
  check_dense<spar::half, TypeParam>(spar::sum{}, exact_value<spar::half>);
#endif
}

TYPED_TEST(dense_spans, average) {
  check_dense<float, TypeParam>(spar::average{}, exact_value<float>);
  if constexpr (compiles_all_cases) check_dense<std::int64_t, TypeParam>(spar::average{}, exact_value<std::int64_t>);
}

TYPED_TEST(dense_spans, product) { check_dense<double, TypeParam>(spar::product{}, factor_value<double>); }
TYPED_TEST(dense_spans, minimum) { check_dense<float, TypeParam>(spar::minimum{}, real_value<float>); }
TYPED_TEST(dense_spans, maximum) { check_dense<std::int32_t, TypeParam>(spar::maximum{}, exact_value<std::int32_t>); }
TYPED_TEST(dense_spans, operation_of_the_user) {
  check_dense<std::int64_t, TypeParam>(greatest_divisor{}, positive_value<std::int64_t>);
}

TYPED_TEST(dense_spans, bits_are_the_same_in_every_order_of_arrival) {
  for (const spar::rank_t ranks : {3, 5, 8}) {
    auto first = make_dense_cases<float>(ranks, real_value<float>);
    using program = dense_program<float, TypeParam, spar::sum>;
    run(mode::sim, ranks, program{&first});
    const auto expect_same = [&](const auto& other) {
      for (std::size_t c = 0; c < first.size(); ++c)
        for (std::size_t r = 0; r < first[c].outputs.size(); ++r)
          ASSERT_TRUE(same_bits<float>(first[c].outputs[r], other[c].outputs[r])) << "P = " << ranks << ", rank " << r;
    };
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      auto again = make_dense_cases<float>(ranks, real_value<float>);
      run_sim<spar::any_transport>(ranks, program{&again}, random_order(seed));
      ASSERT_NO_FATAL_FAILURE(expect_same(again));
    }
    auto again = make_dense_cases<float>(ranks, real_value<float>);
    run(mode::threads, ranks, program{&again});
    ASSERT_NO_FATAL_FAILURE(expect_same(again));
  }
}

TYPED_TEST(dense_spans, many_ranks) {
  for (const spar::rank_t ranks : {64, 100, 256}) {
    if (is_shortened && ranks > 64) break;
    std::vector<dense_case<double>> cases(1);
    cases[0].inputs.assign(static_cast<std::size_t>(ranks), std::vector<double>(300, 0.5));
    cases[0].outputs.resize(static_cast<std::size_t>(ranks));
    run(mode::sim, ranks, dense_program<double, TypeParam, spar::sum>{&cases});
    for (const auto& out : cases[0].outputs) ASSERT_EQ(out, std::vector<double>(300, 0.5 * ranks));
  }
}

} // namespace
} // namespace spar_test
