// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback on the device: gradients, residual and selection are in device memory, and only the selected entries
// travel between device and host (SparCML, algorithm 1; Ok-Topk, algorithm 2).
#pragma once

#include <spar/collective/composition.hpp>
#include <spar/collective/prepare.hpp>
#include <spar/cuda/array.hpp>
#include <spar/cuda/call.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/values/entries.cuh>
#include <spar/on_device.cuh>
#include <spar/optimizer/saved_state.hpp>
#include <spar/runtime/pending.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace spar {

/// Error feedback around a composition, for vectors in device memory. A call adds the residual to the values, moves the
/// selected entries of the sum to the host, reduces them there over any transport, and writes the result to the device.
/// Rounding errors, and entries that the schedule does not keep, return to the residual on the device. The bits are
/// those of `error_feedback` with the same composition, except those of a NaN that arithmetic makes. The selector must
/// be `everything` or one that leaves the work to the workspace, as `exact_topk` and `threshold_reuse` do; with a
/// storage that rounds, the values must be floats. Ranks with `error_feedback` around the same composition may take
/// part in the same call. One object for each rank, made and used by one thread at a time, while its device is the
/// current one. The object cannot be moved. The constructor throws `cuda_error` if CUDA fails.
template <kernel::ranked T, class Composition, index_type Index = std::uint32_t>
class device_feedback {
  using selector_type = typename Composition::selector_type;
  static_assert(std::same_as<selector_type, selector::everything> ||
                    selects<selector_type, T, Index, detail::device_work>,
                "device_feedback needs the selector everything, or one that leaves the work to any workspace: "
                "exact_topk, threshold_reuse, or one of your own (docs/guide/composing.md)");
  static_assert(storage::is_exact<typename Composition::storage_type> || std::same_as<T, float>,
                "device_feedback adds the rounding errors of a storage to a residual of floats only: those of doubles "
                "need long double, which devices do not have");

 public:
  static constexpr std::string_view name = Composition::name;

  using state = typename Composition::state;        ///< what the composition keeps from call to call
  using report_type = typename Composition::report; ///< what the composition reports about a call

  /// Wraps the composition `algorithm`. Throws `cuda_error` if CUDA fails.
  explicit device_feedback(Composition algorithm = {}) : algorithm_(std::move(algorithm)) { hash_state(); }

  /// Reduces `x` in place, in the order of its stream: adds the residual, sums the selected entries of all ranks, and
  /// writes the sum, with zeros where it has no entry. Returns as soon as the last copy is in the stream: work that is
  /// put into the stream afterwards sees the sum. Waits for the device twice, for the number of selected entries and
  /// for the entries, or up to four times if a reused threshold does not suit, and whenever a call needs more device
  /// memory than the calls before; meanwhile the rank takes part in the rounds of partial collectives. The residual and
  /// the composition's state change only if the call succeeds; otherwise the values of `x` are unspecified. (If CUDA
  /// fails on this rank after the collective has ended, the other ranks' sums contain entries that are still in this
  /// rank's residual.) Throws `invalid_argument` before anything is sent if an option is invalid, if the values or the
  /// stream are not those of the device for which this object was made, if this device is not the current one, or if
  /// `x` and the residual have different lengths. If CUDA fails, aborts the communicator, because other ranks may wait,
  /// and throws `cuda_error`.
  template <communicates Net, reduction<T> Op = sum>
  void operator()(Net& net, device_span<T> x, Op op = {}) {
    device_.check_span(net, owner, x);
    sparse_stream<T, Index> mine;
    const auto call = detail::prepare<T, Index>(detail::port_of(net), on_host{{this}}, op, x.size, &mine);
    try {
      detail::or_abort(net, [&] {
        next_ = state_;
        mine = select(net, x);
      });
      const selected_sum<T, Index> result = call.run();
      detail::or_abort(net, [&] { entries_.write(result.sum.view(), x); });
    } catch (...) {
      entries_.wait(); // the program may free the values
      throw;
    }
    keep(x.size);
  }

