// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes a sparse stream of entries in any order, such as the gradient of an embedding or an assembled matrix.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/op.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/sort_entries.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <type_traits>

namespace spar::inline v0_1 {

namespace detail {

/// Throws `invalid_argument` unless all `indices` are at least 0 and below n.
template <class Int>
void check_unsorted_indices(std::span<const Int> indices, std::uint64_t n) {
  using Index = std::make_unsigned_t<Int>;
  Index largest = 0; // that of a negative index is above n
  for (const Int i : indices) largest = std::max(largest, static_cast<Index>(i));
  if (indices.empty() || largest < n) return;
  std::size_t bad = 0;
  while (static_cast<Index>(indices[bad]) < n) ++bad;
  raise<invalid_argument>({"index ", indices[bad], " at entry ", bad, " is not an index of a vector of dimension ", n,
                           "; expected at least 0 and less than the dimension"});
}

/// Fills `to` with the entries `(index_of(e), value_of(e))` for e < count, whose indices ascend or repeat, and reduces
/// the values of each index in the order of e.
template <class Index, class T, class IndexOf, class ValueOf, class Op>
void fold_repeated(std::size_t count, IndexOf index_of, ValueOf value_of, const Op& op, sparse_stream<T, Index>& to) {
  if (count == 0) return;
  Index* const indices = to.indices().data();
  T* const values = to.values().data();
  std::size_t last = 0;
  indices[0] = index_of(0);
  values[0] = value_of(0);
  for (std::size_t e = 1; e < count; ++e) {
    const Index index = index_of(e);
    const T& value = value_of(e);
    const bool repeats = index == indices[last];
    if constexpr (sizeof(T) <= sizeof(std::size_t)) { // without a branch, which would often be mispredicted
      const T sum = op(values[last], value);
      last += static_cast<std::size_t>(!repeats);
      values[last] = repeats ? sum : value;
    } else if (repeats) {
      values[last] = op(values[last], value);
    } else {
      values[++last] = value;
    }
    indices[last] = index;
  }
  to.shrink(last + 1);
}

} // namespace detail

/// Returns the sparse stream of dimension n whose entries are `(indices[e], values[e])`, in any order and with repeated
/// indices: the gradient of an embedding, the contributions to an assembled matrix, or events by bin. The values of an
/// index are reduced by `op` in the order in which they are given, starting with the first; `op` may also be called
/// with values of different indices, and this result is dropped. The view of the stream is what a collective takes,
/// such as `allreduce(net, stream.view())`.
///
/// `indices` is a range of integers of 32 or 64 bits, signed or not; `values` has as many elements. The memory comes
/// from `memory`, such as the pool `net.memory()` of a communicator `net`. Takes time in proportion to the number of
/// entries and to log n, and less if the indices already ascend. Throws `invalid_argument` if the lengths differ, if an
/// index is negative or at least n, or if an unsigned integer of the width of the indices cannot represent n - 1.
template <class Indices, class Values, class Op = sum>
auto coalesce(std::pmr::memory_resource& memory, std::uint64_t n, const Indices& indices, const Values& values,
              Op op = {}) {
  const std::span given(indices);
  const std::span v(values);
  using Int = std::remove_const_t<typename decltype(given)::element_type>;
  using T = std::remove_const_t<typename decltype(v)::element_type>;
  static_assert(std::is_integral_v<Int>, "the indices must be integers of 32 or 64 bits");
  using Index = std::make_unsigned_t<Int>;
  if constexpr (detail::expect_index<Index>() && detail::expect_element<T>()) {
    static_assert(reduction<Op, T>, "coalesce needs an operation on its values: see spar::reduction");
    if (given.size() != v.size())
      raise<invalid_argument>({"there are ", given.size(), " indices, but ", v.size(), " values"});
    detail::check_dimension<Index>(n);
    detail::check_unsorted_indices<Int>(given, n);
    const auto index_of = [&](std::size_t e) { return static_cast<Index>(given[e]); };
    const auto value_of = [&](std::size_t e) -> const T& { return v[e]; };
    auto to = sparse_stream<T, Index>::sparse(memory, n, v.size());
    if (detail::ascends(given)) {
      detail::fold_repeated<Index, T>(v.size(), index_of, value_of, op, to);
      return to;
    }
    const auto bits = static_cast<unsigned>(std::bit_width(n - 1));
    if constexpr (sizeof(T) <= sizeof(std::size_t)) {
      const auto sorted = kernel::sort_entries<Index, T>(v.size(), bits, index_of, value_of, memory);
      detail::fold_repeated<Index, T>(
          v.size(), [&](std::size_t e) { return sorted.data()[e].index; },
          [&](std::size_t e) -> const T& { return sorted.data()[e].payload; }, op, to);
    } else { // a long value is moved once, so its position is sorted
      const auto sorted =
          kernel::sort_entries<Index, std::size_t>(v.size(), bits, index_of, [](std::size_t e) { return e; }, memory);
      detail::fold_repeated<Index, T>(
          v.size(), [&](std::size_t e) { return sorted.data()[e].index; },
          [&](std::size_t e) -> const T& { return v[sorted.data()[e].payload]; }, op, to);
    }
    return to;
  }
}

} // namespace spar::inline v0_1
