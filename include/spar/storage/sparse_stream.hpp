// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sparse streams: vectors stored as entries or as dense values (SparCML, section 5.1). `stream_view` is a view, and
// `sparse_stream` owns its memory.
#pragma once

#include <spar/core/coo_span.hpp>
#include <spar/core/error.hpp>
#include <spar/core/lasting.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/memory/space.hpp>
#include <spar/core/op.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/dense.hpp>
#include <spar/storage/kernel/slice.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <new>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

/// Returns delta for n indices: a stream with more than delta entries, each a T and an Index, takes more bytes than n
/// values of type T (SparCML, section 5.1). A sum that may have more than delta entries turns dense.
template <element T, index_type Index>
constexpr std::uint64_t dense_threshold(std::uint64_t n) noexcept {
  constexpr std::uint64_t value = sizeof(T);
  constexpr std::uint64_t entry = sizeof(T) + sizeof(Index);
  return n / entry * value + n % entry * value / entry; // floor(n * value / entry) without overflow
}

/// A view of a vector of dimension n, or of a part of a vector. A sparse view has `count()` entries (index, value) with
/// ascending indices; a dense view has the values of a contiguous range of indices. The view does not own its memory,
/// which must outlive the view. With the space `cuda`, the arrays are in device memory, and the functions that read
/// them do not exist. With the space `host`, the arrays are in the memory of the call's workspace (see
/// `channel::work`): in host memory, or, inside of a call of an `on_device`, in device memory.
template <element T, index_type Index = std::uint32_t, memory_space Space = host>
class stream_view {
 public:
  using value_type = T;           ///< the type of the values
  using index_value_type = Index; ///< the type of the indices
  using space = Space;            ///< where the memory is: `host` or `cuda`

  stream_view() = default;
  /// A view of the memory of `other` whose type names another space.
  template <memory_space Other>
  explicit stream_view(const stream_view<T, Index, Other>& other) noexcept
      : stream_view(other.is_dense() ? dense(other.dimension(), other.first(), other.values())
                                     : sparse(other.dimension(), other.indices(), other.values())) {}

  /// Creates a sparse view without checking the entries; `validate` checks them.
  static stream_view sparse(std::uint64_t n, std::span<const Index> indices, std::span<const T> values) noexcept {
    stream_view v;
    v.n_ = n;
    v.indices_ = indices;
    v.values_ = values;
    return v;
  }
  /// Creates a dense view of the values at the indices `first`, `first` + 1, and so on.
  static stream_view dense(std::uint64_t n, std::uint64_t first, std::span<const T> values) noexcept {
    stream_view v;
    v.n_ = n;
    v.first_ = first;
    v.values_ = values;
    v.dense_ = true;
    return v;
  }

  /// The dimension n of the vector.
  [[nodiscard]] std::uint64_t dimension() const noexcept { return n_; }
  /// The number of entries of a sparse stream, or the number of values of a dense stream.
  [[nodiscard]] std::uint64_t count() const noexcept { return values_.size(); }
  /// Whether this is a dense view.
  [[nodiscard]] bool is_dense() const noexcept { return dense_; }
  /// The indices of a sparse stream; empty for a dense stream.
  [[nodiscard]] std::span<const Index> indices() const noexcept { return indices_; }
  /// The values of the entries, or of the range of a dense view.
  [[nodiscard]] std::span<const T> values() const noexcept { return values_; }
  /// The index of the first value of a dense stream.
  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  /// The entries of a sparse view.
  [[nodiscard]] coo_span<T, Index> entries() const noexcept { return {indices_, values_}; }

  /// Returns a view of the entries with indices in [begin, end), without copying.
  [[nodiscard, gnu::noinline]] stream_view slice(std::uint64_t begin, std::uint64_t end) const noexcept
    requires std::same_as<Space, host>
  {
    if (dense_) {
      const std::uint64_t last = first_ + values_.size();
      begin = std::min(std::max(begin, first_), last);
      end = std::min(std::max(end, begin), last);
      return dense(n_, begin, values_.subspan(begin - first_, end - begin));
    }
    const auto part = kernel::slice(entries(), begin, end);
    return sparse(n_, part.indices, part.values);
  }

  /// Returns a view of the entries from entry `first` to the entry before entry `last`, of a sparse stream.
  [[nodiscard]] stream_view entries_from(std::size_t first, std::size_t last) const noexcept {
    return sparse(n_, indices_.subspan(first, last - first), values_.subspan(first, last - first));
  }

