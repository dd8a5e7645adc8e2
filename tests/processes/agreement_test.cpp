// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Over processes: if one rank of a collective differs in something on which the ranks must agree, every rank gets an
// error that names the difference, at the latest in the next call in which the ranks agree.
#include "support/disagreements.hpp"
#include "support/extent.hpp"
#include "support/processes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace spar_test {
namespace {

TEST(processes_agreement, on_each_parameter_of_each_collective_is_checked) {
  communicator world(meeting());
  if (world.size() < 2) return;
  std::uint64_t position = 0;
  for (const disagreement& which : disagreements()) {
    ++position;
    for (spar::rank_t odd = 0; odd < world.size(); ++odd) {
      if (!runs_case(5 * static_cast<std::uint64_t>(world.size()), position, odd)) continue;
      communicator all = world.split(0, world.rank());
      spar::any_transport net(all);
      std::string text;
      const spar::rank_t own = which.rooted ? odd : 0;
      const spar::rank_t common = which.rooted ? (odd + 1) % world.size() : 0;
      spar::run_until_done(net, disagree(net, which, odd, own, common, &text));
      EXPECT_NE(text.find("ranks disagree on "), std::string::npos) << which.call << ", rank " << odd << ": " << text;
      EXPECT_NE(text.find(which.text), std::string::npos) << which.call << ", rank " << odd << ": " << text;
    }
  }
}

} // namespace
} // namespace spar_test
