// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sends and receives the messages of a FlexReduce plan on one rank: one level after the other, and on each level all
// chains at the same time.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/topology/flex_plan.hpp>
#include <spar/workspace/host_work.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>

namespace spar::inline v0_1::detail {

/// A message that this rank sends or receives on one level; `part` is the position of the message's chain among all
/// chains of this rank on the level. The sender and the receiver number the messages between them in the same order, by
/// hop and then by call, and distribute the messages over the lanes in this order, so that both ranks know which
/// message is which. A rank sends the messages of a hop only after all its messages of earlier hops have left, so that
/// messages for which many ranks wait are not delayed. Ranks cannot wait for each other in a cycle, because a message
/// depends only on earlier hops.
struct flex_message {
  rank_t peer;
  std::size_t place; // the peer's position in the chain, from 0
  std::size_t hop;   // the number of hops in the chain before this message
  std::size_t part;
  std::size_t number = 0;
  bool ready = false; // whether this rank has all that the message depends on
  bool begun = false;
  bool sent = false;

  [[nodiscard]] std::uint8_t lane() const noexcept { return static_cast<std::uint8_t>(number % max_lanes); }
};

/// The messages of one rank on one level in one direction: either all that the rank sends or all that it receives.
class flex_messages {
 public:
  flex_messages(pool& memory, std::size_t room) : messages_(memory, room) {}
  void add(std::span<const rank_t> chain, std::size_t place, std::size_t hop, std::size_t part) {
    messages_.emplace_back(flex_message{chain[place], place, hop, part});
  }
  void deal_out() {
    std::sort(begin(), end(), [](const flex_message& a, const flex_message& b) {
      return std::tuple(a.peer, a.hop, a.part) < std::tuple(b.peer, b.hop, b.part);
    });
    for (std::size_t m = 1; m < messages_.size(); ++m) {
      if (messages_[m].peer == messages_[m - 1].peer) messages_[m].number = messages_[m - 1].number + 1;
    }
  }
  [[nodiscard]] flex_message* begin() noexcept { return messages_.begin(); }
  [[nodiscard]] flex_message* end() noexcept { return messages_.end(); }
  /// The message that follows `m` on the same lane, from or to the same peer; null if `m` is the last.
  [[nodiscard]] flex_message* after(flex_message* m) noexcept {
    return end() - m > max_lanes && m[max_lanes].peer == m->peer ? m + max_lanes : nullptr;
  }
  /// The message that precedes `m` on the same lane, from or to the same peer; null if `m` is the first.
  [[nodiscard]] static const flex_message* before(const flex_message* m) noexcept {
    return m->number >= max_lanes ? m - max_lanes : nullptr;
  }

 private:
  fixed_vector<flex_message> messages_;
};

/// The base of each `Work` of flex_execute: which values the messages of a plan contain, and what this rank does with
/// those that arrive. A derived class also has a function `outgoing(part)`, which returns an answer, the message of the
/// chain `part`. The functions here suit a `Work` that has nothing to do; those of a derived class may return another
/// awaitable.
class flex_work {
 public:
  static constexpr bool straight = false; ///< see flex_level
  using arrival = message_buffer;         ///< in which a message arrives

  explicit flex_work(const flex_plan& plan) noexcept : plan_(&plan) {}
  /// Called before the messages of a level, on which this rank has the chains `parts`.
  ready<> begin_level(std::span<const flex_plan::part> parts) noexcept {
    parts_ = parts;
    return {};
  }
  /// Called before a message is received; may choose the place of its pieces.
  static void place(const flex_message&, message_buffer&) noexcept {}
  /// Called when a message has arrived. Returns the number of values that have been reduced.
  static ready<std::uint64_t> take(const flex_message&, const message_buffer&) noexcept {
    return ready<std::uint64_t>(0);
  }
  /// Called when all messages of the level have arrived. Returns the number of values that have been reduced.
  static ready<std::uint64_t> all_taken() noexcept { return ready<std::uint64_t>(0); }
  /// Called when all messages of the level have arrived and left.
  static void end_level() noexcept {}

 protected:
  [[nodiscard]] const flex_plan& plan() const noexcept { return *plan_; }
  /// The range of the chain `part`, in the plan.
  [[nodiscard]] index_range range(std::size_t part) const noexcept { return (*plan_)[parts_[part]].range; }

  std::span<const flex_plan::part> parts_;

