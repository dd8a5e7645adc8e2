// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An allgather of sums that tells each rank only what it does not know: not the indices of its own entries, and not the
// sums to which no other rank has contributed.
#pragma once

#include <spar/collective/topk/pruned/exchange.hpp>
#include <spar/collective/wire/mixed_message.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/rows.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// Sets places[e] to the position of wanted[e] in `all`, or to the largest number if it is not there. Both ascend. The
/// loop has no branch that depends on the indices, because no processor predicts it.
template <index_type Index>
void find_places(std::span<const Index> all, std::span<const Index> wanted, std::size_t* places) {
  std::size_t at = 0, e = 0;
  while (at < all.size() && e < wanted.size()) {
    const Index here = all[at], there = wanted[e];
    places[e] = at | (std::size_t{0} - static_cast<std::size_t>(here != there));
    at += static_cast<std::size_t>(here <= there);
    e += static_cast<std::size_t>(there <= here);
  }
  std::fill_n(places + e, wanted.size() - e, ~std::size_t{0});
}

/// Sets places[r * sums.size() + e] to the position of the sum at sums[e] in the entries of rank r, or to the largest
/// number, and contributors[e] to the number of ranks that have contributed to it.
template <element T, index_type Index>
void find_contributors(const fixed_vector<sparse_stream<T, Index>>& parts, std::span<const Index> sums,
                       std::size_t* places, std::uint32_t* contributors) {
  std::fill_n(contributors, sums.size(), 0U);
  for (const auto& part : parts) {
    find_places(part.indices(), sums, places);
    for (std::size_t e = 0; e < sums.size(); ++e) contributors[e] += places[e] < part.count() ? 1U : 0U;
    places += sums.size();
  }
}

/// Tells one rank, which has `count` entries, the sums `mine`, all in `block`. Sum e is at the rank's entry places[e],
/// if it has this entry; contributors[e] is the number of ranks that have contributed to it. The message has the sums
/// at none of the rank's entries as entries, the positions of the entries to whose sums only this rank has contributed,
/// the positions of its other sums, and the values of the latter.
template <transport Net, class Codec, element T, index_type Index>
payload encode_winners(channel<Net> net, const Codec& codec, const stream_view<T, Index>& mine, index_range block,
                       std::size_t count, const std::size_t* places, const std::uint32_t* contributors,
                       mixed_message& out) {
  auto others = sparse_stream<T, Index>::sparse(net.memory(), mine.dimension(), mine.count());
  auto shared = sparse_stream<T, Index>::sparse(net.memory(), mine.dimension(), mine.count());
  buffer<Index> alone(net.memory(), mine.count());
  std::size_t others_count = 0, shared_count = 0, alone_count = 0;
  for (std::size_t e = 0; e < mine.count(); ++e) {
    const bool is_its = places[e] < count, is_alone = is_its && contributors[e] == 1;
    others.indices()[others_count] = mine.indices()[e];
    shared.indices()[shared_count] = alone.data()[alone_count] = static_cast<Index>(places[e]);
    others.values()[others_count] = shared.values()[shared_count] = mine.values()[e];
    others_count += static_cast<std::size_t>(!is_its);
    shared_count += static_cast<std::size_t>(is_its && !is_alone);
    alone_count += static_cast<std::size_t>(is_alone);
  }
  others.shrink(others_count);
  shared.shrink(shared_count);
  const std::size_t room = kernel::coded_indices_bound<Index>(alone_count) +
                           kernel::coded_indices_bound<Index>(shared_count) +
                           kernel::coded_values_bound<component_of<T>>(components(shared.values()).size());
  out.begin(net, codec, others.view().entries(), block, room);
  out.add_set(net, std::as_const(alone).span().first(alone_count), 0);
  out.add_set(net, std::as_const(shared).indices(), 0);
  out.add_values(net, components(std::as_const(shared).values()));
  return out.message();
}

