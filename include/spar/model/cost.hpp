// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expected times of allreduce algorithms in the alpha-beta-gamma model (SparCML, section 5.3).
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/util/algobase.hpp>

#include <bit>
#include <cstdint>

namespace spar::inline v0_1 {

/// The size of a call, from which the model computes the call's expected time.
struct call_shape {
  std::int64_t ranks = 1; ///< P, the number of ranks
  double n = 0;           ///< dimension of the vectors
  double k = 0;           ///< the largest number of entries on any rank
  double value_bytes = 4; ///< bytes of a value
  double index_bytes = 4; ///< bytes of an index
  double coding = 0;      ///< seconds to encode and then decode an entry; 0 if entries are sent as they are in memory

  /// Bytes of an entry: of its value and its index.
  [[nodiscard]] double entry_bytes() const noexcept { return value_bytes + index_bytes; }
  /// Number of rounds of recursive doubling: ceil(log2 P).
  [[nodiscard]] double rounds() const noexcept {
    return static_cast<double>(std::bit_width(static_cast<std::uint64_t>(ranks - 1)));
  }
  /// Whether the number of ranks is a power of two.
  [[nodiscard]] bool power_of_two() const noexcept { return std::has_single_bit(static_cast<std::uint64_t>(ranks)); }
  /// The share of a vector that belongs to the other ranks if the P ranks divide the vector evenly: (P - 1) / P.
  [[nodiscard]] double others() const noexcept { return 1.0 - 1.0 / static_cast<double>(ranks); }
  /// n (1 - (1 - k / n)^count): the expected number of entries in the sum over `count` ranks that have k uniformly
  /// random entries each. Computed by repeated doubling: the formula loses precision by cancellation if k is small.
  [[nodiscard]] double expected_union(std::int64_t count) const noexcept;
  /// Number of entries above which a sum is cheaper as a dense vector: delta, or fewer if the work of merging and
  /// coding makes a byte of entries more expensive than a byte of dense values.
  [[nodiscard]] double dense_limit(const network_model& net) const noexcept {
    return n * value_bytes / entry_bytes() * dense_fraction(net);
  }
  /// `dense_limit` as a fraction of delta, the number of entries above which a stream is longer than a dense vector; at
  /// most 1.
  [[nodiscard]] double dense_fraction(const network_model& net) const noexcept {
    const double dense = net.beta + net.gamma_dense / value_bytes;                // seconds per byte of dense values
    const double sparse = net.beta + (net.gamma_sparse + coding) / entry_bytes(); // seconds per byte of entries
    return std::min(1.0, dense / sparse);
  }
  /// Bytes of a stream with `entries` entries; a stream with more than `dense_limit` entries is stored dense.
  [[nodiscard]] double stream_bytes(const network_model& net, double entries) const noexcept {
    return entries <= dense_limit(net) ? entries * entry_bytes() : n * value_bytes;
  }
  /// Seconds to encode a stream with `entries` entries and to decode it on its arrival.
  [[nodiscard]] double coding_seconds(const network_model& net, double entries) const noexcept {
    return entries <= dense_limit(net) ? entries * coding : 0;
  }
  /// Seconds to merge two streams that have `entries` entries in total.
  [[nodiscard]] double merge_seconds(const network_model& net, double entries) const noexcept {
    return entries <= dense_limit(net) ? entries * net.gamma_sparse
                                       : n * net.gamma_dense + scatter_seconds(net, entries);
  }
  /// Seconds to move the nonzeros out of a dense vector, and to write a sum with `entries` entries to it. An entry
  /// takes as long as to merge it: the entries are far apart in memory.
  [[nodiscard]] double in_place_seconds(const network_model& net, double entries) const noexcept {
    return n * net.gamma_dense + k * net.gamma_sparse + std::min(entries * net.gamma_sparse, n * net.gamma_dense);
  }
  /// Seconds to add `entries` entries to a dense vector: a third of the time of merging as many entries.
  [[nodiscard]] static double scatter_seconds(const network_model& net, double entries) noexcept {
    return entries * net.gamma_sparse / 3;
  }
};

/// The shape of a call on P ranks with at most k of n entries each, whose streams `codec` encodes.
template <class T, class Index, class Codec>
call_shape shape_of(const Codec& codec, const network_model& net, std::int64_t ranks, std::uint64_t n,
                    std::uint64_t k) {
  const double index_bytes = codec.template entry_bits<T, Index>(n, k) / 8 - sizeof(T);
  call_shape call{ranks, static_cast<double>(n), static_cast<double>(k), sizeof(T), index_bytes};
  if constexpr (detail::states_cost<Codec, T>) call.coding = 2 * codec.template cost<T>(net);
  return call;
}

/// The latency of messages: alpha, except for the part that each of several messages in flight at once costs.
inline double shared_latency(const network_model& net) noexcept { return std::min(net.alpha_shared, net.alpha); }
/// Seconds for which a message keeps a link busy, apart from the time of its bytes.
inline double message_overhead(const network_model& net) noexcept { return net.alpha - shared_latency(net); }

/// Expected seconds of a call of the shape `p` by sparse recursive doubling in `parts` parts of the index range,
/// from 1 to 8. In each round, a rank encodes the sum of its group, sends it, and decodes and merges the sum that
/// arrives. A rank's core works on one part after the other, and its link sends one part after the other, so that the
/// rank works on a part while others are on the way. If P is not a power of two, this is the time until an inactive
/// rank has the result (see folded_ranks), or until the last active rank has it, whichever is later.
double seconds_recursive_doubling(const network_model& net, const call_shape& p, std::uint64_t parts = 1);

/// The number of parts, 1 or 2, in which recursive doubling of a call of the shape `p` is expected to be the fastest;
/// `recursive_doubling` divides only streams that are encoded.
inline std::uint64_t parts_of_doubling(const network_model& net, const call_shape& p) noexcept {
  return p.coding > 0 && seconds_recursive_doubling(net, p, 2) < seconds_recursive_doubling(net, p, 1) ? 2 : 1;
}

namespace detail {

/// The time in which a rank encodes a message to each other rank, with `bytes` bytes in all, and decodes as many that
/// arrive. Encoding and decoding take `coding` seconds, in which all messages but one may travel.
inline double seconds_of_exchange(const network_model& net, const call_shape& p, double bytes, double coding) noexcept {
  const auto messages = static_cast<double>(p.ranks - 1);
  const double transfer = messages * message_overhead(net) + bytes * net.beta;
  return shared_latency(net) + std::max(transfer, coding) + std::min(transfer, coding) / messages;
}

} // namespace detail

/// Expected seconds of the split phase of a call of the shape `p`: a rank sends P - 1 messages, which together contain
/// (P - 1) / P of its entries, and receives as many. It encodes and decodes one message while another is on the way.
inline double seconds_split(const network_model& net, const call_shape& p) noexcept {
  if (p.ranks < 2) return 0;
  const double sent = p.others() * p.k;
  return detail::seconds_of_exchange(net, p, sent * p.entry_bytes(), sent * p.coding);
}

/// Expected seconds of a call of the shape `p` by the SSAR split-allgather. In the split phase, each rank merges P k /
/// P = k entries of its block, in ceil(log2 P) levels. In the allgather, each rank encodes its own block, and decodes,
/// copies and checks the entries of the others' blocks as they arrive.
inline double seconds_ssar_split(const network_model& net, const call_shape& p) noexcept {
  const double result = p.expected_union(p.ranks);
  return seconds_split(net, p) + p.k * net.gamma_sparse * std::max(1.0, p.rounds()) + p.rounds() * net.alpha +
         net.beta * p.others() * result * p.entry_bytes() + result * (net.gamma_sparse + p.coding) / 2;
}

/// Expected seconds of a call of the shape `p` by the DSAR split-allgather. In its second phase, each value takes
/// `second_phase_bytes` bytes: 4 for floats, Bits / 8 for QSGD.
inline double seconds_dsar_split(const network_model& net, const call_shape& p, double second_phase_bytes) noexcept {
  return seconds_split(net, p) + call_shape::scatter_seconds(net, p.k) +
         p.n / static_cast<double>(p.ranks) * net.gamma_dense + p.rounds() * net.alpha +
         net.beta * p.others() * p.n * second_phase_bytes;
}

/// Expected seconds of a call of the shape `p` by recursive doubling with dense vectors.
inline double seconds_dense_recursive_doubling(const network_model& net, const call_shape& p) noexcept {
  const double extra = p.power_of_two() ? 0 : 1; // the fold adds two rounds, and ceil(log2 P) includes one of them
  return (p.rounds() + extra) * (net.alpha + net.beta * p.n * p.value_bytes) + p.rounds() * p.n * net.gamma_dense;
}

/// Expected seconds of a call of the shape `p` by Rabenseifner's algorithm: a reduce-scatter by recursive halving and
/// an allgather by recursive doubling, both among 2^floor(log2 P) ranks, plus a fold if P is not a power of two.
inline double seconds_rabenseifner(const network_model& net, const call_shape& p) noexcept {
  const auto active = std::bit_floor(static_cast<std::uint64_t>(p.ranks));
  const double rounds = static_cast<double>(std::bit_width(active) - 1);
  const double sent = 1.0 - 1.0 / static_cast<double>(active);
  double seconds = 2 * rounds * net.alpha + 2 * sent * p.n * p.value_bytes * net.beta + sent * p.n * net.gamma_dense;
  if (!p.power_of_two()) seconds += 2 * (net.alpha + net.beta * p.n * p.value_bytes) + p.n * net.gamma_dense;
  return seconds;
}

/// Expected seconds of a call of the shape `p` by the ring with dense vectors: 2 (P - 1) messages of n / P values.
inline double seconds_ring(const network_model& net, const call_shape& p) noexcept {
  return 2 * static_cast<double>(p.ranks - 1) * net.alpha + 2 * p.others() * p.n * p.value_bytes * net.beta +
         p.others() * p.n * net.gamma_dense;
}

/// Expected seconds of a call of the shape `p` by the fastest of these three algorithms for dense vectors.
inline double seconds_dense(const network_model& net, const call_shape& p) noexcept {
  return std::min(seconds_dense_recursive_doubling(net, p),
                  std::min(seconds_rabenseifner(net, p), seconds_ring(net, p)));
}

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/model/cost-inl.hpp>
#endif
