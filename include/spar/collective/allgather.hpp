// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allgather in ceil(log2 P) rounds for any number of ranks: of blocks of known sizes and of sparse streams (Bruck et
// al. 1997; SparCML, section 5.3).
#pragma once

#include <spar/core/buffer.hpp>
#include <spar/core/task.hpp>
#include <spar/storage/gathered.hpp>
#include <spar/storage/wire.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/transport/channel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// In round t rank r gets up to 2^t parts, those of the ranks from r + 2^t on, and gives as many to rank r - 2^t. Every
/// part is sent P - 1 times in all: the volume is the least possible.
struct bruck_allgather {
  static constexpr std::string_view name = "bruck_allgather";

  /// In place: rank r brings block r of `x` (see uniform_ownership).
  template <transport Net, element T>
  task<void> operator()(channel<Net> net, std::span<T> x) const& {
    const uniform_ownership owner{x.size(), net.size()};
    buffer<std::size_t> begin(net.memory(), static_cast<std::size_t>(net.size()) + 1);
    for (rank_t r = 0; r <= net.size(); ++r) begin.span()[static_cast<std::size_t>(r)] = owner.begin(r) * sizeof(T);
    co_await blocks(net, std::as_writable_bytes(x), std::span<const std::size_t>(begin.span()), wire_format::dense);
  }

  /// In place, of bytes: rank r brings those from `begin[r]` to before `begin[r + 1]`.
  template <transport Net>
  task<void> blocks(channel<Net> net, std::span<std::byte> bytes, std::span<const std::size_t> begin,
                    wire_format format) const& {
    const rank_t p = net.size();
    // The blocks [first, first + count), which may wrap around: one or two pieces.
    const auto piece = [=](rank_t first, rank_t count, bool wrapped) {
      const rank_t from = wrapped ? 0 : first;
      const rank_t to = wrapped ? std::max(0, first + count - p) : std::min(first + count, p);
      const std::size_t at = begin[static_cast<std::size_t>(from)];
      return bytes.subspan(at, begin[static_cast<std::size_t>(to)] - at);
    };
    for (rank_t distance = 1; distance < p; distance *= 2) {
      const rank_t count = std::min(distance, p - distance);
      const rank_t source = (net.rank() + distance) % p;
      const rank_t destination = (net.rank() + p - distance) % p;
      const payload out{
          format, static_cast<std::uint64_t>(count), {piece(net.rank(), count, false), piece(net.rank(), count, true)}};
      auto sending = net.send(destination, out);
      message_buffer in(net.memory());
      in.place(0, piece(source, count, false));
      in.place(1, piece(source, count, true));
      co_await net.receive(source, in);
      co_await sending;
    }
  }

  /// Every rank's stream on every rank. `owned`: part r must lie in block r of the dimension.
  template <transport Net, element T, index_type Index>
  task<gathered<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, bool owned = false) const& {
    const rank_t p = net.size();
    const uniform_ownership owner{mine.dimension(), p};
    // Parts are kept in the order in which they come: this rank's, those of the ranks above it, and on from rank 0.
    gathered<T, Index> have(mine, static_cast<std::size_t>(p), net.memory());
    for (rank_t distance = 1; distance < p; distance *= 2) {
      const auto count = static_cast<std::size_t>(std::min(distance, p - distance));
      const rank_t source = (net.rank() + distance) % p;
      auto sending = net.send((net.rank() + p - distance) % p, have.encode_first(count));
      message_buffer in(net.memory());
      co_await net.receive(source, in);
      const auto check = [&](std::size_t part, std::span<const Index> indices) {
        const auto r = static_cast<rank_t>((static_cast<std::size_t>(source) + part) % static_cast<std::size_t>(p));
        check_indices(indices, owned ? owner[r] : index_range{0, mine.dimension()});
      };
      auto next = have.joined(in, count, check, net.memory());
      in.release();
      co_await sending;
      have = std::move(next);
    }
    have.rotate(static_cast<std::size_t>(p - net.rank()) % static_cast<std::size_t>(p), net.memory());
    co_return have;
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar
