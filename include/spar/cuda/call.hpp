// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What calls on device memory share: they check the device of their arguments, abort the communicator if they fail, and
// make progress while they wait.
#pragma once

#include <spar/cuda/device_span.hpp>
#include <spar/cuda/recycled.hpp>
#include <spar/runtime/arguments.hpp>
#include <spar/runtime/communicator_rank.hpp>

#include <cstdint>

#include <sched.h>

namespace spar::inline v0_1::detail {

/// To be called before memory is allocated or freed, because CUDA may then wait for the device: if the transport of
/// `net` lets the device work on messages, waits for them. Otherwise CUDA might wait for messages of other ranks, which
/// may wait for this one.
template <communicates Net>
void end_transfers(Net& net) noexcept {
  if constexpr (device_bound_transport<port_type_of<Net>>) port_of(net).wait_until_idle();
}

/// Waits until the work in `stream` that uses the buffer has ended. Meanwhile the rank takes part in the rounds of
/// partial collectives. Throws `cuda_error` if the work has failed.
template <communicates Net>
void wait_for_device(Net& net, pinned_memory::lease& host, cudaStream_t stream) {
  host.used_by(stream);
  for (; !host.idle(); sched_yield()) net.progress(false);
}

/// The `host_memory_check` of a program that uses CUDA. If CUDA fails, the call goes on: it needs no device, and the
/// pointer is in most cases one of the host.
inline constexpr host_memory_check refuse_device_memory = [](const void* data, std::uint64_t count, const char* what,
                                                             int number) {
  if (count == 0) return;
  cudaPointerAttributes where{};
  if (cudaPointerGetAttributes(&where, data) != cudaSuccess) {
    cudaGetLastError(); // otherwise a later check of a kernel launch would find this error
    return;
  }
  if (where.type != cudaMemoryTypeDevice) return;
  raise<invalid_argument>({"the ", count, " ", what, number, " of the call are in memory of device ", where.device,
                           "; expected host memory, or a spar::device_span and a spar::on_device or spar::staged "
                           "that was constructed from the communicator"});
};

/// The device on which an object works: the current one when the object is made. The functions throw `invalid_argument`
/// if an argument belongs to another device. If CUDA fails, they abort the communicator of `net`, and throw
/// `cuda_error`.
class home_device {
 public:
  /// From now on, all calls on values in host memory check that their arguments are there. Throws `cuda_error` if CUDA
  /// fails.
  home_device() : number_(current()) {
    __atomic_store_n(&check_of_host_memory, refuse_device_memory, __ATOMIC_RELAXED);
  }

  /// Checks that the device is the current one; `owner` names the object.
  template <communicates Net>
  void check_current(Net& net, const char* owner) const {
    const int now = or_abort(net, &current);
    if (now == number_) return;
    raise<invalid_argument>({"the current device is ", now, ", but this ", owner, " was made for device ", number_,
                             "; expected cudaSetDevice(", number_, ") before the call"});
  }
  /// Checks that `stream` orders work of the device.
  template <communicates Net>
  void check_stream(Net& net, cudaStream_t stream) const {
    int of = 0;
    or_abort(net, [&] { check_cuda(cudaStreamGetDevice(stream, &of), "cudaStreamGetDevice"); });
    if (of != number_)
      raise<invalid_argument>({"the CUDA stream is of device ", of, ", but the current device is ", number_});
  }
  /// Checks that the `count` values, or indices, at `data` are in memory of the device, which it may share with the
  /// host (managed memory); `what` names them.
  template <communicates Net>
  void check_memory(Net& net, const void* data, std::uint64_t count, const char* what) const {
    if (count == 0) return;
    cudaPointerAttributes where{};
    or_abort(net, [&] { check_cuda(cudaPointerGetAttributes(&where, data), "cudaPointerGetAttributes"); });
    if (where.type != cudaMemoryTypeDevice && where.type != cudaMemoryTypeManaged)
      raise<invalid_argument>({"the ", count, " ", what, " are in host memory; expected device memory"});
    if (where.type == cudaMemoryTypeDevice && where.device != number_) {
      raise<invalid_argument>({"the ", count, " ", what, " are in memory of device ", where.device,
                               ", but the current device is ", number_});
    }
  }
  /// Makes the other checks for a call of the object `owner` on `x`.
  template <communicates Net, element T>
  void check_span(Net& net, const char* owner, const device_span<T>& x) const {
    check_current(net, owner);
    check_stream(net, x.stream);
    check_memory(net, x.data, x.size, "values of a spar::device_span");
  }

  /// Makes the device of `home` the current one until the end of the scope: for destructors, which cannot throw.
  class scope {
   public:
    explicit scope(const home_device& home) noexcept : before_(home.number_) {
      if (cudaGetDevice(&before_) == cudaSuccess) cudaSetDevice(home.number_);
    }
    scope(const scope&) = delete;
    ~scope() { cudaSetDevice(before_); }

   private:
    int before_;
  };

 private:
  static int current() {
    int number = 0;
    check_cuda(cudaGetDevice(&number), "cudaGetDevice");
    return number;
  }

  int number_;
};

} // namespace spar::inline v0_1::detail
