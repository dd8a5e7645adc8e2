// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport of an any_transport, so that a program compiles its collectives once and chooses the transport when it
// runs.
#pragma once

#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/operation.hpp>
#include <spar/transport/any_transport.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

namespace detail {

/// The type of an operation's record; void if the operation is that of a decorator.
template <class Operation>
struct record_of : std::type_identity<void> {};
template <class Net, class Record>
struct record_of<operation<Net, Record>> : std::type_identity<Record> {};

} // namespace detail

/// The transport of `any_transport`: forwards all functions to the wrapped transport by pointers to functions.
class any_port {
 public:
  template <transport Net>
  explicit any_port(Net& inner) noexcept : inner_(&inner), node_(&inner.node()), functions_(&functions_of<Net>) {
    using receiving = decltype(inner.receive(std::declval<message_buffer&>(), rank_t(), tag_t()));
    static_assert(
        !std::is_void_v<typename detail::record_of<receiving>::type> && !device_bound_transport<Net>,
        "an any_transport wraps threads, mpi, ucx or sim, and cannot wrap a decorator: let the decorator wrap an "
        "any_transport");
  }

  [[nodiscard]] rank_t rank() const noexcept { return node_->rank(); }
  [[nodiscard]] rank_t size() const noexcept { return node_->size(); }
  [[nodiscard]] endpoint& node() const noexcept { return *node_; }
  [[nodiscard]] spar::scheduler& scheduler() noexcept { return node_->scheduler(); }
  [[nodiscard]] pool& memory() const noexcept { return node_->memory(); }
  [[nodiscard]] double now() noexcept { return functions_->now(inner_); }
  void compute(std::uint64_t entries) { functions_->compute(inner_, entries); }
  void progress(bool block) { functions_->progress(inner_, block); }
  void post(const control_message& note, rank_t peer) { functions_->post(inner_, note, peer); }
  void await(operation_record& r, std::coroutine_handle<> waiting) { functions_->await(inner_, r, waiting); }
  void share() const { functions_->share(inner_); }
  bool sleep_until(double time) { return functions_->sleep_until(inner_, time); }
  void wake() { functions_->wake(inner_); }
  [[nodiscard]] device_path path_on_device(std::size_t bytes, std::size_t pieces) const {
    return functions_->path(inner_, bytes, pieces);
  }

  operation<any_port, operation_record> send(const message_pieces& out, rank_t peer, tag_t tag) {
    return operation<any_port, operation_record>(*this, functions_->send(inner_, out, peer, tag));
  }
  operation<any_port, operation_record> receive(message_buffer& in, rank_t source, tag_t tag) {
    return operation<any_port, operation_record>(*this, functions_->receive(inner_, in, source, tag));
  }
  void abandon(operation_record* r) { functions_->abandon(inner_, r); }

 private:
  struct functions {
    double (*now)(void*);
    void (*compute)(void*, std::uint64_t);
    void (*progress)(void*, bool);
    void (*post)(void*, const control_message&, rank_t);
    void (*await)(void*, operation_record&, std::coroutine_handle<>);
    void (*share)(void*);
    bool (*sleep_until)(void*, double time);
    void (*wake)(void*);
    device_path (*path)(void*, std::size_t bytes, std::size_t pieces);
    operation_record* (*send)(void*, const message_pieces&, rank_t, tag_t);
    operation_record* (*receive)(void*, message_buffer&, rank_t, tag_t);
    void (*abandon)(void*, operation_record*);
  };

  template <class Net>
  static Net& as(void* inner) noexcept {
    return *static_cast<Net*>(inner);
  }
  // Sends and receives of a transport may have records of different types.
  template <class Net>
  static void abandon_in(void* inner, operation_record* r) {
    auto& net = as<Net>(inner);
    using sending = decltype(net.send(std::declval<const message_pieces&>(), rank_t(), tag_t()));
    using receiving = decltype(net.receive(std::declval<message_buffer&>(), rank_t(), tag_t()));
    if (r->receives)
      net.abandon(static_cast<typename detail::record_of<receiving>::type*>(r));
    else
      net.abandon(static_cast<typename detail::record_of<sending>::type*>(r));
  }

