// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ok-Topk: the k largest entries of the sum of every rank's k largest, in O(k) words (Ok-Topk, algorithm 1).
#pragma once

#include <spar/collective/balanced_ownership.hpp>
#include <spar/collective/flat_exchange.hpp>
#include <spar/collective/global_threshold.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/threshold_reuse.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace spar {

/// Only what reaches the global result leaves `x`. On every call at most (1 + epsilon) k entries leave a rank for their
/// owners, an owner gets at most (1 + epsilon) k + P, and the result has at most (1 + epsilon) k; with epsilon 0 it has
/// min(k, its nonzeros). Words (of 4 bytes, with values and indices of 4 bytes) that a rank sends or receives: at most
/// 2 (1 + epsilon) k + 4 (1 + epsilon) k (P - 1) / P + 10 P; more for calls that look for thresholds (see
/// keep_global_topk) or boundaries (see balance_ownership). On a tree (see on_tree) an owner gets its portion of P
/// times as many.
template <class Topology = flat>
struct basic_ok_topk_allreduce {
  static constexpr std::string_view name = "ok_topk";

  std::uint64_t k = 0;          ///< entries, or
  double density = 0;           ///< their fraction of n
  double epsilon = 0.1;         ///< by which k may be missed, so that thresholds need not be looked for on every call
  std::uint64_t tau = 64;       ///< calls after which the owners' boundaries are looked for again
  std::uint64_t tau_prime = 32; ///< calls after which thresholds are
  int threads = 1;              ///< that share the passes over `x`, in [1, max_threads]
  Topology topology = Topology();
  std::uint64_t calls = 0; // from here on the state
  selector::threshold_reuse::state local{};
  std::uint64_t global_threshold = 1;
  std::vector<std::uint64_t> boundaries{}; ///< P + 1 of them; on a tree of its cells

  /// What the last call did.
  struct report {
    std::uint64_t selected = 0;         ///< entries that this rank sent to the owners
    double select_seconds = 0;          ///< for that, and for what makes the values that are selected from
    std::uint64_t boundary_rounds = 0;  ///< each of 2 ceil(log2 P) messages
    std::uint64_t threshold_rounds = 0; ///< each of ceil(log2 P) messages
    bool evened_out = false;            ///< the owners' shares, before the allgather
  } last{};

  template <index_type Index, transport Net, element T, reduction<T> Op, class Prepare = selector::nothing_to_prepare,
            class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<selected_sum<T, Index>> operator()(channel<Net> net, std::span<T> x, Op op, Prepare prepare = {},
                                          Storage store = {}) & {
    const auto ranks = static_cast<std::size_t>(net.size());
    const auto bounds = selector::topk_bounds::around(selector::detail::amount(k, density, x.size()), epsilon);
    const double begin = net.net().now();
    selector::threshold_reuse select = selecting();
    stream<T, Index> mine = select.template operator()<Index>(x, net.memory(), prepare);
    local = select.now;
    last = {.selected = mine.count(), .select_seconds = net.net().now() - begin};
    const auto owners = topology.due(x.size(), net.size());
    boundaries.resize(static_cast<std::size_t>(owners.count()) + 1);
    const std::uint64_t most = (bounds.most + ranks) * ranks / (boundaries.size() - 1); // in the mean block
    last.boundary_rounds =
        co_await balance_ownership(net, std::as_const(mine).indices(), owners, boundaries, calls % tau == 0, most);
    stream<T, Index> reduced = co_await topology.reduce_scatter(net, mine.view(), boundaries, op, store, x);
    buffer<std::uint64_t> shares(net.memory(), ranks + 1); // where each rank's begins in the joint order
    last.threshold_rounds =
        co_await keep_global_topk(net, reduced, bounds, calls % tau_prime == 0, global_threshold, shares.span());
    stream<T, Index> sum =
        co_await topology.allgather(net, std::move(reduced), boundaries, shares.span(), last.evened_out, store, x);
    put_back_losers(mine, sum.view(), x, net.memory());
    ++calls;
    co_return selected_sum<T, Index>(std::move(sum), std::move(mine));
  }

  [[nodiscard]] selector::threshold_reuse selecting() const {
    return {.k = k, .density = density, .period = tau_prime, .epsilon = epsilon, .threads = threads, .now = local};
  }
  void validate(std::uint64_t n) const {
    selecting().validate(n);
    if (tau == 0) throw invalid_argument("boundaries are to be found every 0 calls: tau is at least 1");
  }
  void validate_ranks(rank_t ranks) const { topology.validate_ranks(ranks); }

  void options(auto&& f) const { f(k), f(density), f(epsilon), f(tau), f(tau_prime), f(topology.agreed()); }
  void shared_state(auto&& f) { f(calls), f(global_threshold), f(boundaries); }
  void own_state(auto&& f) { f(local.threshold), f(local.calls); }
};
using ok_topk_allreduce = basic_ok_topk_allreduce<>;

/// Keeps the state: `ok_topk<float> reduce{{.density = 0.01}}`, then `reduce(net, gradient)` again and again.
template <element T, index_type Index = std::uint32_t, class Topology = flat>
using ok_topk = error_feedback<T, basic_ok_topk_allreduce<Topology>, Index>;

} // namespace spar
