// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any fault of any message of any collective: every rank ends in time with the right result, or with the right error in
// this call or the next. Never a hang, never a wrong result.
#include "support/faults.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace spar_test {
namespace {

TYPED_TEST_SUITE(faults, collectives);

#ifndef SPAR_SANITIZES_THREADS // a simulator has one thread
/// In the quick set every third fault.
TYPED_TEST(faults, of_every_message_in_the_simulator) {
  std::uint64_t number = 0;
  for (const spar::rank_t ranks : {3, 4}) {
    if (is_shortened && ranks > 3) continue;
    for (const bool synchronous : {false, true}) {
      for (std::uint64_t seed = 0; seed < (is_full() ? 3 : 1); ++seed) {
        const setting s{.ranks = ranks, .synchronous = synchronous, .seed = seed, .deadline = 1e-2};
        const auto clean = simulate<TypeParam>(s);
        ASSERT_NO_FATAL_FAILURE(expect_clean(clean));
        for_each_fault(s, clean, [&](const setting& with) {
          if (this->HasFailure() || !runs_case(3, ranks, synchronous, number++)) return;
          this->check(with, clean, 1e-3, &simulate<TypeParam>);
        });
      }
    }
  }
}
#endif

#if SPAR_ALL_CASES
using collectives_among_threads = collectives;
#else
using collectives_among_threads = testing::Types<sparse<spar::ssar_split>, sparse<spar::sparcml>,
                                                 feedback<spar::ok_topk<float>>, dense<spar::ring>, dense_on_tree>;
#endif
template <class Collective>
struct faults_among_threads : faults<Collective> {};
TYPED_TEST_SUITE(faults_among_threads, collectives_among_threads);

TYPED_TEST(faults_among_threads, of_some_messages) {
  const std::uint64_t least = is_full() ? 29 : 101;
  std::uint64_t number = 0;
  for (const spar::rank_t ranks : {3, 4}) {
    if (is_shortened && ranks > 3) continue;
    for (const bool synchronous : {false, true}) {
      for (const std::size_t n : {200U, 20'000U}) { // enclosed in the message; read in the sender's memory
        if (is_shortened && n < 20'000) continue;
        const setting s{.ranks = ranks, .n = n, .synchronous = synchronous, .deadline = 0.06};
        setting patient = s;
        patient.deadline = 20;
        const auto clean = run_as_threads<TypeParam>(patient);
        ASSERT_NO_FATAL_FAILURE(expect_clean(clean));
        const std::uint64_t every = stride_among_threads(s, clean, least);
        for_each_fault(s, clean, [&](setting with) {
          if (this->HasFailure() || ++number % every != 0) return;
          if (is_harmless(with) || is_damage(with))
            with.deadline = patient.deadline; // a rank on a busy machine may be late without a fault
          this->check(with, clean, 10, &run_as_threads<TypeParam>);
        });
      }
    }
  }
}

} // namespace
} // namespace spar_test
