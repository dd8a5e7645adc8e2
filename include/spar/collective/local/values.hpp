// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The work of a rank on the dense values of a call: by kernels of the processor on host memory or, over a transport
// `values_on_device`, by kernels of the device, which the functions put into a stream and do not await.
#pragma once

#include <spar/core/coo_span.hpp>
#include <spar/core/op.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/storage/kernel/dense.hpp>

#include <cstddef>
#include <span>

namespace spar::local {

/// Computes `inout[e] = op(inout[e], right[e])` for all e.
template <transport Net, element T, reduction<T> Op>
void reduce(channel<Net> net, std::span<T> inout, const T* right, Op op) {
  if constexpr (values_on_device<Net>) {
    if (net.is_on_device()) return net.net().values().reduce(inout, right, op);
  }
  kernel::reduce(inout.data(), right, inout.size(), op);
}

/// Computes `inout[e] = op(left[e], inout[e])` for all e.
template <transport Net, element T, reduction<T> Op>
void reduce_left(channel<Net> net, std::span<T> inout, const T* left, Op op) {
  if constexpr (values_on_device<Net>) {
    if (net.is_on_device()) return net.net().values().reduce_left(inout, left, op);
  }
  kernel::reduce_left(inout.data(), left, inout.size(), op);
}

/// Copies `from`, for example the values of a message, to `to`.
template <transport Net>
void copy(channel<Net> net, std::byte* to, std::span<const std::byte> from) {
  if constexpr (values_on_device<Net>) {
    if (net.is_on_device()) return net.net().values().copy(to, from);
  }
  kernel::detail::copy(to, from.data(), from.size());
}

/// Copies values.
template <transport Net, element T>
void copy(channel<Net> net, T* to, std::span<const T> from) {
  local::copy(net, reinterpret_cast<std::byte*>(to), std::as_bytes(from));
}

/// Sets all values of `x` to `value`.
template <transport Net, element T>
void fill(channel<Net> net, std::span<T> x, T value) {
  if constexpr (values_on_device<Net>)
    net.net().values().fill(x, value);
  else
    kernel::detail::fill(x.data(), x.size(), value);
}

/// Replaces each value of `x` by `op.finish(value, P)`.
template <transport Net, element T, class Op>
void finish(channel<Net> net, std::span<T> x, Op op) {
  if constexpr (values_on_device<Net>) {
    net.net().values().finish(x, op, net.size());
  } else {
    for (T& value : x) value = op.finish(value, net.size());
  }
}

} // namespace spar::local
