// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of threads.hpp that do not depend on the type of values.
#pragma once

#include <spar/transport/threads.hpp>

namespace spar::inline v0_1 {

SPAR_INLINE threads_port::threads_port(thread_group& group, rank_t rank, rank_t size, const thread_options& options)
    : endpoint(rank, size, pool_owner(*options.memory)), group_(&group), synchronous_(options.synchronous),
      shipments_(4 * static_cast<std::size_t>(size) + 16), spare_notes_(2 * static_cast<std::size_t>(size) + 64),
      checks_(size <= detail::processors() ? 50 : 0) {
  set_unreceived(matching_.arrivals(), [](endpoint& own, bool look) {
    auto& port = static_cast<threads_port&>(own);
    if (look) port.collect();
    return port.matching_.oldest_arrival();
  });
  leavers().set_late(0); // `collect` handles the messages of a rank together with the news that the rank has left
}

SPAR_INLINE void threads_port::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  signal_.notify_all();
}

SPAR_INLINE void threads_port::leave() noexcept {
  group_->depart(rank());
  const detail::rank_lock lock(shared());
  detail::tell_left(*this);
}

SPAR_INLINE void threads_port::forget_leavers() {
  const detail::rank_lock lock(shared());
  collect();
  leavers().clear();
}

SPAR_INLINE void threads_port::abandon(shipment* s) {
  const bool taken = !s->done && !s->state.replace(offer::open, offer::withdrawn);
  if (taken) collect(); // the receiver may already have returned `s`
  if (s->done) return shipments_.recycle(s);
  s->awaited = false; // `collect` recycles `s` when the receiver has returned `s`
  if (!taken) return;
  s->left = true;
  begin_loan();
}

SPAR_INLINE void threads_port::abandon(expectation* r) noexcept {
  if (!r->done) matching_.withdraw(r);
  expectations_.recycle(r);
}

SPAR_INLINE void threads_port::deliver(shipment* s, expectation* r) {
  // The exchange fails if the sender has withdrawn the message after a failure. No later message may take its place, so
  // the receive then waits until this rank learns of the failure.
  if (!s->state.replace(offer::open, offer::taken)) {
    s->loan = nullptr; // the sender may already have destroyed it
    give_back(s);
    return;
  }
  try {
    r->into->arrived() = s->head;
    if (!r->into->fits()) {
      give_back(s);
    } else if (s->loan != nullptr || r->into->on_device()) {
      check_both_on_device(*s, *r->into);
      r->into->borrow(s->pieces, &give_back, s, s->loan);
    } else if (r->into->kept()) {
      r->into->copy_from(s->pieces);
      give_back(s);
    } else {
      r->into->borrow(s->pieces, &give_back, s);
    }
    r->complete(scheduler());
  } catch (...) {
    give_back(s);
    r->fail(scheduler(), std::current_exception());
  }
}

SPAR_INLINE void threads_port::check_both_on_device(const shipment& from, const message_buffer& to) const {
  if (from.loan != nullptr && to.on_device()) return;
  constexpr const char* space[] = {"host memory", "device memory"};
  raise<mismatch>({"rank ", from.source, " sends values in ", space[from.loan != nullptr], ", but rank ", rank(),
                   " receives values in ", space[to.on_device()],
                   ": among threads, either all ranks or none must use spar::on_device for a call"});
}

SPAR_INLINE void threads_port::give_back(void* lender) noexcept {
  auto* s = static_cast<shipment*>(lender);
  if (s->loan != nullptr) s->loan->returned(*s->loan);
  threads_port& owner = *s->owner;
  const std::lock_guard lock(owner.mutex_);
  owner.returned_.push_back(s);
  owner.signal_.notify_all();
}

SPAR_INLINE threads_port::note* threads_port::note_for(const control_message& text) {
  if (text.what != control_message::purpose::abort) return spare_notes_.acquire();
  if (aborted_by_ < 0) aborted_by_ = text.source;
  if (text.source != aborted_by_ || abort_parts_ == abort_notes_.size()) return nullptr;
  return &abort_notes_[abort_parts_++];
}

SPAR_INLINE void threads_port::deposit(shipment* s) {
  const std::lock_guard lock(mutex_);
  incoming_.push_back(s);
  signal_.notify_all();
}

