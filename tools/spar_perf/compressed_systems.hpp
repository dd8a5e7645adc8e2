// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compressed allreduces among the systems, with any codec (Zhou et al.).
#pragma once

#include "compressed_name.hpp"
#include "partial_name.hpp"
#include "systems.hpp"

#include <spar/collective/compressed_messages.hpp>
#include <spar/storage/named_codec.hpp>
#include <spar/system/compressed.hpp>
#include <spar/system/compressed_flexreduce.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace perf {

/// Adds the compressed systems that `--systems` names, also within partial ones. Throws `missing` for types for which
/// there are none, `usage_error` for a codec that there is not.
template <class Net, class T, class Index>
void register_compressed(registry<Net, T, Index>& all) {
  using named = spar::storage::named_codec;
  for (const std::string& system : all.given().systems) {
    const std::optional<partial_name> partial = parse_partial(system);
    const std::string name = partial ? partial->inner : system;
    const std::optional<compressed_name> its = parse_compressed(name);
    if (!its) continue;
    if constexpr (has_partial<T, Index>) {
      const named codec(its->codec);
      const auto add = [&](auto algorithm, double encodings) {
        // Relative to the sum of the ranks' largest values.
        const double error = std::pow(1 + codec.template relative_error<T>(), encodings) - 1;
        all.add_lossy(name, std::move(algorithm), error, !its->messages);
      };
      const auto ranks = static_cast<spar::rank_t>(all.topology().ranks());
      const auto with = [&](auto algorithm) {
        const auto encodings = static_cast<double>(algorithm.encodings(ranks));
        add(std::move(algorithm), encodings);
      };
      if (its->algorithm == "ring" && its->messages)
        with(spar::ring_of_compressed_messages<named>{codec});
      else if (its->algorithm == "ring")
        with(spar::compressed_ring<named>{codec});
      else if (its->algorithm == "rec_doubling" && its->messages)
        with(spar::doubling_of_compressed_messages<named>{codec});
      else if (its->algorithm == "rec_doubling")
        with(spar::compressed_recursive_doubling<named>{codec});
      else if (its->algorithm == "flexreduce")
        with(spar::compressed_flexreduce<named>{*all.keep(spar::flex_plan(all.topology(), all.given().count)), codec});
      else if (its->algorithm == "dsar_split")
        add(spar::with_storage<spar::dsar_split, named>{{}, codec}, 1);
      else
        add(spar::compressed<named>{codec},
            static_cast<double>(std::max(spar::compressed_ring<named>::encodings(ranks),
                                         spar::compressed_recursive_doubling<named>::encodings(ranks))));
    } else {
      throw missing("spar_perf is built with compressed systems for float with 32-bit indices, not for " + name +
                    " of " + all.given().type + " with " + std::to_string(all.given().index_bits) + "-bit indices");
    }
  }
}

} // namespace perf
