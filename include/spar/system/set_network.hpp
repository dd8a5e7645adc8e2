// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sets the model of the network by which algorithms are chosen, the same on all ranks.
#pragma once

#include <spar/core/network_model.hpp>
#include <spar/system/collectives.hpp>

#include <array>
#include <span>

namespace spar {

/// Sets the model of all ranks to rank 0's `network`. By this model `cheapest`, and so `sparcml`, chooses an algorithm,
/// and `flexreduce` decides whether to use a barrier; all ranks must decide alike. Collective; call it between other
/// collectives. Throws `invalid_argument` on every rank if one of rank 0's parameters is negative, infinite or NaN; the
/// arguments of the other ranks are ignored.
template <communicates Net>
void set_network(Net& net, const network_model& network) {
  std::array<double, 4> values{network.alpha, network.beta, network.gamma_sparse, network.gamma_dense};
  broadcast(net, std::span(values.data(), values.size()), 0);
  for (const double x : values) { // after the broadcast, so that all ranks throw
    if (!is_duration(x))
      raise<invalid_argument>(
          {"expected a finite, non-negative number of seconds as a parameter of the network model, got ", x});
  }
  detail::port_of(net).node().set_network({values[0], values[1], values[2], values[3]});
}

} // namespace spar
