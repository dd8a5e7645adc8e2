// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Transfers that NCCL damages or loses: every rank ends in time with the right error; and damaged values, which nobody
// notices without checksums.
#include "accidents.hpp"

#include "support/watchdog.hpp"

#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace spar_test {
namespace {

/// Two calls on 3 ranks over NCCL; something happens to the transfer `number` that rank 1 receives.
template <class Algorithm>
std::vector<two_ends> run_with_accident(const Algorithm& by, accident what, std::uint64_t number, bool checksums) {
  cuda_double::reset(number);
  nccl_double::reset(number);
  return on_ranks(3, [&](spar::threads& control) {
    cuda_double::set_device(control.rank());
    spar::nccl net(control, {.eager_bytes = 0});
    net.set_deadline(what == accident::lost ? 0.3 : 20);
    net.set_checksums(checksums);
    wait_for_all(3);
    const auto happen = [&] {
      if (what == accident::lost)
        nccl_double::lose(number);
      else if (what != accident::none)
        nccl_double::damage(number, damaged_byte(what));
    };
    return make_two_calls(net, 3000, by, happen, [] { return nccl_double::of_this_thread().receives; });
  });
}
/// The accident happens to each transfer in turn.
template <class Algorithm>
void expect_right_end(const Algorithm& by, accident what, bool checksums) {
  SCOPED_TRACE(testing::Message() << "accident " << static_cast<int>(what) << ", checksums " << checksums);
  watchdog guard(60);
  on_host::put = cuda_double::put;
  const auto clean = run_with_accident(by, accident::none, 1, checksums);
  judge_accident(accident::none, checksums, clean, clean);
  EXPECT_GE(clean[1].received, 2U);
  for (std::uint64_t number = 1; number <= clean[1].received; ++number) {
    SCOPED_TRACE(testing::Message() << "transfer " << number);
    guard.watch("transfer " + std::to_string(number));
    judge_accident(what, checksums, run_with_accident(by, what, number, checksums), clean);
  }
  on_host::put = nullptr;
  EXPECT_EQ(nccl_double::communicators(), 0U);
  EXPECT_EQ(cuda_double::pinned_bytes(), 0U);
  EXPECT_EQ(cuda_double::device_allocations(), 0U);
}

using spar::compose, spar::selector::exact_topk;

TEST(device_accidents, of_indices_are_found_with_and_without_checksums) {
  const auto entries = compose(exact_topk{.k = 300}, spar::recursive_doubling{});
  expect_right_end(entries, accident::entry, false);
  expect_right_end(entries, accident::entry, true);
}
TEST(device_accidents, of_codes_are_found_with_and_without_checksums) {
  constexpr spar::storage::coded<> plain{.fast = true};
  constexpr spar::storage::coded<7> rounded{.fast = true};
  const auto owners = compose(exact_topk{.k = 300}, rounded, spar::balanced_owners{});
  expect_right_end(compose(exact_topk{.k = 300}, plain, spar::recursive_doubling{}), accident::code, false);
  expect_right_end(compose(exact_topk{.k = 300}, rounded, spar::split_allgather{}), accident::code, true);
  expect_right_end(owners, accident::lost, false);
  expect_right_end(owners, accident::lost, true);
}
TEST(device_accidents, of_values_are_found_with_checksums_only) {
  expect_right_end(spar::ring{}, accident::value, false);
  expect_right_end(spar::ring{}, accident::value, true);
}
TEST(device_accidents, that_lose_a_transfer_end_in_a_timeout) {
  expect_right_end(spar::ring{}, accident::lost, false);
  expect_right_end(spar::ring{}, accident::lost, true);
  expect_right_end(compose(exact_topk{.k = 300}, spar::balanced_owners{}), accident::lost, false);
}

} // namespace
} // namespace spar_test
