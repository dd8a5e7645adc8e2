// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The names of compressed systems: an algorithm, a codec, and whether each message is compressed separately.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spar::perf {

/// The parts of a name such as `ring+zfp:8`, `rec_doubling+qsgd:4+p2p`, `ok_topk+coded:bf16`,
/// `ok_topk+pruned` or `ok_topk+cheapest`.
struct compressed_name {
  std::string algorithm; ///< one of `compressed_names`, of which dense is the fastest by the network model; with a
                         ///< code for streams, one of `coded_names`
  std::string codec;     ///< a name that spar::storage::named_codec accepts, one of `stream_codec_names`, or bound:R
  bool messages = false; ///< +p2p: each message is compressed separately
  double relative = 0;   ///< the relative error of bound:R; 0 for another codec
  [[nodiscard]] bool codes_streams() const { return codec.starts_with("coded") || is_schedule(); }
  /// Whether `codec` is a schedule of ok_topk: pruned sends what can win, in code, and cheapest if the model chooses
  /// it.
  [[nodiscard]] bool is_schedule() const { return codec == "pruned" || codec == "cheapest"; }
};

/// As printed by `--list`.
inline constexpr std::string_view compressed_names = "dense ring rec_doubling two_shot one_shot flexreduce dsar_split";
inline constexpr std::string_view codec_names = "none bf16 half qsgd:2 qsgd:4 qsgd:8 mx:e2m1 mx:e5m2 mx:e4m3 zfp:RATE "
                                                "bound:R";
inline constexpr std::string_view coded_names = "sparcml ssar_split rec_doubling gtopk ok_topk";
inline constexpr std::string_view stream_codec_names = "coded coded:fast coded:bf16 pruned cheapest";

/// Parses the name of a compressed system; returns nothing for other names. Throws `usage_error` for an unknown codec,
/// for +p2p with an algorithm other than ring and rec_doubling, and for a code for streams with an algorithm for
/// vectors.
std::optional<compressed_name> parse_compressed(const std::string& name);

} // namespace spar::perf
