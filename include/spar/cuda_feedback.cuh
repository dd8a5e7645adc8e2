// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback on the device: gradients, residual and selection are in device memory, and only the selected entries
// travel between device and host (SparCML, algorithm 1; Ok-Topk, algorithm 2).
#pragma once

#include <spar/collective/composition.hpp>
#include <spar/collective/prepare.hpp>
#include <spar/cuda/call.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/values/entries.cuh>
#include <spar/on_device.cuh>
#include <spar/optimizer/feedback_core.hpp>
#include <spar/runtime/pending.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

namespace detail {

/// The residual and the accumulated values of a `device_feedback` object, in memory of its device.
template <kernel::ranked T, index_type Index>
class device_store {
 public:
  static constexpr const char* owner = "device_feedback";
  static constexpr bool ends_later = true; // the residual changes when the user's stream is ordered behind a call

  [[nodiscard]] const home_device& device() const noexcept { return device_; }
  /// Moves entries between the device and the host. Its stream orders all work on the residual.
  [[nodiscard]] device_entries<T, Index>& entries() noexcept { return entries_; }

  /// Makes room for n accumulated values. If there is none yet, first calls `end_transfers`.
  template <class End>
  void reserve(std::uint64_t n, End end_transfers) {
    if (!accumulated_.has_room(n)) end_transfers();
    accumulated_.reserve(n);
    accumulated_length_ = n;
  }
  /// Makes room for the sums of `x` and the residual, and returns their computation in the stream of the workspace.
  template <class Channel>
  device_sum<T> accumulate(const Channel& net, std::span<const T> x) {
    auto& port = net.net();
    reserve(x.size(), [&] { end_transfers(port); });
    port.work().order().follow(entries_.order().get()); // the last call may not have had an `on_device`
    return {residual(), x.data(), accumulated_.data(), x.size(), port.work().stream()};
  }
  [[nodiscard]] std::span<T> accumulated() const noexcept {
    return {accumulated_.data(), static_cast<std::size_t>(accumulated_length_)};
  }
  /// Called when the collective has ended.
  template <class Channel>
  void reduced(const Channel& net) {
    entries_.order().follow(net.net().work().stream());
  }
  /// Makes the accumulated values the residual.
  void keep() noexcept {
    residual_.swap(accumulated_);
    length_ = accumulated_length_;
  }

  /// The residual in device memory; null if there is none.
  [[nodiscard]] const T* residual() const noexcept { return length_ > 0 ? residual_.data() : nullptr; }
  /// A copy of the residual on the host. Waits for the work of the last call.
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> values(static_cast<std::size_t>(length_));
    entries_.wait();
    copy(values.data(), residual_.data(), values.size(), cudaMemcpyDeviceToHost);
    return values;
  }
  [[nodiscard]] std::uint64_t size() const noexcept { return length_; }
  /// Replaces the residual by `values`, in its place if the length stays. Waits for the work of the last call.
  void replace(const std::vector<T>& values) {
    entries_.wait();
    if (values.size() == length_) return copy(residual_.data(), values.data(), values.size(), cudaMemcpyHostToDevice);
    reserve(values.size(), [] {});
    copy(accumulated_.data(), values.data(), values.size(), cudaMemcpyHostToDevice);
    keep();
  }

  // For calls in the order of the user's stream, which change the residual where it is.

  /// Makes the residual n zeros, and makes room for the accumulated values. Waits. The zeros are negative, so that the
  /// first sums have the bits of the values, also of zeros.
  void begin_with_zeros(std::uint64_t n) {
    for (int arrays = 0; arrays < 2; ++arrays) {
      reserve(n, [] {});
      kernel::start_fill(accumulated_.data(), n, static_cast<T>(-0.0), entries_.order().get());
      keep();
    }
    entries_.wait();
  }
  [[nodiscard]] T* residual_in_place() const noexcept { return residual_.data(); }
  /// After a call that has kept another array: copies the residual back to where it was before the call. Work that is
  /// put into `user` afterwards finds it there.
  void return_residual(cudaStream_t user) {
    start_copy(reinterpret_cast<std::byte*>(accumulated_.data()), reinterpret_cast<const std::byte*>(residual_.data()),
               static_cast<std::size_t>(length_) * sizeof(T), cudaMemcpyDeviceToDevice, entries_.order().get());
    residual_.swap(accumulated_);
    entries_.order().precede(user);
  }

