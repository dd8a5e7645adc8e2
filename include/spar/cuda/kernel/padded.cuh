// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages of entries whose size all ranks know before the call: the number of entries travels with them, and no host
// ever learns it.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/rows.cuh>
#include <spar/cuda/kernel/search.cuh>
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

/// Messages to the owners of blocks: message b is at `to + b * form.bytes()`, except that of this rank, which is where
/// it will read what it receives.
template <ranked T, index_type Index>
struct outgoing_messages {
  padded_message<T, Index> form;
  std::byte* to;
  std::byte* own;
  std::uint64_t rank;

  __device__ std::byte* of(std::uint64_t b) const { return b == rank ? own : to + b * form.bytes(); }
};

/// What `start_slice` counts.
struct slice_counts {
  std::uint64_t sent = 0;   ///< entries in the messages of the last call
  std::uint64_t stayed = 0; ///< entries for which messages had no room, in all calls
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
  if (m == mine && sent != nullptr) *sent = entries;
  parts[m] = {form.indices(message), form.values(message), entries};
}

/// One warp divides the entries among the owners of blocks, and writes how many each message gets.
template <class T, class Index>
__global__ void __launch_bounds__(spar::detail::warp_size)
    slice_entries(const Index* indices, const std::uint64_t* taken, std::uint64_t most, const std::uint64_t* bounds,
                  std::uint64_t ranks, outgoing_messages<T, Index> to, std::uint64_t* begins, slice_counts* counts) {
  const std::uint64_t count = *taken < most ? *taken : most, room = to.form.room;
  std::uint64_t stay = 0;
  for (std::uint64_t b = spar::detail::lane_of_thread(); b < ranks; b += spar::detail::warp_size) {
    const std::uint64_t begin = find_bound(indices, 0, count, bounds[b]);
    const std::uint64_t length = find_bound(indices, begin, count, bounds[b + 1]) - begin;
    begins[b] = begin;
    to.form.head(to.of(b))->count = length < room ? length : room;
    stay += length < room ? 0 : length - room;
  }
  stay = spar::detail::warp_sum(stay);
  if (spar::detail::lane_of_thread() != 0) return;
  begins[ranks] = count;
  counts->sent = count - stay;
  counts->stayed += *taken - counts->sent;
}

template <class T, class Index>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    pack_slices(const Index* indices, const T* values, std::uint64_t most, const std::uint64_t* begins,
                std::uint64_t ranks, outgoing_messages<T, Index> to, T* residual) {
  const std::uint64_t count = begins[ranks];
  spar::detail::for_rows(count < most ? count : most, [&](std::uint64_t e) {
    const std::uint64_t owner = find_bound(begins, 0, ranks, e + 1) - 1; // of blocks that begin there, the last one
    const std::uint64_t at = e - begins[owner];
    std::byte* const message = to.of(owner);
    if (at < to.form.room)
      to.form.indices(message)[at] = indices[e], to.form.values(message)[at] = values[e];
    else
      residual[indices[e]] = values[e];
  });
}

template <class T, class Index>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    write_message(const Index* indices, const T* values, const std::uint64_t* count, padded_message<T, Index> form,
                  std::byte* message, std::uint64_t* dropped) {
  const std::uint64_t entries = *count < form.room ? *count : form.room;
  spar::detail::for_rows(
      entries, [&](std::uint64_t e) { form.indices(message)[e] = indices[e], form.values(message)[e] = values[e]; });
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  form.head(message)->count = entries;
  *dropped += *count - entries;
}

/// Each thread checks some indices of the messages: those of message m ascend in [bounds[m], bounds[m + 1]).
template <class T, class Index>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    check_messages(const device_coo<T, Index>* parts, std::uint64_t count, std::uint64_t room,
                   const std::uint64_t* bounds, std::uint64_t* bad, std::uint64_t* disordered) {
  spar::detail::for_rows(count * room, [&](std::uint64_t at) {
    const std::uint64_t m = at / room, e = at % room;
    const Index* const indices = parts[m].indices;
    if (e >= parts[m].count) return;
    if (indices[e] >= bounds[m] && indices[e] < bounds[m + 1] && (e == 0 || indices[e - 1] < indices[e])) return;
    *bad = 1, *disordered = 1; // all threads write the same values
  });
}

