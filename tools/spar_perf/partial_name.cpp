// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses the names of partial systems.
#include "partial_name.hpp"

#include "units.hpp"

#include <algorithm>
#include <charconv>

namespace spar::perf {

std::optional<partial_name> parse_partial(const std::string& name) {
  using kind = partial_name::kind;
  partial_name found;
  const std::string who = name.substr(0, name.find('+'));
  if (who.size() < name.size()) found.inner = name.substr(who.size() + 1);
  if (who == "eager_solo")
    found.who = kind::solo;
  else if (who == "eager_majority")
    found.who = kind::majority;
  else if (who == "everyone")
    found.who = kind::everyone;
  else if (who.starts_with("quorum"))
    found.who = kind::quorum;
  else
    return std::nullopt;
  if (found.who != kind::quorum) return found;
  const std::string number = who.substr(std::min(who.size(), std::string_view("quorum:").size()));
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), found.quorum);
  if (!who.starts_with("quorum:") || error != std::errc() || end != number.data() + number.size()) {
    throw usage_error("invalid quorum '" + who + "': expected a name like quorum:3");
  }
  return found;
}

} // namespace spar::perf
