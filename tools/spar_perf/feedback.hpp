// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selection with error feedback: with --input dense, spar_perf times this selection in front of systems for sparse
// streams.
#pragma once

#include "measured_net.hpp"

#include <spar/spar.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace spar::perf {

/// One rank's selector and residual: each call adds the new values to the residual and moves the k largest entries into
/// a stream.
template <class T, class Index>
struct selection {
  explicit selection(std::uint64_t k) { select.k = k; }

  spar::stream_view<T, Index> operator()(measured_net& net, std::span<const T> x) {
    const double begin = net.now();
    left.resize(x.size());
    spar::kernel::reduce(left.data(), x.data(), x.size(), spar::sum{});
    mine = spar::select<Index>(select, std::span<T>(left), net.memory());
    seconds = net.now() - begin;
    return mine.view();
  }
  [[nodiscard]] std::span<const T> residual() const noexcept { return left; }

  spar::selector::exact_topk select;
  /// Time of the last accumulation and selection: 0 in the simulator, where they take no virtual time.
  double seconds = 0;
  std::vector<T> left;
  spar::sparse_stream<T, Index> mine;
};

} // namespace spar::perf
