// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the time of a call goes, from calls that are traced after the measurement.
#pragma once

#include <spar/core/statistics.hpp>
#include <spar/transport/tracing.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace spar::perf {

/// The number of calls of each system that are traced.
inline constexpr int traced_calls = 5;

/// Seconds of traced calls: first the sum over one rank's calls, then the mean over all ranks and calls.
struct phases {
  double select = 0; ///< the selection of entries
  double encode = 0; ///< encoding and decoding by a codec
  double wait = 0;   ///< a coroutine waits for a message, and the rank does not compute
  double merge = 0;  ///< other computations: merging streams and adding values
  double other = 0;  ///< the rest: copies, starting messages, and the library itself

  int calls = 0; ///< number of calls that were added

  void add(double seconds, double selecting, const spar::statistics& cost, const spar::traced_seconds& traced) {
    ++calls;
    const double merging = std::max(0.0, traced.compute - cost.codec_seconds);
    select += selecting;
    encode += cost.codec_seconds;
    wait += traced.wait;
    merge += merging;
    other += std::max(0.0, seconds - selecting - cost.codec_seconds - traced.wait - merging);
  }
  /// Divides the sums by the number of calls.
  void average() noexcept {
    for (double* const sum : {&select, &encode, &wait, &merge, &other}) *sum /= calls;
    calls = 1;
  }
};

/// The names of the phases and the phases, in the order of the output.
inline constexpr std::array<std::pair<std::string_view, double phases::*>, 5> phase_members{{
    {"select", &phases::select},
    {"encode", &phases::encode},
    {"wait", &phases::wait},
    {"merge", &phases::merge},
    {"other", &phases::other},
}};

} // namespace spar::perf
