// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of part_text.hpp.
#pragma once

#include <spar/core/policy/part_text.hpp>
#include <spar/core/util/algobase.hpp>

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace spar::inline v0_1::detail {

/// The number of characters to insert, delete or replace that turn `a` into `b`.
SPAR_INLINE std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::string row(b.size() + 1, '\0'); // of at most 127 characters; longer texts are close to nothing
  if (a.size() > 100 || b.size() > 100) return a.size() + b.size();
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<char>(j);
  for (std::size_t i = 0; i < a.size(); ++i) {
    char diagonal = std::exchange(row[0], static_cast<char>(i + 1));
    for (std::size_t j = 0; j < b.size(); ++j) {
      const char replaced = static_cast<char>(diagonal + (a[i] == b[j] ? 0 : 1));
      const char shorter = std::min(row[j], row[j + 1]);
      diagonal = std::exchange(row[j + 1], std::min(replaced, static_cast<char>(shorter + 1)));
    }
  }
  return static_cast<std::size_t>(row[b.size()]);
}

SPAR_INLINE std::string text_choices::text(std::string_view given) const {
  std::size_t nearest = 0, least = std::numeric_limits<std::size_t>::max();
  std::size_t end = 0;
  do { // compares what stands before each colon, because some names have an argument
    end = std::min(given.find(':', end + 1), given.size());
    for (std::size_t i = 0; i < count_; ++i) {
      const std::size_t distance = edit_distance(given.substr(0, end), names_[i]);
      if (distance < least) least = distance, nearest = i;
    }
  } while (end < given.size());
  std::string all;
  const auto write = [&](std::string_view name) { all.append(all.empty() ? "" : ", ").append(name); };
  const bool is_close = least <= 1 + names_[nearest].size() / 3;
  if (is_close && count_ > 0) write(names_[nearest]);
  for (std::size_t i = 0; i < std::min(count_, shown_); ++i) {
    if (!is_close || i != nearest) write(names_[i]);
  }
  return all.empty() ? "no options" : all;
}

SPAR_INLINE bool text_choices::contains(std::string_view name) const noexcept {
  for (std::size_t i = 0; i < count_; ++i) {
    if (names_[i] == name) return true;
  }
  return false;
}

SPAR_INLINE void refuse_text(std::string_view text, std::size_t at, const std::string& what,
                             const std::string& choices) {
  raise<invalid_argument>({what, " at character ", at + 1, " of '", text, "'; expected ", choices});
}

SPAR_INLINE part_reader::part_reader(std::string_view text, std::size_t begin, std::size_t end)
    : text_(text), begin_(begin), end_(end) {
  std::size_t from = begin;
  for (;;) {
    const std::size_t to = std::min(text.find(':', from), end);
    if (count_ == words_.size()) refuse_text(text, from, "too many arguments", "at most 15 arguments");
    words_[count_++] = {from, text.substr(from, to - from)};
    if (to == end) return;
    from = to + 1;
  }
}

SPAR_INLINE bool part_reader::begins_with(std::string_view known) noexcept {
  const std::size_t colon = std::min(known.find(':'), known.size());
  if (known.substr(0, colon) != name()) return false;
  if (colon == known.size()) return true;
  if (count_ < 2 || words_[1].text != known.substr(colon + 1)) return false;
  return words_[1].is_read = true;
}

SPAR_INLINE void part_reader::amount(std::uint64_t& k, double& density) {
  const std::size_t before = read_;
  (*this)("k", k, from_zero);
  first("density", density, entry_shares);
  if (read_ > before + 1) refuse_text(text_, last_, "a second number of entries", "one: a share or k=NUMBER");
}

SPAR_INLINE void part_reader::flag(std::string_view known, bool& to) {
  choices_.add(known);
  for (word& each : arguments()) {
    if (each.is_read || each.text != known) continue;
    to = take(each);
    return;
  }
}

SPAR_INLINE void part_reader::reject_last(const char* expected) const {
  const std::string_view rest = text_.substr(last_, end_ - last_);
  refuse_text(text_, last_, sentence("'", rest.substr(0, rest.find(':')), "'"), expected);
}

SPAR_INLINE void part_reader::end() {
  const auto key_of = [](const word& its) { return its.text.substr(0, its.text.find('=')); };
  for (const word& each : arguments()) {
    if (each.is_read) continue;
    const std::string_view key = key_of(each);
    for (const word& other : arguments()) {
      if (other.is_read && key_of(other) == key)
        refuse_text(text_, each.at, sentence("a second ", key), "each option once");
    }
    refuse_text(text_, each.at, sentence("unknown option '", each.text, "' of ", name()), choices_.text(key));
  }
}

SPAR_INLINE part_reader::word* part_reader::find(std::string_view key) noexcept {
  for (word& each : arguments()) {
    const bool is_it = each.text.size() > key.size() && each.text.starts_with(key) && each.text[key.size()] == '=';
    if (is_it && !each.is_read) return &each;
  }
  return nullptr;
}

SPAR_INLINE part_reader::word* part_reader::find_unnamed() noexcept {
  if (count_ < 2 || words_[1].is_read || words_[1].text.find('=') != std::string_view::npos) return nullptr;
  const std::string_view text = words_[1].text;
  const bool is_number = !text.empty() && ((text[0] >= '0' && text[0] <= '9') || text[0] == '.' || text[0] == '-');
  return is_number ? &words_[1] : nullptr;
}

SPAR_INLINE void refuse_name(const part_reader& from, const char* kind, std::span<const std::string_view> names) {
  text_choices choices;
  choices.add(names);
  refuse_text(from.whole(), from.position(), sentence("unknown ", kind, " '", from.text(), "'"),
              choices.text(from.text()));
}

SPAR_INLINE void part_writer::option(std::string written) {
  if (defaults_) {
    default_[next_++] = std::move(written);
  } else if (default_[next_++] != written) {
    text_.append(":").append(written);
  }
}

} // namespace spar::inline v0_1::detail
