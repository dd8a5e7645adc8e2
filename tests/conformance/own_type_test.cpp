// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Values of a user's own type, through every selector, storage and schedule: the sum is right where the parts copy
// values, and parts that rank or round values refuse the type before anything is compiled of them.
#include "support/models.hpp"

#include <spar/spar.hpp>
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <complex>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

using complex_value = std::complex<double>;
template <>
inline constexpr spar::element_code spar::code_of<complex_value> = static_cast<spar::element_code>(65);

namespace spar_test {
namespace {

constexpr std::uint64_t n = 400;

/// A rank's values: a few that only this rank has, some that all ranks have, and zeros.
std::vector<complex_value> values_of(spar::rank_t rank) {
  std::mt19937 random(static_cast<unsigned>(rank + 1));
  std::vector<complex_value> x(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    const auto number = static_cast<double>(random() % 100);
    if (i % 16 == 0 || random() % 10 == 0) x[i] = {1 + number, 50 - number};
  }
  return x;
}
std::vector<complex_value> sum_of(spar::rank_t ranks) {
  std::vector<complex_value> sum(n);
  for (spar::rank_t r = 0; r < ranks; ++r) {
    const auto x = values_of(r);
    for (std::uint64_t i = 0; i < n; ++i) sum[i] += x[i];
  }
  return sum;
}

/// Reduces a stream, and then dense values in place.
template <class Composition>
void expect_sums(spar::threads& net, const Composition& by) {
  const auto expected = sum_of(net.size());
  std::vector<complex_value> x = values_of(net.rank());
  if constexpr (!Composition::selects_entries) {
    std::vector<complex_value> rest = x, sum(n);
    const auto mine = spar::select(spar::selector::nonzeros{}, std::span(rest), net.memory());
    spar::allreduce(net, mine, by).to_dense(sum, spar::sum{});
    EXPECT_EQ(sum, expected);
  }
  spar::allreduce(net, x, by);
  EXPECT_EQ(x, expected);
}

/// Whether parts take values of any type: selectors and schedules that keep the largest rank the values, and storages
/// other than these round them.
template <class Selector, class Storage, class Schedule>
constexpr bool takes_any_type =
    (std::is_same_v<Selector, spar::everything> || std::is_same_v<Selector, spar::selector::nonzeros>) &&
    (spar::has_stream_codec<Storage> || std::is_same_v<Storage, spar::storage::dense>) &&
    spar::storage::plain_blocks<Storage> && !keeps_k<Schedule>;

template <class Storages, class Selectors>
void check_every_schedule(const Storages& storages, const Selectors& selectors) {
  int checked = 0;
  const auto check = [&](const auto& select, const auto& store, const auto& by) {
    using Selector = std::remove_cvref_t<decltype(select.part)>;
    using Storage = std::remove_cvref_t<decltype(store.part)>;
    using Schedule = std::remove_cvref_t<decltype(by.part)>;
    if constexpr (spar::composes<spar::verdict_of<Selector, Storage, spar::flat, Schedule>>) {
      SCOPED_TRACE(std::string(select.name) + ", " + std::string(store.name) + ", " + std::string(by.name));
      const auto all = spar::compose(select.part, store.part, by.part);
      using Composition = std::remove_cvref_t<decltype(all)>;
      constexpr bool takes = takes_any_type<Selector, Storage, Schedule>;
      static_assert(takes == spar::dense_allreduce<Composition, spar::threads, complex_value, spar::sum>);
      ++checked;
      if constexpr (takes) {
        for (const spar::rank_t ranks : {1, 3, 4}) {
          spar::thread_group group(ranks);
          group.run([&](spar::threads& net) { expect_sums(net, all); });
        }
      }
    }
  };
  for_each_model(selectors, [&](const auto& select) {
    for_each_model(storages, [&](const auto& store) {
      for_each_model(all_schedules, [&](const auto& by) { check(select, store, by); });
    });
  });
  EXPECT_GT(checked, 0);
}

constexpr auto copying_selectors = std::tuple{std::get<0>(all_selectors), std::get<1>(all_selectors)};
constexpr auto coded_storages = std::tuple{named_model("coded", spar::storage::coded<>{}),
                                           named_model("coded<7>", spar::storage::coded<7>{.fast = true})};

TEST(own_type, coded_streams) { check_every_schedule(coded_storages, std::tuple{std::get<0>(all_selectors)}); }
#if SPAR_ALL_CASES
TEST(own_type, coded_streams_of_selected_values) { check_every_schedule(coded_storages, copying_selectors); }
TEST(own_type, exact_storages) { check_every_schedule(exact_storages, all_selectors); }
TEST(own_type, storages_that_round) {
  check_every_schedule(short_storages, copying_selectors);
  check_every_schedule(quantised_storages, copying_selectors);
}
TEST(own_type, selectors_that_rank) { check_every_schedule(coded_storages, all_selectors); }
#endif

/// With error feedback: nothing is left over, because all values are selected, and storages copy them.
template <unsigned Mantissa>
void expect_no_residual() {
  spar::thread_group group(3);
  group.run([](spar::threads& net) {
    auto reduce = spar::with_error_feedback<complex_value>(
        spar::compose(spar::selector::nonzeros{}, spar::storage::coded<Mantissa>{}, spar::ssar_split{}));
    for (int call = 0; call < 2; ++call) {
      std::vector<complex_value> x = values_of(net.rank());
      reduce(net, x);
      EXPECT_EQ(x, sum_of(3));
      EXPECT_EQ(std::vector(reduce.residual().begin(), reduce.residual().end()), std::vector<complex_value>(n));
    }
  });
}
TEST(own_type, error_feedback) {
  expect_no_residual<52>();
  expect_no_residual<7>();
}

} // namespace
} // namespace spar_test
