// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The server of a store over TCP: one thread, which waits by poll for all connections.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/core/util/atomic.hpp>
#include <spar/core/util/thread.hpp>
#include <spar/rendezvous/table.hpp>
#include <spar/rendezvous/tcp/proof.hpp>
#include <spar/rendezvous/tcp/protocol.hpp>
#include <spar/rendezvous/tcp/socket.hpp>
#include <spar/rendezvous/tcp_store.hpp>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

namespace spar::inline v0_1 {

namespace detail {

class store_server {
 public:
  store_server(memory_store& values, const rendezvous_options& where);
  store_server(const store_server&) = delete;
  ~store_server() {
    stopped_ = true;
    wake();
    thread_.join();
  }

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] std::string refusals() {
    const std::lock_guard<std::mutex> lock(refusals_mutex_);
    if (refusals_ == 0) return {};
    return sentence("has refused ", refusals_, refusals_ == 1 ? " connection" : " connections",
                    ", the last one for this reason: ", last_refusal_);
  }
  /// Makes the thread look for new values.
  void wake() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof(one)); // fails if it is awake anyway
  }

 private:
  static constexpr double longest_greeting = 5, longest_farewell = 2, last_answers = 1; // seconds
  static constexpr double never = std::numeric_limits<double>::infinity();

  enum class phase : std::uint8_t { greeting, proving, ready, waiting, refused };

  /// The socket of a connection, which ends with this object even if a process that was forked has a copy.
  struct connected_socket : descriptor {
    using descriptor::descriptor;
    connected_socket(connected_socket&&) noexcept = default;
    connected_socket& operator=(connected_socket&&) noexcept = default;
    ~connected_socket() {
      if (open()) ::shutdown(get(), SHUT_RDWR);
    }
  };

  /// A connection owns no memory but this record until bytes arrive.
  struct connection {
    connection(connected_socket accepted, double until) noexcept : socket(std::move(accepted)), expires(until) {}

    connected_socket socket;
    double expires;
    phase now = phase::greeting;
    std::string in;        // bytes that have not been handled
    std::string nonces;    // of the client and of the server, while proving
    std::string awaited;   // the key for whose value the client waits
    std::string head;      // the answer, or what stands before the value in it
    std::string_view body; // the value in the answer, which the store keeps
    std::size_t sent = 0;  // bytes of both

    [[nodiscard]] bool answering() const noexcept { return sent < head.size() + body.size(); }
  };

  void serve() noexcept;
  bool ended() noexcept;
  void step();
  void poll_all(double now);
  bool drop_stranger() noexcept;
  void accept_one_each(double now);
  bool advance(connection& c, short events);
  bool handle_frames(connection& c);
  void handle(connection& c, const frame& request);
  bool answer(connection& c, std::string head, std::string_view body = {});
  bool answer_value(connection& c, const std::string& value) {
    return answer(c, frame_bytes(frame_kind::value, {}, value.size()), value);
  }
  bool flush(connection& c);
  bool expire(connection& c);
  void note_refusal(std::string_view why);

  memory_store& values_;
  std::string job_, secret_;
  std::vector<descriptor> listening_;
  int port_ = 0;
  descriptor wake_;
  std::vector<connection> connections_;
  std::vector<pollfd> polled_; // `wake_`, those of `listening_`, those of `connections_`
  std::array<char, 65536> arrived_;
  double accept_from_ = 0;
  double end_ = never;
  std::mutex refusals_mutex_;
  std::uint64_t refusals_ = 0; // number of connections that were refused, and why the last one
  std::string last_refusal_;
  detail::atomic<bool> stopped_ = false;
  thread thread_;
};

SPAR_INLINE store_server::store_server(memory_store& values, const rendezvous_options& where)
    : values_(values), job_(where.job), secret_(where.secret), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check_options(where);
  if (!wake_.open()) raise<transport_error>({"cannot open an event descriptor: ", std::strerror(errno)});
  for (const double until = monotonic_seconds() + std::min(where.deadline, earlier_job_seconds); listening_.empty();) {
    try {
      listening_ = listen_on(where.port, where.network_interface);
    } catch (const transport_error& e) {
      if (monotonic_seconds() >= until) {
        raise<transport_error>(
            {"rank 0 cannot serve the rendezvous: ", e.what(),
             "; unless another process is rank 0, too, choose another port by SPAR_PORT on all ranks"});
      }
      rest(0.1);
    }
  }
  port_ = port_number(listening_.front());
  thread_ = thread([this] { serve(); });
}

SPAR_INLINE void store_server::serve() noexcept {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr); // signals are for the threads of the program
  while (!ended()) {
    try {
      step();
    } catch (...) { // there is no memory
      rest(0.01);
    }
  }
}

