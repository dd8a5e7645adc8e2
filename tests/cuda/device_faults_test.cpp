// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The faults of conformance/faults and the failures of runtime/failure for calls on values in device memory: whatever
// happens to a message or a rank, every rank ends in time with the right result, or with the right error.
#include "places.hpp"

#include "support/failures.hpp"
#include "support/faults.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace spar_test {
namespace {

void expect_nothing_left() {
  EXPECT_EQ(nccl_double::communicators(), 0U);
  EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
  EXPECT_EQ(cuda_double::device_allocations(), 0U);
}

template <class Collective, class Place>
struct device_case {
  using collective = Collective;
  using place = Place;
};

template <class Case>
struct device_faults : faults<typename Case::collective> {
  void SetUp() override {
    on_host::put = cuda_double::put;
    cuda_double::let_peers_reach_each_other(false);
  }
  void TearDown() override {
    on_host::put = nullptr;
    expect_nothing_left();
    faults<typename Case::collective>::TearDown();
  }
};

using doubling = dense<spar::recursive_doubling>;
using short_ring = dense<in_pieces<spar::storage::as_bfloat16, spar::ring>>;
using coded_doubling = dense<in_pieces<spar::storage::qsgd<8>, spar::recursive_doubling>>;
using short_shots = dense<in_pieces<spar::storage::as_bfloat16, spar::two_shot>>;
using cases =
    testing::Types<device_case<short_shots, through_the_host>, device_case<doubling, through_the_host>,
                   device_case<dense<spar::ring>, through_the_host>,
                   device_case<dense<spar::rabenseifner>, through_the_host>, device_case<short_ring, through_the_host>,
                   device_case<coded_doubling, through_the_host>, device_case<dense_on_tree, through_the_host>,
                   device_case<compressed_on_tree, through_the_host>, device_case<doubling, by_nccl<0>>,
                   device_case<dense<spar::ring>, by_nccl<0>>, device_case<dense<spar::rabenseifner>, by_nccl<4096>>,
                   device_case<short_ring, by_nccl<0>>, device_case<coded_doubling, by_nccl<100>>,
                   device_case<dense_on_tree, by_nccl<0>>, device_case<dense<spar::ring>, staged_values>,
                   device_case<short_ring, staged_values>, device_case<dense<nonzeros>, staged_values>,
                   device_case<dense<spar::ring>, staged_by_nccl>>;
TYPED_TEST_SUITE(device_faults, cases);

TYPED_TEST(device_faults, of_some_messages) {
  using collective = typename TypeParam::collective;
  using place = typename TypeParam::place;
  std::uint64_t number = 0;
  for (const bool checksums : {true, false}) {
    for (const bool synchronous : {false, true}) {
      for (const std::size_t n : {200U, 3000U}) {
        const setting s{.ranks = 3,
                        .n = n,
                        .synchronous = synchronous,
                        .deadline = 0.3,
                        .fault = {},
                        .checksums = checksums,
                        .spare_headers = place::spare_headers};
        setting patient = s;
        patient.deadline = 20;
        const auto clean = run_as_threads<collective, place>(patient);
        ASSERT_NO_FATAL_FAILURE(expect_clean(clean));
        if constexpr (!std::is_same_v<collective, coded_doubling> || !place::spare_headers) { // `nccl` has made a call
          expect_same(run_as_threads<collective>(patient), clean);
        }
        const std::uint64_t every = is_full() ? 23 : 149;
        for_each_fault(s, clean, [&](setting with) {
          const bool loses = is_damage(with) || with.fault->what == spar::fault::kind::drop;
          if (loses && !checksums) return; // nobody would notice
          if (this->HasFailure() || ++number % every != 0) return;
          if (is_harmless(with) || is_damage(with)) with.deadline = patient.deadline;
          this->check(with, clean, 10, &run_as_threads<collective, place>);
        });
      }
    }
  }
}

/// One fault of the message with the number `message`, for each number of which there is one.
template <class Collective, class Place>
void expect_right_end(setting s, const spar::fault& planned) {
  on_host::put = cuda_double::put;
  cuda_double::let_peers_reach_each_other(false);
  s.spare_headers = Place::spare_headers;
  setting patient = s;
  patient.deadline = 20;
  watchdog guard(30);
  const auto clean = run_as_threads<Collective, Place>(patient);
  ASSERT_NO_FATAL_FAILURE(expect_clean(clean));
  const auto& counts = clean[static_cast<std::size_t>(s.faulty_rank)];
  const bool crashes = planned.what == spar::fault::kind::crash;
  for (std::uint64_t m = 0; m < counts.received + (crashes ? counts.sent : 0); ++m) {
    s.fault = planned;
    s.fault->message = m;
    SCOPED_TRACE(s);
    guard.watch(testing::PrintToString(s));
    judge<Collective>(s, run_as_threads<Collective, Place>(s), clean, 10);
  }
  on_host::put = nullptr;
  expect_nothing_left();
}

/// A header that names other sizes than the payload has, also more than there is memory.
TEST(device_faults_of_headers, do_not_change_the_size_of_copies) {
  for (const std::uint64_t bit : {2U, 46U}) {
    const spar::fault damage{.what = spar::fault::kind::corrupt_header,
                             .bit = 8 * offsetof(spar::header, lengths) + bit};
    expect_right_end<dense<spar::ring>, through_the_host>({.n = 3000, .deadline = 20}, damage);
    expect_right_end<dense<spar::ring>, by_nccl<100'000>>({.n = 3000, .deadline = 20}, damage);
  }
}

/// A rank whose call has failed must not keep the memory from which others send.
TEST(device_faults_of_headers, leave_no_loans) {
  const spar::fault damage{.what = spar::fault::kind::corrupt_header, .bit = 8 * offsetof(spar::header, lengths) + 141};
  expect_right_end<coded_doubling, through_the_host>({.n = 3000, .synchronous = true, .deadline = 20, .faulty_rank = 1},
                                                     damage);
}

TEST(device_faults_of_crashes, end_in_a_timeout_on_a_rank) {
  expect_right_end<doubling, by_nccl<0>>({.n = 3000, .deadline = 0.3, .faulty_rank = 1},
                                         {.what = spar::fault::kind::crash});
}

// --- deadlines and aborts, as in runtime/failure ---

template <class Place>
struct device_failures : testing::Test {
  void SetUp() override {
    on_host::put = cuda_double::put;
    cuda_double::let_peers_reach_each_other(false);
  }
  void TearDown() override {
    on_host::put = nullptr;
    expect_nothing_left();
  }
};
using all_places = testing::Types<lent, through_the_host, by_nccl<0>, by_nccl<4096>>;
TYPED_TEST_SUITE(device_failures, all_places);

TYPED_TEST(device_failures, name_a_silent_rank) { a_silent_rank_is_named<TypeParam>(); }
TYPED_TEST(device_failures, are_not_of_a_late_rank) {
  the_deadline_is_not_over_for_a_rank_that_is_only_late<TypeParam>();
}
TYPED_TEST(device_failures, reach_all_ranks) { an_abort_reaches_those_who_wait_and_those_who_call_later<TypeParam>(); }
TYPED_TEST(device_failures, by_a_cancelled_call) { a_cancelled_call_ends_on_all_ranks<TypeParam>(); }
TYPED_TEST(device_failures, let_values_be_freed) { values_may_be_freed_once_their_call_has_failed<TypeParam>(); }

TEST(staged_failures, name_a_silent_rank) {
  a_silent_rank_is_named<staged_values>();
  a_silent_rank_is_named<staged_by_nccl>();
  expect_nothing_left();
}
TEST(staged_failures, are_not_of_a_late_rank) {
  the_deadline_is_not_over_for_a_rank_that_is_only_late<staged_values>();
  the_deadline_is_not_over_for_a_rank_that_is_only_late<staged_by_nccl>();
  expect_nothing_left();
}
TEST(staged_failures, reach_all_ranks) {
  an_abort_reaches_those_who_wait_and_those_who_call_later<staged_values>();
  an_abort_reaches_those_who_wait_and_those_who_call_later<staged_by_nccl>();
  expect_nothing_left();
}

} // namespace
} // namespace spar_test
