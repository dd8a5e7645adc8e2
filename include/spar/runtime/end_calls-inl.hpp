// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of end_calls.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/end_calls.hpp>

namespace spar::inline v0_1::detail {

SPAR_INLINE bool has_unended_calls(endpoint& node, const void* net) noexcept {
  link& handles = node.calls().handles();
  for (link* l = &handles.after(); l != &handles; l = &l->after()) {
    auto* const handle = static_cast<call_handle*>(l);
    if (handle->net == net && !handle->work.done()) return true;
  }
  return false;
}

SPAR_INLINE void detach_handles(endpoint& node, const void* net) noexcept {
  static call_record none; // the record of all detached handles, whose statistics are 0
  link& handles = node.calls().handles();
  for (link* l = &handles.after(); l != &handles;) {
    auto* const handle = static_cast<call_handle*>(l);
    l = &l->after();
    if (handle->net != net) continue;
    handle->leave();
    handle->net = nullptr;
    handle->call = &none;
  }
}

SPAR_INLINE void end_calls(const control_port& net) noexcept {
  try {
    if (has_unended_calls(net.node(), net.transport_address())) {
      detail::abort(net, destroyed_in_flight);
      unwind(net);
      await_loans(net);
    }
  } catch (...) { // no further progress is possible
  }
  detach_handles(net.node(), net.transport_address());
}

} // namespace spar::inline v0_1::detail
