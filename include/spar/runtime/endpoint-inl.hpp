// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of endpoint.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/endpoint.hpp>

namespace spar::inline v0_1 {

SPAR_INLINE endpoint::endpoint(rank_t rank, rank_t size, const pool_owner& memory)
    : rank_(rank), size_(size), pool_(memory), scheduler_(*pool_), failure_(rank) {
  detail::check_number(size, {1, detail::valid::greatest, "at least one rank"}, "the size of a communicator");
}

SPAR_INLINE endpoint::~endpoint() {
  ensure(subscribers_.empty(), "a communicator is destroyed before a partial allreduce on it; destroy that first");
  while (&prefixes_.after() != &prefixes_) prefixes_.after().leave();
  memory().release();
}

SPAR_INLINE detail::calls_of_leaver endpoint::calls_so_far() const noexcept {
  detail::last_call last;
  if (const call_identity* const ended = calls_.last_ended())
    last = {ended->agreed.digest, ended->history, static_cast<std::uint32_t>(ended->sequence % header::sequences),
            ended->agreed.root};
  detail::calls_of_leaver::counts numbers{calls_.unnamed()};
  return {last, numbers, 1 + names_.count_calls(&numbers[1], detail::calls_of_leaver::max_names)};
}

SPAR_INLINE void endpoint::open(call_record& call, double now) {
  if (checksums_) {
    call.messages = buffer<std::uint8_t>(memory(), 2 * max_lanes * static_cast<std::size_t>(size_));
    std::fill(call.messages.data(), call.messages.data() + call.messages.size(), std::uint8_t{0});
  }
  const bool first = calls_.open(call, now);
  // Starts a new count of memory requests, unless a partial collective has subscribed to control messages: what a
  // partial collective requests between its rounds counts towards its next round.
  if (first && rounds_ == 0 && subscribers_.empty()) memory().begin_call();
}

SPAR_INLINE void endpoint::finish(call_record& call, double now) noexcept {
  calls_.finish(call, now);
  if (rounds_ == 0) memory().end_call();
  call.messages.reset();
}

SPAR_INLINE detail::call_name& endpoint::name_call(named which) {
  detail::call_name& name = names_.find(which.text);
  if (name.in_flight && !dead()) {
    raise<invalid_argument>(
        {"cannot start the collective named ", name.text.c_str(), ": the previous call with this name has not ended"});
  }
  name.begin(true, 0, -1);
  return name;
}

SPAR_INLINE void endpoint::set_deadline(double seconds) {
  detail::check_number(seconds, detail::valid::time_limit, "the deadline");
  const detail::rank_lock lock(rank_mutex_);
  waits_.set_deadline(seconds);
}

SPAR_INLINE void endpoint::mark_dead(rank_t who, std::string_view why) noexcept {
  if (dead()) return;
  failure_.set(who, why);
  waits_.wake_all(scheduler_);
}

SPAR_INLINE void endpoint::on_control_message(const control_message& part) {
  using purpose = control_message::purpose;
  if (part.what == purpose::round) {
    const detail::bounded_text* const text = texts_.add(part);
    if (text != nullptr) subscribers_.deliver(part.source, text->view());
  } else if (part.what == purpose::name) {
    if (part.source != 0)
      raise<corrupt_message>(
          {"rank ", part.source, " has sent the number of a named collective, but only rank 0 assigns these numbers"});
    names_.take_number({part.text.data(), part.length}).complete(scheduler_);
  } else if (part.what == purpose::left) {
    const detail::bounded_text* const text = texts_.add(part);
    if (text != nullptr && !text->empty()) leavers_.add(part.source, text->view());
  } else if (part.what == purpose::abort) {
    // Of a second abort, the first parts may have been ignored, and with them the number of the rank.
    if (!failure_.append(part) || dead()) return;
    rank_t failed = -1;
    const std::string_view reason = failure_.take_reason(failed, size_);
    mark_dead(failed, reason);
  } else { // callers handle messages with other valid purposes themselves
    raise<corrupt_message>({"a control message from rank ", part.source, " has the purpose ",
                            static_cast<unsigned>(part.what), "; expected 1 (abort), 3 (name), 4 (round) or 6 (left)"});
  }
}

} // namespace spar::inline v0_1
