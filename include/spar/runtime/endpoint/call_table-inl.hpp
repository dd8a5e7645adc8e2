// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of call_table.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/endpoint/call_table.hpp>

namespace spar::inline v0_1 {

namespace detail {

SPAR_INLINE void call_table::number(call_record& call) noexcept {
  std::uint64_t& history = call.name != nullptr ? call.name->history : history_;
  if (call.name != nullptr) {
    call.sequence = call.name->calls++ * max_in_flight + call.name->number;
  } else {
    call.sequence = next_ / first_named * max_in_flight + next_ % first_named;
    ++next_;
  }
  // The multiplier of FNV-1a is odd, so two different histories stay different as long as the ranks agree.
  call.history = std::exchange(history, fnv1a(history, call.agreed.digest));
}

SPAR_INLINE void call_table::finish(call_record& call, double now) noexcept {
  in_flight_[word_of(call)] &= ~bit_of(call);
  call.leave();
  ended_[endings_++ % ended_.size()] = call;
  if (call.name != nullptr) call.name->in_flight = false;
  --open_;
  last_activity_ = now;
  call.cost.seconds = now - call.started;
  last_ = call.cost;
  total_ += call.cost;
}

SPAR_INLINE call_record* call_table::find(std::uint64_t sequence) noexcept {
  for (link* l = &list_.after(); l != &list_; l = &l->after()) {
    auto* const call = static_cast<call_record*>(l);
    if (call->sequence % max_in_flight == sequence % max_in_flight) return call;
  }
  return nullptr;
}

SPAR_INLINE const call_identity* call_table::last_ended() const noexcept {
  return endings_ > 0 ? &ended_[(endings_ - 1) % ended_.size()] : nullptr;
}

SPAR_INLINE const call_identity* call_table::find_ended(std::uint64_t sequence) const noexcept {
  for (std::size_t i = 0; i < std::min<std::size_t>(endings_, ended_.size()); ++i) {
    if ((ended_[i].sequence - sequence) % header::sequences == 0) return &ended_[i];
  }
  return nullptr;
}

SPAR_INLINE void call_table::keep_options(const call_record& call) noexcept {
  const call_identity* const last = last_ended();
  if (last == nullptr || call.sequence != last->sequence || call.describe.write == nullptr) return;
  failed_options_.shrink(0);
  call.describe.write(call.describe.object, failed_options_);
  failed_sequence_ = call.sequence;
}

SPAR_INLINE description call_table::kept_options(std::uint64_t sequence) const noexcept {
  if (failed_options_.empty() || sequence != failed_sequence_) return {};
  return {&failed_options_,
          [](const void* text, bounded_text& to) { to.add(static_cast<const bounded_text*>(text)->view()); }};
}

SPAR_INLINE call_record& call_table::acquire() {
  call_record& call = *records_.acquire();
  call.cost = {};
  call.name = nullptr;
  call.chosen = {};
  call.error = {};
  return call;
}

} // namespace detail

} // namespace spar::inline v0_1
