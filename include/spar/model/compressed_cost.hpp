// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The model's expected times of compressed allreduces, and the decision whether compression makes an allreduce faster
// (Zhou et al., section IV-A).
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/model/cost.hpp>

#include <array>
#include <cstdio>
#include <string>

namespace spar::inline v0_1 {

/// The cost of a codec in the model: the size of an encoded value, and the time to encode or decode a value.
struct codec_model {
  double value_bytes = 4; ///< bytes per encoded value
  double seconds = 0;     ///< seconds to encode one value, and also to decode one value
};

/// The cost of `codec` for values of T. The bytes per value are the average over a block of 65536 values. A codec
/// without `cost` takes one pass, `gamma_dense`, for a value.
template <class T, class Codec>
codec_model model_of(const Codec& codec, const network_model& net) {
  constexpr std::size_t many = 65536;
  double seconds = net.gamma_dense;
  if constexpr (detail::states_cost<Codec, T>) seconds = codec.template cost<T>(net);
  return {static_cast<double>(codec.template encoded_bytes<T>(many)) / many, seconds};
}

namespace detail {

/// Seconds of an allreduce in which a rank encodes P blocks, decodes 2 P - 1 blocks, and sends and receives 2 (P - 1)
/// blocks, without the latency of messages. Assumes that coding and transfers do not overlap. Over a network, coding
/// and transfers largely overlap, but between ranks on one host, both need the same processors.
inline double seconds_of_blocks(const network_model& net, const call_shape& p, const codec_model& codec) noexcept {
  const auto ranks = static_cast<double>(p.ranks);
  const double sending = 2 * p.others() * p.n * codec.value_bytes * net.beta;
  const double coding = (3 * ranks - 1) / ranks * p.n * codec.seconds + p.others() * p.n * net.gamma_dense;
  return sending + coding;
}

/// Seconds in which the messages of a rank to all other ranks, in flight at once, leave and arrive, without the time of
/// their bytes.
inline double seconds_of_hop(const network_model& net, const call_shape& p) noexcept {
  return shared_latency(net) + static_cast<double>(p.ranks - 1) * message_overhead(net);
}

} // namespace detail

/// Expected seconds of a call of the shape `p` by the compressed ring with `codec`.
inline double seconds_compressed_ring(const network_model& net, const call_shape& p,
                                      const codec_model& codec) noexcept {
  if (p.ranks < 2) return 0;
  return 2 * static_cast<double>(p.ranks - 1) * net.alpha + detail::seconds_of_blocks(net, p, codec);
}

/// Expected seconds of a call of the shape `p` by `two_shot` with `codec`: as the compressed ring, but in two hops.
inline double seconds_two_shot(const network_model& net, const call_shape& p, const codec_model& codec) noexcept {
  if (p.ranks < 2) return 0;
  return 2 * detail::seconds_of_hop(net, p) + detail::seconds_of_blocks(net, p, codec);
}

/// Expected seconds of a call of the shape `p` by `one_shot` with `codec`. A rank encodes its vector, sends it to all
/// other ranks, and decodes the vectors of all ranks.
inline double seconds_one_shot(const network_model& net, const call_shape& p, const codec_model& codec) noexcept {
  if (p.ranks < 2) return 0;
  const auto others = static_cast<double>(p.ranks - 1);
  const double sending = others * p.n * codec.value_bytes * net.beta;
  const double coding = p.n * ((others + 2) * codec.seconds + others * net.gamma_dense);
  return detail::seconds_of_hop(net, p) + sending + coding;
}

/// Expected seconds of a call of the shape `p` by compressed recursive doubling with `codec`. In each round, a rank
/// encodes one vector and decodes two.
inline double seconds_compressed_doubling(const network_model& net, const call_shape& p,
                                          const codec_model& codec) noexcept {
  if (p.ranks < 2) return 0;
  const double rounds = p.rounds() + (p.power_of_two() ? 0 : 1);
  const double sending = rounds * p.n * codec.value_bytes * net.beta;
  const double coding = rounds * p.n * (3 * codec.seconds + net.gamma_dense);
  return rounds * net.alpha + sending + coding;
}

/// Chooses the dense allreduce that is fastest in the model, with or without compression, and keeps the expected times
/// as the reason for the choice.
struct compression_choice {
  /// The candidates: the fastest algorithm without compression, and those with compression.
  enum class algorithm { plain, compressed_ring, compressed_doubling, two_shot, one_shot };

  double plain_seconds = 0;            ///< expected seconds of the fastest algorithm without compression
  double ring_seconds = 0;             ///< expected seconds of the compressed ring
  double doubling_seconds = 0;         ///< expected seconds of compressed recursive doubling
  double two_shot_seconds = 0;         ///< expected seconds of `two_shot`
  double one_shot_seconds = 0;         ///< expected seconds of `one_shot`
  double codec_seconds = 0;            ///< seconds of encoding and decoding in the fastest of the compressed algorithms
  algorithm chosen = algorithm::plain; ///< the candidate with the shortest expected time; of equal times, the first
  /// Whether nobody has set the network model, so that the choice assumes ranks on one host.
  bool assumes_one_host = false;

  /// Computes the expected times of a call of the shape `p` over the network `net`, with the codec `codec`, and
  /// chooses.
  compression_choice(const network_model& net, const call_shape& p, const codec_model& codec) noexcept
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

  /// A readable sentence with the choice and with the expected times from which the choice was made; also says if these
  /// assume one host.
  [[nodiscard]] std::string reason() const {
    constexpr std::array names{"without compression", "the compressed ring", "compressed recursive doubling",
                               "two-shot", "one-shot"};
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
};

} // namespace spar::inline v0_1
