// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Includes std::min, max, copy, fill, fill_n, swap, equal, lower_bound and the heap functions, but (with libstdc++) not
// the rest of <algorithm>, whose range algorithms add about 0.1 s to the compile time of each program. Also defines
// small algorithms that the standard library lacks or has only in <algorithm>.
#pragma once

#include <spar/core/compiler.hpp>

#if __has_include(<bits/stl_algobase.h>)
#include <bits/stl_algobase.h>
#else
#include <algorithm>
#endif

namespace spar::detail {

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

} // namespace spar::detail
