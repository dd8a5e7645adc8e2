// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The buffers of NCCL transfers, and the copies of payloads to and from them.
#pragma once

#include <spar/cuda/pieces.hpp>
#include <spar/cuda/recycled.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/transport/nccl/transfer.hpp>

#include <cstddef>
#include <utility>

namespace spar::inline v0_1::detail {

/// The page-locked buffers and the buffers in device memory of one rank. Functions throw `cuda_error` if CUDA fails.
class nccl_memory {
  using lease = recycled_memory::lease;

 public:
  /// Gives a transfer a buffer, unless NCCL sends its payload from where it is. Returns false if no buffer is free and
  /// none may be allocated.
  bool give_room(nccl_transfer& t, bool may_allocate) {
    if (t.in_place()) return true;
    recycled_memory& from = t.on_device ? static_cast<recycled_memory&>(device_) : pinned_;
    t.room = may_allocate ? from.take(t.bytes) : from.take_free(t.bytes);
    return !t.room.empty();
  }

  /// Packs the payload of a send. If the payload is in device memory, `stream`, that of NCCL, waits until it is there.
  static void collect(nccl_transfer& t, cudaStream_t stream) {
    if (t.on_device) t.ready.order(stream);
    if (t.in_place()) return;
    if (t.on_device)
      start_pack(t.pieces, bytes_of(t.room), cudaMemcpyDeviceToDevice, stream);
    else
      pack(t.pieces, bytes_of(t.room));
  }

  /// Copies the payload of a receive to the places that the receiver has chosen, or lends it the buffer. The buffer is
  /// not used again before the work in the stream of `in` has read it.
  static void deliver(nccl_transfer& t, message_buffer& in) {
    const auto values = static_cast<cudaStream_t>(in.stream());
    payload_views pieces{};
    const std::byte* at = bytes_of(t.room);
    for (std::size_t i = 0; i < max_pieces; ++i) {
      pieces[i] = {at, in.head().lengths[i]};
      at += padded_bytes(pieces[i].size());
    }
    if (in.placed() && t.on_device) {
      start_copies(in, pieces, cudaMemcpyDeviceToDevice, values);
      t.room.used_by(values);
    } else if (in.placed()) {
      in.copy_from(pieces);
    } else if (t.on_device) {
      in.borrow(pieces, &lease::give_back_used, t.room.detach_for(values));
    } else {
      in.borrow(pieces, &lease::give_back, t.room.detach());
    }
  }

  // Payloads in device memory that travel over the control transport, by way of page-locked memory. `prepare` is called
  // before an allocation.

  /// Copies the payload to the host, and waits for the copy. Returns the buffer, which `lease::give_back` takes back,
  /// or null if the payload is empty.
  template <class Prepare>
  [[nodiscard]] void* to_host(message_pieces& out, Prepare prepare) {
    const auto values = static_cast<cudaStream_t>(std::exchange(out.stream, nullptr));
    if (out.head.payload_bytes() == 0) return nullptr;
    lease host = pinned_.take(padded_bytes(out.pieces), prepare);
    out.pieces = start_pack(out.pieces, bytes_of(host), cudaMemcpyDeviceToHost, values);
    check_cuda(cudaStreamSynchronize(values), "cudaStreamSynchronize");
    return host.detach();
  }
  /// Starts to copy a payload in host memory to its destinations on the device.
  template <class Prepare>
  void to_device(const payload_views& pieces, message_buffer& in, Prepare prepare) {
    if (in.head().payload_bytes() == 0) return;
    lease host = pinned_.take(padded_bytes(pieces), prepare);
    const auto values = static_cast<cudaStream_t>(in.stream());
    start_copies(in, pack(pieces, bytes_of(host)), cudaMemcpyHostToDevice, values);
    host.used_by(values);
  }

  /// Frees all buffers, which nobody may use any more.
  void free() {
    pinned_.free();
    device_.free();
  }

 private:
  static std::byte* bytes_of(const lease& room) noexcept { return static_cast<std::byte*>(room.data()); }

  pinned_memory pinned_;
  device_memory device_;
};

} // namespace spar::inline v0_1::detail
