// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A store that one process serves to the others over TCP: the server, with a thread of its own, and the client.
#pragma once

#include <spar/rendezvous/options.hpp>
#include <spar/rendezvous/store.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace spar::inline v0_1 {

namespace detail {

class store_server;     // the connections and the thread of a server
class store_connection; // the connection of a client

/// Seconds in which a new job tries again if an earlier job may still hold the port.
inline constexpr double earlier_job_seconds = 3;

/// Throws `invalid_argument` if an option is out of range, there is no such network interface, or a secret is given
/// without OpenSSL.
void check_options(const rendezvous_options& where);

} // namespace detail

/// A store in this process that it also serves to others, over TCP, by a thread of its own. Connections that do not
/// speak the protocol, belong to another job or do not know the secret are refused, and dropped if they do not greet
/// within 5 s. They do not disturb the others.
class tcp_store_server : public memory_store {
 public:
  /// Listens on `where.port` of all addresses, or of those of `where.network_interface`; the system chooses the port if
  /// it is 0. If the port is in use, tries again for 3 s, but not beyond the deadline: an earlier job may end. Throws
  /// `transport_error` if the port cannot be had, `invalid_argument` if an option is out of range, there is no such
  /// interface, or a secret is given without OpenSSL, and `error` if the system cannot start a thread.
  explicit tcp_store_server(const rendezvous_options& where);
  tcp_store_server(const tcp_store_server&) = delete;
  /// Serves for at most one more second, until all clients have closed their connections, so that they get the last
  /// answers.
  ~tcp_store_server() override;

  /// The port on which the server listens.
  [[nodiscard]] int port() const noexcept;
  /// How many connections were refused so far and why the last one, such as "has refused 1 connection, ..."; empty if
  /// none was.
  [[nodiscard]] std::string refusals() const;
  std::string put(std::string_view key, std::string_view value) override;

 private:
  std::unique_ptr<detail::store_server> server_;
};

/// A client of a `tcp_store_server`.
class tcp_store : public rendezvous_store {
 public:
  /// Connects to the server at `where`. If nobody listens there, tries again until `where.deadline`; if a server
  /// refuses this process, only for 3 s, in which an earlier job may end. Throws `timeout` with the address, the port
  /// and the last reason, `mismatch` if the server refuses this process or does not know the secret, and
  /// `invalid_argument` if an option is missing or out of range, there is no such interface, or a secret is given
  /// without OpenSSL. A `transport_error` of an attempt is the last reason of a `timeout`; what would be a
  /// `corrupt_message` is a `mismatch`, for then no rendezvous of spar listens there.
  explicit tcp_store(const rendezvous_options& where);
  tcp_store(const tcp_store&) = delete;
  ~tcp_store() override;

  /// Like `rendezvous_store::put`. Throws `transport_error` also if the server has ended, or does not answer within
  /// `where.deadline` or 30 s, and `invalid_argument` if the key is empty or has more than 1024 bytes, or the value
  /// more than 64 MiB.
  std::string put(std::string_view key, std::string_view value) override;
  std::optional<std::string> wait(std::string_view key, double seconds) override;

 private:
  std::unique_ptr<detail::store_connection> connection_;
};

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/rendezvous/tcp_store-inl.hpp>
#include <spar/rendezvous/tcp_store_server-inl.hpp>
#endif
