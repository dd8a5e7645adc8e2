// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The queue of the simulator's events, in order of virtual time.
#pragma once

#include <spar/core/util/algobase.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spar::inline v0_1::detail {

/// The kinds of events. Each event concerns one rank of the simulator.
enum class sim_event_kind {
  start,    ///< the program of the rank begins
  leave,    ///< a message reaches the first link of its path
  left,     ///< a send ends: its message has left the first link or, if sends are synchronous, has been received
  reach,    ///< a message reaches a later link of its path
  arrive,   ///< a message has arrived at its receiver
  control,  ///< a control message has arrived at its receiver
  deadline, ///< the deadline of a waiting call of the rank may have expired
  alarm,    ///< the time that was passed to `sim_port::wake_at` has come
  awake     ///< the sleep of a coroutine has ended
};

/// A priority queue of events by time. Events at the same time are in order of the number `tie`, which depends on the
/// seed; events with equal time and `tie` are in the order in which they were scheduled. The queue is a heap in which
/// an event has four children, not two: thousands of ranks have millions of events in flight, and each level of the
/// heap is then a miss of the cache.
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
    /// Whether `a` comes before `b`.
    friend bool operator<(const event& a, const event& b) noexcept {
      if (a.time != b.time) return a.time < b.time;
      if (a.tie != b.tie) return a.tie < b.tie;
      return a.serial < b.serial;
    }
  };

  /// Reserves memory for `usual` events, and for `reserved` events that are scheduled as such.
  sim_events(std::size_t usual, std::size_t reserved) : usual_(usual) { heap_.reserve(usual + reserved); }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  /// How many events have been scheduled so far.
  [[nodiscard]] std::uint64_t scheduled() const noexcept { return scheduled_; }
  /// Adds an event. If `is_reserved`, takes no memory for the first `reserved` events.
  void schedule(const event& e, std::uint64_t tie, bool is_reserved = false) {
    if (heap_.size() >= usual_ && !is_reserved) grow();
    heap_.push_back(e);
    event added = e;
    added.tie = tie;
    added.serial = scheduled_++;
    std::size_t place = heap_.size() - 1;
    for (std::size_t above; place > 0 && added < heap_[above = (place - 1) / children]; place = above) {
      heap_[place] = heap_[above];
    }
    heap_[place] = added;
  }
  event pop() {
    const event first = heap_.front(), last = heap_.back();
    heap_.pop_back();
    std::size_t place = 0;
    for (std::size_t below = 1; below < heap_.size(); below = children * place + 1) {
      const std::size_t end = std::min(below + children, heap_.size());
      std::size_t next = below;
      for (std::size_t child = below + 1; child < end; ++child) next = heap_[child] < heap_[next] ? child : next;
      if (last < heap_[next]) break;
      heap_[place] = heap_[next];
      place = next;
    }
    if (!heap_.empty()) heap_[place] = last;
    return first;
  }
  void clear() noexcept { heap_.clear(); }

 private:
  static constexpr std::size_t children = 4;

  [[gnu::cold]] void grow() {
    const std::size_t reserved = heap_.capacity() - usual_;
    heap_.reserve(2 * usual_ + reserved);
    usual_ = heap_.capacity() - reserved;
  }

  std::size_t usual_; // the number of events in `heap_` from which only reserved events find memory
  std::vector<event> heap_;
  std::uint64_t scheduled_ = 0;
};

} // namespace spar::inline v0_1::detail
