// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An allreduce of any composition over any transport, which is compiled once, in the library.
#pragma once

#include <spar/system/any/operation.hpp>
#include <spar/system/any/results.hpp>
#include <spar/transport/any_transport.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

template <class T, class Index>
class allreduce_object;

} // namespace detail

/// An allreduce of values of T, and of streams with indices of type Index, whose algorithm is chosen when the program
/// runs. Objects are copied by reference to the algorithm, which never changes. The compiled library has these classes
/// for float, double, std::int32_t, std::int64_t and half, with indices of 32 and 64 bits. All calls have the bits, the
/// messages and the errors of `spar::allreduce` with the same composition.
template <class T, class Index = std::uint32_t>
class any_allreduce {
 public:
  /// Uses the composition that `text` names, such as "sparcml" (docs/guide/compiled.md). A composition over a tree
  /// needs `hosts`, the number of the host of each rank, and is then the one over `tree_of_hosts(hosts)`. Throws
  /// `invalid_argument`, with the position and the choices there, if `text` is malformed, or if the library does not
  /// contain the composition for values of T.
  explicit any_allreduce(std::string_view text = "sparcml", std::span<const rank_t> hosts = {});
  /// Uses `algorithm`, a composition or a part of one. Needs `<spar/any_compose.hpp>`.
  template <class Algorithm>
    requires requires { Algorithm::name; }
  explicit any_allreduce(const Algorithm& algorithm);
  any_allreduce(const any_allreduce& other) noexcept;            ///< refers to the same algorithm
  any_allreduce& operator=(const any_allreduce& other) noexcept; ///< refers to the same algorithm
  ~any_allreduce();

  /// Reduces the `values` of all ranks in place. After an error, they are unspecified. Throws `invalid_argument` before
  /// anything is sent if an option of the algorithm is invalid for these values, or if the algorithm reduces no dense
  /// values or not by `op`. May throw the \ref call_errors, as the other forms may.
  void operator()(any_transport& net, std::span<T> values, any_operation op = {}) const;
  /// Leaves `input` unchanged and writes the result to `output`. Throws `invalid_argument` also if the lengths differ.
  /// May throw the \ref call_errors.
  void operator()(any_transport& net, std::span<const T> input, std::span<T> output, any_operation op = {}) const;
  /// Reduces the streams of all ranks, vectors of dimension `n` with the `values` at these `indices`, and returns the
  /// sum. Throws `invalid_argument` before anything is sent also if the indices do not ascend or are not below `n`, or
  /// if there is not one for each value. May throw the \ref call_errors.
  any_sum<T, Index> operator()(any_transport& net, std::uint64_t n, std::span<const Index> indices,
                               std::span<const T> values, any_operation op = {}) const;

  /// Starts the call of `values` in place without waiting. The values must stay valid until the call has ended; so must
  /// the arguments of the other forms. Throws `invalid_argument` as the call without `start`; the handle throws the
  /// \ref call_errors.
  any_pending<void> start(any_transport& net, std::span<T> values, any_operation op = {}) const;
  /// Starts the call from `input` to `output`. Throws `invalid_argument` as the call without `start`; the handle throws
  /// the \ref call_errors.
  any_pending<void> start(any_transport& net, std::span<const T> input, std::span<T> output,
                          any_operation op = {}) const;
  /// Starts the call of streams. Throws `invalid_argument` as the call without `start`; the handle throws the \ref
  /// call_errors.
  any_pending<any_sum<T, Index>> start(any_transport& net, std::uint64_t n, std::span<const Index> indices,
                                       std::span<const T> values, any_operation op = {}) const;

 private:
  friend detail::any_results;
  explicit any_allreduce(const detail::allreduce_object<T, Index>* object) noexcept : object_(object) {}

  const detail::allreduce_object<T, Index>* object_;
};

} // namespace spar::inline v0_1