 private:
  static void copy(T* to, const T* from, std::size_t count, cudaMemcpyKind kind) {
    if (count == 0) return;
    check_cuda(cudaMemcpy(to, from, count * sizeof(T), kind), "cudaMemcpy");
    // A short copy to the device may still be on its way, and other streams do not wait for it.
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  home_device device_;
  device_entries<T, Index> entries_;
  std::uint64_t length_ = 0; // of the residual; 0 before the first call
  std::uint64_t accumulated_length_ = 0;
  device_array<T> residual_;
  device_array<T> accumulated_;
};

} // namespace detail

/// Error feedback around a composition, for vectors in device memory. A call adds the residual to the values, moves the
/// selected entries of the sum to the host, reduces them there over any transport, and writes the result to the device.
/// Rounding errors, and entries that the schedule does not keep, return to the residual on the device. The bits are
/// those of `error_feedback` with the same composition, except those of a NaN that arithmetic makes. The selector must
/// be `everything` or one that leaves the work to the workspace, as `exact_topk`, `threshold_reuse`, `gaussian` and
/// `bucket_topk` do; with a storage that rounds, the values must be float or double. Ranks with `error_feedback` around
/// the same composition may take part in the same call. One object for each rank, made and used by one thread at a
/// time, while its device is the current one. The object cannot be moved. The constructor throws `cuda_error` if CUDA
/// fails.
template <kernel::ranked T, class Composition, index_type Index = std::uint32_t>
class device_feedback : public feedback_core<T, Composition, Index, detail::device_store<T, Index>> {
  using core = feedback_core<T, Composition, Index, detail::device_store<T, Index>>;
  using typename core::in_place, typename core::out_of_place, typename core::under_way;
  using selector_type = typename Composition::selector_type;
  static_assert(std::same_as<selector_type, selector::everything> ||
                    selects<selector_type, T, Index, detail::device_work>,
                "device_feedback needs the selector everything, or one that leaves the work to any workspace: "
                "exact_topk, threshold_reuse, or one of your own (docs/guide/composing.md)");
  static_assert(storage::is_exact<typename Composition::storage_type> || std::floating_point<T>,
                "device_feedback with a storage that rounds needs values of type float or double");

