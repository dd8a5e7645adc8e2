// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A decorator that counts the messages and bytes that a rank exchanges with each peer.
#pragma once

#include <spar/transport/decorator.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// A number of messages, and the total size of their payloads.
struct counted_traffic {
  std::uint64_t messages = 0; ///< the number of messages
  std::uint64_t bytes = 0;    ///< payloads only, without headers (at most sizeof(header) bytes per message)
  friend bool operator==(const counted_traffic&, const counted_traffic&) = default;
};

/// The transport of `counting`: counts messages and forwards all functions to the wrapped transport.
template <transport Net>
class counting_port : public observing_port<Net> {
  using observing_port<Net>::inner;

 public:
  using traffic = counted_traffic;

  explicit counting_port(Net& net)
      : observing_port<Net>(net), sent_(static_cast<std::size_t>(net.size())),
        received_(static_cast<std::size_t>(net.size())) {}

  [[nodiscard]] const traffic& sent(rank_t peer) const { return sent_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] const traffic& received(rank_t peer) const { return received_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] traffic sent() const noexcept { return total(sent_); }
  [[nodiscard]] traffic received() const noexcept { return total(received_); }
  void reset() {
    sent_.assign(sent_.size(), {});
    received_.assign(received_.size(), {});
  }

  auto send(const message_pieces& out, rank_t peer, tag_t tag) {
    add(sent_, peer, out.head.payload_bytes());
    return inner().send(out, peer, tag);
  }

  auto receive(message_buffer& in, rank_t peer, tag_t tag) {
    return counted_receive<decltype(inner().receive(in, peer, tag))>(inner().receive(in, peer, tag), *this, in, peer);
  }

 private:
  template <class Inner>
  class counted_receive : public forwarding_awaiter<Inner> {
   public:
    counted_receive(Inner inner, counting_port& counter, const message_buffer& in, rank_t peer) noexcept
        : counted_receive::forwarding_awaiter(std::move(inner)), counter_(&counter), in_(&in), peer_(peer) {}
    void await_resume() const {
      counted_receive::forwarding_awaiter::await_resume();
      add(counter_->received_, peer_, in_->head().payload_bytes());
    }

   private:
    counting_port* counter_;
    const message_buffer* in_;
    rank_t peer_;
  };

  static void add(std::vector<traffic>& list, rank_t peer, std::uint64_t bytes) {
    traffic& t = list[static_cast<std::size_t>(peer)];
    ++t.messages;
    t.bytes += bytes;
  }
  static traffic total(const std::vector<traffic>& list) noexcept {
    traffic sum;
    for (const traffic& t : list) {
      sum.messages += t.messages;
      sum.bytes += t.bytes;
    }
    return sum;
  }

  std::vector<traffic> sent_;
  std::vector<traffic> received_;
};

/// Counts the messages that the wrapped rank exchanges with each peer, and the bytes of their payloads. Each send or
/// receive of a collective counts as one message, even if the transport splits the message into segments. A send counts
/// when it starts, a receive when it has ended. The wrapped communicator must outlive this object.
template <communicates Net>
class counting : public communicator_rank<counting_port<detail::port_type_of<Net>>> {
 public:
  using traffic = counted_traffic; ///< the counts for one peer, or for all

  /// Wraps the rank `net`; all counts are 0.
  explicit counting(Net& net) : counting::communicator_rank(detail::port_of(net)) {}

  /// What this rank has sent to `peer`.
  [[nodiscard]] const traffic& sent(rank_t peer) const { return this->port().sent(peer); }
  /// What this rank has received from `peer`.
  [[nodiscard]] const traffic& received(rank_t peer) const { return this->port().received(peer); }
  /// What this rank has sent to all peers.
  [[nodiscard]] traffic sent() const noexcept { return this->port().sent(); }
  /// What this rank has received from all peers.
  [[nodiscard]] traffic received() const noexcept { return this->port().received(); }
  /// Sets all counts to 0.
  void reset() { this->port().reset(); }
};

} // namespace spar::inline v0_1
