// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces of dense values in which each value passes two encodings, or one, for any number of ranks: two-shot
// (QuickReduce; COCCL, PPoPP 2026) and one-shot.
#pragma once

#include <spar/collective/wire/all_to_all.hpp>
#include <spar/collective/wire/encode_pipeline.hpp>
#include <spar/collective/wire/piece_coder.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/op.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/row.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/kernel/dense.hpp>
#include <spar/storage/kernel/short_floats.hpp>
#include <spar/storage/storage.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// For schedules that send dense values and never entries: returns the reason for rejecting `Storage`, or
/// `nothing_against()` if `Storage` is a block codec.
template <class Storage>
auto accepts_values_alone() {
  if constexpr (has_stream_codec<Storage>)
    return because<"this schedule sends dense values and never entries: use a block codec such as qsgd, or none">();
  else
    return nothing_against();
}

/// Runs `piece(net, i)` for i = first, first + step, ... below `count`, one after the other.
template <transport Net, class Piece>
task<void> in_lane(channel<Net> net, std::size_t first, std::size_t step, std::size_t count, Piece piece) {
  for (std::size_t i = first; i < count; i += step) {
    auto running = piece(net, i);
    co_await std::move(running);
  }
}
/// Runs `piece(lane, i)` for each i below `count`, in order on each of four lanes: while the messages of one piece are
/// in flight, this rank encodes and decodes others.
template <transport Net, class Piece>
task<void> in_lanes(channel<Net> net, std::size_t count, Piece piece) {
  constexpr std::size_t lanes = 4;
  fixed_vector<task<void>> running(net.memory(), lanes);
  for (std::size_t l = 0; l < std::min(lanes, count); ++l)
    running.push_back(in_lane(net.lane(static_cast<std::uint8_t>(l)), l, lanes, count, piece));
  for (auto& lane : running) co_await until_ended<task<void>>(lane);
  for (auto& lane : running) lane.result();
}

/// A sum of values of 16 bits, or of rows of them, that are added as floats; only the result is rounded. No device has
/// such values.
template <element T>
class float_sum {
 public:
  float_sum() = default;
  float_sum(pool& memory, std::size_t n) : total_(memory, n * width), operand_(memory, n * width) {}
  void start(std::span<const T> values) { decode(values, total_); }
  template <class Op>
  void add(std::span<const T> values, Op op) {
    decode(values, operand_);
    kernel::reduce(total_.data(), std::as_const(operand_).data(), total_.size(), op);
  }
  void round(std::span<T> out) const {
    kernel::encode_short<code>(total_.data(), total_.size(), std::as_writable_bytes(out).data());
  }

 private:
  static constexpr std::size_t width = is_row<T> ? width_of<T> : 1;
  using code =
      std::conditional_t<code_of<component_of<T>> == element_code::float16, kernel::half_code, kernel::bfloat16_code>;
  static void decode(std::span<const T> values, buffer<float>& to) {
    kernel::decode_short<code>(std::as_bytes(values).data(), to.size(), to.data());
  }

  buffer<float> total_, operand_;
};

