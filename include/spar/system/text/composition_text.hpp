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
#include <concepts>
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

/// Reads a text into a composition_text.
class composition_reader {
 public:
  explicit composition_reader(std::string_view text) {
    to_.text = text;
    const std::size_t end = std::min(text.find_first_of("=:+,"), text.size());
    if (end < text.size() && text[end] == '=')
      read_slots(to_.text);
    else
      read_system(to_.text);
    set_storage();
    check_parts();
  }
  [[nodiscard]] composition_text result() && { return std::move(to_); }

 private:
  using coded_blocks = storage::then<storage::coo, storage::named_codec>;
  /// What a part of a text is. The slot of streams and of blocks is `store`.
  enum kind : std::size_t { streams, blocks, by, select, over, kinds };
  static constexpr std::string_view slot_of[kinds] = {"store", "store", "by", "select", "over"};

  /// `slot=part{,slot=part}`.
  void read_slots(std::string_view text) {
    std::size_t begin = 0;
    do {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const std::size_t equals = std::min(text.find('=', begin), end);
      const std::string_view slot = text.substr(begin, equals - begin);
      text_choices choices;
      for (const kind each : {select, streams, over, by}) choices.add(slot_of[each]);
      if (!choices.contains(slot)) refuse_text(text, begin, sentence("unknown slot '", slot, "'"), choices.text(slot));
      for (std::size_t part = equals; part < end;) { // a storage may have two parts
        const std::size_t next = slot == "store" ? std::min(text.find('+', part + 1), end) : end;
        read_kind_of(slot, text, part + 1, next);
        part = next;
      }
      if (equals == end) refuse_text(text, end, sentence("no part for the slot ", slot), sentence(slot, "=PART"));
      begin = end + 1;
    } while (begin <= text.size());
  }
  /// `system{:argument}{+part}`.
  void read_system(std::string_view text) {
    const auto end_of = [text](std::size_t from) { return std::min(text.find_first_of("+,", from), text.size()); };
    part_reader head(text, 0, end_of(0));
    const system_text* found = nullptr;
    text_choices names;
    for (const system_text& each : systems) {
      names.add(each.name);
      if (each.name == head.name()) found = &each;
    }
    if (found == nullptr) refuse_text(text, 0, sentence("unknown system '", head.name(), "'"), names.text(head.name()));
    to_.system = found->name == "automatic" ? "dense" : found->name;
    to_.takes_values = found->takes_values;
    read_slots(found->parts);
    given_ = {};
    if (auto* const selects = std::get_if<selector::named_selector>(&to_.select)) selects->read_options(head);
    std::visit([&](auto& schedule) { schedule_options(schedule, head); }, to_.by);
    head.end();
    for (std::size_t begin = end_of(0); begin < text.size(); begin = end_of(begin + 1)) {
      if (text[begin] == ',')
        refuse_text(text, begin, "a comma", "+ before a part, or slots: select=PART,store=PART,over=PART,by=PART");
      const std::size_t end = end_of(begin + 1);
      if (!read_owners(text.substr(begin + 1, end - begin - 1))) read_kind_of({}, text, begin + 1, end);
    }
  }
  /// `pruned` and `cheapest` after a system with owners: the schedule of that name with the storage coded.
  bool read_owners(std::string_view part) {
    const auto* const balanced = std::get_if<balanced_owners>(&to_.by);
    if (balanced == nullptr || (part != "pruned" && part != "cheapest")) return false;
    if (part == "pruned")
      to_.by = pruned_owners{.tau = balanced->tau};
    else
      to_.by = cheapest_owners{.tau = balanced->tau};
    if (!given_[streams]) streams_ = storage::coded<>{};
    return given_[by] = true;
  }

