// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// TopkA: every rank gathers all sparse streams and reduces them locally (the baseline of Ok-Topk, section 2, and
// others).
#pragma once

#include <spar/spar.hpp>

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

namespace perf {

/// An algorithm as spar::allreduce takes it; it is made of public parts of the library only.
struct topka {
  static constexpr std::string_view name = "topka";

  template <spar::transport Net, spar::element T, spar::index_type Index, spar::reduction<T> Op>
  spar::task<spar::stream<T, Index>> operator()(spar::channel<Net> net, spar::stream_view<T, Index> mine,
                                                Op op) const& {
    const spar::bruck_allgather allgather;
    const auto gathered = co_await allgather(net, mine);
    std::pmr::vector<spar::stream_view<T, Index>> parts(&net.memory());
    for (std::size_t r = 0; r < gathered.size(); ++r) parts.push_back(gathered.part(r));
    net.compute(gathered.count() * std::min<std::size_t>(2, gathered.size() - 1)); // three or more cost two merges
    const std::span<const spar::stream_view<T, Index>> all(parts);
    co_return spar::merge_many(all, mine.dimension(), spar::index_range{0, mine.dimension()}, op, net.memory());
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace perf
