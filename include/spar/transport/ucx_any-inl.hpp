// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The function of <spar/any_ucx.hpp>.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/transport/any.hpp>
#include <spar/transport/ucx.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace spar::inline v0_1 {

SPAR_INLINE any_transport any_ucx(const rendezvous& meeting, std::span<rank_t> hosts) {
  if (!hosts.empty() && hosts.size() != static_cast<std::size_t>(meeting.size()))
    raise<invalid_argument>(
        {"the hosts of ", meeting.size(), " ranks need as many numbers; got room for ", hosts.size()});
  auto* const own = new detail::owned_rank<ucx>(meeting);
  any_transport net = detail::any_access::transport(own);
  if (!hosts.empty()) {
    const std::vector<rank_t> found = hosts_of(static_cast<const ucx&>(*own));
    std::copy(found.begin(), found.end(), hosts.begin());
  }
  return net;
}

} // namespace spar::inline v0_1
