// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Natural sparsity: selects every entry that is not zero (SparCML, sections 2 and 8.2).
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/kernel/nonzero.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1::selector {

/// Selects all entries except zeros of either sign, and leaves only zeros in `x`. The result is sorted by index.
struct nonzeros {
  static constexpr slot fills = slot::selector;
  static constexpr std::string_view name = "nonzeros";

  static constexpr void validate(std::uint64_t) noexcept {}
  void options(auto&&) const noexcept {}

  template <index_type Index, element T, class Prepare>
  ready<sparse_stream<T, Index>> operator()(const host_work& work, std::span<T> x, no_state&,
                                            const Prepare& prepare) const {
    using kernel::negative_zeros;
    prepare(0, x.size());
    const std::size_t n = x.size();
    // Moves and counts in one pass unless more than an eighth of a long vector are nonzeros.
    auto some = sparse_stream<T, Index>::sparse(work.memory(), n, std::min(n, n / 8 + 4096));
    const auto first = kernel::take_nonzero<negative_zeros::keep>(x.data(), n, 0, some.indices().data(),
                                                                  some.values().data(), some.count());
    some.shrink(first.count);
    if (first.seen == n) return ready(std::move(some));
    const auto rest = x.subspan(first.seen);
    auto all = sparse_stream<T, Index>::sparse(work.memory(), n,
                                               first.count + kernel::count_nonzero(rest.data(), rest.size()));
    all.write(0, some.view());
    kernel::take_nonzero<negative_zeros::keep>(rest.data(), rest.size(), first.seen, all.indices().data() + first.count,
                                               all.values().data() + first.count, all.count() - first.count);
    return ready(std::move(all));
  }
};

} // namespace spar::inline v0_1::selector