  template <class Net>
  static constexpr functions functions_of{
      [](void* net) { return as<Net>(net).now(); },
      [](void* net, std::uint64_t entries) { as<Net>(net).compute(entries); },
      [](void* net, bool block) { as<Net>(net).progress(block); },
      [](void* net, const control_message& note, rank_t peer) { as<Net>(net).post(note, peer); },
      [](void* net, operation_record& r, std::coroutine_handle<> waiting) { as<Net>(net).await(r, waiting); },
      [](void* net) {
        if constexpr (shared_transport<Net>)
          as<Net>(net).share();
        else
          raise<invalid_argument>({"the transport in this any_transport does not allow a progress_thread"});
      },
      [](void* net, double time) {
        if constexpr (sleeping_transport<Net>)
          return as<Net>(net).sleep_until(time);
        else
          return false;
      },
      [](void* net) {
        if constexpr (sleeping_transport<Net>) as<Net>(net).wake();
      },
      [](void* net, std::size_t bytes, std::size_t pieces) {
        if constexpr (device_transport<Net>)
          return as<Net>(net).path_on_device(bytes, pieces);
        else
          return device_path::staged;
      },
      [](void* net, const message_pieces& out, rank_t peer, tag_t tag) -> operation_record* {
        return as<Net>(net).send(out, peer, tag).release();
      },
      [](void* net, message_buffer& in, rank_t source, tag_t tag) -> operation_record* {
        return as<Net>(net).receive(in, source, tag).release();
      },
      &abandon_in<Net>,
  };

  void* inner_;
  endpoint* node_;
  const functions* functions_;
};

namespace detail {

/// The rank of an any_transport. A class that derives from this one may also own the rank.
class any_rank {
 public:
  /// `only` says why this rank makes no other communicators.
  template <transport Net>
  explicit any_rank(Net& net, const char* only = "it refers to a rank of the program, which may have one") noexcept
      : port(net), only_(only) {}
  any_rank(const any_rank&) = delete;
  virtual ~any_rank() {
    link& handles = port.node().calls().handles();
    if (&handles.after() != &handles) end_calls(port);
  }

  // See any_transport. The new ranks belong to the caller.
  virtual any_rank* split(int, int) { refuse("split", only_); }
  virtual any_rank* shrink() { refuse("shrink", only_); }
  virtual any_rank* grow() { refuse("grow", only_); } // null if nobody asks to join
  /// Tells the other ranks that this one makes no further calls, if the transport needs that before the destruction.
  virtual void depart() noexcept {}

  any_port port;
  std::vector<rank_t> hosts;
  bool shrunk = false; // whether `shrink` has returned another communicator

 protected:
  /// Throws the error of a `function` that this rank does not have.
  [[noreturn, gnu::cold]] static void refuse(const char* function, const char* why) {
    raise<invalid_argument>({"this any_transport has no ", function, ": ", why});
  }

 private:
  const char* only_;
};

/// A base class that owns a communicator, and destroys it after any_rank, the next base class, has ended the calls.
template <class Net>
struct rank_owner {
  explicit rank_owner(Net* net) noexcept : owned(net) {}
  rank_owner(const rank_owner&) = delete;
  ~rank_owner() { delete owned; }
  Net* const owned;
};

/// A rank of an any_transport that owns the communicator `Net`, which `new` has made.
template <class Net>
class owned_rank : private rank_owner<Net>, public any_rank {
 public:
  explicit owned_rank(Net* net) : rank_owner<Net>(net), any_rank(net->port()) {}

 protected:
  [[nodiscard]] Net& net() const noexcept { return *this->owned; }
};

/// The ranks of an any_group.
class group_object {
 public:
  group_object() = default;
  group_object(const group_object&) = delete;
  virtual ~group_object() = default;
  [[nodiscard]] virtual rank_t size() const noexcept = 0;
  [[nodiscard]] virtual any_transport& rank(rank_t r) = 0;
  virtual void run(void (*call)(const void* self, any_transport& net), const void* program) = 0;
};

/// What makes an any_transport from a rank that it then owns.
struct any_access {
  static any_transport transport(any_rank* rank) noexcept { return any_transport(rank); }
  static any_rank* rank(const any_transport& net) noexcept { return net.rank_; } // null if it has none
};

} // namespace detail

template <detail::has_ranks Net>
any_transport::any_transport(Net& net) : rank_(new detail::any_rank(detail::port_of(net))) {
  static_assert(communicates<Net>, "an any_transport refers to a communicator or a transport");
}

inline any_port& any_transport::port() noexcept { return rank_->port; }
inline const any_port& any_transport::port() const noexcept { return rank_->port; }

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/transport/any-inl.hpp>
#endif
