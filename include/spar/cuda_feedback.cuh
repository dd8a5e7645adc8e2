// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback on the device: gradients, residual and selection are in device memory, and only the selected entries
// travel between device and host (SparCML, algorithm 1).
#pragma once

#include <spar/collective/composition.hpp>
#include <spar/cuda/array.hpp>
#include <spar/cuda/call.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/pinned.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/system/allreduce.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// Error feedback around a composition, for vectors in device memory. A call adds the residual to the values, moves the
/// k largest entries of the sum to the host, reduces them there over any transport, and writes the result to the
/// device. The bits are those of `error_feedback` with the same composition, except those of a NaN that arithmetic
/// makes. The selector must be `exact_topk`, the storage must not round, and the schedule must reduce streams. All
/// ranks of a call must use `device_feedback`. One object for each rank, used by one thread at a time, while its device
/// is the current one; it cannot be moved.
template <kernel::ranked T, class Composition, index_type Index = std::uint32_t>
class device_feedback {
  using selector_type = typename Composition::selector_type;
  using storage_type = typename Composition::storage_type;
  using topology_type = typename Composition::topology_type;
  using schedule_type = typename Composition::schedule_type;

  static_assert(std::same_as<selector_type, selector::exact_topk>,
                "device_feedback has a kernel for the selector exact_topk only");
  static_assert(has_stream_codec<storage_type> && storage::is_exact<storage_type>,
                "device_feedback needs a stream codec that does not round, such as coo: the residual is in device "
                "memory, where no rounding errors are added to it");
  static_assert(composes<verdict_of<selector::everything, storage_type, topology_type, schedule_type>>,
                "device_feedback needs a schedule that reduces streams, such as split_allgather: a schedule that keeps "
                "the largest entries of the sum puts the others back into the residual, which is in device memory");

 public:
  static constexpr std::string_view name = Composition::name;

  explicit device_feedback(Composition parts = {})
      : select_(parts.select), reduce_{{{}, parts.store, parts.over, parts.by}, parts.select} {}

  /// Reduces `x` in place, in the order of its stream: adds the residual, sums the selected entries of all ranks, and
  /// writes the sum, with zeros where it has no entry. Returns as soon as the last copy is in the stream: work that is
  /// put into the stream afterwards sees the sum. Waits once for the device; meanwhile the rank takes part in the
  /// rounds of partial collectives. The residual changes only if the call succeeds; otherwise the values of `x` are
  /// unspecified. (If CUDA fails on this rank after the collective has ended, the other ranks' sums contain entries
  /// that are still in this rank's residual.) Throws `invalid_argument` before anything is sent if an option is
  /// invalid, or if `x` and the residual have different lengths. If CUDA fails, aborts the communicator, because other
  /// ranks may wait, and throws `cuda_error`.
  template <communicates Net, reduction<T> Op = sum>
  void operator()(Net& net, device_span<T> x, Op op = {}) {
    static_assert(std::same_as<Op, sum> || std::same_as<Op, average>,
                  "error feedback adds unsent values to the values of later calls, so its operation must be sum or "
                  "average");
    check_length(x.size);
    select_.validate(x.size);
    const std::uint64_t most = select_.bounds(x.size).k;
    detail::pinned_memory::lease host = detail::or_abort(net, [&] { return pinned_.take(entry_buffer::bytes(most)); });
    const entry_buffer mine(host.data(), most);
    *mine.count = 0;
    on_device(net, x.stream, [&] {
      select(mine, x);
      detail::wait_for_device(net, host, x.stream);
    });
    const auto view = stream_view<T, Index>::sparse(x.size, {mine.indices, *mine.count}, {mine.values, *mine.count});
    const sparse_stream<T, Index> all = allreduce(net, view, reduce_, op);
    on_device(net, x.stream, [&] { write(all.view(), x); });
    residual_.swap(accumulated_);
    length_ = x.size;
  }

  /// The residual in device memory: the values that this rank has not sent yet, in the order of the last call's stream.
  /// Null before the first call. The next call uses this memory for other values.
  [[nodiscard]] const T* residual() const noexcept { return length_ > 0 ? residual_.data() : nullptr; }

 private:
  void check_length(std::uint64_t n) const {
    if (length_ > 0 && length_ != n)
      raise<invalid_argument>({"the vector has length ", n, ", but the residual has length ", length_});
    if (n > 0 && n - 1 > std::numeric_limits<Index>::max()) {
      raise<invalid_argument>(
          {n, " values are too many for the ", 8 * sizeof(Index), "-bit indices of this device_feedback object"});
    }
  }

  /// Calls `work()`. If it throws, waits for the stream, whose copies may still use a pinned buffer, and aborts the
  /// communicator.
  template <communicates Net, class Work>
  static void on_device(Net& net, cudaStream_t stream, Work work) {
    detail::or_abort(net, [&] {
      try {
        work();
      } catch (...) {
        cudaStreamSynchronize(stream);
        throw;
      }
    });
  }

