// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of composition_text.hpp.
#pragma once

#include <spar/system/text/composition_text.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace spar::inline v0_1 {

namespace detail {

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
    if (balanced == nullptr || given_[by] || (part != "pruned" && part != "cheapest")) return false;
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

SPAR_INLINE std::string composition_text::to_text() const {
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

SPAR_INLINE composition_text parse_composition(std::string_view text) {
  return detail::composition_reader(text).result();
}

} // namespace spar::inline v0_1