/// Returns the `count` sums of `block` in the message of its owner; `mine` are the entries of this rank in the block
/// whose values the owner knows.
template <transport Net, class Codec, element T, index_type Index>
sparse_stream<T, Index> decode_winners(channel<Net> net, const Codec& codec, const message_buffer& in,
                                       index_range block, std::uint64_t count, const stream_view<T, Index>& mine) {
  const auto empty = [&](std::size_t entries) {
    return sparse_stream<T, Index>::sparse(net.memory(), mine.dimension(), entries);
  };
  mixed_reader read(in, 2, block);
  auto others = empty(read.entries());
  read.read_entries(net, codec, block, entry_room<T, Index>{others.indices(), others.values()});
  auto alone = empty(read.read_number(mine.count()));
  auto shared = empty(read.read_number(mine.count() - alone.count()));
  if (others.count() + alone.count() + shared.count() != count)
    raise<corrupt_message>(
        {"an owner sent ", others.count() + alone.count() + shared.count(), " of the largest sums; expected ", count});
  read.read_set(net, {0, mine.count()}, alone.indices());
  read.read_set(net, {0, mine.count()}, shared.indices());
  read.read_values(net, components(shared.values()));
  read.check_end();
  for (std::size_t e = 0; e < alone.count(); ++e) {
    const std::size_t at = alone.indices()[e];
    alone.indices()[e] = mine.indices()[at];
    alone.values()[e] = mine.values()[at];
  }
  for (Index& at : shared.indices()) at = mine.indices()[at];
  const auto own = united(alone.view(), shared.view(), net.memory());
  return united(own.view(), others.view(), net.memory());
}

} // namespace detail

/// Returns, on every rank, the sums of all owners. This rank owns the sums `mine` of the entries that ranks have
/// exchanged (see pruned_exchange). The owner of block r has shares[r + 1] - shares[r] sums; all ranks pass the same P
/// + 1 `shares`.
///
/// A rank sends P - 1 messages. In place of the indices at which the receiver has an entry with a known value, a
/// message has the positions of these entries, and no values of sums to which only the receiver has contributed. Throws
/// `corrupt_message` if a message is malformed.
template <transport Net, element T, index_type Index, class Exchange>
task<sparse_stream<T, Index>> gather_winners(channel<Net> net, stream_view<T, Index> mine,
                                             std::span<const std::uint64_t> shares, const Exchange& exchange) {
  const rank_t p = net.size();
  pool& memory = net.memory();
  const auto& parts = exchange.parts();
  fixed_vector<mixed_message> out(memory, parts.size());
  all_to_all<Net, message_buffer> messages(net);
  buffer<std::uint32_t> contributors(memory, mine.count());
  buffer<std::size_t> places(memory, parts.size() * mine.count());
  detail::find_contributors(parts, mine.indices(), places.data(), contributors.data());
  for (rank_t i = 1; i < p; ++i) {
    const auto peer = static_cast<std::size_t>(messages.destination(i));
    messages.send(messages.destination(i),
                  detail::encode_winners(net, exchange.codec(), mine, exchange.owner()[net.rank()], parts[peer].count(),
                                         places.data() + peer * mine.count(), contributors.data(), out.emplace_back()));
  }
  const auto share = [&](rank_t r) {
    return shares[static_cast<std::size_t>(r) + 1] - shares[static_cast<std::size_t>(r)];
  };
  for (rank_t r = 0; r < p; ++r) {
    if (const std::uint64_t most = exchange.owner()[r].size(); share(r) > most)
      raise<corrupt_message>({"rank ", r, " reports ", share(r), " of the largest sums in a block of ", most,
                              " indices; expected at most one for each index"});
  }
  auto all = sparse_stream<T, Index>::sparse(memory, mine.dimension(), shares.back());
  all.write(shares[static_cast<std::size_t>(net.rank())], mine);
  for (rank_t i = 1; i < p; ++i) {
    const rank_t peer = messages.source(i);
    const sparse_stream<T, Index> known = exchange.known_to(peer);
    co_await messages.arrival(i);
    const auto sums =
        detail::decode_winners(net, exchange.codec(), messages[i], exchange.owner()[peer], share(peer), known.view());
    messages[i].release();
    all.write(shares[static_cast<std::size_t>(peer)], sums.view());
  }
  net.compute(all.count());
  for (auto& s : messages.end()) co_await s;
  co_return all;
}

} // namespace spar::inline v0_1
