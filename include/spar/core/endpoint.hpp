// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What every transport has on each rank: a scheduler, a pool, the numbering of its collectives, statistics.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/message.hpp>
#include <spar/core/pool.hpp>
#include <spar/core/scheduler.hpp>
#include <spar/core/slab.hpp>
#include <spar/core/statistics.hpp>

#include <bitset>
#include <cstdint>
#include <string>

#include <time.h>

namespace spar {

using tag_t = std::int32_t;

/// Collectives that may be in flight at once, and concurrent lanes in each; MPI guarantees tags up to 32767 only.
inline constexpr std::uint64_t max_in_flight = 4096;
inline constexpr std::uint8_t max_lanes = 8;

/// The tag of a message: which collective it belongs to, modulo the number in flight, and which lane of it.
constexpr tag_t make_tag(std::uint64_t sequence, std::uint8_t lane) noexcept {
  return static_cast<tag_t>((sequence % max_in_flight) * max_lanes + lane);
}

constexpr std::uint8_t lane_of(tag_t tag) noexcept {
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(tag) % max_lanes);
}
/// The sequence number that a tag was made from, modulo `max_in_flight`.
constexpr std::uint32_t sequence_of(tag_t tag) noexcept { return static_cast<std::uint32_t>(tag) / max_lanes; }

/// The record of one call while it is in flight.
struct call_record {
  std::uint64_t sequence = 0;
  statistics cost;
  double started = 0;
  call_record* next = nullptr;
};

/// The state of one rank that is the same on every transport; transports derive from it.
class endpoint {
 public:
  endpoint(rank_t rank, rank_t size, const pool_owner& memory)
      : rank_(rank), size_(size), pool_(memory), scheduler_(*pool_) {
    if (size < 1) raise<invalid_argument>({"a communicator needs at least one rank, not ", size});
  }
  endpoint(const endpoint&) = delete;

  [[nodiscard]] rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] rank_t size() const noexcept { return size_; }
  [[nodiscard]] spar::scheduler& scheduler() noexcept { return scheduler_; }
  [[nodiscard]] pool& memory() const noexcept { return *pool_; }

  /// Costs of the call that finished last, and of all finished calls together.
  [[nodiscard]] const spar::statistics& last_call() const noexcept { return last_; }
  [[nodiscard]] const spar::statistics& statistics() const noexcept { return total_; }

  /// Seconds since some moment; the simulator overrides it with virtual time.
  [[nodiscard]] static double now() noexcept {
    timespec t{}; // <chrono> would cost every user more to compile
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  /// True where the tags of the next collective are still used by the one `max_in_flight` before it.
  [[nodiscard]] bool full() const noexcept { return in_flight_[next_ % max_in_flight]; }

  /// Numbers a collective that starts at time `now`.
  [[gnu::noinline]] void open(call_record& call, double now) noexcept {
    call = {next_++, {}, now, nullptr};
    in_flight_.set(call.sequence % max_in_flight);
    if (open_++ == 0) memory().begin_call();
  }
  /// The collective has ended at time `now`: its tags are free.
  [[gnu::noinline]] void finish(call_record& call, double now) noexcept {
    in_flight_.reset(call.sequence % max_in_flight);
    --open_;
    memory().end_call();
    call.cost.seconds = now - call.started;
    last_ = call.cost;
    total_ += call.cost;
  }

  /// A record for a call that outlives the scope it was started in; `recycle` takes it back.
  [[nodiscard]] call_record& acquire() { return *calls_.acquire(); }
  void recycle(call_record& call) noexcept { calls_.recycle(&call); }

 private:
  rank_t rank_;
  rank_t size_;
  pool_owner pool_;
  spar::scheduler scheduler_;
  std::uint64_t next_ = 0;
  std::uint64_t open_ = 0; // calls that have not ended
  std::bitset<max_in_flight> in_flight_;
  detail::slab<call_record> calls_;
  spar::statistics last_;
  spar::statistics total_;
};

} // namespace spar