SPAR_INLINE threads& threads::shrink() {
  detail::end_for_shrink(port());
  threads& next = port().group().shrink(rank(), deadline());
  next.set_deadline(deadline());
  next.set_checksums(checksums());
  next.port().set_network(network());
  return next;
}

SPAR_INLINE thread_group::thread_group(rank_t size, const thread_options& options)
    : options_(options), ranks_(*std::pmr::new_delete_resource(), static_cast<std::size_t>(size < 1 ? 0 : size)),
      fates_(*std::pmr::new_delete_resource(), static_cast<std::size_t>(size < 1 ? 0 : size)) {
  detail::check_number(size, {1, detail::valid::greatest, "at least one rank"}, "the size of a thread_group");
  for (rank_t r = 0; r < size; ++r) {
    ranks_.emplace_back(*this, r, size, options);
    fates_.emplace_back(fate::unknown);
  }
}

SPAR_INLINE thread_group::~thread_group() {
  delete survivors_;
  detail::end_calls_of_all(ranks_);
}

SPAR_INLINE void thread_group::run_all(void (*call)(const void* self, threads& net), const void* program) {
  if (first_error_) refuse();
  begin_run();
  fixed_vector<detail::thread> running(*std::pmr::new_delete_resource(), ranks_.size());
  try {
    for (auto& r : ranks_) {
      running.emplace_back([this, call, program, &net = r] {
        try {
          call(program, net);
          end(net.rank()).port().leave();
        } catch (...) {
          fail(net.rank(), std::current_exception());
        }
      });
    }
  } catch (...) { // the system cannot start another thread
    for (auto r = static_cast<rank_t>(running.size()); r < size(); ++r) fail(r, std::current_exception());
  }
  for (auto& t : running) t.join();
  forget_leavers();
  if (first_error_) std::rethrow_exception(first_error_);
}

SPAR_INLINE void thread_group::begin_run() {
  delete std::exchange(survivors_, nullptr);
  for (auto& f : fates_) f = fate::unknown;
}

SPAR_INLINE void thread_group::forget_leavers() {
  for (auto& r : ranks_) r.port().forget_leavers();
  if (survivors_ != nullptr) survivors_->forget_leavers();
}

SPAR_INLINE threads& thread_group::survivor(rank_t r) noexcept {
  rank_t number = 0;
  for (rank_t before = 0; before < r; ++before) {
    if (fates_[static_cast<std::size_t>(before)] == fate::goes_on) ++number;
  }
  return survivors_->ranks_[static_cast<std::size_t>(number)];
}

SPAR_INLINE threads& thread_group::shrink(rank_t r, double seconds) {
  const double until = endpoint::now() + seconds;
  const std::lock_guard lock(mutex_);
  fate& own = fates_[static_cast<std::size_t>(r)];
  if (own == fate::unknown) own = fate::goes_on;
  fate_is_known_.notify_all();
  while (survivors_ == nullptr && own == fate::goes_on) {
    rank_t unknown = 0, going_on = 0;
    const bool late = endpoint::now() >= until;
    for (auto& f : fates_) {
      if (late && f == fate::unknown) f = fate::lost;
      if (f == fate::unknown) ++unknown;
      if (f == fate::goes_on) ++going_on;
    }
    if (unknown > 0)
      fate_is_known_.wait(mutex_, std::min(until, endpoint::now() + 3600));
    else
      survivors_ = new thread_group(going_on, options_);
  }
  fate_is_known_.notify_all();
  if (own == fate::goes_on) return survivor(r);
  raise<peer_failed>({"rank ", r,
                      " (this rank) called shrink after another rank had waited for it until the deadline, ",
                      "so the others go on without it"});
}

SPAR_INLINE void thread_group::depart(rank_t r) noexcept {
  const std::lock_guard lock(mutex_);
  fate& own = fates_[static_cast<std::size_t>(r)];
  if (own == fate::unknown) own = fate::lost;
  fate_is_known_.notify_all();
}

SPAR_INLINE threads& thread_group::end(rank_t r) noexcept {
  const std::lock_guard lock(mutex_);
  fate& own = fates_[static_cast<std::size_t>(r)];
  if (survivors_ != nullptr && own == fate::goes_on) return survivors_->end(survivor(r).rank());
  own = fate::lost;
  fate_is_known_.notify_all();
  return ranks_[static_cast<std::size_t>(r)];
}

