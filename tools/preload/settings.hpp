// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the environment of rank 0 says.
#pragma once

#include <spar/core/network_model.hpp>

#include <array>
#include <cstdint>

namespace preload {

enum class algorithm : std::uint8_t { none, automatic, rabenseifner, ring, rec_doubling, flexreduce };

/// A plain value: rank 0's is broadcast.
struct settings {
  algorithm chosen = algorithm::none; ///< none: every call is the MPI library's own
  std::array<char, 32> codec{};       ///< name, as spar::storage::named_codec takes it; empty: exact
  // Bytes of a vector; smaller ones are the MPI library's own:
  std::uint64_t min_bytes = 65536; ///< where sums are compressed
  /// Of exact calls over hosts, where MPI libraries may be as fast up to half of this, and within one (both measured in
  /// docs/compressed.md).
  std::uint64_t min_exact_bytes = std::uint64_t{1} << 20;
  std::uint64_t min_exact_bytes_a_rank = std::uint64_t{128} << 10; ///< more than eight were not measured
  std::uint64_t min_exact_bytes_on_one_host = std::uint64_t{32} << 20;
  bool verbose = false;
  spar::network_model network;

  [[nodiscard]] bool lossy() const noexcept { return codec[0] != '\0'; }
};

/// Reads SPAR_ALLREDUCE, SPAR_MIN_BYTES, SPAR_NETWORK and SPAR_VERBOSE. Where one of them is wrong it says so on
/// stderr, and no call is taken over.
settings read_settings() noexcept;

} // namespace preload
