// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of any_allreduce.
#pragma once

#include <spar/collective/prepare.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/arguments.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/system/any/allreduce.hpp>
#include <spar/system/any/allreduce_object.hpp>
#include <spar/system/any/results-inl.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1 {

namespace detail {

/// Checks a call of the object on dense values in place, and returns on what the ranks agree.
template <class T, class Index>
signature prepare_any(any_port& net, const allreduce_object<T, Index>& object, std::span<T> x, any_operation op) {
  return or_abort(net, [&] {
    check_arguments(net, x);
    return object.prepare_values(x.size(), net.size(), op);
  });
}
/// The same out of place. Copies the input to the output.
template <class T, class Index>
signature prepare_any(any_port& net, const allreduce_object<T, Index>& object, std::span<const T> in, std::span<T> out,
                      any_operation op) {
  return or_abort(net, [&] {
    check_arguments(net, in, out);
    check_lengths(in.size(), out.size());
    const signature agreed = object.prepare_values(out.size(), net.size(), op);
    std::copy(in.begin(), in.end(), out.begin());
    return agreed;
  });
}
/// The same for a stream.
template <class T, class Index>
signature prepare_any(any_port& net, const allreduce_object<T, Index>& object, const stream_view<T, Index>& mine,
                      any_operation op) {
  return or_abort(net, [&] {
    check_arguments(net, mine);
    return object.prepare_streams(mine.dimension(), net.size(), op);
  });
}

} // namespace detail

template <class T, class Index>
any_allreduce<T, Index>::any_allreduce(std::string_view text, std::span<const rank_t> hosts)
    : object_(detail::allreduce_from<T, Index>(text, hosts)) {}
template <class T, class Index>
any_allreduce<T, Index>::any_allreduce(const any_allreduce& other) noexcept : object_(other.object_) {
  object_->retain();
}
template <class T, class Index>
any_allreduce<T, Index>& any_allreduce<T, Index>::operator=(const any_allreduce& other) noexcept {
  other.object_->retain();
  object_->release();
  object_ = other.object_;
  return *this;
}
template <class T, class Index>
any_allreduce<T, Index>::~any_allreduce() {
  object_->release();
}

template <class T, class Index>
void any_allreduce<T, Index>::operator()(any_transport& net, std::span<T> values, any_operation op) const {
  const signature agreed = detail::prepare_any(net.port(), *object_, values, op);
  run_collective(net.port(), agreed, detail::object_call<T, Index>(*object_), values, op);
}
template <class T, class Index>
void any_allreduce<T, Index>::operator()(any_transport& net, std::span<const T> input, std::span<T> output,
                                         any_operation op) const {
  const signature agreed = detail::prepare_any(net.port(), *object_, input, output, op);
  run_collective(net.port(), agreed, detail::object_call<T, Index>(*object_), output, op);
}
template <class T, class Index>
any_sum<T, Index> any_allreduce<T, Index>::operator()(any_transport& net, std::uint64_t n,
                                                      std::span<const Index> indices, std::span<const T> values,
                                                      any_operation op) const {
  const auto mine = stream_view<T, Index>::sparse(n, indices, values);
  const signature agreed = detail::prepare_any(net.port(), *object_, mine, op);
  return detail::any_results::convert(
      run_collective(net.port(), agreed, detail::object_call<T, Index>(*object_), mine, op));
}

template <class T, class Index>
any_pending<void> any_allreduce<T, Index>::start(any_transport& net, std::span<T> values, any_operation op) const {
  const signature agreed = detail::prepare_any(net.port(), *object_, values, op);
  return detail::any_results::pending<void>(
      start_collective(net.port(), agreed, detail::object_call<T, Index>(*object_), values, op));
}
template <class T, class Index>
any_pending<void> any_allreduce<T, Index>::start(any_transport& net, std::span<const T> input, std::span<T> output,
                                                 any_operation op) const {
  const signature agreed = detail::prepare_any(net.port(), *object_, input, output, op);
  return detail::any_results::pending<void>(
      start_collective(net.port(), agreed, detail::object_call<T, Index>(*object_), output, op));
}
template <class T, class Index>
any_pending<any_sum<T, Index>> any_allreduce<T, Index>::start(any_transport& net, std::uint64_t n,
                                                              std::span<const Index> indices, std::span<const T> values,
                                                              any_operation op) const {
  const auto mine = stream_view<T, Index>::sparse(n, indices, values);
  const signature agreed = detail::prepare_any(net.port(), *object_, mine, op);
  return detail::any_results::pending<any_sum<T, Index>>(
      start_collective(net.port(), agreed, detail::object_call<T, Index>(*object_), mine, op));
}

} // namespace spar::inline v0_1
