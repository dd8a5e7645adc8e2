// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Send and receive buffers with which encoding, transfer and decoding of the pieces of a vector overlap (Zhou et al.,
// section III-C).
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/index_range.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace spar::inline v0_1::detail {

/// Throws `invalid_argument` if `piece` is 0.
inline void check_piece(std::uint64_t piece) {
  if (piece == 0) raise<invalid_argument>({"the option piece is 0; expected at least 1 value per piece"});
}

/// Divides a range of indices into pieces of `length` indices; the last piece may be shorter. An empty range has one
/// piece, which is empty.
struct pieces_of {
  index_range range;
  std::uint64_t length;

  [[nodiscard]] std::size_t count() const noexcept { return range.size() == 0 ? 1 : (range.size() - 1) / length + 1; }
  /// The piece i; empty if there are fewer pieces.
  [[nodiscard]] index_range operator[](std::size_t i) const noexcept {
    const std::uint64_t begin = range.begin + std::min(i * length, range.size());
    return {begin, begin + std::min(length, range.end - begin)};
  }
};

/// A piece of a vector that is being sent: the memory of the encoded bytes, the message that refers to this memory, and
/// the send.
template <transport Net>
struct outgoing_piece {
  buffer<std::byte> room{};
  payload message{};
  std::optional<decltype(std::declval<channel<Net>&>().send(0, std::declval<payload>()))> sending{};

  void send(const channel<Net>& net, rank_t peer) { static_cast<void>(sending.emplace(net.send(peer, message))); }
};

/// A fixed number of slots for outgoing pieces, which `next` returns in cyclic order. Before reusing a slot, the caller
/// must wait for the end of the slot's last send: `if (slot.sending) co_await *slot.sending;`
template <transport Net>
class outbox {
 public:
  /// Each slot starts with `bytes` bytes of memory, usually the length of the longest message, so that no slot has to
  /// request more memory during the call.
  outbox(channel<Net> net, std::size_t count, std::size_t bytes) : slots_(net.memory(), count) {
    for (std::size_t i = 0; i < count; ++i) slots_.emplace_back().room = buffer<std::byte>(net.work().memory(), bytes);
  }
  outbox(const outbox&) = delete;
  /// After an error, cancels the sends that are still in flight, the latest first. In any other order, a peer that
  /// still receives might miss one message and get the next one.
  ~outbox() {
    for (std::size_t i = slots_.size(); i-- > 0;) slots_[(used_ + i) % slots_.size()].sending.reset();
  }
  [[nodiscard]] outgoing_piece<Net>& next() noexcept { return slots_[used_++ % slots_.size()]; }
  [[nodiscard]] outgoing_piece<Net>& operator[](std::size_t i) noexcept { return slots_[i]; }
  [[nodiscard]] outgoing_piece<Net>* begin() noexcept { return slots_.begin(); }
  [[nodiscard]] outgoing_piece<Net>* end() noexcept { return slots_.end(); }

 private:
  fixed_vector<outgoing_piece<Net>> slots_;
  std::size_t used_ = 0;
};

/// Two receive buffers, with which a rank receives one message while it decodes the previous message.
template <transport Net>
class read_ahead {
 public:
  explicit read_ahead(channel<Net> net)
      : net_(net), buffers_{message_buffer(net.work().memory()), message_buffer(net.work().memory())} {}

  /// Starts to receive the next message from `peer`, into the buffer of the message before the previous one. The caller
  /// must no longer use this buffer.
  void start(rank_t peer) {
    const std::size_t at = started_++ % 2;
    buffers_[at].end_loan();
    receiving_[at].emplace(net_.receive(peer, buffers_[at]));
  }
  /// Returns the oldest receive for which `take` has not been called. Usage: `co_await in.next(); message_buffer& m =
  /// in.take();`
  [[nodiscard]] auto& next() noexcept { return *receiving_[taken_ % 2]; }
  [[nodiscard]] message_buffer& take() noexcept { return buffers_[taken_++ % 2]; }

 private:
  channel<Net> net_;
  std::array<message_buffer, 2> buffers_;
  std::array<std::optional<decltype(std::declval<channel<Net>&>().receive(0, std::declval<message_buffer&>()))>, 2>
      receiving_{};
  std::size_t started_ = 0;
  std::size_t taken_ = 0;
};

} // namespace spar::inline v0_1::detail
