// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An operation that is chosen when the program runs.
#pragma once

#include <spar/core/op.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spar::inline v0_1 {

/// An operation of the program's own for `any_operation`, which must be associative up to rounding, and commutative.
/// The object must outlive the calls that use it.
struct own_operation {
  std::string_view name; ///< a name by which ranks detect that they use different operations
  const void* neutral;   ///< the neutral element, a value of the type of the call's values, and aligned as such
  /// Replaces each of `n` values at `inout` by the result for this value and the value at `in`.
  void (*reduce)(const void* in, void* inout, std::size_t n, void* context);
  void* context = nullptr; ///< passed to `reduce`
};

/// An operation for `any_allreduce`: one of the library's, which converts to this type, or one of the program's own.
class any_operation {
 public:
  /// The operations of the library, and `own` for one of the program's own.
  enum class kind : std::uint8_t { sum, average, product, minimum, maximum, own };

  constexpr any_operation(sum = {}) noexcept : which_(kind::sum) {}    ///< the sum
  constexpr any_operation(average) noexcept : which_(kind::average) {} ///< the average
  constexpr any_operation(product) noexcept : which_(kind::product) {} ///< the product
  constexpr any_operation(minimum) noexcept : which_(kind::minimum) {} ///< the minimum
  constexpr any_operation(maximum) noexcept : which_(kind::maximum) {} ///< the maximum
  /// The operation `own`, which must outlive this object and the calls that use it.
  constexpr any_operation(const own_operation& own) noexcept : which_(kind::own), own_(&own) {}

  /// Which operation this is.
  [[nodiscard]] constexpr kind which() const noexcept { return which_; }
  /// The operation of the program's own; null for an operation of the library.
  [[nodiscard]] constexpr const own_operation* own() const noexcept { return own_; }

 private:
  kind which_;
  const own_operation* own_ = nullptr;
};

} // namespace spar::inline v0_1
