// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of any_transport that are collective calls.
#pragma once

#include <spar/system/collectives.hpp>
#include <spar/system/set_network.hpp>
#include <spar/transport/any.hpp>

namespace spar::inline v0_1 {

SPAR_INLINE void any_transport::set_network(const network_model& network) { detail::agree_on(port(), network); }
SPAR_INLINE void any_transport::leave() { spar::leave(port()); }

} // namespace spar::inline v0_1
