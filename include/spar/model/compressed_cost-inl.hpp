// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of compressed_cost.hpp that do not depend on the type of values.
#pragma once

#include <spar/model/compressed_cost.hpp>

namespace spar::inline v0_1 {

namespace detail {

SPAR_INLINE double seconds_of_blocks(const network_model& net, const call_shape& p, const codec_model& codec) noexcept {
  const auto ranks = static_cast<double>(p.ranks);
  const double sending = 2 * p.others() * p.n * codec.value_bytes * net.beta;
  const double coding = (3 * ranks - 1) / ranks * p.n * codec.seconds + p.others() * p.n * net.gamma_dense;
  return sending + coding;
}

SPAR_INLINE double seconds_of_hop(const network_model& net, const call_shape& p) noexcept {
  return shared_latency(net) + static_cast<double>(p.ranks - 1) * message_overhead(net);
}

} // namespace detail

SPAR_INLINE double seconds_compressed_ring(const network_model& net, const call_shape& p,
                                           const codec_model& codec) noexcept {
  if (p.ranks < 2) return 0;
  return 2 * static_cast<double>(p.ranks - 1) * net.alpha + detail::seconds_of_blocks(net, p, codec);
}

SPAR_INLINE double seconds_two_shot(const network_model& net, const call_shape& p, const codec_model& codec) noexcept {
  if (p.ranks < 2) return 0;
  return 2 * detail::seconds_of_hop(net, p) + detail::seconds_of_blocks(net, p, codec);
}

SPAR_INLINE double seconds_one_shot(const network_model& net, const call_shape& p, const codec_model& codec) noexcept {
  if (p.ranks < 2) return 0;
  const auto others = static_cast<double>(p.ranks - 1);
  const double sending = others * p.n * codec.value_bytes * net.beta;
  const double coding = p.n * ((others + 2) * codec.seconds + others * net.gamma_dense);
  return detail::seconds_of_hop(net, p) + sending + coding;
}

SPAR_INLINE double seconds_compressed_doubling(const network_model& net, const call_shape& p,
                                               const codec_model& codec) noexcept {
  if (p.ranks < 2) return 0;
  const double rounds = p.rounds() + (p.power_of_two() ? 0 : 1);
  const double sending = rounds * p.n * codec.value_bytes * net.beta;
  const double coding = rounds * p.n * (3 * codec.seconds + net.gamma_dense);
  return rounds * net.alpha + sending + coding;
}

SPAR_INLINE compression_choice::compression_choice(const network_model& net, const call_shape& p,
                                                   const codec_model& codec) noexcept
    : plain_seconds(seconds_dense(net, p)), ring_seconds(seconds_compressed_ring(net, p, codec)),
      doubling_seconds(seconds_compressed_doubling(net, p, codec)), two_shot_seconds(seconds_two_shot(net, p, codec)),
      one_shot_seconds(seconds_one_shot(net, p, codec)), assumes_one_host(net == network_model{}) {
  if (p.ranks < 2) return;
  network_model free;
  free.alpha = free.beta = free.gamma_dense = 0;
  struct candidate {
    algorithm which;
    double seconds, of_codec;
  };
  const candidate compressed[] = {
      {algorithm::compressed_ring, ring_seconds, seconds_compressed_ring(free, p, codec)},
      {algorithm::compressed_doubling, doubling_seconds, seconds_compressed_doubling(free, p, codec)},
      {algorithm::two_shot, two_shot_seconds, seconds_two_shot(free, p, codec)},
      {algorithm::one_shot, one_shot_seconds, seconds_one_shot(free, p, codec)}};
  const candidate* fastest = compressed;
  for (const candidate& other : compressed) {
    if (other.seconds < fastest->seconds) fastest = &other;
  }
  codec_seconds = fastest->of_codec;
  if (fastest->seconds < plain_seconds) chosen = fastest->which;
}

SPAR_INLINE std::string compression_choice::reason() const {
  constexpr std::array names{"without compression", "the compressed ring", "compressed recursive doubling", "two-shot",
                             "one-shot"};
  std::array<char, 512> text{};
  std::snprintf(
      text.data(), text.size(),
      "%s: %.3g s expected without compression, %.3g s with the compressed ring, %.3g s with compressed recursive "
      "doubling, %.3g s with two-shot and %.3g s with one-shot; encoding and decoding take %.3g s of the fastest of "
      "the compressed algorithms%s",
      names[static_cast<std::size_t>(chosen)], plain_seconds, ring_seconds, doubling_seconds, two_shot_seconds,
      one_shot_seconds, codec_seconds,
      assumes_one_host ? "; these times assume ranks on one host, as no network model was set (spar_perf --calibrate "
                         "measures one)"
                       : "");
  return text.data();
}

} // namespace spar::inline v0_1
