// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A decorator for tests of what fails: it damages, delays or loses planned messages of a rank, or ends the rank.
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

/// One thing that goes wrong on a rank.
struct fault {
  enum class kind : std::uint8_t {
    corrupt_header,  ///< one bit is wrong in the header of a message that this rank receives
    corrupt_payload, ///< one bit of its payload, where it has any
    delay,           ///< a message that this rank sends is held back
    drop,            ///< a message that this rank sends never leaves
    crash            ///< from a message on, sent or received, this rank does nothing any more
  };

  kind what{};
  std::uint64_t message = 0; ///< which of those that the rank sends, or receives, in the order of their starts, from 0
  std::uint64_t bit = 0;     ///< of a corruption, modulo the number of bits
  double seconds = infinity; ///< for which a delay holds it back,
  std::uint64_t messages = UINT64_MAX / 2; ///< or until so many more have been sent

  static constexpr double infinity = std::numeric_limits<double>::infinity();
};

namespace detail {

/// A payload in memory of its own.
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

/// One bit of what has arrived is wrong; the sender, whose memory it may be, keeps it as it was.
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

/// Does to the messages of a rank what a plan says, and forwards the rest to the transport it wraps, which must outlive
/// it. Damage is found only where the ranks check payloads: `net.node().set_checksums(true)` belongs to every such
/// test.
///
/// - The sender of a message that is delayed or dropped believes that it has left. What follows to the same peer with
///   the same tag stays behind it. Delays end when the rank calls `progress`, in the simulator at their virtual time
///   (where the decorator wraps the simulator's rank itself); what is then still held back goes with the decorator.
/// - A crash ends this rank's own calls in `peer_failed`; to the others the rank is silent.
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

  /// Messages that this rank has begun to send and to receive so far.
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
  /// Whether messages are held back or on their way thereafter: `progress` sends them.
  [[nodiscard]] bool holds_back() const noexcept { return !late_.empty(); }

  void post(const control_message& note, rank_t peer) {
    if (!crashed_) inner().post(note, peer);
  }
  void share() = delete; // a progress thread would sleep through the end of a delay
  void progress(bool block) {
    release();
    inner().progress(block && (late_.empty() || node().dead())); // nobody wakes it when a delay is over
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
    const rank_t source = crashes(sent_ + number) ? rank() : peer; // no rank sends to itself: that never ends
    return receiving(inner().receive(in, source, tag), *this, in, number);
  }

 private:
  using inner_send = decltype(std::declval<Net&>().send(std::declval<message_pieces>(), rank_t{}, tag_t{}));
  using inner_receive = decltype(std::declval<Net&>().receive(std::declval<message_buffer&>(), rank_t{}, tag_t{}));
  static constexpr bool has_alarm = requires(Net& net) { net.on_alarm(nullptr, nullptr); };

  /// A send that the transport has begun, or one that has ended as far as its sender knows.
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

  class receiving {
   public:
    receiving(inner_receive inner, faulty_port& net, message_buffer& in, std::uint64_t number) noexcept
        : inner_(std::move(inner)), net_(&net), in_(&in), number_(number) {}
    [[nodiscard]] bool await_ready() const noexcept { return inner_.await_ready(); }
    void await_suspend(std::coroutine_handle<> waiting) const noexcept { inner_.await_suspend(waiting); }
    void await_resume() const {
      inner_.await_resume();
      if (const fault* f = net_->planned(fault::kind::corrupt_payload, number_)) detail::flip(*in_, f->bit);
      if (const fault* f = net_->planned(fault::kind::corrupt_header, number_)) {
        detail::flip(std::as_writable_bytes(std::span(&in_->arrived(), 1)), f->bit);
      }
    }

   private:
    inner_receive inner_;
    faulty_port* net_;
    message_buffer* in_;
    std::uint64_t number_;
  };

  /// A copy of a message that leaves later.
  struct late_message {
    header head;
    detail::payload_copy payload;
    rank_t peer;
    tag_t tag;
    double due;
    std::uint64_t after; // so many that have been sent
    std::optional<inner_send> begun;
  };
  using late_messages = std::list<late_message>;

  [[nodiscard]] const fault* planned(fault::kind what, std::uint64_t message) const noexcept {
    const auto found = std::find_if(plan_.begin(), plan_.end(),
                                    [&](const fault& f) { return f.what == what && f.message == message; });
    return found != plan_.end() ? &*found : nullptr;
  }

  /// Whether this rank has crashed, now that so many messages have been sent and received.
  bool crashes(std::uint64_t messages) {
    if (!crashed_ && planned(fault::kind::crash, messages) != nullptr) {
      crashed_ = true;
      node().mark_dead(rank(), "it has crashed, as planned");
    }
    return crashed_;
  }

  /// Whether a message before `last` with that peer and tag has not left.
  [[nodiscard]] bool is_behind(typename late_messages::const_iterator last, rank_t peer, tag_t tag) const noexcept {
    return std::any_of(late_.begin(), last,
                       [&](const late_message& m) { return !m.begun && m.peer == peer && m.tag == tag; });
  }

  void hold_back(const message_pieces& out, rank_t peer, tag_t tag, const fault& delay) {
    const double due = now() + delay.seconds;
    late_.push_back({out.head, detail::payload_copy(out.pieces), peer, tag, due, delay.message + delay.messages, {}});
    if constexpr (has_alarm) {
      if (delay.seconds < fault::infinity) inner().wake_at(due);
    }
  }

  /// Sends what need not be held back any longer.
  void release() {
    for (auto m = late_.begin(); m != late_.end();) {
      const bool due = now() >= m->due || sent_ > m->after;
      if (!m->begun && due && !node().dead() && !is_behind(m, m->peer, m->tag)) {
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

/// Does to a rank's messages what a plan says. The communicator that it wraps must outlive it.
template <communicates Net>
class faulty : public communicator_rank<faulty_port<detail::port_type_of<Net>>> {
 public:
  faulty(Net& net, std::vector<fault> plan) : faulty::communicator_rank(detail::port_of(net), std::move(plan)) {}

  /// Messages that this rank has begun to send and to receive so far.
  [[nodiscard]] std::uint64_t sent() const noexcept { return this->port().sent(); }
  [[nodiscard]] std::uint64_t received() const noexcept { return this->port().received(); }
  /// Whether messages are still delayed: `progress` sends them.
  [[nodiscard]] bool holds_back() const noexcept { return this->port().holds_back(); }
};

} // namespace spar
