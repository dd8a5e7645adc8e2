// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Creates a composition from a selector, a storage, a topology and a schedule, in any order. The composition of all
// defaults is SparCML.
#pragma once

#include <spar/collective/allreduce/cheapest.hpp>
#include <spar/collective/composition.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/selector/everything.hpp>
#include <spar/storage/storage.hpp>
#include <spar/topology/flat.hpp>

#include <utility>

namespace spar::inline v0_1 {

using selector::everything;

namespace detail {

/// Returns the part that fills the slot `Which`, or the slot's default `otherwise` if no part fills this slot.
template <slot Which, class Default>
constexpr Default part_or(const Default& otherwise) {
  return otherwise;
}
template <slot Which, class Default, class First, class... Rest>
constexpr auto part_or(const Default& otherwise, const First& first, const Rest&... rest) {
  if constexpr (First::fills == Which) {
    static_assert((... && (Rest::fills != Which)), "compose() was given two parts for one slot: pass at most one "
                                                   "selector, one storage, one topology and one schedule");
    return first;
  } else {
    return part_or<Which>(otherwise, rest...);
  }
}

// Constructs a composition in a function, because clang++ before version 17 does not deduce the template arguments of
// an aggregate.
template <class Selector, class Storage, class Topology, class Schedule>
constexpr composition<Selector, Storage, Topology, Schedule> composition_of(Selector select, Storage store,
                                                                            Topology over, Schedule by) {
  return {std::move(select), std::move(store), std::move(over), std::move(by)};
}

} // namespace detail

/// Returns the composition of `parts`, which may be in any order: at most one selector, storage, topology and schedule.
/// A part that is left out defaults to `everything`, `storage::coo`, `flat` or `cheapest`. Parts that do not fit
/// together do not compile, and the compiler prints one sentence with the reason (docs/guide/composing.md).
///
///     auto reduce = compose(selector::exact_topk{.density = 0.01}, storage::qsgd<4>{}, split_allgather{});
template <class... Parts>
constexpr auto compose(const Parts&... parts) {
  constexpr bool all_parts = (... && part<Parts>);
  static_assert(all_parts,
                "an argument of compose() is not a selector, a storage, a topology or a schedule: pass the parts of a "
                "composition, not the composition itself; a part of your own needs a name, options(f) and its slot, "
                "such as 'static constexpr spar::slot fills = spar::slot::selector;'");
  if constexpr (all_parts) {
    return detail::composition_of(detail::part_or<slot::selector>(everything{}, parts...),
                                  detail::part_or<slot::storage>(storage::coo{}, parts...),
                                  detail::part_or<slot::topology>(flat{}, parts...),
                                  detail::part_or<slot::schedule>(cheapest{}, parts...));
  }
}

/// SparCML: an allreduce of sparse streams that runs whichever of three algorithms is the cheapest according to the
/// model of the network (SparCML, sections 5.3 and 8.1). If `Storage` has two codecs, as in `then<storage::coo,
/// storage::qsgd<4>>`, the second codec encodes the second phase of DSAR, SparCML's dynamic sparse allreduce (SparCML,
/// section 6).
template <class Storage = storage::coo>
using basic_sparcml = composition<everything, Storage, flat, cheapest>;
/// SparCML without compression, the default algorithm of `allreduce`.
using sparcml = basic_sparcml<>;

namespace detail {

/// Converts the algorithm that a user passes to `allreduce`: a single part, such as `ring{}`, becomes a composition
/// with default parts; any other algorithm stays unchanged.
template <class Algorithm>
constexpr auto as_algorithm(Algorithm algorithm) {
  if constexpr (part<Algorithm>)
    return compose(algorithm);
  else
    return algorithm;
}

} // namespace detail

} // namespace spar::inline v0_1
