// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of any_transport that do not depend on the transport.
#pragma once

#include <spar/transport/any.hpp>

#include <span>
#include <string_view>

namespace spar::inline v0_1 {

SPAR_INLINE any_transport::~any_transport() { delete rank_; }

SPAR_INLINE rank_t any_transport::rank() const noexcept { return port().rank(); }
SPAR_INLINE rank_t any_transport::size() const noexcept { return port().size(); }
SPAR_INLINE double any_transport::now() noexcept { return port().now(); }
SPAR_INLINE pool& any_transport::memory() const noexcept { return port().memory(); }

SPAR_INLINE void any_transport::progress(bool block) {
  const detail::rank_lock lock(port().node().shared());
  port().progress(block);
}

SPAR_INLINE const spar::statistics& any_transport::last_call() const noexcept {
  return port().node().calls().last_call();
}
SPAR_INLINE const spar::statistics& any_transport::statistics() const noexcept {
  return port().node().calls().statistics();
}

SPAR_INLINE void any_transport::set_deadline(double seconds) { port().node().set_deadline(seconds); }
SPAR_INLINE double any_transport::deadline() const noexcept { return port().node().deadline(); }

SPAR_INLINE void any_transport::set_checksums(bool on) { port().node().set_checksums(on); }
SPAR_INLINE bool any_transport::checksums() const noexcept { return port().node().checksums(); }

SPAR_INLINE const network_model& any_transport::network() const noexcept { return port().node().network(); }

SPAR_INLINE std::span<const rank_t> any_transport::hosts() const noexcept { return rank_->hosts; }

SPAR_INLINE any_transport any_transport::split(int colour, int key) { return any_transport(rank_->split(colour, key)); }
SPAR_INLINE any_transport any_transport::shrink() {
  if (rank_->shrunk)
    raise<invalid_argument>({"this rank has called shrink before; go on with the communicator that it returned"});
  any_transport rest(rank_->shrink());
  rank_->shrunk = true;
  return rest;
}
SPAR_INLINE any_transport any_transport::grow() { return any_transport(rank_->grow()); }

SPAR_INLINE bool any_transport::dead() const noexcept { return port().node().dead(); }
SPAR_INLINE rank_t any_transport::failed_rank() const noexcept { return port().node().failure().failed_rank(); }
SPAR_INLINE void any_transport::abort(std::string_view reason) noexcept { spar::abort(port(), reason); }

} // namespace spar::inline v0_1
