// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The reused threshold: an exact selection when the threshold is found, a selection within the bounds in between,
// whatever the vectors are.
#include "selector/inputs.hpp"
#include "support/counting_resource.hpp"
#include "support/extent.hpp"

#include <spar/selector/threshold_reuse.hpp>

namespace {

using namespace selector_test;
using spar::selector::threshold_reuse;

static_assert(spar::selects<threshold_reuse, float, std::uint32_t>);

/// The selector together with the state that changes from call to call.
struct stateful {
  threshold_reuse options;
  threshold_reuse::state now{};

  template <class Prepare>
  spar::sparse_stream<float> operator()(std::span<float> x, spar::pool& memory, const Prepare& prepare) {
    spar::scheduler none_suspended(memory);
    spar::host_work work(none_suspended);
    return options.operator()<index32>(work, x, now, prepare).await_resume();
  }
};

template <class T>
struct selector_threshold_reuse : testing::Test {};
TYPED_TEST_SUITE(selector_threshold_reuse, elements);

/// Makes a call and checks what holds of every call: the selector only moves entries, selected entries are no smaller
/// than the others, and the number of entries is within the bounds.
template <class T>
std::size_t expect_bounds(stateful& select, std::span<const T> input, spar::pool& pool) {
  const auto order = ranking<T>(input);
  const std::uint64_t k = spar::selector::detail::amount(select.options.k, select.options.density, input.size());
  const auto slack = static_cast<std::uint64_t>(select.options.epsilon * static_cast<double>(k));
  const auto before = select.now;
  auto again = select;
  const auto taken = take<T>(select, input, pool);
  EXPECT_EQ(taken, first_of(order, taken.size())) << "expected the largest entries";
  EXPECT_LE(taken.size(), k + slack);
  EXPECT_GE(taken.size(), std::min<std::size_t>(order.size(), k - slack));
  if (before.calls == 0 || before.calls == select.options.period) {
    EXPECT_EQ(taken.size(), std::min<std::size_t>(order.size(), k));
    EXPECT_EQ(select.now.calls, 1U);
  } else if (select.now.calls != 1) { // the threshold was reused
    EXPECT_EQ(select.now.threshold, before.threshold);
    EXPECT_EQ(select.now.calls, before.calls + 1);
  } else {
    EXPECT_EQ(taken.size(), std::min<std::size_t>(order.size(), k));
  }
  EXPECT_EQ(take<T>(again, input, pool), taken) << "a second call has another result";
  EXPECT_EQ(again.now, select.now);
  return taken.size();
}

TYPED_TEST(selector_threshold_reuse, keeps_its_bounds_on_any_vectors) {
  using T = typename TypeParam::type;
  spar::pool pool;
  constexpr double epsilons[] = {0.0, 0.1, 0.9};
  constexpr std::uint64_t periods[] = {1, 3, 32};
  for (const std::size_t n : {0U, 1U, 50U, 3000U}) {
    const std::uint64_t sizes[] = {0, 1, n / 20, n};
    for (std::size_t e = 0; e < 3; ++e) {
      for (std::size_t p = 0; p < 3; ++p) {
        for (std::size_t s = 0; s < 4; ++s) {
          const double epsilon = epsilons[e];
          const std::uint64_t period = periods[p], k = sizes[s];
          if (k > n || !spar_test::runs_case(2, n / 3000, e, p, s)) continue;
          stateful select{{.k = k, .period = period, .epsilon = epsilon}};
          std::mt19937_64 random(n + k);
          for (int call = 0; call < (spar_test::is_shortened ? 5 : 12); ++call)
            expect_bounds<T>(select, make_input<T>(n, kinds[random() % std::size(kinds)], random()), pool);
        }
      }
    }
  }
}

TYPED_TEST(selector_threshold_reuse, keeps_its_bounds_on_vectors_that_drift) {
  using T = typename TypeParam::type;
  spar::pool pool;
  for (const double epsilon : {0.0, 0.1}) {
    stateful select{{.density = 0.01, .period = 8, .epsilon = epsilon}};
    for (int call = 0; call < 24; call += spar_test::is_full() ? 1 : spar_test::is_shortened ? 3 : 2) {
      auto input = make_input<T>(17000, kind::normal, static_cast<std::uint64_t>(call));
      const double scale = call < 12 ? 1 + 0.01 * call : call < 18 ? 5 : 0.05; // a jump and a collapse of the values
      for (T& value : input) value = static_cast<T>(scale * static_cast<double>(value));
      expect_bounds<T>(select, input, pool);
    }
  }
}

TEST(selector_threshold_reuse, finds_the_threshold_once_a_period) {
  spar::pool pool;
  stateful select{{.k = 100, .period = 4, .epsilon = 0.5}};
  std::vector<std::uint64_t> calls;
  for (std::uint64_t call = 0; call < 9; ++call) {
    expect_bounds<float>(select, make_input<float>(10000, kind::normal, call), pool);
    calls.push_back(select.now.calls);
  }
  EXPECT_EQ(calls, (std::vector<std::uint64_t>{1, 2, 3, 4, 1, 2, 3, 4, 1}));
}

TEST(selector_threshold_reuse, follows_a_jump_a_collapse_and_silence) {
  spar::pool pool;
  const auto input = make_input<float>(10000, kind::normal, 1);
  const auto scaled = [&](float by) {
    auto x = input;
    for (float& value : x) value *= by;
    return x;
  };
  stateful select{{.k = 100}};
  EXPECT_EQ(expect_bounds<float>(select, input, pool), 100U);
  EXPECT_EQ(expect_bounds<float>(select, input, pool), 100U);
  EXPECT_EQ(select.now.calls, 2U);
  EXPECT_EQ(expect_bounds<float>(select, scaled(100), pool), 100U);
  EXPECT_EQ(select.now.calls, 1U);
  EXPECT_EQ(expect_bounds<float>(select, scaled(0.01F), pool), 100U);
  EXPECT_EQ(select.now.calls, 1U);
  EXPECT_EQ(expect_bounds<float>(select, scaled(0), pool), 0U);
  EXPECT_EQ(expect_bounds<float>(select, scaled(0), pool), 0U);
  EXPECT_EQ(select.now.calls, 2U) << "only zeros are left, so there is no reason to find the threshold again";
  EXPECT_EQ(expect_bounds<float>(select, std::vector<float>(10000, -2.0F), pool), 100U);
  EXPECT_EQ(expect_bounds<float>(select, std::vector<float>(10000, -2.0F), pool), 100U)
      << "there are more ties than the bound allows";
  EXPECT_EQ(expect_bounds<float>(select, input, pool), 100U);
}

TEST(selector_threshold_reuse, takes_ties_within_its_bound) {
  spar::pool pool;
  stateful select{{.k = 10, .epsilon = 0.2}};
  std::vector<float> input(100);
  for (std::size_t i = 0; i < 12; ++i) input[8 * i] = 1;
  EXPECT_EQ(expect_bounds<float>(select, input, pool), 10U);
  EXPECT_EQ(expect_bounds<float>(select, input, pool), 12U);
  input[1] = 1;
  EXPECT_EQ(expect_bounds<float>(select, input, pool), 10U);
}

TEST(selector_threshold_reuse, goes_on_from_a_saved_state) {
  spar::pool pool;
  stateful select{{.k = 100, .epsilon = 0.3}};
  expect_bounds<double>(select, make_input<double>(5000, kind::normal, 1), pool);
  expect_bounds<double>(select, make_input<double>(5000, kind::normal, 2), pool);
  const threshold_reuse::state saved{select.now.threshold, select.now.calls};
  stateful other{{.k = 100, .epsilon = 0.3}, saved};
  const auto input = make_input<double>(5000, kind::normal, 3);
  EXPECT_EQ(take<double>(other, input, pool), take<double>(select, input, pool));
  EXPECT_EQ(other.now, select.now);
  // A state of another type or with invalid values does no harm: the selector finds the threshold again.
  for (const std::uint64_t threshold : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    other.now = {threshold, 5};
    expect_bounds<double>(other, input, pool);
    other.now = {threshold, 5};
    expect_bounds<float>(other, make_input<float>(5000, kind::normal, 3), pool);
  }
}

TEST(selector_threshold_reuse, names_what_is_wrong) {
  const auto complaint = [](const threshold_reuse& options, std::size_t n) -> std::string {
    spar::pool pool;
    std::vector<float> x(n, 1.0F);
    stateful select{options};
    try {
      options.validate(n);
    } catch (const spar::invalid_argument& e) {
      EXPECT_THROW((void)select_by(select, std::span(x), pool), spar::invalid_argument);
      EXPECT_EQ(select.now, threshold_reuse::state{});
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(complaint({.k = 1}, 1), "");
  EXPECT_EQ(complaint({.k = 1, .period = 0}, 1), "the selector's period is 0 calls; expected at least 1");
  EXPECT_EQ(complaint({.k = 1, .epsilon = -0.5}, 1), "the selector's epsilon is -0.5; expected a value in [0, 1)");
  EXPECT_NE(complaint({.k = 1, .epsilon = 1}, 1), "");
  EXPECT_NE(complaint({.k = 1, .epsilon = std::numeric_limits<double>::quiet_NaN()}, 1), "");
  EXPECT_NE(complaint({.k = 2}, 1), "");
  EXPECT_NE(complaint({.density = 2}, 1), "");
  EXPECT_EQ(complaint({.k = 1, .threads = 0}, 1), "the number of threads is 0; expected a number in [1, 256]");
  EXPECT_NE(complaint({.k = 1, .threads = 257}, 1), "");
  EXPECT_EQ(complaint({.k = 1, .threads = 256}, 1), "");
}

/// Values that are computed while the selector runs: each value once, in order, and all of them in every call.
TEST(selector_threshold_reuse, looks_at_no_value_before_it_is_prepared) {
  struct maker {
    std::vector<float>* to;
    const std::vector<float>* from;
    std::size_t* made;
    void operator()(std::size_t begin, std::size_t end) const noexcept {
      EXPECT_EQ(begin, *made);
      for (std::size_t i = begin; i < end; ++i) (*to)[i] += (*from)[i];
      *made = end;
    }
  };
  spar::pool memory;
  constexpr std::size_t n = 100'003;
  stateful by_blocks{{.k = 700, .period = 5}};
  stateful at_once = by_blocks;
  std::vector<float> made(n), there(n), values(n);
  for (int call = 0; call < 12; ++call) {
    for (std::size_t i = 0; i < n; ++i) {
      const auto scale = call == 7 ? 100.0F : call == 9 ? 0.001F : 1.0F; // too many, too few entries
      values[i] = scale * static_cast<float>((i * 7919 + static_cast<std::size_t>(call) * 104729) % 10007);
      there[i] += values[i];
    }
    std::size_t so_far = 0;
    const auto one = by_blocks(std::span(made), memory, maker{&made, &values, &so_far});
    const auto other = select_by(at_once, std::span(there), memory);
    EXPECT_EQ(so_far, n);
    EXPECT_TRUE(std::ranges::equal(one.indices(), other.indices())) << "call " << call;
    EXPECT_TRUE(std::ranges::equal(one.values(), other.values())) << "call " << call;
    EXPECT_EQ(made, there);
    EXPECT_EQ(by_blocks.now, at_once.now);
  }
}

/// The number of values does not divide evenly; large values are spread evenly or lie in one thread's part alone.
TYPED_TEST(selector_threshold_reuse, selects_the_same_by_any_number_of_threads) {
  using T = typename TypeParam::type;
  spar::pool memory;
  constexpr std::size_t n = 100'003; // enough work for three threads
  std::vector<stateful> alone, shared;
  for (const std::size_t k : {n / 100, n / 3}) {
    alone.push_back({{.k = k, .period = 4}});
    shared.push_back({{.k = k, .period = 4, .threads = 64}});
  }
  for (std::uint64_t call = 0; call < 9; ++call) {
    auto input = make_input<T>(n, kind::normal, call);
    for (std::size_t i = 0; i < n; ++i) { // a jump, a collapse, all in one place
      if (call == 5 || (call >= 7 && i < n / 7)) input[i] = static_cast<T>(input[i] * 8);
      if (call == 6) input[i] = static_cast<T>(input[i] / 8);
    }
    for (std::size_t s = 0; s < alone.size(); ++s) {
      const auto expected = take<T>(alone[s], input, memory);
      ASSERT_TRUE(take<T>(shared[s], input, memory) == expected) << alone[s].options.k << ", call " << call;
      ASSERT_EQ(alone[s].now, shared[s].now);
    }
  }
}

TEST(selector_threshold_reuse, prepares_each_value_once_by_several_threads) {
  spar::pool memory;
  constexpr std::size_t n = 140'011;
  stateful select{{.k = 300, .period = 3, .threads = 4}};
  for (int call = 0; call < 7; ++call) {
    std::vector<float> x(n);
    std::vector<int> prepared(n);
    const float scale = call == 4 ? 50.0F : 1.0F; // too many entries for the buffer of each thread
    (void)select(std::span(x), memory, [&](std::size_t begin, std::size_t end) noexcept {
      for (std::size_t i = begin; i < end; ++i) {
        ++prepared[i];
        x[i] = scale * static_cast<float>(i * 7919 % 10007);
      }
    });
    EXPECT_EQ(std::ranges::count(prepared, 1), static_cast<std::ptrdiff_t>(n)) << "call " << call;
  }
}

TEST(selector_threshold_reuse, allocates_once) {
  spar_test::counting_resource memory;
  spar::pool pool(memory);
  stateful select{{.density = 0.01}};
  std::uint64_t first = 0;
  for (std::uint64_t call = 0; call < 40; ++call) {
    auto x = make_input<float>(50'000, call % 5 == 4 ? kind::few_values : kind::normal, call);
    (void)select_by(select, std::span(x), pool);
    if (call == 0) first = memory.allocations();
  }
  EXPECT_EQ(memory.allocations(), first);
}

} // namespace
