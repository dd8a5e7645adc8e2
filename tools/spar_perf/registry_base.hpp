// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What registries of systems share: the workload, and plans for the tree.
#pragma once

#include "options.hpp"

#include <spar/collective/tree/tree_plans.hpp>
#include <spar/topology/tree.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spar::perf {

/// The base class of a registry for values of type T and indices of type Index.
template <class T, class Index>
class registry_base {
 public:
  using value_type = T;
  using index_type = Index;

  registry_base(const options& o, double density, const spar::tree& topology)
      : options_(o), density_(density), topology_(topology) {}

  /// The number of values to plan for: 0 if `--systems` does not name the system, because plans may be large.
  [[nodiscard, gnu::cold]] std::uint64_t planned(const std::string& name) const {
    const auto asks = [&](const std::string& system) { return system == name || system.ends_with("+" + name); };
    const auto& asked = options_.systems;
    return std::any_of(asked.begin(), asked.end(), asks) ? options_.count : 0;
  }
  /// Stores a plan that algorithms refer to, for as long as the registry or the returned pointer exists.
  template <class Plan>
  std::shared_ptr<const Plan> keep(Plan plan) {
    auto kept = std::make_shared<const Plan>(std::move(plan));
    kept_.push_back(kept);
    return kept;
  }
  /// Plans for the tree, or for a single rank if `--systems` names no system that needs plans.
  [[nodiscard, gnu::cold]] std::shared_ptr<const spar::tree_plans> keep_plans() {
    const std::uint64_t asked = planned("tree_dense") + planned("tree_sparcml") + planned("tree_ok_topk");
    auto kept = std::make_shared<const spar::tree_plans>(asked > 0 ? topology_ : spar::tree::flat(1));
    kept_.push_back(kept);
    return kept;
  }
  /// Bytes of a dense vector.
  [[nodiscard]] double bytes() const noexcept { return static_cast<double>(options_.count) * sizeof(T); }

  [[nodiscard]] const spar::tree& topology() const noexcept { return topology_; }
  /// The number of entries of each rank at the density.
  [[nodiscard]] std::uint64_t k() const { return entries_of(options_, density_); }
  [[nodiscard]] const options& given() const noexcept { return options_; }
  [[nodiscard]] double density() const noexcept { return density_; }

 private:
  options options_;
  double density_;
  spar::tree topology_;
  std::vector<std::shared_ptr<const void>> kept_;
};

} // namespace spar::perf
