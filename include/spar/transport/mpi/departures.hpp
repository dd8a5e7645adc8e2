// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The messages of an MPI rank that are sent entirely from memory of the transport: envelopes and control messages.
#pragma once

#include <spar/core/memory/link.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/runtime/messages/envelope.hpp>
#include <spar/transport/mpi/check.hpp>

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace spar::inline v0_1::detail {

/// Owns the memory of envelopes, and tests the MPI requests of the messages that are in flight from this memory. If a
/// `Sender` has a send in flight, its request can move to the wait set. Has memory for the reason of an abort, to
/// all ranks, from the start.
template <class Sender>
class mpi_departures {
 public:
  /// A message in flight.
  struct departure : link {
    MPI_Request request = MPI_REQUEST_NULL;
    Sender* sender = nullptr;
    bool is_envelope = true;
  };
  struct envelope : departure {
    mpi_departures* owner = nullptr;
    envelope* next = nullptr;
    alignas(16) std::array<std::byte, envelope_bytes> bytes;
  };

  /// Reserves memory for the reason of an abort to `ranks` ranks; envelopes come in blocks of `room`.
  mpi_departures(std::size_t ranks, std::size_t room)
      : envelopes_(room), abort_notes_(ranks * control_message::most_parts) {
    abort_notes_.reserve(); // reserved memory takes no pages until it is used
  }
  /// MPI may still access the memory of messages that are in flight, which is therefore never freed.
  ~mpi_departures() {
    if (count_ > 0) keep_forever();
  }
  mpi_departures(const mpi_departures&) = delete;

  /// Number of messages in flight.
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Makes the destructor leak all envelopes, because MPI may still access their memory.
  void keep_forever() noexcept {
    envelopes_.keep_forever();
    abort_notes_.keep_forever();
  }

  [[nodiscard]] envelope* acquire() {
    envelope* const e = envelopes_.acquire();
    e->owner = this;
    return e;
  }
  void recycle(envelope* e) noexcept { envelopes_.recycle(e); }
  /// The callback by which a received message returns the envelope that contains it.
  static void give_back(void* lender) noexcept {
    auto* const e = static_cast<envelope*>(lender);
    e->owner->recycle(e);
  }

  /// Adds a message in flight, with its request and, if its send has not ended, its sender.
  void add(departure& d, MPI_Request request, Sender* sender) noexcept {
    d.request = request;
    d.sender = sender;
    d.join_before(all_);
    ++count_;
  }
  /// Lets the messages of `sender` leave, but complete no operation. Returns their number.
  std::size_t forget(const Sender* sender) noexcept {
    std::size_t forgotten = 0;
    for (link* l = &all_.after(); l != &all_; l = &l->after()) {
      auto& d = static_cast<departure&>(*l);
      if (d.sender != sender) continue;
      d.sender = nullptr;
      ++forgotten;
    }
    return forgotten;
  }

  /// Starts to send the control message `note` to `peer` on the communicator `comm`. Takes no memory for an abort.
  [[gnu::cold]] void post(const control_message& note, rank_t peer, int tag, MPI_Comm comm) {
    using purpose = control_message::purpose;
    if (note.what == purpose::abort) {
      abort_note* const own = abort_notes_.acquire();
      own->is_envelope = false;
      post_from(*own, &own->text, note, peer, tag, comm);
    } else {
      envelope* const own = acquire();
      post_from(*own, own->bytes.data(), note, peer, tag, comm);
    }
  }

  /// Tests all messages in flight. Calls `on_left(sender)` for the sender of each message that has left, and
  /// `move(sender, envelope, request)` for each sender that a coroutine awaits, whose request the callee takes over.
  /// Throws `transport_error` if a send has failed.
  template <class OnLeft, class Move>
  void test(OnLeft on_left, Move move) {
    int failure = MPI_SUCCESS;
    for (link* next = &all_.after(); next != &all_;) {
      departure& d = static_cast<departure&>(*next);
      next = &next->after();
      int left = 0;
      const int code = MPI_Test(&d.request, &left, MPI_STATUS_IGNORE);
      if (code != MPI_SUCCESS) failure = code;
      if (left != 0 || code != MPI_SUCCESS) {
        if (d.sender != nullptr) on_left(d.sender);
        recycle(d);
      } else if (d.sender != nullptr && d.sender->waiting) {
        move(d.sender, static_cast<envelope*>(&d), d.request);
      } else {
        continue;
      }
      d.leave();
      --count_;
    }
    check_mpi(failure, "MPI_Isend");
  }

 private:
  struct abort_note : departure {
    control_message text;
    abort_note* next = nullptr;
  };

  void post_from(departure& own, void* memory, const control_message& note, rank_t peer, int tag, MPI_Comm comm) {
    std::memcpy(memory, &note, sizeof(note));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(memory, sizeof(note), MPI_BYTE, peer, tag, comm, &request);
    add(own, request, nullptr);
  }
  void recycle(departure& d) noexcept {
    if (d.is_envelope)
      recycle(static_cast<envelope*>(&d));
    else
      abort_notes_.recycle(static_cast<abort_note*>(&d));
  }

  slab<envelope> envelopes_;
  slab<abort_note> abort_notes_;
  link all_;
  std::size_t count_ = 0;
};

} // namespace spar::inline v0_1::detail
