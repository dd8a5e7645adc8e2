// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the options in which two descriptions of a policy differ, so that the error message of a `mismatch` contains
// only the options that differ.
#pragma once

#include <spar/core/util/bounded_text.hpp>

#include <array>
#include <cstddef>
#include <string_view>

namespace spar::inline v0_1::detail {

/// Compares the descriptions of a policy that `describe` has written on two ranks, and reduces each description to the
/// options that differ, for example `ring with select.k=15 and by.tau=64`. Keeps the whole descriptions if the policies
/// have different names or different sets of options, if the descriptions are equal, or if a description was truncated.
class option_difference {
 public:
  option_difference(const char* theirs, const char* own) {
    of_values_ = compare(theirs, own);
    if (of_values_) return;
    theirs_.shrink(0), own_.shrink(0);
    theirs_.add(theirs), own_.add(own);
  }

  /// Whether the descriptions differ only in the values of options.
  [[nodiscard]] bool of_values() const noexcept { return of_values_; }
  [[nodiscard]] const char* theirs() const noexcept { return theirs_.c_str(); }
  [[nodiscard]] const char* own() const noexcept { return own_.c_str(); }

 private:
  /// The option that `compare` is reading at one depth of nested parentheses.
  struct option {
    const char* name = nullptr;        // start of the name, which ends at a `=`
    const char* their_value = nullptr; // start of the value on the other rank; null until the `=` has been read
    const char* own_value = nullptr;   // start of the value on this rank; null until the `=` has been read
    std::size_t their_size = 0;        // characters in `theirs_` when `compare` reached the value
    std::size_t own_size = 0;          // characters in `own_` when `compare` reached the value
  };
  static constexpr std::size_t max_depth = 8;

  /// Reads two descriptions of the form `name(first=1, second=2)rest` side by side. Where the values of an option
  /// differ, adds the option to `theirs_` and `own_`, and continues after the value. Returns true if the descriptions
  /// differ, but only in the values of options.
  [[gnu::cold]] bool compare(const char* theirs, const char* own) {
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
  static const char* end_of(const char* value) noexcept {
    for (int depth = 0; *value != '\0'; ++value) {
      if (depth == 0 && (*value == ',' || *value == ')')) break;
      depth += static_cast<int>(*value == '(') - static_cast<int>(*value == ')');
    }
    return value;
  }
  [[gnu::cold]] void write(bounded_text& to, const std::array<option, max_depth>& path, std::size_t depth,
                           const char* value, const char* end) const {
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

  std::string_view policy_;
  bounded_text theirs_;
  bounded_text own_;
  bool of_values_ = false;
};

} // namespace spar::inline v0_1::detail
