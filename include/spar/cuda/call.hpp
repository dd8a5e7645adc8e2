// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What calls on device memory share: they abort the communicator if they fail, and make progress while they wait.
#pragma once

#include <spar/cuda/device_span.hpp>
#include <spar/cuda/recycled.hpp>
#include <spar/runtime/communicator_rank.hpp>

#include <cstdint>
#include <exception>

#include <sched.h>

namespace spar::detail {

/// Returns `work()`. If it throws, first aborts the communicator, because other ranks may wait for this one.
template <communicates Net, class Work>
auto or_abort(Net& net, Work work) {
  try {
    return work();
  } catch (const std::exception& failure) {
    spar::abort(net, failure.what());
    throw;
  }
}

/// To be called before memory is allocated or freed, because CUDA may then wait for the device: if the transport of
/// `net` lets the device work on messages, waits for them. Otherwise CUDA might wait for messages of other ranks, which
/// may wait for this one.
template <communicates Net>
void end_transfers(Net& net) noexcept {
  if constexpr (requires { port_of(net).wait_until_idle(); }) port_of(net).wait_until_idle();
}

/// Waits until the work in `stream` that uses the buffer has ended. Meanwhile the rank takes part in the rounds of
/// partial collectives. Throws `cuda_error` if the work has failed.
template <communicates Net>
void wait_for_device(Net& net, pinned_memory::lease& host, cudaStream_t stream) {
  host.used_by(stream);
  for (; !host.idle(); sched_yield()) net.progress(false);
}

/// Throws `invalid_argument` unless the `count` values, or indices, at `data` are in memory of the current device,
/// which it may share with the host (managed memory); `what` names them. If CUDA fails, aborts the communicator of
/// `net`, and throws `cuda_error`.
template <communicates Net>
void check_on_device(Net& net, const void* data, std::uint64_t count, const char* what) {
  if (count == 0) return;
  cudaPointerAttributes where{};
  int current = 0;
  or_abort(net, [&] {
    check_cuda(cudaPointerGetAttributes(&where, data), "cudaPointerGetAttributes");
    check_cuda(cudaGetDevice(&current), "cudaGetDevice");
  });
  if (where.type != cudaMemoryTypeDevice && where.type != cudaMemoryTypeManaged) {
    raise<invalid_argument>({"the ", count, " ", what, " are in host memory; expected device memory"});
  }
  if (where.type == cudaMemoryTypeDevice && where.device != current) {
    raise<invalid_argument>(
        {"the ", count, " ", what, " are in memory of device ", where.device, ", but the current device is ", current});
  }
}
template <communicates Net, class T>
void check_on_device(Net& net, const device_span<T>& x) {
  check_on_device(net, x.data, x.size, "values of a spar::device_span");
}

} // namespace spar::detail
