// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes std::min, max, copy, fill, fill_n, swap and lower_bound, which only <algorithm> has by the standard. Where
// the library has a private header of these functions (libstdc++), includes that header in place of <algorithm>, whose
// range algorithms would add 1.5 to 2.2 % to what the compiler does for a program with one call (docs/decisions/
// 0005-compile-time.md). Also defines small algorithms that the standard library lacks or has only in <algorithm>.
#pragma once

#include <spar/core/compiler.hpp>

#if __has_include(<bits/stl_algobase.h>)
#include <bits/stl_algobase.h>
#else
#include <algorithm>
#endif

namespace spar::inline v0_1::detail {

/// Whether `range` is sorted in ascending order; neighbours may be equal.
template <class Range>
bool ascends(const Range& range) {
  const auto end = range.end();
  auto before = range.begin();
  if (before == end) return true;
  for (auto at = before; ++at != end; before = at) {
    if (*at < *before) return false;
  }
  return true;
}

/// Returns an iterator to the first element of `range` for which `key(element)` is smallest, or `range.end()` if the
/// range is empty.
template <class Range, class Key>
auto least_of(Range& range, Key key) {
  auto least = range.begin();
  for (auto at = range.begin(); at != range.end(); ++at) {
    if (key(*at) < key(*least)) least = at;
  }
  return least;
}

} // namespace spar::inline v0_1::detail
