// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A decorator for failure tests: it damages, delays or drops planned messages of a rank, or crashes the rank.
#pragma once

#include <spar/transport/decorator.hpp>

#include <algorithm>
#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace spar {

/// A fault that is injected on a rank.
struct fault {
  enum class kind : std::uint8_t {
    corrupt_header,  ///< flips one bit in the header of a message that this rank receives
    corrupt_payload, ///< flips one bit in the payload of such a message, if it has a payload
    delay,           ///< holds back a message that this rank sends
    drop,            ///< discards a message that this rank sends
    crash            ///< from a message on, sent or received, the rank does nothing any more
  };

  kind what{};
  std::uint64_t message = 0; ///< index of the send or receive, from 0 in order of starts; a crash counts both
  std::uint64_t bit = 0;     ///< the bit that is flipped, modulo the number of bits
  double seconds = infinity; ///< duration of a delay
  std::uint64_t messages = UINT64_MAX / 2; ///< a delay also ends when this many more messages have been sent

  static constexpr double infinity = std::numeric_limits<double>::infinity();
};

namespace detail {

/// A copy of a payload.
struct payload_copy {
  explicit payload_copy(const payload_views& from) {
    for (std::size_t i = 0; i < max_pieces; ++i) pieces[i].assign(from[i].begin(), from[i].end());
  }
  [[nodiscard]] payload_views views() const noexcept { return {pieces[0], pieces[1], pieces[2]}; }

  std::array<std::vector<std::byte>, max_pieces> pieces;
};

inline void flip(std::span<std::byte> bytes, std::uint64_t bit) noexcept {
  bytes[bit / 8 % bytes.size()] ^= static_cast<std::byte>(1U << bit % 8);
}

/// Flips one bit of the received payload, in a copy: the payload may be in the memory of the sender, where it must not
/// change.
inline void flip(message_buffer& in, std::uint64_t bit) {
  payload_copy copy({in.piece<std::byte>(0), in.piece<std::byte>(1), in.piece<std::byte>(2)});
  std::uint64_t bits = 0;
  for (const auto& piece : copy.pieces) bits += 8 * piece.size();
  if (bits == 0) return;
  bit %= bits;
  for (auto& piece : copy.pieces) {
    if (bit < 8 * piece.size()) {
      flip(std::span(piece), bit);
      break;
    }
    bit -= 8 * piece.size();
  }
  in.release();
  in.copy_from(copy.views());
}

} // namespace detail

/// Injects the faults of a plan into the messages of a rank and forwards everything else to the wrapped transport,
/// which must outlive this object. Ranks notice damage only if they check payloads, so every such test needs
/// `net.set_checksums(true)`.
///
/// - The sender of a delayed or dropped message sees its send complete. Later messages to the same peer with the same
///   tag stay behind a delayed one. Delays end when the rank calls `progress`, in the simulator at their virtual time
///   (if the decorator directly wraps the simulator's rank). Destroying the decorator discards messages that are still
///   held back.
/// - A crash ends this rank's own calls in `peer_failed`; to its peers the rank is silent.
template <transport Net>
class faulty_port : public decorated_port<Net> {
  using decorated_port<Net>::inner;

 public:
  using decorated_port<Net>::rank;
  using decorated_port<Net>::now;
  using decorated_port<Net>::node;

  faulty_port(Net& net, std::vector<fault> plan) : decorated_port<Net>(net), plan_(std::move(plan)) {
    if constexpr (has_alarm) {
      net.on_alarm([](void* self) { static_cast<faulty_port*>(self)->release(); }, this);
    }
  }
  faulty_port(const faulty_port&) = delete;
  ~faulty_port() {
    if constexpr (has_alarm) inner().on_alarm(nullptr, nullptr);
    for (late_message& m : late_) m.begun.reset();
    detail::await_loans(inner());
  }

  /// Numbers of messages that this rank has started to send, and to receive, so far.
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
  /// Whether delayed messages are still held back or in flight; `progress` sends them.
  [[nodiscard]] bool holds_back() const noexcept { return !late_.empty(); }

  void post(const control_message& note, rank_t peer) {
    if (!crashed_) inner().post(note, peer);
  }
  void share() = delete; // a progress thread would sleep through the end of a delay
  void progress(bool block) {
    release();
    inner().progress(block && (late_.empty() || node().dead())); // as a delay that ends wakes no blocked rank
  }

  auto send(const message_pieces& out, rank_t peer, tag_t tag) {
    const std::uint64_t number = sent_++;
    if (crashes(number + received_) || planned(fault::kind::drop, number) != nullptr) return sending();
    const fault* delay = planned(fault::kind::delay, number);
    if (delay != nullptr || is_behind(late_.end(), peer, tag)) {
      hold_back(out, peer, tag, delay != nullptr ? *delay : fault{.message = number, .seconds = 0});
      return sending();
    }
    sending begun(inner().send(out, peer, tag));
    release();
    return begun;
  }

  auto receive(message_buffer& in, rank_t peer, tag_t tag) {
    const std::uint64_t number = received_++;
    const rank_t source = crashes(sent_ + number) ? rank() : peer; // no rank sends to itself, so this never ends
    return receiving(inner().receive(in, source, tag), *this, in, number);
  }

