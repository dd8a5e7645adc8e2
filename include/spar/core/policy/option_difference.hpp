// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the options in which two descriptions of a policy differ, so that the error of ranks that disagree names only
// these.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/core/util/bounded_text.hpp>

#include <cstddef>
#include <string_view>
#include <utility>

namespace spar::detail {

/// The parts of a text `name(first=1, second=2)rest`, as `describe` writes it.
struct description_parts {
  std::string_view name;
  std::string_view options;
  std::string_view rest;
};
/// If the text has no options, or was cut off inside them, the whole text counts as the name.
[[gnu::cold]] inline description_parts split_description(std::string_view text) {
  const std::size_t open = text.find('(');
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    depth += static_cast<int>(text[i] == '(') - static_cast<int>(text[i] == ')');
    if (depth == 0) return {text.substr(0, open), text.substr(open + 1, i - open - 1), text.substr(i + 1)};
  }
  return {text, {}, {}};
}
/// Removes the first `name=value` from a list of options, and returns it.
[[gnu::cold]] inline std::string_view take_option(std::string_view& options) {
  int depth = 0;
  std::size_t end = 0;
  for (; end < options.size() && (depth > 0 || options[end] != ','); ++end) {
    depth += static_cast<int>(options[end] == '(') - static_cast<int>(options[end] == ')');
  }
  const std::string_view first = options.substr(0, end);
  options.remove_prefix(std::min(end + 2, options.size()));
  return first;
}
[[gnu::cold]] inline bool same_option_names(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const std::string_view first = take_option(a);
    const std::size_t equals = first.find('=');
    if (equals == first.npos || !take_option(b).starts_with(first.substr(0, equals + 1))) return false;
  }
  return a.empty() && b.empty();
}

/// Reduces the descriptions of a policy on two ranks, as `describe` writes them, to the options that differ, like `ring
/// with select.k=15 and by.tau=64`. Keeps the whole texts if the policies have different names or different sets of
/// options, if the texts are equal, or if one text was cut off.
class option_difference {
 public:
  option_difference(std::string_view theirs, std::string_view own) { add(theirs, own); }

  /// Whether the descriptions differ only in the values of options.
  [[nodiscard]] bool of_values() const noexcept { return of_values_; }
  [[nodiscard]] const char* theirs() const noexcept { return theirs_.c_str(); }
  [[nodiscard]] const char* own() const noexcept { return own_.c_str(); }

 private:
  [[gnu::cold]] void add(std::string_view theirs, std::string_view own) {
    description_parts a = split_description(theirs), b = split_description(own);
    const bool alike = a.name == b.name && a.rest == b.rest && same_option_names(a.options, b.options);
    if (!alike || a.options.empty() || theirs == own) {
      write(theirs_, theirs), write(own_, own);
      first_ = false;
      return;
    }
    if (!std::exchange(of_values_, true)) theirs_.add(a.name), own_.add(a.name);
    while (!a.options.empty()) {
      const std::string_view its = take_option(a.options), ours = take_option(b.options);
      if (its == ours) continue;
      const std::size_t outer = path_.size(), equals = its.find('=');
      path_.add(outer == 0 ? " " : ".");
      path_.add(its.substr(0, equals));
      add(its.substr(equals + 1), ours.substr(equals + 1));
      path_.shrink(outer);
    }
  }
  [[gnu::cold]] void write(bounded_text& to, std::string_view value) const {
    if (of_values_) {
      to.add(first_ ? " with" : " and");
      to.add(path_.view());
      to.add("=");
    }
    to.add(value);
  }

  bounded_text path_; // path of an option, like ` select.k`, with a blank in front
  bounded_text theirs_;
  bounded_text own_;
  bool of_values_ = false;
  bool first_ = true;
};

} // namespace spar::detail