  /// Reduces `x` in place with `on`, an `on_device`: the entries are also reduced by kernels in device memory, and
  /// messages travel as those of `on` do. Waits for the device whenever a number of entries is needed. Does not compile
  /// if there are no kernels for the composition (see `allreduce` of `on_device`).
  template <communicates Net, reduction<T> Op = sum>
  void operator()(on_device<Net>& on, device_span<T> x, Op op = {}) {
    device_.check_current(on.transport(), owner);
    const auto order = on.template begin<Composition>(x);
    const auto call = detail::prepare<T, Index>(on.transport(), in_place{{this}}, op, x.size, on.values(x));
    next_ = state_;
    order.run([&] { call.run(); });
    keep(x.size);
  }

  template <element U, class Op>
  void validate(std::uint64_t n, rank_t ranks, const Op&) const {
    check_operation<Op>();
    check_length(n);
    algorithm_.template validate_parts<T>(n, ranks);
  }
  /// Calls `f(name, value)` for each option that must be equal on all ranks, and for a digest of the part of the state
  /// that must be equal on all ranks.
  template <class F>
  void options(F&& f) const {
    algorithm_.options(f);
    f("digest_of_state", shared_state_);
  }

  /// The residual in device memory: the values that this rank has not sent yet, in the order of the last call's stream.
  /// Null before the first call. The next call uses this memory for other values.
  [[nodiscard]] const T* residual() const noexcept { return length_ > 0 ? residual_.data() : nullptr; }
  /// The state after the last successful call: the thresholds, boundaries and counters that the next call uses.
  [[nodiscard]] const state& current_state() const noexcept { return state_; }
  /// What the last call did on this rank, for example how many entries it selected. The seconds for the selection
  /// include the wait for what was in the stream before the call.
  [[nodiscard]] const report_type& report() const noexcept { return report_; }

  /// Returns the residual and the state as bytes, from which another run with the same number of ranks can resume, also
  /// with `error_feedback` around the same composition. Waits for the work of the last call. Throws `cuda_error` if
  /// CUDA fails.
  [[nodiscard]] std::vector<std::byte> save() const {
    std::vector<T> residual(static_cast<std::size_t>(length_));
    entries_.wait();
    copy(residual.data(), residual_.data(), residual.size(), cudaMemcpyDeviceToHost);
    return detail::save_reducer<T>(algorithm_, state_, residual);
  }
  /// Restores a residual and a state that `save`, also of `error_feedback`, returned. Waits for the work of the last
  /// call. Throws `invalid_argument` if `saved` is damaged or comes from a different value type, selector, storage,
  /// topology or schedule, and `cuda_error` if CUDA fails; the residual and the state then stay as they were.
  void load(std::span<const std::byte> saved) {
    state loaded = state_;
    const std::vector<T> residual = detail::load_reducer<T>(algorithm_, loaded, saved);
    entries_.wait();
    accumulated_.reserve(residual.size());
    copy(accumulated_.data(), residual.data(), residual.size(), cudaMemcpyHostToDevice);
    residual_.swap(accumulated_);
    length_ = residual.size();
    state_ = std::move(loaded);
    hash_state();
  }

