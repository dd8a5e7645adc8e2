// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of results and handles.
#pragma once

#include <spar/collective/selected_sum.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/system/any/allreduce_object.hpp>
#include <spar/system/any/results.hpp>
#include <spar/transport/any.hpp>

#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// The type of the result of a call whose any_pending has the result `Result`.
template <class Result>
struct result_within : std::type_identity<void> {};
template <class T, class Index>
struct result_within<any_sum<T, Index>> : std::type_identity<sparse_stream<T, Index>> {};
template <class T, class Index>
struct result_within<any_selected_sum<T, Index>> : std::type_identity<selected_sum<T, Index>> {};

/// The objects in the memory of results and handles.
struct any_results {
  template <class T, class Index>
  static sparse_stream<T, Index>& stream(any_sum<T, Index>& sum) noexcept {
    return *std::launder(reinterpret_cast<sparse_stream<T, Index>*>(sum.stream_));
  }
  template <class T, class Index>
  static const sparse_stream<T, Index>& stream(const any_sum<T, Index>& sum) noexcept {
    return *std::launder(reinterpret_cast<const sparse_stream<T, Index>*>(sum.stream_));
  }
  template <class T, class Index>
  static void construct(any_sum<T, Index>& sum, sparse_stream<T, Index> from) noexcept {
    static_assert(sizeof(from) <= sizeof(sum.stream_) && alignof(sparse_stream<T, Index>) <= alignof(void*));
    ::new (static_cast<void*>(sum.stream_)) sparse_stream<T, Index>(std::move(from));
  }

  template <class Result>
  using call_of = pending_call<any_port, typename result_within<Result>::type>;
  template <class Result>
  static call_of<Result>& call(any_pending<Result>& pending) noexcept {
    return *std::launder(reinterpret_cast<call_of<Result>*>(pending.call_));
  }
  template <class Result>
  static const call_of<Result>& call(const any_pending<Result>& pending) noexcept {
    return *std::launder(reinterpret_cast<const call_of<Result>*>(pending.call_));
  }
  template <class Result>
  static void construct(any_pending<Result>& pending, call_of<Result>&& from) noexcept {
    static_assert(sizeof(from) <= sizeof(pending.call_) && alignof(call_of<Result>) <= alignof(void*));
    ::new (static_cast<void*>(pending.call_)) call_of<Result>(std::move(from));
  }
  template <class Result>
  static any_pending<Result> pending(call_of<Result>&& from) noexcept {
    any_pending<Result> all;
    construct(all, std::move(from));
    return all;
  }

  /// The allreduce of the new object `object`.
  template <class T, class Index>
  static any_allreduce<T, Index> allreduce(const allreduce_object<T, Index>* object) noexcept {
    return any_allreduce<T, Index>(object);
  }

  static void convert() noexcept {}
  template <class T, class Index>
  static any_sum<T, Index> convert(sparse_stream<T, Index> from) noexcept {
    any_sum<T, Index> sum;
    stream(sum) = std::move(from);
    return sum;
  }
  template <class T, class Index>
  static any_selected_sum<T, Index> convert(selected_sum<T, Index> from) noexcept {
    return {convert(std::move(from.sum)), convert(std::move(from.contributed))};
  }
};

} // namespace detail

template <class T, class Index>
any_sum<T, Index>::any_sum() noexcept {
  detail::any_results::construct(*this, sparse_stream<T, Index>());
}
template <class T, class Index>
any_sum<T, Index>::any_sum(any_sum&& other) noexcept {
  detail::any_results::construct(*this, std::move(detail::any_results::stream(other)));
}
template <class T, class Index>
any_sum<T, Index>& any_sum<T, Index>::operator=(any_sum&& other) noexcept {
  detail::any_results::stream(*this) = std::move(detail::any_results::stream(other));
  return *this;
}
template <class T, class Index>
any_sum<T, Index>::~any_sum() {
  detail::any_results::stream(*this).~sparse_stream<T, Index>();
}
template <class T, class Index>
std::uint64_t any_sum<T, Index>::dimension() const noexcept {
  return detail::any_results::stream(*this).dimension();
}
template <class T, class Index>
bool any_sum<T, Index>::is_dense() const noexcept {
  return detail::any_results::stream(*this).is_dense();
}
template <class T, class Index>
std::span<const Index> any_sum<T, Index>::indices() const& noexcept {
  return detail::any_results::stream(*this).indices();
}
template <class T, class Index>
std::span<const T> any_sum<T, Index>::values() const& noexcept {
  return detail::any_results::stream(*this).values();
}
template <class T, class Index>
void any_sum<T, Index>::to_dense(std::span<T> out, any_operation op) const {
  detail::any_results::stream(*this).to_dense(out, detail::chosen_operation{op});
}

template <class Result>
any_pending<Result>::any_pending(any_pending&& other) noexcept {
  detail::any_results::construct(*this, std::move(detail::any_results::call(other)));
}
template <class Result>
any_pending<Result>::~any_pending() {
  using call_type = detail::any_results::call_of<Result>;
  detail::any_results::call(*this).~call_type();
}
template <class Result>
bool any_pending<Result>::done() {
  return detail::any_results::call(*this).done();
}
template <class Result>
bool any_pending<Result>::wait_for(double seconds) {
  return detail::any_results::call(*this).wait_for(seconds);
}
template <class Result>
Result any_pending<Result>::wait() {
  if constexpr (std::is_void_v<Result>)
    detail::any_results::call(*this).wait();
  else
    return detail::any_results::convert(detail::any_results::call(*this).wait());
}
template <class Result>
void any_pending<Result>::cancel() {
  detail::any_results::call(*this).cancel();
}
template <class Result>
const spar::statistics& any_pending<Result>::statistics() const {
  return detail::any_results::call(*this).statistics();
}

} // namespace spar::inline v0_1
