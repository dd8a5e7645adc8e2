// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The member function `set_network` of a communicator, which sets the model of the network (`network_model`), by which
// algorithms are chosen, to the same values on all ranks.
#pragma once

#include <spar/core/network_model.hpp>
#include <spar/system/collectives.hpp>

#include <array>
#include <span>
#include <string_view>

namespace spar::inline v0_1 {

namespace detail {

/// The broadcast of `set_network`, whose name tells a rank that makes another call what its peer does.
struct network_broadcast : binomial_broadcast {
  static constexpr std::string_view name = "set_network";
};

/// Sets the model of the transport `net` to rank 0's `network` on all ranks.
template <transport Port>
void agree_on(Port& net, const network_model& network) {
  std::array<double, 6> values{network.alpha,       network.beta,        network.gamma_sparse,
                               network.gamma_dense, network.gamma_coded, network.alpha_shared};
  broadcast(net, std::span(values.data(), values.size()), 0, network_broadcast{});
  const network_model agreed{values[0], values[1], values[2], values[3], values[4], values[5]};
  check_network(agreed, "the network model"); // after the broadcast, so that all ranks throw together
  net.node().set_network(agreed);
}

} // namespace detail

template <transport Port>
void communicator_rank<Port>::set_network(const network_model& network) {
  detail::agree_on(port_, network);
}

} // namespace spar::inline v0_1
