// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages of entries whose size all ranks know before the call: the number of entries travels with them, and no host
// ever learns it.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <cstddef>
#include <cstdint>

namespace spar::inline v0_1::kernel {

/// A message with room for `room` entries: a cut, whose `count` is the number of entries, their indices and their
/// values. What follows them is padding, which travels and which nobody reads. An exact top-k writes its cut to the
/// message itself.
template <ranked T, index_type Index>
struct padded_message {
  std::uint64_t room;

  SPAR_HOST_DEVICE static constexpr std::uint64_t whole_words(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }
  SPAR_HOST_DEVICE constexpr std::uint64_t values_at() const {
    return sizeof(cut<T>) + whole_words(room * sizeof(Index));
  }
  SPAR_HOST_DEVICE constexpr std::uint64_t bytes() const { return values_at() + whole_words(room * sizeof(T)); }

  SPAR_HOST_DEVICE static cut<T>* head(std::byte* message) { return reinterpret_cast<cut<T>*>(message); }
  SPAR_HOST_DEVICE static Index* indices(std::byte* message) {
    return reinterpret_cast<Index*>(message + sizeof(cut<T>));
  }
  SPAR_HOST_DEVICE T* values(std::byte* message) const { return reinterpret_cast<T*>(message + values_at()); }
};

namespace detail {

inline constexpr unsigned message_threads = 128; // of a block of `list_messages`; each thread has one message

template <class T, class Index>
__global__ void __launch_bounds__(message_threads)
    list_messages(std::byte* messages, std::uint64_t count, padded_message<T, Index> form, device_coo<T, Index>* parts,
                  std::uint64_t mine, std::uint64_t* sent, std::uint64_t* too_many) {
  const std::uint64_t m = std::uint64_t{blockIdx.x} * message_threads + threadIdx.x;
  if (m >= count) return;
  std::byte* const message = messages + m * form.bytes();
  std::uint64_t entries = form.head(message)->count;
  if (entries > form.room) *too_many = entries, entries = 0; // any of several may be the one that is reported
  if (m == mine) *sent = entries;
  parts[m] = {form.indices(message), form.values(message), entries};
}

} // namespace detail

/// Starts a kernel that writes to `parts` where the entries of each of `count` messages are, which lie one after the
/// other, and how many they are; sets `*sent` to the number of entries in the message `mine`. If a message says that it
/// has more entries than room, sets `*too_many` to this number, and takes none of its entries; otherwise leaves
/// `*too_many` as it is. All pointers point to memory that the device can access.
template <ranked T, index_type Index>
void start_list_messages(std::byte* messages, std::uint64_t count, padded_message<T, Index> form,
                         device_coo<T, Index>* parts, std::uint64_t mine, std::uint64_t* sent, std::uint64_t* too_many,
                         cudaStream_t stream) {
  spar::detail::launch(detail::list_messages<T, Index>, spar::detail::tiles_of(count, detail::message_threads),
                       detail::message_threads, 0, stream, messages, count, form, parts, mine, sent, too_many);
}

} // namespace spar::inline v0_1::kernel
