// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The selection, with error feedback, that is timed before systems for streams where they get dense vectors.
#pragma once

#include <spar/spar.hpp>

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace perf {

/// What one rank selects, call after call, from what is left and the new values.
template <class T, class Index>
struct selection {
  explicit selection(std::uint64_t k) { select.k = k; }

  spar::stream_view<T, Index> operator()(std::span<const T> x, spar::pool& memory) {
    left.resize(x.size());
    spar::kernel::reduce(left.data(), x.data(), x.size(), spar::sum{});
    const auto begin = std::chrono::steady_clock::now();
    mine = select.template operator()<Index>(std::span<T>(left), memory);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return mine.view();
  }
  [[nodiscard]] std::span<const T> residual() const noexcept { return left; }

  spar::selector::exact_topk select;
  double seconds = 0; ///< of the last call
  std::vector<T> left;
  spar::sparse_stream<T, Index> mine;
};

} // namespace perf
