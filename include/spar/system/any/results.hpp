// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The results and the handles of calls whose algorithm is chosen when the program runs.
#pragma once

#include <spar/core/statistics.hpp>
#include <spar/system/any/operation.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1 {

namespace detail {

struct any_results;

} // namespace detail

/// A sum of streams: sparse, or dense if that takes less memory. Owns its memory, which belongs to the pool of the rank
/// that made the call. Can be moved but not copied.
template <class T, class Index = std::uint32_t>
class any_sum {
 public:
  any_sum() noexcept; ///< a sparse sum of dimension 0
  /// Takes over the values of `other`, which is unspecified afterwards.
  any_sum(any_sum&& other) noexcept;
  any_sum& operator=(any_sum&& other) noexcept; ///< exchanges the values
  ~any_sum();

  /// The dimension n of the vector.
  [[nodiscard]] std::uint64_t dimension() const noexcept;
  /// Whether `values()` contains all n values; otherwise, `indices()` contains the index of each of the `values()`.
  [[nodiscard]] bool is_dense() const noexcept;
  /// The indices of a sparse sum, in ascending order; empty for a dense one.
  [[nodiscard]] std::span<const Index> indices() const& noexcept;
  /// The values.
  [[nodiscard]] std::span<const T> values() const& noexcept;
  /// Writes all n values to `out`, with the neutral element of `op`, the operation of the call, at each index without
  /// an entry. Throws `invalid_argument` if `out` does not have length n.
  void to_dense(std::span<T> out, any_operation op = {}) const;

 private:
  friend detail::any_results;
  alignas(void*) std::byte stream_[80];
};

/// The sum of the selected entries of all ranks, and what this rank contributed to it.
template <class T, class Index = std::uint32_t>
struct any_selected_sum {
  any_sum<T, Index> sum;         ///< the reduced entries, equal on all ranks
  any_sum<T, Index> contributed; ///< the entries that this rank contributed (see `selected_sum`)
};

/// The handle of a non-blocking call with a result of the type Result: `void`, an any_sum or an any_selected_sum.
/// Borrowed arguments, and the transport, must outlive the handle, whose destructor waits for the call.
template <class Result>
class [[nodiscard]] any_pending {
 public:
  /// Takes over the call of `other`, which can then only be destroyed.
  any_pending(any_pending&& other) noexcept;
  any_pending& operator=(any_pending&&) = delete;
  ~any_pending();

  /// Makes progress without blocking, and returns whether the call has ended (see `pending_call::done`).
  [[nodiscard]] bool done();
  /// Waits at most `seconds`, and returns whether the call has ended (see `pending_call::wait_for`). Throws
  /// `invalid_argument` if `seconds` is negative or NaN.
  [[nodiscard]] bool wait_for(double seconds);
  /// Waits until the call has ended, and returns its result, at most once. Throws the error of the call: see the \ref
  /// call_errors.
  Result wait();
  /// Cancels the call if it has not ended, and so aborts the communicator (see `pending_call::cancel`).
  void cancel();
  /// Messages, bytes and seconds of this call, complete once the call has ended.
  [[nodiscard]] const spar::statistics& statistics() const;

 private:
  friend detail::any_results;
  any_pending() noexcept = default;
  alignas(void*) std::byte call_[64];
};

} // namespace spar::inline v0_1
