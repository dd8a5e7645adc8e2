// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages of more than 2 GiB, beyond what an int counts; needs about 7 GiB of memory on 2 ranks.

#include "support/processes.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spar_test {
namespace {

TEST(processes_large_messages, beyond_two_gibibytes) {
  communicator net(meeting());
  ASSERT_EQ(net.size(), 2);
  constexpr std::size_t n = (std::size_t{1} << 31) + 12'345;
  std::vector<std::uint32_t> x((n + 3) / 4);
  for (std::size_t i = 0; i < x.size(); i += 4096)
    x[i] = static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(net.rank());
  x.back() = 77 + static_cast<std::uint32_t>(net.rank());
  if (net.rank() == 1) x.assign(x.size(), 0);
  spar::broadcast(net, std::span<std::uint32_t>(x), 0);
  for (std::size_t i = 0; i < x.size() - 1; i += 4096) ASSERT_EQ(x[i], static_cast<std::uint32_t>(i));
  EXPECT_EQ(x.back(), 77U);
  EXPECT_GT(net.last_call().bytes_sent + net.last_call().bytes_received, std::uint64_t{1} << 31);
}

} // namespace
} // namespace spar_test
