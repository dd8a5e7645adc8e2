// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The selector that keeps all values: dense values stay dense, and streams are what the caller made them.
#pragma once

#include <spar/core/policy/slot.hpp>

#include <cstdint>
#include <string_view>

namespace spar::selector {

/// The default of the slot. All values take part, zeros too; a schedule may still send a stream's entries alone.
struct everything {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "everything";

  static constexpr void validate(std::uint64_t) noexcept {}
  template <class F>
  void options(F&&) const noexcept {}
};

} // namespace spar::selector
