// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of socket.hpp.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/core/util/thread.hpp>
#include <spar/rendezvous/tcp/socket.hpp>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace spar::inline v0_1 {

namespace detail {

/// An address of IPv4 or IPv6 with a port.
struct socket_address {
  sockaddr_storage bytes{};
  socklen_t size = 0;

  socket_address() = default;
  socket_address(const sockaddr* from, socklen_t length) noexcept : size(length) { std::memcpy(&bytes, from, length); }

  [[nodiscard]] int family() const noexcept { return bytes.ss_family; }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&bytes); }
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&bytes); }
  void set_port(int port) noexcept {
    const in_port_t number = htons(static_cast<std::uint16_t>(port));
    if (family() == AF_INET)
      reinterpret_cast<sockaddr_in*>(&bytes)->sin_port = number;
    else
      reinterpret_cast<sockaddr_in6*>(&bytes)->sin6_port = number;
  }
  [[nodiscard]] int port() const noexcept {
    return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(&bytes)->sin_port
                                     : reinterpret_cast<const sockaddr_in6*>(&bytes)->sin6_port);
  }
};

/// The socket's own address, or that of its peer.
inline socket_address address_of(const descriptor& socket, bool of_peer) {
  socket_address address;
  address.size = sizeof(address.bytes);
  const int failed = of_peer ? ::getpeername(socket.get(), address.get(), &address.size)
                             : ::getsockname(socket.get(), address.get(), &address.size);
  if (failed != 0) raise<transport_error>({"a socket has no address: ", std::strerror(errno)});
  return address;
}

/// The addresses of the interface `name`. Throws `invalid_argument` if it has none.
inline std::vector<socket_address> addresses_of(std::string_view name) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) raise<transport_error>({"cannot list the network interfaces: ", std::strerror(errno)});
  std::vector<socket_address> found;
  std::vector<std::string> names;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const int family = one->ifa_addr == nullptr ? AF_UNSPEC : one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (names.empty() || names.back() != one->ifa_name) names.emplace_back(one->ifa_name);
    if (name == one->ifa_name)
      found.emplace_back(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  }
  ::freeifaddrs(all);
  if (!found.empty()) return found;
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    bool known = false; // the list has an interface once for each family
    for (std::size_t before = 0; before < i; ++before) known = known || names[before] == names[i];
    if (!known) list.append(list.empty() ? "" : ", ").append(names[i]);
  }
  raise<invalid_argument>({"there is no network interface ", name, " with an address; expected one of ", list});
}

SPAR_INLINE void check_interface(std::string_view name) {
  if (!name.empty()) addresses_of(name);
}

SPAR_INLINE std::string address_of_interface(std::string_view name) {
  const socket_address first = addresses_of(name).front();
  char text[256];
  if (::getnameinfo(first.get(), first.size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0)
    raise<transport_error>({"the address of the interface ", name, " cannot be written as text"});
  return text;
}

inline descriptor socket_of(int family) {
  descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) raise<transport_error>({"cannot open a socket: ", std::strerror(errno)});
  return socket;
}

inline descriptor listen_at(const socket_address& address) {
  descriptor socket = socket_of(address.family());
  const int on = 1, off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); // despite connections of an earlier job
  const bool any = address.family() == AF_INET6 &&
                   IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&address.bytes)->sin6_addr);
  if (address.family() == AF_INET6) // all addresses are also those of IPv4
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, any ? &off : &on, sizeof(on));
  if (::bind(socket.get(), address.get(), address.size) != 0 || ::listen(socket.get(), SOMAXCONN) != 0)
    raise<transport_error>({"cannot listen on port ", address.port(), ": ", std::strerror(errno)});
  return socket;
}

/// All addresses of the family.
inline socket_address any_address(int family) {
  socket_address address;
  address.bytes.ss_family = static_cast<sa_family_t>(family);
  address.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  return address;
}

SPAR_INLINE std::vector<descriptor> listen_on(int port, const std::string& network_interface) {
  std::vector<descriptor> sockets;
  if (network_interface.empty()) {
    const bool has_ipv6 = descriptor(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)).open();
    socket_address address = any_address(has_ipv6 ? AF_INET6 : AF_INET);
    address.set_port(port);
    sockets.push_back(listen_at(address));
    return sockets;
  }
  for (socket_address& address : addresses_of(network_interface)) {
    address.set_port(port);
    sockets.push_back(listen_at(address));
    if (port == 0) port = port_number(sockets.back());
  }
  return sockets;
}

SPAR_INLINE int port_number(const descriptor& listening) { return address_of(listening, false).port(); }

SPAR_INLINE bool wait_until_ready(const descriptor& socket, bool to_write, double until) {
  pollfd wanted{socket.get(), static_cast<short>(to_write ? POLLOUT : POLLIN), 0};
  for (;;) {
    const double left = until - monotonic_seconds();
    const int milliseconds = left <= 0 ? 0 : static_cast<int>(std::ceil(std::min(left, 1e6) * 1e3));
    const int ready = ::poll(&wanted, 1, milliseconds);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) raise<transport_error>({"cannot wait for a socket: ", std::strerror(errno)});
    if (ready == 0 && left <= 1e6) return false;
  }
}

/// The addresses of `host`. Throws `transport_error` if it has none.
inline std::vector<socket_address> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* all = nullptr;
  if (const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &all); code != 0) {
    const char* const why = code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code);
    raise<transport_error>({"the name ", host, " has no address: ", why});
  }
  std::vector<socket_address> found;
  for (const addrinfo* one = all; one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    found.emplace_back(one->ai_addr, one->ai_addrlen);
    found.back().set_port(port);
  }
  ::freeaddrinfo(all);
  return found;
}

inline descriptor connect_at(const socket_address& to, const std::string& network_interface, double until) {
  descriptor socket = socket_of(to.family());
  if (!network_interface.empty()) {
    const auto own = addresses_of(network_interface);
    const auto same_family = [&](const socket_address& a) { return a.family() == to.family(); };
    auto from = own.begin();
    while (from != own.end() && !same_family(*from)) ++from;
    if (from == own.end())
      raise<transport_error>({"the interface ", network_interface, " has no address of the same family"});
    if (::bind(socket.get(), from->get(), from->size) != 0)
      raise<transport_error>({"cannot send from ", network_interface, ": ", std::strerror(errno)});
  }
  int code = ::connect(socket.get(), to.get(), to.size) == 0 ? 0 : errno;
  if (code == EINPROGRESS || code == EINTR) {
    if (!wait_until_ready(socket, true, until)) raise<transport_error>({"the host does not answer"});
    socklen_t size = sizeof(code);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &size);
  }
  if (code != 0) raise<transport_error>({std::strerror(code)});
  // A socket can connect to itself if nobody listens on a port from which the system may choose.
  const socket_address here = address_of(socket, false), there = address_of(socket, true);
  if (here.size == there.size && std::memcmp(&here.bytes, &there.bytes, here.size) == 0)
    raise<transport_error>({std::strerror(ECONNREFUSED)});
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

SPAR_INLINE descriptor connect_to(const std::string& host, int port, const std::string& network_interface,
                                  double until) {
  std::string why = "the name has no address of IPv4 or IPv6";
  const auto addresses = resolve(host, port);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const double now = monotonic_seconds(), share = (until - now) / static_cast<double>(addresses.size() - i);
    try {
      return connect_at(addresses[i], network_interface, now + share);
    } catch (const transport_error& e) {
      why = e.what();
    }
  }
  raise<transport_error>({why});
}

} // namespace detail

} // namespace spar::inline v0_1
