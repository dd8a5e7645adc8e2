// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks the names of systems.
#include "system_names.hpp"

#include "partial_name.hpp"
#include "units.hpp"

#include <spar/system/text/composition_text.hpp>

#include <algorithm>
#include <optional>
#include <variant>

namespace spar::perf {

namespace {

/// Throws `usage_error` unless `text` is a composition, which `by_message` may follow.
void check_text(const std::string& text) {
  const bool messages = text.ends_with(by_message);
  const composition_text parts = parse_composition(text.substr(0, text.size() - (messages ? by_message.size() : 0)));
  if (!messages) return;
  const bool rounds = std::holds_alternative<ring>(parts.by) || std::holds_alternative<recursive_doubling>(parts.by);
  if (!rounds || parts.over != topology_text::flat)
    throw usage_error(text + ": +p2p is only for ring and rec_doubling");
  if (!std::holds_alternative<storage::named_codec>(parts.store))
    throw usage_error(text + ": +p2p is only for codecs of messages, and bound makes codes once");
}

} // namespace

std::vector<std::pair<std::string, std::string>> parts_of_slots() {
  std::string select = "everything nonzeros", store, over, by;
  const auto add = [](std::string& to, const auto& names) {
    for (const std::string_view name : names) to.append(to.empty() ? "" : " ").append(name);
  };
  add(select, selector::named_selector::names);
  add(store, spar::detail::stream_codec_names);
  add(store, storage::named_codec::names);
  add(over, spar::detail::topology_names);
  add(by, spar::detail::schedule_names);
  return {{"select", select}, {"store", store + ":RATE bound:R"}, {"over", over}, {"by", by}};
}

bool is_word_of(std::string_view word, std::string_view text) {
  return (" " + std::string(text) + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

bool is_composition(const std::string& name) {
  try {
    check_text(name);
    return true;
  } catch (const error&) {
    return false;
  }
}

void check_system(const std::string& system, const std::vector<std::string>& own) {
  const std::optional<partial_name> partial = parse_partial(system);
  const std::string& name = partial ? partial->inner : system;
  const bool foreign = name == "mpi" || name == nccl_system;
  if (std::find(own.begin(), own.end(), name) != own.end() || (!partial && foreign)) return;
  try {
    check_text(name);
  } catch (const invalid_argument& e) {
    std::string others = ", nccl, mpi, and the partial systems " + std::string(partial_names);
    for (const std::string& each : own) others = ", " + each + others;
    const bool is_of_system = std::string_view(e.what()).starts_with("unknown system");
    throw usage_error((partial ? system + ": " : "") + e.what() + (is_of_system && !partial ? others : "") +
                      " (--list explains them)");
  }
}

} // namespace spar::perf
