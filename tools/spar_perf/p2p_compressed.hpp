// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ring and recursive doubling with point-to-point compression, in which each message is encoded and decoded on its
// own, as a library below the collective would. Collective-level compression, as in `spar::ring` with a codec, is
// faster and ends with the same bits on all ranks (Zhou et al., section III-B).
#pragma once

#include <spar/collective/wire/block_coder.hpp>
#include <spar/collective/wire/encode_pipeline.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/topology/folded_ranks.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::perf {

namespace detail {

/// Encodes each message before the send and decodes each message after the receive, as a library below the collective
/// would. Neither encoding nor decoding overlaps other work.
template <transport Net, class Codec>
class coded_message {
 public:
  coded_message(spar::channel<Net> net, const Codec& codec) noexcept : net_(net), coder_(net, codec) {}

  template <element T>
  auto send(spar::detail::outgoing_piece<Net>& slot, rank_t peer, std::span<const T> values, index_range range,
            std::uint64_t step) {
    const std::uint64_t unlike_others = step << 24 | static_cast<std::uint64_t>(net_.rank());
    return after(net_, coder_.message(values.subspan(range.begin, range.size()), range.begin, unlike_others, slot.room),
                 [this, &slot, peer](const payload& message) {
                   slot.message = message;
                   slot.send(net_, peer);
                 });
  }
  template <element T>
  void decode(message_buffer& received, std::span<T> out) const {
    coder_.decode(coder_.template arrived<T>(received, out.size()), out);
    received.end_loan();
  }

 private:
  spar::channel<Net> net_;
  spar::block_coder<Net, Codec> coder_;
};

} // namespace detail

/// The ring allreduce with point-to-point compression. In the second phase, each rank that forwards a block encodes the
/// block again, so that a rank encodes and decodes 2 (P - 1) blocks in total. Ranks may end with different bits,
/// because an owner does not round its own copy of the sum.
template <class Codec>
struct p2p_compressed_ring {
  static constexpr std::string_view name = "p2p_compressed_ring";

  Codec codec{}; ///< the codec of all messages

  /// The largest number of successive encodings of a value on its way to the result, on `ranks` ranks.
  [[nodiscard]] static constexpr std::int64_t encodings(rank_t ranks) noexcept { return 2 * (ranks - 1); }
  void options(auto&& f) const { f("codec", codec); }
  /// Throws `invalid_argument` if the codec's options are invalid.
  template <element T, class Op>
  void validate(std::uint64_t, rank_t, const Op&) const {
    (void)codec.template encoded_bytes<T>(1);
  }

  /// Allreduce of dense values in place.
  template <transport Net, element T, reduction<T> Op>
    requires block_codec<Codec, T>
  task<void> operator()(spar::channel<Net> net, std::span<T> x, Op op) const& {
    const rank_t p = net.size();
    const uniform_ownership owner{x.size(), p};
    detail::coded_message coded(net, codec);
    spar::detail::outgoing_piece<Net> slot;
    message_buffer received(net.work().memory());
    buffer<T> theirs(net.work().memory(), p > 1 ? owner[0].size() : 0);
    for (rank_t hop = 0; hop < 2 * (p - 1); ++hop) {
      const index_range given = owner[(net.rank() + 2 * p - 1 - hop) % p];
      const index_range arriving = owner[(net.rank() + 2 * p - 2 - hop) % p];
      co_await coded.send(slot, (net.rank() + 1) % p, std::span<const T>(x), given, static_cast<std::uint64_t>(hop));
      co_await net.receive((net.rank() + p - 1) % p, received);
      const std::span<T> mine = x.subspan(arriving.begin, arriving.size());
      coded.decode(received, hop < p - 1 ? theirs.span().first(arriving.size()) : mine);
      if (hop < p - 1) {
        net.work().reduce_left(mine, std::as_const(theirs).data(), op);
        net.compute(mine.size());
      }
      co_await *slot.sending;
    }
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

/// Recursive doubling with point-to-point compression. If P = 2^m, a rank encodes and decodes log2 P vectors. Ranks may
/// end with different bits, because a rank adds its own values without rounding them.
template <class Codec>
struct p2p_compressed_doubling {
  static constexpr std::string_view name = "p2p_compressed_doubling";

  Codec codec{}; ///< the codec of all messages

  /// The largest number of successive encodings of a value on its way to the result, on `ranks` ranks.
  [[nodiscard]] static constexpr std::int64_t encodings(rank_t ranks) noexcept { return folded_ranks(0, ranks).hops(); }
  void options(auto&& f) const { f("codec", codec); }
  /// Throws `invalid_argument` if the codec's options are invalid.
  template <element T, class Op>
  void validate(std::uint64_t, rank_t, const Op&) const {
    (void)codec.template encoded_bytes<T>(1);
  }

  /// Allreduce of dense values in place.
  template <transport Net, element T, reduction<T> Op>
    requires block_codec<Codec, T>
  task<void> operator()(spar::channel<Net> net, std::span<T> x, Op op) const& {
    const folded_ranks folded(net.rank(), net.size());
    const index_range all{0, x.size()};
    detail::coded_message coded(net, codec);
    spar::detail::outgoing_piece<Net> slot;
    message_buffer received(net.work().memory());
    buffer<T> theirs(net.work().memory(), net.size() > 1 ? x.size() : 0);
    const auto reduce = [&](bool lower) {
      if (lower)
        net.work().reduce_left(x, std::as_const(theirs).data(), op);
      else
        net.work().reduce(x, std::as_const(theirs).data(), op);
      net.compute(x.size());
    };
    if (folded.has_partner() && !folded.active()) {
      co_await coded.send(slot, folded.partner(), std::span<const T>(x), all, 0);
      co_await net.receive(folded.partner(), received);
      coded.decode(received, x);
      co_await *slot.sending;
      co_return;
    }
    if (folded.has_partner()) {
      co_await net.receive(folded.partner(), received);
      coded.decode(received, theirs.span());
      reduce(true);
    }
    std::uint64_t step = 1;
    for (rank_t distance = 1; distance < folded.active_ranks(); distance *= 2, ++step) {
      const rank_t peer = folded.rank_of(folded.number() ^ distance);
      co_await coded.send(slot, peer, std::span<const T>(x), all, step);
      co_await net.receive(peer, received);
      coded.decode(received, theirs.span());
      reduce(peer < net.rank());
      co_await *slot.sending;
    }
    if (folded.has_partner()) {
      co_await coded.send(slot, folded.partner(), std::span<const T>(x), all, step);
      co_await *slot.sending;
    }
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar::perf