 private:
  const flex_plan* plan_;
};

template <transport Net, class Work>
class flex_level;

/// Receives and processes the messages from one rank on one lane, starting with `first`.
template <transport Net, class Work>
task<void> flex_take(channel<Net> net, flex_level<Net, Work>* level, flex_message* first) {
  for (flex_message* m = first; m != nullptr; m = level->awaited().after(m)) {
    auto& in = level->buffer_for_next();
    level->work().place(*m, in);
    co_await net.receive(m->peer, in);
    net.compute(co_await level->work().take(*m, in));
    if (!Work::straight) in.release();
    level->taken(*m);
  }
}

/// Sends message `m`. If `m` is the last message of its hop to leave, the next hop then starts.
template <transport Net, class Work>
task<void> flex_send(channel<Net> net, flex_level<Net, Work>* level, flex_message* m) {
  auto sending = net.send(m->peer, co_await level->work().outgoing(m->part));
  level->sent(m);
  co_await sending;
  level->gone(*m);
}

/// Runs one level of a plan on one rank: up the tree if `up` is true, else down the tree. If `Work::straight` is false,
/// messages travel from rank to rank along the chains, as in the paper; this is for dense values. If `Work::straight`
/// is true, all ranks of a chain send directly to the chain's root, or the root sends to all of them. Streams are sent
/// directly, because their partial sums would grow with every hop of a chain (docs/decisions/0008).
template <transport Net, class Work>
class flex_level {
 public:
  flex_level(channel<Net> net, const flex_plan& plan, std::span<const flex_plan::part> parts, bool up, Work* work)
      : net_(net), work_(work), awaited_(net.memory(), room(plan, parts)), out_(net.memory(), room(plan, parts)),
        out_of_(net.memory(), parts.size()), by_hop_(net.memory(), room(plan, parts)),
        sending_(net.memory(), room(plan, parts)), arrived_(net.memory(), room(plan, parts)),
        taking_(net.memory(), room(plan, parts)) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto chain = plan.chain(plan[parts[i]]);
      const std::size_t place = parts[i].place, root = chain.size() - 1;
      if constexpr (Work::straight) {
        flex_messages& of_root = up ? awaited_ : out_;
        for (std::size_t other = 0; place == root && other < root; ++other) of_root.add(chain, other, 0, i);
        if (place != root) (up ? out_ : awaited_).add(chain, root, 0, i);
      } else {
        // Number of ranks in the chain before this rank, in the direction of travel.
        const std::size_t before = up ? place : root - place;
        if (before > 0) awaited_.add(chain, up ? place - 1 : place + 1, before - 1, i);
        if (before < root) out_.add(chain, up ? place + 1 : place - 1, before, i);
      }
    }
    awaited_.deal_out();
    out_.deal_out();
    std::fill_n(out_of_.data(), parts.size(), nullptr);
    for (flex_message& m : out_) {
      out_of_.data()[m.part] = &m;
      by_hop_.emplace_back(&m);
    }
    std::sort(by_hop_.begin(), by_hop_.end(), [](const flex_message* a, const flex_message* b) {
      return std::tuple(a->hop, a) < std::tuple(b->hop, b);
    });
  }
  flex_level(const flex_level&) = delete;

  [[nodiscard]] Work& work() const noexcept { return *work_; }
  [[nodiscard]] flex_messages& awaited() noexcept { return awaited_; }
  [[nodiscard]] fixed_vector<task<void>>& taking() noexcept { return taking_; }
  [[nodiscard]] fixed_vector<task<void>>& sending() noexcept { return sending_; }
  auto& buffer_for_next() { return arrived_.emplace_back(net_.work().memory()); }
  void release_buffers() noexcept { arrived_.clear(); }

  void begin() {
    for (flex_message& m : awaited_) {
      if (flex_messages::before(&m) == nullptr) taking_.push_back(flex_take(net_.lane(m.lane()), this, &m));
    }
    for (flex_message& m : out_) m.ready = m.ready || m.hop == 0;
    next_hop(0);
  }
  /// To be called when the received message `m` has been processed. If the chain of `m` continues after this rank,
  /// marks the message to the next rank as ready, and sends this message unless earlier messages must leave first.
  void taken(const flex_message& m) {
    flex_message* const onward = out_of_.data()[m.part];
    if (Work::straight || onward == nullptr) return;
    onward->ready = true;
    send(onward);
  }
  /// To be called when the send of `m` has started. If `m` had to wait for the device, sends the messages behind `m`.
  void sent(flex_message* m) {
    m->sent = true;
    if (m != beginning_) send(out_.after(m));
  }
  void gone(const flex_message& m) {
    if (m.hop == hop_ && --left_ == 0) next_hop(hop_end_);
  }

 private:
  /// An upper bound on the number of messages that this rank sends on the level, and on the number that it receives.
  static std::size_t room(const flex_plan& plan, std::span<const flex_plan::part> parts) {
    std::size_t most = 0;
    for (const auto& p : parts) most += Work::straight && plan.is_root(p) ? p.place + 1 : 1;
    return most;
  }
  /// Starts the next hop, whose messages begin at by_hop_[first]: sends those messages that are ready.
  void next_hop(std::size_t first) {
    if (first == by_hop_.size()) return;
    hop_ = by_hop_[first]->hop;
    for (hop_end_ = first; hop_end_ < by_hop_.size() && by_hop_[hop_end_]->hop == hop_; ++hop_end_) {
    }
    left_ = hop_end_ - first;
    for (std::size_t i = first, end = hop_end_; i < end; ++i) send(by_hop_[i]);
  }
  /// Sends `m` and the messages behind `m` on the same lane, up to the first message that is not ready or belongs to
  /// another hop. Sends nothing if an earlier message on the lane has not been sent, because a lane keeps the order of
  /// its messages.
  void send(flex_message* m) {
    for (; m != nullptr && m->ready && !m->begun && m->hop == hop_; m = out_.after(m)) {
      const flex_message* const earlier = flex_messages::before(m);
      if (earlier != nullptr && !earlier->sent) return;
      m->begun = true;
      beginning_ = m;
      sending_.push_back(flex_send(net_.lane(m->lane()), this, m));
      beginning_ = nullptr;
    }
  }

  channel<Net> net_;
  Work* work_;
  flex_messages awaited_;
  flex_messages out_;
  buffer<flex_message*> out_of_; // for each chain of this rank, the outgoing message or null
  fixed_vector<flex_message*> by_hop_;
  const flex_message* beginning_ = nullptr; // the message whose `flex_send` has not been suspended yet
  std::size_t hop_ = 0;                     // the hop whose messages are being sent
  std::size_t hop_end_ = 0;                 // the end of the messages of hop `hop_` in `by_hop_`
  std::size_t left_ = 0;                    // number of messages of hop `hop_` that have not left
  fixed_vector<task<void>> sending_;
  fixed_vector<typename Work::arrival> arrived_; // received messages that are still being read
  fixed_vector<task<void>> taking_;
};

