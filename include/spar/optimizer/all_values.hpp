// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback for lossy dense allreduces: what compression loses stays in the residual (SparCML, algorithm 1; Zhou
// et al.).
#pragma once

#include <spar/collective/selected.hpp>
#include <spar/core/op.hpp>
#include <spar/core/task.hpp>
#include <spar/storage/stream.hpp>
#include <spar/transport/channel.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// A lossy dense allreduce, like compressed_ring, as the algorithm of error_feedback: all values are sent, and what
/// this rank's encodings lose of them stays. `error_feedback<float, all_values<compressed_ring<storage::qsgd<8>>>>`.
template <class Algorithm>
struct all_values {
  static constexpr std::string_view name = Algorithm::name;

  Algorithm algorithm{};

  template <index_type Index, transport Net, element T, class Op>
    requires requires(const Algorithm& a, channel<Net> net, std::span<T> x, Op op) {
      { a(net, x, op, x) } -> std::same_as<task<void>>;
    }
  task<selected_sum<T, Index>> operator()(channel<Net> net, std::span<T> x, Op op) {
    auto sum = stream<T, Index>::dense(net.memory(), x.size(), 0, x.size());
    std::copy(x.begin(), x.end(), sum.values().begin());
    auto own = stream<T, Index>::copy(net.memory(), sum.view());
    std::fill(x.begin(), x.end(), T{});
    co_await algorithm(net, sum.values(), op, x);
    co_return selected_sum<T, Index>(std::move(sum), std::move(own));
  }

  /// Throws `invalid_argument` for a bad option, or another dimension than the algorithm's.
  void validate(std::uint64_t n) const {
    if constexpr (requires { algorithm.validate_dimension(n); })
      algorithm.validate_dimension(n);
    else if constexpr (requires { algorithm.validate(std::span<float>(), sum{}); })
      algorithm.validate(std::span<float>(), sum{});
  }
  void validate_ranks(rank_t ranks) const {
    if constexpr (requires { algorithm.validate_ranks(ranks); }) algorithm.validate_ranks(ranks);
  }
  /// Calls `f` with what all ranks must have alike.
  template <class F>
  void options(F&& f) const {
    f("algorithm", algorithm);
  }
};

} // namespace spar
