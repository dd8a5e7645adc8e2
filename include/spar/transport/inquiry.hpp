// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank that waits for long asks the one that it waits for whether that is in the same call. Where ranks disagree on
// the algorithm, or on a plan, each may wait for one that sends to another: then no message that comes ever tells.
#pragma once

#include <spar/transport/signature.hpp>
#include <spar/transport/transport.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <string_view>

namespace spar::detail {

/// Of a header, what an inquiry carries.
inline constexpr std::size_t inquiry_bytes = offsetof(header, count);

/// Tells the rank for which an operation waits to which call it belongs.
template <transport Net>
[[gnu::noinline, gnu::cold]] void ask(Net& net, operation_record& r) {
  ++r.asked;
  const call_record* const call = r.tag < 0 ? nullptr : net.node().call_of(sequence_of(r.tag));
  if (call == nullptr) return;
  const header ours = header_of(call->agreed, call->sequence);
  const std::string_view text(reinterpret_cast<const char*>(&ours), inquiry_bytes);
  net.post(part_of(control_message::purpose::call, net.rank(), text, 0), r.peer);
}

/// Asks those who have not been asked yet: where ranks wait and nothing else can happen.
template <transport Net>
void ask(Net& net) {
  waiting_list& waiting = net.node().waiting();
  for (auto* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    if (r->asked == 0) ask(net, *r);
  }
}

/// Looks at the deadline, and asks those for whom this rank has waited for a second, then for two, four and so on.
/// Returns the time at which it is to look again.
template <transport Net>
double look_at_waits(Net& net, double now) {
  double until = net.node().look_at_deadline(now);
  waiting_list& waiting = net.node().waiting();
  for (auto* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    const double due = r->since + static_cast<double>(std::uint64_t{1} << std::min<unsigned>(r->asked, 60));
    if (now >= due)
      ask(net, *r);
    else
      until = std::min(until, due);
    if (r->asked == 0) break; // those behind it have not waited for longer
  }
  return until;
}

/// A control message has arrived. Throws `corrupt_message` for one that nobody can have sent, and `mismatch` where this
/// rank is in another call of that number than its source and does not wait in it: else the call ends in that.
template <transport Net>
[[gnu::noinline, gnu::cold]] void heed(Net& net, const control_message& note) {
  endpoint& node = net.node();
  if (note.what != control_message::purpose::call) return node.heed(note);
  if (note.length != inquiry_bytes) throw corrupt_message("a rank asks for less than a call");
  header theirs;
  std::memcpy(static_cast<void*>(&theirs), note.text.data(), inquiry_bytes);
  const call_record* const call = node.call_of(theirs.sequence);
  if (call == nullptr) return;
  const header ours = header_of(call->agreed, call->sequence);
  if (theirs.sequence != ours.sequence || is_of(theirs, call->agreed, call->sequence)) return;
  try {
    throw_mismatch(theirs, note.source, ours, node.rank());
  } catch (const mismatch&) {
    if (!node.end_wait(*call, std::current_exception())) throw;
  }
}

} // namespace spar::detail
