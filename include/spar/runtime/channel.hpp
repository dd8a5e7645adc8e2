// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The channel, through which an algorithm sends and receives the messages of one call. A channel writes the headers of
// messages sent, checks the headers of messages received, and counts messages and bytes.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/util/fnv1a.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/operation.hpp>
#include <spar/runtime/peer_query.hpp>
#include <spar/runtime/signature.hpp>
#include <spar/runtime/transport_concept.hpp>

#include <cstdint>
#include <exception>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// The interface through which an algorithm sends and receives the messages of one call on one rank. Coroutines take
/// their channels by value, because a channel is small. The transport and the record of the call must outlive all
/// copies of the channel. Messages between two ranks on one lane arrive in order. Parts of an algorithm that run at the
/// same time must use different lanes. A coroutine that takes a channel may throw the \ref call_errors.
template <transport Net>
class channel {
 public:
  /// Creates the channel of the call `call`, whose ranks agree on `agreed`, on the rank `net`. Writes `agreed` to the
  /// record of the call, and how an error of the call aborts the communicator.
  channel(Net& net, call_record& call, const signature& agreed) noexcept
      : net_(&net), call_(&call), digest_(agreed.digest), number_(net.rank()), element_(agreed.element) {
    call.agreed = agreed;
    call.error.abort_by(
        [](void* port, const std::exception_ptr& why) noexcept { detail::abort(*static_cast<Net*>(port), why); }, &net);
  }

  /// The number of this rank on this channel (see `in_order`).
  [[nodiscard]] rank_t rank() const noexcept { return number_; }
  /// The number of ranks.
  [[nodiscard]] rank_t size() const noexcept { return net_->size(); }
  /// The queue of the coroutines that are ready to run on this rank.
  [[nodiscard]] spar::scheduler& scheduler() const noexcept { return net_->scheduler(); }
  /// The rank's pool.
  [[nodiscard]] pool& memory() const noexcept { return net_->memory(); }
  /// The place of the rank's values, and the work on them: a `host_work`, or the workspace of the transport. The
  /// function `work_of` is found by its argument when this function is used: it is in workspace/workspace.hpp, above.
  [[nodiscard]] decltype(auto) work() const noexcept { return work_of(*this); }
  /// Whether the values and payloads are in device memory.
  static constexpr bool on_device = values_on_device<Net>;
  /// The transport.
  [[nodiscard]] Net& net() const noexcept { return *net_; }
  /// The error of the call, for its coroutines: see `task`.
  [[nodiscard]] detail::call_error& call_error() const noexcept { return call_->error; }
  /// The number of the call on its communicator, equal on all ranks.
  [[nodiscard]] std::uint64_t sequence() const noexcept { return call_->sequence; }

  /// Reports local work on `entries` entries to the transport: in the simulator the work takes virtual time, and in a
  /// trace the work appears as a bar.
  void compute(std::uint64_t entries) const { net_->compute(entries); }

  /// Adds one piece, whose encoding took `seconds`, to the statistics of the call.
  void note_compression(double seconds) const noexcept {
    ++call_->cost.compressions;
    call_->cost.codec_seconds += seconds;
  }
  /// Adds `count` indices, which a codec has encoded in `bytes` bytes, to the statistics of the call.
  void note_coded_indices(std::size_t count, std::size_t bytes) const noexcept {
    call_->cost.coded_indices += count;
    call_->cost.coded_index_bytes += bytes;
  }
  /// Adds `count` values, which a codec has encoded in `bytes` bytes, to the statistics of the call.
  void note_coded_values(std::size_t count, std::size_t bytes) const noexcept {
    call_->cost.coded_values += count;
    call_->cost.coded_value_bytes += bytes;
  }
  /// Adds one piece, whose decoding took `seconds`, to the statistics of the call.
  void note_decompression(double seconds) const noexcept {
    ++call_->cost.decompressions;
    call_->cost.codec_seconds += seconds;
  }

  /// Returns a channel of this call for values and messages in host memory, such as counters, even if the values of the
  /// call are on a device.
  [[nodiscard]] auto on_host() const noexcept {
    if constexpr (on_device)
      return channel<std::remove_reference_t<decltype(net_->host())>>(*this, net_->host());
    else
      return *this;
  }
  /// Returns a channel of this call whose messages travel on the lane `number`.
  [[nodiscard]] channel lane(std::uint8_t number) const noexcept {
    channel other = *this;
    other.lane_ = number;
    return other;
  }
  /// Returns a channel of this call on which all ranks, including this one, have the numbers that `order` assigns. The
  /// arrays of `order` must outlive the returned channel.
  [[nodiscard]] channel in_order(const rank_order& order) const noexcept {
    channel other = *this;
    if (order.ranks == nullptr) return other;
    other.order_ = order.ranks;
    other.number_ = order.numbers[net_->rank()];
    return other;
  }
  /// Returns a channel of this call for messages whose elements have the type T, even if the vectors of the call have
  /// elements of another type.
  template <element T>
  [[nodiscard]] channel with_element() const noexcept {
    channel other = *this;
    other.element_ = code_of<T>;
    return other;
  }
  /// Returns a channel of this call for use after the ranks have chosen the algorithm `name`. A message from a rank
  /// that has chosen a different algorithm causes `mismatch`. `name` must outlive the call.
  [[nodiscard]] channel with_algorithm(std::string_view name) const noexcept {
    channel other = *this;
    other.digest_ = detail::splitmix(digest_ ^ detail::fnv1a(name));
    call_->chosen = name;
    return other;
  }

