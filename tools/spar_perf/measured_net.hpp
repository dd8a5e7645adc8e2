// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The communicator on which all systems run, of one type for all transports: each system is compiled once.
#pragma once

#include "root_links.hpp"

#include <spar/transport/any.hpp>
#include <spar/transport/tracing.hpp>

#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace spar::perf {

/// Adds up the payload in bytes that goes up and down each link below a tree's root, for all ranks that share the
/// counters. Counts less than spar::counting, whose counters for each pair of ranks need too much memory in the
/// simulator.
class measured_port : public spar::decorated_port<spar::tracing_port<spar::any_port>> {
 public:
  measured_port(spar::tracing_port<spar::any_port>& net, const root_links& links)
      : decorated_port(net), links_(&links) {}

  /// Counts from now on in `bytes`: bytes[2 * link] for up, bytes[2 * link + 1] for down. Null stops counting.
  void count_in(std::vector<std::uint64_t>* bytes) {
    bytes_ = bytes;
    if (bytes_ != nullptr) bytes_->resize(2 * links_->count());
  }

  auto send(const spar::message_pieces& out, spar::rank_t peer, spar::tag_t tag) {
    if (bytes_ != nullptr) count(out.head.payload_bytes(), peer);
    return inner().send(out, peer, tag);
  }
  auto receive(spar::message_buffer& in, spar::rank_t peer, spar::tag_t tag) { return inner().receive(in, peer, tag); }

 private:
  void count(std::uint64_t bytes, spar::rank_t peer) {
    const std::size_t up = links_->behind(rank()), down = links_->behind(peer);
    if (up == down) return;
    (*bytes_)[2 * up] += bytes;
    (*bytes_)[2 * down + 1] += bytes;
  }

  const root_links* links_;
  std::vector<std::uint64_t>* bytes_ = nullptr;
};

namespace detail {

/// What a measured_net wraps around the rank of a transport; a base class, because it must exist before the port.
struct layers {
  spar::any_port any;
  spar::tracing_port<spar::any_port> traced{any};
};

} // namespace detail

/// A rank of any transport, which outlives this object. Records nothing until `trace` starts a record.
class measured_net : private detail::layers, public spar::communicator_rank<measured_port> {
 public:
  template <spar::communicates Rank>
  measured_net(Rank& rank, const root_links& links)
      : layers{spar::any_port(spar::detail::port_of(rank))}, communicator_rank(traced, links), rank_(&rank) {
    traced.record(false);
  }

  /// The rank that this object wraps; its type must be Rank.
  template <class Rank>
  [[nodiscard]] Rank& wrapped() const {
    return *std::any_cast<Rank*>(rank_);
  }
  /// An object of this rank, such as its device memory. The first call creates the object by `make()`; all calls must
  /// have the same type.
  template <class Object, class Make>
  [[nodiscard]] Object& keep(Make make) {
    if (!kept_) kept_ = make();
    return *static_cast<Object*>(kept_.get());
  }

  void count_in(std::vector<std::uint64_t>* bytes) { port().count_in(bytes); }
  [[nodiscard]] spar::tracing_port<spar::any_port>& trace() noexcept { return traced; }

  /// `serve` starts a progress thread, which runs for as long as the returned object exists.
  void serve_by(std::function<std::shared_ptr<void>()> serve) { serve_ = std::move(serve); }
  /// Starts a progress thread; null if the transport has none.
  [[nodiscard]] std::shared_ptr<void> serve() const { return serve_ ? serve_() : nullptr; }
  [[nodiscard]] bool has_progress_thread() const noexcept { return serve_ != nullptr; }

 private:
  std::any rank_;
  std::function<std::shared_ptr<void>()> serve_;
  std::shared_ptr<void> kept_;
};

} // namespace spar::perf
