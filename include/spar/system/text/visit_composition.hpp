// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the parts of a text to a composition, whose type is known when the program is compiled.
#pragma once

#include <spar/system/text/composition_text.hpp>

#include <type_traits>
#include <utility>
#include <variant>

namespace spar::inline v0_1 {

/// Calls `f` with the composition of the parts `of` over the topology `over`, which must be that of the text. Returns
/// what `f` returns, which has the same type for all compositions. `f` is instantiated for each composition of the
/// parts in the variants of composition_text.
template <class Topology, class F>
auto visit_composition_over(const composition_text& of, const Topology& over, F&& f) {
  using result = std::invoke_result_t<F&, const composition<selector::everything, storage::coo, Topology, cheapest>&>;
  const auto call = [&]<class Selector, class Storage, class Schedule>(const Selector& select, const Storage& store,
                                                                       const Schedule& by) -> result {
    using reason = verdict_of<Selector, Storage, Topology, Schedule>;
    if constexpr (composes<reason>)
      return f(detail::composition_of(select, store, over, by));
    else
      of.refuse(reason::sentence);
  };
  return std::visit(call, of.select, of.store, of.by);
}

/// Calls `f` with the composition of the parts `of`, as `visit_composition_over` does. Over a tree, the composition
/// refers to `plans`, which must outlive its last call. Throws `invalid_argument` if the text needs a tree and `plans`
/// is null, or if its topology is the plan of one length.
template <class F>
auto visit_composition(const composition_text& of, const tree_plans* plans, F&& f) {
  if (of.over == topology_text::flat) return visit_composition_over(of, flat{}, f);
  if (of.over != topology_text::tree)
    raise<invalid_argument>(
        {"'", std::string_view(of.text), "' has a plan for vectors of one length; expected the topology flat or tree"});
  if (plans == nullptr)
    raise<invalid_argument>({"'", std::string_view(of.text),
                             "' needs the tree of the network, which this call has not; expected the topology flat"});
  return visit_composition_over(of, on_tree(*plans), f);
}

} // namespace spar::inline v0_1
