// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sockets of IPv4 and IPv6, none of which block, and network interfaces.
#pragma once

#include <spar/core/error.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

namespace spar::inline v0_1::detail {

/// An open file descriptor, which the destructor closes.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int number) noexcept : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  [[nodiscard]] int get() const noexcept { return number_; }
  [[nodiscard]] bool open() const noexcept { return number_ >= 0; }

 private:
  int number_ = -1;
};

/// Throws `invalid_argument`, with the interfaces that exist, if `name` is not empty and is no network interface with
/// an address.
void check_interface(std::string_view name);

/// The first address of the network interface, as text. Throws as `check_interface`.
std::string address_of_interface(std::string_view name);

/// Sockets that listen on `port` of every address of the interface, or one that listens on all addresses if
/// `network_interface` is empty. If `port` is 0, the system chooses it. Throws `transport_error` if the port cannot be
/// had, and as `check_interface`.
std::vector<descriptor> listen_on(int port, const std::string& network_interface);

/// The port of a socket that listens.
int port_number(const descriptor& listening);

/// Connects to `port` of `host` from an address of `network_interface`, if it is not empty. Gives up at the time
/// `until` of the monotonic clock. Throws `transport_error` with the reason.
descriptor connect_to(const std::string& host, int port, const std::string& network_interface, double until);

/// Waits until the socket is readable, or writable if `to_write`, or has an error, at most until the time `until` of
/// the monotonic clock. Returns whether it is.
bool wait_until_ready(const descriptor& socket, bool to_write, double until);

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/rendezvous/tcp/socket-inl.hpp>
#endif
