// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Registers the compositions that `--systems` names by their parts and options (docs/guide/text.md).
#pragma once

#include "p2p_compressed.hpp"
#include "partial_name.hpp"
#include "system_names.hpp"
#include "systems.hpp"

#include <spar/system/text/visit_composition.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace spar::perf {

namespace detail {

/// Whether a part is one of these.
template <class Part, class... Parts>
inline constexpr bool is_one_of = (std::same_as<Part, Parts> || ...);
#ifdef SPAR_PERF_FEW_TYPES
inline constexpr bool few_types = true;
#else
inline constexpr bool few_types = false;
#endif

/// Whether spar_perf has compiled a composition, among all that a text can name: each takes seconds to compile.
template <class Composition>
inline constexpr bool is_measured = false;
template <class Selector, class Storage, class Schedule>
inline constexpr bool is_measured<spar::composition<Selector, Storage, spar::flat, Schedule>> = [] {
  using namespace spar;
  using storage::coo, storage::named_codec, storage::coded;
  if (few_types && (is_one_of<Storage, coded<7>> || is_one_of<Schedule, cheapest_owners>)) return false;
  if constexpr (std::same_as<Selector, selector::named_selector>) {
    if (is_one_of<Schedule, pruned_owners, cheapest_owners>) return is_one_of<Storage, coded<>>;
    if (is_one_of<Schedule, tree_of_topk, balanced_owners>) return is_one_of<Storage, coo, coded<>, coded<7>>;
    return is_one_of<Storage, coo> && is_one_of<Schedule, gather_and_merge, split_allgather<>>;
  } else if constexpr (std::same_as<Selector, everything>) {
    if (is_one_of<Storage, coo, coded<>, coded<7>> && is_one_of<Schedule, cheapest, ssar_split, recursive_doubling>)
      return true;
    if (is_one_of<Storage, coo>) return is_one_of<Schedule, ring, rabenseifner, dsar_split, gather_and_merge>;
    if (is_one_of<Storage, named_codec, storage::bound> &&
        is_one_of<Schedule, ring, recursive_doubling, two_shot, one_shot, cheapest>)
      return true;
    return is_one_of<Schedule, dsar_split> && is_one_of<Storage, storage::bound, storage::then<coo, named_codec>>;
  } else {
    return false;
  }
}();
template <class Storage>
inline constexpr bool
    is_measured<spar::composition<spar::everything, Storage, spar::on_plan, spar::chains>> = // FlexReduce
    is_one_of<Storage, spar::storage::coo, spar::storage::named_codec, spar::storage::bound>;

/// Adds compositions to a registry under the name of a text.
template <class Registry>
class text_registration {
  using T = typename Registry::value_type;

 public:
  text_registration(Registry& all, std::string name)
      : all_(all), name_(std::move(name)), messages_(name_.ends_with(by_message)),
        text_(spar::parse_composition(name_.substr(0, name_.size() - (messages_ ? by_message.size() : 0)))) {}

  void run() {
    set_options();
    const auto add = [this](const auto& made) { add_composition(made); };
    if (text_.over == spar::topology_text::flat) return spar::visit_composition_over(text_, spar::flat{}, add);
    if (!std::holds_alternative<spar::chains>(text_.by)) refuse();
    const auto plan = all_.keep(plan_of_text());
    spar::visit_composition_over(text_, spar::on_plan(*plan), add);
  }

 private:
  [[noreturn]] void refuse() const {
    throw missing("spar_perf was compiled without the composition " + text_.to_text() +
                  (few_types ? "" : "; scripts/perf --system NAME=COMPOSITION compiles any"));
  }
  [[nodiscard]] spar::flex_plan plan_of_text() const {
    const std::uint64_t n = all_.given().count;
    if (text_.over == spar::topology_text::blueconnect) return spar::blueconnect_plan(all_.topology(), n);
    if (text_.over == spar::topology_text::hierarchical) return spar::flex_plan::hierarchical(all_.topology(), n);
    return spar::flex_plan(all_.topology(), n);
  }
  /// Sets the options that the text leaves to the command line.
  void set_options() {
    const options& o = all_.given();
    const auto leaves = [this](const char* option) { return name_.find(option) == std::string::npos; };
    if (auto* const select = std::get_if<spar::selector::named_selector>(&text_.select)) {
      *select = select->visit([&](auto by) {
        if constexpr (requires { by.period, by.epsilon; }) {
          if (leaves("period=")) by.period = static_cast<std::uint64_t>(o.tau_prime);
          if (leaves("epsilon=")) by.epsilon = o.epsilon;
        }
        return spar::selector::named_selector(by);
      });
      select->set_k_unless_given(all_.k());
    }
    const auto set_tau = [&](auto& by) {
      if constexpr (requires { by.tau; }) {
        if (leaves("tau=")) by.tau = o.tau;
      }
    };
    std::visit(set_tau, text_.by);
  }