  /// Calls `f(index, value)` for each entry, in ascending order of the indices.
  template <class F>
    requires std::same_as<Space, host>
  void for_each(F&& f) const {
    if (dense_) {
      for (std::size_t i = 0; i < values_.size(); ++i) f(static_cast<Index>(first_ + i), values_[i]);
    } else {
      for (std::size_t e = 0; e < values_.size(); ++e) f(indices_[e], values_[e]);
    }
  }

  /// Writes all n values to `out`, with the neutral element of `op` at every index without an entry: `op` is the
  /// operation that made the stream, or will reduce it, such as `sum{}`. So the values do not depend on whether the
  /// stream is sparse or has turned dense. Throws `invalid_argument` if `out` does not have length n.
  template <reduction<T> Op>
  void to_dense(std::span<T> out, const Op& op) const
    requires std::same_as<Space, host>
  {
    check_length(out.size());
    if (dense_ && values_.size() == n_) {
      kernel::detail::copy(out.data(), values_.data(), n_);
      return;
    }
    const T absent = op.template neutral<T>();
    if (!dense_) return kernel::write_dense(entries(), absent, out.data(), out.size());
    kernel::detail::fill(out.data(), n_, absent);
    kernel::detail::copy(out.data() + first_, values_.data(), values_.size());
  }

  /// Reduces the vector into `out`: `out[i] = op(out[i], v)` for each entry (i, v), without a pass over the values at
  /// other indices. `op` is the operation that made the stream, such as `sum{}`. Throws `invalid_argument` if `out`
  /// does not have length n.
  template <reduction<T> Op>
  void reduce_into(std::span<T> out, const Op& op) const
    requires std::same_as<Space, host>
  {
    check_length(out.size());
    if (dense_)
      kernel::reduce(out.data() + first_, values_.data(), values_.size(), op);
    else
      kernel::scatter(entries(), 0, out.data(), op);
  }

 private:
  void check_length(std::size_t length) const {
    if (length != n_)
      raise<invalid_argument>({"the stream has dimension ", n_, ", but the output has length ", length});
  }

  std::uint64_t n_ = 0;
  std::uint64_t first_ = 0;
  std::span<const Index> indices_;
  std::span<const T> values_;
  bool dense_ = false;
};

/// Returns a sparse view of entries in the caller's memory, with the arrays `indices` and `values`. The indices must be
/// strictly ascending and below n (`coalesce` makes a stream of others); `sparse_view` does not check them, but
/// collectives do. Rejects a temporary vector or
/// array, which would be gone when the view is used.
template <class Indices, class Values>
auto sparse_view(std::uint64_t n, Indices&& indices, Values&& values) {
  if constexpr (detail::expect_lasting<Indices, Values>()) {
    const std::span i(indices);
    const std::span v(values);
    using Index = std::remove_const_t<typename decltype(i)::element_type>;
    using T = std::remove_const_t<typename decltype(v)::element_type>;
    if constexpr (detail::expect_index<Index>() && detail::expect_element<T>())
      return stream_view<T, Index>::sparse(n, i, v);
  }
}

/// Returns a dense view of all values of a vector in the caller's memory. Rejects a temporary vector or array.
template <index_type Index = std::uint32_t, class Values>
auto dense_view(Values&& values) {
  if constexpr (detail::expect_lasting<Values>()) {
    const std::span v(values);
    using T = std::remove_const_t<typename decltype(v)::element_type>;
    if constexpr (detail::expect_element<T>()) return stream_view<T, Index>::dense(v.size(), 0, v);
  }
}

