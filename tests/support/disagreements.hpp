// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls of each collective in which one rank passes another value of something on which the ranks must agree.
#pragma once

#include <spar/runtime/tasks/task.hpp>
#include <spar/transport/any.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace spar_test {

/// A collective and a parameter on which its ranks must agree.
struct disagreement {
  std::string_view call; ///< the call and the parameter, for messages of the test
  std::string_view text; ///< what the error says
  /// Makes the call; `odd` says whether this rank passes another value than the other ranks. `own` is the root of a
  /// rank that is odd, and `common` that of the other ranks.
  spar::task<void> (*start)(spar::any_transport& net, bool odd, spar::rank_t own, spar::rank_t common);
  bool rooted; ///< whether the call has a root, that differs
};

/// All collectives with each of their parameters.
std::span<const disagreement> disagreements();

/// Makes the call of `which`, in which the rank `odd` differs, then two calls in which the ranks agree. Sets `text` to
/// the message of the error, which must be a `mismatch` or `peer_failed`; leaves it empty if there was none.
spar::task<void> disagree(spar::any_transport& net, const disagreement& which, spar::rank_t odd, spar::rank_t own,
                          spar::rank_t common, std::string* text);

} // namespace spar_test