  /// Starts to send `what` to the rank `number`. The send borrows the pieces of `what` until the operation ends or,
  /// after an error, until the call ends. The pieces must be in memory of the pool of this rank, or in memory to which
  /// the arguments of the call refer. The pieces must not be in a local std::vector of a coroutine, because the vector
  /// is destroyed before a failed call ends, nor in a received message, because its memory returns to its sender.
  auto send(rank_t number, const payload& what) const {
    check_address(number);
    const rank_t peer = rank_of(number);
    message_pieces out{own_header(), what.pieces};
    out.head.format = what.format;
    out.head.count = what.count;
    out.head.lengths = {what.pieces[0].size(), what.pieces[1].size(), what.pieces[2].size()};
    if (call_->messages.size() > 0) {
      out.head.order = messages(peer, 0)++;
      if constexpr (!on_device) out.head.payload_checksum = checksum_of(out.pieces); // else the transport may add it
      out.head.checksum = out.head.expected_checksum(); // `check` verifies this checksum with every transport
    }
    auto sending = net_->send(out, peer, make_tag(call_->sequence, lane_));
    ++call_->cost.messages_sent; // after starting the send, so that counting overlaps with the transfer
    call_->cost.bytes_sent += out.head.payload_bytes();
    const std::size_t plain =
        what.format == wire_format::block_coded ? size_of(element_) : 0; // bytes of an unencoded value
    call_->cost.plain_bytes_sent += what.plain_bytes > 0 ? what.plain_bytes
                                    : plain > 0          ? what.count * plain
                                                         : out.head.payload_bytes();
    call_->cost.header_bytes_sent += sizeof(header);
    return sending;
  }

  /// Starts to receive a message from the rank `number` into `in`, which must not move until the operation ends.
  /// Awaiting the operation throws `mismatch` if the sender's call differs from this rank's call, or if the size of the
  /// message is not the size that `in` expects. With checksums on, awaiting the operation also throws `corrupt_message`
  /// if the message is damaged or an earlier message is missing.
  auto receive(rank_t number, message_buffer& in) const {
    check_address(number);
    const rank_t peer = rank_of(number);
    using inner = decltype(net_->receive(in, peer, tag_t{}));
    return checked_receive<inner>(net_->receive(in, peer, make_tag(call_->sequence, lane_)), *this, in, peer);
  }

 private:
  template <transport Other>
  friend class channel;

  /// The channel of the same call and rank over another transport.
  template <transport Other>
  channel(const channel<Other>& other, Net& net) noexcept
      : net_(&net), call_(other.call_), digest_(other.digest_), order_(other.order_), number_(other.number_),
        element_(other.element_), lane_(other.lane_) {}

  template <class Inner>
  class checked_receive : public forwarding_awaiter<Inner> {
   public:
    checked_receive(Inner inner, const channel& call, message_buffer& in, rank_t peer) noexcept
        : checked_receive::forwarding_awaiter(std::move(inner)), channel_(call), in_(&in), peer_(peer) {}
    [[gnu::noinline]] void await_resume() const {
      checked_receive::forwarding_awaiter::await_resume();
      channel_.check_header(*in_, peer_);
    }

   private:
    channel channel_;
    message_buffer* in_;
    rank_t peer_;
  };

  /// On what the ranks agree in the messages of this channel. Not a member, because coroutines copy their channels.
  [[nodiscard]] signature agreed() const noexcept {
    signature own = call_->agreed;
    own.digest = digest_;
    own.element = element_;
    return own;
  }
  [[nodiscard]] header own_header() const noexcept { return header_of(agreed(), *call_); }

  /// The number of messages of this call so far, modulo 256, that this rank has sent to `peer` (direction 0) or
  /// received from `peer` (direction 1) on the lane of this channel.
  [[nodiscard]] std::uint8_t& messages(rank_t peer, rank_t direction) const noexcept {
    return call_->messages.data()[static_cast<std::size_t>(direction * size() + peer) * max_lanes + lane_];
  }

  [[nodiscard]] rank_t rank_of(rank_t number) const noexcept { return order_ == nullptr ? number : order_[number]; }

  void check_address(rank_t peer) const {
    spar::ensure(peer >= 0 && peer < size() && peer != rank(),
                 "an algorithm sends to, or receives from, a rank that is its own rank or not in [0, P)");
    spar::ensure(lane_ < max_lanes, "an algorithm uses a lane that is not in [0, 8)");
  }

  void check_header(message_buffer& in, rank_t peer) const {
    header& h = in.arrived();
    const bool checksums = call_->messages.size() > 0;
    if (checksums) {
      h.validate();
      if (h.order != messages(peer, 1)++) {
        raise<corrupt_message>({"a message from rank ", peer, " to rank ", net_->rank(),
                                " is missing: expected number ", static_cast<std::uint8_t>(messages(peer, 1) - 1),
                                ", got number ", h.order, " (collective ", call_->sequence, ", lane ", lane_, ")"});
      }
    }
    if (!is_of(h, agreed(), *call_)) detail::throw_mismatch(*net_, *call_, agreed(), h, peer);
    h.dimension =
        call_->agreed.dimension; // a short header lacks the dimension, but equal digests imply equal dimensions
    in.check_fit();
    if (checksums && !on_device) in.verify_payload(); // the transport verifies a payload on a device
    ++call_->cost.messages_received;
    call_->cost.bytes_received += h.payload_bytes();
    call_->cost.header_bytes_received += sizeof(header);
  }

  Net* net_;
  call_record* call_;
  std::uint64_t digest_;
  const rank_t* order_ = nullptr; // order_[i] is the rank with the number i; null if each rank keeps its number
  rank_t number_;
  element_code element_;
  std::uint8_t lane_ = 0;
};

} // namespace spar::inline v0_1
