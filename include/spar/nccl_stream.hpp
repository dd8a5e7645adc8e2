// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator of NCCL for calls in the order of CUDA streams (experimental). Host code: any C++20 compiler with the
// headers of CUDA and NCCL; link CUDA's runtime and NCCL.
#pragma once

#include <spar/collective/basic/barrier.hpp>
#include <spar/core/util/fnv1a.hpp>
#include <spar/cuda/call.hpp>
#include <spar/cuda/runtime.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/spar.hpp>
#include <spar/transport/nccl/communicator.hpp>

#include <cstddef>
#include <exception>

#include <sched.h>

namespace spar::inline v0_1 {

/// One rank of an NCCL communicator whose calls work in the order of CUDA streams: a call puts kernels and transfers
/// into a stream of the program and returns, and the host waits for no device and no message. All ranks must put the
/// same calls in the same order into their streams, as NCCL demands; nothing checks this order. A stream may be
/// captured, also with these calls, and its graph launched any number of times, by all ranks alike. Begin the capture
/// with `cudaStreamCaptureModeThreadLocal`: a thread of NCCL takes part, and may allocate memory, which a capture in
/// the global mode forbids to all threads.
///
/// The wrapped communicator `control` carries what ranks agree on before the first call, and tells ranks of failures;
/// it must outlive this object. Each rank uses its own GPU, the current one when the object is made, which must be the
/// current one whenever the rank uses this object. All ranks create and destroy their objects together, in the same
/// order as other objects of NCCL. Before the destructor, the work of all calls must have ended (see `wait`), and all
/// graphs that contain calls, captured and instantiated ones, must be destroyed, because NCCL waits for this when it
/// frees its communicator. After an error, these graphs must not be launched again. The rank must not have a progress
/// thread. Its functions may throw the \ref call_errors. Experimental: no GPU has run it.
template <communicates Control>
class nccl_stream {
 public:
  /// Creates an NCCL communicator of all ranks of `control`. Throws `nccl_error`, `cuda_error`, `peer_failed` if
  /// another rank fails, `timeout` if another rank does not create its object before the deadline, and
  /// `invalid_argument` if `control` has a progress thread, or if the environment makes the calls of NCCL blocking.
  explicit nccl_stream(Control& control)
      : control_(&control), exceptions_(std::uncaught_exceptions()),
        home_(detail::or_abort(control, [] { return detail::home_device(); })),
        ended_(detail::or_abort(control, [] { return detail::cuda_event(); })) {
    if (port().node().shared() != nullptr) {
      raise<invalid_argument>({"spar::nccl_stream cannot wrap a communicator with a progress_thread, whose current "
                               "device may differ from that of this thread"});
    }
    or_fail([&] {
      ncclUniqueId id{};
      if (rank() == 0) id = detail::nccl_communicator::new_id();
      signature agreed = detail::share_nccl_id::agreed;
      agreed.digest = detail::fnv1a("spar::nccl_stream");
      run_collective(port(), agreed, detail::share_nccl_id{}, &id);
      comm_.join(id, rank(), size());
      wait_until([&] { return comm_.call_has_ended(); }, "all ranks to create their spar::nccl_stream");
    });
  }
  nccl_stream(const nccl_stream&) = delete;
  /// Waits for the other ranks, and for NCCL. After the deadline, as when a graph still contains calls, aborts the
  /// wrapped communicator.
  ~nccl_stream() {
    const detail::home_device::scope device(home_);
    try {
      end_if_failed();
      if (!port().node().dead()) close();
    } catch (...) {
      detail::abort(port(), std::current_exception());
    }
    comm_.abort();
  }

  [[nodiscard]] rank_t rank() const noexcept { return port().rank(); } ///< this rank
  [[nodiscard]] rank_t size() const noexcept { return port().size(); } ///< the number of ranks
  /// The wrapped communicator.
  [[nodiscard]] Control& control() const noexcept { return *control_; }

