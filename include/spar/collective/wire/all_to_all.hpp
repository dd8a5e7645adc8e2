// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One message from each rank to each other rank, or among the ranks of each group, all of them in flight at once.
#pragma once

#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>

#include <cstddef>
#include <utility>

namespace spar::inline v0_1 {

/// The `count` ranks from `first` on, or those at `members`.
struct rank_group {
  rank_t first = 0;
  rank_t count = 1;
  const rank_t* members = nullptr; ///< in ascending order; null if the ranks are consecutive

  [[nodiscard]] rank_t operator[](rank_t i) const noexcept { return members != nullptr ? members[i] : first + i; }
  /// The position in this group of the rank `of`, which need not be in it if its ranks are consecutive.
  [[nodiscard]] rank_t position(rank_t of) const noexcept {
    return members != nullptr ? static_cast<rank_t>(std::lower_bound(members, members + count, of) - members)
                              : of - first;
  }
  /// Whether a group of consecutive ranks, or of members with this rank, contains the rank `of`.
  [[nodiscard]] bool contains(rank_t of) const noexcept { return position(of) >= 0 && position(of) < count; }
  /// The number of ranks other than the rank `from`, and the i-th of them, for i from 1 on: another one for each
  /// `from`.
  [[nodiscard]] rank_t others(rank_t from) const noexcept { return count - (contains(from) ? 1 : 0); }
  [[nodiscard]] rank_t after(rank_t from, rank_t i) const noexcept { return (*this)[(start(from) + i) % count]; }
  /// The i-th rank whose i-th other rank is `from`, if the rank `from` is in this group; for i = P, `from`.
  [[nodiscard]] rank_t before(rank_t from, rank_t i) const noexcept {
    return (*this)[(start(from) + count - i) % count];
  }

 private:
  [[nodiscard]] rank_t start(rank_t from) const noexcept { return contains(from) ? position(from) : from % count; }
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
  all_to_all(channel<Net> net, rank_group group) : all_to_all(net, group, group) {}
  /// Starts to receive the messages of the ranks of `from` other than this rank, which sends to those of `to`.
  [[gnu::noinline]] all_to_all(channel<Net> net, rank_group from, rank_group to)
      : net_(net), from_(from), to_(to), sending_(net.memory(), static_cast<std::size_t>(destinations())),
        arrived_(net.memory(), static_cast<std::size_t>(sources())),
        receiving_(net.memory(), static_cast<std::size_t>(sources())) {
    for (rank_t i = 1; i <= sources(); ++i)
      receiving_.emplace_back(net_.receive(source(i), arrived_.emplace_back(net.work().memory())));
  }
  all_to_all(const all_to_all&) = delete;
  [[gnu::noinline]] ~all_to_all() = default;

  /// The numbers of ranks to which this rank sends, and from which it receives.
  [[nodiscard]] rank_t destinations() const noexcept { return to_.others(net_.rank()); }
  [[nodiscard]] rank_t sources() const noexcept { return from_.others(net_.rank()); }
  /// The i-th rank to which this rank sends.
  [[nodiscard]] rank_t destination(rank_t i) const noexcept { return to_.after(net_.rank(), i); }
  /// The i-th rank from which this rank receives; for i = P, this rank.
  [[nodiscard]] rank_t source(rank_t i) const noexcept { return from_.before(net_.rank(), i); }

  /// Starts to send `message` to the rank `peer`.
  [[gnu::noinline]] void send(rank_t peer, const payload& message) { sending_.push_back(net_.send(peer, message)); }
  /// Starts to send `message` to all ranks to which this rank sends.
  void send_to_all(const payload& message) {
    for (rank_t i = 1; i <= destinations(); ++i) send(destination(i), message);
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
  channel<Net> net_;
  rank_group from_, to_;
  fixed_vector<decltype(std::declval<channel<Net>&>().send(0, payload{}))> sending_;
  fixed_vector<Incoming> arrived_;
  fixed_vector<decltype(std::declval<channel<Net>&>().receive(0, std::declval<Incoming&>()))> receiving_;
};

} // namespace spar::inline v0_1
