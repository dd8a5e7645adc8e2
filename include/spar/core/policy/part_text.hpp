// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The text of a part: `name{":" argument}`, where an argument is `option=value`, a word, or the value of the part's
// first option. A function that names the options of a part once serves `part_reader`, which sets them from a text, and
// `part_writer`, which writes them.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/error.hpp>

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

namespace spar::inline v0_1::detail {

/// The names that may stand at one position of a text.
class text_choices {
 public:
  void add(std::string_view name) {
    if (count_ < names_.size()) names_[count_++] = name;
  }
  /// Of the names that are added from now on, `text` has only one that is close to what was given.
  void hide_further() noexcept { shown_ = count_; }
  void add(std::span<const std::string_view> names) {
    for (const std::string_view name : names) add(name);
  }
  [[nodiscard]] bool contains(std::string_view name) const noexcept;
  /// The names, separated by commas: first the one nearest to `given`, if it is close.
  [[nodiscard]] std::string text(std::string_view given) const;

 private:
  std::array<std::string_view, 64> names_{};
  std::size_t count_ = 0;
  std::size_t shown_ = 64;
};

/// Throws `invalid_argument`: "`what` at character `at` + 1 of `text`; expected `choices`".
[[noreturn, gnu::cold]] void refuse_text(std::string_view text, std::size_t at, const std::string& what,
                                         const std::string& choices);

inline constexpr number_range from_one{1, 0x1p64, "a whole number of at least 1"};
inline constexpr number_range from_zero{0, 0x1p64, "a whole number of at least 0"};
inline constexpr number_range entry_shares{std::numeric_limits<double>::min(), 1,
                                           "a share above 0 and at most 1, such as 0.01 or 1%, or k=NUMBER"};

/// Reads the options of a part from its text.
class part_reader {
 public:
  /// Reads the part in the characters [`begin`, `end`) of `text`, which must outlive this object.
  part_reader(std::string_view text, std::size_t begin, std::size_t end);
  /// Reads all of `text`.
  explicit part_reader(std::string_view text) : part_reader(text, 0, text.size()) {}

  [[nodiscard]] std::string_view name() const noexcept { return words_[0].text; }
  /// The part, with its arguments.
  [[nodiscard]] std::string_view text() const noexcept { return text_.substr(begin_, end_ - begin_); }
  [[nodiscard]] std::string_view whole() const noexcept { return text_; }
  /// The position of the part in the whole text.
  [[nodiscard]] std::size_t position() const noexcept { return begin_; }

  /// Whether the text begins with `known`, a name or a name and its first argument. The argument then counts as read.
  [[nodiscard]] bool begins_with(std::string_view known) noexcept;

  /// The option `key`, whose values are those of `range`. Leaves the default in `to` if the text has no such option.
  template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
  void operator()(std::string_view key, Number& to, const number_range& range) {
    choices_.add(key);
    if (word* const given = find(key)) read(*given, given->text.substr(key.size() + 1), to, range);
  }
  /// The same for the part's first option, whose name and `=` may be left out.
  template <class Number>
  void first(std::string_view key, Number& to, const number_range& range) {
    const std::size_t before = read_;
    (*this)(key, to, range);
    word* const given = find_unnamed();
    if (given == nullptr) return;
    if (read_ > before) refuse_text(text_, last_, sentence("a second ", key), "each option once");
    read(*given, given->text, to, range);
  }
  /// The same for a first option that has no default.
  template <class Number>
  void required(std::string_view key, Number& to, const number_range& range) {
    const std::size_t before = read_;
    first(key, to, range);
    if (read_ == before) refuse_text(text_, begin_, sentence(name(), " without its ", key), range.text);
  }
  /// The number of entries of a selector: a share such as 0.01 or 1%, or `k=NUMBER`.
  void amount(std::uint64_t& k, double& density);
  /// The option that the word `known` sets.
  void flag(std::string_view known, bool& to);
  /// Throws `invalid_argument`, because the argument that was read last is none of those `expected`.
  [[noreturn]] void reject_last(const char* expected) const;
  /// Throws `invalid_argument` if an argument has not been read.
  void end();

 private:
  struct word {
    std::size_t at = 0;
    std::string_view text{};
    bool is_read = false;
  };

