// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of transport_concept.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/transport_concept.hpp>

namespace spar::inline v0_1 {

namespace detail {

SPAR_INLINE void send_text(const control_port& net, control_message::purpose what, std::string_view text, rank_t peer) {
  for (std::size_t at = 0;;) {
    const control_message part = part_of(what, net.rank(), text, at);
    net.post(part, peer);
    if (part.last != 0) return;
    at += part.length;
  }
}

SPAR_INLINE void broadcast_text(const control_port& net, control_message::purpose what, std::string_view text) {
  for (rank_t peer = 0; peer < net.size(); ++peer) {
    if (peer != net.rank()) send_text(net, what, text, peer);
  }
}

} // namespace detail

} // namespace spar::inline v0_1
