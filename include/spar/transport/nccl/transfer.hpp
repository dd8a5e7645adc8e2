// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A payload that travels by NCCL, the two messages by which its ends agree on its epoch, and the sends and receives of
// the transport over NCCL.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/util/crc32c.hpp>
#include <spar/cuda/recycled.hpp>
#include <spar/runtime/endpoint/leavers.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/runtime/tasks/operation_record.hpp>
#include <spar/runtime/tasks/task.hpp>

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1::detail {

/// The number of bytes of the pieces in a block as by `pack`, without the padding after the last one.
constexpr std::size_t packed_bytes(const std::array<std::uint64_t, max_pieces>& lengths) noexcept {
  std::size_t last = max_pieces - 1;
  while (last > 0 && lengths[last] == 0) --last;
  return padded_bytes(lengths, last) + lengths[last];
}

/// One end of a payload that travels by NCCL. The record and its memory outlive a cancelled operation.
struct nccl_transfer : operation_record {
  enum class stage : std::uint8_t {
    announced, ///< the sender waits for the epoch that the receiver offers
    offered,   ///< the receiver waits for the epoch that the sender decides
    decided,   ///< both ends know the epoch, or will know it without any action of this rank
    submitted  ///< NCCL has the transfer
  };

  stage at{};
  bool cancelled = false; // no operation refers to this record any more
  rank_t sender = 0;
  std::uint64_t id = 0; // number of this transfer among those of its sender
  std::uint64_t epoch = 0;
  std::size_t bytes = 0;
  bool on_device = false;      // whether the payload is in device memory
  payload_views pieces{};      // of a send: borrowed until its operation is destroyed, then in `kept`
  cuda_event ready;            // of a send from device memory: the payload is there
  buffer<std::byte> kept;      // the payload of a cancelled send from host memory that was not submitted yet
  recycled_memory::lease room; // once submitted: the payload, packed as by `pack`, unless NCCL sends from its place
  nccl_transfer* next = nullptr;

  /// Whether NCCL sends from where the payload is: the only piece, in device memory.
  [[nodiscard]] bool in_place() const noexcept { return on_device && !receives && only_piece() != nullptr; }
  /// Of a submitted send: the memory from which NCCL sends.
  [[nodiscard]] const void* source() const noexcept { return in_place() ? only_piece() : room.data(); }

 private:
  /// The only piece that is not empty; null if there are several.
  [[nodiscard]] const std::byte* only_piece() const noexcept {
    const std::byte* only = nullptr;
    for (const auto& piece : pieces) {
      if (!piece.empty() && std::exchange(only, piece.data()) != nullptr) return nullptr;
    }
    return only;
  }
};

/// The payload of the message by which a sender announces a transfer over the control transport.
struct nccl_announcement {
  /// The format of messages that contain an announcement. No algorithm uses this format.
  static constexpr auto format = static_cast<wire_format>(15);

  header head; // of the message whose payload travels by NCCL
  std::uint64_t id = 0;
  std::uint32_t reserved = 0;
  std::uint32_t checksum = 0; // CRC-32C of the preceding bytes

  [[nodiscard]] std::uint32_t expected_checksum() const noexcept {
    return crc32c(this, offsetof(nccl_announcement, checksum));
  }
  /// Reads an announcement from the payload of a message. Throws `corrupt_message` if the announcement is damaged.
  [[nodiscard]] static nccl_announcement read(std::span<const std::byte> bytes) {
    nccl_announcement read;
    if (bytes.size() == sizeof(read)) std::memcpy(static_cast<void*>(&read), bytes.data(), sizeof(read));
    if (bytes.size() != sizeof(read) || read.checksum != read.expected_checksum()) {
      raise<corrupt_message>({"the announcement of an NCCL transfer has ", bytes.size(), " bytes and the checksum ",
                              read.checksum, "; expected ", sizeof(read), " bytes and the checksum ",
                              read.expected_checksum()});
    }
    return read;
  }
};
static_assert(sizeof(nccl_announcement) == sizeof(header) + 16);

/// A control message about the epoch of a transfer, which is an offer of the receiver or the decision of the sender, or
/// about the meetings of the ranks before and after they free memory: its `epoch` is then the number of the meeting,
/// and the calls of the rank follow (see runtime/endpoint/leavers.hpp).
struct nccl_note {
  enum class kind : std::uint32_t { offer = 1, decision, arrival };

  std::uint32_t subscriber = 0; // its number
  kind what{};
  std::uint64_t id = 0;
  std::uint64_t epoch = 0;

  [[nodiscard]] std::string_view text() const noexcept { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
  /// Throws `corrupt_message` if the text is malformed.
  [[nodiscard]] static nccl_note read(std::string_view text) {
    nccl_note read;
    if (text.size() == sizeof(read)) std::memcpy(&read, text.data(), sizeof(read));
    if (text.size() != sizeof(read) || read.what < kind::offer || read.what > kind::arrival) {
      raise<corrupt_message>({"a control message of spar::nccl has ", text.size(), " bytes and the kind ",
                              static_cast<std::uint32_t>(read.what), "; expected ", sizeof(read),
                              " bytes and a kind from 1 (offer) to 3 (arrival)"});
    }
    return read;
  }
};
static_assert(sizeof(nccl_note) + sizeof(last_call) + sizeof(calls_of_leaver::counts) <= max_text_length);

/// The error of the first operation that has failed on this rank, and the tag of this operation.
class nccl_failure {
 public:
  /// Called with the exception that ends an operation.
  void note(tag_t tag) {
    if (first_) return;
    first_ = std::current_exception();
    tag_ = tag;
  }
  /// Throws the error if it ended an operation of the same call.
  void rethrow(tag_t tag) const {
    if (first_ && sequence_of(tag_) == sequence_of(tag)) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
  tag_t tag_ = 0;
};

/// A send or a receive, which is a coroutine. Awaited through constant references by the awaiters that wrap it.
class [[nodiscard]] nccl_operation {
 public:
  nccl_operation(const nccl_failure& failed, tag_t tag, task<void>&& work) noexcept
      : failed_(&failed), tag_(tag), work_(std::move(work)) {}
  [[nodiscard]] bool await_ready() const noexcept { return work_.await_ready(); }
  void await_suspend(std::coroutine_handle<> waiting) const noexcept { work_.await_suspend(waiting); }
  /// If another operation of the same call has failed on this rank, throws its error instead of `peer_failed`.
  void await_resume() const {
    try {
      work_.await_resume();
    } catch (const peer_failed&) {
      failed_->rethrow(tag_);
      throw;
    }
  }

 private:
  const nccl_failure* failed_;
  tag_t tag_;
  mutable task<void> work_;
};

} // namespace spar::inline v0_1::detail
