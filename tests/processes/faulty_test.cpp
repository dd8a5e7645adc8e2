// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Faults of messages over processes: each rank ends with the right result or the right error; and a trace of the
// messages.
#include "support/processes.hpp"

#include <spar/transport/faulty.hpp>
#include <spar/transport/tracing.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

using kind = spar::fault::kind;
constexpr std::size_t sizes[] = {10, 50'000}; // enclosed in the first message; sent separately
constexpr spar::rank_t faulty_rank = 1;

/// Makes two allreduces in place, in which rank 1 has the fault. Returns the error, or an empty text for the right
/// results.
std::string error_of_two_calls(communicator& all, std::size_t n, const spar::fault& fault, double deadline) {
  std::vector<spar::fault> plan;
  if (all.rank() == faulty_rank) plan = {fault};
  spar::faulty<communicator> net(all, plan);
  net.set_deadline(deadline);
  net.set_checksums(true);
  std::string text;
  try {
    for (int call = 0; call < 2; ++call) {
      std::vector<float> x(n, 1.0F);
      spar::allreduce(net, std::span(x), spar::recursive_doubling{});
      EXPECT_EQ(x, std::vector<float>(n, static_cast<float>(net.size()))) << "a wrong result";
    }
  } catch (const spar::corrupt_message& e) {
    EXPECT_TRUE(net.rank() == faulty_rank || fault.what == kind::drop);
    text = e.what();
  } catch (const spar::timeout& e) {
    EXPECT_TRUE(fault.what == kind::drop || fault.what == kind::crash);
    text = e.what();
  } catch (const spar::peer_failed& e) {
    text = e.what();
  }
  return text;
}

TEST(processes_faults, every_rank_ends_in_an_error) {
  communicator world(meeting());
  if (world.size() < 2) return;
  for (const std::size_t n : sizes) {
    for (const kind what : {kind::corrupt_header, kind::corrupt_payload, kind::drop, kind::crash}) {
      SCOPED_TRACE(testing::Message() << "n = " << n << ", fault " << static_cast<int>(what));
      const bool is_silent = what == kind::drop || what == kind::crash;
      communicator all = world.split(0, world.rank());
      EXPECT_NE(error_of_two_calls(all, n, {.what = what, .bit = 77}, is_silent ? 0.3 : 60), "");
      wait_for_all(); // messages to a failed rank stay in memory until it destroys the communicator
    }
  }
}

TEST(processes_faults, a_delay_does_no_harm) {
  communicator world(meeting());
  if (world.size() < 2) return;
  for (const std::size_t n : sizes) {
    communicator all = world.split(0, world.rank());
    EXPECT_EQ(error_of_two_calls(all, n, {.what = kind::delay, .seconds = 0.05}, 60), "");
    wait_for_all();
  }
}

TEST(processes_faults, messages_are_traced) {
  communicator world(meeting());
  spar::tracing<communicator> net(world);
  for (const std::size_t n : sizes) {
    std::vector<float> x(n, 1.0F);
    spar::allreduce(net, std::span(x), spar::ring{});
    EXPECT_EQ(x[0], static_cast<float>(world.size()));
  }
  const std::string events = net.events();
  std::size_t sends = 0;
  for (std::size_t at = 0; (at = events.find("send to", at)) != std::string::npos; ++at) ++sends;
  EXPECT_EQ(sends, world.statistics().messages_sent);
}

} // namespace
} // namespace spar_test
