// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lets encoding, transfer and decoding of the pieces of a vector overlap (Zhou et al., section III-C).
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

namespace spar::detail {

/// Throws `invalid_argument` if `piece` is 0.
inline void check_piece(std::uint64_t piece) {
  if (piece == 0) raise<invalid_argument>({"piece is 0 values; expected at least 1"});
}

/// Divides a range of indices into pieces of `length` indices, of which the last one may be shorter; an empty range is
/// one piece.
struct pieces_of {
  index_range range;
  std::uint64_t length;

  [[nodiscard]] std::size_t count() const noexcept { return range.size() == 0 ? 1 : (range.size() - 1) / length + 1; }
  [[nodiscard]] index_range operator[](std::size_t i) const noexcept {
    const std::uint64_t begin = range.begin + i * length;
    return {begin, begin + std::min(length, range.end - begin)};
  }
};

/// An encoded piece in flight, and the memory that holds it.
template <transport Net>
struct outgoing_piece {
  buffer<std::byte> room{};
  payload message{};
  std::optional<decltype(std::declval<channel<Net>&>().send(0, std::declval<payload>()))> sending{};

  void send(const channel<Net>& net, rank_t peer) { sending.emplace(net.send(peer, message)); }
};

/// A fixed number of outgoing pieces that are used in turn, again and again. Before a slot is reused, its send must
/// have ended: `if (slot.sending) co_await *slot.sending;`
template <transport Net>
class outbox {
 public:
  /// `bytes` is the memory of each slot, usually the length of the longest message: a slot that grew during the call
  /// would request memory more often than other calls do.
  outbox(channel<Net> net, std::size_t slots, std::size_t bytes) : slots_(net.memory(), slots) {
    for (std::size_t i = 0; i < slots; ++i) slots_.emplace_back().room = buffer<std::byte>(net.memory(), bytes);
  }
  outbox(const outbox&) = delete;
  /// After an error, withdraws the latest sends first: a peer that still receives must not miss a message between two
  /// others.
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

/// Receives one message while the previous one is decoded.
template <transport Net>
class read_ahead {
 public:
  explicit read_ahead(channel<Net> net)
      : net_(net), buffers_{message_buffer(net.memory()), message_buffer(net.memory())} {}

  /// Starts to receive the next message, from `peer`. Its buffer is that of the message taken before the last one,
  /// which must no longer be in use.
  void start(rank_t peer) {
    const std::size_t at = started_++ % 2;
    buffers_[at].end_loan();
    receiving_[at].emplace(net_.receive(peer, buffers_[at]));
  }
  /// The oldest receive that was started: `co_await in.next(); message_buffer& m = in.take();`
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

} // namespace spar::detail