template <class T, class Index>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    join_messages(const device_coo<T, Index>* parts, std::uint64_t messages, std::uint64_t room,
                  const std::uint64_t* bad, Index* out_i, T* out_v, std::uint64_t* count) {
  const auto before = [&](std::uint64_t end) {
    std::uint64_t entries = 0;
    for (std::uint64_t m = 0; m < end; ++m) entries += parts[m].count;
    return entries;
  };
  spar::detail::for_rows(messages * room, [&](std::uint64_t at) {
    const std::uint64_t m = at / room, e = at % room;
    if (e >= parts[m].count) return;
    const std::uint64_t to = before(m) + e;
    out_i[to] = parts[m].indices[e], out_v[to] = parts[m].values[e];
  });
  if (blockIdx.x == 0 && threadIdx.x == 0) *count = *bad != 0 ? 0 : before(messages);
}

} // namespace detail

/// Starts kernels that divide up to `most` of `*taken` entries among the owners of `ranks` blocks, block b being
/// [bounds[b], bounds[b + 1]), and write a message for each owner. What has no room in its message returns to
/// `residual`. `begins` has ranks + 1 words. All pointers point to memory that the device can access.
template <ranked T, index_type Index>
void start_slice(const Index* indices, const T* values, const std::uint64_t* taken, std::uint64_t most,
                 const std::uint64_t* bounds, std::uint64_t ranks, outgoing_messages<T, Index> to, T* residual,
                 std::uint64_t* begins, slice_counts* counts, cudaStream_t stream) {
  spar::detail::launch(detail::slice_entries<T, Index>, 1, spar::detail::warp_size, 0, stream, indices, taken, most,
                       bounds, ranks, to, begins, counts);
  spar::detail::launch_rows(detail::pack_slices<T, Index>, most, stream, indices, values, most, begins, ranks, to,
                            residual);
}

/// Starts a kernel that writes the first `form.room` of `*count` entries to a message, and adds the number of all
/// others to `*dropped`. All pointers point to memory that the device can access.
template <ranked T, index_type Index>
void start_write_message(const Index* indices, const T* values, const std::uint64_t* count,
                         padded_message<T, Index> form, std::byte* message, std::uint64_t* dropped,
                         cudaStream_t stream) {
  spar::detail::launch_rows(detail::write_message<T, Index>, form.room, stream, indices, values, count, form, message,
                            dropped);
}

/// Starts kernels that copy the entries of `count` messages, which are listed at `parts`, one after the other, and set
/// `*total` to their number. If the indices of message m do not ascend in [bounds[m], bounds[m + 1]), sets
/// `*disordered` to 1, and `*total` to 0. `word` is a word in device memory. All pointers point to memory that the
/// device can access.
template <ranked T, index_type Index>
void start_join_messages(const device_coo<T, Index>* parts, std::uint64_t count, std::uint64_t room,
                         const std::uint64_t* bounds, Index* out_i, T* out_v, std::uint64_t* total,
                         std::uint64_t* disordered, std::uint64_t* word, cudaStream_t stream) {
  spar::detail::clear(word, sizeof(std::uint64_t), stream);
  spar::detail::launch_rows(detail::check_messages<T, Index>, count * room, stream, parts, count, room, bounds, word,
                            disordered);
  spar::detail::launch_rows(detail::join_messages<T, Index>, count * room, stream, parts, count, room, word, out_i,
                            out_v, total);
}

/// Starts a kernel that writes to `parts` where the entries of each of `count` messages are, which lie one after the
/// other, and how many they are; sets `*sent`, unless `sent` is null, to the number of entries in the message `mine`.
/// If a message says that it has more entries than room, sets `*too_many` to this number, and takes none of its
/// entries; otherwise leaves `*too_many` as it is. All pointers point to memory that the device can access.
template <ranked T, index_type Index>
void start_list_messages(std::byte* messages, std::uint64_t count, padded_message<T, Index> form,
                         device_coo<T, Index>* parts, std::uint64_t mine, std::uint64_t* sent, std::uint64_t* too_many,
                         cudaStream_t stream) {
  spar::detail::launch(detail::list_messages<T, Index>, spar::detail::tiles_of(count, detail::message_threads),
                       detail::message_threads, 0, stream, messages, count, form, parts, mine, sent, too_many);
}

} // namespace spar::inline v0_1::kernel
