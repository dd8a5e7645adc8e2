// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The split phase of split-allgather: every rank sends each owner its slice (SparCML, section 5.3.2); a sparse
// reduce-scatter.
#pragma once

#include <spar/core/fixed_vector.hpp>
#include <spar/core/task.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/wire.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/transport/channel.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// Sends each owner its slice and reduces the parts of this rank's block, in the order of the ranks: to the values of
/// the block at `dense`, or where that is null to a sparse stream. P - 1 messages each way, all under way at once.
template <transport Net, element T, index_type Index, reduction<T> Op>
task<stream<T, Index>> split(channel<Net> net, stream_view<T, Index> mine, Op op, T* dense) {
  stream<T, Index> sum;
  stream<T, Index> sparse_copy;
  if (dense == nullptr && mine.is_dense()) {
    sparse_copy = to_sparse(mine, op, net.memory());
    mine = sparse_copy.view();
  }
  const rank_t p = net.size();
  const uniform_ownership owner{mine.dimension(), p};
  const auto slice = [&](rank_t r) { return mine.slice(owner.begin(r), owner.begin(r + 1)); };
  const auto others = static_cast<std::size_t>(p - 1);
  fixed_vector<decltype(net.send(0, encode(mine)))> sending(net.memory(), others);
  fixed_vector<message_buffer> arrived(net.memory(), others);
  fixed_vector<decltype(net.receive(0, arrived[0]))> receiving(net.memory(), others);
  buffer<stream_view<T, Index>> parts(net.memory(), static_cast<std::size_t>(p));

  // Each rank begins with another peer, so that no one is addressed by all at once.
  for (rank_t i = 1; i < p; ++i) {
    receiving.emplace_back(net.receive((net.rank() + p - i) % p, arrived.emplace_back(net.memory())));
  }
  for (rank_t i = 1; i < p; ++i) {
    const rank_t peer = (net.rank() + i) % p;
    sending.emplace_back(net.send(peer, encode(slice(peer))));
  }
  parts.span()[static_cast<std::size_t>(net.rank())] = slice(net.rank());
  for (std::size_t i = 0; i < others; ++i) {
    co_await receiving[i];
    const auto source = static_cast<std::size_t>((net.rank() + 2 * p - 1 - static_cast<rank_t>(i)) % p);
    parts.span()[source] = decode<T, Index>(arrived[i], owner[net.rank()]);
  }
  std::uint64_t entries = 0;
  for (const auto& part : parts.span()) entries += part.count();
  if (dense != nullptr) {
    net.compute(entries);
    reduce_dense(std::as_const(parts).span(), owner[net.rank()], dense, op);
  } else {
    net.compute(entries * std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::bit_width(others)))); // by levels
    sum = merge_many(std::as_const(parts).span(), mine.dimension(), owner[net.rank()], op, net.memory());
  }
  arrived.clear();
  for (auto& s : sending) co_await s;
  co_return sum;
}

/// Reduce-scatter of sparse streams by direct messages: block `rank` of the sum, sparse.
struct split_reduce_scatter {
  static constexpr std::string_view name = "split_reduce_scatter";

  template <transport Net, element T, index_type Index, reduction<T> Op>
  task<stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op) const& {
    return split<Net, T, Index>(net, mine, op, nullptr);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar
