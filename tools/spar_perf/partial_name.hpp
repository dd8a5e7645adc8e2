// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The names of partial systems: who must take part, and what they reduce with.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace perf {

/// `eager_solo`, `eager_majority`, `everyone` or `quorum:Q`, and behind a `+` the system within.
struct partial_name {
  enum class kind { solo, majority, everyone, quorum };

  kind who{};
  int quorum = 0;
  std::string inner = "dense";
};

/// As `--list` has them.
inline constexpr std::string_view partial_names = "eager_solo eager_majority quorum:Q everyone";

/// Nothing where the name is not that of a partial system. Throws `usage_error` for a quorum that is no number.
std::optional<partial_name> parse_partial(const std::string& name);

} // namespace perf
