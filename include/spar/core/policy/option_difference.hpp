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
  option_difference(const char* theirs, const char* own);

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
  [[gnu::cold]] bool compare(const char* theirs, const char* own);
  static const char* end_of(const char* value) noexcept;
  [[gnu::cold]] void write(bounded_text& to, const std::array<option, max_depth>& path, std::size_t depth,
                           const char* value, const char* end) const;

  std::string_view policy_;
  bounded_text theirs_;
  bounded_text own_;
  bool of_values_ = false;
};

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/core/policy/option_difference-inl.hpp>
#endif