/// Whether the destructor has been called, and all clients have left or the time for the last answers is over.
SPAR_INLINE bool store_server::ended() noexcept {
  if (!stopped_) return false;
  const double now = monotonic_seconds();
  if (end_ == never) {
    end_ = now + last_answers;
    for (const descriptor& socket : listening_) // nobody listens any more, not even a process that was forked
      ::shutdown(socket.get(), SHUT_RDWR);
    listening_.clear();
  }
  bool left = false;
  for (const connection& c : connections_) left = left || c.now == phase::ready || c.now == phase::waiting;
  return !left || now >= end_;
}

SPAR_INLINE void store_server::step() {
  poll_all(monotonic_seconds());
  std::uint64_t count = 0;
  const bool changed = ::read(wake_.get(), &count, sizeof(count)) > 0;
  const auto close_unless = [](connection& c, const auto& action) {
    bool stays = false;
    try {
      stays = action(c);
    } catch (...) { // there is no memory for this connection
    }
    if (!stays) c.socket = connected_socket();
  };
  std::size_t at = 1 + listening_.size();
  for (connection& c : connections_) {
    const short events = polled_[at++].revents;
    if (events != 0) close_unless(c, [&](connection& one) { return advance(one, events); });
  }
  const double now = monotonic_seconds();
  for (connection& c : connections_) {
    if (c.now == phase::waiting && changed) {
      close_unless(c, [&](connection& one) {
        const std::string* const value = values_.find(one.awaited);
        return value == nullptr || (answer_value(one, *value) && handle_frames(one));
      });
    }
    if (c.socket.open() && now >= c.expires) close_unless(c, [&](connection& one) { return expire(one); });
  }
  std::erase_if(connections_, [](const connection& c) { return !c.socket.open(); });
  accept_one_each(now);
}

SPAR_INLINE void store_server::poll_all(double now) {
  double until = end_;
  polled_.assign(1, {wake_.get(), POLLIN, 0});
  for (const descriptor& socket : listening_)
    polled_.push_back({socket.get(), static_cast<short>(now >= accept_from_ ? POLLIN : 0), 0});
  if (now < accept_from_) until = std::min(until, accept_from_);
  for (const connection& c : connections_) {
    const int events = c.answering() ? POLLOUT : c.now == phase::waiting ? POLLRDHUP : POLLIN;
    polled_.push_back({c.socket.get(), static_cast<short>(events), 0});
    until = std::min(until, c.expires);
  }
  const double left = std::min(std::max(until - now, 0.), 1e6);
  const int milliseconds = until == never ? -1 : static_cast<int>(std::ceil(left * 1e3));
  if (::poll(polled_.data(), polled_.size(), milliseconds) < 0) {
    const int code = errno;
    for (pollfd& one : polled_) one.revents = 0;
    // EINVAL: the process has lowered its limit of descriptors below the number of connections.
    if (code != EINTR && !drop_stranger()) rest(0.01);
  }
}

/// Makes room: drops the oldest connection that has not proven anything. Returns whether there was one.
SPAR_INLINE bool store_server::drop_stranger() noexcept {
  auto oldest = connections_.begin();
  while (oldest != connections_.end() && (oldest->now == phase::ready || oldest->now == phase::waiting)) ++oldest;
  if (oldest == connections_.end()) return false;
  connections_.erase(oldest);
  return true;
}

