// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank's backlog in a partial collective: the sum of the rank's calls that came too late for their rounds. The rank
// contributes its backlog to the next round (eager-SGD, figure 7).
#pragma once

#include <spar/collective/partial/participants.hpp>
#include <spar/collective/prepare.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/signature.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/merge.hpp>
#include <spar/workspace/host_work.hpp>

#include <cstdint>
#include <span>
#include <utility>

namespace spar::inline v0_1::detail {

/// The backlog of calls with dense values; the result of a call replaces these values.
template <element T, class Op>
class value_backlog {
 public:
  using argument = std::span<T>;
  using result = participants;
  using value_type = T;
  using index_type = no_indices;

  /// This rank's contribution to a round and, after the round, the result. `x` refers to the caller's values or, if no
  /// call waits for the round, to `memory`.
  struct share {
    buffer<T> memory;
    std::span<T> x;
  };

  value_backlog(std::uint64_t n, Op op, pool& memory) : n_(n), op_(op), memory_(&memory) {}

  [[nodiscard]] static std::uint64_t dimension(argument x) noexcept { return x.size(); }
  [[nodiscard]] bool empty() const noexcept { return !any_; }

  void add(argument x) {
    if (any_) {
      kernel::reduce(values_.data(), x.data(), n_, op_);
    } else {
      values_ = buffer<T>(*memory_, n_);
      kernel::detail::copy(values_.data(), x.data(), n_);
      any_ = true;
    }
  }

  /// Empties the backlog and returns its sum as the contribution to a round. If `call` is not null, it refers to
  /// the values of a call that waits for the round; the sum includes these values and replaces them.
  share take(const argument* call) {
    share s;
    if (call != nullptr) {
      s.x = *call;
      if (any_) kernel::reduce_left(s.x.data(), std::as_const(values_).data(), n_, op_);
    } else {
      s.memory = any_ ? std::move(values_) : buffer<T>(*memory_, n_);
      s.x = s.memory.span();
      if (!any_) std::fill_n(s.x.data(), n_, op_.template neutral<T>());
    }
    values_.reset();
    any_ = false;
    return s;
  }

  [[nodiscard]] static std::span<T> mine(const share& s) noexcept { return s.x; }
  template <transport Net, class Algorithm>
  static task<void> reduce(channel<Net> net, Algorithm& algorithm, share& s, Op op) {
    return algorithm(net, s.x, op);
  }
  static void finalize(share& s, Op op, rank_t ranks) {
    if constexpr (has_finalize<Op, T>) host_work::finalize(s.x, op, ranks);
  }
  static result deliver(share& s, participants& who, argument x) {
    if (s.x.data() != x.data()) kernel::detail::copy(x.data(), std::as_const(s.memory).data(), x.size());
    return std::move(who);
  }

 private:
  std::uint64_t n_;
  Op op_;
  pool* memory_;
  buffer<T> values_;
  bool any_ = false;
};

/// The backlog of calls with sparse streams.
template <element T, index_type Index, class Op>
class stream_backlog {
 public:
  using argument = stream_view<T, Index>;
  using result = partial_sum<T, Index>;
  using value_type = T;
  using index_type = Index;

  struct share {
    sparse_stream<T, Index> own;
    stream_view<T, Index> mine; // the contribution: refers to the caller's stream or to `own`
    sparse_stream<T, Index> sum;
  };

  stream_backlog(std::uint64_t n, Op op, pool& memory) : n_(n), op_(op), memory_(&memory) {}

  [[nodiscard]] static std::uint64_t dimension(const argument& x) noexcept { return x.dimension(); }
  [[nodiscard]] bool empty() const noexcept { return !any_; }

  void add(const argument& x) {
    stream_ = any_ ? with(x) : sparse_stream<T, Index>::copy(*memory_, x);
    any_ = true;
  }

  share take(const argument* call) {
    share s;
    if (call != nullptr && !any_) {
      s.mine = *call;
    } else {
      if (!any_)
        s.own = sparse_stream<T, Index>::sparse(*memory_, n_, 0);
      else
        s.own = call != nullptr ? with(*call) : std::move(stream_);
      s.mine = s.own.view();
    }
    stream_ = {};
    any_ = false;
    return s;
  }

  [[nodiscard]] static const argument& mine(const share& s) noexcept { return s.mine; }
  template <transport Net, class Algorithm>
  static task<void> reduce(channel<Net> net, Algorithm& algorithm, share& s, Op op) {
    auto running = algorithm(net, s.mine, op);
    s.sum = co_await std::move(running);
  }
  static void finalize(share& s, Op op, rank_t ranks) {
    if constexpr (has_finalize<Op, T>) host_work::finalize(s.sum.values(), op, ranks);
  }
  static result deliver(share& s, participants& who, const argument&) { return {std::move(s.sum), std::move(who)}; }

 private:
  [[nodiscard]] sparse_stream<T, Index> with(const argument& x) const {
    return merge(stream_.view(), x, {0, n_}, dense_threshold<T, Index>(n_), op_, *memory_);
  }

  std::uint64_t n_;
  Op op_;
  pool* memory_;
  sparse_stream<T, Index> stream_;
  bool any_ = false;
};

} // namespace spar::inline v0_1::detail