  [[nodiscard]] std::span<word> arguments() noexcept { return std::span(words_).subspan(1, count_ - 1); }
  bool take(word& given) noexcept {
    ++read_;
    last_ = given.at;
    return given.is_read = true;
  }
  [[nodiscard]] word* find(std::string_view key) noexcept;
  [[nodiscard]] word* find_unnamed() noexcept;

  template <class Number>
  void read(word& given, std::string_view value, Number& to, const number_range& range) {
    take(given);
    const std::size_t at = given.at + given.text.size() - value.size();
    Number number{};
    std::string_view digits = value;
    const bool is_percentage = std::floating_point<Number> && digits.ends_with('%');
    if (is_percentage) digits.remove_suffix(1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool is_number = error == std::errc{} && end == digits.data() + digits.size();
    if (is_percentage) number /= 100; // a product with 0.01 would be rounded twice: 57% would differ from 0.57
    if (is_number && range.contains(static_cast<double>(number))) {
      to = number;
      return;
    }
    refuse_text(text_, at, value.empty() ? "a missing number" : sentence("'", value, "'"), range.text);
  }

  std::string_view text_;
  std::size_t begin_;
  std::size_t end_;
  std::array<word, 16> words_{};
  std::size_t count_ = 0;
  std::size_t read_ = 0;
  std::size_t last_ = 0; // the position of the argument that was read last
  text_choices choices_{};
};

/// Throws `invalid_argument`, because the `kind` of part that begins the text of `from` is none of `names`.
[[noreturn, gnu::cold]] void refuse_name(const part_reader& from, const char* kind,
                                         std::span<const std::string_view> names);

/// Writes the options of a part that differ from those of another part, as `part_reader` reads them.
class part_writer {
 public:
  /// Visits the options of the other part, the one with the defaults, if `defaults`.
  void visit(bool defaults) noexcept {
    defaults_ = defaults;
    next_ = 0;
  }
  template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
  void operator()(std::string_view key, const Number& value, const number_range&) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    option(sentence(key, "=", std::string_view(digits, static_cast<std::size_t>(end - digits))));
  }
  template <class Number>
  void first(std::string_view key, const Number& value, const number_range& range) {
    (*this)(key, value, range);
  }
  template <class Number>
  void required(std::string_view key, const Number& value, const number_range& range) {
    (*this)(key, value, range);
    if (defaults_) default_[next_ - 1].clear(); // so that the value is always written
  }
  void amount(const std::uint64_t& k, const double& density) {
    (*this)("k", k, from_zero);
    (*this)("density", density, entry_shares);
  }
  void flag(std::string_view known, const bool& value) { option(value ? std::string(known) : std::string()); }

  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  void option(std::string written);

  bool defaults_ = false;
  std::size_t next_ = 0;
  std::array<std::string, 16> default_{};
  std::string text_;
};

/// Replaces the part in `chosen` by the `index`-th alternative of the variant, with its defaults.
template <class... Parts>
void choose_part(std::variant<Parts...>& chosen, std::size_t index) {
  std::size_t i = 0;
  (void)((i++ == index ? (chosen = Parts{}, true) : false) || ...);
}
/// Reads one of the parts of a variant, whose names in texts are `names`, in the same order. Returns false if the text
/// begins with none of these names. Calls `options(part, reader)`, which names the options of the part.
template <class... Parts, class Options>
bool read_part(part_reader& from, std::span<const std::string_view> names, std::variant<Parts...>& to,
               const Options& options) {
  for (std::size_t i = names.size(); i > 0; --i) { // longer names of a part follow its shortest name
    if (!from.begins_with(names[i - 1])) continue;
    choose_part(to, i - 1);
    std::visit([&](auto& part) { options(part, from); }, to);
    return true;
  }
  return false;
}
/// The text of the part in `of`, as `read_part` reads it.
template <class... Parts, class Options>
std::string write_part(std::span<const std::string_view> names, const std::variant<Parts...>& of,
                       const Options& options) {
  part_writer to;
  std::variant<Parts...> plain;
  choose_part(plain, of.index());
  to.visit(true);
  std::visit([&](auto& part) { options(part, to); }, plain);
  to.visit(false);
  std::visit([&](const auto& part) { options(part, to); }, of);
  return std::string(names[of.index()]) + to.text();
}

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/core/policy/part_text-inl.hpp>
#endif