namespace detail {

/// Throws `invalid_argument` unless the type Index can represent every index below n.
template <index_type Index>
void check_dimension(std::uint64_t n) {
  if (n > 0 && n - 1 > std::numeric_limits<Index>::max()) {
    raise<invalid_argument>(
        {"the dimension ", n, " is too large for ", 8 * sizeof(Index), "-bit indices; use 64-bit indices"});
  }
}
/// The part of `validate` that does not read the indices.
template <element T, index_type Index>
void validate_counts(const stream_view<T, Index>& v) {
  const std::uint64_t n = v.dimension();
  check_dimension<Index>(n);
  if (v.is_dense()) {
    if (v.first() != 0 || v.count() != n) {
      raise<invalid_argument>({"a dense stream of dimension ", n, " has ", v.count(), " values from index ", v.first(),
                               " on; expected ", n, " values from index 0 on"});
    }
    return;
  }
  const auto indices = v.indices();
  if (indices.size() != v.values().size()) {
    raise<invalid_argument>({"a sparse stream has ", indices.size(), " indices but ", v.values().size(), " values"});
  }
  if (indices.size() > n) {
    raise<invalid_argument>({"a sparse stream has ", indices.size(), " entries, but its dimension is only ", n});
  }
}
/// The part of `validate` that reads the indices.
template <index_type Index>
void validate_indices(std::span<const Index> indices, std::uint64_t n) {
  const std::size_t bad = kernel::first_bad_index(indices, n);
  if (bad == indices.size()) return;
  const auto wrong = [&](const char* what, std::uint64_t value, const char* rest) {
    raise<invalid_argument>({"a sparse stream has index ", indices[bad], " at entry ", bad, what, value, rest});
  };
  if (indices[bad] >= n) wrong("; expected indices below the dimension ", n, "");
  if (indices[bad] == indices[bad - 1])
    wrong(" and index ", indices[bad - 1], " at the entry before: indices must be unique, as coalesce makes them");
  wrong(", but index ", indices[bad - 1], " at the entry before: indices must ascend, as coalesce makes them");
}

} // namespace detail

/// Throws `invalid_argument` unless `v` is a valid whole vector: the type Index can represent every index below n; a
/// sparse `v` has as many values as indices, and the indices are strictly ascending and below n; a dense `v` has n
/// values from index 0 on.
template <element T, index_type Index>
void validate(const stream_view<T, Index>& v) {
  detail::validate_counts(v);
  detail::validate_indices(v.indices(), v.dimension());
}

/// A vector, or a part of a vector, that owns its memory. Can be moved but not copied. A `view()` of the stream is
/// valid until the stream is moved or destroyed. With the space `cuda`, its memory comes from a resource of device
/// memory, such as `device_pool`, and the functions that read or write the entries do not exist. With the space `host`,
/// its memory is that of the call's workspace, as for a `stream_view`.
template <element T, index_type Index = std::uint32_t, memory_space Space = host>
class sparse_stream {
 public:
  using value_type = T;           ///< the type of the values
  using index_value_type = Index; ///< the type of the indices
  using space = Space;            ///< where the memory is: `host` or `cuda`

  sparse_stream() = default;
  /// Takes over the memory of `other`, which is empty afterwards.
  [[gnu::noinline]] sparse_stream(sparse_stream&& other) noexcept { swap(other); }
  /// Exchanges the contents.
  [[gnu::noinline]] sparse_stream& operator=(sparse_stream&& other) noexcept {
    swap(other);
    return *this;
  }

  /// Takes over a stream whose type names another space than that of its memory.
  template <memory_space Other>
  explicit sparse_stream(sparse_stream<T, Index, Other>&& other) noexcept
      : n_(other.n_), first_(other.first_), storage_(std::move(other.storage_)),
        indices_(std::exchange(other.indices_, {})), values_(std::exchange(other.values_, {})), dense_(other.dense_) {}

  /// Creates a sparse stream with `capacity` uninitialised entries. The caller fills `indices()` and `values()`, and
  /// then calls `shrink` with the number of entries that it has written.
  [[gnu::noinline]] static sparse_stream sparse(std::pmr::memory_resource& memory, std::uint64_t n,
                                                std::size_t capacity) {
    if (capacity > detail::max_bytes / (sizeof(T) + sizeof(Index))) throw std::bad_alloc();
    sparse_stream s;
    s.n_ = n;
    // Allocates both arrays at once, so that a sparse stream takes a single allocation, like a dense stream.
    const std::size_t values_at = (capacity * sizeof(Index) + pool::alignment - 1) / pool::alignment * pool::alignment;
    s.storage_ = buffer<std::byte, Space>(memory, capacity == 0 ? 0 : values_at + capacity * sizeof(T));
    s.indices_ = {reinterpret_cast<Index*>(s.storage_.data()), capacity};
    s.values_ = {reinterpret_cast<T*>(s.storage_.data() + (capacity == 0 ? 0 : values_at)), capacity};
    return s;
  }
  /// Creates a dense stream with `count` uninitialised values, for the indices `first`, `first` + 1, and so on.
  [[gnu::noinline]] static sparse_stream dense(std::pmr::memory_resource& memory, std::uint64_t n, std::uint64_t first,
                                               std::size_t count) {
    if (count > detail::max_bytes / sizeof(T)) throw std::bad_alloc();
    sparse_stream s;
    s.n_ = n;
    s.first_ = first;
    s.storage_ = buffer<std::byte, Space>(memory, count * sizeof(T));
    s.values_ = {reinterpret_cast<T*>(s.storage_.data()), count};
    s.dense_ = true;
    return s;
  }
  /// Copies the view `v` to memory of `memory`. Throws std::bad_alloc if the memory is not available.
  [[gnu::noinline]] static sparse_stream copy(pool& memory, const stream_view<T, Index, Space>& v)
    requires std::same_as<Space, host>
  {
    sparse_stream s =
        v.is_dense() ? dense(memory, v.dimension(), v.first(), v.count()) : sparse(memory, v.dimension(), v.count());
    s.write(0, v);
    return s;
  }

