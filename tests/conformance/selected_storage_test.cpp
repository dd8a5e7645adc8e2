// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Systems that select entries or rows, with a storage. An exact stream codec gives the same bits as coordinates, in the
// sum and in the residuals. With a codec that rounds, all ranks have the same bits, and all losses are in the
// residuals.
#include "support/allreduce_program.hpp"
#include "support/collectives.hpp"
#include "support/ranks.hpp"
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

constexpr std::size_t n = 3000; // values
using row = spar::row<float, 3>;
constexpr int calls = 3;

/// Selects and reduces by a composition and its state.
template <class Composition>
struct selecting : spar::algorithm_defaults {
  static constexpr std::string_view name = Composition::name;
  const Composition* parts;
  typename Composition::state* now;

  selecting(const Composition& its, typename Composition::state& state) : parts(&its), now(&state) {}
  template <class Net, class T, class Op>
  spar::task<spar::sparse_stream<T, index>> operator()(spar::channel<Net> net, std::span<T> x, Op op) const& {
    const spar::selector::nothing_to_prepare nothing;
    typename Composition::report last;
    auto result = co_await parts->template reduce<index>(net, now, &last, x, op, nothing);
    co_return std::move(result.sum);
  }
};

struct gtopk {
  template <class Storage>
  static auto make(const spar::tree_plans&, Storage store) {
    return spar::compose(spar::selector::exact_topk{.k = 100}, store, spar::tree_of_topk{});
  }
};
struct ok_topk {
  template <class Storage>
  static auto make(const spar::tree_plans&, Storage store) {
    return spar::compose(spar::selector::threshold_reuse{.k = 100}, store, spar::balanced_owners{});
  }
};
struct tree_ok_topk {
  template <class Storage>
  static auto make(const spar::tree_plans& plans, Storage store) {
    return spar::compose(spar::selector::threshold_reuse{.k = 100}, store, spar::on_tree(plans),
                         spar::balanced_owners{});
  }
};

/// Of values of type T: of floats, or of rows of floats.
template <class T>
struct outcome {
  std::vector<std::vector<float>> x; // the residual of each rank
  std::vector<std::vector<spar::sparse_stream<T, index>>> sums;
  std::vector<std::uint64_t> bytes;
};

/// `x` as values of type T.
template <class T>
std::span<T> as(std::vector<float>& x) {
  if constexpr (spar::is_row<T>)
    return spar::rows<spar::width_of<T>>(x);
  else
    return x;
}

template <class System, class Storage, class T>
struct program {
  outcome<T>* out;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    const spar::tree_plans plans(two_hosts(net.size()));
    const auto algorithm = System::make(plans, Storage{});
    typename std::remove_const_t<decltype(algorithm)>::state now;
    for (int call = 0; call < calls; ++call) {
      const std::span<T> x = as<T>(out->x[rank]);
      const selecting reduce(algorithm, now);
      const auto agreed = spar::signature_of<T, index, spar::sum>(x.size(), reduce);
      auto pending = spar::start_collective(net, agreed, reduce, x, spar::sum{});
      out->sums[rank].push_back(co_await std::move(pending));
      out->bytes[rank] += net.last_call().bytes_sent;
    }
  }
};

std::vector<std::vector<float>> inputs(spar::rank_t ranks) {
  std::vector<std::vector<float>> x(static_cast<std::size_t>(ranks), std::vector<float>(n));
  for (std::size_t r = 0; r < x.size(); ++r) {
    std::mt19937_64 random(r + 1);
    // Larger values in the first third, so that the algorithms must balance blocks and shares.
    for (std::size_t i = 0; i < n; ++i) x[r][i] = real_value<float>(random) / (i < n / 3 ? 1.0F : 64.0F);
  }
  return x;
}

template <class System, class Storage, class T>
outcome<T> outcome_of(mode where, spar::rank_t ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  outcome<T> out{inputs(ranks), std::vector<std::vector<spar::sparse_stream<T, index>>>(p),
                 std::vector<std::uint64_t>(p)};
  run(where, ranks, program<System, Storage, T>{&out});
  return out;
}

template <class System, class T = float>
void expect_bits_of_coordinates() {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
      const auto plain = outcome_of<System, spar::storage::coo, T>(where, ranks);
      const auto coded = outcome_of<System, spar::storage::coded<>, T>(where, ranks);
      std::uint64_t plain_bytes = 0, coded_bytes = 0;
      for (std::size_t r = 0; r < plain.x.size(); ++r) {
        ASSERT_TRUE(same_bits<float>(plain.x[r], coded.x[r])) << "the residual of rank " << r << " differs";
        for (std::size_t c = 0; c < calls; ++c) ASSERT_TRUE(same_stream(plain.sums[r][c], coded.sums[r][c]));
        plain_bytes += plain.bytes[r];
        coded_bytes += coded.bytes[r];
      }
      if (ranks > 1) {
        EXPECT_LT(coded_bytes, plain_bytes);
      }
    }
  }
}

template <class System, class T = float>
void expect_no_loss() {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
      const auto got = outcome_of<System, spar::storage::coded<7>, T>(where, ranks);
      const auto x = inputs(ranks);
      std::vector<double> all(n), weight(n);
      for (std::size_t r = 0; r < x.size(); ++r) {
        for (std::size_t i = 0; i < n; ++i) {
          all[i] += static_cast<double>(got.x[r][i]) - static_cast<double>(x[r][i]);
          weight[i] += std::abs(static_cast<double>(x[r][i]));
        }
      }
      for (std::size_t c = 0; c < calls; ++c) {
        for (std::size_t r = 0; r < x.size(); ++r) ASSERT_TRUE(same_stream(got.sums[0][c], got.sums[r][c]));
        got.sums[0][c].for_each([&](index i, const T& value) {
          const auto values = spar::components(std::span(&value, 1));
          for (std::size_t w = 0; w < values.size(); ++w) all[i * values.size() + w] += static_cast<double>(values[w]);
        });
      }
      for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(all[i], 0, 4e-6 * weight[i]) << "index " << i;
    }
  }
}

TEST(selected_storage, gtopk_by_an_exact_code) { expect_bits_of_coordinates<gtopk>(); }
TEST(selected_storage, ok_topk_by_an_exact_code) { expect_bits_of_coordinates<ok_topk>(); }
TEST(selected_storage, ok_topk_on_a_tree_by_an_exact_code) { expect_bits_of_coordinates<tree_ok_topk>(); }
TEST(selected_storage, gtopk_of_rows) { expect_bits_of_coordinates<gtopk, row>(); }
TEST(selected_storage, ok_topk_of_rows) { expect_bits_of_coordinates<ok_topk, row>(); }
TEST(selected_storage, gtopk_by_a_code_that_rounds) { expect_no_loss<gtopk>(); }
TEST(selected_storage, ok_topk_by_a_code_that_rounds) { expect_no_loss<ok_topk>(); }
TEST(selected_storage, ok_topk_of_rows_by_a_code_that_rounds) { expect_no_loss<ok_topk, row>(); }
TEST(selected_storage, ok_topk_on_a_tree_by_a_code_that_rounds) { expect_no_loss<tree_ok_topk>(); }

} // namespace
} // namespace spar_test
