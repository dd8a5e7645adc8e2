// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The names of compressed systems: what is compressed, by which codec, and where.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace perf {

/// `ring+zfp:8`, `rec_doubling+qsgd:4+p2p`: an algorithm, a codec, and whether each message is compressed by itself.
struct compressed_name {
  std::string algorithm; ///< dense (the fastest by the model), ring, rec_doubling, flexreduce or dsar_split
  std::string codec;     ///< as spar::storage::named_codec takes it
  bool messages = false;
};

/// As `--list` has them.
inline constexpr std::string_view compressed_names = "dense ring rec_doubling flexreduce dsar_split";
inline constexpr std::string_view codec_names = "none bf16 half qsgd:2 qsgd:4 qsgd:8 zfp:RATE";

/// Nothing where the name is not that of a compressed system. Throws `usage_error` for a codec that there is not, and
/// for an algorithm whose messages cannot be compressed by themselves.
std::optional<compressed_name> parse_compressed(const std::string& name);

} // namespace perf
