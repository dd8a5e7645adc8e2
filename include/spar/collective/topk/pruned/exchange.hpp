// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A split phase in which ranks send all their indices, but only the values that are large. The owners then ask for the
// values that they need to know all large sums.
#pragma once

#include <spar/collective/allreduce/split.hpp>
#include <spar/collective/topk/pruned/sum_bounds.hpp>
#include <spar/collective/wire/all_to_all.hpp>
#include <spar/collective/wire/mixed_message.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/kernel/magnitude.hpp>
#include <spar/storage/kernel/merge.hpp>
#include <spar/topology/ownership.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spar {

/// What the ranks know of each other's entries after a split phase with `prune_and_reduce`. An entry is *small* if its
/// magnitude is below `floor`. An owner knows the values of all entries that are not small, and of the small entries
/// that it has asked for; these entries are *known*.
template <element T, index_type Index>
struct exchanged_slices {
  /// The entries of each rank in this rank's block. Those that are not known have been removed, except from the entries
  /// of this rank.
  fixed_vector<sparse_stream<T, Index>> parts;
  /// For each entry of this rank, whether its owner knows the value: 1, or else 0.
  buffer<std::uint8_t> is_known;
  kernel::magnitude<T> floor; ///< 0: no entry is small
  std::uint64_t asked = 0;    ///< the number of values that this rank, as an owner, has asked for

  /// For `ranks` ranks and `entries` entries of this rank.
  exchanged_slices(pool& memory, std::size_t ranks, std::size_t entries, kernel::magnitude<T> least)
      : parts(memory, ranks), is_known(memory, entries), floor(least) {}
  [[nodiscard]] bool is_small(T value) const noexcept { return kernel::magnitude_of(value) < floor; }
  [[nodiscard]] std::size_t count_small(std::span<const T> values) const noexcept {
    std::size_t count = 0;
    for (const T value : values) count += static_cast<std::size_t>(is_small(value));
    return count;
  }
};

namespace detail {

template <element T>
bool is_negative(T value) noexcept {
  return std::bit_cast<kernel::detail::bits_of<T>>(value) >> kernel::detail::top_bit<T> != 0;
}

/// The message of a slice: the entries that are not small, the indices of the positive and of the negative small ones,
/// and the least magnitude of a small one.
template <transport Net, class Codec, element T, index_type Index>
payload encode_slice(channel<Net> net, const Codec& codec, const stream_view<T, Index>& slice, index_range block,
                     kernel::magnitude<T> floor, mixed_message& out) {
  if constexpr (is_floating<T>) {
    if (floor > 0) {
      auto large = sparse_stream<T, Index>::sparse(net.memory(), slice.dimension(), slice.count());
      buffer<Index> small_indices[2] = {{net.memory(), slice.count()},
                                        {net.memory(), slice.count()}}; // positive, negative
      std::size_t larges = 0, smalls[2] = {0, 0};
      kernel::magnitude<T> least = floor;
      slice.for_each([&](Index i, T value) {
        const auto m = kernel::magnitude_of(value);
        large.indices()[larges] = i;
        large.values()[larges] = value;
        larges += static_cast<std::size_t>(m >= floor);
        for (const bool negative : {false, true}) {
          small_indices[negative].data()[smalls[negative]] = i;
          smalls[negative] += static_cast<std::size_t>(m < floor && is_negative(value) == negative);
        }
        least = std::min(least, m);
      });
      large.shrink(larges);
      const std::size_t room =
          kernel::coded_indices_bound<Index>(smalls[0]) + kernel::coded_indices_bound<Index>(smalls[1]);
      out.begin(net, codec, large.view().entries(), block, room);
      for (const bool negative : {false, true})
        out.add_set(net, std::as_const(small_indices[negative]).span().first(smalls[negative]), block.begin);
      out.add(least);
      return out.message();
    }
  }
  out.begin(net, codec, slice.entries(), block, 0);
  return out.message();
}

/// Returns the entries of `left` and `right`. Throws `corrupt_message` if both have an entry at an index.
template <element T, index_type Index>
sparse_stream<T, Index> united(const stream_view<T, Index>& left, const stream_view<T, Index>& right, pool& memory) {
  auto all = sparse_stream<T, Index>::sparse(memory, left.dimension(), left.count() + right.count());
  const std::size_t count =
      kernel::merge(left.entries(), right.entries(), all.indices().data(), all.values().data(), sum{});
  if (count != all.count())
    raise<corrupt_message>({"of ", all.count(), " indices in the sets of a message, only ", count, " are different"});
  return all;
}

/// Returns the entries in the message of a slice, the small ones with the largest magnitude below `floor`, and sets
/// `least` to the least magnitude that these may have.
template <transport Net, class Codec, element T, index_type Index>
sparse_stream<T, Index> decode_slice(channel<Net> net, const Codec& codec, const message_buffer& in, std::uint64_t n,
                                     index_range block, kernel::magnitude<T> floor, kernel::magnitude<T>& least) {
  const auto empty = [&](std::size_t count) { return sparse_stream<T, Index>::sparse(net.memory(), n, count); };
  mixed_reader read(in, floor == 0 ? 0 : 3, block);
  auto all = empty(read.entries());
  read.read_entries(net, codec, block, entry_room<T, Index>{all.indices(), all.values()});
  if constexpr (is_floating<T>) {
    for (const T value : std::as_const(all).values()) {
      if (kernel::magnitude_of(value) < floor)
        raise<corrupt_message>({"an entry with magnitude ", kernel::magnitude_of(value),
                                " arrived with its value; expected at least magnitude ", floor});
    }
    const auto most = static_cast<kernel::magnitude<T>>(floor - 1);
    for (const bool negative : {false, true}) {
      if (floor == 0) break;
      auto small_entries = empty(read.read_number(block.size() - all.count()));
      read.read_set(net, block, small_entries.indices());
      std::fill_n(small_entries.values().data(), small_entries.count(), with_magnitude<T>(most, negative));
      all = united(all.view(), small_entries.view(), net.memory());
    }
    const bool has_small = all.count() > read.entries();
    if (floor != 0) least = static_cast<kernel::magnitude<T>>(read.read_number(has_small ? most : floor));
  }
  read.finish();
  return all;
}

/// Sends each owner the slice of `mine` in its block, without the values of small entries, and receives the slices of
/// all ranks in this rank's block. Sets least[r] to the least magnitude of the small entries of rank r.
template <transport Net, element T, index_type Index, class Ownership, class Codec, class Quotas>
task<void> exchange_slices(channel<Net> net, stream_view<T, Index> mine, Ownership owner, Codec codec,
                           exchanged_slices<T, Index>& known, std::span<kernel::magnitude<T>> least, Quotas& quotas) {
  const index_range block = owner[net.rank()];
  const local::slices<Net, T, Index, Ownership> slice(mine, owner);
  fixed_vector<mixed_message> out(net.memory(), static_cast<std::size_t>(net.size() - 1));
  all_to_all<Net, message_buffer> messages(net);
  const bool withholds = quotas.withhold(slice);
  for (rank_t i = 1; i < net.size(); ++i) {
    const rank_t peer = messages.destination(i);
    messages.send(peer, withholds
                            ? withheld_slice()
                            : encode_slice(net, codec, slice[peer], owner[peer], known.floor, out.emplace_back()));
  }
  known.parts.clear();
  for (rank_t r = 0; r < net.size(); ++r) known.parts.emplace_back();
  known.parts[static_cast<std::size_t>(net.rank())] = sparse_stream<T, Index>::copy(net.memory(), slice[net.rank()]);
  for (std::size_t e = 0; e < known.is_known.size(); ++e)
    known.is_known.data()[e] = known.is_small(mine.values()[e]) ? 0 : 1;
  for (rank_t i = 1; i < net.size(); ++i) {
    const auto source = static_cast<std::size_t>(messages.source(i));
    co_await messages.arrival(i);
    if (!quotas.are_void(messages[i]))
      known.parts[source] = decode_slice<Net, Codec, T, Index>(net, codec, messages[i], mine.dimension(), block,
                                                               known.floor, least[source]);
    messages[i].release();
  }
  if (!quotas.withheld) quotas.count_received(known.parts);
  for (auto& s : messages.end()) co_await s;
}

/// Returns bounds of the sums at all indices at which a sum may reach the magnitude `known.floor`.
template <transport Net, element T, index_type Index, class Op>
sparse_stream<interval<T>, Index> sums_that_can_win(channel<Net> net, const exchanged_slices<T, Index>& known,
                                                    std::span<const kernel::magnitude<T>> least, index_range block,
                                                    Op op) {
  const std::size_t ranks = known.parts.size();
  const std::uint64_t n = known.parts[0].dimension();
  std::size_t entries = 0;
  for (const auto& part : known.parts) entries += part.count();
  buffer<interval<T>> intervals(net.memory(), entries);
  buffer<stream_view<interval<T>, Index>> views(net.memory(), ranks);
  interval<T>* to = intervals.data();
  for (std::size_t r = 0; r < ranks; ++r) {
    const kernel::magnitude<T> floor = r == static_cast<std::size_t>(net.rank()) ? 0 : known.floor;
    interval<T>* const first = to;
    for (const T value : known.parts[r].values()) {
      const auto m = kernel::magnitude_of(value);
      *to++ = interval_of<T>(is_negative(value), m < floor ? least[r] : m,
                             m < floor ? static_cast<kernel::magnitude<T>>(floor - 1) : m);
    }
    views.data()[r] = stream_view<interval<T>, Index>::sparse(n, known.parts[r].indices(), {first, to});
  }
  auto sums = sum_of_slices(net, std::span<const stream_view<interval<T>, Index>>(views.span()), n, block,
                            sum_of_intervals<Op>{op}, 2);
  keep_reaching(sums, known.floor);
  return sums;
}

/// Writes the positions of the small entries of `part` whose indices are in `listed`: those in `part` to `at`, those
/// among its small entries to `places`. Both have room for one position more than `part` has entries. Returns how many.
/// Like the other loops of this file, it has no branch that depends on entries, because no processor predicts it.
template <element T, index_type Index>
std::size_t find_small(const exchanged_slices<T, Index>& known, const stream_view<T, Index>& part,
                       std::span<const Index> listed, Index* at, Index* places) {
  std::size_t found = 0, e = 0, l = 0, smalls = 0;
  while (e < part.count() && l < listed.size()) {
    const Index here = part.indices()[e], there = listed[l];
    const auto below = static_cast<std::size_t>(known.is_small(part.values()[e]));
    at[found] = static_cast<Index>(e);
    places[found] = static_cast<Index>(smalls);
    found += below & static_cast<std::size_t>(here == there);
    smalls += below & static_cast<std::size_t>(here <= there);
    e += static_cast<std::size_t>(here <= there);
    l += static_cast<std::size_t>(there <= here);
  }
  return found;
}

/// Writes the magnitudes of the small entries of `slice` at `places`, which are positions among its small entries, and
/// sets is_known[e] to 1 for each of these entries.
template <element T, index_type Index>
void answer_request(const exchanged_slices<T, Index>& known, const stream_view<T, Index>& slice,
                    std::span<const Index> places, kernel::detail::number_of<T>* magnitudes, std::uint8_t* is_known) {
  std::size_t next = 0, smalls = 0;
  for (std::size_t e = 0; e < slice.count() && next < places.size(); ++e) {
    const bool below = known.is_small(slice.values()[e]), wanted = below && places[next] == smalls;
    magnitudes[next] = kernel::magnitude_of(slice.values()[e]);
    is_known[e] = static_cast<std::uint8_t>(wanted || !below);
    next += static_cast<std::size_t>(wanted);
    smalls += static_cast<std::size_t>(below);
  }
}

/// Gives the entries of `part` at the positions `asked` the magnitudes of an answer, and removes its other small
/// entries.
template <element T, index_type Index>
void take_answer(const exchanged_slices<T, Index>& known, sparse_stream<T, Index>& part, std::span<const Index> asked,
                 const kernel::detail::number_of<T>* magnitudes) {
  Index* const indices = part.indices().data();
  T* const values = part.values().data();
  std::size_t kept = 0, next = 0;
  for (std::size_t e = 0; e < part.count(); ++e) {
    const bool is_asked = next < asked.size() && asked[next] == e;
    const T value = values[e];
    indices[kept] = indices[e];
    values[kept] =
        is_asked ? with_magnitude<T>(static_cast<kernel::magnitude<T>>(magnitudes[next]), is_negative(value)) : value;
    kept += static_cast<std::size_t>(is_asked || !known.is_small(value));
    next += static_cast<std::size_t>(is_asked);
  }
  part.shrink(kept);
}

/// Asks all ranks for the values of their small entries at the indices `listed`, and answers the owners of this rank's
/// entries. Then removes the small entries that are not listed from the parts of other ranks. A request is the set of
/// the positions of the entries among all small entries of the slice; an answer has their magnitudes.
template <transport Net, element T, index_type Index, class Ownership>
task<void> fetch_values(channel<Net> net, stream_view<T, Index> mine, Ownership owner, std::span<const Index> listed,
                        exchanged_slices<T, Index>& known, std::span<const kernel::magnitude<T>> least) {
  using number = kernel::detail::number_of<T>;
  const rank_t p = net.size();
  pool& memory = net.memory();
  const local::slices<Net, T, Index, Ownership> slice(mine, owner);
  fixed_vector<mixed_message> out(memory, 2 * static_cast<std::size_t>(p - 1));
  all_to_all<Net, message_buffer> requests(net), answers(net);
  fixed_vector<buffer<Index>> asked(memory, known.parts.size()); // of each rank: the positions in its part
  buffer<std::size_t> counts(memory, known.parts.size());        // of these positions
  for (rank_t r = 0; r < p; ++r) asked.emplace_back();

  for (rank_t i = 1; i < p; ++i) {
    const auto peer = static_cast<std::size_t>(requests.destination(i));
    const auto part = std::as_const(known.parts[peer]).view();
    asked[peer] = buffer<Index>(memory, part.count() + 1);
    buffer<Index> places(memory, part.count() + 1);
    const std::size_t count = find_small(known, part, listed, asked[peer].data(), places.data());
    counts.data()[peer] = count;
    known.asked += count;
    mixed_message& request = out.emplace_back();
    request.begin(net, kernel::coded_indices_bound<Index>(count));
    request.add_set(net, std::as_const(places).span().first(count), 0);
    requests.send(requests.destination(i), request.message());
  }
  for (rank_t i = 1; i < p; ++i) {
    const rank_t peer = requests.source(i);
    const auto its = slice[peer];
    const auto first = static_cast<std::size_t>(its.indices().data() - mine.indices().data());
    const std::uint64_t smalls = known.count_small(its.values());
    co_await requests.arrival(i);
    mixed_reader read(requests[i], 1, {});
    buffer<Index> places(memory, read.read_number(smalls));
    read.read_set(net, {0, smalls}, places.span());
    read.finish();
    requests[i].release();
    buffer<number> magnitudes(memory, places.size());
    answer_request(known, its, std::as_const(places).span(), magnitudes.data(), known.is_known.data() + first);
    mixed_message& reply = out.emplace_back();
    reply.begin(net, kernel::coded_values_bound<number>(magnitudes.size()));
    reply.add_values(net, std::as_const(magnitudes).span());
    answers.send(peer, reply.message());
  }
  for (rank_t i = 1; i < p; ++i) {
    const auto peer = static_cast<std::size_t>(answers.source(i));
    co_await answers.arrival(i);
    const auto positions = std::as_const(asked[peer]).span().first(counts.data()[peer]);
    buffer<number> magnitudes(memory, positions.size());
    mixed_reader read(answers[i], 0, {});
    read.read_values(net, magnitudes.span());
    read.finish();
    answers[i].release();
    for (const number m : std::as_const(magnitudes).span()) {
      if (m < least[peer] || m >= known.floor)
        raise<corrupt_message>({"the magnitude ", m, " arrived in an answer; expected at least ", least[peer],
                                " and less than ", known.floor});
    }
    take_answer(known, known.parts[peer], positions, magnitudes.data());
  }
  for (auto& s : requests.end()) co_await s;
  for (auto& s : answers.end()) co_await s;
}

/// Keeps only the entries whose indices are `listed`, which must all be indices of `entries`.
template <element T, index_type Index>
void keep_listed(sparse_stream<T, Index>& entries, std::span<const Index> listed) {
  std::size_t kept = 0;
  for (std::size_t e = 0; e < entries.count() && kept < listed.size(); ++e) {
    entries.indices()[kept] = entries.indices()[e];
    entries.values()[kept] = entries.values()[e];
    kept += static_cast<std::size_t>(entries.indices()[e] == listed[kept]);
  }
  entries.shrink(kept);
}

} // namespace detail

