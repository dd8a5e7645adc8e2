// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selection with error feedback: with --input dense, spar_perf times this selection in front of systems for sparse
// streams.
#pragma once

#include <spar/spar.hpp>

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace spar::perf {

/// One rank's selector and residual: each call adds the new values to the residual and moves the k largest entries into
/// a stream.
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
  double seconds = 0; ///< time of the last selection
  std::vector<T> left;
  spar::sparse_stream<T, Index> mine;
};

} // namespace spar::perf