/// Accepts one connection of each socket that has some; the next poll finds the others.
SPAR_INLINE void store_server::accept_one_each(double now) {
  for (std::size_t i = 0; i < listening_.size(); ++i) {
    if ((polled_[1 + i].revents & POLLIN) == 0) continue;
    connected_socket socket(::accept4(listening_[i].get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.open()) {
      const int on = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      connections_.emplace_back(std::move(socket), now + longest_greeting);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (!drop_stranger()) accept_from_ = now + 0.1; // waits until another connection ends
    }
  }
}

SPAR_INLINE bool store_server::advance(connection& c, short events) {
  if (c.answering()) return flush(c) && handle_frames(c);
  if (c.now == phase::waiting) return (events & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
  const ssize_t taken = ::recv(c.socket.get(), arrived_.data(), arrived_.size(), 0);
  if (taken < 0) return errno == EAGAIN || errno == EINTR;
  if (taken == 0 && c.now == phase::proving)
    note_refusal(sentence("the client has left when it learned that the job has ", secret_.empty() ? "no" : "a",
                          " secret; set SPAR_SECRET on all ranks or on none"));
  if (taken == 0) return false;
  if (c.now == phase::refused) return true; // reads on, because closing with unread bytes would discard the answer
  c.in.append(arrived_.data(), static_cast<std::size_t>(taken));
  return handle_frames(c);
}

SPAR_INLINE bool store_server::handle_frames(connection& c) {
  while (!c.answering() && c.now < phase::waiting) {
    try {
      const auto request = first_frame(c.in, c.now == phase::ready ? most_frame_bytes : most_greeting_bytes);
      if (!request) return true;
      handle(c, *request);
      c.in.erase(0, request->size());
    } catch (const error& e) {
      c.now = phase::refused;
      c.expires = monotonic_seconds() + longest_farewell;
      c.in.clear();
      note_refusal(e.what());
      answer(c, frame_bytes(frame_kind::refused, e.what()));
    }
    if (!flush(c)) return false;
  }
  return true;
}

SPAR_INLINE void store_server::handle(connection& c, const frame& request) {
  const auto expect = [&](frame_kind kind) {
    if (request.kind != kind) {
      raise<corrupt_message>({"a client sends a message of the kind ", static_cast<int>(request.kind), "; expected ",
                              static_cast<int>(kind)});
    }
  };
  if (c.now == phase::greeting) {
    expect(frame_kind::hello);
    const hello_message hello = decode_hello(request.body);
    if (hello.job != job_) {
      raise<mismatch>(
          {"this is the rendezvous of ", name_of_job(job_), ", the client belongs to ", name_of_job(hello.job)});
    }
    const std::string nonce = random_bytes(nonce_bytes);
    c.nonces = std::string(hello.nonce).append(nonce);
    c.now = phase::proving;
    answer(c, encode(challenge_message{!secret_.empty(), nonce}));
  } else if (c.now == phase::proving) {
    expect(frame_kind::proof);
    const auto proof = [&](std::string_view who) {
      return proof_of(who, secret_, std::string_view(c.nonces).substr(0, nonce_bytes),
                      std::string_view(c.nonces).substr(nonce_bytes), job_);
    };
    if (!equal_in_constant_time(request.body, proof("client")))
      raise<mismatch>({"the client does not know the secret of the job"});
    c.now = phase::ready;
    c.expires = never;
    answer(c, frame_bytes(frame_kind::welcome, proof("server")));
    c.nonces.clear();
  } else {
    const store_request wanted = decode_request(request);
    if (wanted.kind == frame_kind::put) {
      values_.memory_store::put(wanted.key, wanted.value); // not that of tcp_store_server, which may be incomplete
      wake();
    }
    if (const std::string* const value = values_.find(wanted.key)) {
      answer_value(c, *value);
    } else {
      c.awaited = wanted.key;
      c.now = phase::waiting;
      c.expires = monotonic_seconds() + 1e-3 * wanted.milliseconds;
    }
  }
}

/// Begins an answer, and returns whether the connection is still open.
SPAR_INLINE bool store_server::answer(connection& c, std::string head, std::string_view body) {
  if (c.now == phase::waiting) {
    c.now = phase::ready;
    c.expires = never;
  }
  c.head = std::move(head);
  c.body = body;
  c.sent = 0;
  return flush(c);
}

SPAR_INLINE bool store_server::flush(connection& c) {
  while (c.answering()) {
    const bool in_head = c.sent < c.head.size();
    const std::string_view rest =
        in_head ? std::string_view(c.head).substr(c.sent) : c.body.substr(c.sent - c.head.size());
    const int more = in_head && !c.body.empty() ? MSG_MORE : 0;
    const ssize_t sent = ::send(c.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL | more);
    if (sent < 0 && errno != EINTR) return errno == EAGAIN;
    if (sent > 0) c.sent += static_cast<std::size_t>(sent);
  }
  if (c.now == phase::refused) ::shutdown(c.socket.get(), SHUT_WR);
  return true;
}

/// Ends what took too long. Returns whether the connection stays.
SPAR_INLINE bool store_server::expire(connection& c) {
  return c.now == phase::waiting && answer(c, frame_bytes(frame_kind::nothing, {})) && handle_frames(c);
}

SPAR_INLINE void store_server::note_refusal(std::string_view why) {
  const std::lock_guard<std::mutex> lock(refusals_mutex_);
  ++refusals_;
  last_refusal_ = why;
}

} // namespace detail

SPAR_INLINE tcp_store_server::tcp_store_server(const rendezvous_options& where)
    : server_(std::make_unique<detail::store_server>(*this, where)) {}
SPAR_INLINE tcp_store_server::~tcp_store_server() = default;

SPAR_INLINE int tcp_store_server::port() const noexcept { return server_->port(); }
SPAR_INLINE std::string tcp_store_server::refusals() const { return server_->refusals(); }

SPAR_INLINE std::string tcp_store_server::put(std::string_view key, std::string_view value) {
  std::string kept = memory_store::put(key, value);
  server_->wake();
  return kept;
}

} // namespace spar::inline v0_1
