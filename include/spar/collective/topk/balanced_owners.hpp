// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule of Ok-Topk (algorithm 1): every rank contributes its k largest entries and gets the k largest entries of
// the sum. On a flat topology, a rank sends and receives O(k + P) words.
#pragma once

#include <spar/collective/selected_sum.hpp>
#include <spar/collective/topk/flat_exchange.hpp>
#include <spar/collective/topk/owners_call.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/storage.hpp>
#include <spar/topology/flat.hpp>
#include <spar/transport/threads.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// Each rank owns a range of indices and sends its selected entries to the owners of the indices. The boundaries of the
/// ranges are chosen so that the owners get about equally many entries. An owner sums the entries that it receives and
/// keeps the sums that reach a threshold. The threshold is the same on all ranks, and leaves about k sums in all, which
/// an allgather gives to every rank. The selector's `bounds(n)` contain k; the selector's optional `period` (the
/// paper's tau') is the number of calls from one search for the threshold to the next. A selected entry returns to the
/// rank's residual if the index of the entry is not in the result.
///
/// The following bounds hold if each call of the selector stays within its `bounds(n)`; `epsilon` is the selector's
/// tolerance:
/// - The result has at most (1 + epsilon) k entries; with epsilon 0 it has k entries, or all nonzero sums if there are
///   fewer.
/// - On a flat topology, a rank sends at most (1 + epsilon) k entries to owners, and an owner gets at most B = M + 4
///   sqrt(M P) entries, M = (1 + epsilon) k + P. In a call that first adds up the entries of each block, an owner gets
///   at most M entries; in a call in which a rank exceeds a quota, at most B + M (see owners_call).
/// - On a flat topology, with values and indices of 4 bytes, a rank sends at most 2 (1 + epsilon) k + 4 (1 + epsilon) k
///   (P - 1) / P + 10 P words of 4 bytes, and receives at most 2 (B - M) words more. In calls that search for a
///   threshold (see owners_call) or for boundaries (see balance_ownership), or in which a rank exceeds a quota, a
///   rank sends and receives more words.
/// - On a tree, an owner that should get the fraction f of all entries gets at most f P ((1 + epsilon) k + P) entries.
struct balanced_owners {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "balanced_owners";
  /// Whether streams may be in any memory: all work on them is that of `channel::work`.
  static constexpr bool streams_anywhere = true;

  std::uint64_t tau = 64; ///< the owners' boundaries are computed again every `tau` calls; at least 1

  template <class Selector, class Storage, class Topology>
  static auto accepts() {
    if constexpr (!selector_with_bounds<Selector>)
      return needs_k();
    else if constexpr (!topology_with_owners<Topology>)
      return needs_owners();
    else
      return detail::accepts_entries_alone<Storage>();
  }

  using state = owners_state;   ///< what a call leaves for the next call
  using report = owners_report; ///< the statistics of the last call

  void validate(std::uint64_t) const {
    if (tau == 0) raise<invalid_argument>({"tau of balanced_owners is 0 calls; expected at least 1"});
  }
  void options(auto&& f) const { f("tau", tau); }

  /// Sums the selected entries `mine` of all ranks, and keeps the k largest sums. At the end, the residual of the
  /// `call` has, at each index: the value that was not selected; the contribution `mine` of this rank if its sum was
  /// dropped, which overwrites the rounding error that is there; and the rounding errors of this rank's encodings if
  /// the sum is in the result.
  template <transport Net, class Topology, class Storage, element T, index_type Index, reduction<T> Op>
  task<selected_sum<T, Index>> reduce(channel<Net> net, selected_call<Topology, Storage, T, state, report> call,
                                      sparse_stream<T, Index> mine, Op op) const&;

 private:
  /// Whether ranks send entries within quotas. On a tree, ranks add up the entries of each block in every call, and
  /// also with a lossy storage, because a call that is repeated would add its rounding errors to the residual twice.
  template <class Topology, class Storage>
  static constexpr bool has_quotas = straight_topology<Topology> && storage::streams_type<Storage>::exact;
};

/// \cond
template <transport Net, class Topology, class Storage, element T, index_type Index, reduction<T> Op>
task<selected_sum<T, Index>> balanced_owners::reduce(channel<Net> net,
                                                     selected_call<Topology, Storage, T, state, report> call,
                                                     sparse_stream<T, Index> mine, Op op) const& {
  if constexpr (straight_topology<Topology>) net = net.in_order(call.over.order());
  const std::uint64_t n = mine.dimension();
  // On a tree, ranks also encode partial sums. `lost` collects all rounding errors of this rank's encodings. Only the
  // errors at indices of the result go into the residual. At any other index all ranks put their exact contributions
  // back, so the rounding lost nothing.
  constexpr bool rounds_on_the_way = !straight_topology<Topology> && !storage::streams_type<Storage>::exact;
  buffer<T> lost(net.work().memory(), rounds_on_the_way && !call.residual.empty() ? n : 0);
  residual_view<T> errors = call.residual;
  if (lost.size() > 0) {
    net.work().fill(lost.span(), T{});
    errors = net.work().residual(lost.span());
  }

  constexpr bool limited = has_quotas<Topology, Storage>;
  owners_call owners(net, mine.view(), call.over.owners(n, net.size()), call, tau, limited);
  const auto send_to_owners = [&](block_quotas& quotas) {
    if constexpr (limited)
      return reduce_to_owners(net, call.over, mine.view(), owners.boundaries(), op, call.store, errors, quotas);
    else
      return reduce_to_owners(net, call.over, mine.view(), owners.boundaries(), op, call.store, errors);
  };
  sparse_stream<T, Index> sums = co_await owners.exchange(send_to_owners);
  if (sums.is_dense()) sums = co_await net.work().to_sparse(sums.view(), op);
  co_await owners.count(sums);
  co_await owners.threshold(sums);
  sparse_stream<T, Index> sum =
      co_await gather_shares(net, call.over, std::move(sums), owners.boundaries(), owners.shares(),
                             call.report.evened_out, call.store, call.residual);
  net.work().put_back_unlisted(mine, std::as_const(sum).indices(), call.residual);
  if (lost.size() > 0) {
    const std::span<const Index> kept = std::as_const(sum).indices();
    buffer<T> lost_there(net.work().memory(), kept.size());
    net.work().gather(std::as_const(lost).span(), kept, lost_there.data());
    call.residual.add(coo_span<T, Index>{kept, lost_there.span()});
  }
  co_return selected_sum<T, Index>(std::move(sum), std::move(mine));
}

#ifdef SPAR_COMPILED // the library has these functions (src/schedules), so programs need not compile them
extern template task<selected_sum<float, std::uint32_t>>
    balanced_owners::reduce(channel<threads_port>,
                            selected_call<flat, storage::coo, float, owners_state, owners_report>,
                            sparse_stream<float, std::uint32_t>, sum) const&;
extern template task<selected_sum<double, std::uint32_t>>
    balanced_owners::reduce(channel<threads_port>,
                            selected_call<flat, storage::coo, double, owners_state, owners_report>,
                            sparse_stream<double, std::uint32_t>, sum) const&;
#endif
/// \endcond

} // namespace spar::inline v0_1
