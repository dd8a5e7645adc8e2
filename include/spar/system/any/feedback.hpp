// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback around any composition over any transport, which is compiled once, in the library.
#pragma once

#include <spar/system/any/operation.hpp>
#include <spar/system/any/results.hpp>
#include <spar/transport/any_transport.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

template <class T, class Index>
class feedback_object;

} // namespace detail

/// Bytes that a function of the library has allocated.
class any_bytes {
 public:
  any_bytes() noexcept = default; ///< no bytes
  /// Takes over `size` bytes that `new std::byte[size]` has allocated.
  any_bytes(const std::byte* bytes, std::size_t size) noexcept : bytes_(bytes), size_(size) {}
  /// Takes over the bytes of `other`.
  any_bytes(any_bytes&& other) noexcept
      : bytes_(std::exchange(other.bytes_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  any_bytes& operator=(any_bytes&&) = delete;
  ~any_bytes() { delete[] bytes_; }

  /// The first byte.
  [[nodiscard]] const std::byte* data() const noexcept { return bytes_; }
  /// The number of bytes.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  const std::byte* bytes_ = nullptr;
  std::size_t size_ = 0;
};

/// Error feedback (see `error_feedback`) around a composition that is chosen when the program runs, for values of T and
/// entries with indices of type Index. The residual and the composition's state change only when a call succeeds. Each
/// object supports one call at a time, and must outlive it. The compiled library has these classes for float, double
/// and half, with indices of 32 and 64 bits. All calls have the bits, the messages and the errors of an
/// `error_feedback` with the same composition.
template <class T, class Index = std::uint32_t>
class any_feedback {
 public:
  /// Uses the composition that `text` names, such as "ok_topk:0.01" (docs/guide/compiled.md), with `hosts` as
  /// any_allreduce does. With `reject_nan`, calls throw `invalid_argument` if a value is NaN. Throws `invalid_argument`
  /// if `text` is malformed, or if the library does not contain the composition, with a selector, for values of T.
  explicit any_feedback(std::string_view text, std::span<const rank_t> hosts = {}, bool reject_nan = false);
  /// Uses the composition `algorithm`; `reject_nan` as above. Needs `<spar/any_compose.hpp>`.
  template <class Algorithm>
    requires requires { typename Algorithm::state; }
  explicit any_feedback(const Algorithm& algorithm, bool reject_nan = false);
  /// Takes over the residual and the state of `other`, which can then only be destroyed.
  any_feedback(any_feedback&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  any_feedback& operator=(any_feedback&&) = delete;
  ~any_feedback();

  /// Reduces in place: the `values` are those of this rank before the call and the sum after the call, with zeros where
  /// the sum has no entry. After an error, they are unspecified. `op` is `sum` or `average`. Throws `invalid_argument`
  /// as `error_feedback` does, and for another operation. May throw the \ref call_errors.
  void operator()(any_transport& net, std::span<T> values, any_operation op = {});
  /// Reduces out of place: leaves the `values` unchanged, and returns the sum and this rank's contribution. May throw
  /// the \ref call_errors.
  any_selected_sum<T, Index> reduce(any_transport& net, std::span<const T> values, any_operation op = {});
  /// Starts the call in place without waiting. The values and this object must stay valid until the call has ended. The
  /// handle throws the \ref call_errors.
  any_pending<void> start(any_transport& net, std::span<T> values, any_operation op = {});
  /// Starts the call out of place. The handle throws the \ref call_errors.
  any_pending<any_selected_sum<T, Index>> start_reduce(any_transport& net, std::span<const T> values,
                                                       any_operation op = {});

  /// The values that this rank has not sent yet. Empty before the first call.
  [[nodiscard]] std::span<const T> residual() const noexcept;
  /// Replaces the residual by `values` (see `feedback_core::set_residual`). Throws `invalid_argument` if a call has not
  /// ended.
  void set_residual(std::span<const T> values);
  /// The number of entries that the last call has selected on this rank.
  [[nodiscard]] std::uint64_t selected() const noexcept;

  /// Returns the residual and the state as bytes (see `feedback_core::save`). Throws `invalid_argument` if a call has
  /// not ended.
  [[nodiscard]] any_bytes save() const;
  /// Restores `saved`, which `save` returned, also that of an `error_feedback` with the same parts whose selector is
  /// `threshold_reuse` or a `named_selector`. Other selectors keep no state outside of a `named_selector`, so
  /// `take_over` restores all that their `error_feedback` has saved. Throws `invalid_argument`, and changes nothing, if
  /// `feedback_core::load` does.
  void load(std::span<const std::byte> saved);
  /// Adds the residual in `saved` to this rank's residual. Throws `invalid_argument` if `feedback_core::take_over`
  /// does.
  void take_over(std::span<const std::byte> saved);

 private:
  detail::feedback_object<T, Index>* object_; // null if another object has taken over
};

} // namespace spar::inline v0_1
