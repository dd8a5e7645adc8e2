// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any fault of any message of the rounds of a partial allreduce: every rank ends in time with the right sum of all
// rounds, or with the right error in this call or the next.
#include "support/faults.hpp"

#include <spar/system/partial_allreduce.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace spar_test {

struct quorum_of_two : spar::quorum {
  constexpr quorum_of_two() { q = 2; }
};

/// Two rounds and the drain, with ranks that are late in turn. The assignment of calls to rounds changes from run to
/// run, but the sum of all rounds does not.
template <class Of, class Participation, class Algorithm>
struct partial_rounds {
  template <class Net>
  spar::task<bits> operator()(Net& net, const input* mine) const& {
    const std::size_t n = mine->dense.size();
    auto reduce = spar::partial_allreduce<Of>(net, n, Participation{}, Algorithm{});
    std::vector<float> total(n);
    std::vector<float> x(n);
    for (int round = 0; round < 3; ++round) {
      const bool last = round == 2;
      net.port().compute(static_cast<std::uint64_t>((net.rank() + round) % net.size()) * 20'000);
      if constexpr (std::is_same_v<Of, float>) {
        x = mine->dense;
        auto call = last ? reduce.start_drain(std::span(x)) : reduce.start(std::span(x));
        co_await std::move(call);
      } else {
        const auto own = mine->view();
        auto call = last ? reduce.start_drain(own) : reduce.start(own);
        const auto result = co_await std::move(call);
        result.sum.to_dense(std::span(x), spar::sum{});
      }
      for (std::size_t i = 0; i < n; ++i) total[i] += x[i];
    }
    co_return bits_of(total);
  }
};

/// If the rank that should start a round has crashed, the others wait for it without a deadline.
template <class Of, class Participation, class Algorithm>
inline constexpr bool waits_idly<partial_rounds<Of, Participation, Algorithm>> =
    !std::is_same_v<Participation, spar::solo>;
/// A rank that contributes nothing sends no entries.
template <class Participation, class Algorithm>
inline constexpr bool empty_payloads<partial_rounds<spar::sparse_stream<float>, Participation, Algorithm>> = true;

namespace {

template <class Participation>
using dense_rounds = partial_rounds<float, Participation, spar::recursive_doubling>;
template <class Participation>
using sparse_rounds = partial_rounds<spar::sparse_stream<float>, Participation, spar::ssar_split>;
using partial_collectives =
    testing::Types<dense_rounds<spar::solo>, dense_rounds<spar::majority>, dense_rounds<quorum_of_two>,
                   sparse_rounds<spar::solo>, sparse_rounds<spar::majority>, sparse_rounds<quorum_of_two>>;
template <class Collective>
using partial_faults = faults<Collective>;
TYPED_TEST_SUITE(partial_faults, partial_collectives);

#ifndef SPAR_SANITIZES_THREADS // a simulator has one thread
/// In the quick set every third fault.
TYPED_TEST(partial_faults, of_every_message_in_the_simulator) {
  std::uint64_t number = 0;
  for (const spar::rank_t ranks : {3, 4}) {
    if (is_shortened && ranks > 3) continue;
    for (const bool synchronous : {false, true}) {
      const std::uint64_t seed = synchronous ? 1 : 2;
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
#endif

#if SPAR_ALL_CASES
using collectives_among_threads = partial_collectives;
#else
using collectives_among_threads = testing::Types<dense_rounds<spar::majority>, sparse_rounds<spar::solo>>;
#endif
template <class Collective>
struct partial_faults_among_threads : faults<Collective> {};
TYPED_TEST_SUITE(partial_faults_among_threads, collectives_among_threads);

TYPED_TEST(partial_faults_among_threads, of_some_messages) {
  std::uint64_t number = 0;
  for (const bool synchronous : {false, true}) {
    for (const std::size_t n : {200U, 20'000U}) { // enclosed in the message; read in the sender's memory
      if (is_shortened && n < 20'000) continue;
      const setting s{.ranks = 3, .n = n, .synchronous = synchronous, .deadline = 0.06};
      setting patient = s;
      patient.deadline = 20;
      const auto clean = run_as_threads<TypeParam>(patient);
      ASSERT_NO_FATAL_FAILURE(expect_clean(clean));
      const std::uint64_t every = stride_among_threads(s, clean, 79);
      for_each_fault(s, clean, [&](setting with) {
        if (this->HasFailure() || ++number % every != 0) return;
        if (is_harmless(with) || is_damage(with))
          with.deadline = patient.deadline; // a rank on a busy machine may be late without a fault
        this->check(with, clean, 10, &run_as_threads<TypeParam>);
      });
    }
  }
}

} // namespace
} // namespace spar_test
