// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of progress.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/progress.hpp>

namespace spar::inline v0_1 {

SPAR_INLINE double poll_waits(const detail::control_port& net, double now) {
  if (net.node().leavers().any()) detail::fail_wait_for_leaver(net, now);
  double until = net.node().waits().expire(now, [&](operation_record& r) { detail::time_out(net, r); });
  detail::waiting_list& waiting = net.node().waits().active();
  for (auto* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    const double ask_at = r->since + static_cast<double>(std::uint64_t{1} << std::min<unsigned>(r->asked, 60));
    if (now >= ask_at)
      detail::ask(net, *r);
    else
      until = std::min(until, ask_at);
    if (r->asked == 0) break; // this operation and all later ones have been awaited for less than 1 s
  }
  return until;
}

SPAR_INLINE void on_progress_error(const detail::control_port& net) noexcept {
  if (!net.node().fail_wait(std::current_exception())) detail::abort(net, std::current_exception());
}

SPAR_INLINE void on_control_message(const detail::control_port& net, const control_message& note) {
  endpoint& node = net.node();
  using purpose = control_message::purpose;
  if (note.what != purpose::call && note.what != purpose::wait) return node.on_control_message(note);
  const detail::bounded_text* const text = node.texts().add(note);
  if (text == nullptr) return;
  if (note.what == purpose::call)
    detail::on_call_note(net, note.source, text->view());
  else
    detail::on_wait_note(net, note.source, text->view());
}

} // namespace spar::inline v0_1