/// Reduces one message of each rank of `group`, in the order of ranks, to `sum`. The messages of the other ranks are
/// `theirs`, and that of this rank is `own`. Values of 16 bits are added as floats, and only the sum is rounded; no
/// device has such values.
template <transport Net, element T, reduction<T> Op, class Codec>
task<void> reduce_in_order(channel<Net> net, rank_group group, piece_coder<Net, Codec> coder,
                           all_to_all<Net, message_buffer>* theirs, payload own, std::span<T> sum, Op op,
                           std::span<T> scratch) {
  constexpr bool in_float = adds<Op> && is_floating<component_of<T>> && sizeof(component_of<T>) == 2;
  [[maybe_unused]] std::conditional_t<in_float, float_sum<T>, bool> total{};
  if constexpr (in_float) total = float_sum<T>(net.memory(), sum.size());
  for (rank_t r = 0; r < group.count; ++r) {
    const rank_t i = (group.position(net.rank()) + group.count - r) % group.count; // group[r] is the i-th source
    payload message = own;
    if (i > 0) {
      co_await theirs->arrival(i);
      message = coder.template arrived<T>((*theirs)[i], sum.size());
    }
    if constexpr (in_float) {
      const std::span<T> decoded = scratch.first(sum.size());
      coder.decode(message, decoded);
      r == 0 ? total.start(decoded) : total.add(decoded, op);
    } else if (r == 0) {
      coder.decode(message, sum);
    } else {
      coder.reduce(message, sum, op, scratch);
    }
    if (r > 0) net.compute(sum.size());
    if (i > 0) (*theirs)[i].release();
  }
  if constexpr (in_float) total.round(sum);
}

} // namespace detail

/// Allreduce of dense values in two hops. In the first, each rank encodes the blocks of the other ranks (see
/// uniform_ownership) and sends each block to its owner. The owner adds the decoded blocks, and its own values as they
/// are, in the order of ranks: values of 16 bits as floats, whose sum is rounded once. In the second hop, the owner
/// encodes the sum once and sends it to all other ranks. All ranks, also the owner, use the decoded values, so all
/// ranks have the same bits.
///
/// If P > 1, a rank encodes P blocks, decodes 2 P - 1 blocks, and sends 2 (P - 1) / P times the bytes of the encoded
/// vector, as the ring does, in 2 (P - 1) messages. Blocks are sent in pieces of `piece` values, each of which is a
/// message: while a piece is encoded or decoded, up to three others of each block are in flight.
///
/// At each index, |result - exact sum| is at most e (S - s + m). Here, e is the codec's relative error, S is the sum,
/// over all ranks, of the largest |value| in the codec's block that contains the index, s is the owner's part of S, and
/// m is the largest |value| of the owner's sum in this block, at most (1 + e) S. So the bound is below ((1 + e)^2 - 1)
/// S for any number of ranks.
struct two_shot {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "two_shot";
  /// Whether dense values may be in any memory: all work on them is that of `channel::work`.
  template <class Storage>
  static constexpr bool values_anywhere = true;
  static constexpr bool whole_pieces = true; ///< pieces begin at multiples of a codec's grain

  std::uint64_t piece = 32768; ///< number of dense values that a block codec encodes at a time

  template <class Selector, class Storage, class Topology>
  static auto accepts() {
    return detail::accepts_values_alone<Storage>();
  }
  /// Throws `invalid_argument` if `piece` is 0.
  void validate(std::uint64_t) const { detail::check_piece(piece); }
  void options(auto&& f) const { f("piece", piece); }

  /// The largest number of successive encodings of a rank's dense values on their way to the result.
  [[nodiscard]] static constexpr std::int64_t encodings(rank_t ranks) noexcept { return ranks > 1 ? 2 : 0; }
  /// The largest number of additions that a rank's values pass on their way to the result.
  [[nodiscard]] static constexpr std::int64_t additions(rank_t ranks) noexcept { return ranks - 1; }

