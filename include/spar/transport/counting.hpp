// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A decorator that counts the messages and bytes that a rank exchanges with each peer.
#pragma once

#include <spar/transport/transport.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace spar {

/// Counts logical messages (one per send or receive of a collective) and their payload, per peer; a receive counts when
/// it has ended. Forwards everything to the transport it wraps, which must outlive it.
template <transport Net>
class counting {
 public:
  struct traffic {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0; ///< of payload; a header is sizeof(header) more per message
    friend bool operator==(const traffic&, const traffic&) = default;
  };

  explicit counting(Net& net)
      : net_(&net), sent_(static_cast<std::size_t>(net.size())), received_(static_cast<std::size_t>(net.size())) {}

  [[nodiscard]] const traffic& sent(rank_t peer) const { return sent_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] const traffic& received(rank_t peer) const { return received_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] traffic sent() const noexcept { return total(sent_); }
  [[nodiscard]] traffic received() const noexcept { return total(received_); }
  void reset() {
    sent_.assign(sent_.size(), {});
    received_.assign(received_.size(), {});
  }

  [[nodiscard]] rank_t rank() const noexcept { return net_->rank(); }
  [[nodiscard]] rank_t size() const noexcept { return net_->size(); }
  [[nodiscard]] endpoint& node() noexcept { return net_->node(); }
  [[nodiscard]] spar::scheduler& scheduler() noexcept { return net_->scheduler(); }
  [[nodiscard]] pool& memory() noexcept { return net_->memory(); }
  [[nodiscard]] double now() noexcept { return net_->now(); }
  [[nodiscard]] const spar::statistics& last_call() const noexcept { return net_->last_call(); }
  [[nodiscard]] const spar::statistics& statistics() const noexcept { return net_->statistics(); }
  void compute(std::uint64_t entries) { net_->compute(entries); }
  void progress(bool block) { net_->progress(block); }
  void post(const control_message& note, rank_t peer) { net_->post(note, peer); }

  auto send(const message_pieces& out, rank_t peer, tag_t tag) {
    add(sent_, peer, out.head.payload_bytes());
    return net_->send(out, peer, tag);
  }

  auto receive(message_buffer& in, rank_t peer, tag_t tag) {
    return counted_receive<decltype(net_->receive(in, peer, tag))>(net_->receive(in, peer, tag), *this, in, peer);
  }

 private:
  template <class Inner>
  class counted_receive {
   public:
    counted_receive(Inner inner, counting& counter, const message_buffer& in, rank_t peer) noexcept
        : inner_(std::move(inner)), counter_(&counter), in_(&in), peer_(peer) {}
    [[nodiscard]] bool await_ready() const noexcept { return inner_.await_ready(); }
    void await_suspend(std::coroutine_handle<> waiting) const noexcept { inner_.await_suspend(waiting); }
    void await_resume() const {
      inner_.await_resume();
      add(counter_->received_, peer_, in_->head().payload_bytes());
    }

   private:
    Inner inner_;
    counting* counter_;
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

  Net* net_;
  std::vector<traffic> sent_;
  std::vector<traffic> received_;
};

} // namespace spar
