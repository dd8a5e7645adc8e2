// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selection that is timed, and the error feedback around systems for streams where they get dense vectors.
#pragma once

#include <spar/spar.hpp>

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace perf {

/// The selector, and the seconds that its last call took.
template <class Selector>
struct timed : Selector {
  mutable double seconds = 0;

  template <class Index, class T>
  spar::stream<T, Index> operator()(std::span<T> x, spar::pool& memory) const {
    const auto begin = std::chrono::steady_clock::now();
    auto selected = Selector::template operator()<Index>(x, memory);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return selected;
  }
};

/// What one rank selects, call after call, from what is left and the new values.
template <class T, class Index>
struct selection {
  explicit selection(std::uint64_t k) { select.k = k; }

  spar::stream_view<T, Index> operator()(std::span<const T> x, spar::pool& memory) {
    left.resize(x.size());
    spar::kernel::reduce(left.data(), x.data(), x.size(), spar::sum{});
    mine = select.template operator()<Index>(std::span<T>(left), memory);
    return mine.view();
  }
  [[nodiscard]] std::span<const T> residual() const noexcept { return left; }

  timed<spar::selector::exact_topk> select;
  std::vector<T> left;
  spar::stream<T, Index> mine;
};

} // namespace perf
