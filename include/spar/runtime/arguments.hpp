// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Refuses a call with malformed streams, or with arguments in device memory, which the host cannot read, before
// anything is sent.
#pragma once

#include <spar/runtime/transport_concept.hpp>

#include <cstdint>

namespace spar::inline v0_1::detail {

/// Throws `invalid_argument` if the `count` elements at `data` are in memory that the host cannot read. `what` and
/// `number` name these elements: "values of span " and 2 for those of the second span among the arguments of a call.
using host_memory_check = void (*)(const void* data, std::uint64_t count, const char* what, int number);

/// The check of all calls on values in host memory. Null in a program that does not use CUDA: the first object of spar
/// that does sets it (see `home_device`), because only the CUDA runtime can tell where a pointer points.
inline constinit host_memory_check check_of_host_memory = nullptr; // read and written by atomic operations

/// Applies `refuse` to `x` if `x` is a span, a container or a stream: the span or stream with the next `number` among
/// the arguments of a call.
template <class X>
[[gnu::cold, gnu::noinline]] void check_argument(host_memory_check refuse, [[maybe_unused]] int& number, const X& x) {
  if constexpr (requires {
                  x.data();
                  x.size();
                }) {
    refuse(x.data(), x.size(), "values of span ", ++number);
  } else if constexpr (requires { x.data_handle(); }) {
    refuse(x.data_handle(), x.size(), "values of span ", ++number);
  } else if constexpr (requires {
                         x.indices();
                         x.values();
                       }) {
    refuse(x.indices().data(), x.indices().size(), "indices of stream ", ++number);
    refuse(x.values().data(), x.values().size(), "values of stream ", number);
  }
}

/// Throws `invalid_argument` if one of the arguments `args`, which belong in host memory, is elsewhere.
template <class... Args>
void check_host_memory(const Args&... args) {
  const host_memory_check refuse = __atomic_load_n(&check_of_host_memory, __ATOMIC_RELAXED);
  if (refuse == nullptr) return;
  [[maybe_unused]] int number = 0; // not used by a call without arguments in memory
  (check_argument(refuse, number, args), ...);
}

template <class X>
void check_stream(const X& x) {
  if constexpr (requires { validate(x); }) validate(x);
}

/// Throws `invalid_argument` if one of the arguments `args` of a call on values in host memory is elsewhere, or is a
/// malformed stream, or if the transport `net` belongs to a device that is not the current one. An `on_device` checks
/// arguments in device memory itself.
template <class Net, class... Args>
void check_arguments([[maybe_unused]] Net& net, [[maybe_unused]] const Args&... args) {
  if constexpr (!values_on_device<Net>) {
    if constexpr (device_bound_transport<Net>) net.check_device();
    check_host_memory(args...);
    (check_stream(args), ...);
  }
}

} // namespace spar::inline v0_1::detail