  /// Allreduce of dense values in place. Adds the rounding errors of this rank's encodings to `residual`, unless
  /// `residual` is empty.
  template <transport Net, element T, reduction<T> Op, class Storage>
    requires block_codec<storage::blocks_type<Storage>, T>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op, Storage store, residual_view<T> residual = {}) const& {
    if (net.size() == 1) co_return;
    const auto codec = storage::blocks_of(store);
    const piece_coder coder(net, codec, piece);
    const std::uint64_t length = coder.template message_values<T>();
    const std::size_t count = detail::pieces_of{coder.blocks(x.size(), net.size())[0], length}.count();
    const auto one_piece = [=](channel<Net> lane, std::size_t i) {
      return reduce_piece(lane, rank_group{.count = lane.size()}, x, 0, op, coder, length, i, residual);
    };
    co_await detail::in_lanes(net, count, one_piece);
  }

  /// Allreduce of dense values in place, over a topology with hosts. The vector has as many parts as the smallest host
  /// has ranks, and each part has an owner among the first ranks of each host. The ranks of a host send their values as
  /// they are to the owners, which sum them in the order of ranks. The owners of the same part then reduce it in two
  /// shots, so that only messages between hosts are encoded, and send the result to the ranks of their host. At each
  /// index, the error is that of two shots among the sums of the hosts.
  template <transport Net, class Topology, element T, reduction<T> Op, class Storage>
    requires(block_codec<storage::blocks_type<Storage>, T> && requires(const Topology& over) { over.hosts(); })
  task<void> operator()(channel<Net> net, const Topology& over, std::span<T> x, Op op, Storage store,
                        residual_view<T> residual) const& {
    const channel<Net> ordered = net.in_order(over.order());
    const std::span<const rank_t> hosts = over.hosts();
    return hosts.size() > static_cast<std::size_t>(net.size()) ? (*this)(ordered, x, op, store, residual)
                                                               : among_hosts(ordered, hosts, x, op, store, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

 private:
  /// Reduces piece i of the block of each rank of `group`. Blocks have the same number of pieces, of which the last may
  /// be empty. The index of x[0] is `first`.
  template <transport Net, element T, class Op, class Codec>
  static task<void> reduce_piece(channel<Net> net, rank_group group, std::span<T> x, std::uint64_t first, Op op,
                                 piece_coder<Net, Codec> coder, std::uint64_t length, std::size_t i,
                                 residual_view<T> residual) {
    const auto owner = coder.blocks(x.size(), group.count);
    const auto range_of = [&](rank_t r) { return detail::pieces_of{owner[group.position(r)], length}[i]; };
    const auto part = [x](index_range range) { return x.subspan(range.begin, range.size()); };
    const index_range own = range_of(net.rank());
    fixed_vector<buffer<std::byte>> rooms(net.memory(), static_cast<std::size_t>(group.count));
    buffer<T> total(net.work().memory(), own.size());
    buffer<T> scratch(net.work().memory(), range_of(group[0]).size());

    all_to_all<Net, message_buffer> to_owners(net, group);
    for (rank_t k = 1; k < group.count; ++k) {
      const rank_t peer = to_owners.destination(k);
      const index_range range = range_of(peer);
      const std::span<const T> values = part(range);
      auto& room = rooms.emplace_back();
      const auto step = step_of(0, net.rank()); // differs between ranks, so that ranks round independently
      const payload message = co_await coder.message(values, first + range.begin, step, room, residual);
      to_owners.send(peer, message);
      coder.keep_error(message, values, first + range.begin, residual, scratch.span());
    }

    const payload mine{wire_format::dense, own.size(), {std::as_bytes(part(own))}};
    const std::span<T> sum = total.span();
    co_await detail::reduce_in_order(net, group, coder, &to_owners, mine, sum, op, scratch.span());
    all_to_all<Net, message_buffer> from_owners(net, group);
    auto& room = rooms.emplace_back();
    const payload message = co_await coder.message(std::span<const T>(sum), first + own.begin, 0, room, residual);
    from_owners.send_to_all(message);
    coder.keep_error(message, std::span<const T>(sum), first + own.begin, residual, scratch.span());
    coder.decode(message, part(own));

    for (rank_t k = 1; k < group.count; ++k) {
      const std::span<T> block = part(range_of(from_owners.source(k)));
      co_await from_owners.arrival(k);
      coder.decode(coder.template arrived<T>(from_owners[k], block.size()), block);
      from_owners[k].release();
    }
    for (auto& sending : to_owners.end()) co_await sending;
    for (auto& sending : from_owners.end()) co_await sending;
  }

  /// Allreduce of `x` on hosts that begin at the ranks `hosts`, of which the last is the number of ranks.
  template <transport Net, element T, class Op, class Storage>
  task<void> among_hosts(channel<Net> net, std::span<const rank_t> hosts, std::span<T> x, Op op, Storage store,
                         residual_view<T> residual) const& {
    const auto codec = storage::blocks_of(store);
    const piece_coder coder(net, codec, piece);
    const std::uint64_t length = coder.template message_values<T>();
    const rank_t parts = smallest_host(hosts);
    const std::uint64_t blocks = static_cast<std::uint64_t>(parts) * (hosts.size() - 1);
    const detail::pieces_of cuts{{0, x.size()},
                                 length > x.size() / blocks ? std::max<std::uint64_t>(x.size(), 1) : length * blocks};
    const auto one_cut = [=](channel<Net> lane, std::size_t i) {
      return reduce_cut(lane, hosts, parts, x.subspan(cuts[i].begin, cuts[i].size()), cuts[i].begin, op, coder,
                        residual);
    };
    co_await detail::in_lanes(net, cuts.count(), one_cut);
  }

  /// Reduces `x`, whose first value has the index `first`, in `parts` parts: the owners of a part on each host sum the
  /// host's values, reduce the sums in two shots, and send the result to the ranks of their host.
  template <transport Net, element T, class Op, class Codec>
  static task<void> reduce_cut(channel<Net> net, std::span<const rank_t> hosts, rank_t parts, std::span<T> x,
                               std::uint64_t first, Op op, piece_coder<Net, Codec> coder, residual_view<T> residual) {
    std::size_t h = 0;
    while (hosts[h + 1] <= net.rank()) ++h;
    const rank_group host{.first = hosts[h], .count = hosts[h + 1] - hosts[h]};
    const rank_group owners{.first = host.first, .count = parts}, nobody{.count = 0};
    const bool owns = owners.contains(net.rank());
    const auto ranges = coder.blocks(x.size(), parts);
    const auto part = [&](rank_t r) {
      const index_range range = ranges[owners.position(r)];
      return x.subspan(range.begin, range.size());
    };
    const std::span<T> mine = owns ? part(net.rank()) : x.first(0);
    buffer<T> total(net.work().memory(), mine.size());
    buffer<T> scratch(net.work().memory(), mine.size());

    all_to_all<Net, message_buffer> to_parts(net, owns ? host : nobody, owners);
    for (rank_t k = 1; k <= to_parts.destinations(); ++k) {
      const rank_t peer = to_parts.destination(k);
      to_parts.send(peer, view_message<T>(part(peer)));
    }
    if (owns) {
      const payload own{wire_format::dense, mine.size(), {std::as_bytes(mine)}};
      co_await detail::reduce_in_order(net, host, coder, &to_parts, own, total.span(), op, scratch.span());
      net.work().copy(mine.data(), std::span<const T>(total.span()));
    }
    for (auto& sending : to_parts.end()) co_await sending; // before the parts that they send change

    buffer<rank_t> of_part(net.memory(), hosts.size() - 1); // the owners of this rank's part, one on each host
    if (owns && of_part.size() > 1) {                       // on a single host, no value is encoded
      const rank_t p = owners.position(net.rank());
      for (std::size_t i = 0; i < of_part.size(); ++i) of_part.data()[i] = hosts[i] + p;
      const rank_group across{.count = static_cast<rank_t>(of_part.size()), .members = of_part.data()};
      const std::uint64_t length = std::max<std::uint64_t>(mine.size(), 1), index = first + ranges[p].begin;
      co_await reduce_piece(net, across, mine, index, op, coder, length, 0, residual);
    }

    all_to_all<Net, message_buffer> from_parts(net, owners, owns ? host : nobody);
    from_parts.send_to_all(view_message<T>(mine));
    for (rank_t k = 1; k <= from_parts.sources(); ++k) {
      const std::span<T> theirs = part(from_parts.source(k));
      co_await from_parts.arrival(k);
      coder.decode(coder.template arrived<T>(from_parts[k], theirs.size()), theirs);
      from_parts[k].release();
    }
    for (auto& sending : from_parts.end()) co_await sending;
  }
};

/// Allreduce of dense values in one hop, for short vectors. Each rank encodes its vector once and sends it to all other
/// ranks. Each rank decodes the vectors of all ranks, also its own, and adds them in the order of ranks, values of 16
/// bits as floats, whose sum is rounded once. So all ranks have the same bits.
///
/// If P > 1, a rank encodes one vector, decodes P vectors, and sends P - 1 times the bytes of the encoded vector in
/// P - 1 messages. Vectors are sent in pieces of `piece` values, each of which is a message.
///
/// At each index, |result - exact sum| is at most e S. Here, e is the codec's relative error, and S is the sum, over
/// all ranks, of the largest |value| in the codec's block that contains the index.
struct one_shot {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "one_shot";
  /// Whether dense values may be in any memory: all work on them is that of `channel::work`.
  template <class Storage>
  static constexpr bool values_anywhere = true;
  static constexpr bool whole_pieces = true; ///< pieces begin at multiples of a codec's grain

  std::uint64_t piece = 32768; ///< number of dense values that a block codec encodes at a time

  template <class Selector, class Storage, class Topology>
  static auto accepts() {
    return detail::accepts_values_alone<Storage>();
  }
  /// Throws `invalid_argument` if `piece` is 0.
  void validate(std::uint64_t) const { detail::check_piece(piece); }
  void options(auto&& f) const { f("piece", piece); }

  /// The largest number of successive encodings of a rank's dense values on their way to the result.
  [[nodiscard]] static constexpr std::int64_t encodings(rank_t ranks) noexcept { return ranks > 1 ? 1 : 0; }
  /// The largest number of additions that a rank's values pass on their way to the result.
  [[nodiscard]] static constexpr std::int64_t additions(rank_t ranks) noexcept { return ranks - 1; }

  /// Allreduce of dense values in place. Adds the rounding errors of this rank's encodings to `residual`, unless
  /// `residual` is empty.
  template <transport Net, element T, reduction<T> Op, class Storage>
    requires block_codec<storage::blocks_type<Storage>, T>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op, Storage store, residual_view<T> residual = {}) const& {
    if (net.size() == 1) co_return;
    const auto codec = storage::blocks_of(store);
    const piece_coder coder(net, codec, piece);
    const detail::pieces_of all{{0, x.size()}, coder.template message_values<T>()};
    const auto one_piece = [=](channel<Net> lane, std::size_t i) {
      return reduce_piece(lane, x.subspan(all[i].begin, all[i].size()), all[i].begin, op, coder, residual);
    };
    co_await detail::in_lanes(net, all.count(), one_piece);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

 private:
  /// Reduces the piece `x`, whose first value has the index `first`.
  template <transport Net, element T, class Op, class Codec>
  static task<void> reduce_piece(channel<Net> net, std::span<T> x, std::uint64_t first, Op op,
                                 piece_coder<Net, Codec> coder, residual_view<T> residual) {
    const std::span<const T> values = x;
    buffer<std::byte> room;
    buffer<T> scratch(net.work().memory(), x.size());
    all_to_all<Net, message_buffer> to_all(net);
    const auto step = step_of(0, net.rank()); // differs between ranks, so that ranks round independently
    const payload message = co_await coder.message(values, first, step, room, residual);
    to_all.send_to_all(message);
    coder.keep_error(message, values, first, residual, scratch.span());
    const rank_group all{.count = net.size()};
    co_await detail::reduce_in_order(net, all, coder, &to_all, message, x, op, scratch.span());
    for (auto& sending : to_all.end()) co_await sending;
  }
};

} // namespace spar::inline v0_1
