// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reduction of streams, including the switch from entries to dense values when the entries might take more bytes than
// the dense values (SparCML, section 5.1, "efficient summation").
#pragma once

#include <spar/core/index_range.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/merge.hpp>
#include <spar/storage/kernel/merge_many.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

/// Reduces `part` into `values`, the dense values of `range`. The values of `part` are the right operands of `op`.
template <element T, index_type Index, reduction<T> Op>
void accumulate(const stream_view<T, Index>& part, index_range range, T* values, Op op) {
  if (part.is_dense())
    kernel::reduce(values + (part.first() - range.begin), part.values().data(), part.count(), op);
  else
    kernel::scatter(part.entries(), range.begin, values, op);
}

/// Reduces `parts` from left to right, and writes the dense values of `range` to `values`. There must be at least one
/// part, and all parts must lie in `range`.
template <element T, index_type Index, reduction<T> Op>
void reduce_dense(std::span<const stream_view<T, Index>> parts, index_range range, T* values, Op op) {
  // Reduces all parts over one window of 64 KiB before the next window, so that the window stays in the cache.
  constexpr std::uint64_t window = 65536 / sizeof(T);
  std::uint64_t entries = 0;
  for (const auto& part : parts) entries += part.count();
  // If all parts together have less than one entry per 16 indices, a single window covers the whole range.
  const std::uint64_t step = entries < range.size() / 16 ? range.size() : window;
  for (index_range w{range.begin, range.begin}; w.begin < range.end; w.begin = w.end) {
    w.end = std::min(range.end, w.begin + step);
    T* const out = values + (w.begin - range.begin);
    std::size_t next = 0;
    if (const auto first = parts[0].slice(w.begin, w.end); first.is_dense() && first.count() == w.size()) {
      kernel::detail::copy(out, first.values().data(), w.size());
      next = 1;
    } else {
      kernel::detail::fill(out, w.size(), op.template neutral<T>());
      if (!first.is_dense()) { // assigns entries: combining with the neutral element changes nothing
        kernel::scatter_assign(first.entries(), w.begin, out);
        next = 1;
      }
    }
    for (; next < parts.size(); ++next) accumulate(parts[next].slice(w.begin, w.end), w, out, op);
  }
}

/// Returns `op` applied to `left` and `right`, which both lie in `range`. The result is sparse if `left` and `right`
/// are sparse and have at most `limit` entries together; otherwise the result is dense over `range`.
template <element T, index_type Index, reduction<T> Op>
sparse_stream<T, Index> merge(const stream_view<T, Index>& left, const stream_view<T, Index>& right, index_range range,
                              std::uint64_t limit, Op op, pool& memory) {
  const std::uint64_t n = left.dimension();
  const std::uint64_t bound = left.count() + right.count();
  if (!left.is_dense() && !right.is_dense() && bound <= limit) {
    auto out = sparse_stream<T, Index>::sparse(memory, n, bound);
    out.shrink(kernel::merge(left.entries(), right.entries(), out.indices().data(), out.values().data(), op));
    return out;
  }
  auto out = sparse_stream<T, Index>::dense(memory, n, range.begin, range.size());
  const bool whole =
      left.is_dense() && right.is_dense() && left.count() == range.size() && right.count() == range.size();
  if (whole) {
    kernel::combine(out.values().data(), left.values().data(), right.values().data(), range.size(), op);
  } else {
    // `op` commutes, so a dense operand can come first. `reduce_dense` copies a dense first operand, which is cheaper
    // than filling the output with neutral elements and reducing the operand into the output.
    const stream_view<T, Index> parts[] = {right.is_dense() ? right : left, right.is_dense() ? left : right};
    reduce_dense(std::span<const stream_view<T, Index>>(parts), range, out.values().data(), op);
  }
  return out;
}

/// Reduces sparse `parts`, which lie in `range`, from left to right. Returns a sparse stream of dimension n.
template <element T, index_type Index, reduction<T> Op>
sparse_stream<T, Index> merge_many(std::span<const stream_view<T, Index>> parts, std::uint64_t n, index_range range,
                                   Op op, pool& memory) {
  fixed_vector<coo_span<T, Index>> entries(memory, parts.size());
  std::uint64_t bound = 0;
  for (const auto& part : parts) {
    entries.emplace_back(part.entries());
    bound += part.count();
  }
  auto out = sparse_stream<T, Index>::sparse(memory, n, std::min(bound, range.size()));
  out.shrink(kernel::merge_many(entries.span(), range.begin, range.end, out.indices().data(), out.values().data(), op,
                                memory));
  return out;
}

/// Returns the entries of `v` that differ from the neutral element of `op`, as a sparse stream. A NaN always differs.
template <element T, index_type Index, reduction<T> Op>
sparse_stream<T, Index> to_sparse(const stream_view<T, Index>& v, Op op, pool& memory) {
  const T neutral = op.template neutral<T>();
  auto out = sparse_stream<T, Index>::sparse(memory, v.dimension(), v.count());
  Index* index = out.indices().data();
  T* value = out.values().data();
  std::size_t kept = 0;
  v.for_each([&](Index i, T x) {
    index[kept] = i;
    value[kept] = x;
    kept += detail::differs(x, neutral) ? 1U : 0U;
  });
  out.shrink(kept);
  return out;
}

/// Returns the whole vector of `v` as a dense stream, with the neutral element of `op` at every index without an entry.
template <element T, index_type Index, reduction<T> Op>
sparse_stream<T, Index> to_dense(const stream_view<T, Index>& v, Op op, pool& memory) {
  auto out = sparse_stream<T, Index>::dense(memory, v.dimension(), 0, v.dimension());
  v.to_dense(out.values(), op);
  return out;
}

} // namespace spar::inline v0_1
