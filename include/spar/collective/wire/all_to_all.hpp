// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One message from each rank to each other rank, or among the ranks of each group, all of them in flight at once.
#pragma once

#include <spar/core/memory/fixed_vector.hpp>
#include <spar/runtime/channel.hpp>

#include <cstddef>
#include <utility>

namespace spar::inline v0_1 {

/// The `count` ranks `first`, `first + stride`, and so on.
struct rank_group {
  rank_t first = 0;
  rank_t stride = 1;
  rank_t count = 1;

  [[nodiscard]] rank_t operator[](rank_t i) const noexcept { return first + i * stride; }
  /// The position of the rank `of` in this group.
  [[nodiscard]] rank_t position(rank_t of) const noexcept { return (of - first) / stride; }
};

/// The messages of this rank in an exchange in which every rank sends a message to every other rank of its group, by
/// default to all ranks. The i-th peer, for i from 1 to P - 1 in a group of P ranks, is another rank on each rank, so
/// that no rank gets the messages of all others at once. Messages arrive in objects of the type `Incoming`.
template <transport Net, class Incoming>
class all_to_all {
 public:
  /// Starts to receive the messages of all other ranks.
  explicit all_to_all(channel<Net> net) : all_to_all(net, {.count = net.size()}) {}
  /// Starts to receive the messages of the other ranks of `group`, which contains this rank.
  [[gnu::noinline]] all_to_all(channel<Net> net, rank_group group)
      : net_(net), group_(group), sending_(net.memory(), others()), arrived_(net.memory(), others()),
        receiving_(net.memory(), others()) {
    for (rank_t i = 1; i < group_.count; ++i)
      receiving_.emplace_back(net_.receive(source(i), arrived_.emplace_back(net.work().memory())));
  }
  all_to_all(const all_to_all&) = delete;
  [[gnu::noinline]] ~all_to_all() = default;

  /// The i-th rank to which this rank sends.
  [[nodiscard]] rank_t destination(rank_t i) const noexcept { return group_[(position() + i) % group_.count]; }
  /// The i-th rank from which this rank receives; for i = P, this rank.
  [[nodiscard]] rank_t source(rank_t i) const noexcept {
    return group_[(position() + group_.count - i) % group_.count];
  }

  /// Starts to send `message` to the rank `peer`.
  [[gnu::noinline]] void send(rank_t peer, const payload& message) { sending_.push_back(net_.send(peer, message)); }
  /// Starts to send `message` to all other ranks of the group.
  void send_to_all(const payload& message) {
    for (rank_t i = 1; i < group_.count; ++i) send(destination(i), message);
  }
  /// What to await before the message of the i-th source is read.
  [[nodiscard]] auto& arrival(rank_t i) noexcept { return receiving_[static_cast<std::size_t>(i - 1)]; }
  /// The message of the i-th source.
  [[nodiscard]] Incoming& operator[](rank_t i) noexcept { return arrived_[static_cast<std::size_t>(i - 1)]; }
  /// Gives back the memory of all messages that have arrived, and returns the sends, to be awaited.
  [[nodiscard]] auto& end() noexcept {
    arrived_.clear();
    return sending_;
  }

 private:
  [[nodiscard]] std::size_t others() const noexcept { return static_cast<std::size_t>(group_.count - 1); }
  [[nodiscard]] rank_t position() const noexcept { return group_.position(net_.rank()); }

  channel<Net> net_;
  rank_group group_;
  fixed_vector<decltype(std::declval<channel<Net>&>().send(0, payload{}))> sending_;
  fixed_vector<Incoming> arrived_;
  fixed_vector<decltype(std::declval<channel<Net>&>().receive(0, std::declval<Incoming&>()))> receiving_;
};

} // namespace spar::inline v0_1
