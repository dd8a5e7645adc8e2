// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The names of partial systems: a participation, and the system that runs the rounds.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spar::perf {

/// The parts of a name: `eager_solo`, `eager_majority`, `everyone` or `quorum:Q`, and after a `+` the inner system that
/// runs the rounds.
struct partial_name {
  enum class kind { solo, majority, everyone, quorum };

  kind who{};
  int quorum = 0;
  std::string inner = "dense";
};

/// As printed by `--list`.
inline constexpr std::string_view partial_names = "eager_solo eager_majority quorum:Q everyone";

/// Parses the name of a partial system; returns nothing for other names. Throws `usage_error` if the quorum is not a
/// number.
std::optional<partial_name> parse_partial(const std::string& name);

} // namespace spar::perf
