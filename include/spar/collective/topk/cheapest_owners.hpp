// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule of Ok-Topk that the network model expects to be the fastest: `balanced_owners`, with or without the
// code of the storage, or `pruned_owners`.
#pragma once

#include <spar/collective/allreduce/cheapest.hpp>
#include <spar/collective/topk/balanced_owners.hpp>
#include <spar/collective/topk/pruned_owners.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/model/cost.hpp>
#include <spar/model/topk_cost.hpp>
#include <spar/storage/storage.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// How `cheapest_owners` sums: by `balanced_owners` with coordinates or in the code of the storage, or by
/// `pruned_owners`.
enum class owners_choice { coordinates, encoded, pruned };

/// Ok-Topk by the schedule that the network model expects to be the fastest for k, n and P. All schedules give the same
/// bits, so the choice changes only the time of a call, and the bytes that ranks send:
/// - `balanced_owners` with coordinates;
/// - `balanced_owners` with the code of the storage, if the codec states its `cost`, as storage::coded does;
/// - `pruned_owners`, if it can hold values back: for floating-point values.
///
/// All ranks must choose by the same model: `pin`, or the model of the transport (see set_network). A rank that chooses
/// another schedule gets `mismatch`. The model may change between two calls.
struct cheapest_owners {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "cheapest_owners";

  std::uint64_t tau = 64; ///< the owners' boundaries are computed again every `tau` calls; at least 1
  /// The network model, for example `read_network("file")`. If empty, the model of the transport is used.
  std::optional<network_model> pin{};

  template <class Selector, class Storage, class Topology>
  static auto accepts() {
    return pruned_owners::accepts<Selector, Storage, Topology>();
  }

  /// The state that a call leaves for the next call.
  using state = owners_state;
  /// The statistics of the last call.
  struct report : pruned_owners::report {
    owners_choice chosen = owners_choice::coordinates; ///< the schedule of the call
  };

  /// Throws `invalid_argument` if `tau` is 0, or if a parameter of the model `pin` is negative, infinite or NaN.
  void validate(std::uint64_t n) const {
    balanced_owners{.tau = tau}.validate(n);
    cheapest{.pin = pin}.validate(n);
  }
  void options(auto&& f) const {
    f("tau", tau);
    cheapest{.pin = pin}.options(f);
  }

  /// Returns the choice for k of n entries on each of `ranks` ranks, in streams that `codec` encodes.
  template <element T, index_type Index, class Op, class Codec>
  [[nodiscard]] static owners_choice choose(const network_model& net, rank_t ranks, std::uint64_t n, std::uint64_t k,
                                            const Codec& codec) {
    const call_shape plain = shape_of<T, Index>(storage::coo{}, net, ranks, n, k);
    const call_shape encoded = shape_of<T, Index>(codec, net, ranks, n, k);
    double best = seconds_balanced_owners(net, plain);
    auto chosen = owners_choice::coordinates;
    const auto compare = [&](double seconds, owners_choice with) {
      if (seconds < best) best = seconds, chosen = with;
    };
    if constexpr (detail::states_cost<Codec, T>) compare(seconds_balanced_owners(net, encoded), owners_choice::encoded);
    if constexpr (detail::is_monotone<T, Op>) compare(seconds_pruned_owners(net, encoded), owners_choice::pruned);
    return chosen;
  }

  /// Sums the selected entries `mine` of all ranks, and keeps the k largest sums. What a rank contributed to dropped
  /// sums goes into the residual of the `call`.
  template <transport Net, class Topology, class Storage, element T, index_type Index, reduction<T> Op>
  task<selected_sum<T, Index>> reduce(channel<Net> net, selected_call<Topology, Storage, T, state, report> call,
                                      sparse_stream<T, Index> mine, Op op) const& {
    const network_model model = pin ? *pin : net.net().node().network();
    const owners_choice chosen =
        choose<T, Index, Op>(model, net.size(), mine.dimension(), call.bounds.k, storage::streams_of(call.store));
    call.report = {};
    call.report.chosen = chosen;
    owners_report& last = call.report;
    const balanced_owners balanced{.tau = tau};
    const pruned_owners pruned{.tau = tau};
    const auto by = [&](std::string_view schedule, const auto& owners, const auto& owners_call) {
      return owners.reduce(net.with_algorithm(schedule), owners_call, std::move(mine), op);
    };
    const auto start = [&] {
      if constexpr (detail::is_monotone<T, Op>) {
        pruned_owners::report& prunes = call.report;
        if (chosen == owners_choice::pruned) return by(pruned.name, pruned, call.with(call.store, prunes));
      }
      if (chosen == owners_choice::encoded)
        return by("balanced_owners, encoded", balanced, call.with(call.store, last));
      return by(balanced.name, balanced, call.with(storage::with_coordinates(call.store), last));
    };
    auto running = start(); // one co_await: each adds to the compile time of every program
    co_return co_await std::move(running);
  }
};

} // namespace spar::inline v0_1