/// Waits until all messages of a level have ended, with or without errors.
template <transport Net, class Work>
[[gnu::cold]] task<void> flex_end(channel<Net> net, flex_level<Net, Work>* level) {
  (void)net; // a parameter only because its scheduler resumes this coroutine
  for (auto& t : level->taking()) co_await until_ended<task<void>>(t);
  for (std::size_t s = 0; s < level->sending().size(); ++s) co_await until_ended<task<void>>(level->sending()[s]);
}

/// Executes a plan on one rank, level by level: from the bottom up if `up` is true, else from the top down. The chains
/// of a level run at the same time: while `work` (see flex_work) awaits an answer of `outgoing`, it may process
/// messages of other chains.
template <transport Net, class Work>
task<void> flex_execute(channel<Net> net, const flex_plan* plan, bool up, Work* work) {
  for (std::size_t l = 0; l < plan->levels(); ++l) {
    const auto parts = plan->parts(up ? l : plan->levels() - 1 - l, net.rank());
    if (parts.empty()) continue; // this rank is in no chain of the level
    co_await work->begin_level(parts);
    flex_level<Net, Work> level(net, *plan, parts, up, work);
    level.begin();
    bool failed = false;
    try {
      for (auto& t : level.taking()) co_await std::move(t);
      net.compute(co_await work->all_taken());
      level.release_buffers();
      // Waits for all sends before the next level changes the values that are being sent. A send that completes may
      // start further sends, so the list may grow during the loop.
      for (std::size_t s = 0; s < level.sending().size(); ++s) co_await std::move(level.sending()[s]);
    } catch (...) {
      net.call_error().note(); // before this coroutine waits for the messages of the level, which refer to it
      failed = true;
    }
    if (failed) {
      co_await flex_end(net, &level);
      net.call_error().rethrow();
    }
    work->end_level();
  }
}

} // namespace spar::inline v0_1::detail
