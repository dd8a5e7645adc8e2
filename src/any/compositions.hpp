// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for one type of values, in parts that take about as long to compile.
#pragma once

#include <spar/system/any/systems-inl.hpp>

#include <cstdint>

/// Those that sum all values over a flat topology.
#define SPAR_SUMS_FOR(T, Index)                                                                                        \
  template const spar::detail::allreduce_object<T, Index>* spar::detail::sums_over_flat(                               \
      const spar::composition_text& of)
/// Those over a tree.
#define SPAR_TREES_FOR(T, Index)                                                                                       \
  template const spar::detail::allreduce_object<T, Index>* spar::detail::sums_over_tree(                               \
      const spar::composition_text& of, const spar::detail::shared_plans& plans);                                      \
  template spar::detail::feedback_object<T, Index>* spar::detail::feedback_over_tree(                                  \
      const spar::composition_text& of, bool reject_nan, const spar::detail::shared_plans& plans)
/// Those with a selector over a flat topology.
#define SPAR_SELECTS_FOR(T, Index)                                                                                     \
  template const spar::detail::allreduce_object<T, Index>* spar::detail::selects_over_flat(                            \
      const spar::composition_text& of);                                                                               \
  template spar::detail::feedback_object<T, Index>* spar::detail::feedback_over_flat(const spar::composition_text& of, \
                                                                                     bool reject_nan)