SPAR_INLINE void thread_group::refuse() const {
  raise<invalid_argument>({"this thread_group has failed, and cannot run again; construct another one. Its error: ",
                           detail::message_of(first_error_).c_str()});
}

SPAR_INLINE void thread_group::fail(rank_t r, std::exception_ptr why) noexcept {
  threads& net = end(r);
  // If another rank has failed before, the error of this rank is only a consequence, unless this rank has noticed
  // that the other rank has left.
  const detail::bounded_text text = detail::message_of(why);
  const bool first = !net.dead() || net.failed_rank() == net.rank() || text.view() == net.port().failure().reason();
  {
    const std::lock_guard lock(mutex_);
    if (!first_error_ || (first && !error_is_first_)) {
      first_error_ = why;
      error_is_first_ = first;
    }
  }
  abort(net, text.view());
}

SPAR_INLINE operation<threads_port, threads_port::shipment> threads_port::send(const message_pieces& out, rank_t peer,
                                                                               tag_t tag) {
  shipment* s = shipments_.acquire();
  s->begin(false, peer, tag);
  s->owner = this;
  s->source = rank();
  s->head = out.head;
  s->left = false;
  s->state = offer::open;

  s->loan = out.loan;
  s->awaited = synchronous_ || out.loan != nullptr || padded_bytes(out.pieces) > buffered_bytes;
  s->pieces = s->awaited ? out.pieces : pack(out.pieces, s->storage.data());
  const bool awaited = s->awaited; // a copy: after `deposit`, the receiver may return `s`
  group_->port(peer).deposit(s);
  return operation<threads_port, shipment>(*this, awaited ? s : nullptr);
}

SPAR_INLINE operation<threads_port, threads_port::expectation> threads_port::receive(message_buffer& in, rank_t source,
                                                                                     tag_t tag) {
  expectation* r = expectations_.acquire();
  r->begin(true, source, tag);
  r->into = &in;
  if (shipment* s = matching_.post(r)) deliver(s, r);
  return operation<threads_port, expectation>(*this, r);
}

SPAR_INLINE void threads_port::post(const control_message& text, rank_t peer) {
  threads_port& to = group_->port(peer);
  const std::lock_guard lock(to.mutex_);
  note* const n = to.note_for(text);
  if (n == nullptr) return;
  n->text = text;
  to.notes_.push_back(n);
  to.signal_.notify_all();
}

SPAR_INLINE bool threads_port::sleep_until(double time) {
  const double until = std::min(time, now() + 3600);
  const std::lock_guard lock(mutex_);
  while (incoming_.empty() && returned_.empty() && notes_.empty() && !woken_ && now() < until) {
    signal_.wait(mutex_, until);
  }
  woken_ = false;
  return true;
}

SPAR_INLINE bool threads_port::collect() {
  detail::record_queue<shipment> arrived;
  detail::record_queue<note> notes;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(incoming_);
    notes.swap(notes_);
    while (shipment* s = returned_.pop_front()) {
      if (s->left) end_loan();
      if (s->awaited)
        s->complete(scheduler());
      else
        shipments_.recycle(s);
    }
  }
  while (note* n = notes.pop_front()) {
    const control_message text = n->text;
    {
      const std::lock_guard lock(mutex_);
      spare_notes_.recycle(n);
    }
    try {
      spar::on_control_message(*this, text);
    } catch (...) {
      on_progress_error(*this);
    }
  }
  const bool any = !arrived.empty() || !scheduler().idle();
  while (shipment* s = arrived.pop_front()) {
    if (expectation* r = matching_.arrive(s)) deliver(s, r);
  }
  return any;
}

SPAR_INLINE void threads_port::progress(bool block) {
  try {
    bool news = collect();
    for (int i = 0; block && i < checks_ && !news && scheduler().idle(); ++i) {
      detail::pause();
      news = collect();
    }
    if (block && !news && scheduler().idle() && (!dead() || loans().any() || scheduler().polls())) {
      const double until = spar::poll_waits(*this, now());
      if (scheduler().polls())
        sched_yield(); // nothing would end the sleep
      else if (scheduler().idle())
        sleep_until(until);
      collect();
    } else if (!block || ++polls_ % 256 == 0) { // in every `progress(false)`, because the next call may be much later
      spar::poll_waits(*this, now());
    }
  } catch (...) {
    on_progress_error(*this);
  }
  scheduler().run();
}

} // namespace spar::inline v0_1
