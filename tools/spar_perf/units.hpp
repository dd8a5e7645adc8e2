// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers with units: parses those of the command line, such as 16M, 1us and 1GB/s, and prints times.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace spar::perf {

/// The command line is invalid: exit status 2.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr int wrong_result = 1; ///< exit status of a wrong result, and of an error of a measurement

/// This build lacks a type, a transport or a system that the command line asks for: exit status 77.
struct missing : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A whole number of at most 2^53: 1000000, 1e6, or with a binary suffix, 1K = 2^10, 1M = 2^20, 1G = 2^30 (as in
/// nccl-tests). This and the next three functions throw `usage_error`, whose message names `option`.
std::uint64_t parse_count(std::string_view option, std::string_view text);

/// Seconds: a number with s, ms, us or ns; 0 needs no unit.
double parse_seconds(std::string_view option, std::string_view text);

/// Bytes per second: a number with [K|M|G|T]B/s, [Ki|Mi|Gi]B/s or [K|M|G|T]bit/s.
double parse_rate(std::string_view option, std::string_view text);

/// A number above 0 and at most 1.
double parse_share(std::string_view option, std::string_view text);

/// A time in us, ms or s.
std::string time_text(double seconds);

} // namespace spar::perf
