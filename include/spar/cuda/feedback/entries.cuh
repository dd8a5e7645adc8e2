// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Entries that leave a vector in device memory for the host, and entries that return.
#pragma once

#include <spar/collective/selected_sum.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/cuda/array.hpp>
#include <spar/cuda/call.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/pinned.hpp>
#include <spar/selector/everything.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/threshold_reuse.hpp>
#include <spar/storage/residual_view.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace spar::detail {

/// Selects entries from a vector in device memory, and moves them to the host; writes entries from the host to the
/// vector. Works on one vector at a time, and in the order of its stream. Keeps its memory for later vectors. All
/// functions throw `cuda_error` if CUDA fails.
template <kernel::ranked T, index_type Index>
class device_entries {
 public:
  /// From now on, works on `x`, whose work begins after the work on the last vector.
  void begin(device_span<T> x) {
    last_.order(x.stream);
    x_ = x;
  }

  /// Waits for the work on the device so far, and ignores its errors.
  void wait() const noexcept { last_.wait(); }

  // Selectors: each has the result and the next state of the selector on the host. Waits for the device; meanwhile the
  // rank takes part in the rounds of partial collectives.

  template <communicates Net>
  sparse_stream<T, Index> take(Net& net, const selector::exact_topk& select, no_state&) {
    kernel::cut<T> where;
    return take_largest(net, select.bounds(x_.size).k, where);
  }
  template <communicates Net>
  sparse_stream<T, Index> take(Net& net, const selector::threshold_reuse& select,
                               selector::threshold_reuse::state& now) {
    const selector::topk_bounds bounds = select.bounds(x_.size);
    if (select.reuses(now)) {
      const std::uint64_t room = std::min(bounds.k + bounds.most, x_.size);
      reserve(room);
      kernel::start_take_at_least<T, Index>(nullptr, x_.data, x_.size, static_cast<kernel::magnitude<T>>(now.threshold),
                                            0, indices_.data(), values_.data(), room, count_.data(), words_.data(),
                                            x_.stream);
      arrivals in(*this, net, std::min(bounds.most, room), room);
      if (select.suits(now.threshold, in.count(), bounds)) {
        ++now.calls;
        sparse_stream<T, Index> mine = in.stream(net);
        if (mine.count() > bounds.most) select.keep_largest_of(mine, bounds.k, residual(), memory_of(net), now);
        return mine;
      }
      kernel::start_scatter_assign(indices_.data(), values_.data(), std::min(in.count(), room), x_.data, x_.stream);
    }
    kernel::cut<T> where;
    sparse_stream<T, Index> mine = take_largest(net, bounds.k, where);
    now = {where.threshold, 1};
    return mine;
  }
  template <communicates Net>
  sparse_stream<T, Index> take(Net& net, const selector::everything&, no_state&) {
    const auto n = static_cast<std::size_t>(x_.size);
    auto all = sparse_stream<T, Index>::dense(memory_of(net), n, 0, n);
    if (n == 0) return all;
    pinned_memory::lease host = pinned_.take(n * sizeof(T));
    or_wait([&] {
      to_host(static_cast<T*>(host.data()), x_.data, n);
      clear(x_.data, n * sizeof(T), x_.stream);
      wait_for_device(net, host, x_.stream);
    });
    std::memcpy(all.values().data(), host.data(), n * sizeof(T));
    return all;
  }

  /// A view through which a collective changes the vector. It must not be used after the next `begin`.
  [[nodiscard]] residual_view<T> residual() noexcept {
    return {[](void* self, const residual_change<T>& what) { static_cast<device_entries*>(self)->change(what); }, this};
  }

  /// Starts to write the values of `sum` to `x`, in the order of the stream of `begin`, with zeros where `sum` has no
  /// entry.
  void write(const stream_view<T, Index>& sum, T* x) {
    if (x_.size == 0) return;
    const auto entries = static_cast<std::size_t>(sum.count());
    or_wait([&] {
      if (entries < x_.size) clear(x, static_cast<std::size_t>(x_.size) * sizeof(T), x_.stream);
      if (sum.is_dense()) {
        to_device(x + sum.first(), sum.values().data(), entries);
      } else {
        send(sum.indices().data(), sum.values().data(), entries);
        kernel::start_scatter_assign(indices_.data(), values_.data(), entries, x, x_.stream);
      }
      last_.record(x_.stream);
    });
  }

 private:
  template <class Net>
  static pool& memory_of(Net& net) {
    return port_of(net).memory();
  }

  /// Calls `work()`. If it throws, waits for the stream, whose copies may still use a pinned buffer.
  template <class Work>
  void or_wait(Work work) {
    try {
      work();
    } catch (...) {
      cudaStreamSynchronize(x_.stream);
      throw;
    }
  }

  void reserve(std::uint64_t entries) {
    values_.reserve(entries), indices_.reserve(entries);
    count_.reserve(1), words_.reserve(kernel::take_words(x_.size));
  }

  template <communicates Net>
  sparse_stream<T, Index> take_largest(Net& net, std::uint64_t k, kernel::cut<T>& where) {
    if (k == 0) return sparse_stream<T, Index>::sparse(memory_of(net), x_.size, 0);
    reserve(k), cut_.reserve(1), search_.reserve(kernel::largest_bytes<T>(x_.size, k));
    kernel::start_largest(x_.data, x_.size, k, cut_.data(), search_.data(), x_.stream);
    kernel::start_take_largest(x_.data, x_.size, cut_.data(), 0, indices_.data(), values_.data(), count_.data(),
                               words_.data(), x_.stream);
    arrivals in(*this, net, k, k, &where);
    return in.stream(net);
  }

