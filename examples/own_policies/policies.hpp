// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// User-defined policies: a selector, a codec for dense blocks, a schedule, and an algorithm that is not a composition.
#pragma once

#include <spar/spar.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace own {

/// A selector that moves the entries whose magnitude is at least a threshold from `x` into a stream; `x` keeps the
/// rest.
struct at_least {
  static constexpr spar::slot fills = spar::slot::selector;
  static constexpr std::string_view name = "at_least";

  float threshold = 0;

  void validate(std::uint64_t) const {
    if (!(threshold >= 0)) spar::raise<spar::invalid_argument>({"threshold is ", threshold, ", expected 0 or more"});
  }
  void options(auto&& f) const { f("threshold", threshold); }

  template <class Index, class Work, class Prepare>
  auto operator()(Work& work, std::span<float> x, spar::no_state&, const Prepare& prepare) const {
    return work.template take_at_least<Index>(x, spar::kernel::magnitude_of(threshold), x.size(), prepare);
  }
};

/// A storage: a codec for blocks of dense values that sends the upper 16 bits of each float.
struct truncated {
  static constexpr spar::slot fills = spar::slot::storage;
  static constexpr std::string_view name = "truncated";

  void options(auto&&) const {} // none

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

/// A schedule that reduces to rank 0 along a binomial tree, and broadcasts the sum. Any selector, storage and topology
/// composes with this schedule, because the library's binomial_reduce and binomial_broadcast send its messages.
struct there_and_back {
  static constexpr spar::slot fills = spar::slot::schedule;
  static constexpr std::string_view name = "there_and_back";

  template <class Selector, class Storage, class Topology>
  static spar::nothing_against accepts();
  void validate(std::uint64_t) const {} // nothing to check
  void options(auto&&) const {}         // none

  template <spar::transport Net, class T, class Index, class Op, class Storage>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine, Op op,
                                                       Storage store, spar::residual_view<T> residual) const& {
    const spar::binomial_reduce reduce;
    const spar::binomial_broadcast broadcast;
    const auto sum = co_await reduce(net, mine, 0, op, store, residual);
    co_return co_await broadcast(net, sum.view(), 0, store, residual);
  }
};

/// An algorithm for sparse streams that is not a composition: all ranks send to rank 0, which merges the streams and
/// sends the sum back.
struct star : spar::algorithm_defaults {
  static constexpr std::string_view name = "star";

  template <spar::transport Net, class T, class Index, class Op>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine,
                                                       Op op) const& {
    const spar::index_range all{0, mine.dimension()};
    const std::uint64_t limit = spar::dense_threshold<T, Index>(mine.dimension());
    if (net.rank() != 0) {
      co_await net.send(0, spar::view_message(mine));
      spar::message_buffer in(net.memory());
      co_await net.receive(0, in);
      co_return spar::sparse_stream<T, Index>::copy(net.memory(), spar::decode<T, Index>(in, all));
    }
    auto sum = spar::sparse_stream<T, Index>::copy(net.memory(), mine);
    for (spar::rank_t r = 1; r < net.size(); ++r) {
      spar::message_buffer in(net.memory());
      co_await net.receive(r, in);
      sum = spar::merge(sum.view(), spar::decode<T, Index>(in, all), all, limit, op, net.memory());
    }
    for (spar::rank_t r = 1; r < net.size(); ++r) co_await net.send(r, spar::view_message(sum.view()));
    co_return sum;
  }
};

} // namespace own