 private:
  using inner_send = decltype(std::declval<Net&>().send(std::declval<message_pieces>(), rank_t{}, tag_t{}));
  using inner_receive = decltype(std::declval<Net&>().receive(std::declval<message_buffer&>(), rank_t{}, tag_t{}));
  static constexpr bool has_alarm = requires(Net& net) { net.on_alarm(nullptr, nullptr); };

  /// A send that the wrapped transport has started, or one that is complete as far as its sender can see.
  class sending {
   public:
    sending() noexcept = default;
    explicit sending(inner_send begun) noexcept : inner_(std::move(begun)) {}
    [[nodiscard]] bool await_ready() const noexcept { return !inner_ || inner_->await_ready(); }
    void await_suspend(std::coroutine_handle<> waiting) const noexcept { inner_->await_suspend(waiting); }
    void await_resume() const {
      if (inner_) inner_->await_resume();
    }

   private:
    std::optional<inner_send> inner_;
  };

  class receiving : public detail::forwarding_awaiter<inner_receive> {
   public:
    receiving(inner_receive inner, faulty_port& net, message_buffer& in, std::uint64_t number) noexcept
        : receiving::forwarding_awaiter(std::move(inner)), net_(&net), in_(&in), number_(number) {}
    void await_resume() const {
      receiving::forwarding_awaiter::await_resume();
      if (const fault* f = net_->planned(fault::kind::corrupt_payload, number_)) detail::flip(*in_, f->bit);
      if (const fault* f = net_->planned(fault::kind::corrupt_header, number_)) {
        detail::flip(std::as_writable_bytes(std::span(&in_->arrived(), 1)), f->bit);
      }
    }

   private:
    faulty_port* net_;
    message_buffer* in_;
    std::uint64_t number_;
  };

  /// A copy of a delayed message.
  struct late_message {
    header head;
    detail::payload_copy payload;
    rank_t peer;
    tag_t tag;
    double leaves;       // when the delay ends
    std::uint64_t after; // the delay also ends when more messages than this have been sent
    std::optional<inner_send> begun;
  };
  using late_messages = std::list<late_message>;

  [[nodiscard]] const fault* planned(fault::kind what, std::uint64_t message) const noexcept {
    const auto found = std::find_if(plan_.begin(), plan_.end(),
                                    [&](const fault& f) { return f.what == what && f.message == message; });
    return found != plan_.end() ? &*found : nullptr;
  }

  /// Crashes this rank if that is planned after `messages` sends and receives. Returns whether the rank has crashed.
  bool crashes(std::uint64_t messages) {
    if (!crashed_ && planned(fault::kind::crash, messages) != nullptr) {
      crashed_ = true;
      node().mark_dead(rank(), "spar::faulty crashed the rank as planned");
    }
    return crashed_;
  }

  /// Whether a message before `last` to `peer` with `tag` is still held back.
  [[nodiscard]] bool is_behind(typename late_messages::const_iterator last, rank_t peer, tag_t tag) const noexcept {
    return std::any_of(late_.begin(), last,
                       [&](const late_message& m) { return !m.begun && m.peer == peer && m.tag == tag; });
  }

  void hold_back(const message_pieces& out, rank_t peer, tag_t tag, const fault& delay) {
    const double leaves = now() + delay.seconds;
    late_.push_back(
        {out.head, detail::payload_copy(out.pieces), peer, tag, leaves, delay.message + delay.messages, {}});
    if constexpr (has_alarm) {
      if (delay.seconds < fault::infinity) inner().wake_at(leaves);
    }
  }

  /// Sends the messages whose delay is over.
  void release() {
    for (auto m = late_.begin(); m != late_.end();) {
      const bool over = now() >= m->leaves || sent_ > m->after;
      if (!m->begun && over && !node().dead() && !is_behind(m, m->peer, m->tag)) {
        m->begun.emplace(inner().send({m->head, m->payload.views()}, m->peer, m->tag));
      }
      m = m->begun && m->begun->await_ready() && !node().dead() ? late_.erase(m) : std::next(m);
    }
  }

  std::vector<fault> plan_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  bool crashed_ = false;
  late_messages late_;
};

/// Injects the faults of a plan into the messages of a rank, see `faulty_port`. The wrapped communicator must outlive
/// this object.
template <communicates Net>
class faulty : public communicator_rank<faulty_port<detail::port_type_of<Net>>> {
 public:
  faulty(Net& net, std::vector<fault> plan) : faulty::communicator_rank(detail::port_of(net), std::move(plan)) {}

  /// Numbers of messages that this rank has started to send, and to receive, so far.
  [[nodiscard]] std::uint64_t sent() const noexcept { return this->port().sent(); }
  [[nodiscard]] std::uint64_t received() const noexcept { return this->port().received(); }
  /// Whether delayed messages are still held back or in flight; `progress` sends them.
  [[nodiscard]] bool holds_back() const noexcept { return this->port().holds_back(); }
};

} // namespace spar