  /// The entries that a kernel has written to `indices_` and `values_`, and their number in `count_`, on the host.
  class arrivals {
   public:
    /// Waits for the number and the first `likely` entries, and for the other entries, up to `room`, if there are more.
    /// Also waits for the cut if `where` is not null.
    template <communicates Net>
    arrivals(device_entries& from, Net& net, std::uint64_t likely, std::uint64_t room, kernel::cut<T>* where = nullptr)
        : n_(from.x_.size), host_(from.pinned_.take(values_at(room) + static_cast<std::size_t>(room) * sizeof(T))),
          indices_(reinterpret_cast<Index*>(static_cast<std::byte*>(host_.data()) + sizeof(head))),
          values_(reinterpret_cast<T*>(static_cast<std::byte*>(host_.data()) + values_at(room))) {
      from.or_wait([&] {
        head& first = *static_cast<head*>(host_.data());
        from.to_host(&first.count, from.count_.data(), 1);
        if (where != nullptr) from.to_host(&first.where, from.cut_.data(), 1);
        copy(from, 0, likely);
        wait_for_device(net, host_, from.x_.stream);
        count_ = first.count;
        if (where != nullptr) *where = first.where;
        if (count_ <= likely || count_ > room) return;
        copy(from, likely, count_);
        wait_for_device(net, host_, from.x_.stream);
      });
    }
    /// The number of entries; more than `room` if some had no room.
    [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

    template <communicates Net>
    [[nodiscard]] sparse_stream<T, Index> stream(Net& net) const {
      auto mine = sparse_stream<T, Index>::sparse(memory_of(net), n_, count_);
      std::copy_n(indices_, count_, mine.indices().data());
      std::copy_n(values_, count_, mine.values().data());
      return mine;
    }

   private:
    struct head {
      std::uint64_t count;
      kernel::cut<T> where;
    };
    static_assert(sizeof(head) % alignof(Index) == 0 && alignof(T) <= 8);

    static std::size_t values_at(std::uint64_t room) { // in whole words, so that the values are aligned
      return (sizeof(head) + static_cast<std::size_t>(room) * sizeof(Index) + 7) / 8 * 8;
    }
    void copy(device_entries& from, std::uint64_t begin, std::uint64_t end) {
      from.to_host(indices_ + begin, from.indices_.data() + begin, end - begin);
      from.to_host(values_ + begin, from.values_.data() + begin, end - begin);
    }

    std::uint64_t n_;
    pinned_memory::lease host_;
    Index* indices_;
    T* values_;
    std::uint64_t count_ = 0;
  };

  void change(const residual_change<T>& what) {
    using kind = typename residual_change<T>::kind;
    if (what.count == 0) return;
    spar::ensure(what.indices == nullptr || what.index_bytes == sizeof(Index),
                 "a schedule changes a residual by indices of another type than that of its streams");
    or_wait([&] {
      const auto* indices = static_cast<const Index*>(what.indices);
      send(indices, what.values, what.count);
      if (what.what == kind::assign) {
        kernel::start_scatter_assign(indices_.data(), values_.data(), what.count, x_.data, x_.stream);
      } else if (what.what == kind::add) {
        kernel::start_scatter_add(indices_.data(), values_.data(), what.count, x_.data, x_.stream);
      } else if constexpr (std::same_as<T, float>) {
        decoded_.reserve(what.count);
        to_device(decoded_.data(), what.decoded, what.count);
        kernel::start_scatter_difference(indices == nullptr ? nullptr : indices_.data(), values_.data(),
                                         decoded_.data(), what.count, x_.data + what.begin, x_.stream);
      }
      last_.record(x_.stream);
    });
  }

  /// Starts to copy entries to `values_` and, unless `indices` is null, to `indices_`.
  void send(const Index* indices, const T* values, std::size_t count) {
    values_.reserve(count);
    to_device(values_.data(), values, count);
    if (indices == nullptr) return;
    indices_.reserve(count);
    to_device(indices_.data(), indices, count);
  }
  /// Starts to copy from any host memory, by way of a pinned buffer.
  template <class U>
  void to_device(U* to, const U* from, std::size_t count) {
    if (count == 0) return;
    pinned_memory::lease host = pinned_.take(count * sizeof(U));
    std::memcpy(host.data(), from, count * sizeof(U));
    check_cuda(cudaMemcpyAsync(to, host.data(), count * sizeof(U), cudaMemcpyHostToDevice, x_.stream),
               "cudaMemcpyAsync to the device");
    host.used_by(x_.stream);
  }
  /// Starts to copy to a pinned buffer.
  template <class U>
  void to_host(U* to, const U* from, std::uint64_t count) const {
    if (count == 0) return;
    check_cuda(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(U), cudaMemcpyDeviceToHost, x_.stream),
        "cudaMemcpyAsync to the host");
  }

  device_span<T> x_;
  pinned_memory pinned_;
  cuda_event last_; // the end of the work on the device so far
  device_array<T> values_, decoded_;
  device_array<Index> indices_;
  device_array<kernel::cut<T>> cut_;
  device_array<std::byte> search_;
  device_array<std::uint64_t> words_, count_;
};

} // namespace spar::detail
