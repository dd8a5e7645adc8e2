// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of abort.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/abort.hpp>

namespace spar::inline v0_1 {

namespace detail {

SPAR_INLINE void abort(const control_port& net, std::string_view reason, rank_t failed) noexcept {
  if (net.node().dead()) return;
  bounded_text text;
  text.add({reinterpret_cast<const char*>(&failed), sizeof(failed)});
  text.add(reason);
  broadcast_text(net, control_message::purpose::abort, text.view());
  net.node().mark_dead(failed, reason);
}

SPAR_INLINE void abort(const control_port& net, std::string_view reason) noexcept {
  detail::abort(net, reason, net.rank());
}

SPAR_INLINE void abort(const control_port& net, const std::exception_ptr& why) noexcept {
  if (!net.node().dead()) detail::abort(net, message_of(why).view());
}

SPAR_INLINE void unwind(const control_port& net) noexcept {
  net.scheduler().run();
  for (; net.scheduler().polls(); net.scheduler().run()) sched_yield();
}

SPAR_INLINE void abort_and_unwind(const control_port& net, std::string_view reason) noexcept {
  detail::abort(net, reason);
  if (net.scheduler().running()) return;
  unwind(net);
  try {
    while (net.node().aborting()) net.progress(true);
  } catch (...) { // no further progress is possible
  }
}

SPAR_INLINE void end_for_shrink(const control_port& net) {
  const rank_lock lock(net.node().shared());
  refuse_coroutine(net, "shrink");
  abort_and_unwind(net, "it has called shrink");
}

SPAR_INLINE void refuse_coroutine(const control_port& net, std::string_view function) {
  if (net.scheduler().running())
    raise<invalid_argument>({"a coroutine on rank ", net.rank(), " calls ", function,
                             ", which blocks; call it outside of coroutines, for example after run_until_done"});
}

SPAR_INLINE void await_loans(const control_port& net) {
  if (net.node().loans().any()) detail::abort(net, "a call failed before other ranks had received its messages");
  while (net.node().loans().any()) net.progress(true);
}

} // namespace detail

SPAR_INLINE void abort_and_rethrow(const detail::control_port& net) {
  detail::abort(net, std::current_exception());
  throw;
}

} // namespace spar::inline v0_1
