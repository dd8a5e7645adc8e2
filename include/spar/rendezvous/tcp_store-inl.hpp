// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The client of a store that is served over TCP.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/thread.hpp>
#include <spar/rendezvous/tcp/proof.hpp>
#include <spar/rendezvous/tcp/protocol.hpp>
#include <spar/rendezvous/tcp/socket.hpp>
#include <spar/rendezvous/tcp_store.hpp>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>

#include <sys/socket.h>

namespace spar::inline v0_1 {

namespace detail {

SPAR_INLINE void check_options(const rendezvous_options& where) {
  check_number(where.port, {0, 65535, "0 to 65535"}, "the port of the rendezvous");
  check_number(where.deadline, valid::time_limit, "the deadline of the rendezvous");
  if (where.job.size() > most_job_bytes) {
    raise<invalid_argument>(
        {"the identity of the job has ", where.job.size(), " bytes; expected at most ", most_job_bytes});
  }
  check_interface(where.network_interface);
  if (!where.secret.empty()) hmac_sha256(where.secret, "");
}

/// The connection of a client to the server, and its only request at a time.
class store_connection {
 public:
  explicit store_connection(const rendezvous_options& where);
  /// The answer to `request`, which the server gives after at most `seconds`: a value, or nothing.
  std::optional<std::string> ask(const store_request& request, double seconds);

 private:
  static constexpr double longest_greeting = 5; // seconds; then connects anew, because the address may have changed
  static constexpr std::size_t receive_step = 65536; // bytes

  void greet(const rendezvous_options& where, double until);
  void send(std::string_view bytes, double until);
  frame receive(std::size_t most, double until);
  std::string_view receive(frame_kind expected, double until);

  std::mutex mutex_;
  std::string name_;
  double longest_answer_; // seconds in which a server answers that need not wait
  descriptor socket_;
  std::string in_;   // bytes of the answer
  std::string lost_; // why there is no connection any more
};

SPAR_INLINE store_connection::store_connection(const rendezvous_options& where)
    : name_(sentence("the rendezvous at ", where.address, ", port ", where.port)),
      longest_answer_(std::min(where.deadline, 30.)) {
  check_options(where);
  in_.reserve(2 * receive_step); // so that no short answer is lost for want of memory
  if (where.address.empty() || where.port == 0)
    raise<invalid_argument>(
        {"a client of a rendezvous needs an address and a port, got \"", where.address, "\" and ", where.port});
  const double until = monotonic_seconds() + std::min(where.deadline, 1e9);
  double refused_until = std::numeric_limits<double>::infinity();
  for (double pause = 0.01;; pause = std::min(2 * pause, 0.25)) {
    std::string why;
    try {
      greet(where, std::min(until, monotonic_seconds() + longest_greeting));
      return;
    } catch (const mismatch& e) {
      const double now = monotonic_seconds();
      refused_until = std::min(refused_until, now + earlier_job_seconds);
      if (now + pause >= std::min(refused_until, until)) throw;
    } catch (const transport_error& e) {
      why = e.what();
    }
    if (monotonic_seconds() + pause >= until)
      raise<timeout>({name_, " is not there after ", where.deadline, " s: ", why, "; expected rank 0 to listen there"});
    rest(pause);
  }
}

SPAR_INLINE void store_connection::greet(const rendezvous_options& where, double until) {
  try {
    socket_ = connect_to(where.address, where.port, where.network_interface, until);
    const std::string nonce = random_bytes(nonce_bytes);
    send(encode(hello_message{nonce, where.job}), until);
    const challenge_message challenge = decode_challenge(receive(frame_kind::challenge, until));
    if (challenge.secured != !where.secret.empty()) {
      raise<mismatch>({name_,
                       challenge.secured ? " expects a secret, which this process lacks"
                                         : " has no secret, but this process has one",
                       "; set SPAR_SECRET on all ranks or on none"});
    }
    const std::string other(challenge.nonce);
    send(frame_bytes(frame_kind::proof, proof_of("client", where.secret, nonce, other, where.job)), until);
    const std::string_view proof = receive(frame_kind::welcome, until);
    if (!equal_in_constant_time(proof, proof_of("server", where.secret, nonce, other, where.job)))
      raise<mismatch>({name_, " does not know the secret of this process"});
  } catch (const corrupt_message& e) {
    raise<mismatch>(
        {"what listens at ", where.address, ", port ", where.port, ", is no rendezvous of spar: ", e.what()});
  }
}

SPAR_INLINE void store_connection::send(std::string_view bytes, double until) {
  in_.clear();
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_until_ready(socket_, true, until)) raise<transport_error>({name_, " takes no request"});
    } else if (errno != EINTR) {
      raise<transport_error>(
          {name_, " has closed the connection (", std::strerror(errno), "); its process has probably ended"});
    }
  }
}

