// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads a composition from a text, such as `ok_topk:0.01+coded` or `select=exact_topk:0.01,store=coded,by=ring`. The
// grammar is in docs/guide/text.md.
#pragma once

#include <spar/collective/allreduce/compose.hpp>
#include <spar/collective/allreduce/gather_and_merge.hpp>
#include <spar/collective/compressed/bound.hpp>
#include <spar/collective/topk/cheapest_owners.hpp>
#include <spar/collective/topk/quantile_owners.hpp>
#include <spar/collective/topk/tree_of_topk.hpp>
#include <spar/collective/tree/on_tree.hpp>
#include <spar/core/error.hpp>
#include <spar/core/policy/part_text.hpp>
#include <spar/selector/named_selector.hpp>
#include <spar/selector/nonzeros.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/named_codec.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace spar::inline v0_1 {

/// The topologies that a text can name.
enum class topology_text {
  flat,        ///< `flat`
  tree,        ///< the tree of the network, with FlexReduce's plans: `on_tree`
  blueconnect, ///< the plan of BlueConnect for the tree and one length (see blueconnect_plan)
  hierarchical ///< the plan flex_plan::hierarchical for the tree and one length
};

/// The parts of a composition that `parse_composition` has read from a text. To call the composition, pass this object
/// to `visit_composition`.
struct composition_text {
  /// The stream codecs. The type decides which messages ranks send, so there is no single type for all of them.
  using stream_part = std::variant<storage::coo, storage::coded<>, storage::coded<7>>;

  std::string text;          ///< the text
  std::string system;        ///< the system by whose name the text begins; empty if the text names the slots
  bool takes_values = false; ///< whether the system reduces dense values in place, so that a block codec encodes them

  std::variant<selector::everything, selector::nonzeros, selector::named_selector> select{}; ///< the selector
  std::variant<storage::coo, storage::coded<>, storage::coded<7>, storage::named_codec,
               storage::then<storage::coo, storage::named_codec>, storage::bound>
      store{};                              ///< the storage
  topology_text over = topology_text::flat; ///< the topology
  std::variant<cheapest, recursive_doubling, ring, rabenseifner, two_shot, one_shot, split_allgather<>, ssar_split,
               dsar_split, gather_and_merge, quantile_owners, chains, tree_of_topk, balanced_owners, pruned_owners,
               cheapest_owners>
      by{}; ///< the schedule

  /// The composition as a text that names the slots, from which `parse_composition` reads the same parts. Options with
  /// their defaults are left out, and so are slots with their defaults, except for the schedule.
  [[nodiscard]] std::string to_text() const;
  /// Throws `invalid_argument`: the parts of the text do not compose, for this `reason`.
  [[noreturn, gnu::cold]] void refuse(std::string_view reason) const {
    raise<invalid_argument>({"the parts of '", text, "' do not compose: ", reason});
  }
};

namespace detail {

/// A system, and the slots for which its name stands.
struct system_text {
  std::string_view name;
  std::string_view parts;
  bool takes_values = false;
};
inline constexpr system_text systems[] = {
    {"sparcml", "by=cheapest"},
    {"ssar_split", "by=ssar_split"},
    {"dsar_split", "by=dsar_split"},
    {"rec_doubling", "by=recursive_doubling", true},
    {"ring", "by=ring", true},
    {"rabenseifner", "by=rabenseifner", true},
    {"two_shot", "by=two_shot", true},
    {"one_shot", "by=one_shot", true},
    {"allgather", "by=gather_and_merge"},
    {"dense", "by=cheapest", true},
    {"automatic", "by=cheapest", true},
    {"nonzeros", "select=nonzeros,by=cheapest", true},
    {"flexreduce", "over=tree,by=chains", true},
    {"blueconnect", "over=blueconnect,by=chains", true},
    {"hierarchical", "over=hierarchical,by=chains", true},
    {"tree_dense", "over=tree,by=cheapest", true},
    {"tree_sparcml", "over=tree,by=quantile_owners"},
    {"dsar_qsgd8", "store=coo+qsgd:8,by=dsar_split"},
    {"dsar_qsgd4", "store=coo+qsgd:4,by=dsar_split"},
    {"dsar_qsgd2", "store=coo+qsgd:2,by=dsar_split"},
    {"topka", "select=exact_topk,by=gather_and_merge"},
    {"gaussiank", "select=gaussian,by=gather_and_merge"},
    {"topkdsa", "select=exact_topk,by=split_allgather"},
    {"gtopk", "select=exact_topk,by=tree_of_topk"},
    {"ok_topk", "select=threshold_reuse,by=balanced_owners"},
    {"tree_ok_topk", "select=threshold_reuse,over=tree,by=balanced_owners"},
};
inline constexpr std::array<std::string_view, 4> topology_names = {"flat", "tree", "blueconnect", "hierarchical"};
inline constexpr std::array<std::string_view, 3> stream_codec_names = {"coo", "coded", "coded:bf16"};
inline constexpr std::array<std::string_view, 16> schedule_names = {
    "cheapest",        "recursive_doubling", "ring",          "rabenseifner",     "two_shot",        "one_shot",
    "split_allgather", "ssar_split",         "dsar_split",    "gather_and_merge", "quantile_owners", "chains",
    "tree_of_topk",    "balanced_owners",    "pruned_owners", "cheapest_owners"};

// Functions that name the options of a part to a `part_reader` or a `part_writer`.
inline constexpr auto stream_codec_options = [](auto& of, auto& f) {
  if constexpr (requires { of.fast; }) f.flag("fast", of.fast);
};
inline constexpr auto bound_options = [](auto& of, auto& f) {
  constexpr number_range positive{std::numeric_limits<double>::min(), valid::greatest, "a positive, finite number"};
  f("error", of.error, positive);
  f.first("relative", of.relative, positive);
};
inline constexpr auto schedule_options = [](auto& of, auto& f) {
  if constexpr (requires { of.tau; }) f("tau", of.tau, from_one);
  if constexpr (requires { of.piece; }) f("piece", of.piece, from_one);
  if constexpr (requires { of.dense_from; })
    f("dense_from", of.dense_from, {0, valid::greatest, "a number of at least 0"});
  if constexpr (requires { of.parts; }) f("parts", of.parts, {1, 8, "a whole number from 1 to 8"});
};

} // namespace detail

/// Reads a composition from `text`: `system{:argument}{+part}`, or `slot=part{,slot=part}` with the slots select,
/// store, over and by. Throws `invalid_argument` with one sentence that names the text, the position and the choices
/// there, or the reason why the parts do not compose.
composition_text parse_composition(std::string_view text);

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/system/text/composition_text-inl.hpp>
#endif
