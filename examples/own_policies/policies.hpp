// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Policies of one's own: a selector, a storage for the second phase of split-allgather, and a whole collective.
#pragma once

#include <spar/spar.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace own {

/// A selector: the entries whose magnitude is at least a threshold; they leave `x`, which keeps the rest.
struct at_least {
  static constexpr std::string_view name = "at_least";
  float threshold = 0;

  template <class Index = std::uint32_t>
  spar::stream<float, Index> operator()(std::span<float> x, spar::pool& memory) const {
    auto selected = spar::stream<float, Index>::sparse(memory, x.size(), x.size());
    std::size_t kept = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i] == 0 || std::abs(x[i]) < threshold) continue; // a NaN is selected
      selected.indices()[kept] = static_cast<Index>(i);
      selected.values()[kept] = x[i];
      x[i] = 0;
      ++kept;
    }
    selected.shrink(kept);
    return selected;
  }
};

/// A storage: the upper 16 bits of each float.
struct truncated {
  static constexpr std::string_view name = "truncated";

  template <class T>
  [[nodiscard]] std::size_t encoded_bytes(std::size_t count) const {
    return 2 * count;
  }
  void encode(std::span<const float> values, std::span<std::byte> out, spar::block_position) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, &values[i], 4);
      const auto upper = static_cast<std::uint16_t>(bits >> 16);
      std::memcpy(&out[2 * i], &upper, 2);
    }
  }
  void decode(std::span<const std::byte> in, std::span<float> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::uint16_t upper;
      std::memcpy(&upper, &in[2 * i], 2);
      const std::uint32_t bits = static_cast<std::uint32_t>(upper) << 16;
      std::memcpy(&out[i], &bits, 4);
    }
  }
};

/// A collective: everybody sends to rank 0, which adds up and sends the sum back.
struct star {
  static constexpr std::string_view name = "star";

  template <spar::transport Net, class T, class Index, class Op>
  spar::task<spar::stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine,
                                                Op op) const& {
    const spar::index_range all{0, mine.dimension()};
    const std::uint64_t limit = spar::dense_threshold<T, Index>(mine.dimension());
    if (net.rank() != 0) {
      co_await net.send(0, spar::encode(mine));
      spar::message_buffer in(net.memory());
      co_await net.receive(0, in);
      co_return spar::stream<T, Index>::copy(net.memory(), spar::decode<T, Index>(in, all));
    }
    auto sum = spar::stream<T, Index>::copy(net.memory(), mine);
    for (spar::rank_t r = 1; r < net.size(); ++r) {
      spar::message_buffer in(net.memory());
      co_await net.receive(r, in);
      sum = spar::merge(sum.view(), spar::decode<T, Index>(in, all), all, limit, op, net.memory());
    }
    for (spar::rank_t r = 1; r < net.size(); ++r) co_await net.send(r, spar::encode(sum.view()));
    co_return sum;
  }
};

} // namespace own