/// Sends each owner the indices of the slice of `mine` in the owner's block, and the values that are not small. Returns
/// all sums of this rank's block whose magnitude reaches `known.floor`, and maybe others, with the bits that
/// split_sparse gives them. If `known.floor` is 0, returns all sums; it must be 0 unless `detail::is_monotone<T, Op>`.
///
/// An owner first computes bounds of all sums (see detail::is_monotone) and then asks for the values that the sums that
/// may reach the floor need. A rank sends P - 1 slices and, if `known.floor` is not 0, P - 1 requests and P - 1
/// answers. Ranks may withhold their slices because of `quotas` (see split_sparse). Throws `corrupt_message` if a
/// message is malformed, or asks for values that it cannot ask for.
template <transport Net, element T, index_type Index, class Ownership, reduction<T> Op, class Codec,
          class Quotas = const detail::no_quotas>
task<sparse_stream<T, Index>> prune_and_reduce(channel<Net> net, stream_view<T, Index> mine, Ownership owner, Op op,
                                               Codec codec, exchanged_slices<T, Index>& known,
                                               Quotas& quotas = detail::unlimited) {
  const auto ranks = static_cast<std::size_t>(net.size());
  const index_range block = owner[net.rank()];
  buffer<kernel::magnitude<T>> least(net.memory(), ranks);
  co_await detail::exchange_slices(net, mine, owner, codec, known, least.span(), quotas);
  if (quotas.withheld) co_return sparse_stream<T, Index>();
  sparse_stream<interval<T>, Index> winners;
  if constexpr (detail::is_monotone<T, Op>) {
    const std::span<const kernel::magnitude<T>> bounds(least.span());
    if (known.floor > 0) {
      winners = detail::sums_that_can_win(net, known, bounds, block, op);
      co_await detail::fetch_values(net, mine, owner, std::as_const(winners).indices(), known, bounds);
    }
  }
  buffer<stream_view<T, Index>> views(net.memory(), ranks);
  for (std::size_t r = 0; r < ranks; ++r) views.data()[r] = std::as_const(known.parts[r]).view();
  auto sums =
      detail::sum_of_slices(net, std::span<const stream_view<T, Index>>(views.span()), mine.dimension(), block, op);
  if (known.floor > 0) detail::keep_listed(sums, std::as_const(winners).indices());
  co_return sums;
}

} // namespace spar
