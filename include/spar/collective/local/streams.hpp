// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The work of a rank on the streams of a call: by kernels of the processor on host memory or, over a transport
// `values_on_device`, by kernels of the device on streams whose entries are in device memory. A function whose result
// depends on a number of entries, or that checks entries, returns an `answer`.
#pragma once

#include <spar/collective/local/answer.hpp>
#include <spar/collective/local/values.hpp>
#include <spar/core/index_range.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/selector/keep_largest.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/gathered.hpp>
#include <spar/storage/kernel/slice.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/residual_view.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/storage/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::local {

/// What copies streams, and turns lists into pieces of messages (see `gathered`), where the streams of a call are.
template <transport Net>
auto place(channel<Net> net) noexcept {
  if constexpr (values_on_device<Net>)
    return net.net().place();
  else
    return host_place(net.memory());
}

/// Returns a copy of `v`.
template <transport Net, element T, index_type Index>
sparse_stream<T, Index> duplicate(channel<Net> net, const stream_view<T, Index>& v) {
  return place(net).duplicate(v);
}
/// Overwrites the entries `at`, `at` + 1, and so on of `to` with the entries of `v`.
template <transport Net, element T, index_type Index>
void write(channel<Net> net, sparse_stream<T, Index>& to, std::size_t at, const stream_view<T, Index>& v) {
  place(net).write(to, at, v);
}

/// Returns `op` applied to two streams (see storage/merge.hpp).
template <transport Net, element T, index_type Index, reduction<T> Op>
answer<Net, sparse_stream<T, Index>> merge(channel<Net> net, const stream_view<T, Index>& left,
                                           const stream_view<T, Index>& right, index_range range, std::uint64_t limit,
                                           Op op) {
  if constexpr (values_on_device<Net>)
    return net.net().streams().merge(left, right, range, limit, op);
  else
    return ready<sparse_stream<T, Index>>::from(
        [&] { return spar::merge(left, right, range, limit, op, net.memory()); });
}
/// Reduces sparse `parts` from left to right (see storage/merge.hpp). On a device, throws `corrupt_message` unless the
/// indices of each part ascend strictly in `range`; on the host, they must.
template <transport Net, element T, index_type Index, reduction<T> Op>
answer<Net, sparse_stream<T, Index>> merge_many(channel<Net> net, std::span<const stream_view<T, Index>> parts,
                                                std::uint64_t n, index_range range, Op op) {
  if constexpr (values_on_device<Net>)
    return net.net().streams().merge_many(parts, n, range, op);
  else
    return ready<sparse_stream<T, Index>>::from([&] { return spar::merge_many(parts, n, range, op, net.memory()); });
}
/// Reduces `parts` from left to right, and writes the dense values of `range` to `values` (see storage/merge.hpp).
template <transport Net, element T, index_type Index, reduction<T> Op>
void reduce_dense(channel<Net> net, std::span<const stream_view<T, Index>> parts, index_range range, T* values, Op op) {
  if constexpr (values_on_device<Net>)
    net.net().streams().reduce_dense(parts, range, values, op);
  else
    spar::reduce_dense(parts, range, values, op);
}

/// Returns the entries of `v` that differ from the neutral element of `op`, as a sparse stream.
template <transport Net, element T, index_type Index, reduction<T> Op>
answer<Net, sparse_stream<T, Index>> to_sparse(channel<Net> net, const stream_view<T, Index>& v, Op op) {
  if constexpr (values_on_device<Net>)
    return net.net().streams().to_sparse(v, op);
  else
    return ready<sparse_stream<T, Index>>::from([&] { return spar::to_sparse(v, op, net.memory()); });
}
/// Writes all values of `v` to `out`, which has room for them, with the neutral element of `op` at every index without
/// an entry.
template <transport Net, element T, index_type Index, reduction<T> Op>
void write_dense(channel<Net> net, const stream_view<T, Index>& v, std::span<T> out, Op op) {
  if constexpr (values_on_device<Net>)
    net.net().streams().write_dense(v, out, op.template neutral<T>());
  else
    v.to_dense(out, op);
}
/// Returns the whole vector as a dense stream, with the neutral element of `op` at every index without an entry.
template <transport Net, element T, index_type Index, reduction<T> Op>
sparse_stream<T, Index> to_dense(channel<Net> net, const stream_view<T, Index>& v, Op op) {
  auto out = sparse_stream<T, Index>::dense(net.value_memory(), v.dimension(), 0, v.dimension());
  write_dense(net, v, out.values(), op);
  return out;
}

/// Keeps the `k` entries of largest magnitude in `s`, and returns all other entries (see `selector::keep_largest`).
template <transport Net, element T, index_type Index>
answer<Net, sparse_stream<T, Index>> keep_largest(channel<Net> net, sparse_stream<T, Index>& s, std::uint64_t k) {
  if constexpr (values_on_device<Net>)
    return net.net().streams().keep_largest(s, k);
  else
    return ready<sparse_stream<T, Index>>::from([&] { return selector::keep_largest(s, k, net.memory()); });
}

