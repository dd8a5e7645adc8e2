// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement in the simulator: one simulation per call, or one for all calls of a system.
#pragma once

#include "measure.hpp"

#include <spar/sim.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace perf {

/// State that the ranks of one simulation share without locking, because they run on one thread.
template <class T, class Index>
struct shared_state {
  std::vector<rank_data<T, Index>> ranks;
  const exact_sums* sums = nullptr; // each result is compared with these sums; null for no comparison
  const root_links* links = nullptr;
  bool check = false;
  record all;
  // Of the current call:
  double slowest = 0;
  double total = 0;       // seconds of all ranks together
  double coding = 0;      // seconds of encoding and decoding, the largest of any rank
  std::uint64_t hash = 0; // of rank 0's result
  bool hashed = false;

  void begin_call() {
    slowest = total = coding = 0;
    hashed = false;
  }
};

template <class T, class Index>
void note_bits(shared_state<T, Index>& shared, const rank_data<T, Index>& data) {
  const std::uint64_t hash = hash_of(data.result);
  if (shared.hashed && hash != shared.hash) shared.all.same_bits = false;
  shared.hash = hash;
  shared.hashed = true;
}

template <class T, class Index>
void note(shared_state<T, Index>& shared, const counting_links<spar::sim>& net, rank_data<T, Index>& data,
          const call_cost& call, bool partial) {
  record& r = shared.all;
  note_cost(r, call);
  shared.slowest = std::max(shared.slowest, call.seconds);
  shared.total += call.seconds;
  shared.coding = std::max(shared.coding, call.cost.codec_seconds);
  if (net.rank() == 0) {
    note_entries(r, nonzeros(data.result));
    note_active(r, call, partial, static_cast<int>(net.size()));
  }
  if (shared.sums != nullptr) r.max_error = std::max(r.max_error, shared.sums->max_error(data.result));
  if (shared.check) note_bits(shared, data);
  if (net.rank() > 0) data.sum = {}; // the caller still reads rank 0's result
}

/// One rank in a simulation of one call, which all ranks start at time 0.
template <class T, class Index>
spar::task<void> simulated_rank(spar::sim& inner,
                                const std::vector<rank_system<counting_links<spar::sim>, T, Index>>* system,
                                shared_state<T, Index>* shared) {
  counting_links<spar::sim> net(inner, *shared->links);
  net.count_in(&shared->all.root_link_bytes);
  const auto rank = static_cast<std::size_t>(net.rank());
  auto& data = shared->ranks[rank];
  auto running = (*system)[rank].call(net, data);
  const call_cost call = co_await std::move(running);
  note(*shared, net, data, call, false);
}

/// State that the ranks share in a simulation of all calls of a system.
template <class T, class Index>
struct shared_calls : shared_state<T, Index> {
  const options* given = nullptr;
  const workload* work = nullptr;
  const system_entry<counting_links<spar::sim>, T, Index>* system = nullptr;
  balance* open = nullptr; // checks results together with residuals; null for no such check
  double largest = 0;
  int through = 0; // number of ranks whose current call has completed
  std::vector<double> residuals;

  void end_call(int iteration) {
    this->all.seconds.push_back(this->slowest);
    this->all.codec_seconds.push_back(this->coding);
    if (given->skew.any()) this->all.latencies.push_back(this->total / work->ranks);
    if (open != nullptr) {
      open->add_call(iteration, this->ranks[0].result);
      this->all.error_bound += allowed_error<T>(*work, system->relative_error + system->value_error, largest);
    }
    this->begin_call();
    largest = 0;
    through = 0;
  }
};

/// One rank in a simulation of all calls. A barrier precedes each call, and the rank may be late for the call by
/// `--skew`.
template <class T, class Index>
spar::task<void> simulated_calls(spar::sim& inner, shared_calls<T, Index>* shared) {
  counting_links<spar::sim> net(inner, *shared->links);
  const auto& system = *shared->system;
  const options& o = *shared->given;
  const auto rank = static_cast<int>(net.rank());
  auto& data = shared->ranks[static_cast<std::size_t>(rank)];
  const auto own = system.on_rank();
  if (own.open) own.open(net);
  for (int i = 0;; ++i) {
    std::array<std::uint64_t, 1> nothing{};
    auto barrier = spar::start_allreduce(net, std::span<std::uint64_t>(nothing), spar::recursive_doubling{});
    co_await std::move(barrier);
    if (i == o.iterations) break; // after the barrier, all ranks have recorded their last result
    next_step(data, *shared->work, rank, i);
    restore(data, system.dense);
    if (shared->open != nullptr) shared->largest += largest_brought(system, own, data);
    net.count_in(&shared->all.root_link_bytes);
    const double late = o.skew.of(rank, shared->work->ranks, i);
    if (late > 0) co_await inner.sleep(late);
    auto running = own.call(net, data);
    const call_cost call = co_await std::move(running);
    net.count_in(nullptr);
    note(*shared, net, data, call, system.partial);
    if (++shared->through == shared->work->ranks) shared->end_call(i);
  }
  if (system.partial) {
    auto rest = own.drain(net, data);
    co_await std::move(rest);
    if (shared->check) note_bits(*shared, data);
    if (shared->open != nullptr && rank == 0) shared->open->take(data.result);
  }
  if (shared->open != nullptr) {
    const auto residual = own.residual();
    for (std::size_t x = 0; x < residual.size(); ++x) shared->residuals[x] += static_cast<double>(residual[x]);
  }
  data.sum = {}; // the memory belongs to the simulation, which ends before `data`
}

} // namespace perf