  /// A view of this stream. A temporary stream has no view, indices or values, which would refer to memory that is
  /// gone: name the stream.
  [[nodiscard]] stream_view<T, Index, Space> view() const& noexcept {
    return dense_ ? stream_view<T, Index, Space>::dense(n_, first_, values_)
                  : stream_view<T, Index, Space>::sparse(n_, indices_, values_);
  }

  /// The dimension n of the vector.
  [[nodiscard]] std::uint64_t dimension() const noexcept { return n_; }
  /// The number of entries of a sparse stream, or the number of values of a dense stream.
  [[nodiscard]] std::uint64_t count() const noexcept { return values_.size(); }
  /// Whether this is a dense stream.
  [[nodiscard]] bool is_dense() const noexcept { return dense_; }
  /// The index of the first value of a dense stream.
  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  /// The indices of a sparse stream; empty for a dense stream.
  [[nodiscard]] std::span<const Index> indices() const& noexcept { return indices_; }
  /// The values of the entries, or of the range of a dense stream.
  [[nodiscard]] std::span<const T> values() const& noexcept { return values_; }
  /// The indices, which may be written.
  [[nodiscard]] std::span<Index> indices() & noexcept { return indices_; }
  /// The values, which may be written.
  [[nodiscard]] std::span<T> values() & noexcept { return values_; }
  /// \cond
  void view() const&& = delete;    // the view would refer to memory that is gone: name the stream
  void indices() const&& = delete; // the span would refer to memory that is gone: name the stream
  void values() const&& = delete;  // the span would refer to memory that is gone: name the stream
  /// \endcond

  /// Overwrites the entries `at`, `at` + 1, and so on of this stream with the entries of `v`. Both streams must be
  /// sparse, or both dense.
  void write(std::size_t at, const stream_view<T, Index, Space>& v) noexcept
    requires std::same_as<Space, host>
  {
    kernel::detail::copy(values_.data() + at, v.values().data(), v.values().size());
    if (!dense_) kernel::detail::copy(indices_.data() + at, v.indices().data(), v.indices().size());
  }
  /// Drops all entries after the first `count`.
  void shrink(std::size_t count) noexcept {
    if (!dense_) indices_ = indices_.first(count);
    values_ = values_.first(count);
  }
  /// Calls `f(index, value)` for each entry, as `stream_view::for_each` does.
  template <class F>
    requires std::same_as<Space, host>
  void for_each(F&& f) const {
    view().for_each(std::forward<F>(f));
  }
  /// Writes the vector to `out`, with the neutral element of `op` where there is no entry, as `stream_view::to_dense`
  /// does.
  template <reduction<T> Op>
  void to_dense(std::span<T> out, const Op& op) const
    requires std::same_as<Space, host>
  {
    view().to_dense(out, op);
  }
  /// Reduces the vector into `out`, as `stream_view::reduce_into` does.
  template <reduction<T> Op>
  void reduce_into(std::span<T> out, const Op& op) const
    requires std::same_as<Space, host>
  {
    view().reduce_into(out, op);
  }

 private:
  template <element U, index_type OtherIndex, memory_space Other>
  friend class sparse_stream;

  void swap(sparse_stream& other) noexcept {
    std::swap(n_, other.n_);
    std::swap(first_, other.first_);
    std::swap(storage_, other.storage_);
    std::swap(indices_, other.indices_);
    std::swap(values_, other.values_);
    std::swap(dense_, other.dense_);
  }

  std::uint64_t n_ = 0;
  std::uint64_t first_ = 0;
  buffer<std::byte, Space> storage_;
  std::span<Index> indices_; // refers to the memory of `storage_`
  std::span<T> values_;
  bool dense_ = false;
};

} // namespace spar::inline v0_1
