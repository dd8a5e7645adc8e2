// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What precedes each message over UCX: its source, its tag and its number.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/runtime/messages/envelope.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace spar::inline v0_1::detail {

/// The active message of UCX that carries a message has a header of these 12 bytes, then the header of the message or
/// the whole control message. UCX may deliver active messages in another order than they were sent, because it chooses
/// a way for each by its size, so a rank numbers its messages to each other rank.
struct ucx_frame {
  static constexpr tag_t control = -1; ///< the tag of control messages
  static constexpr tag_t hello = -2;   ///< the tag of what opens a connection: a frame alone, without a number
  static constexpr tag_t last_tag = make_tag(max_in_flight - 1, max_lanes - 1); ///< the greatest tag of a message

  std::uint32_t number = 0; ///< number of earlier messages from the source to the receiver, modulo 2^32
  rank_t source = 0;
  tag_t tag = 0;

  /// A frame with the header that follows.
  using room = std::array<std::byte, 12 + sizeof(header)>;

  std::span<const std::byte> write(room& to) const noexcept {
    std::memcpy(to.data(), this, sizeof(*this));
    return std::span(to).first(sizeof(*this));
  }
  std::span<const std::byte> write(const header& h, room& to) const noexcept {
    std::memcpy(to.data(), this, sizeof(*this));
    return std::span(to).first(sizeof(*this) + write_header(h, to.data() + sizeof(*this)));
  }
  std::span<const std::byte> write(const control_message& note, room& to) const noexcept {
    std::memcpy(to.data(), this, sizeof(*this));
    std::memcpy(to.data() + sizeof(*this), &note, sizeof(note));
    return to;
  }
};
static_assert(sizeof(ucx_frame) == 12 && sizeof(control_message) == sizeof(header));

/// An active message that has arrived.
struct ucx_incoming : ucx_frame {
  header head;
  control_message note; // instead of `head` if `tag` is `control`
  std::size_t payload_bytes = 0;
  std::byte* payload = nullptr; // the payload or, if `is_rendezvous`, what UCX calls its descriptor
  bool is_rendezvous = false;   // whether the payload is still in memory of the source
  bool may_stay = false;        // whether UCX keeps the payload until `ucp_am_data_release`

  ucx_incoming() = default;
  /// Reads `bytes`, the header of an active message to one of `ranks` ranks with a payload of `payload` bytes. Throws
  /// `corrupt_message` if anything in it is impossible.
  ucx_incoming(std::span<const std::byte> bytes, std::size_t size_of_payload, rank_t ranks)
      : payload_bytes(size_of_payload) {
    if (bytes.size() < sizeof(ucx_frame)) {
      raise<corrupt_message>(
          {"a message has a header of ", bytes.size(), " bytes; expected at least ", sizeof(ucx_frame)});
    }
    std::memcpy(static_cast<ucx_frame*>(this), bytes.data(), sizeof(ucx_frame));
    bytes = bytes.subspan(sizeof(ucx_frame));
    if (source < 0 || source >= ranks || tag < hello || tag > last_tag) {
      raise<corrupt_message>({"a message has the source ", source, " and the tag ", tag, "; expected a rank from 0 to ",
                              ranks - 1, " and a tag from ", hello, " to ", last_tag});
    }
    if (tag == hello) {
      if (!bytes.empty() || payload_bytes > 0)
        raise<corrupt_message>(
            {"what opens the connection from rank ", source, " has ", bytes.size() + payload_bytes, " bytes too many"});
    } else if (tag == control)
      read_note(bytes, ranks);
    else
      read_head(bytes);
  }

 private:
  void read_head(std::span<const std::byte> bytes) {
    const std::size_t size = read_header(bytes, head, bytes.size() + payload_bytes);
    if (size != bytes.size() || head.payload_bytes() != payload_bytes) {
      raise<corrupt_message>({"a message from rank ", source, " has ", bytes.size(), " bytes of header and ",
                              payload_bytes, " of payload, but its header requires ", size, " and ",
                              head.payload_bytes()});
    }
  }
  [[gnu::cold]] void read_note(std::span<const std::byte> bytes, rank_t ranks) {
    if (bytes.size() != sizeof(note) || payload_bytes != 0) {
      raise<corrupt_message>({"a control message from rank ", source, " has ", bytes.size() + payload_bytes,
                              " bytes; expected ", sizeof(note)});
    }
    std::memcpy(&note, bytes.data(), sizeof(note));
    note.validate(ranks);
    if (note.source != source)
      raise<corrupt_message>({"a control message from rank ", source, " names the source ", note.source});
  }
};

} // namespace spar::inline v0_1::detail
