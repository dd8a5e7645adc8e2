// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parameters of a transport's network, as far as it knows them.
#pragma once

#include <spar/core/network_model.hpp>

namespace spar {

/// What the transport knows of its network, else the defaults.
template <class Net>
network_model network_of(Net& net) {
  if constexpr (requires { net.network(); })
    return net.network();
  else
    return {};
}

} // namespace spar
