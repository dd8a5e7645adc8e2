// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The selector `everything`, which selects all values: dense values stay dense, and sparse streams stay unchanged.
#pragma once

#include <spar/core/policy/slot.hpp>

#include <cstdint>
#include <string_view>

namespace spar::inline v0_1::selector {

/// The default selector: selects all values, including zeros. If the input is a sparse stream, a schedule need send
/// only the entries of the stream.
struct everything {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "everything";

  static constexpr void validate(std::uint64_t) noexcept {}
  void options(auto&&) const noexcept {}
};

} // namespace spar::inline v0_1::selector
