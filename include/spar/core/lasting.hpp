// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rejects temporaries that own their values, where a function keeps a reference to its argument.
#pragma once

#include <spar/core/compiler.hpp>

#include <span>

namespace spar::inline v0_1::detail {

/// Whether an argument of the forwarded type X may be a temporary that owns its values, such as std::vector<float>. A
/// variable outlives the expression, and so does that to which a temporary span refers.
template <class X>
inline constexpr bool owning_temporary = std::ranges::range<X> && !std::ranges::borrowed_range<X>;

/// Stops the compilation with a sentence if one of `Args`, the forwarded types of arguments, is a temporary that owns
/// its values. Returns whether none is, so that no other error follows.
template <class... Args>
constexpr bool expect_lasting() {
  static_assert(!(owning_temporary<Args> || ...),
                "these values are a temporary, which is gone before they are used: pass a variable or a span");
  return !(owning_temporary<Args> || ...);
}

} // namespace spar::inline v0_1::detail
