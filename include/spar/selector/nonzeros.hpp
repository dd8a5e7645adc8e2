// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Natural sparsity: selects every entry that is not zero (SparCML, sections 2 and 8.2).
#pragma once

#include <spar/selector/selector.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace spar::selector {

/// Selects all entries except zeros of either sign, and leaves only zeros in `x`. The result is sorted by index.
struct nonzeros {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "nonzeros";

  static constexpr void validate(std::uint64_t) noexcept {}
  template <class F>
  void options(F&&) const noexcept {}

  template <index_type Index = std::uint32_t, element T>
  sparse_stream<T, Index> operator()(std::span<T> x, pool& memory) const {
    auto selected = sparse_stream<T, Index>::sparse(memory, x.size(), kernel::count_nonzero(x.data(), x.size()));
    kernel::gather_nonzero(x.data(), x.size(), 0, selected.indices().data(), selected.values().data());
    for (const Index i : selected.indices()) x[i] = T{};
    return selected;
  }
};

} // namespace spar::selector