  /// Reads the part in the characters [`begin`, `end`) of `text`, which is for `slot`, or for any slot if that is
  /// empty.
  void read_kind_of(std::string_view slot, std::string_view text, std::size_t begin, std::size_t end) {
    part_reader part(text, begin, end);
    text_choices choices;
    for (const kind each : {streams, blocks, by, select, over}) {
      if (!slot.empty() && slot != slot_of[each]) continue;
      if (slot.empty() && each == by) choices.hide_further();
      if (read(each, part)) {
        if (given_[each]) refuse_text(text, begin, sentence("a second part '", part.text(), "'"), "one of its kind");
        given_[each] = true;
        return part.end();
      }
      add_choices(each, choices);
    }
    const std::string others = slot.empty() ? ", or a selector, a topology or a schedule" : "";
    refuse_text(text, begin, sentence("unknown part '", part.text(), "'"), choices.text(part.text()) + others);
  }
  static void add_choices(kind what, text_choices& to) {
    if (what == streams) to.add(stream_codec_names);
    if (what == blocks) to.add(storage::named_codec::names), to.add("bound");
    if (what == by) to.add(schedule_names);
    if (what == select) to.add("everything"), to.add("nonzeros"), to.add(selector::named_selector::names);
    if (what == over) to.add(topology_names);
  }
  /// Reads a part if it has one of the names of this kind. Returns whether it has.
  bool read(kind what, part_reader& part) {
    switch (what) {
    case streams:
      return read_part(part, stream_codec_names, streams_, stream_codec_options);
    case blocks:
      return read_blocks(part);
    case by:
      return read_part(part, schedule_names, to_.by, schedule_options);
    case select:
      return read_selector(part);
    default:
      for (std::size_t i = 0; i < topology_names.size(); ++i) {
        if (!part.begins_with(topology_names[i])) continue;
        to_.over = static_cast<topology_text>(i);
        return true;
      }
      return false;
    }
  }
  bool read_blocks(part_reader& part) {
    storage::named_codec codec;
    if (codec.read(part)) {
      blocks_ = codec;
      return true;
    }
    if (!part.begins_with("bound")) return false;
    storage::bound sums;
    bound_options(sums, part);
    part.end();
    if ((sums.error == 0) == (sums.relative == 0))
      refuse_text(part.whole(), part.position(), sentence("'", part.text(), "'"),
                  "one of relative=NUMBER and error=NUMBER, as in bound:1e-3");
    blocks_ = sums;
    return true;
  }
  bool read_selector(part_reader& part) {
    selector::named_selector named;
    if (part.begins_with("everything"))
      to_.select = selector::everything{};
    else if (part.begins_with("nonzeros"))
      to_.select = selector::nonzeros{};
    else if (named.read(part))
      to_.select = named;
    else
      return false;
    return true;
  }

  /// Sets the storage. A block codec alone encodes the dense values of a system, or joins coordinates.
  void set_storage() {
    const bool plain = std::holds_alternative<storage::coo>(streams_);
    const auto* const codec = std::get_if<storage::named_codec>(&blocks_);
    if (blocks_.index() == 0) {
      std::visit([&](const auto& chosen) { to_.store = chosen; }, streams_);
    } else if (!plain || (codec == nullptr && given_[streams])) {
      to_.refuse("a block codec encodes dense values alone, or after the stream codec coo; bound only alone");
    } else if (codec == nullptr) {
      to_.store = std::get<storage::bound>(blocks_);
    } else if (given_[streams] || (!to_.system.empty() && !to_.takes_values)) {
      to_.store = coded_blocks{{}, *codec};
    } else {
      to_.store = *codec;
    }
  }
  /// Throws `invalid_argument` for parts that do not compose.
  void check_parts() const {
    std::visit([this](const auto& s, const auto& st, const auto& b) { check_over(s, st, b); }, to_.select, to_.store,
               to_.by);
  }
  template <class Selector, class Storage, class Schedule>
  void check_over(const Selector&, const Storage&, const Schedule&) const {
    using on_flat = verdict_of<Selector, Storage, flat, Schedule>;
    using over_tree = verdict_of<Selector, Storage, on_tree, Schedule>;
    using over_plan = verdict_of<Selector, Storage, on_plan, Schedule>;
    const std::string_view reason = to_.over == topology_text::flat   ? on_flat::sentence
                                    : to_.over == topology_text::tree ? over_tree::sentence
                                                                      : over_plan::sentence;
    if (!reason.empty()) to_.refuse(reason);
  }

  composition_text to_{};
  composition_text::stream_part streams_{};
  std::variant<std::monostate, storage::named_codec, storage::bound> blocks_{};
  std::array<bool, kinds> given_{};
};

} // namespace detail

inline std::string composition_text::to_text() const {
  std::string all;
  const auto add = [&](std::string_view slot, const std::string& part) {
    all.append(all.empty() ? "" : ",").append(slot).append("=").append(part);
  };
  const auto write = [](const auto& of) -> std::string {
    using part = std::remove_cvref_t<decltype(of)>;
    if constexpr (requires { of.text(); })
      return of.text();
    else if constexpr (requires { of.streams; })
      return sentence("coo+", of.blocks.text());
    else if constexpr (std::same_as<part, storage::bound>)
      return detail::write_part(std::array<std::string_view, 1>{"bound"}, std::variant<storage::bound>(of),
                                detail::bound_options);
    else
      return detail::write_part(detail::stream_codec_names, stream_part(of), detail::stream_codec_options);
  };
  if (const auto* const named = std::get_if<selector::named_selector>(&select)) add("select", named->text());
  if (std::holds_alternative<selector::nonzeros>(select)) add("select", "nonzeros");
  if (store.index() != 0) add("store", std::visit(write, store));
  if (over != topology_text::flat) add("over", std::string(detail::topology_names[static_cast<std::size_t>(over)]));
  add("by", detail::write_part(detail::schedule_names, by, detail::schedule_options));
  return all;
}

/// Reads a composition from `text`: `system{:argument}{+part}`, or `slot=part{,slot=part}` with the slots select,
/// store, over and by. Throws `invalid_argument` with one sentence that names the text, the position and the choices
/// there, or the reason why the parts do not compose.
inline composition_text parse_composition(std::string_view text) { return detail::composition_reader(text).result(); }

} // namespace spar::inline v0_1
