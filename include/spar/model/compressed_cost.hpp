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
double seconds_of_blocks(const network_model& net, const call_shape& p, const codec_model& codec) noexcept;

/// Seconds in which the messages of a rank to all other ranks, in flight at once, leave and arrive, without the time of
/// their bytes.
double seconds_of_hop(const network_model& net, const call_shape& p) noexcept;

} // namespace detail

/// Expected seconds of a call of the shape `p` by the compressed ring with `codec`.
double seconds_compressed_ring(const network_model& net, const call_shape& p, const codec_model& codec) noexcept;

/// Expected seconds of a call of the shape `p` by `two_shot` with `codec`: as the compressed ring, but in two hops.
double seconds_two_shot(const network_model& net, const call_shape& p, const codec_model& codec) noexcept;

/// Expected seconds of a call of the shape `p` by `one_shot` with `codec`. A rank encodes its vector, sends it to all
/// other ranks, and decodes the vectors of all ranks.
double seconds_one_shot(const network_model& net, const call_shape& p, const codec_model& codec) noexcept;

/// Expected seconds of a call of the shape `p` by compressed recursive doubling with `codec`. In each round, a rank
/// encodes one vector and decodes two.
double seconds_compressed_doubling(const network_model& net, const call_shape& p, const codec_model& codec) noexcept;

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
  compression_choice(const network_model& net, const call_shape& p, const codec_model& codec) noexcept;

  /// A readable sentence with the choice and with the expected times from which the choice was made; also says if these
  /// assume one host.
  [[nodiscard]] std::string reason() const;
};

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/model/compressed_cost-inl.hpp>
#endif
