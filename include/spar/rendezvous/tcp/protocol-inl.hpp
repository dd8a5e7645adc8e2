// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of protocol.hpp.
#pragma once

#include <spar/rendezvous/tcp/protocol.hpp>

namespace spar::inline v0_1 {

namespace detail {

inline constexpr std::string_view store_identifier = "spar rendezvous";

SPAR_INLINE void append_number(std::string& to, std::uint64_t number, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to.push_back(static_cast<char>(number >> (8 * i) & 0xFF));
}

SPAR_INLINE std::string_view take_bytes(std::string_view& from, std::uint64_t bytes) {
  if (bytes > from.size())
    raise<corrupt_message>({"a message ends too early: ", from.size(), " bytes are left, expected ", bytes});
  const std::string_view taken = from.substr(0, bytes);
  from.remove_prefix(bytes);
  return taken;
}

SPAR_INLINE std::uint64_t take_number(std::string_view& from, std::size_t bytes) {
  std::uint64_t number = 0;
  std::size_t shift = 0;
  for (const char c : take_bytes(from, bytes)) {
    number |= std::uint64_t{static_cast<unsigned char>(c)} << shift;
    shift += 8;
  }
  return number;
}

SPAR_INLINE std::optional<frame> first_frame(std::string_view bytes, std::size_t most) {
  if (bytes.size() < 4) return std::nullopt;
  const std::uint64_t length = take_number(bytes, 4);
  if (length < 1 || length + 4 > most)
    raise<corrupt_message>({"a message has ", length, " bytes; expected 1 to ", most - 4});
  if (bytes.empty()) return std::nullopt;
  if (static_cast<unsigned char>(bytes[0]) > static_cast<unsigned char>(frame_kind::nothing))
    raise<corrupt_message>({"a message has the unknown kind ", static_cast<int>(static_cast<unsigned char>(bytes[0]))});
  if (bytes.size() < length) return std::nullopt;
  return frame{static_cast<frame_kind>(bytes[0]), bytes.substr(1, length - 1)};
}

SPAR_INLINE std::string frame_bytes(frame_kind kind, std::string_view body, std::size_t rest) {
  std::string bytes;
  append_number(bytes, 1 + body.size() + rest, 4);
  bytes.push_back(static_cast<char>(kind));
  bytes.append(body);
  return bytes;
}

inline void expect_end(std::string_view left) {
  if (!left.empty()) raise<corrupt_message>({"a message has ", left.size(), " bytes too many"});
}

SPAR_INLINE std::string encode(const hello_message& hello) {
  std::string body(store_identifier);
  append_number(body, store_protocol, 4);
  body.append(hello.nonce).append(hello.job);
  return frame_bytes(frame_kind::hello, body);
}

SPAR_INLINE hello_message decode_hello(std::string_view body) {
  if (!body.starts_with(store_identifier)) raise<corrupt_message>({"the greeting is not that of a rank of spar"});
  body.remove_prefix(store_identifier.size());
  if (const std::uint64_t version = take_number(body, 4); version != store_protocol) {
    raise<mismatch>({"the client has version ", version, " of the rendezvous' protocol, the server has version ",
                     store_protocol, "; start all ranks of a job from one build"});
  }
  const std::string_view nonce = take_bytes(body, nonce_bytes);
  if (body.size() > most_job_bytes)
    raise<corrupt_message>({"the job has ", body.size(), " bytes, expected at most ", most_job_bytes});
  return {nonce, body};
}

SPAR_INLINE std::string encode(const challenge_message& challenge) {
  std::string body;
  append_number(body, challenge.secured ? 1 : 0, 1);
  body.append(challenge.nonce);
  return frame_bytes(frame_kind::challenge, body);
}

SPAR_INLINE challenge_message decode_challenge(std::string_view body) {
  const bool secured = take_number(body, 1) != 0;
  const std::string_view nonce = take_bytes(body, nonce_bytes);
  expect_end(body);
  return {secured, nonce};
}

SPAR_INLINE std::string encode(const store_request& request) {
  std::string body;
  if (request.kind == frame_kind::put)
    append_number(body, request.key.size(), 2);
  else
    append_number(body, request.milliseconds, 4);
  body.append(request.key).append(request.value);
  return frame_bytes(request.kind, body);
}

SPAR_INLINE store_request decode_request(const frame& from) {
  std::string_view body = from.body;
  store_request request{from.kind, {}, {}, 0};
  if (from.kind == frame_kind::put) {
    request.key = take_bytes(body, take_number(body, 2));
    request.value = body;
  } else if (from.kind == frame_kind::wait) {
    request.milliseconds = static_cast<std::uint32_t>(take_number(body, 4));
    request.key = body;
  } else {
    raise<corrupt_message>({"a message has the kind ", static_cast<int>(from.kind), ", which is no request"});
  }
  if (request.key.empty() || request.key.size() > most_key_bytes)
    raise<corrupt_message>({"a key has ", request.key.size(), " bytes; expected 1 to ", most_key_bytes});
  if (request.value.size() > most_value_bytes)
    raise<corrupt_message>({"a value has ", request.value.size(), " bytes; expected at most ", most_value_bytes});
  return request;
}

} // namespace detail

} // namespace spar::inline v0_1
