// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The concept of a selector, and the selector of every nonzero.
#include "selector/inputs.hpp"

#include <spar/selector/bucket_topk.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/gaussian.hpp>
#include <spar/selector/nonzeros.hpp>
#include <spar/selector/selector.hpp>

#include <gtest/gtest.h>

namespace {

using selector_test::index32;
using selector_test::kind;

static_assert(spar::selects<spar::selector::nonzeros, float, std::uint32_t>);
static_assert(spar::selects<spar::selector::exact_topk, double, std::uint64_t>);
struct without_name {
  template <class Index, class Prepare>
  spar::ready<spar::sparse_stream<float, Index>> operator()(const spar::host_work&, std::span<float>, spar::no_state&,
                                                            const Prepare&) const;
};
static_assert(!spar::selects<without_name, float, std::uint32_t>);
static_assert(!spar::selects<spar::selector::nonzeros, float, int>);
struct with_a_state_of_unnamed_numbers : spar::selector::nonzeros {
  struct state {
    std::uint64_t calls = 0;
  };
  template <class Index, class Prepare>
  spar::ready<spar::sparse_stream<float, Index>> operator()(const spar::host_work&, std::span<float>, state&,
                                                            const Prepare&) const;
};
static_assert(!spar::selects<with_a_state_of_unnamed_numbers, float, std::uint32_t>);

static_assert(spar::selects<spar::selector::bucket_topk, float, std::uint64_t>);
static_assert(spar::selects<spar::selector::gaussian, std::int32_t, std::uint32_t>);

template <class T>
struct selector_nonzeros : testing::Test {};
TYPED_TEST_SUITE(selector_nonzeros, selector_test::elements);

TYPED_TEST(selector_nonzeros, takes_every_nonzero) {
  using T = typename TypeParam::type;
  spar::pool pool;
  const spar::selector::nonzeros nonzeros;
  for (const std::size_t n : {0U, 1U, 63U, 64U, 65U, 1000U, 5000U}) {
    for (const kind which : selector_test::kinds) {
      const auto input = selector_test::make_input<T>(n, which, n);
      const auto order = selector_test::ranking<T>(input);
      EXPECT_EQ(selector_test::take<T>(nonzeros, input, pool), selector_test::first_of(order, n));
    }
  }
}

} // namespace
