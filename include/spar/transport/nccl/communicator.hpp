// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A handle that owns an NCCL communicator, and how ranks agree on the id of a communicator.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/util/fnv1a.hpp>
#include <spar/cuda/runtime.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/transport/nccl/check.hpp>
#include <spar/transport/nccl/transfer.hpp>

#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include <pthread.h>
#include <time.h>

namespace spar::inline v0_1::detail {

/// One rank of a non-blocking NCCL communicator. Each function starts a call of NCCL, which may continue after the
/// function has returned: the next function may be called only once `call_has_ended()` has returned true. The functions
/// throw `nccl_error`.
class nccl_communicator {
 public:
  nccl_communicator() = default;
  nccl_communicator(const nccl_communicator&) = delete;
  ~nccl_communicator() {
    abort();
    wait_for_abort();
    if (is_aborting_) pthread_detach(aborting_);
  }
  [[nodiscard]] bool joined() const noexcept { return comm_ != nullptr; }

  /// Returns the id by which the ranks of one communicator find each other.
  [[nodiscard]] static ncclUniqueId new_id() {
    ncclUniqueId id{};
    check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return id;
  }
  /// Joins the communicator `id` of `size` ranks, on the current device; collective.
  void join(const ncclUniqueId& id, rank_t rank, rank_t size) {
    const char* const blocking = std::getenv("NCCL_COMM_BLOCKING"); // NCCL prefers it to its configuration
    if (blocking != nullptr && std::strcmp(blocking, "1") == 0) {
      raise<invalid_argument>({"the environment variable NCCL_COMM_BLOCKING is 1, but spar::nccl needs calls of NCCL "
                               "that do not block: unset the variable"});
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    call_ = "ncclCommInitRankConfig";
    check_nccl(ncclCommInitRankConfig(&comm_, size, id, rank, &config), call_);
  }

  /// Whether the last call has ended, so that the work of the call is in the stream. Throws `nccl_error` if the call,
  /// or a transfer in flight, has failed.
  [[nodiscard]] bool call_has_ended() const {
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    check_nccl(state, call_);
    return state == ncclSuccess;
  }

  /// Starts to put the transfers into `stream`, as one group.
  void submit(std::span<nccl_transfer* const> group, cudaStream_t stream) {
    put_group([&](auto send, auto receive) {
      for (const nccl_transfer* t : group) {
        if (t->receives)
          receive(t->room.data(), t->bytes, t->peer, stream);
        else
          send(t->source(), t->bytes, t->peer, stream);
      }
    });
  }

  // What all ranks put into streams of their own, in the same order.

  /// Starts to put an allgather into `stream`: the `bytes` bytes at `all + r * bytes` of each rank r go to the same
  /// place on all ranks. `rank` is this one.
  void all_gather(std::byte* all, std::size_t bytes, rank_t rank, cudaStream_t stream) {
    call_ = "ncclAllGather";
    may_be_captured_ = true;
    const std::byte* const mine = all + static_cast<std::size_t>(rank) * bytes;
    check_nccl(ncclAllGather(mine, all, bytes, ncclUint8, comm_, stream), call_);
  }

  /// Starts to put an exchange into `stream`: the `bytes` bytes at `out + r * bytes` go to each other rank r, and those
  /// of rank r come to `in + r * bytes`.
  void exchange(const std::byte* out, std::byte* in, std::size_t bytes, rank_t rank, rank_t size, cudaStream_t stream) {
    may_be_captured_ = true;
    put_group([&](auto send, auto receive) {
      for (rank_t i = 1; i < size; ++i) {
        const rank_t to = (rank + i) % size, from = (rank + size - i) % size;
        send(out + static_cast<std::size_t>(to) * bytes, bytes, to, stream);
        receive(in + static_cast<std::size_t>(from) * bytes, bytes, from, stream);
      }
    });
  }

  /// Starts to put a step around a ring into `stream`: the `bytes` bytes at `out` go to the next rank, and those of the
  /// rank before come to `in`.
  void pass_on(const std::byte* out, std::byte* in, std::size_t bytes, rank_t rank, rank_t size, cudaStream_t stream) {
    may_be_captured_ = true;
    put_group([&](auto send, auto receive) {
      send(out, bytes, (rank + 1) % size, stream);
      receive(in, bytes, (rank + size - 1) % size, stream);
    });
  }

  /// Starts to finalize the communicator. Waits for the transfers of this rank, but for no other rank.
  void finalize() {
    call_ = "ncclCommFinalize";
    check_nccl(ncclCommFinalize(comm_), call_);
  }
  /// Frees the communicator, which must be finalized.
  void destroy() { check_nccl(ncclCommDestroy(std::exchange(comm_, nullptr)), "ncclCommDestroy"); }
  /// Frees the communicator, if there is one, and ends its transfers, so that a wait for their stream ends. All ranks
  /// must abort, because transfers to this rank cannot end any more. NCCL ends the transfers first, and then waits
  /// until the graphs that contain transfers have been destroyed, perhaps by this thread: so if there may be such
  /// graphs, another thread calls ncclCommAbort.
  void abort() noexcept {
    if (comm_ == nullptr) return;
    if (may_be_captured_)
      abort_by_thread(std::exchange(comm_, nullptr));
    else
      ncclCommAbort(std::exchange(comm_, nullptr));
    cudaGetLastError(); // otherwise a later check of a kernel launch would find an error of the ended transfers
  }

 private:
  void abort_by_thread(ncclComm_t comm) noexcept {
    const auto abort = [](void* aborted) -> void* {
      ncclCommAbort(static_cast<ncclComm_t>(aborted));
      return nullptr;
    };
    is_aborting_ = pthread_create(&aborting_, nullptr, abort, comm) == 0;
    if (!is_aborting_) abort(comm);
    wait_for_abort();
  }
  /// Waits for the thread that aborts, for at most a second, which suffices if no graph contains a transfer.
  void wait_for_abort() noexcept {
    constexpr time_t most = 1; // seconds
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += most;
    if (is_aborting_) is_aborting_ = pthread_timedjoin_np(aborting_, nullptr, &until) != 0;
  }

  /// Calls `add(send, receive)`, whose arguments add a transfer `(memory, bytes, peer, stream)` to a group.
  template <class Add>
  void put_group(Add add) {
    call_ = "ncclGroupEnd";
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    ncclResult_t added = ncclSuccess;
    const char* which = "";
    const auto add_one = [&](const char* name, auto call) {
      if (added != ncclSuccess && added != ncclInProgress) return;
      which = name;
      added = call();
    };
    add(
        [&](const void* from, std::size_t bytes, rank_t peer, cudaStream_t stream) {
          add_one("ncclSend", [&] { return ncclSend(from, bytes, ncclUint8, peer, comm_, stream); });
        },
        [&](void* to, std::size_t bytes, rank_t peer, cudaStream_t stream) {
          add_one("ncclRecv", [&] { return ncclRecv(to, bytes, ncclUint8, peer, comm_, stream); });
        });
    const ncclResult_t ended = ncclGroupEnd(); // also after an error, because the thread would stay in the group
    check_nccl(added, which);
    check_nccl(ended, call_);
  }

  ncclComm_t comm_ = nullptr;
  const char* call_ = "";        // the function of NCCL that was called last
  bool may_be_captured_ = false; // whether graphs may contain transfers
  pthread_t aborting_{};         // the thread that aborts
  bool is_aborting_ = false;
};

/// A collective by which all ranks get the NCCL id of rank 0.
struct share_nccl_id {
  template <transport Net>
  task<void> operator()(channel<Net> net, ncclUniqueId* id) const {
    const std::span<ncclUniqueId> all(id, 1);
    if (net.rank() == 0) {
      for (rank_t peer = 1; peer < net.size(); ++peer) {
        auto sending = net.send(peer, {.format = wire_format::block_coded, .count = 1, .pieces = {std::as_bytes(all)}});
        co_await sending;
      }
    } else {
      message_buffer in(net.memory());
      in.place(0, all);
      auto receiving = net.receive(0, in);
      co_await receiving;
    }
  }
  static constexpr signature agreed{
      .digest = fnv1a("spar::nccl"), .element = element_code::uint32, .dimension = sizeof(ncclUniqueId)};
};

} // namespace spar::inline v0_1::detail