  /// Waits until the work that is now in `stream` has ended. This is how a rank finds out that a peer or a transfer has
  /// failed: then aborts the wrapped communicator and that of NCCL, so that the work in all streams ends, and throws
  /// `nccl_error`, `cuda_error` or `peer_failed`, or `timeout` after the deadline of the wrapped communicator.
  void wait(cudaStream_t stream) {
    or_fail([&] {
      ended_.record(stream);
      wait_until([&] { return comm_.call_has_ended() && ended_.complete(); }, "the work in a CUDA stream");
    });
  }

  // The functions below are for spar's other headers.

  /// The device of this object.
  [[nodiscard]] const detail::home_device& device() const noexcept { return home_; }
  /// Puts an allgather into `stream`: the `bytes` bytes at `all + r * bytes` of each rank r go to the same place on all
  /// ranks. Throws `timeout` and what else `wait` throws.
  void all_gather(std::byte* all, std::size_t bytes, cudaStream_t stream) {
    put([&] { comm_.all_gather(all, bytes, rank(), stream); });
  }
  /// Puts an exchange into `stream`: the `bytes` bytes at `out + r * bytes` go to each other rank r, and those of rank
  /// r come to `in + r * bytes`. Throws `timeout` and what else `wait` throws.
  void exchange(const std::byte* out, std::byte* in, std::size_t bytes, cudaStream_t stream) {
    put([&] { comm_.exchange(out, in, bytes, rank(), size(), stream); });
  }
  /// Puts a step around a ring into `stream`: the `bytes` bytes at `out` go to the next rank, and those of the rank
  /// before come to `in`. Throws `timeout` and what else `wait` throws.
  void pass_on(const std::byte* out, std::byte* in, std::size_t bytes, cudaStream_t stream) {
    put([&] { comm_.pass_on(out, in, bytes, rank(), size(), stream); });
  }

  /// For destructors of objects that make calls, before they free device memory, which waits for the device: if an
  /// exception leaves their scope, or if the communicator has failed, aborts, so that the work in all streams ends.
  void end_if_failed() noexcept {
    if (std::uncaught_exceptions() > exceptions_)
      detail::abort(port(), "an exception has left the scope of a spar::nccl_stream, or of an object that makes calls");
    if (port().node().dead()) comm_.abort();
  }
  /// Runs `work()`. If it throws, or if the communicator has failed, aborts, so that the work in all streams ends.
  template <class Work>
  void or_fail(Work work) {
    try {
      if (port().node().dead()) port().node().failure().raise_peer_failed();
      work();
    } catch (...) {
      detail::abort(port(), std::current_exception());
      comm_.abort();
      throw;
    }
  }

 private:
  [[nodiscard]] auto& port() const noexcept { return detail::port_of(*control_); }

  /// Makes a call of NCCL, and waits until NCCL has put its work into the stream; not for this work.
  template <class Call>
  void put(Call call) {
    or_fail([&] {
      call();
      wait_until([&] { return comm_.call_has_ended(); }, "NCCL to put a call into a CUDA stream");
    });
  }
  template <class Done>
  void wait_until(Done done, const char* what) {
    for (const double begin = port().now(); !done(); sched_yield()) {
      port().progress(false);
      if (port().node().dead()) port().node().failure().raise_peer_failed();
      if (port().now() - begin > port().node().deadline())
        raise<timeout>({"rank ", rank(), " has waited for ", port().node().deadline(), " s for ", what});
    }
  }
  /// Frees the NCCL communicator between two meetings of all ranks: NCCL frees memory, which waits for the transfers of
  /// all ranks on the device.
  void close() {
    meet();
    comm_.finalize();
    wait_until([&] { return comm_.call_has_ended(); },
               "NCCL to finalize its communicator, which it does once all graphs with calls are destroyed");
    comm_.destroy();
    meet();
  }
  /// A barrier whose messages no other call matches.
  void meet() {
    run_collective(port(), signature{.digest = detail::fnv1a("the end of a spar::nccl_stream")},
                   dissemination_barrier{});
  }

  Control* control_;
  int exceptions_; // number of uncaught exceptions at the construction
  detail::home_device home_;
  detail::nccl_communicator comm_;
  detail::cuda_event ended_;
};

} // namespace spar::inline v0_1
