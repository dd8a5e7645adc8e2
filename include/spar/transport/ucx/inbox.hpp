// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The messages over UCX that have arrived and wait, and the order in which their sources have sent them.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/memory/record_queue.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/transport/ucx/frame.hpp>
#include <spar/transport/ucx/worker.hpp>

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>

namespace spar::inline v0_1::detail {

class ucx_inbox;

/// A message that waits for its receive or for an earlier message, or a control message that waits to be handled; or
/// one whose payload a receive has borrowed, or will.
struct ucx_arrival : ucx_incoming {
  ucx_arrival* next = nullptr;
  ucx_inbox* owner = nullptr;
  buffer<std::byte> own{*std::pmr::new_delete_resource(), 0}; // the payload, if UCX does not keep it

  /// Memory for the payload.
  std::byte* room() {
    if (own.size() < payload_bytes) own = buffer<std::byte>(*std::pmr::new_delete_resource(), payload_bytes);
    return own.data();
  }
};

/// Makes one sequence of the messages of each source again, which UCX may deliver in another order, and keeps those
/// that wait.
class ucx_inbox {
 public:
  using queue = record_queue<ucx_arrival>;

  /// Of a rank among `ranks` with the worker `of`. Memory for `room` messages is taken at once when one has to wait.
  ucx_inbox(rank_t ranks, std::size_t room, const ucx_worker& of)
      : worker_(&of), arrivals_(room), sources_(*std::pmr::new_delete_resource(), static_cast<std::size_t>(ranks)) {
    for (rank_t r = 0; r < ranks; ++r) sources_.emplace_back();
  }

  /// Whether it is the turn of `m`, because all earlier messages of its source have had theirs. If so, the turn of the
  /// next message comes; otherwise, `keep_early` keeps `m` for `take_next`.
  bool take_turn(const ucx_incoming& m) noexcept {
    source& from = source_of(m.source);
    if (m.number != from.received) return false;
    ++from.received;
    return true;
  }
  /// Lets `m` wait for the earlier messages of its source. Returns whether UCX has to keep the payload.
  bool keep_early(const ucx_incoming& m) { return keep(m, source_of(m.source).early); }
  /// Removes and returns the message of `r` that has waited for its turn, if its turn has come; null otherwise.
  ucx_arrival* take_next(rank_t r) noexcept {
    source& from = source_of(r);
    ucx_arrival* const a = from.early.take([&](const ucx_arrival& e) { return e.number == from.received; });
    if (a != nullptr) ++from.received;
    return a;
  }

  /// Lets the message `m` wait in `in`. Returns whether UCX has to keep its payload. Throws std::bad_alloc.
  bool keep(const ucx_incoming& m, queue& in) {
    in.push_back(hold(m));
    return m.may_stay;
  }
  /// Lends the payload of `m`, which has arrived in host memory, to `to`. Returns whether UCX has to keep the payload.
  /// Throws std::bad_alloc.
  bool lend(const ucx_incoming& m, message_buffer& to) {
    lend(*hold(m), to);
    return m.may_stay;
  }
  /// Lends the payload of `a`, which is then discarded.
  static void lend(ucx_arrival& a, message_buffer& to) noexcept {
    payload_views pieces{};
    const std::byte* from = a.payload;
    for (std::size_t i = 0; i < max_pieces; ++i) {
      pieces[i] = {from, a.head.lengths[i]};
      from += a.head.lengths[i];
    }
    to.borrow(pieces, [](void* own) noexcept { discard(static_cast<ucx_arrival*>(own)); }, &a);
  }
  /// Returns a record of `m` with memory for its payload, which is still at the sender. Throws std::bad_alloc.
  ucx_arrival* make_room(const ucx_incoming& m) {
    return acquire(m, [](ucx_arrival& a) {
      a.payload = a.room();
      a.is_rendezvous = a.may_stay = false;
    });
  }
  /// The message `a` is not needed any more, nor is its payload, unless UCX has taken it over.
  void recycle(ucx_arrival* a) noexcept { arrivals_.recycle(a); }
  static void discard(ucx_arrival* a) noexcept {
    if (a->may_stay) ucp_am_data_release(a->owner->worker_->get(), a->payload);
    a->owner->arrivals_.recycle(a);
  }
  void discard_all(queue& in) noexcept {
    while (ucx_arrival* const a = in.pop_front()) discard(a);
  }
  /// Discards the messages that wait for their turn.
  void discard_early() noexcept {
    for (source& each : sources_) discard_all(each.early);
  }

 private:
  /// Returns a record of `m`, whose payload UCX keeps or the record copies. Throws std::bad_alloc.
  ucx_arrival* hold(const ucx_incoming& m) {
    return acquire(m, [](ucx_arrival& a) {
      if (a.may_stay || a.payload_bytes == 0) return;
      std::memcpy(a.room(), a.payload, a.payload_bytes);
      a.payload = a.own.data();
    });
  }
  template <class Prepare>
  ucx_arrival* acquire(const ucx_incoming& m, Prepare prepare) {
    ucx_arrival* const a = arrivals_.acquire();
    static_cast<ucx_incoming&>(*a) = m;
    a->owner = this;
    try {
      prepare(*a);
    } catch (...) {
      arrivals_.recycle(a);
      throw;
    }
    return a;
  }

  struct source {
    std::uint32_t received = 0; // number of its messages that have had their turn, modulo 2^32
    queue early;
  };
  [[nodiscard]] source& source_of(rank_t r) noexcept { return sources_[static_cast<std::size_t>(r)]; }

  const ucx_worker* worker_;
  slab<ucx_arrival> arrivals_;
  fixed_vector<source> sources_;
};

} // namespace spar::inline v0_1::detail
