// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any fault of any message of buckets that are in flight together: every rank ends in time with the right sums, or with
// the right error in this step or the next call.
#include "support/faults.hpp"

#include <spar/system/bucketed_feedback.hpp>
#include <spar/system/published.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace spar_test {

/// Two steps of three buckets, the second with a threshold.
template <class Algorithm>
struct two_steps {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    const std::size_t n = mine->dense.size();
    const std::vector<spar::parameter> parameters{{"a", n / 2}, {"b", n / 4}, {"c", n - n / 2 - n / 4}};
    spar::bucketed_feedback<Net, float, Algorithm> feedback(net, parameters, {.bucket_bytes = 1},
                                                            {.select = {.density = 0.04}});
    std::vector<float> x;
    bits both;
    for (int step = 0; step < 2; ++step) {
      x = mine->dense;
      feedback.ready("c", std::span(x).subspan(n / 2 + n / 4));
      feedback.ready("a", std::span(x).first(n / 2));
      feedback.ready("b", std::span(x).subspan(n / 2, n / 4));
      auto ended = feedback.ended();
      co_await std::move(ended);
      const bits its = bits_of(x);
      both.insert(both.end(), its.begin(), its.end());
    }
    co_return both;
  }
};
/// A rank may have no entries for the owner of a block.
template <class Algorithm>
inline constexpr bool empty_payloads<two_steps<Algorithm>> = true;

namespace {

using tested = testing::Types<two_steps<spar::ok_topk_allreduce<>>, two_steps<spar::topka_allreduce>>;
TYPED_TEST_SUITE(faults, tested);

#ifndef SPAR_SANITIZES_THREADS // a simulator has one thread
TYPED_TEST(faults, of_every_message_in_the_simulator) {
  std::uint64_t number = 0;
  for (const bool synchronous : {false, true}) {
    const setting s{.ranks = 3, .synchronous = synchronous, .deadline = 1e-2};
    const auto clean = simulate<TypeParam>(s);
    ASSERT_NO_FATAL_FAILURE(expect_clean(clean));
    for_each_fault(s, clean, [&](const setting& with) {
      if (this->HasFailure() || !runs_case(3, synchronous, number++)) return;
      this->check(with, clean, 1e-3, &simulate<TypeParam>);
    });
  }
}
#endif

TYPED_TEST(faults, of_some_messages_among_threads) {
  const setting s{.ranks = 3, .deadline = 0.06};
  setting patient = s;
  patient.deadline = 20;
  const auto clean = run_as_threads<TypeParam>(patient);
  ASSERT_NO_FATAL_FAILURE(expect_clean(clean));
  std::uint64_t number = 0;
  const std::uint64_t every = stride_among_threads(s, clean, is_full() ? 29 : 101);
  for_each_fault(s, clean, [&](setting with) {
    if (this->HasFailure() || ++number % every != 0) return;
    if (is_harmless(with) || is_damage(with))
      with.deadline = patient.deadline; // a rank on a busy machine may be late without a fault
    this->check(with, clean, 10, &run_as_threads<TypeParam>);
  });
}

} // namespace
} // namespace spar_test
