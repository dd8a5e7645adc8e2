// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values and dimensions that are easily mishandled: NaN, infinities, denormals, negative zeros, indices beyond 32 bits.
#include "support/allreduce_program.hpp"

namespace spar_test {

namespace {

template <class Algorithm>
class extremes : public testing::Test {
 public:
  template <class T, class Index, class Op>
  static std::vector<allreduce_case<T, Index>> run_one(mode where, std::vector<contribution<T, Index>> inputs, Op op) {
    const auto ranks = static_cast<spar::rank_t>(inputs.size());
    std::vector<allreduce_case<T, Index>> cases(1);
    cases[0].n = inputs[0].n;
    cases[0].inputs = std::move(inputs);
    cases[0].results.resize(static_cast<std::size_t>(ranks));
    run(where, ranks, allreduce_program<T, Index, Algorithm, Op>{&cases, {}, op});
    return cases;
  }
};

using algorithms = joined<testing::Types, stream_schedules>;
TYPED_TEST_SUITE(extremes, algorithms);

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// Rank 1 of P has the special values; the other ranks have ordinary values at the same and other indices.
std::vector<contribution<float, std::uint32_t>> special_inputs(spar::rank_t ranks, bool dense) {
  std::vector<contribution<float, std::uint32_t>> inputs(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    inputs[r].n = 40;
    inputs[r].dense = dense && r % 2 == 0;
    if (inputs[r].dense) {
      inputs[r].values.assign(40, 0.0F);
      for (const std::size_t i : {2U, 3U, 11U, 20U, 39U}) inputs[r].values[i] = 1.0F;
      if (r == 1) inputs[r].values[3] = nan_value;
    } else if (r == 1) {
      inputs[r].indices = {3, 7, 11, 15, 30};
      inputs[r].values = {nan_value, nan_value, infinity, -infinity, infinity};
    } else {
      inputs[r].indices = {2, 3, 11, 20, 39};
      inputs[r].values.assign(5, 1.0F);
    }
  }
  return inputs;
}

TYPED_TEST(extremes, nan_and_infinities_arrive) {
  for (const spar::rank_t ranks : {2, 3, 4, 5, 8}) {
    for (const mode where : {mode::threads, mode::sim_synchronous}) {
      for (const bool with_dense : {false, true}) {
        const auto cases = this->run_one(where, special_inputs(ranks, with_dense), spar::sum{});
        for (const auto& result : cases[0].results) {
          std::vector<float> dense(40);
          result.to_dense(dense, spar::sum{});
          EXPECT_TRUE(std::isnan(dense[3])) << where << ", P = " << ranks;
          EXPECT_TRUE(std::isnan(dense[7])) << where << ", P = " << ranks;
          EXPECT_EQ(dense[11], infinity);
          EXPECT_EQ(dense[15], -infinity);
          EXPECT_EQ(dense[30], infinity);
          EXPECT_EQ(dense[2], static_cast<float>(ranks - 1));
          EXPECT_EQ(dense[20], static_cast<float>(ranks - 1));
          EXPECT_EQ(dense[0], 0.0F);
        }
      }
    }
  }
}

TYPED_TEST(extremes, nan_wins_minimum_and_maximum) {
  const auto check = [&](auto op, float of_infinity, float of_minus_infinity) {
    for (const spar::rank_t ranks : {2, 3, 4, 5, 8}) {
      const auto cases = this->run_one(mode::sim, special_inputs(ranks, false), op);
      for (const auto& result : cases[0].results) {
        std::vector<float> dense(40);
        result.to_dense(dense, op);
        EXPECT_TRUE(std::isnan(dense[3])) << op.name << ", P = " << ranks;
        EXPECT_TRUE(std::isnan(dense[7]));
        EXPECT_EQ(dense[11], of_infinity);
        EXPECT_EQ(dense[15], of_minus_infinity);
        EXPECT_EQ(dense[20], 1.0F);
      }
    }
  };
  check(spar::minimum{}, 1.0F, -infinity);
  check(spar::maximum{}, infinity, -infinity);
}

TYPED_TEST(extremes, opposite_infinities_are_nan) {
  std::vector<contribution<float, std::uint32_t>> inputs(3, {10, {4}, {1.0F}, false});
  inputs[0].values[0] = infinity;
  inputs[2].values[0] = -infinity;
  const auto cases = this->run_one(mode::sim, inputs, spar::sum{});
  for (const auto& result : cases[0].results) {
    std::vector<float> dense(10);
    result.to_dense(dense, spar::sum{});
    EXPECT_TRUE(std::isnan(dense[4]));
  }
}

TYPED_TEST(extremes, tiny_values_are_kept) {
  constexpr float denormal = std::numeric_limits<float>::denorm_min();
  for (const spar::rank_t ranks : {2, 3, 4, 8}) {
    for (const bool dense_input : {false, true}) {
      std::vector<contribution<float, std::uint32_t>> inputs(static_cast<std::size_t>(ranks));
      for (auto& mine : inputs) {
        mine.n = 64;
        mine.dense = dense_input;
        if (dense_input) {
          mine.values.assign(64, 0.0F);
          mine.values[5] = 1e-30F;
          mine.values[6] = denormal;
          mine.values[63] = -denormal;
        } else {
          mine.indices = {5, 6, 63};
          mine.values = {1e-30F, denormal, -denormal};
        }
      }
      for (const mode where : {mode::threads, mode::sim}) {
        const auto cases = this->run_one(where, inputs, spar::sum{});
        for (const auto& result : cases[0].results) {
          std::vector<float> dense(64);
          result.to_dense(dense, spar::sum{});
          EXPECT_NEAR(dense[5] / 1e-30F, static_cast<float>(ranks), 1e-5F) << where << ", P = " << ranks;
          EXPECT_EQ(dense[6], static_cast<float>(ranks) * denormal);
          EXPECT_EQ(dense[63], -static_cast<float>(ranks) * denormal);
          EXPECT_EQ(dense[7], 0.0F);
        }
      }
    }
  }
}

TYPED_TEST(extremes, the_result_is_dense_above_delta_and_not_before) {
  // Every other index is on one rank: 500 entries of 1000, which is delta for floats and 32-bit indices. With one entry
  // more, coordinates take more bytes than dense values.
  for (const spar::rank_t ranks : {1, 2, 4, 5}) {
    for (const bool one_more : {false, true}) {
      std::vector<contribution<float, std::uint32_t>> inputs(static_cast<std::size_t>(ranks));
      for (auto& mine : inputs) mine.n = 1000;
      for (std::uint32_t i = 0; i < 1000; i += 2) {
        auto& mine = inputs[(i / 2) % inputs.size()];
        mine.indices.push_back(i);
        mine.values.push_back(1);
        if (one_more && i == 500) {
          mine.indices.push_back(501);
          mine.values.push_back(1);
        }
      }
      const auto cases = this->run_one(mode::threads, inputs, spar::sum{});
      if (std::is_same_v<TypeParam, spar::sparcml> || (one_more && ranks == 1))
        continue; // sparcml goes by the cost of merging; a single rank copies its input
      const bool always = std::is_same_v<TypeParam, spar::dsar_split>;
      for (const auto& result : cases[0].results) {
        EXPECT_EQ(result.is_dense(), always || one_more) << "P = " << ranks << ", one more: " << one_more;
        EXPECT_EQ(result.count(), result.is_dense() ? 1000U : 500U);
      }
    }
  }
}

TYPED_TEST(extremes, all_of_a_sum_can_cancel) {
  std::vector<contribution<float, std::uint32_t>> inputs(4, {100, {1, 50, 99}, {2.0F, -3.0F, 4.0F}, false});
  for (const std::size_t r : {1U, 3U})
    for (float& x : inputs[r].values) x = -x;
  const auto cases = this->run_one(mode::sim, inputs, spar::sum{});
  for (const auto& result : cases[0].results) {
    std::vector<float> dense(100);
    result.to_dense(dense, spar::sum{});
    EXPECT_EQ(dense, std::vector<float>(100, 0.0F));
  }
}

TYPED_TEST(extremes, zeros_stay_entries_and_have_the_same_sign_on_all_ranks) {
  for (const spar::rank_t ranks : {2, 3, 5}) {
    std::vector<contribution<float, std::uint32_t>> inputs(static_cast<std::size_t>(ranks), {400, {3}, {-0.0F}, false});
    inputs[0] = {400, {1, 2, 3, 7}, {-0.0F, 0.0F, -0.0F, 1.0F}, false};
    inputs[1] = {400, {3, 5, 7}, {-0.0F, -0.0F, -1.0F}, false};
    const auto cases = this->run_one(mode::sim, inputs, spar::sum{});
    for (const auto& result : cases[0].results) {
      ASSERT_TRUE(same_stream(result, cases[0].results[0])) << "P = " << ranks;
      std::vector<float> dense(400);
      result.to_dense(dense, spar::sum{});
      EXPECT_EQ(dense, std::vector<float>(400, 0.0F));
      EXPECT_TRUE(std::signbit(dense[3])) << "all ranks have -0 there";
      EXPECT_FALSE(std::signbit(dense[7])) << "1 - 1";
      if (result.is_dense()) continue; // adding -0 to an absent value may have made it +0
      EXPECT_EQ(result.count(), 5U);
      EXPECT_TRUE(std::signbit(dense[1]) && !std::signbit(dense[2]) && std::signbit(dense[5]));
    }
  }
}

/// The algorithms that stay sparse: a dense result of such a dimension would not fit into memory.
template <class Algorithm>
class beyond_32_bits : public extremes<Algorithm> {};
using sparse_algorithms = joined<testing::Types, without<spar::dsar_split, stream_schedules>>;
TYPED_TEST_SUITE(beyond_32_bits, sparse_algorithms);

TYPED_TEST(beyond_32_bits, indices_of_64_bits) {
  for (const std::uint64_t n : {std::uint64_t{1} << 33, (std::uint64_t{1} << 40) + 7, ~std::uint64_t{0}}) {
    for (const spar::rank_t ranks : {1, 2, 3, 4, 5, 8, 13}) {
      std::vector<contribution<double, std::uint64_t>> inputs(static_cast<std::size_t>(ranks));
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        inputs[r].n = n;
        inputs[r].indices = {0, 5 + r, n / 3, n / 2 + r, n - 2 - inputs.size() + r, n - 1};
        inputs[r].values = {1, 2, 3, 4, 5, 6};
      }
      for (const mode where : {mode::threads, mode::sim_synchronous}) {
        const auto cases = this->run_one(where, inputs, spar::sum{});
        for (const auto& result : cases[0].results) {
          ASSERT_EQ(result.dimension(), n);
          ASSERT_FALSE(result.is_dense());
          ASSERT_EQ(result.count(), 3 + 3 * inputs.size()) << where << ", P = " << ranks << ", n = " << n;
          EXPECT_EQ(result.indices()[0], 0U);
          EXPECT_EQ(result.values()[0], 1.0 * ranks);
          EXPECT_EQ(result.indices()[1 + inputs.size()], n / 3);
          EXPECT_EQ(result.values()[1 + inputs.size()], 3.0 * ranks);
          EXPECT_EQ(result.indices().back(), n - 1);
          EXPECT_EQ(result.values().back(), 6.0 * ranks);
          for (std::size_t r = 0; r < inputs.size(); ++r) {
            EXPECT_EQ(result.indices()[1 + r], 5 + r);
            EXPECT_EQ(result.values()[1 + r], 2.0);
            EXPECT_EQ(result.indices()[2 + inputs.size() + r], n / 2 + r);
            EXPECT_EQ(result.indices()[2 + 2 * inputs.size() + r], n - 2 - inputs.size() + r);
          }
        }
      }
    }
  }
}

TYPED_TEST(beyond_32_bits, the_largest_dimension_of_32_bit_indices) {
  const std::uint64_t n = std::uint64_t{1} << 32;
  std::vector<contribution<float, std::uint32_t>> inputs(3, {n, {0, 0xFFFFFFFE, 0xFFFFFFFF}, {1, 2, 3}, false});
  const auto cases = this->run_one(mode::sim, inputs, spar::sum{});
  for (const auto& result : cases[0].results) {
    ASSERT_EQ(result.count(), 3U);
    EXPECT_EQ(result.indices()[2], 0xFFFFFFFFU);
    EXPECT_EQ(result.values()[2], 9.0F);
  }
}

} // namespace
} // namespace spar_test