  /// The parts of a pinned buffer for up to `most` entries: their number, the indices, and the values.
  struct entry_buffer {
    static_assert(alignof(Index) <= alignof(std::uint64_t) && alignof(T) <= alignof(std::uint64_t));

    static std::size_t index_bytes(std::uint64_t most) { // in whole words, so that the values are aligned
      return (static_cast<std::size_t>(most) * sizeof(Index) + 7) / 8 * 8;
    }
    static std::size_t bytes(std::uint64_t most) {
      return sizeof(std::uint64_t) + index_bytes(most) + static_cast<std::size_t>(most) * sizeof(T);
    }
    entry_buffer(void* buffer, std::uint64_t most)
        : count(static_cast<std::uint64_t*>(buffer)), indices(reinterpret_cast<Index*>(count + 1)),
          values(reinterpret_cast<T*>(reinterpret_cast<std::byte*>(indices) + index_bytes(most))) {}

    std::uint64_t* count;
    Index* indices;
    T* values;
  };
  /// The composition without its selector. Ranks also compare the selector's options, as in error feedback on the host.
  struct reduction_of_streams : composition<selector::everything, storage_type, topology_type, schedule_type> {
    selector_type selected_by;

    template <class F>
    void options(F&& f) const {
      reduction_of_streams::composition::options(f);
      f("selected_by", selected_by);
    }
  };

  /// Starts to accumulate and to select, and to copy the selected entries to the host.
  void select(const entry_buffer& to, device_span<T> x) {
    last_.order(x.stream); // the last call may have had another stream
    const std::uint64_t n = x.size, most = select_.bounds(n).k;
    accumulated_.reserve(n), cut_.reserve(1), count_.reserve(1), values_.reserve(most), indices_.reserve(most);
    search_.reserve(kernel::largest_bytes<T>(n, most)), words_.reserve(kernel::take_words(n));
    kernel::start_add(residual(), x.data, n, accumulated_.data(), x.stream);
    if (most == 0) return;
    kernel::start_largest(accumulated_.data(), n, most, cut_.data(), search_.data(), x.stream);
    kernel::start_take_largest(accumulated_.data(), n, cut_.data(), 0, indices_.data(), values_.data(), count_.data(),
                               words_.data(), x.stream);
    to_host(to.count, count_.data(), 1, x.stream);
    to_host(to.values, values_.data(), most, x.stream);
    to_host(to.indices, indices_.data(), most, x.stream);
  }

  /// Starts to write the values of a stream to `x`, with zeros where the stream has no entry.
  void write(const stream_view<T, Index>& sum, device_span<T> x) {
    if (x.size == 0) return;
    const std::size_t entries = static_cast<std::size_t>(sum.count());
    detail::pinned_memory::lease host = pinned_.take(entry_buffer::bytes(entries));
    const entry_buffer from(host.data(), entries);
    std::copy(sum.values().begin(), sum.values().end(), from.values);
    if (entries < x.size) detail::clear(x.data, static_cast<std::size_t>(x.size) * sizeof(T), x.stream);
    if (sum.is_dense()) {
      to_device(x.data + sum.first(), from.values, entries, x.stream);
    } else if (entries > 0) {
      std::copy(sum.indices().begin(), sum.indices().end(), from.indices);
      values_.reserve(entries), indices_.reserve(entries);
      to_device(values_.data(), from.values, entries, x.stream);
      to_device(indices_.data(), from.indices, entries, x.stream);
      kernel::start_scatter_assign(indices_.data(), values_.data(), entries, x.data, x.stream);
    }
    host.used_by(x.stream);
    last_.record(x.stream);
  }

  template <class U>
  static void to_host(U* to, const U* from, std::uint64_t count, cudaStream_t stream) {
    detail::check_cuda(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(U), cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync to the host");
  }
  template <class U>
  static void to_device(U* to, const U* from, std::uint64_t count, cudaStream_t stream) {
    detail::check_cuda(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(U), cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync to the device");
  }

  selector_type select_;
  reduction_of_streams reduce_;
  detail::pinned_memory pinned_;
  detail::cuda_event last_;  // the end of the last call's work on the device
  std::uint64_t length_ = 0; // of the residual; 0 before the first call
  detail::device_array<T> residual_;
  detail::device_array<T> accumulated_; // residual plus values of the call; the next residual if the call succeeds
  detail::device_array<T> values_;      // of selected entries, or of the sum
  detail::device_array<Index> indices_;
  detail::device_array<kernel::cut<T>> cut_;
  detail::device_array<std::byte> search_;
  detail::device_array<std::uint64_t> words_, count_;
};

/// Wraps a composition in error feedback on the device: `auto reduce = with_device_feedback<float>(compose(...))`.
template <kernel::ranked T, index_type Index = std::uint32_t, class Composition>
device_feedback<T, Composition, Index> with_device_feedback(Composition parts) {
  return device_feedback<T, Composition, Index>(std::move(parts));
}

} // namespace spar
