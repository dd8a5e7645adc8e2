// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The model of the network by which algorithms are chosen, agreed among the ranks.
#pragma once

#include <spar/core/network_model.hpp>
#include <spar/system/collectives.hpp>

#include <array>
#include <span>

namespace spar {

/// Rank 0's `network` becomes the model of all ranks, by which `sparcml` and `dense` choose, and `flexreduce`: they
/// must choose the same everywhere. Collective, between other calls. Throws `invalid_argument`, on every rank, where
/// one of rank 0's parameters is no number of seconds; those that other ranks bring do not matter.
template <communicates Net>
void set_network(Net& net, const network_model& network) {
  std::array<double, 4> values{network.alpha, network.beta, network.gamma_sparse, network.gamma_dense};
  broadcast(net, std::span(values.data(), values.size()), 0);
  for (const double x : values) { // now, as only rank 0 knew them before
    if (!is_duration(x)) raise<invalid_argument>({"a parameter of a network is a number of seconds, not ", x});
  }
  detail::port_of(net).node().set_network({values[0], values[1], values[2], values[3]});
}

} // namespace spar
