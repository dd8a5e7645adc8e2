// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads the text of an any_allreduce or an any_feedback.
#pragma once

#include <spar/core/error.hpp>
#include <spar/system/any/systems.hpp>
#include <spar/system/text/composition_text.hpp>
#include <spar/topology/hosts.hpp>

#include <span>
#include <string_view>

namespace spar::inline v0_1::detail {

SPAR_INLINE composition_text read_any_text(std::string_view text) {
  composition_text read = parse_composition(text);
  if (read.over != topology_text::flat && read.over != topology_text::tree)
    raise<invalid_argument>({"'", text, "' has a plan for vectors of one length; expected the topology flat or tree"});
  return read;
}

SPAR_INLINE shared<shared_plans> plans_for(std::string_view text, std::span<const rank_t> hosts) {
  if (hosts.empty())
    raise<invalid_argument>({"'", text,
                             "' needs the hosts of the ranks; expected the number of a host for each rank, "
                             "or the topology flat"});
  return shared<shared_plans>::first(new shared_plans(tree_of_hosts(hosts)));
}

} // namespace spar::inline v0_1::detail
