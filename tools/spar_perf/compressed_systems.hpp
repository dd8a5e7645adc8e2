// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Registers allreduces with any block codec (Zhou et al.), and sparse systems with the code for streams.
#pragma once

#include "compressed_name.hpp"
#include "p2p_compressed.hpp"
#include "partial_name.hpp"
#include "systems.hpp"

#include <spar/collective/compressed/bound.hpp>
#include <spar/collective/topk/cheapest_owners.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/named_codec.hpp>
#include <spar/tree.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace spar::perf {

/// The selector of Ok-Topk, with the options of the user.
template <class Registry>
spar::selector::threshold_reuse selector_of_ok_topk(const Registry& all) {
  const options& o = all.given();
  return {.k = all.k(), .period = static_cast<std::uint64_t>(o.tau_prime), .epsilon = o.epsilon};
}

/// Adds the sparse system `its` with the stream codec `code`.
template <class Registry, class Codec>
void register_coded(Registry& all, const std::string& name, const compressed_name& its, const Codec& code) {
  using spar::compose;
  const std::uint64_t k = all.k();
  const bool feedback = its.algorithm == "gtopk" || its.algorithm == "ok_topk";
  if (its.algorithm == "gtopk")
    all.add_feedback(name, compose(spar::selector::exact_topk{.k = k}, code, spar::tree_of_topk{}));
  if (its.algorithm == "ok_topk")
    all.add_feedback(name, compose(selector_of_ok_topk(all), code, spar::balanced_owners{.tau = all.given().tau}));
  if (its.algorithm == "sparcml") all.add_streams(name, compose(code, spar::cheapest{}));
  if (its.algorithm == "ssar_split") all.add_streams(name, compose(code, spar::ssar_split{}));
  if (its.algorithm == "rec_doubling") all.add_streams(name, compose(code, spar::recursive_doubling{}));
  // No algorithm encodes a contribution more often than P + 2 times, each time with half a unit in the eighth place.
  const double encodings = all.topology().ranks() + 2;
  if constexpr (!Codec::exact) {
    if (!feedback) all.is_lossy(std::pow(1 + 0x1p-8, encodings) - 1, true);
  }
}

/// Adds the system `its` of dense values, which sums codes with a relative error.
template <class Registry>
void register_bound(Registry& all, const std::string& name, const compressed_name& its) {
  const spar::storage::bound store{.relative = its.relative};
  const auto add = [&](const auto& algorithm) {
    all.add_values(name, algorithm);
    all.is_lossy(its.relative, true);
  };
  using spar::compose;
  if (its.algorithm == "ring") add(compose(store, spar::ring{}));
  if (its.algorithm == "rec_doubling") add(compose(store, spar::recursive_doubling{}));
  if (its.algorithm == "two_shot") add(compose(store, spar::two_shot{}));
  if (its.algorithm == "one_shot") add(compose(store, spar::one_shot{}));
  if (its.algorithm == "flexreduce")
    add(spar::flexreduce(*all.keep(spar::flex_plan(all.topology(), all.given().count)), store));
  if (its.algorithm == "dsar_split") add(compose(store, spar::dsar_split{}));
  if (its.algorithm == "dense") add(compose(store, spar::cheapest{}));
}

/// Adds Ok-Topk by the schedule `Owners`, with the code for streams.
template <class Owners, class Registry>
void register_owners(Registry& all, const std::string& name) {
  const Owners owners{.tau = all.given().tau};
  all.add_feedback(name, spar::compose(selector_of_ok_topk(all), spar::storage::coded{}, owners));
}

/// Adds the compressed systems that `--systems` names, also inside partial systems. Throws `missing` for types for
/// which spar_perf has no compressed systems, and `usage_error` for an unknown codec.
template <class Registry>
void register_compressed(Registry& all) {
  using T = typename Registry::value_type;
  using named = spar::storage::named_codec;
  for (const std::string& system : all.given().systems) {
    const std::optional<partial_name> partial = parse_partial(system);
    const std::string name = partial ? partial->inner : system;
    const std::optional<compressed_name> its = parse_compressed(name);
    if (!its) continue;
    if constexpr (has_partial<T, typename Registry::index_type>) {
      if (its->codes_streams()) {
        if (its->codec == "pruned") {
          register_owners<spar::pruned_owners>(all, name);
        } else if (its->codec == "coded" || its->codec == "coded:fast") {
          register_coded(all, name, *its, spar::storage::coded{.fast = its->codec == "coded:fast"});
        } else {
#ifdef SPAR_PERF_FEW_TYPES
          throw missing("this spar_perf was compiled for the quick tests, without " + its->codec);
#else
          if (its->codec == "cheapest")
            register_owners<spar::cheapest_owners>(all, name);
          else
            register_coded(all, name, *its, spar::storage::coded<7>{});
#endif
        }
        continue;
      }
      if (its->relative > 0) {
        register_bound(all, name, *its);
        continue;
      }
      const named codec(its->codec);
      // Sets the error bound, relative to the sum of the ranks' largest values.
      const auto errs = [&](std::int64_t encodings) {
        const double error = std::pow(1 + codec.template relative_error<T>(), static_cast<double>(encodings)) - 1;
        all.is_lossy(error, !its->messages);
      };
      const auto ranks = static_cast<spar::rank_t>(all.topology().ranks());
      const auto add_values = [&](const auto& algorithm, std::int64_t encodings) {
        all.add_values(name, algorithm);
        errs(encodings);
      };
      using spar::compose, spar::ring, spar::recursive_doubling;
      if (its->algorithm == "ring" && its->messages) {
        const p2p_compressed_ring<named> algorithm{codec};
        add_values(algorithm, algorithm.encodings(ranks));
      } else if (its->algorithm == "ring") {
        add_values(compose(codec, ring{}), ring::encodings(ranks));
      } else if (its->algorithm == "rec_doubling" && its->messages) {
        const p2p_compressed_doubling<named> algorithm{codec};
        add_values(algorithm, algorithm.encodings(ranks));
      } else if (its->algorithm == "rec_doubling") {
        add_values(compose(codec, recursive_doubling{}), recursive_doubling::encodings(ranks));
      } else if (its->algorithm == "two_shot") {
        add_values(compose(codec, spar::two_shot{}), spar::two_shot::encodings(ranks));
      } else if (its->algorithm == "one_shot") {
        add_values(compose(codec, spar::one_shot{}), spar::one_shot::encodings(ranks));
      } else if (its->algorithm == "flexreduce") {
        const auto plan = all.keep(spar::flex_plan(all.topology(), all.given().count));
        add_values(spar::flexreduce(*plan, codec), spar::chains::encodings(*plan));
      } else if (its->algorithm == "dsar_split") {
        all.add_streams(name, compose(spar::storage::then<spar::storage::coo, named>{{}, codec}, spar::dsar_split{}));
        errs(1);
      } else {
        add_values(compose(codec, spar::cheapest{}),
                   std::max(ring::encodings(ranks), recursive_doubling::encodings(ranks)));
      }
    } else {
      throw missing("spar_perf supports compressed systems for float with 32-bit indices, not for " + name + " of " +
                    all.given().type + " with " + std::to_string(all.given().index_bits) + "-bit indices");
    }
  }
}

} // namespace spar::perf
