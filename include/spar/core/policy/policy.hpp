// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Policies (algorithms, selectors, codecs) have a name and options, which must be equal on all ranks. Ranks compare the
// name and the options by a digest, and error messages contain them as text.
#pragma once

#include <spar/core/util/bounded_text.hpp>
#include <spar/core/util/fnv1a.hpp>
#include <spar/core/util/splitmix.hpp>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// The number `number` as a 64-bit word: an integer by its value, a floating-point number by its bits as a double.
/// Different numbers of one type have different words.
template <class Number>
constexpr std::uint64_t word_of(const Number& number) noexcept {
  static_assert(std::is_arithmetic_v<Number> && sizeof(Number) <= sizeof(std::uint64_t),
                "ranks compare the numbers of options and states as words of 64 bits: a number is an integer of at "
                "most 64 bits, a float or a double; a state may also have vectors of std::uint64_t");
  if constexpr (std::floating_point<Number>)
    return std::bit_cast<std::uint64_t>(static_cast<double>(number));
  else
    return static_cast<std::uint64_t>(number);
}

/// The name of an option, and the hash of this name, computed at compile time.
struct option_name {
  consteval option_name(const char* given) : text(given), hash(fnv1a(given)) {}
  const char* text;
  std::uint64_t hash;
};

class option_digest {
 public:
  constexpr explicit option_digest(std::uint64_t hash) noexcept : hash_(hash) {}
  template <class Value>
  constexpr void operator()(const option_name& name, const Value& value);
  constexpr void add(std::uint64_t word) noexcept { hash_ = splitmix(hash_ ^ word); }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return hash_; }

 private:
  std::uint64_t hash_;
};

/// The function object that `describe` passes to the function `options` of a policy. Appends each option to a text, as
/// `name=value, name=value`.
class option_text {
 public:
  explicit option_text(bounded_text& to) noexcept : to_(&to) {}
  template <class Value>
  void operator()(const option_name& name, const Value& value);

 private:
  [[gnu::cold]] void label(const char* name) {
    if (!std::exchange(first_, false)) to_->add(", ");
    to_->add(name);
    to_->add("=");
  }

  bounded_text* to_;
  bool first_ = true;
};

} // namespace detail

/// A type with a constant `name` and a function `options(f)`, which calls `f("name", value)` for each option that must
/// be equal on all ranks. The value of an option is a number, a text or another policy. Options that may differ between
/// ranks, such as a number of threads, are left out. Rejects types whose `options` is not const, or does not accept
/// an `option_digest` as `f`, because ranks could not compare the options of these types.
template <class P>
concept policy = requires(const P& part, detail::option_digest& f) {
  { P::name } -> std::convertible_to<std::string_view>;
  { part.options(f) } -> std::same_as<void>;
};

/// A hash of the name and the options of the policy `part`. Two policies with different names or options have the same
/// digest only by chance, with a probability of 2^-64.
template <policy P>
constexpr std::uint64_t digest_of(const P& part) {
  constexpr std::uint64_t name = detail::fnv1a(P::name);
  detail::option_digest digest(name);
  part.options(digest);
  return digest.value();
}

/// Appends the name and the options of the policy `part` to `to`, for example `exact_topk(k=15)`.
template <policy P>
[[gnu::cold]] void describe(const P& part, detail::bounded_text& to) {
  to.add(P::name);
  const std::size_t length = to.size();
  to.add("(");
  detail::option_text options(to);
  part.options(options);
  if (to.size() == length + 1)
    to.shrink(length);
  else
    to.add(")");
}
/// Returns the name and the options of the policy `part`, for example `exact_topk(k=15)`.
template <policy P>
[[gnu::cold]] std::string description_of(const P& part) {
  detail::bounded_text text;
  describe(part, text);
  return std::string(text.view());
}

template <class Value>
constexpr void detail::option_digest::operator()(const option_name& name, const Value& value) {
  add(name.hash);
  if constexpr (std::is_arithmetic_v<Value>)
    add(word_of(value));
  else if constexpr (std::convertible_to<const Value&, std::string_view>)
    add(fnv1a(value));
  else
    add(digest_of(value));
}

template <class Value>
void detail::option_text::operator()(const option_name& name, const Value& value) {
  label(name.text);
  if constexpr (std::is_arithmetic_v<Value>)
    to_->add_parts(value);
  else if constexpr (std::convertible_to<const Value&, std::string_view>)
    to_->add(value);
  else
    describe(value, *to_);
}

} // namespace spar::inline v0_1
