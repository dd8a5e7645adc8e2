// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of control_subscribers.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/messages/control_subscribers.hpp>

namespace spar::inline v0_1::detail {

SPAR_INLINE control_subscribers::~control_subscribers() {
  while (early_message* note = early_.pop_front()) delete note;
}

SPAR_INLINE void control_subscribers::add(control_subscriber& l) {
  l.number = next_++;
  while (early_message* note =
             early_.take([&](const early_message& n) { return subscriber_number(n.text.view()) == l.number; })) {
    const early_message received = *note;
    delete note;
    l.on_message(l.self, received.source, received.text.view());
  }
  all_.push_back(&l);
}

SPAR_INLINE void control_subscribers::deliver(rank_t source, std::string_view text) {
  const std::uint32_t number = subscriber_number(text);
  if (number >= next_) return early_.push_back(new early_message(source, text));
  for (control_subscriber* l = all_.first(); l != nullptr; l = l->next) {
    if (l->number == number) return l->on_message(l->self, source, text);
  }
}

} // namespace spar::inline v0_1::detail
