// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of option_difference.hpp that do not depend on the type of values.
#pragma once

#include <spar/core/policy/option_difference.hpp>

namespace spar::inline v0_1::detail {

SPAR_INLINE option_difference::option_difference(const char* theirs, const char* own) {
  of_values_ = compare(theirs, own);
  if (of_values_) return;
  theirs_.shrink(0), own_.shrink(0);
  theirs_.add(theirs), own_.add(own);
}

SPAR_INLINE bool option_difference::compare(const char* theirs, const char* own) {
  std::array<option, max_depth> path;
  std::size_t depth = 0;
  for (const char* const name = theirs;; ++theirs, ++own) {
    if (*theirs != *own) {
      // Finds the innermost option whose value contains the difference. If only one rank has a nested option, the
      // difference belongs to the value of the enclosing option.
      for (;; --depth) {
        if (depth == 0) return false;
        if (path[depth].own_value == nullptr) continue;
        theirs = end_of(path[depth].their_value), own = end_of(path[depth].own_value);
        if (*theirs == *own) break;
      }
      theirs_.shrink(path[depth].their_size), own_.shrink(path[depth].own_size);
      write(theirs_, path, depth, path[depth].their_value, theirs);
      write(own_, path, depth, path[depth].own_value, own);
    }
    if (*theirs == '\0') return depth == 0 && !theirs_.empty();
    if (*theirs == '(') {
      if (depth == 0 && theirs_.empty()) policy_ = {name, static_cast<std::size_t>(theirs - name)};
      if (++depth == max_depth) return false;
      path[depth] = {.name = theirs + 1};
    } else if (depth > 0 && *theirs == ')') {
      --depth;
    } else if (depth > 0 && *theirs == ',') {
      path[depth] = {.name = theirs + 2};
    } else if (depth > 0 && *theirs == '=' && path[depth].own_value == nullptr) {
      path[depth] = {path[depth].name, theirs + 1, own + 1, theirs_.size(), own_.size()};
    }
  }
}

SPAR_INLINE const char* option_difference::end_of(const char* value) noexcept {
  for (int depth = 0; *value != '\0'; ++value) {
    if (depth == 0 && (*value == ',' || *value == ')')) break;
    depth += static_cast<int>(*value == '(') - static_cast<int>(*value == ')');
  }
  return value;
}

SPAR_INLINE void option_difference::write(bounded_text& to, const std::array<option, max_depth>& path,
                                          std::size_t depth, const char* value, const char* end) const {
  if (to.empty())
    to.add(policy_), to.add(" with");
  else
    to.add(" and");
  for (std::size_t i = 1; i <= depth; ++i) {
    to.add(i == 1 ? " " : ".");
    to.add({path[i].name, static_cast<std::size_t>(path[i].their_value - 1 - path[i].name)});
  }
  to.add("=");
  to.add({value, static_cast<std::size_t>(end - value)});
}

} // namespace spar::inline v0_1::detail
