// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From a text to the object of an any_allreduce or an any_feedback: the compositions that the compiled library
// contains.
#pragma once

#include <spar/collective/tree/tree_plans.hpp>
#include <spar/core/error.hpp>
#include <spar/system/any/allreduce_object.hpp>
#include <spar/system/any/feedback_object.hpp>
#include <spar/system/text/composition_text.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

namespace spar::inline v0_1::detail {

/// The plans for a tree, to which compositions refer.
struct shared_plans : shared_object {
  explicit shared_plans(tree topology) : plans(std::move(topology)) {}
  tree_plans plans;
};
/// A composition, and the plans for its tree, which are null if it needs none.
struct any_text {
  composition_text of;
  shared<shared_plans> plans;
};
/// Reads `text`. Throws `invalid_argument` if the text is malformed, or if it needs a tree and `hosts` is empty.
any_text read_any_text(std::string_view text, std::span<const rank_t> hosts);

// Each of these functions, with its compositions, is compiled in its own file of the library.
template <class T, class Index>
const allreduce_object<T, Index>* sums_over_flat(const composition_text& of);
template <class T, class Index>
const allreduce_object<T, Index>* selects_over_flat(const composition_text& of);
template <class T, class Index>
const allreduce_object<T, Index>* sums_over_tree(const composition_text& of, const shared_plans& plans);
template <class T, class Index>
feedback_object<T, Index>* feedback_over_flat(const composition_text& of, bool reject_nan);
template <class T, class Index>
feedback_object<T, Index>* feedback_over_tree(const composition_text& of, bool reject_nan, const shared_plans& plans);

template <class T, class Index>
const allreduce_object<T, Index>* allreduce_from(std::string_view text, std::span<const rank_t> hosts) {
  const auto [of, plans] = read_any_text(text, hosts);
  const bool selects = std::holds_alternative<selector::named_selector>(of.select);
  if (plans.get() == nullptr) return selects ? selects_over_flat<T, Index>(of) : sums_over_flat<T, Index>(of);
  return sums_over_tree<T, Index>(of, *plans.get());
}
template <class T, class Index>
feedback_object<T, Index>* feedback_from(std::string_view text, std::span<const rank_t> hosts, bool reject_nan) {
  const auto [of, plans] = read_any_text(text, hosts);
  if (!std::holds_alternative<selector::named_selector>(of.select))
    raise<invalid_argument>({"'", text,
                             "' has no selector that keeps the largest values; error feedback needs one, "
                             "such as ok_topk:0.01 or select=exact_topk:0.01"});
  return plans.get() == nullptr ? feedback_over_flat<T, Index>(of, reject_nan)
                                : feedback_over_tree<T, Index>(of, reject_nan, *plans.get());
}

} // namespace spar::inline v0_1::detail
