// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Applies the last step of an operation to the result of an allreduce, for example the division by P that turns a sum
// into an average.
#pragma once

#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/workspace/workspace.hpp>

#include <span>
#include <string_view>
#include <utility>

namespace spar::detail {

template <class Op, class T>
concept has_finalize = requires(const Op& op, T x) { op.finalize(x, 1); };

/// Wraps `algorithm`: calls `op.finalize` on every value of the algorithm's result, on every rank.
template <class Algorithm>
struct finalized {
  static constexpr std::string_view name = Algorithm::name;
  Algorithm algorithm;

  template <class F>
  void options(F&& f) const {
    algorithm.options(f);
  }

  template <transport Net, element T, index_type Index, class Op>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op) const& {
    sparse_stream<T, Index> sum = co_await algorithm(net, mine, op);
    net.work().finalize(sum.values(), op, net.size());
    co_return sum;
  }
  template <transport Net, element T, class Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
    co_await algorithm(net, x, op);
    net.work().finalize(x, op, net.size());
  }
};

/// Returns `algorithm`, wrapped in `finalized` if the operation Op has a member `finalize`, unless the algorithm
/// `finalizes` its result itself; otherwise unchanged.
template <class Op, class T, class Algorithm>
auto with_finalize(Algorithm algorithm) {
  if constexpr (has_finalize<Op, T> && !requires { Algorithm::finalizes; })
    return finalized<Algorithm>{std::move(algorithm)};
  else
    return algorithm;
}

} // namespace spar::detail
