// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The events of a simulation, in order of their virtual times.
#pragma once

#include <spar/core/util/algobase.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spar::detail {

/// What happens to a rank of the simulator.
enum class sim_event_kind {
  start,    ///< its program begins
  leave,    ///< a message comes to its first link
  left,     ///< a message has left its first link
  reach,    ///< a message comes to another link
  arrive,   ///< a message has arrived
  control,  ///< a control message has arrived
  deadline, ///< its deadline may have expired
  alarm,    ///< the time of `wake_at` has come
  awake     ///< its program has slept
};

/// A priority queue. Events at the same time come in order of their ties, a function of the seed; events with equal
/// ties in the order in which they were scheduled.
template <class Rank, class Message>
class sim_events {
 public:
  struct event {
    double time;
    sim_event_kind kind;
    Rank* rank;
    Message* message;
    std::uint64_t tie = 0;
    std::uint64_t serial = 0;
    friend bool operator<(const event& a, const event& b) noexcept { // the heap's first is the largest
      if (a.time != b.time) return a.time > b.time;
      if (a.tie != b.tie) return a.tie > b.tie;
      return a.serial > b.serial;
    }
  };

  explicit sim_events(std::size_t usual) { heap_.reserve(usual); }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  /// How many have been scheduled.
  [[nodiscard]] std::uint64_t scheduled() const noexcept { return scheduled_; }
  void schedule(event e, std::uint64_t tie) {
    e.tie = tie;
    e.serial = scheduled_++;
    heap_.push_back(e);
    std::push_heap(heap_.begin(), heap_.end());
  }
  event pop() {
    const event first = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    return first;
  }
  void clear() noexcept { heap_.clear(); }

 private:
  std::vector<event> heap_;
  std::uint64_t scheduled_ = 0;
};

} // namespace spar::detail
