// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// std::min, max, copy, fill, fill_n, swap, equal, lower_bound and the heap functions without the rest of <algorithm>,
// whose ranges add about a tenth of a second to the compile time of each program; also a few algorithms that spar
// needs.
#pragma once

#if __has_include(<bits/stl_algobase.h>)
#include <bits/stl_algobase.h>
#include <bits/stl_heap.h>
#else
#include <algorithm>
#endif

namespace spar::detail {

/// Whether the range is sorted in ascending order; equal neighbours are allowed.
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

/// Iterator to the first element with the smallest `key(element)`; the end of an empty range.
template <class Range, class Key>
auto least_of(Range& range, Key key) {
  auto least = range.begin();
  for (auto at = range.begin(); at != range.end(); ++at) {
    if (key(*at) < key(*least)) least = at;
  }
  return least;
}

} // namespace spar::detail
