// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What ranks must have alike of a policy (an algorithm, a selector, a codec): its name and its options, as a number
// that ranks compare and as text for errors.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/fnv1a.hpp>
#include <spar/core/mix.hpp>

#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace spar {

/// Has a `name`, and may have `options(f)`, which calls `f("name", value)` for each option that ranks must have alike:
/// a number, a text, or another policy. Options that ranks may have differently, as a number of threads, are left out.
template <class P>
concept policy = requires {
  { P::name } -> std::convertible_to<std::string_view>;
};

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

class option_text {
 public:
  template <class Value>
  void operator()(const option_name& name, const Value& value);
  [[nodiscard]] const std::string& value() const noexcept { return text_; }

 private:
  std::string text_;
};

} // namespace detail

/// A number that two policies have in common if they have the same name and the same options, and else only by chance,
/// one in 2^64.
template <policy P>
constexpr std::uint64_t digest_of(const P& its) {
  constexpr std::uint64_t name = detail::fnv1a(P::name);
  detail::option_digest digest(name);
  if constexpr (requires { its.options(digest); })
    its.options(digest);
  else if constexpr (requires { its.agreed(); })
    digest.add(its.agreed());
  return digest.value();
}

/// The name and the options, like `exact_topk(k=15, density=0)`.
template <policy P>
[[gnu::cold]] std::string description_of(const P& its) {
  detail::option_text options;
  if constexpr (requires { its.options(options); })
    its.options(options);
  else if constexpr (requires { its.agreed(); })
    options("options", its.agreed());
  return std::string(P::name) + (options.value().empty() ? "" : "(" + options.value() + ")");
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
  text_ += sentence(text_.empty() ? "" : ", ", name.text, "=");
  if constexpr (std::is_arithmetic_v<Value>)
    text_ += sentence(value);
  else if constexpr (std::convertible_to<const Value&, std::string_view>)
    text_ += std::string_view(value);
  else
    text_ += description_of(value);
}

} // namespace spar
