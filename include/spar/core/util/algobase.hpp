// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// std::min, max, copy, fill, fill_n, swap, equal and lower_bound, and heaps, without the rest of <algorithm>, whose
// ranges take each program about a tenth of a second to compile; and the little else of it that is needed.
#pragma once

#if __has_include(<bits/stl_algobase.h>)
#include <bits/stl_algobase.h>
#include <bits/stl_heap.h>
#else
#include <algorithm>
#endif

namespace spar::detail {

/// Whether each element is at least as large as the one before.
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

/// The first of the elements whose `key(element)` is the least; the end of an empty range.
template <class Range, class Key>
auto least_of(Range& range, Key key) {
  auto least = range.begin();
  for (auto at = range.begin(); at != range.end(); ++at) {
    if (key(*at) < key(*least)) least = at;
  }
  return least;
}

} // namespace spar::detail
