// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The flat topology, which assumes that all ranks are equally well connected.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/topology/ownership.hpp>

#include <cstdint>
#include <string_view>

namespace spar {

/// The default topology. A topology has
/// - `order()`: the order in which a schedule that knows no topology numbers the ranks;
/// - `owners(n, P)`: how large a share of n indices each of the P owners should have;
/// - `validate(n, P)`: throws `invalid_argument` if the topology is for another dimension or number of ranks.
struct flat {
  static constexpr slot fills = slot::topology;
  static constexpr std::string_view name = "flat";

  static constexpr void validate(std::uint64_t, rank_t) noexcept {}
  template <class F>
  void options(F&&) const noexcept {}
  [[nodiscard]] static constexpr rank_order order() noexcept { return {}; }
  [[nodiscard]] static uniform_ownership owners(std::uint64_t n, rank_t ranks) noexcept { return {n, ranks}; }
};

/// A topology that defines the shares of owners. Rejects `on_plan`, whose plan is for one dimension only.
template <class Topology>
concept topology_with_owners = requires(const Topology& over, std::uint64_t n, rank_t ranks) { over.owners(n, ranks); };

/// A topology whose owners receive entries directly from all ranks, one block each, in the order of the topology.
/// Rejects a topology with a plan, where other ranks merge entries on the way to the owner.
template <class Topology>
concept straight_topology =
    topology_with_owners<Topology> && !requires(const Topology& over, std::uint64_t n) { over.plan(n); };

/// Why a schedule with owners rejects a topology without `owners()`.
using needs_owners =
    because<"this schedule divides indices among owners, but the topology does not define owners: use flat or on_tree">;

} // namespace spar
