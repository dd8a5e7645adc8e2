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

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

template <element T>
bool is_negative(T value) noexcept {
  return std::bit_cast<kernel::detail::bits_of<T>>(value) >> kernel::detail::top_bit<T> != 0;
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

/// An exchange of the entries `mine` of each rank with the owners of their indices. An entry is *small* if its
/// magnitude is below `floor`. An owner knows the values of all entries that are not small, and of the small entries
/// that it has asked for; these entries are *known*. The floor is 0, so that no entry is small, unless
/// `detail::is_monotone<T, Op>`.
template <transport Net, element T, index_type Index, class Ownership, class Codec>
class pruned_exchange {
  using entries = sparse_stream<T, Index>;
  using magnitude = kernel::magnitude<T>;
  using number = kernel::detail::number_of<T>;

 public:
  /// Refers to the entries `mine`; `codec` encodes what is sent as entries.
  pruned_exchange(channel<Net> net, stream_view<T, Index> mine, Ownership owner, Codec codec, magnitude floor)
      : net_(net), mine_(mine), owner_(owner), codec_(codec), slices_(mine, owner), floor_(floor),
        parts_(net.memory(), static_cast<std::size_t>(net.size())), is_known_(net.memory(), mine.count()),
        least_(net.memory(), static_cast<std::size_t>(net.size())) {
    for (rank_t r = 0; r < net.size(); ++r) parts_.emplace_back();
  }

  // The members are coroutines of the call (see task).
  [[nodiscard]] spar::scheduler& scheduler() const noexcept { return net_.scheduler(); }
  [[nodiscard]] detail::call_error& call_error() const noexcept { return net_.call_error(); }

  /// The magnitude below which entries are small.
  [[nodiscard]] magnitude floor() const noexcept { return floor_; }
  /// Sends all values from now on.
  void send_all() noexcept { floor_ = 0; }
  /// The number of values that this rank, as an owner, has asked for.
  [[nodiscard]] std::uint64_t asked() const noexcept { return asked_; }
  /// The entries of each rank in this rank's block. Those that are not known have been removed, except from the entries
  /// of this rank.
  [[nodiscard]] const fixed_vector<entries>& parts() const noexcept { return parts_; }
  [[nodiscard]] const Ownership& owner() const noexcept { return owner_; }
  [[nodiscard]] const Codec& codec() const noexcept { return codec_; }

  /// Returns the entries of this rank in the block of the rank r whose values r knows.
  [[nodiscard]] entries known_to(rank_t r) const {
    const stream_view<T, Index> slice = slices_[r];
    const std::uint8_t* const known = is_known_.data() + position_of(slice);
    auto all = entries::sparse(net_.memory(), slice.dimension(), slice.count());
    std::size_t kept = 0;
    for (std::size_t e = 0; e < slice.count(); ++e) {
      all.indices()[kept] = slice.indices()[e];
      all.values()[kept] = slice.values()[e];
      kept += known[e];
    }
    all.shrink(kept);
    return all;
  }

  /// Sends each owner the indices of this rank's slice in the owner's block, and the values that are not small. Returns
  /// all sums of this rank's block whose magnitude reaches the floor, and maybe others, with the bits that split_sparse
  /// gives them. If the floor is 0, returns all sums.
  ///
  /// An owner first computes bounds of all sums (see detail::is_monotone) and then asks for the values that the sums
  /// that may reach the floor need. A rank sends P - 1 slices and, if the floor is not 0, P - 1 requests and P - 1
  /// answers. Ranks may withhold their slices because of `quotas` (see split_sparse). Throws `corrupt_message` if a
  /// message is malformed, or asks for values that it cannot ask for.
  template <class Op, class Quotas = const detail::no_quotas>
  task<entries> reduce(Op op, Quotas& quotas = detail::unlimited) {
    co_await exchange_slices(quotas);
    if (quotas.withheld) co_return entries();
    sparse_stream<interval<T>, Index> winners;
    if constexpr (detail::is_monotone<T, Op>) {
      if (floor_ > 0) {
        winners = sums_that_can_win(op);
        co_await fetch_values(std::as_const(winners).indices());
      }
    }
    buffer<stream_view<T, Index>> views(net_.memory(), parts_.size());
    for (std::size_t r = 0; r < parts_.size(); ++r) views.data()[r] = std::as_const(parts_[r]).view();
    const std::span<const stream_view<T, Index>> all = std::as_const(views).span();
    auto sums = detail::sum_of_slices(net_, all, mine_.dimension(), owner_[net_.rank()], op);
    if (floor_ > 0) detail::keep_listed(sums, std::as_const(winners).indices());
    co_return sums;
  }

 private:
  [[nodiscard]] bool is_small(T value) const noexcept { return kernel::magnitude_of(value) < floor_; }
  /// Where a slice of this rank's entries begins.
  [[nodiscard]] std::size_t position_of(const stream_view<T, Index>& slice) const noexcept {
    return static_cast<std::size_t>(slice.indices().data() - mine_.indices().data());
  }

  /// Sends each owner its slice without the values of small entries, and receives the slices of all ranks in this
  /// rank's block. Sets least_[r] to the least magnitude of the small entries of rank r.
  template <class Quotas>
  task<void> exchange_slices(Quotas& quotas) {
    fixed_vector<mixed_message> out(net_.memory(), parts_.size());
    all_to_all<Net, message_buffer> messages(net_);
    const bool withholds = quotas.withhold(slices_);
    for (rank_t i = 1; i < net_.size(); ++i) {
      const rank_t peer = messages.destination(i);
      messages.send(peer, withholds ? detail::withheld_slice() : encode_slice(peer, out.emplace_back()));
    }
    parts_[static_cast<std::size_t>(net_.rank())] = entries::copy(net_.memory(), slices_[net_.rank()]);
    for (std::size_t e = 0; e < is_known_.size(); ++e) is_known_.data()[e] = is_small(mine_.values()[e]) ? 0 : 1;
    for (rank_t i = 1; i < net_.size(); ++i) {
      const auto source = static_cast<std::size_t>(messages.source(i));
      co_await messages.arrival(i);
      if (!quotas.are_void(messages[i])) parts_[source] = decode_slice(messages[i], least_.data()[source]);
      messages[i].release();
    }
    if (!quotas.withheld) quotas.count_received(parts_);
    for (auto& s : messages.end()) co_await s;
  }

  /// The message of the slice for `peer`: the entries that are not small, the indices of the positive and of the
  /// negative small ones, and the least magnitude of a small one.
  payload encode_slice(rank_t peer, mixed_message& out) const {
    const stream_view<T, Index> slice = slices_[peer];
    const index_range block = owner_[peer];
    if constexpr (is_floating<T>) {
      if (floor_ > 0) {
        auto large = entries::sparse(net_.memory(), slice.dimension(), slice.count());
        buffer<Index> small_indices[2] = {{net_.memory(), slice.count()},
                                          {net_.memory(), slice.count()}}; // positive, negative
        std::size_t larges = 0, smalls[2] = {0, 0};
        magnitude least = floor_;
        slice.for_each([&](Index i, T value) {
          const auto m = kernel::magnitude_of(value);
          large.indices()[larges] = i;
          large.values()[larges] = value;
          larges += static_cast<std::size_t>(m >= floor_);
          for (const bool negative : {false, true}) {
            small_indices[negative].data()[smalls[negative]] = i;
            smalls[negative] += static_cast<std::size_t>(m < floor_ && detail::is_negative(value) == negative);
          }
          least = std::min(least, m);
        });
        large.shrink(larges);
        const std::size_t room =
            kernel::coded_indices_bound<Index>(smalls[0]) + kernel::coded_indices_bound<Index>(smalls[1]);
        out.begin(net_, codec_, large.view().entries(), block, room);
        for (const bool negative : {false, true})
          out.add_set(net_, std::as_const(small_indices[negative]).span().first(smalls[negative]), block.begin);
        out.add(least);
        return out.message();
      }
    }
    out.begin(net_, codec_, slice.entries(), block, 0);
    return out.message();
  }

  /// Returns the entries in the message of a slice, the small ones with the largest magnitude below the floor, and sets
  /// `least` to the least magnitude that these may have.
  entries decode_slice(const message_buffer& in, magnitude& least) const {
    const index_range block = owner_[net_.rank()];
    const auto empty = [&](std::size_t count) { return entries::sparse(net_.memory(), mine_.dimension(), count); };
    mixed_reader read(in, floor_ == 0 ? 0 : 3, block);
    auto all = empty(read.entries());
    read.read_entries(net_, codec_, block, entry_room<T, Index>{all.indices(), all.values()});
    if constexpr (is_floating<T>) {
      for (const T value : std::as_const(all).values()) {
        if (is_small(value))
          raise<corrupt_message>({"an entry with magnitude ", kernel::magnitude_of(value),
                                  " arrived with its value; expected at least magnitude ", floor_});
      }
      const auto most = static_cast<magnitude>(floor_ - 1);
      for (const bool negative : {false, true}) {
        if (floor_ == 0) break;
        auto small_entries = empty(read.read_number(block.size() - all.count()));
        read.read_set(net_, block, small_entries.indices());
        std::fill_n(small_entries.values().data(), small_entries.count(), detail::with_magnitude<T>(most, negative));
        all = detail::united(all.view(), small_entries.view(), net_.memory());
      }
      const bool has_small = all.count() > read.entries();
      if (floor_ != 0) least = static_cast<magnitude>(read.read_number(has_small ? most : floor_));
    }
    read.check_end();
    return all;
  }

  /// Returns bounds of the sums at all indices at which a sum may reach the floor.
  template <class Op>
  sparse_stream<interval<T>, Index> sums_that_can_win(Op op) const {
    const std::uint64_t n = mine_.dimension();
    std::size_t count = 0;
    for (const auto& part : parts_) count += part.count();
    buffer<interval<T>> intervals(net_.memory(), count);
    buffer<stream_view<interval<T>, Index>> views(net_.memory(), parts_.size());
    interval<T>* to = intervals.data();
    for (std::size_t r = 0; r < parts_.size(); ++r) {
      const magnitude floor = r == static_cast<std::size_t>(net_.rank()) ? 0 : floor_;
      interval<T>* const first = to;
      for (const T value : parts_[r].values()) {
        const auto m = kernel::magnitude_of(value);
        *to++ = detail::interval_of<T>(detail::is_negative(value), m < floor ? least_.data()[r] : m,
                                       m < floor ? static_cast<magnitude>(floor - 1) : m);
      }
      views.data()[r] = stream_view<interval<T>, Index>::sparse(n, parts_[r].indices(), {first, to});
    }
    auto sums = detail::sum_of_slices(net_, std::span<const stream_view<interval<T>, Index>>(views.span()), n,
                                      owner_[net_.rank()], detail::sum_of_intervals<Op>{op}, 2);
    detail::keep_reaching(sums, floor_);
    return sums;
  }

  /// Asks all ranks for the values of their small entries at the indices `listed`, and answers the owners of this
  /// rank's entries. Then removes the small entries that are not listed from the parts of other ranks. A request is the
  /// set of the positions of the entries among all small entries of the slice; an answer has their magnitudes.
  task<void> fetch_values(std::span<const Index> listed) {
    const rank_t p = net_.size();
    pool& memory = net_.memory();
    fixed_vector<mixed_message> out(memory, 2 * parts_.size());
    all_to_all<Net, message_buffer> requests(net_), answers(net_);
    fixed_vector<buffer<Index>> asked(memory, parts_.size()); // of each rank: the positions in its part
    buffer<std::size_t> counts(memory, parts_.size());        // of these positions
    for (rank_t r = 0; r < p; ++r) asked.emplace_back();

    for (rank_t i = 1; i < p; ++i) {
      const auto peer = static_cast<std::size_t>(requests.destination(i));
      const auto part = std::as_const(parts_[peer]).view();
      asked[peer] = buffer<Index>(memory, part.count() + 1);
      buffer<Index> places(memory, part.count() + 1);
      const std::size_t count = find_small(part, listed, asked[peer].data(), places.data());
      counts.data()[peer] = count;
      asked_ += count;
      mixed_message& request = out.emplace_back();
      request.begin(net_, kernel::coded_indices_bound<Index>(count));
      request.add_set(net_, std::as_const(places).span().first(count), 0);
      requests.send(requests.destination(i), request.message());
    }
    for (rank_t i = 1; i < p; ++i) {
      const stream_view<T, Index> slice = slices_[requests.source(i)];
      std::uint64_t smalls = 0;
      for (const T value : slice.values()) smalls += static_cast<std::uint64_t>(is_small(value));
      co_await requests.arrival(i);
      mixed_reader read(requests[i], 1, {});
      buffer<Index> places(memory, read.read_number(smalls));
      read.read_set(net_, {0, smalls}, places.span());
      read.check_end();
      requests[i].release();
      buffer<number> magnitudes(memory, places.size());
      answer_request(slice, std::as_const(places).span(), magnitudes.data());
      mixed_message& reply = out.emplace_back();
      reply.begin(net_, kernel::coded_values_bound<number>(magnitudes.size()));
      reply.add_values(net_, std::as_const(magnitudes).span());
      answers.send(requests.source(i), reply.message());
    }
    for (rank_t i = 1; i < p; ++i) {
      const auto peer = static_cast<std::size_t>(answers.source(i));
      co_await answers.arrival(i);
      const auto positions = std::as_const(asked[peer]).span().first(counts.data()[peer]);
      buffer<number> magnitudes(memory, positions.size());
      mixed_reader read(answers[i], 0, {});
      read.read_values(net_, magnitudes.span());
      read.check_end();
      answers[i].release();
      for (const number m : std::as_const(magnitudes).span()) {
        if (m < least_.data()[peer] || m >= floor_)
          raise<corrupt_message>({"the magnitude ", m, " arrived in an answer; expected at least ", least_.data()[peer],
                                  " and less than ", floor_});
      }
      take_answer(parts_[peer], positions, magnitudes.data());
    }
    for (auto& s : requests.end()) co_await s;
    for (auto& s : answers.end()) co_await s;
  }

  /// Writes the positions of the small entries of `part` whose indices are in `listed`: those in `part` to `at`, those
  /// among its small entries to `places`. Both have room for one position more than `part` has entries. Returns how
  /// many. Like the other loops of this file, it has no branch that depends on entries, because no processor predicts
  /// it.
  std::size_t find_small(const stream_view<T, Index>& part, std::span<const Index> listed, Index* at,
                         Index* places) const {
    std::size_t found = 0, e = 0, l = 0, smalls = 0;
    while (e < part.count() && l < listed.size()) {
      const Index here = part.indices()[e], there = listed[l];
      const auto below = static_cast<std::size_t>(is_small(part.values()[e]));
      at[found] = static_cast<Index>(e);
      places[found] = static_cast<Index>(smalls);
      found += below & static_cast<std::size_t>(here == there);
      smalls += below & static_cast<std::size_t>(here <= there);
      e += static_cast<std::size_t>(here <= there);
      l += static_cast<std::size_t>(there <= here);
    }
    return found;
  }

  /// Writes the magnitudes of the small entries of `slice` at `places`, which are positions among its small entries,
  /// and notes that their owner knows these entries.
  void answer_request(const stream_view<T, Index>& slice, std::span<const Index> places, number* magnitudes) {
    std::uint8_t* const is_known = is_known_.data() + position_of(slice);
    std::size_t next = 0, smalls = 0;
    for (std::size_t e = 0; e < slice.count() && next < places.size(); ++e) {
      const bool below = is_small(slice.values()[e]), wanted = below && places[next] == smalls;
      magnitudes[next] = kernel::magnitude_of(slice.values()[e]);
      is_known[e] = static_cast<std::uint8_t>(wanted || !below);
      next += static_cast<std::size_t>(wanted);
      smalls += static_cast<std::size_t>(below);
    }
  }

  /// Gives the entries of `part` at the positions `asked` the magnitudes of an answer, and removes its other small
  /// entries.
  void take_answer(entries& part, std::span<const Index> asked, const number* magnitudes) const {
    Index* const indices = part.indices().data();
    T* const values = part.values().data();
    std::size_t kept = 0, next = 0;
    for (std::size_t e = 0; e < part.count(); ++e) {
      const bool is_asked = next < asked.size() && asked[next] == e;
      const T value = values[e];
      indices[kept] = indices[e];
      values[kept] =
          is_asked ? detail::with_magnitude<T>(static_cast<magnitude>(magnitudes[next]), detail::is_negative(value))
                   : value;
      kept += static_cast<std::size_t>(is_asked || !is_small(value));
      next += static_cast<std::size_t>(is_asked);
    }
    part.shrink(kept);
  }

  channel<Net> net_;
  stream_view<T, Index> mine_;
  Ownership owner_;
  Codec codec_;
  owners_slices<T, Index, Ownership> slices_; // of this rank's entries, one for each owner
  magnitude floor_;
  fixed_vector<entries> parts_;
  buffer<std::uint8_t> is_known_; // for each entry of this rank, whether its owner knows the value: 1, or else 0
  buffer<magnitude> least_;       // of each rank: the least magnitude of its small entries in this rank's block
  std::uint64_t asked_ = 0;
};

} // namespace spar::inline v0_1
