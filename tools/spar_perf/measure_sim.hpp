// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement in the simulator: a simulation for each call, or one for all calls of a system.
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

/// What the ranks of one simulation share; they run on one thread.
template <class T, class Index>
struct shared_state {
  std::vector<rank_data<T, Index>> ranks;
  const exact_sums* sums = nullptr; // to compare each result with
  const root_links* links = nullptr;
  bool check = false;
  record all;
  // of a call:
  double slowest = 0;
  double total = 0;       // of all ranks
  double coding = 0;      // the most of any rank
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
  record own;
  note_cost(own, call);
  record& r = shared.all;
  r.counted = own.counted;
  r.messages = std::max(r.messages, own.messages);
  r.bytes_sent = std::max(r.bytes_sent, own.bytes_sent);
  r.bytes_received = std::max(r.bytes_received, own.bytes_received);
  r.header_bytes = std::max(r.header_bytes, own.header_bytes);
  r.compressions = std::max(r.compressions, own.compressions);
  r.decompressions = std::max(r.decompressions, own.decompressions);
  r.total_bytes_sent += own.total_bytes_sent;
  r.total_bytes_received += own.total_bytes_received;
  shared.slowest = std::max(shared.slowest, call.seconds);
  shared.total += call.seconds;
  shared.coding = std::max(shared.coding, call.cost.codec_seconds);
  if (net.rank() == 0) {
    note_entries(r, nonzeros(data.result));
    note_active(r, call, partial, static_cast<int>(net.size()));
  }
  if (shared.sums != nullptr) r.max_error = std::max(r.max_error, shared.sums->max_error(data.result));
  if (shared.check) note_bits(shared, data);
  if (net.rank() > 0) data.sum = {}; // the first one's is needed once more
}

/// A rank of the simulation of one call, which all ranks begin at time 0.
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

/// What the ranks of the simulation of all calls share besides.
template <class T, class Index>
struct shared_calls : shared_state<T, Index> {
  const options* given = nullptr;
  const workload* work = nullptr;
  const system_entry<counting_links<spar::sim>, T, Index>* system = nullptr;
  balance* open = nullptr; // where results are checked together
  double largest = 0;
  int through = 0; // ranks whose call has ended
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

/// A rank of the simulation of all calls, each after a barrier, for which it may be late.
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
    if (i == o.iterations) break; // all have noted their last result
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
  data.sum = {}; // its memory is the simulation's
}

} // namespace perf
