// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The topology of a network in which all ranks are alike.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/topology/ownership.hpp>

#include <cstdint>
#include <string_view>

namespace spar {

/// The default of the slot. A topology has
/// - `order()`: the order in which a schedule that knows no topology numbers the ranks;
/// - `due(n, P)`: how the entries of n indices should be shared by their owners;
/// - `validate(n, P)`: throws `invalid_argument` where it is for other ranks, or for another n.
struct flat {
  static constexpr slot fills = slot::topology;
  static constexpr std::string_view name = "flat";

  static constexpr void validate(std::uint64_t, rank_t) noexcept {}
  template <class F>
  void options(F&&) const noexcept {}
  [[nodiscard]] static constexpr rank_order order() noexcept { return {}; }
  [[nodiscard]] static uniform_ownership due(std::uint64_t n, rank_t ranks) noexcept { return {n, ranks}; }
};

/// A topology that says what owners of indices share.
template <class Topology>
concept topology_with_owners = requires(const Topology& over, std::uint64_t n, rank_t ranks) { over.due(n, ranks); };

/// One whose owners get entries straight from all ranks, one block each, in the topology's order: any without a plan of
/// which ranks merge entries on their way.
template <class Topology>
concept straight_topology =
    topology_with_owners<Topology> && !requires(const Topology& over, std::uint64_t n) { over.plan(n); };

/// The verdict of a schedule with owners on a topology without `due()`.
using needs_owners =
    because<"this schedule shares indices among owners, and the topology does not say how: take flat or on_tree">;

} // namespace spar
