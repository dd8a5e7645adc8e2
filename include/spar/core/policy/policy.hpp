// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What ranks must have alike of a policy (an algorithm, a selector, a codec): its name and its options, as a number
// that ranks compare and as text for errors.
#pragma once

#include <spar/core/error.hpp>
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

namespace spar {

namespace detail {

/// The name of an option, hashed when the program is compiled.
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

/// Writes `name=value, name=value`.
class option_text {
 public:
  explicit option_text(bounded_text& to) noexcept : to_(&to) {}
  template <class Value>
  void operator()(const option_name& name, const Value& value);

 private:
  [[gnu::noinline, gnu::cold]] void label(const char* name) {
    if (!std::exchange(first_, false)) to_->add(", ");
    to_->add(name);
    to_->add("=");
  }

  bounded_text* to_;
  bool first_ = true;
};

} // namespace detail

/// Has a `name`, and `options(f)`, which calls `f("name", value)` for each option that ranks must have alike: a number,
/// a text, or another policy. Options that ranks may have differently, as a number of threads, are left out. Rejects
/// `options` that is not const, or no template of the visitor: it would silently compare nothing.
template <class P>
concept policy = requires(const P& its, detail::option_digest& f) {
  { P::name } -> std::convertible_to<std::string_view>;
  { its.options(f) } -> std::same_as<void>;
};

/// A number that two policies have in common if they have the same name and the same options, and else only by chance,
/// one in 2^64.
template <policy P>
constexpr std::uint64_t digest_of(const P& its) {
  constexpr std::uint64_t name = detail::fnv1a(P::name);
  detail::option_digest digest(name);
  its.options(digest);
  return digest.value();
}

/// Writes the name and the options, like `exact_topk(k=15, density=0)`.
template <policy P>
[[gnu::cold]] void describe(const P& its, detail::bounded_text& to) {
  to.add(P::name);
  const std::size_t length = to.size();
  to.add("(");
  detail::option_text options(to);
  its.options(options);
  if (to.size() == length + 1)
    to.shrink(length);
  else
    to.add(")");
}
/// The same as a string.
template <policy P>
[[gnu::cold]] std::string description_of(const P& its) {
  detail::bounded_text text;
  describe(its, text);
  return std::string(text.view());
}

template <class Value>
constexpr void detail::option_digest::operator()(const option_name& name, const Value& value) {
  add(name.hash);
  if constexpr (std::integral<Value>)
    add(static_cast<std::uint64_t>(value));
  else if constexpr (std::floating_point<Value>)
    add(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
  else if constexpr (std::convertible_to<const Value&, std::string_view>)
    add(fnv1a(value));
  else
    add(digest_of(value));
}

template <class Value>
void detail::option_text::operator()(const option_name& name, const Value& value) {
  label(name.text);
  if constexpr (std::is_arithmetic_v<Value>)
    to_->add_part(value);
  else if constexpr (std::convertible_to<const Value&, std::string_view>)
    to_->add(value);
  else
    describe(value, *to_);
}

} // namespace spar
