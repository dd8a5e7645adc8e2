// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How ranks exchange gradients and changes of weights with spar: by sparse streams.
#pragma once

#include "model.hpp"
#include "scd.hpp"

#include <spar/spar.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace linear {

/// Runs `exchange` when `meet()` has returned, which waits until all ranks call it, and measures both.
template <class Meet, class Exchange>
durations timed(const Meet& meet, const Exchange& exchange) {
  const double ready = seconds_now();
  meet();
  const double start = seconds_now();
  exchange();
  return {.waiting = start - ready, .communicating = seconds_now() - start};
}

/// The sum of all ranks' gradients by an allreduce of sparse streams.
template <class Net, class Algorithm>
struct sparse_sum {
  Net& net;
  Algorithm algorithm;
  std::function<void()> meet;
  std::vector<std::uint32_t> indices;
  std::vector<float> values;

  durations operator()(gradient& step, std::span<float> weights) {
    indices.clear();
    values.clear();
    step.move_to(indices, values);
    spar::sparse_stream<float, std::uint32_t> sum;
    const durations took =
        timed(meet, [&] { sum = spar::allreduce(net, spar::sparse_view(weights.size(), indices, values), algorithm); });
    spar::descend(weights, sum);
    return took;
  }
};

/// The changes of all ranks' blocks by an allgather of sparse streams.
template <class Net>
struct sparse_gather {
  Net& net;
  std::uint64_t features;
  std::function<void()> meet;

  durations operator()(const changes& mine, changes& all) {
    return timed(meet, [&] {
      const auto sum = spar::allgather(net, spar::sparse_view(features, mine.indices, mine.values)).joined();
      all.indices.assign(sum.indices().begin(), sum.indices().end());
      all.values.assign(sum.values().begin(), sum.values().end());
    });
  }
};

} // namespace linear
