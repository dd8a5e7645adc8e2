// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Creates a composition from its parts, in any order.
#pragma once

#include <spar/collective/allreduce/cheapest.hpp>
#include <spar/collective/composition.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/selector/everything.hpp>
#include <spar/storage/storage.hpp>
#include <spar/topology/flat.hpp>

#include <type_traits>
#include <utility>

namespace spar {

using selector::everything;

namespace detail {

/// The part for a slot, or the slot's default.
template <slot Which, class Default>
constexpr Default part_or(const Default& otherwise) {
  return otherwise;
}
template <slot Which, class Default, class First, class... Rest>
constexpr auto part_or(const Default& otherwise, const First& first, const Rest&... rest) {
  if constexpr (First::fills == Which) {
    static_assert((... && (Rest::fills != Which)), "compose() was given two parts for one slot");
    return first;
  } else {
    return part_or<Which>(otherwise, rest...);
  }
}

// A function because clang++ before 17 does not deduce template arguments of aggregates.
template <class Selector, class Storage, class Topology, class Schedule>
constexpr composition<Selector, Storage, Topology, Schedule> composition_of(Selector select, Storage store,
                                                                            Topology over, Schedule by) {
  return {std::move(select), std::move(store), std::move(over), std::move(by)};
}

} // namespace detail

/// Returns the composition of these parts, at most one for each slot; the defaults of the others are `everything`,
/// `storage::coo`, `flat` and `cheapest`. Parts that have no meaning together do not compile, and the compiler prints
/// one sentence that gives the reason: docs/composing.md.
///
///     auto reduce = compose(selector::exact_topk{.density = 0.01}, storage::qsgd<4>{}, split_allgather{});
template <class... Parts>
constexpr auto compose(const Parts&... parts) {
  constexpr bool all_parts = (... && part<Parts>);
  static_assert(
      all_parts,
      "compose() takes selectors, storages, topologies and schedules: structs with a name and options(f) that "
      "say which slot they are for, as in `static constexpr spar::slot fills = spar::slot::selector;`");
  if constexpr (all_parts) {
    return detail::composition_of(detail::part_or<slot::selector>(everything{}, parts...),
                                  detail::part_or<slot::storage>(storage::coo{}, parts...),
                                  detail::part_or<slot::topology>(flat{}, parts...),
                                  detail::part_or<slot::schedule>(cheapest{}, parts...));
  }
}

namespace detail {

/// Converts what `allreduce` takes as an algorithm: a single part becomes a composition, an algorithm stays as it is.
template <class Algorithm>
constexpr auto as_algorithm(Algorithm algorithm) {
  if constexpr (part<Algorithm>)
    return compose(algorithm);
  else
    return algorithm;
}

} // namespace detail

} // namespace spar
