// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies of payloads that a device makes. Each function starts its copies in a stream, and throws `cuda_error` if CUDA
// fails. The memory on the host is page-locked.
#pragma once

#include <spar/cuda/runtime.hpp>
#include <spar/runtime/messages/message.hpp>

#include <cstddef>

namespace spar::inline v0_1::detail {

inline void start_copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind,
                       cudaStream_t stream) {
  if (bytes == 0) return;
  check_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream),
             kind == cudaMemcpyHostToDevice   ? "cudaMemcpyAsync to the device"
             : kind == cudaMemcpyDeviceToHost ? "cudaMemcpyAsync to the host"
                                              : "cudaMemcpyAsync on the device");
}

/// Copies the pieces into `block`, like `pack`.
inline payload_views start_pack(const payload_views& pieces, std::byte* block, cudaMemcpyKind kind,
                                cudaStream_t stream) {
  payload_views packed{};
  for (std::size_t i = 0; i < max_pieces; ++i) {
    start_copy(block, pieces[i].data(), pieces[i].size(), kind, stream);
    packed[i] = {block, pieces[i].size()};
    block += padded_bytes(pieces[i].size());
  }
  return packed;
}

/// Copies the pieces to the destinations of a message that has arrived, like `message_buffer::copy_from`.
inline void start_copies(message_buffer& in, const payload_views& pieces, cudaMemcpyKind kind, cudaStream_t stream) {
  for (std::size_t i = 0; i < max_pieces; ++i) {
    if (!pieces[i].empty()) start_copy(in.destination(i).data(), pieces[i].data(), pieces[i].size(), kind, stream);
  }
}

} // namespace spar::inline v0_1::detail
