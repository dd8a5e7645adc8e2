// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions that the compiled library contains.
#pragma once

#include <spar/collective/tree/on_tree.hpp>
#include <spar/core/error.hpp>
#include <spar/runtime/signature.hpp>
#include <spar/system/any/allreduce_object.hpp>
#include <spar/system/any/feedback_object.hpp>
#include <spar/system/any/systems.hpp>
#include <spar/system/text/composition_text.hpp>
#include <spar/system/text/visit_composition.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <variant>

namespace spar::inline v0_1::detail {

template <class Storage>
inline constexpr bool codes_entries =
    std::same_as<Storage, storage::coded<>> || std::same_as<Storage, storage::coded<7>>;
/// The schedules of streams whose ranks send what a codec of entries shortens most.
template <class Schedule>
inline constexpr bool sends_entries =
    one_of<Schedule, cheapest, recursive_doubling, split_allgather<>, ssar_split, gather_and_merge>;
/// The schedules that keep the largest sums.
template <class Schedule>
inline constexpr bool keeps_largest = one_of<Schedule, balanced_owners, pruned_owners, cheapest_owners,
                                             gather_and_merge, split_allgather<>, tree_of_topk>;

/// Whether the compiled library contains a composition for values of T and indices of type Index. The whole product of
/// all parts would take some ten times as long to compile.
template <class T, class Index, class Selector, class Storage, class Topology, class Schedule>
constexpr bool in_library() {
  constexpr bool plain = std::same_as<Storage, storage::coo>;
  constexpr bool all = std::same_as<Selector, selector::everything>;
  constexpr bool whole = one_of<T, float, double> && sizeof(Index) == 4; // the types for which there are all codecs
  if constexpr (!all && !is_floating<T>)
    return false;
  else if constexpr (std::same_as<Selector, selector::nonzeros>)
    return plain && std::same_as<Topology, flat> && std::same_as<Schedule, cheapest>;
  else if constexpr (!stores_values<composition<Selector, Storage, Topology, Schedule>, T, Index>)
    return false;
  else if constexpr (std::same_as<Topology, on_tree>)
    return all ? (plain && one_of<Schedule, chains, cheapest, quantile_owners>) ||
                     (whole && std::same_as<Storage, storage::named_codec> && std::same_as<Schedule, chains>)
               : plain && std::same_as<Schedule, balanced_owners>;
  else if constexpr (plain)
    return all || keeps_largest<Schedule> || std::same_as<Schedule, cheapest>;
  else if constexpr (!whole)
    return false;
  else if constexpr (codes_entries<Storage>)
    return all ? sends_entries<Schedule> : keeps_largest<Schedule>;
  else if constexpr (std::same_as<Storage, storage::then<storage::coo, storage::named_codec>>)
    return one_of<Schedule, dsar_split, split_allgather<>> || (all && std::same_as<Schedule, cheapest>);
  else
    return all;
}

/// Throws `invalid_argument`: the library does not contain the composition.
template <class T, class Index>
[[noreturn, gnu::cold]] void refuse_composition(const composition_text& of) {
  raise<invalid_argument>({"the compiled library does not contain the composition of '", of.text,
                           "' for values of the type ", name_of(code_of<T>).c_str(), " and ", 8 * sizeof(Index),
                           "-bit indices; docs/guide/compiled.md lists what it contains, and a program in C++ "
                           "can compile the composition itself, by <spar/any_compose.hpp>"});
}

/// The object of the composition `of` over `over`, with the `Selector`, which may refer to `plans`: a feedback_object
/// if `Feedback` is true, which rejects NaN on request, otherwise an allreduce_object. Each combination of types is
/// compiled in its own file of the library.
template <class T, class Index, class Selector, bool Feedback, class Topology>
auto* object_of(const composition_text& of, const Topology& over, bool reject_nan, const shared_object* plans) {
  using result = std::conditional_t<Feedback, feedback_object<T, Index>, const allreduce_object<T, Index>>;
  const auto call = [&]<class Storage, class Schedule>(const Storage& store, const Schedule& by) -> result* {
    if constexpr (!composes<verdict_of<Selector, Storage, Topology, Schedule>>) {
      of.refuse(verdict_of<Selector, Storage, Topology, Schedule>::sentence);
    } else if constexpr (!in_library<T, Index, Selector, Storage, Topology, Schedule>()) {
      refuse_composition<T, Index>(of);
    } else {
      using whole = composition<Selector, Storage, Topology, Schedule>;
      const whole composed = composition_of(std::get<Selector>(of.select), store, over, by);
      constexpr bool sums_only = !std::same_as<Storage, storage::coo> || whole::selects_entries;
      if constexpr (Feedback)
        return new feedback_of<T, Index, whole>(composed, reject_nan, plans);
      else
        return new allreduce_of<T, Index, whole, sums_only>(composed, plans);
    }
  };
  return std::visit(call, of.store, of.by);
}

template <class T, class Index>
const allreduce_object<T, Index>* sums_over_flat(const composition_text& of) {
  return std::holds_alternative<selector::nonzeros>(of.select)
             ? object_of<T, Index, selector::nonzeros, false>(of, flat{}, false, nullptr)
             : object_of<T, Index, selector::everything, false>(of, flat{}, false, nullptr);
}
template <class T, class Index>
const allreduce_object<T, Index>* selects_over_flat(const composition_text& of) {
  return object_of<T, Index, selector::named_selector, false>(of, flat{}, false, nullptr);
}
template <class T, class Index>
const allreduce_object<T, Index>* sums_over_tree(const composition_text& of, const shared_plans& plans) {
  if (std::holds_alternative<selector::named_selector>(of.select))
    return object_of<T, Index, selector::named_selector, false>(of, on_tree(plans.plans), false, &plans);
  if (std::holds_alternative<selector::nonzeros>(of.select))
    return object_of<T, Index, selector::nonzeros, false>(of, on_tree(plans.plans), false, &plans);
  return object_of<T, Index, selector::everything, false>(of, on_tree(plans.plans), false, &plans);
}
template <class T, class Index>
feedback_object<T, Index>* feedback_over_flat(const composition_text& of, bool reject_nan) {
  return object_of<T, Index, selector::named_selector, true>(of, flat{}, reject_nan, nullptr);
}
template <class T, class Index>
feedback_object<T, Index>* feedback_over_tree(const composition_text& of, bool reject_nan, const shared_plans& plans) {
  return object_of<T, Index, selector::named_selector, true>(of, on_tree(plans.plans), reject_nan, &plans);
}

} // namespace spar::inline v0_1::detail
