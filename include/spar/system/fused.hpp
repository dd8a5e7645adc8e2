// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reduces a list of small tensors with few messages: combines neighbouring tensors into buckets, and reduces each
// bucket as one vector (tensor fusion; Sergeev and Del Balso 2018).
#pragma once

#include <spar/system/bucketing.hpp>
#include <spar/system/collectives.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// A bucket of a fused_allreduce keeps nothing from call to call.
struct no_reducer {};

} // namespace detail

/// Allreduces a list of tensors, such as the gradients of a network's layers, in rounds. In each round a program calls
/// `ready(i, x)` once for each tensor i, as soon as the tensor is computed, and then calls `wait()`. The order of the
/// calls to `ready` may differ between ranks.
///
/// Neighbouring tensors of the list share a bucket of up to `bucket_bytes` bytes. Each bucket is reduced by one
/// collective, as soon as all tensors of the bucket are ready. A tensor that is alone in its bucket is reduced in
/// place; other tensors are copied to the bucket and back. `ready` and `wait` may throw the \ref call_errors. If the
/// communicator is destroyed first, `ready` throws `invalid_argument`. For error feedback, see `bucketed_feedback`.
template <communicates Net, element T, class Algorithm = sparcml, class Op = sum>
class fused_allreduce {
 public:
  /// `sizes` contains the number of values of each tensor, and must be the same on every rank. `algorithm` reduces each
  /// bucket; `options` must be the same on every rank. Throws `invalid_argument` if `bucket_bytes` is 0, or if another
  /// object on the communicator has the prefix `name`.
  fused_allreduce(Net& net, std::span<const std::size_t> sizes, const fusion_options& options = {},
                  Algorithm algorithm = {}, Op op = {})
      : algorithm_(std::move(algorithm)), op_(op), rounds_(detail::port_of(net), "fused_allreduce", options) {
    auto& list = rounds_.list();
    for (const std::size_t size : sizes) {
      list.shape.add(sentence(size), size);
      list.add(rounds_.prefix(), sentence("tensor ", list.tensors.size()), size, [] { return detail::no_reducer{}; });
    }
    list.allocate(rounds_.net());
  }
  fused_allreduce(const fused_allreduce&) = delete;

  /// The number of buckets, each of which one collective reduces.
  [[nodiscard]] std::size_t buckets() const noexcept { return rounds_.list().buckets.size(); }

  /// Marks tensor `i` as computed. `x` holds the tensor's values and is borrowed until `wait()` returns. Throws
  /// `invalid_argument` if there is no tensor `i`, if the length of `x` differs from `sizes[i]` of the constructor, if
  /// `x` is in device memory and the program uses CUDA, if the device of the communicator is not the current one, or if
  /// tensor `i` is already marked as ready in this round.
  void ready(std::size_t i, std::span<T> x) {
    const std::size_t count = rounds_.list().tensors.size();
    if (i >= count) raise<invalid_argument>({"tensor ", i, " is out of range: there are ", count, " tensors"});
    rounds_.ready(i, x, [this](auto& b, std::span<T> values) { this->start(b, values); });
  }

  /// Waits until every tensor holds its result; afterwards a new round begins. Throws `invalid_argument` if a tensor is
  /// not ready; the program may then mark the tensor as ready and call `wait()` again. If the collective of a bucket
  /// failed, throws the error of the collective.
  void wait() { rounds_.wait(); }
  /// Makes progress without blocking, and returns whether a bucket is in flight. May throw what
  /// `communicator_rank::progress` throws.
  bool progress() { return rounds_.progress(); }

 private:
  template <class Bucket>
  void start(Bucket& b, std::span<T> x) {
    using algorithm = detail::in_bucket<decltype(detail::as_algorithm(algorithm_))>;
    auto call = start_allreduce(rounds_.net(), named{b.name}, x,
                                algorithm{detail::as_algorithm(algorithm_), &rounds_.list().shape}, op_);
    if constexpr (!std::same_as<decltype(call), detail::rejected_call>) b.call.emplace(std::move(call));
  }

  Algorithm algorithm_;
  Op op_;
  detail::bucket_rounds<detail::port_type_of<Net>, T, detail::no_reducer> rounds_;
};

} // namespace spar::inline v0_1
