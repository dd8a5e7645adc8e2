// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The selector that keeps all values: dense values stay dense, and streams stay as the caller made them.
#pragma once

#include <spar/core/policy/slot.hpp>

#include <cstdint>
#include <string_view>

namespace spar::selector {

/// The default selector. All values take part, zeros too; but of a stream, a schedule may send only the entries.
struct everything {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "everything";

  static constexpr void validate(std::uint64_t) noexcept {}
  template <class F>
  void options(F&&) const noexcept {}
};

} // namespace spar::selector
