// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The flat topology, which assumes that all ranks are equally well connected.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/topology/ownership.hpp>

#include <cstdint>
#include <string_view>

namespace spar::inline v0_1 {

/// The default topology, which assumes that all ranks are equally well connected. Topologies have these members:
/// - `order()`: the order of the ranks (`rank_order`) for schedules that assume a flat network;
/// - `owners(n, P)`: divides n indices into blocks, one for each of the P ranks (`flat`) or one for each cell of the
///   tree's plan (`on_tree`, see `tree_cells`); `on_plan` lacks this member;
/// - `validate(n, P)`: throws `invalid_argument` unless the topology supports the dimension n and P ranks.
struct flat {
  static constexpr slot fills = slot::topology;
  static constexpr std::string_view name = "flat";

  static constexpr void validate(std::uint64_t, rank_t) noexcept {}
  void options(auto&&) const noexcept {}
  /// Each rank keeps its own number.
  [[nodiscard]] static constexpr rank_order order() noexcept { return {}; }
  /// Blocks of n indices of nearly equal size, one for each of the `ranks` ranks.
  [[nodiscard]] static uniform_ownership owners(std::uint64_t n, rank_t ranks) noexcept { return {n, ranks}; }
};

/// A topology that divides indices among owners: `owners(n, P)` returns the blocks of indices. The concept rejects
/// `on_plan`, whose plan is for a single value of n.
template <class Topology>
concept topology_with_owners = requires(const Topology& over, std::uint64_t n, rank_t ranks) { over.owners(n, ranks); };

/// A topology on which each rank sends its entries directly to their owners; every rank owns one block of indices, in
/// the order of the topology. The concept rejects a topology with a plan (`plan(n)`), because with a plan, other ranks
/// merge entries on the way to the owner.
template <class Topology>
concept straight_topology =
    topology_with_owners<Topology> && !requires(const Topology& over, std::uint64_t n) { over.plan(n); };

/// The compiler prints this sentence if a schedule that needs owners is combined with a topology without `owners()`.
using needs_owners =
    because<"this schedule divides indices among owners, but the topology does not define owners: use flat or a tree">;

} // namespace spar::inline v0_1
