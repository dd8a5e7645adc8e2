// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The groups of ranks behind an any_group, and ranks of threads that own their group.
#pragma once

#include <spar/system/collectives.hpp>
#include <spar/transport/any.hpp>
#include <spar/transport/sim.hpp>
#include <spar/transport/threads.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

namespace detail {

/// A group of threads, and the groups into which its ranks are dividing it.
class shared_threads : public thread_group {
 public:
  using thread_group::thread_group;

  /// Returns the group of the ranks that make the division `number` of `whole` with the same `colour`, which are
  /// `ranks` ranks.
  [[nodiscard]] std::shared_ptr<shared_threads> part(const thread_group& whole, std::uint64_t number, int colour,
                                                     rank_t ranks) {
    const std::lock_guard lock(mutex_);
    const std::tuple key(&whole, number, colour);
    auto& [part, taken] = parts_[key];
    if (part == nullptr) part = std::make_shared<shared_threads>(ranks);
    const std::shared_ptr<shared_threads> own = part;
    if (++taken == ranks) parts_.erase(key);
    return own;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<const thread_group*, std::uint64_t, int>, std::pair<std::shared_ptr<shared_threads>, rank_t>>
      parts_; // that some ranks have not taken yet
};

/// A base class that shares the ownership of a group until any_rank, the next base class, has ended the calls.
struct threads_owner {
  std::shared_ptr<shared_threads> all;
};

/// A rank of threads, which are all on one host.
class thread_rank final : private threads_owner, public any_rank {
 public:
  thread_rank(std::shared_ptr<shared_threads> group, threads& net)
      : threads_owner{std::move(group)}, any_rank(net.port()), net_(&net) {
    hosts.resize(static_cast<std::size_t>(net.size()));
  }
  ~thread_rank() override { depart(); }

  any_rank* split(int colour, int key) override {
    if (colour < 0) raise<invalid_argument>({"split was called with the colour ", colour, "; expected 0 or more"});
    std::vector<std::array<std::int64_t, 2>> given(hosts.size());
    given[static_cast<std::size_t>(net_->rank())] = {colour, key};
    allgather(port, std::span(given.front().data(), 2 * given.size()));
    rank_t ranks = 0, before = 0;
    const std::pair own(std::int64_t{key}, net_->rank());
    for (rank_t r = 0; r < net_->size(); ++r) {
      const auto& [its_colour, its_key] = given[static_cast<std::size_t>(r)];
      if (its_colour != colour) continue;
      ++ranks;
      if (std::pair(its_key, r) < own) ++before;
    }
    const auto part = all->part(net_->port().group(), divisions_++, colour, ranks);
    threads& rank = part->rank(before);
    rank.port().set_network(net_->network());
    return new thread_rank(part, rank);
  }
  any_rank* shrink() override {
    threads& rest = net_->shrink();
    return new thread_rank(all, rest);
  }
  any_rank* grow() override { refuse("grow", "it is a rank of threads, which all exist from the start"); }
  void depart() noexcept override {
    if (!departed_ && !port.node().busy()) net_->port().leave(), departed_ = true;
  }

 private:
  threads* net_;
  std::uint64_t divisions_ = 0;
  bool departed_ = false;
};

/// An any_transport for each rank of `Group`, shared_threads or a simulator.
template <class Group>
class group_of final : public group_object {
 public:
  explicit group_of(rank_t size) : group_(std::make_shared<Group>(size)) {
    ranks_.reserve(static_cast<std::size_t>(size));
    for (rank_t r = 0; r < size; ++r) {
      if constexpr (threaded)
        ranks_.emplace_back(any_access::transport(new thread_rank(group_, group_->rank(r))));
      else
        ranks_.emplace_back(any_access::transport(new any_rank(group_->rank(r).port(), "it is a rank of sim")));
    }
  }
  ~group_of() override {
    std::erase_if(ranks_, [](const any_transport& net) { return any_access::rank(net) == nullptr; });
    end_calls_of_all(ranks_);
  }

  [[nodiscard]] rank_t size() const noexcept override { return group_->size(); }
  [[nodiscard]] any_transport& rank(rank_t r) override {
    (void)group_->rank(r); // throws if `r` is out of range
    return ranks_[static_cast<std::size_t>(r)];
  }
  void run(void (*call)(const void* self, any_transport& net), const void* program) override {
    if constexpr (threaded)
      group_->run([&](threads& net) { call(program, ranks_[static_cast<std::size_t>(net.rank())]); });
    else
      raise<invalid_argument>({"the ranks of this any_group are simulated on one thread: start the calls of all ranks, "
                               "then wait for them"});
  }

 private:
  static constexpr bool threaded = std::same_as<Group, shared_threads>;

  std::shared_ptr<Group> group_;
  std::vector<any_transport> ranks_; // of which the program may have taken some over
};

} // namespace detail

SPAR_INLINE any_group any_group::threads(rank_t size) {
  return any_group(new detail::group_of<detail::shared_threads>(size));
}
SPAR_INLINE any_group any_group::simulated(rank_t size) { return any_group(new detail::group_of<simulator>(size)); }
SPAR_INLINE any_group::~any_group() { delete group_; }
SPAR_INLINE rank_t any_group::size() const noexcept { return group_->size(); }
SPAR_INLINE any_transport& any_group::rank(rank_t r) { return group_->rank(r); }
SPAR_INLINE void any_group::run_all(void (*call)(const void* self, any_transport& net), const void* program) {
  group_->run(call, program);
}

} // namespace spar::inline v0_1
