// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Writes plans of FlexReduce to JSON and reads them back. Needs nlohmann's json; spar.hpp does not include this header.
#pragma once

#include <spar/topology/flex_plan.hpp>
#include <spar/topology/tree_json.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace spar::inline v0_1 {

/// Returns the plan as a JSON object:
/// - `n` and `ranks`: the numbers of values and of ranks;
/// - `ranges`: the range that each rank owns after the last level;
/// - `subranges` and `participants`: for each call of each level, its subrange, and its chain of ranks with the root
///   last;
/// - `calls_mean` and `calls_max`: the mean and the maximum number of calls on one level that have the same root.
///
/// A range is written as [begin, end], and does not include `end`.
inline std::string to_json(const flex_plan& plan) {
  using json = nlohmann::ordered_json;
  const auto range = [](const index_range& r) { return json::array({r.begin, r.end}); };
  json all;
  all["n"] = plan.dimension();
  all["ranks"] = plan.ranks();
  all["ranges"] = json::array();
  for (rank_t r = 0; r < plan.ranks(); ++r) all["ranges"].push_back(range(plan[r]));
  all["subranges"] = json::array();
  all["participants"] = json::array();
  for (std::size_t level = 0; level < plan.levels(); ++level) {
    json subranges = json::array(), participants = json::array();
    for (const auto& c : plan.calls(level)) {
      subranges.push_back(range(c.range));
      const auto chain = plan.chain(c);
      participants.push_back(std::vector<rank_t>(chain.begin(), chain.end()));
    }
    all["subranges"].push_back(subranges);
    all["participants"].push_back(participants);
  }
  all["calls_mean"] = plan.counts().mean;
  all["calls_max"] = plan.counts().most;
  return all.dump(1) + "\n";
}

namespace detail {

inline std::uint64_t count_of_json(const nlohmann::json& from) {
  if (!from.is_number_unsigned())
    raise<invalid_argument>({"a plan has ", shown(from), " where a non-negative integer is expected"});
  return from.get<std::uint64_t>();
}
inline rank_t rank_of_json(const nlohmann::json& from) {
  if (count_of_json(from) > static_cast<std::uint64_t>(std::numeric_limits<rank_t>::max())) {
    raise<invalid_argument>({"a plan has ", shown(from), " where a rank is expected, an integer from 0 to ",
                             std::numeric_limits<rank_t>::max()});
  }
  return from.get<rank_t>();
}
inline index_range range_of_json(const nlohmann::json& from) {
  if (from.size() != 2)
    raise<invalid_argument>({"a plan has ", shown(from), " where a range [begin, end] is expected"});
  return {count_of_json(from.at(0)), count_of_json(from.at(1))};
}

} // namespace detail

/// Reads a plan that `to_json` wrote; the result is equal to the original. Throws `invalid_argument` if the text is
/// malformed, the plan is invalid (see `flex_plan::of_calls`), or the array `ranges` differs from the ranges that the
/// calls produce.
inline flex_plan parse_plan(const std::string& text) {
  try {
    const auto from = detail::json_without_doubles(text, "a plan");
    const auto& subranges = from.at("subranges");
    const auto& participants = from.at("participants");
    if (subranges.size() != participants.size()) {
      raise<invalid_argument>({"a plan has subranges for ", subranges.size(), " levels, but participants for ",
                               participants.size(), " levels; expected equal numbers"});
    }
    std::vector<std::vector<flex_plan::call_spec>> levels(subranges.size());
    for (std::size_t l = 0; l < levels.size(); ++l) {
      if (subranges.at(l).size() != participants.at(l).size()) {
        raise<invalid_argument>({"level ", l, " of a plan has ", subranges.at(l).size(), " subranges, but ",
                                 participants.at(l).size(),
                                 " chains of participants; expected one chain for each subrange"});
      }
      for (std::size_t c = 0; c < subranges.at(l).size(); ++c) {
        auto& call = levels[l].emplace_back();
        call.range = detail::range_of_json(subranges.at(l).at(c));
        for (const auto& rank : participants.at(l).at(c)) call.chain.push_back(detail::rank_of_json(rank));
      }
    }
    if (from.at("ranges").size() != detail::count_of_json(from.at("ranks"))) {
      raise<invalid_argument>({"a plan has ", from.at("ranges").size(), " ranges; expected one for each of ",
                               detail::count_of_json(from.at("ranks")), " ranks"});
    }
    const flex_plan plan =
        flex_plan::of_calls(detail::count_of_json(from.at("n")), detail::rank_of_json(from.at("ranks")), levels);
    for (rank_t r = 0; r < plan.ranks(); ++r) {
      if (detail::range_of_json(from.at("ranges").at(static_cast<std::size_t>(r))) != plan[r]) {
        raise<invalid_argument>(
            {"ranges[", r, "] of a plan is ", detail::shown(from.at("ranges").at(static_cast<std::size_t>(r))),
             ", but the calls of the plan make rank ", r, " the owner of [", plan[r].begin, ",", plan[r].end, "]"});
      }
    }
    return plan;
  } catch (const nlohmann::json::exception& e) {
    raise<invalid_argument>({"malformed plan: ", e.what()});
  }
}

} // namespace spar::inline v0_1
