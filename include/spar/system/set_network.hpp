// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sets the model of the network (`network_model`), which determines the choice of algorithms, to the same values on all
// ranks.
#pragma once

#include <spar/core/network_model.hpp>
#include <spar/system/collectives.hpp>

#include <array>
#include <span>

namespace spar {

/// Sets the model of the network on all ranks to rank 0's `network`; the `network` of the other ranks is ignored. The
/// model must be the same on all ranks, because `cheapest` and `sparcml` use the model to choose an algorithm, and
/// `flexreduce` uses the model to decide whether to use a barrier. All ranks must call `set_network`, between the same
/// two collectives. Throws `invalid_argument` on every rank if a parameter of rank 0's `network` is negative, infinite
/// or NaN.
template <communicates Net>
void set_network(Net& net, const network_model& network) {
  std::array<double, 6> values{network.alpha,       network.beta,        network.gamma_sparse,
                               network.gamma_dense, network.gamma_coded, network.alpha_shared};
  broadcast(net, std::span(values.data(), values.size()), 0);
  const network_model agreed{values[0], values[1], values[2], values[3], values[4], values[5]};
  detail::check_network(agreed, "the network model"); // after the broadcast, so that all ranks throw together
  detail::port_of(net).node().set_network(agreed);
}

} // namespace spar