 public:
  /// Wraps the composition `algorithm`. Throws `cuda_error` if CUDA fails, of which no other rank learns: this rank may
  /// go on with an `error_feedback`.
  explicit device_feedback(Composition algorithm = {}) : core(std::move(algorithm)) {}

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
    device().check_span(net, owner, x);
    under_way call(*this);
    sparse_stream<T, Index> mine;
    const auto reduce = prepare<on_host>(detail::port_of(net), &mine, x.size, op);
    try {
      detail::or_abort(net, [&] { mine = select(net, x); });
      const selected_sum<T, Index> result = reduce.run();
      detail::or_abort(net, [&] { entries().write(result.sum.view(), x); });
    } catch (...) {
      entries().wait(); // the program may free the values
      throw;
    }
    call.keep();
  }

  /// Reduces `x` in place with `on`, an `on_device`: the entries are also reduced by kernels in device memory, and
  /// messages travel as those of `on` do. Waits for the device whenever a number of entries is needed. Does not compile
  /// if there are no kernels for the composition (see `allreduce` of `on_device`).
  template <communicates Net, reduction<T> Op = sum>
  void operator()(on_device<Net>& on, device_span<T> x, Op op = {}) {
    const auto order = begin(on, x);
    under_way call(*this);
    const auto reduce = prepare<in_place>(on.transport(), on.values(x), x.size, op);
    order.run([&] { reduce.run(); });
    call.keep();
  }
  /// Starts a non-blocking call on `on`, an `on_device`, that reduces `x` in place, and returns its handle (see
  /// `pending_on_device`). `x` and this object must stay valid until the handle is destroyed; the residual and the
  /// state change in `wait()` of the handle. If calls have names (`which`), ranks may start the calls of several
  /// `device_feedback` objects in different orders. Throws what a blocking call throws before anything is sent, and
  /// `invalid_argument` if another call of this object has not ended.
  template <communicates Net, reduction<T> Op = sum>
  auto start(on_device<Net>& on, device_span<T> x, Op op = {}) {
    return start_call(on, x, op);
  }
  template <communicates Net, reduction<T> Op = sum>
  auto start(on_device<Net>& on, named which, device_span<T> x, Op op = {}) {
    return start_call(on, x, op, which);
  }

  /// The residual in device memory: the values that this rank has not sent yet, in the order of the last call's stream.
  /// Null before the first call. The next call uses this memory for other values.
  [[nodiscard]] const T* residual() const noexcept { return this->store_.residual(); }

 protected:
  /// For an object that all ranks of `net` make together: if CUDA fails, aborts the communicator, too.
  template <communicates Net>
  device_feedback(Net& net, Composition algorithm)
      : core(std::move(algorithm),
             [&] { return detail::or_abort(net, [] { return detail::device_store<T, Index>(); }); }) {}

 private:
  static constexpr const char* owner = "spar::device_feedback";

  [[nodiscard]] const detail::home_device& device() const noexcept { return this->store_.device(); }
  [[nodiscard]] detail::device_entries<T, Index>& entries() noexcept { return this->store_.entries(); }

  /// Begins a call on the values `x` of the rank `on`.
  template <class Net>
  auto begin(on_device<Net>& on, device_span<T> x) {
    device().check_current(on.transport(), owner);
    return on.begin(this->algorithm(), x);
  }
  /// Prepares a call of type `Call`. The caller keeps an `under_way` object.
  template <class Call, class Net, class X, class Op>
  auto prepare(Net& net, X x, std::uint64_t n, Op op) {
    return detail::or_abort(net, [&] { return this->template prepare_call<Call>(net, under_way(), x, n, op); });
  }
  template <class Net, class Op, std::same_as<named>... Name>
  auto start_call(on_device<Net>& on, device_span<T> x, Op op, Name... which) {
    const auto order = begin(on, x);
    under_way call(*this);
    auto reduce = prepare<in_place>(on.transport(), on.values(x), x.size, op);
    using port_type = typename on_device<Net>::port_type;
    return pending_on_device<port_type, under_way>(order, reduce.start(which...), std::move(call));
  }

  /// Adds the residual to the values of `x`, and moves the selected entries of the sum to the host.
  template <communicates Net>
  sparse_stream<T, Index> select(Net& net, device_span<T> x) {
    const double begin = endpoint::now();
    this->store_.reserve(x.size, [&] { detail::end_transfers(net); });
    T* const accumulated = this->store_.accumulated().data();
    auto mine = entries().select(net, this->algorithm_.select, this->next_.select, x, residual(), accumulated);
    this->report_ = {.selected = mine.count(), .select_seconds = endpoint::now() - begin};
    return mine;
  }

  /// Reduces the selected entries `mine`, which are on the host.
  struct on_host : out_of_place {
    using out_of_place::out_of_place;

    template <transport Net, class Op>
    task<selected_sum<T, Index>> operator()(channel<Net> net, sparse_stream<T, Index>* mine, Op op) const& {
      auto& feedback = static_cast<device_feedback&>(*this->reducer);
      auto running = feedback.algorithm_.reduce_selected(net, &feedback.next_, &feedback.report_, std::move(*mine),
                                                         feedback.entries().residual(), op);
      selected_sum<T, Index> result = co_await std::move(running);
      if constexpr (detail::has_finalize<Op, T>) net.work().finalize(result.sum.values(), op, net.size());
      co_return result;
    }
  };
};

/// Wraps the composition `algorithm` in error feedback on the device: `auto reduce =
/// with_device_feedback<float>(compose(...))`.
template <kernel::ranked T, index_type Index = std::uint32_t, class Composition>
device_feedback<T, Composition, Index> with_device_feedback(Composition algorithm) {
  return device_feedback<T, Composition, Index>(std::move(algorithm));
}

} // namespace spar::inline v0_1
