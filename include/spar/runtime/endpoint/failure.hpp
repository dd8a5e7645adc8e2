// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The state of a communicator on one rank: whether it is dead and, if so, which rank failed first and why. A rank that
// fails with an exception sends its reason to all ranks (runtime/abort.hpp); they receive the reason in
// endpoint::on_control_message, and endpoint::mark_dead then resumes their coroutines, whose calls end in
// `peer_failed`. If a process vanishes, the first rank whose deadline expires fails with `timeout`
// (endpoint/waits.hpp).
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/atomic.hpp>
#include <spar/runtime/messages/control_message.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

namespace spar::inline v0_1::detail {

/// One rank's record of the failure of its communicator. A communicator dies at most once, and no collective works on a
/// dead communicator.
class failure {
 public:
  explicit failure(rank_t rank) noexcept : rank_(rank) {}

  [[nodiscard]] bool dead() const noexcept { return dead_; }
  /// The rank that failed first, as far as this rank knows; -1 if no rank has failed.
  [[nodiscard]] rank_t failed_rank() const noexcept { return failed_rank_; }
  /// Why the rank has failed; empty if no rank has failed.
  [[nodiscard]] std::string_view reason() const noexcept { return reason_.data(); }
  /// Throws `peer_failed` with the number of the failed rank and the reason for the failure.
  [[noreturn, gnu::cold]] void raise_peer_failed() const;

  /// Marks the communicator, which must be alive, as dead because rank `who` has failed for the reason `why`.
  void set(rank_t who, std::string_view why) noexcept;

  /// Appends the text of the control message `part` to the reason why a peer has failed. Returns whether the reason is
  /// complete. While the reason of one peer is incomplete, ignores parts from other peers: one failure is enough.
  [[nodiscard]] bool append(const control_message& part) noexcept;
  /// Returns the complete reason, after `append` has returned true, and makes `append` start a new reason. Stores in
  /// `failed` the rank that has failed, with whose number the text begins. Throws `corrupt_message` if this is not the
  /// number of one of `ranks` ranks.
  [[nodiscard]] std::string_view take_reason(rank_t& failed, rank_t ranks);

 private:
  rank_t rank_;
  atomic<bool> dead_ = false; // atomic: the application may read `dead_` while a progress thread runs
  rank_t failed_rank_ = -1;
  rank_t source_ = -1;     // the rank whose reason is arriving
  std::size_t length_ = 0; // characters of the arriving reason so far
  std::array<char, max_text_length + 1> reason_{};
  std::array<char, max_text_length> arriving_;
};

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/runtime/endpoint/failure-inl.hpp>
#endif
