// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// FlexReduce with compression at the level of the collective (FlexReduce, section III; Zhou et al., section III).
#pragma once

#include <spar/collective/compressed_flex.hpp>
#include <spar/collective/flex_execute.hpp>
#include <spar/collective/flex_plan.hpp>
#include <spar/collective/largest.hpp>
#include <spar/storage/codec.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// FlexReduce's uneven reduce-scatter with partial sums encoded at each hop, then its uneven all-gather of what the
/// owners have encoded once. All ranks end with the same bits. The plan is borrowed until the call has ended.
///
/// Throws `invalid_argument` before anything is sent for a plan of another dimension or number of ranks and for a bad
/// option of the codec, and where the codec rejects a sum. Sums that it cannot carry otherwise go down as they are, as
/// ranks agree in ceil(log2 P) rounds more.
template <class Codec>
struct compressed_flexreduce {
  static constexpr std::string_view name = "compressed_flexreduce";

  compressed_flexreduce(const flex_plan& made, Codec storage) noexcept : plan(&made), codec(std::move(storage)) {}
  compressed_flexreduce(flex_plan&&, Codec) = delete; // it is borrowed

  /// Encodings that a contribution passes: one for each hop of the chains on its way, and that of the sum.
  [[nodiscard]] std::int64_t encodings(rank_t ranks) const noexcept {
    std::int64_t hops = ranks > 1 ? 1 : 0;
    for (std::size_t l = 0; l < plan->levels(); ++l) hops += static_cast<std::int64_t>(plan->longest_chain(l)) - 1;
    return hops;
  }
  template <element T, class Op>
  void validate(std::span<T> x, const Op&) const {
    plan->check(x.size(), plan->ranks());
    (void)codec.template encoded_bytes<T>(1);
  }
  void validate_dimension(std::uint64_t n) const {
    plan->check(n, plan->ranks());
    (void)codec.template encoded_bytes<float>(1);
  }
  void validate_ranks(rank_t ranks) const { plan->check(plan->dimension(), ranks); }
  [[nodiscard]] std::uint64_t agreed() const noexcept { return plan->digest() + detail::agreed_by_codec(codec); }

  /// In place. `residual`, where there is one, gets what this rank's encodings lose.
  template <transport Net, element T, reduction<T> Op>
    requires block_codec<Codec, T>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op, std::span<T> residual = {}) const& {
    if (net.size() == 1) co_return;
    co_await flex_reduce_scatter(net, plan, x, op, &codec, residual);
    if constexpr (requires(std::span<const T> values) { codec.carries(values); }) {
      // One rank's values may be such that all go down as they are.
      const index_range own = (*plan)[net.rank()];
      const block_coder coder(net, codec);
      std::uint64_t uncarried = coder.carries(std::span<const T>(x.subspan(own.begin, own.size()))) ? 0 : 1;
      co_await find_largest(net.template with_element<std::uint64_t>(), uncarried);
      if (uncarried > 0) {
        co_await flex_allgather(net, plan, x);
        co_return;
      }
    }
    co_await flex_allgather(net, plan, x, &codec, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

  const flex_plan* plan;
  Codec codec;
};

} // namespace spar