 private:
  template <class Op>
  static constexpr void check_operation() {
    static_assert(std::same_as<Op, sum> || std::same_as<Op, average>,
                  "error feedback adds unsent values to the values of later calls, so its operation must be sum or "
                  "average");
  }
  static void copy(T* to, const T* from, std::size_t count, cudaMemcpyKind kind) {
    if (count == 0) return;
    detail::check_cuda(cudaMemcpy(to, from, count * sizeof(T), kind), "cudaMemcpy");
    // A short copy to the device may still be on its way, and other streams do not wait for it.
    detail::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
  void check_length(std::uint64_t n) const {
    if (length_ > 0 && length_ != n)
      raise<invalid_argument>({"the vector has length ", n, ", but the residual has length ", length_});
    if (n > 0 && n - 1 > std::numeric_limits<Index>::max()) {
      raise<invalid_argument>(
          {n, " values are too many for the ", 8 * sizeof(Index), "-bit indices of this device_feedback object"});
    }
  }

  /// Adds the residual to the values of `x`, and moves the selected entries of the sum to the host.
  template <communicates Net>
  sparse_stream<T, Index> select(Net& net, device_span<T> x) {
    const double begin = endpoint::now();
    if (!accumulated_.has_room(x.size)) detail::end_transfers(net);
    accumulated_.reserve(x.size);
    sparse_stream<T, Index> mine =
        entries_.select(net, algorithm_.select, next_.select, x, residual(), accumulated_.data());
    report_ = {.selected = mine.count(), .select_seconds = endpoint::now() - begin};
    return mine;
  }

  /// What all calls of a `device_feedback` object have in common.
  struct call_of {
    static constexpr std::string_view name = Composition::name;
    static constexpr bool finalizes = true;
    device_feedback* its;

    template <class F>
    void options(F&& f) const {
      its->options(f);
    }
    template <element U, class Op>
    void validate(std::uint64_t n, rank_t ranks, const Op& op) const {
      its->template validate<U>(n, ranks, op);
    }
  };

  /// Reduces the selected entries `mine`, which are on the host.
  struct on_host : call_of {
    using call_of::its;

    template <transport Net, class Op>
    task<selected_sum<T, Index>> operator()(channel<Net> net, sparse_stream<T, Index>* mine, Op op) const& {
      auto running =
          its->algorithm_.reduce(net, &its->next_, &its->report_, std::move(*mine), its->entries_.residual(), op);
      selected_sum<T, Index> result = co_await std::move(running);
      if constexpr (detail::has_finalize<Op, T>) host_work::finalize(result.sum.values(), op, net.size());
      co_return result;
    }
  };

  /// Selects, reduces and writes entries on the device.
  struct in_place : call_of {
    using call_of::its;

    template <transport Net, class Op>
    task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
      const cudaStream_t stream = net.net().work().stream();
      if (!its->accumulated_.has_room(x.size())) detail::end_transfers(net.net());
      net.net().work().order().follow(its->entries_.order().get()); // the last call may not have had an `on_device`
      its->accumulated_.reserve(x.size());
      const std::span<T> accumulated(its->accumulated_.data(), x.size());
      const detail::device_sum<T> add_residual{its->residual(), x.data(), accumulated.data(), x.size(), stream};
      auto running =
          its->algorithm_.template reduce<Index>(net, &its->next_, &its->report_, accumulated, op, add_residual);
      selected_sum<T, Index> result = co_await std::move(running);
      if constexpr (detail::has_finalize<Op, T>) net.work().finalize(result.sum.values(), op, net.size());
      net.work().write_dense(std::as_const(result.sum).view(), x, op);
      its->entries_.order().follow(stream);
    }
  };

  /// Keeps the residual and the state of a call that has succeeded.
  void keep(std::uint64_t length) {
    residual_.swap(accumulated_);
    length_ = length;
    std::swap(state_, next_);
    hash_state();
  }
  void hash_state() {
    detail::state_digest hash;
    state_.shared_state(hash);
    shared_state_ = hash.value;
  }

  static constexpr const char* owner = "spar::device_feedback";

  Composition algorithm_;
  detail::home_device device_;
  state state_{};
  state next_{};                   // the state that a call is changing
  std::uint64_t shared_state_ = 0; // digest of the part of `state_` that must be equal on all ranks
  report_type report_{};
  detail::device_entries<T, Index> entries_;
  std::uint64_t length_ = 0; // of the residual; 0 before the first call
  detail::device_array<T> residual_;
  detail::device_array<T> accumulated_; // residual plus values of the call; the next residual if the call succeeds
};

/// Wraps the composition `algorithm` in error feedback on the device: `auto reduce =
/// with_device_feedback<float>(compose(...))`.
template <kernel::ranked T, index_type Index = std::uint32_t, class Composition>
device_feedback<T, Composition, Index> with_device_feedback(Composition algorithm) {
  return device_feedback<T, Composition, Index>(std::move(algorithm));
}

} // namespace spar