/// When the indices of a message are checked. On a device, a check that would have to be awaited may be left to what
/// reads the indices first; on the host, they are always checked at once.
enum class index_check : bool {
  now,
  later ///< on a device, the caller passes the stream to `merge_many` or `check_indices` before it uses the indices
};
/// Throws `corrupt_message` unless the `indices` of a received stream ascend strictly inside `range`.
template <transport Net, index_type Index>
answer<Net> check_indices([[maybe_unused]] channel<Net> net, std::span<const Index> indices, index_range range) {
  if constexpr (values_on_device<Net>)
    return net.net().streams().check_indices(indices, range);
  else
    return spar::check_indices(indices, range), ready<>();
}
/// The same for the streams of one message (see `spar::check_parts`).
template <transport Net, index_type Index, class RangeOf>
answer<Net> check_parts([[maybe_unused]] channel<Net> net, std::span<const Index> indices,
                        std::span<const std::uint64_t> ends, const RangeOf& range_of) {
  if constexpr (values_on_device<Net>)
    return net.net().streams().check_parts(indices, ends, range_of);
  else
    return spar::check_parts(indices, ends, range_of), ready<>();
}
/// Sets `below[b]` to the number of the ascending `indices` that are less than `bounds[b]`, for all b.
template <transport Net, index_type Index>
answer<Net> count_below([[maybe_unused]] channel<Net> net, std::span<const Index> indices,
                        std::span<const std::uint64_t> bounds, std::span<std::uint64_t> below) {
  if constexpr (values_on_device<Net>) {
    return net.net().streams().count_below(indices, bounds, below);
  } else {
    for (std::size_t b = 0; b < bounds.size(); ++b) below[b] = kernel::lower_bound(indices, bounds[b]);
    return ready<>();
  }
}

/// Returns the list that `piece` of a received message contains. On a device, copies the list to `room`, unless it is
/// in memory of the host that the sender has lent.
template <transport Net>
answer<Net, std::span<const std::uint64_t>> read_list([[maybe_unused]] channel<Net> net,
                                                      std::span<const std::uint64_t> piece,
                                                      [[maybe_unused]] buffer<std::uint64_t>& room) {
  if constexpr (values_on_device<Net>) {
    if (net.net().lends()) return known(net, piece);
    room = buffer<std::uint64_t>(net.memory(), piece.size());
    return then(net, net.net().streams().download(room.span(), piece.data()),
                [&room] { return std::span<const std::uint64_t>(room.span()); });
  } else {
    return ready<std::span<const std::uint64_t>>(piece);
  }
}

/// The slices of a stream that belong to the owners of its indices.
template <transport Net, element T, index_type Index, class Ownership>
class slices {
 public:
  slices(const stream_view<T, Index>& whole, const Ownership& owner) : whole_(whole), owner_(owner) {}

  /// Finds where the slices begin. To be awaited before the slices are used.
  answer<Net> find(channel<Net> net) {
    if constexpr (values_on_device<Net>)
      return count(net);
    else
      return ready<>(); // `operator[]` finds a slice
  }
  /// The slice of the rank r.
  [[nodiscard]] stream_view<T, Index> operator[](rank_t r) const noexcept {
    if constexpr (values_on_device<Net>) {
      if (!whole_.is_dense()) {
        const auto b = static_cast<std::size_t>(r);
        return whole_.entries_from(cuts_.span()[b], cuts_.span()[b + 1]);
      }
    }
    return whole_.slice(owner_[r].begin, owner_[r].end);
  }

 private:
  task<void> count(channel<Net> net) {
    if (whole_.is_dense()) co_return;
    const auto blocks = static_cast<std::size_t>(net.size());
    buffer<std::uint64_t> bounds(net.memory(), blocks + 1);
    for (rank_t r = 0; r < net.size(); ++r) bounds.span()[static_cast<std::size_t>(r)] = owner_[r].begin;
    bounds.span()[blocks] = owner_[net.size() - 1].end;
    cuts_ = buffer<std::uint64_t>(net.memory(), blocks + 1);
    co_await count_below(net, whole_.indices(), std::as_const(bounds).span(), cuts_.span());
  }

  stream_view<T, Index> whole_;
  Ownership owner_;
  buffer<std::uint64_t> cuts_; // empty unless the indices are in device memory
};

/// Returns the streams `parts` as one. Part b has the indices of `range_of[b]`; these ranges divide [0, n). The result
/// is sparse if all parts are sparse, otherwise it is dense.
template <transport Net, element T, index_type Index, class Ownership, reduction<T> Op>
sparse_stream<T, Index> join(channel<Net> net, std::span<const sparse_stream<T, Index>> parts,
                             const Ownership& range_of, Op op) {
  const std::uint64_t n = parts[0].dimension();
  std::uint64_t entries = 0;
  bool dense = false;
  for (const auto& part : parts) {
    entries += part.count();
    dense = dense || part.is_dense();
  }
  auto whole = dense ? sparse_stream<T, Index>::dense(net.value_memory(), n, 0, n)
                     : sparse_stream<T, Index>::sparse(net.value_memory(), n, entries);
  std::size_t at = 0;
  for (std::size_t b = 0; b < parts.size(); ++b) {
    const auto part = parts[b].view();
    const index_range range = range_of[static_cast<rank_t>(b)];
    if (dense)
      reduce_dense(net, std::span(&part, 1), range, whole.values().data() + range.begin, op);
    else
      write(net, whole, at, part);
    at += part.count();
  }
  return whole;
}

/// Calls a selector on `x` (see `select_from`). Calls `prepare` before it returns.
template <index_type Index, transport Net, class Selector, element T, class Prepare>
answer<Net, sparse_stream<T, Index>> select(channel<Net> net, const Selector& by, std::span<T> x,
                                            state_of<Selector>& now, const Prepare& prepare) {
  if constexpr (values_on_device<Net>)
    return net.net().streams().template select<Index>(by, x, now, prepare);
  else
    return ready<sparse_stream<T, Index>>::from([&] { return select_from<Index>(by, x, net.memory(), now, prepare); });
}

/// The values that a selection leaves in `x`, as a residual.
template <transport Net, element T>
residual_view<T> residual(channel<Net> net, std::span<T> x) noexcept {
  if constexpr (values_on_device<Net>)
    return net.net().streams().residual(x);
  else
    return residual_view<T>(x);
}

} // namespace spar::local