SPAR_INLINE frame store_connection::receive(std::size_t most, double until) {
  for (;;) {
    if (const auto answer = first_frame(in_, most)) return *answer;
    if (!wait_until_ready(socket_, false, until)) raise<transport_error>({name_, " does not answer"});
    const std::size_t before = in_.size();
    in_.resize(before + receive_step);
    const ssize_t taken = ::recv(socket_.get(), in_.data() + before, receive_step, 0);
    in_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(taken, 0)));
    if (taken > 0 || (taken < 0 && (errno == EAGAIN || errno == EINTR))) continue;
    raise<transport_error>({name_, " has closed the connection", taken == 0 ? "" : " (",
                            taken == 0 ? "" : std::strerror(errno), taken == 0 ? "" : ")",
                            "; its process has probably ended"});
  }
}

SPAR_INLINE std::string_view store_connection::receive(frame_kind expected, double until) {
  const frame answer = receive(most_greeting_bytes, until);
  if (answer.kind == frame_kind::refused) raise<mismatch>({name_, " refuses this process: ", answer.body});
  if (answer.kind != expected) {
    raise<corrupt_message>(
        {"an answer has the kind ", static_cast<int>(answer.kind), ", expected ", static_cast<int>(expected)});
  }
  return answer.body;
}

SPAR_INLINE std::optional<std::string> store_connection::ask(const store_request& request, double seconds) {
  if (request.key.empty() || request.key.size() > most_key_bytes) {
    raise<invalid_argument>({"a key of a store has ", request.key.size(), " bytes; expected 1 to ", most_key_bytes});
  }
  if (request.value.size() > most_value_bytes) {
    raise<invalid_argument>(
        {"a value in a store has ", request.value.size(), " bytes; expected at most ", most_value_bytes});
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!lost_.empty()) raise<transport_error>({lost_});
  const std::string bytes = encode(request);
  frame answer{};
  try {
    const double until = monotonic_seconds() + seconds + longest_answer_;
    send(bytes, until);
    answer = receive(most_frame_bytes, until);
    const bool is_nothing = answer.kind == frame_kind::nothing && request.kind == frame_kind::wait;
    if (answer.kind != frame_kind::value && !is_nothing) {
      raise<transport_error>({name_, " answers a request with a message of the kind ", static_cast<int>(answer.kind),
                              " ", answer.kind == frame_kind::refused ? answer.body : std::string_view()});
    }
  } catch (const std::exception& e) { // another request would read the answer to this one
    lost_ = e.what();
    socket_ = descriptor();
    raise<transport_error>({lost_});
  }
  if (answer.kind == frame_kind::nothing) return std::nullopt;
  return std::string(answer.body);
}

} // namespace detail

SPAR_INLINE tcp_store::tcp_store(const rendezvous_options& where)
    : connection_(std::make_unique<detail::store_connection>(where)) {}
SPAR_INLINE tcp_store::~tcp_store() = default;

SPAR_INLINE std::string tcp_store::put(std::string_view key, std::string_view value) {
  return *connection_->ask({detail::frame_kind::put, key, value, 0}, 0);
}

SPAR_INLINE std::optional<std::string> tcp_store::wait(std::string_view key, double seconds) {
  const double limited = seconds > 0 ? std::min(seconds, 4e6) : 0; // in milliseconds, a number of 32 bits
  const auto milliseconds = static_cast<std::uint32_t>(std::ceil(limited * 1e3));
  return connection_->ask({detail::frame_kind::wait, key, {}, milliseconds}, limited);
}

} // namespace spar::inline v0_1
