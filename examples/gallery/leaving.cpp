// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks with different numbers of batches: one that stops early is named at once, and by an agreed `leave`, all ranks
// stop together.
#include <spar/spar.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

std::size_t batches_of(spar::rank_t rank) { return rank == 2 ? 3 : 5; } // rank 2 has fewer

/// Each rank stops when its own batches are used up.
void stop_alone(spar::threads& net) {
  std::vector<float> gradient(1000, 1);
  for (std::size_t batch = 0; batch < batches_of(net.rank()); ++batch) spar::allreduce(net, gradient);
}

/// Ranks without batches go on with zeros until no rank has any; then all leave.
void stop_together(spar::threads& net) {
  std::size_t batch = 0;
  for (std::vector<std::uint64_t> left{1}; left[0] > 0; ++batch) {
    std::vector<float> gradient(1000, batch < batches_of(net.rank()) ? 1 : 0);
    spar::allreduce(net, gradient);
    left[0] = batch + 1 < batches_of(net.rank()) ? 1 : 0;
    spar::allreduce(net, left, spar::ring{}, spar::maximum{});
  }
  spar::leave(net); // returns when all ranks have come here
  if (net.rank() == 0) std::printf("all ranks have left after %zu batches\n", batch);
  std::vector<float> more(1000);
  spar::allreduce(net, more); // a mistake: throws invalid_argument on all ranks
}

/// Returns the error in which the ranks end.
std::string error_of(void (*program)(spar::threads& net)) {
  spar::thread_group ranks(3);
  try {
    ranks.run(program);
  } catch (const spar::error& failure) {
    std::printf("%s\n", failure.what());
    return failure.what();
  }
  return {};
}

int main() {
  const bool is_named = error_of(stop_alone).starts_with("rank 2 has left (calls without a name: 3)");
  const bool is_refused = error_of(stop_together).find("by spar::leave") != std::string::npos;
  return is_named && is_refused ? EXIT_SUCCESS : EXIT_FAILURE;
}
