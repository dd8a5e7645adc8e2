// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Algorithms from the texts of the C interface.
#pragma once

#include "communicator.hpp"

#include <spar/system/any/results-inl.hpp>
#include <spar/system/any/systems.hpp>
#include <spar/topology/hosts.hpp>

#include <memory>

namespace spar::inline v0_1::c {

/// The plans for the tree of the hosts of `on`, which are made when a composition first needs them.
struct tree_of_ranks final : object {
  explicit tree_of_ranks(const communicator& on)
      : plans(detail::shared<detail::shared_plans>::first(new detail::shared_plans(tree_of_hosts(on.hosts())))) {}
  detail::shared<detail::shared_plans> plans;
};

/// The algorithm of the composition that `text` names, or the default of C if `text` is NULL.
template <class T, class Index>
const detail::allreduce_object<T, Index>* algorithm_of(communicator& on, const char* text) {
  return detail::allreduce_with<T, Index>(text == nullptr ? "sparcml" : text, [&] {
    if (on.plans == nullptr) on.plans = std::make_shared<tree_of_ranks>(on);
    return static_cast<const tree_of_ranks&>(*on.plans).plans;
  });
}

} // namespace spar::inline v0_1::c
