// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The groups of ranks behind an any_group.
#pragma once

#include <spar/core/memory/fixed_vector.hpp>
#include <spar/transport/any.hpp>
#include <spar/transport/sim.hpp>
#include <spar/transport/threads.hpp>

#include <concepts>
#include <cstddef>
#include <memory_resource>

namespace spar::inline v0_1 {

namespace detail {

/// An any_transport for each rank of `Group`, a thread_group or a simulator.
template <class Group>
class group_of final : public group_object {
 public:
  explicit group_of(rank_t size)
      : group_(size), ranks_(*std::pmr::new_delete_resource(), static_cast<std::size_t>(size)) {
    for (rank_t r = 0; r < size; ++r) ranks_.emplace_back(group_.rank(r));
  }

  ~group_of() override { end_calls_of_all(ranks_); }

  [[nodiscard]] rank_t size() const noexcept override { return group_.size(); }
  [[nodiscard]] any_transport& rank(rank_t r) override {
    (void)group_.rank(r); // throws if `r` is out of range
    return ranks_[static_cast<std::size_t>(r)];
  }
  void run(void (*call)(const void* self, any_transport& net), const void* program) override {
    if constexpr (std::same_as<Group, thread_group>)
      group_.run([&](threads& net) { call(program, ranks_[static_cast<std::size_t>(net.rank())]); });
    else
      raise<invalid_argument>({"the ranks of this any_group are simulated on one thread: start the calls of all ranks, "
                               "then wait for them"});
  }

 private:
  Group group_;
  fixed_vector<any_transport> ranks_;
};

} // namespace detail

SPAR_INLINE any_group any_group::threads(rank_t size) { return any_group(new detail::group_of<thread_group>(size)); }
SPAR_INLINE any_group any_group::simulated(rank_t size) { return any_group(new detail::group_of<simulator>(size)); }
SPAR_INLINE any_group::~any_group() { delete group_; }
SPAR_INLINE rank_t any_group::size() const noexcept { return group_->size(); }
SPAR_INLINE any_transport& any_group::rank(rank_t r) { return group_->rank(r); }
SPAR_INLINE void any_group::run_all(void (*call)(const void* self, any_transport& net), const void* program) {
  group_->run(call, program);
}

} // namespace spar::inline v0_1
