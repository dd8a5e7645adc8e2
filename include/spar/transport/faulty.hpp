// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A decorator for failure tests, which damages, delays or drops chosen messages of a rank, or crashes the rank.
#pragma once

#include <spar/core/check_number.hpp>
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

namespace spar::inline v0_1 {

/// A planned fault of one rank, which `faulty` injects.
struct fault {
  /// What the fault does.
  enum class kind : std::uint8_t {
    corrupt_header,  ///< flips one bit in the header of a message that this rank receives
    corrupt_payload, ///< flips one bit in the payload, if not empty, of a message that this rank receives
    delay,           ///< holds back a message that this rank sends
    drop,            ///< discards a message that this rank sends
    crash            ///< from the planned send or receive on, this rank neither sends nor receives
  };

  kind what{}; ///< what the fault does
  /// The index, from 0, of the affected operation, in the order in which the rank starts operations. The index counts
  /// sends for `delay` and `drop`, receives for `corrupt_header` and `corrupt_payload`, and both for `crash`.
  std::uint64_t message = 0;
  std::uint64_t bit = 0;     ///< index of the flipped bit, modulo the number of bits in the header or payload
  double seconds = infinity; ///< duration of a delay, not negative
  std::uint64_t messages = UINT64_MAX / 2; ///< a delay also ends when the rank has started this many further sends

  static constexpr double infinity = std::numeric_limits<double>::infinity(); ///< a delay without an end
};

namespace detail {

/// A copy of the payload of a message.
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

/// Flips one bit in a copy of the received payload, because the payload itself may be in the sender's memory, which
/// must not change.
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

/// Injects the faults of a plan into the messages of a rank, and forwards everything else to the wrapped transport,
/// which must outlive this object. Ranks notice damaged messages only if they verify checksums, so a test that damages
/// messages needs `net.set_checksums(true)`.
///
/// - The sender of a delayed or dropped message sees its send complete at once. Later messages to the same peer with
///   the same tag do not overtake a delayed message. After the end of its delay, a message leaves when the rank next
///   calls `progress` or sends. If the decorator directly wraps a rank of the simulator, the message leaves at the end
///   of its delay in virtual time. The destructor discards messages that are still held back.
/// - After a crash, calls of the crashed rank end in `peer_failed`, and other ranks receive nothing more from the rank.
template <transport Net>
class faulty_port : public decorated_port<Net> {
  using decorated_port<Net>::inner;

 public:
  using decorated_port<Net>::rank;
  using decorated_port<Net>::now;
  using decorated_port<Net>::node;

  faulty_port(Net& net, std::vector<fault> plan) : decorated_port<Net>(net), plan_(std::move(plan)) {
    for (const fault& f : plan_) detail::check_number(f.seconds, detail::valid::time_limit, "`seconds` of a fault");
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

  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
  [[nodiscard]] bool holds_back() const noexcept { return !late_.empty(); }

  void post(const control_message& note, rank_t peer) {
    if (!crashed_) inner().post(note, peer);
  }
  void share() = delete; // deleted because a progress thread would sleep past the end of a delay
  void progress(bool block) {
    release();
    // Does not block while messages are held back, because the end of a delay would not wake this rank.
    inner().progress(block && (late_.empty() || node().dead()));
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
    // After a crash, the receive waits forever: its source is this rank, and no rank sends to itself.
    const rank_t source = crashes(sent_ + number) ? rank() : peer;
    return receiving(inner().receive(in, source, tag), *this, in, number);
  }

 private:
  using inner_send = decltype(std::declval<Net&>().send(std::declval<message_pieces>(), rank_t{}, tag_t{}));
  using inner_receive = decltype(std::declval<Net&>().receive(std::declval<message_buffer&>(), rank_t{}, tag_t{}));
  static constexpr bool has_alarm = requires(Net& net) { net.on_alarm(nullptr, nullptr); };

  /// A send. If `inner_` is empty, the message is dropped or delayed, and the send completes at once; otherwise, the
  /// wrapped transport has started the send.
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

  class receiving : public forwarding_awaiter<inner_receive> {
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

  /// A copy of a delayed message, kept until the message has left.
  struct late_message {
    header head;
    detail::payload_copy payload;
    rank_t peer;
    tag_t tag;
    double leaves;       // the time at which the delay ends, in seconds
    std::uint64_t after; // the delay also ends when the rank has started more than `after` sends
    std::optional<inner_send> begun;
  };
  using late_messages = std::list<late_message>;

  [[nodiscard]] const fault* planned(fault::kind what, std::uint64_t message) const noexcept {
    const auto found = std::find_if(plan_.begin(), plan_.end(),
                                    [&](const fault& f) { return f.what == what && f.message == message; });
    return found != plan_.end() ? &*found : nullptr;
  }

  /// Crashes this rank if the plan has a crash after `messages` sends and receives. Returns whether this rank has
  /// crashed, now or before.
  bool crashes(std::uint64_t messages) {
    if (!crashed_ && planned(fault::kind::crash, messages) != nullptr) {
      crashed_ = true;
      node().mark_dead(rank(), "spar::faulty crashed the rank as planned");
    }
    return crashed_;
  }

  /// Whether a message to `peer` with `tag` is held back in `late_` before the position `last`; a later message with
  /// this peer and tag must not overtake the held-back message.
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

  /// Sends each held-back message whose delay has ended, and erases the messages that have left.
  void release() {
    for (auto m = late_.begin(); m != late_.end();) {
      const bool over = now() >= m->leaves || sent_ > m->after;
      if (!m->begun && over && !node().dead() && !is_behind(m, m->peer, m->tag)) {
        static_cast<void>(m->begun.emplace(inner().send({m->head, m->payload.views()}, m->peer, m->tag)));
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

/// Injects the faults of a plan into the messages of a rank (see `faulty_port`). The wrapped communicator must outlive
/// this object.
template <communicates Net>
class faulty : public communicator_rank<faulty_port<detail::port_type_of<Net>>> {
 public:
  /// Wraps the rank `net` and injects the faults of `plan`.
  faulty(Net& net, std::vector<fault> plan) : faulty::communicator_rank(detail::port_of(net), std::move(plan)) {}

  /// The number of sends that this rank has started so far.
  [[nodiscard]] std::uint64_t sent() const noexcept { return this->port().sent(); }
  /// The number of receives that this rank has started so far.
  [[nodiscard]] std::uint64_t received() const noexcept { return this->port().received(); }
  /// Whether any delayed message is still held back or in flight. `progress` sends each message whose delay has ended.
  [[nodiscard]] bool holds_back() const noexcept { return this->port().holds_back(); }
};

} // namespace spar::inline v0_1
