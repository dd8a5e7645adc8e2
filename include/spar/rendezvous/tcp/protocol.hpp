// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The messages between a store that is served over TCP and its clients, as pure functions from and to bytes. Numbers
// are little-endian. A message is a frame: its length without this number (4 bytes), its kind (1 byte), and its body.
//
//   client   server
//   hello           identifier of the protocol, version, nonce, job
//            challenge   whether a secret is expected, nonce
//   proof           HMAC of both nonces; empty without a secret
//            welcome     HMAC of both nonces; empty without a secret
//   put      value
//   wait     value or nothing
//
// Instead of each answer, the server may say `refused` with a reason and close the connection; another version of the
// protocol must keep this frame and the beginning of `hello`.
#pragma once

#include <spar/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace spar::inline v0_1::detail {

inline constexpr std::uint32_t store_protocol = 1; ///< the version
inline constexpr std::size_t nonce_bytes = 32;
inline constexpr std::size_t most_job_bytes = 256, most_key_bytes = 1024, most_value_bytes = std::size_t{1} << 26;
/// The longest frame of a client that has not proven yet that it belongs to the job, and of any other.
inline constexpr std::size_t most_greeting_bytes = 512, most_frame_bytes = most_value_bytes + most_key_bytes + 16;

enum class frame_kind : std::uint8_t { refused, hello, challenge, proof, welcome, put, wait, value, nothing };

struct frame {
  frame_kind kind;
  std::string_view body;
  /// Bytes of the whole frame.
  [[nodiscard]] std::size_t size() const noexcept { return 4 + 1 + body.size(); }
};

/// The first frame of `bytes`; nothing if more bytes must come first. Throws `corrupt_message` as soon as the first
/// bytes cannot begin a frame of at most `most` bytes.
std::optional<frame> first_frame(std::string_view bytes, std::size_t most);
/// The bytes of a frame before the last `rest` bytes of its body, which the caller sends from elsewhere.
std::string frame_bytes(frame_kind kind, std::string_view body, std::size_t rest = 0);

/// Appends `number` in `bytes` bytes.
void append_number(std::string& to, std::uint64_t number, std::size_t bytes);
/// Removes the first `bytes` bytes of `from`. Throws `corrupt_message` if there are fewer.
std::string_view take_bytes(std::string_view& from, std::uint64_t bytes);
/// Removes the number of `bytes` bytes at the beginning of `from`. Throws `corrupt_message` if there are fewer.
std::uint64_t take_number(std::string_view& from, std::size_t bytes);

struct hello_message {
  std::string_view nonce, job;
};
std::string encode(const hello_message& hello);
/// Throws `corrupt_message` if `body` is malformed, and `mismatch` if the client has another version of the protocol.
hello_message decode_hello(std::string_view body);

struct challenge_message {
  bool secured;
  std::string_view nonce;
};
std::string encode(const challenge_message& challenge);
/// Throws `corrupt_message` if `body` is malformed.
challenge_message decode_challenge(std::string_view body);

/// A request of a client that the server has welcomed.
struct store_request {
  frame_kind kind; ///< put or wait
  std::string_view key;
  std::string_view value;     ///< of put
  std::uint32_t milliseconds; ///< of wait
};
std::string encode(const store_request& request);
/// Throws `corrupt_message` if the frame is no request, or malformed.
store_request decode_request(const frame& from);

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/rendezvous/tcp/protocol-inl.hpp>
#endif
