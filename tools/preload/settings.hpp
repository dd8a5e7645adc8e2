// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The settings, read from the environment variables of rank 0.
#pragma once

#include <spar/core/network_model.hpp>

#include <array>
#include <cstdint>

namespace preload {

enum class algorithm : std::uint8_t {
  none,
  automatic,
  rabenseifner,
  ring,
  rec_doubling,
  two_shot,
  one_shot,
  chains ///< along a plan over the tree of hosts, such as FlexReduce's
};

/// Trivially copyable, because rank 0 broadcasts its settings as bytes.
struct settings {
  algorithm chosen = algorithm::none; ///< none: every call goes to the MPI library
  std::array<char, 128> text{};       ///< the composition, as spar::parse_composition reads it
  bool encodes = false;               ///< whether the composition has a codec, so that sums may be rounded
  // Least bytes of a vector; calls on smaller vectors go to the MPI library:
  std::uint64_t min_bytes = 65536; ///< of compressed calls
  /// Limits of exact calls: between hosts, where MPI libraries may be as fast as spar up to half of this size, and on
  /// one host (both measured in docs/results/preload.md).
  std::uint64_t min_exact_bytes = std::uint64_t{1} << 20;
  std::uint64_t min_exact_bytes_a_rank = std::uint64_t{128} << 10; ///< not measured with more than eight ranks
  std::uint64_t min_exact_bytes_on_one_host = std::uint64_t{32} << 20;
  bool verbose = false;
  spar::network_model network;

  [[nodiscard]] bool lossy() const noexcept { return encodes; }
};

/// Reads SPAR_ALLREDUCE, SPAR_MIN_BYTES, SPAR_NETWORK and SPAR_VERBOSE. If a value is invalid, prints an error to
/// stderr and returns settings that take over no call.
settings read_settings() noexcept;

} // namespace preload