  template <class Selector, class Storage, class Topology, class Schedule>
  void add_composition(const spar::composition<Selector, Storage, Topology, Schedule>& made) {
    if constexpr (!is_measured<spar::composition<Selector, Storage, Topology, Schedule>>) {
      refuse();
    } else if constexpr (std::same_as<Selector, spar::selector::named_selector>) {
      all_.add_feedback(name_, made);
    } else if constexpr (std::same_as<Storage, spar::storage::bound>) {
      all_.add_values(name_, made);
      if (made.store.relative == 0) throw usage_error(name_ + ": spar_perf checks relative bounds, such as bound:1e-3");
      all_.is_lossy(made.store.relative, true);
    } else if constexpr (std::same_as<Storage, spar::storage::named_codec>) {
      add_encoded(made);
    } else if constexpr (std::same_as<Storage, spar::storage::coo>) {
      add_plain(made);
    } else {
      all_.add_streams(name_, made);
      // No algorithm encodes a contribution more often than P + 2 times, each time with half a unit in the eighth
      // place; dsar_split encodes a block once.
      if constexpr (!spar::storage::streams_type<Storage>::exact) set_error(0x1p-8, ranks() + 2);
      if constexpr (!spar::storage::plain_blocks<Storage>) set_error(made.store.blocks.template relative_error<T>(), 1);
    }
  }
  template <class Composition>
  void add_plain(const Composition& made) {
    if (text_.system == "dense" || text_.over != spar::topology_text::flat)
      all_.add_values(name_, made);
    else if (text_.takes_values || text_.system.empty())
      all_.add(name_, made);
    else
      all_.add_streams(name_, made);
  }
  template <class Composition>
  void add_encoded(const Composition& made) {
    using schedule = std::remove_cvref_t<decltype(made.by)>;
    using spar::ring, spar::recursive_doubling;
    const spar::storage::named_codec& codec = made.store;
    const double error = codec.template relative_error<T>();
    if constexpr (is_one_of<schedule, ring, recursive_doubling>) {
      using by_messages =
          std::conditional_t<std::same_as<schedule, ring>, p2p_compressed_ring<spar::storage::named_codec>,
                             p2p_compressed_doubling<spar::storage::named_codec>>;
      if (messages_) {
        const by_messages algorithm{codec};
        all_.add_values(name_, algorithm);
        return set_error(error, algorithm.encodings(ranks()));
      }
    }
    all_.add_values(name_, made);
    if constexpr (std::same_as<schedule, spar::cheapest>)
      set_error(error, std::max(ring::encodings(ranks()), recursive_doubling::encodings(ranks())));
    else if constexpr (std::same_as<schedule, spar::chains>)
      set_error(error, spar::chains::encodings(made.over.plan(all_.given().count)));
    else
      set_error(error, schedule::encodings(ranks()));
  }
  [[nodiscard]] spar::rank_t ranks() const { return static_cast<spar::rank_t>(all_.topology().ranks()); }
  /// Sets the error bound of encodings, relative to the sum of the ranks' largest values.
  void set_error(double of_each, std::int64_t encodings) {
    all_.is_lossy(std::pow(1 + of_each, static_cast<double>(encodings)) - 1, !messages_);
  }

  Registry& all_;
  std::string name_;
  bool messages_;
  spar::composition_text text_;
};

} // namespace detail

/// Adds the compositions that `--systems` names by their parts and options, also inside partial systems. Throws
/// `missing` for types and compositions that spar_perf has not compiled.
template <class Registry>
void register_texts(Registry& all) {
  for (const std::string& system : all.given().systems) {
    const std::optional<partial_name> partial = parse_partial(system);
    const std::string name = partial ? partial->inner : system;
    if (is_word_of(name, system_names) || !is_composition(name)) continue;
    if constexpr (has_partial<typename Registry::value_type, typename Registry::index_type>)
      detail::text_registration(all, name).run();
    else
      throw missing("spar_perf supports systems with parts and options for float with 32-bit indices, not for " + name +
                    " of " + all.given().type + " with " + std::to_string(all.given().index_bits) + "-bit indices");
  }
}

} // namespace spar::perf
