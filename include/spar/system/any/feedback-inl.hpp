// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of any_feedback.
#pragma once

#include <spar/collective/prepare.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/system/any/feedback.hpp>
#include <spar/system/any/feedback_object.hpp>
#include <spar/system/any/results-inl.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace spar::inline v0_1 {

namespace detail {

template <class T, class Index>
signature prepare_feedback(any_port& net, feedback_object<T, Index>& object, std::span<const T> x, any_operation op) {
  return or_abort(net, [&] { return object.prepare(net, x, op); });
}

} // namespace detail

template <class T, class Index>
any_feedback<T, Index>::any_feedback(std::string_view text, std::span<const rank_t> hosts, bool reject_nan)
    : object_(detail::feedback_from<T, Index>(text, hosts, reject_nan)) {}
template <class T, class Index>
any_feedback<T, Index>::~any_feedback() {
  if (object_ != nullptr) object_->release();
}

template <class T, class Index>
void any_feedback<T, Index>::operator()(any_transport& net, std::span<T> values, any_operation op) {
  const signature agreed = detail::prepare_feedback<T, Index>(net.port(), *object_, values, op);
  run_collective(net.port(), agreed, detail::feedback_call<T, Index>(*object_), values, op);
}
template <class T, class Index>
any_selected_sum<T, Index> any_feedback<T, Index>::reduce(any_transport& net, std::span<const T> values,
                                                          any_operation op) {
  const signature agreed = detail::prepare_feedback<T, Index>(net.port(), *object_, values, op);
  return detail::any_results::convert(
      run_collective(net.port(), agreed, detail::feedback_call<T, Index>(*object_), values, op));
}
template <class T, class Index>
any_pending<void> any_feedback<T, Index>::start(any_transport& net, std::span<T> values, any_operation op) {
  const signature agreed = detail::prepare_feedback<T, Index>(net.port(), *object_, values, op);
  return detail::any_results::pending<void>(
      start_collective(net.port(), agreed, detail::feedback_call<T, Index>(*object_), values, op));
}
template <class T, class Index>
any_pending<any_selected_sum<T, Index>>
any_feedback<T, Index>::start_reduce(any_transport& net, std::span<const T> values, any_operation op) {
  const signature agreed = detail::prepare_feedback<T, Index>(net.port(), *object_, values, op);
  return detail::any_results::pending<any_selected_sum<T, Index>>(
      start_collective(net.port(), agreed, detail::feedback_call<T, Index>(*object_), values, op));
}

template <class T, class Index>
std::span<const T> any_feedback<T, Index>::residual() const noexcept {
  return object_->residual();
}
template <class T, class Index>
void any_feedback<T, Index>::set_residual(std::span<const T> values) {
  object_->set_residual(values);
}
template <class T, class Index>
std::uint64_t any_feedback<T, Index>::selected() const noexcept {
  return object_->selected();
}
template <class T, class Index>
any_bytes any_feedback<T, Index>::save() const {
  const std::vector<std::byte> saved = object_->save();
  auto* const bytes = new std::byte[saved.size()];
  std::copy(saved.begin(), saved.end(), bytes);
  return any_bytes(bytes, saved.size());
}
template <class T, class Index>
void any_feedback<T, Index>::load(std::span<const std::byte> saved) {
  object_->load(saved);
}
template <class T, class Index>
void any_feedback<T, Index>::take_over(std::span<const std::byte> saved) {
  object_->take_over(saved);
}

} // namespace spar::inline v0_1
