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
/// Reads `text`. Throws `invalid_argument` if the text is malformed, or if it needs a plan for vectors of one length.
composition_text read_any_text(std::string_view text);
/// The plans for the tree of `hosts`, which `text` needs. Throws `invalid_argument` if `hosts` is empty.
shared<shared_plans> plans_for(std::string_view text, std::span<const rank_t> hosts);

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

/// The object of the composition that `text` names. If it is over a tree, `plans()` returns the `shared<shared_plans>`.
template <class T, class Index, class Plans>
const allreduce_object<T, Index>* allreduce_with(std::string_view text, const Plans& plans) {
  const composition_text of = read_any_text(text);
  if (of.over == topology_text::tree) return sums_over_tree<T, Index>(of, *plans().get());
  return std::holds_alternative<selector::named_selector>(of.select) ? selects_over_flat<T, Index>(of)
                                                                     : sums_over_flat<T, Index>(of);
}
template <class T, class Index>
const allreduce_object<T, Index>* allreduce_from(std::string_view text, std::span<const rank_t> hosts) {
  return allreduce_with<T, Index>(text, [&] { return plans_for(text, hosts); });
}
template <class T, class Index>
feedback_object<T, Index>* feedback_from(std::string_view text, std::span<const rank_t> hosts, bool reject_nan) {
  const composition_text of = read_any_text(text);
  if (!std::holds_alternative<selector::named_selector>(of.select))
    raise<invalid_argument>({"'", text,
                             "' has no selector that keeps the largest values; error feedback needs one, "
                             "such as ok_topk:0.01 or select=exact_topk:0.01"});
  return of.over == topology_text::tree ? feedback_over_tree<T, Index>(of, reject_nan, *plans_for(text, hosts).get())
                                        : feedback_over_flat<T, Index>(of, reject_nan);
}

} // namespace spar::inline v0_1::detail
