// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Entries that leave a vector in device memory for the host, and entries that return.
#pragma once

#include <spar/core/assertion.hpp>
#include <spar/core/op.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/cuda/array.hpp>
#include <spar/cuda/call.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/recycled.hpp>
#include <spar/selector/everything.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/threshold_reuse.hpp>
#include <spar/storage/residual_view.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace spar::detail {

/// Selects entries from a vector in device memory, and moves them to the host; writes entries from the host to device
/// memory. Works on one vector at a time, in the order of its stream. Keeps its memory for later vectors. All functions
/// throw `cuda_error` if CUDA fails.
template <kernel::ranked T, index_type Index>
class device_entries {
 public:
  /// Sets the `x.size` values at `accumulated` to the values of `x` plus those at `residual`, which may be null, and
  /// moves the selected entries to the host. Returns the same entries, and leaves the same state `now`, as the selector
  /// on the host. Waits for the device; meanwhile the rank takes part in the rounds of partial collectives.
  template <communicates Net, class Selector>
  sparse_stream<T, Index> select(Net& net, const Selector& by, state_of<Selector>& now, device_span<T> x,
                                 const T* residual, T* accumulated) {
    last_.order(x.stream); // the last vector may have had another stream
    net_ = &net;
    end_transfers_ = [](void* of) noexcept { end_transfers(*static_cast<Net*>(of)); };
    x_ = {accumulated, x.size, x.stream};
    sparse_stream<T, Index> mine;
    ordered([&] {
      kernel::start_add(residual, x.data, x.size, accumulated, x.stream);
      mine = take(net, by, now);
    });
    return mine;
  }

  /// A view through which a collective changes the accumulated values of the last `select`.
  [[nodiscard]] residual_view<T> residual() noexcept {
    return {[](void* self, std::span<T>, const residual_change<T>& what) {
              static_cast<device_entries*>(self)->change(what);
            },
            this};
  }

  /// Starts to write the values of `sum` to `x`, in the order of the stream of the last `select`, with zeros where
  /// `sum` has no entry.
  void write(const stream_view<T, Index>& sum, T* x) {
    const auto entries = static_cast<std::size_t>(sum.count());
    ordered([&] {
      if (entries < x_.size) clear(x, static_cast<std::size_t>(x_.size) * sizeof(T), x_.stream);
      if (entries == 0) return;
      if (sum.is_dense()) {
        pinned_memory::lease host = take_pinned(entries * sizeof(T));
        to_device(x + sum.first(), sum.values().data(), entries, static_cast<std::byte*>(host.data()));
        host.used_by(x_.stream);
      } else {
        send(sum.indices().data(), sum.values().data(), nullptr, entries);
        kernel::start_scatter_assign(indices_.data(), values_.data(), entries, 0, x, x_.stream);
      }
    });
  }

  /// Lets further work in `stream` begin after the work on the last vector.
  void order(cudaStream_t stream) const { last_.order(stream); }
  /// Lets work on further vectors begin after the work that is now in `stream`.
  void follow(cudaStream_t stream) { last_.record(stream); }
  /// Waits for the work on the device so far, and ignores its errors.
  void wait() const noexcept { last_.wait(); }

 private:
  template <class Net>
  static pool& memory_of(Net& net) {
    return port_of(net).memory();
  }

  /// Calls `work()`, which puts work into the stream. Further vectors wait for this work. If `work` throws, waits for
  /// the stream, whose copies may still use a pinned buffer.
  template <class Work>
  void ordered(Work work) {
    try {
      work();
      last_.record(x_.stream);
    } catch (...) {
      cudaStreamSynchronize(x_.stream);
      throw;
    }
  }

  template <communicates Net>
  sparse_stream<T, Index> take(Net& net, const selector::exact_topk& by, no_state&) {
    kernel::cut<T> where;
    return take_largest(net, by.bounds(x_.size).k, where);
  }
  template <communicates Net>
  sparse_stream<T, Index> take(Net& net, const selector::threshold_reuse& by, selector::threshold_reuse::state& now) {
    const selector::topk_bounds bounds = by.bounds(x_.size);
    if (by.reuses(now)) {
      const std::uint64_t room = std::min(bounds.k + bounds.most, x_.size);
      reserve(room);
      clear(count_.data(), sizeof(std::uint64_t), x_.stream); // no kernel starts for an empty vector
      kernel::start_take_at_least<T, Index>(nullptr, x_.data, x_.size, static_cast<kernel::magnitude<T>>(now.threshold),
                                            0, indices_.data(), values_.data(), room, count_.data(), words_.data(),
                                            x_.stream);
      arrivals in(*this, net, std::min(bounds.most, room), room);
      if (by.suits(now.threshold, in.count(), bounds)) {
        ++now.calls;
        sparse_stream<T, Index> mine = in.stream(net);
        if (mine.count() > bounds.most) by.keep_largest_of(mine, bounds.k, residual(), memory_of(net), now);
        return mine;
      }
      kernel::start_scatter_assign(indices_.data(), values_.data(), std::min(in.count(), room), 0, x_.data, x_.stream);
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
    pinned_memory::lease host = take_pinned(n * sizeof(T));
    to_host(static_cast<T*>(host.data()), x_.data, n);
    clear(x_.data, n * sizeof(T), x_.stream);
    wait_for_device(net, host, x_.stream);
    std::memcpy(all.values().data(), host.data(), n * sizeof(T));
    return all;
  }

  template <communicates Net>
  sparse_stream<T, Index> take_largest(Net& net, std::uint64_t k, kernel::cut<T>& where) {
    if (k == 0) return sparse_stream<T, Index>::sparse(memory_of(net), x_.size, 0);
    reserve(k), grow(cut_, 1), grow(search_, kernel::largest_bytes<T>(x_.size, k));
    kernel::start_largest(x_.data, x_.size, k, cut_.data(), search_.data(), x_.stream);
    kernel::start_take_largest(x_.data, x_.size, cut_.data(), 0, indices_.data(), values_.data(), count_.data(),
                               words_.data(), x_.stream);
    arrivals in(*this, net, k, k, &where);
    return in.stream(net);
  }
  void reserve(std::uint64_t entries) {
    grow(values_, entries), grow(indices_, entries);
    grow(count_, 1), grow(words_, kernel::take_words(x_.size));
  }
  template <class U>
  void grow(device_array<U>& array, std::uint64_t size) {
    if (array.has_room(size)) return;
    end_transfers_(net_);
    array.reserve(size);
  }
  pinned_memory::lease take_pinned(std::size_t bytes) {
    return pinned_.take(bytes, [this] { end_transfers_(net_); });
  }

  /// The entries that a kernel has written to `indices_` and `values_`, and their number in `count_`, on the host.
  class arrivals {
   public:
    /// Waits for the number and the first `likely` entries, and for the other entries, up to `room`, if there are more.
    /// Also waits for the cut if `where` is not null.
    template <communicates Net>
    arrivals(device_entries& from, Net& net, std::uint64_t likely, std::uint64_t room, kernel::cut<T>* where = nullptr)
        : n_(from.x_.size), host_(from.take_pinned(values_at(room) + static_cast<std::size_t>(room) * sizeof(T))),
          indices_(reinterpret_cast<Index*>(static_cast<std::byte*>(host_.data()) + sizeof(head))),
          values_(reinterpret_cast<T*>(static_cast<std::byte*>(host_.data()) + values_at(room))) {
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

    static std::size_t values_at(std::uint64_t room) {
      return sizeof(head) + in_words(static_cast<std::size_t>(room) * sizeof(Index));
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
    spar::ensure(what.indices == nullptr || what.index_bytes == sizeof(Index),
                 "a schedule changes a residual by indices of another type than that of its streams");
    spar::ensure(what.what != kind::add_error || std::same_as<T, float>,
                 "a schedule adds rounding errors to a residual on the device whose values are not floats");
    ordered([&] {
      const auto* indices = static_cast<const Index*>(what.indices);
      send(indices, what.values, what.decoded, what.count);
      if (what.what == kind::assign) {
        kernel::start_scatter_assign(indices_.data(), values_.data(), what.count, 0, x_.data, x_.stream);
      } else if (what.what == kind::add) {
        kernel::start_scatter(indices_.data(), values_.data(), what.count, 0, x_.data, sum{}, x_.stream);
      } else if constexpr (std::same_as<T, float>) {
        kernel::start_scatter_difference(indices == nullptr ? nullptr : indices_.data(), values_.data(),
                                         decoded_.data(), what.count, x_.data + what.begin, x_.stream);
      }
    });
  }

  /// The least multiple of 8 that is at least `bytes`, so that values of any type may follow.
  static constexpr std::size_t in_words(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

  /// Starts to copy entries to `values_` and, unless they are null, to `indices_` and `decoded_`, by way of a pinned
  /// buffer.
  void send(const Index* indices, const T* values, const T* decoded, std::size_t count) {
    if (count == 0) return;
    const std::size_t a_value = in_words(count * sizeof(T));
    pinned_memory::lease host = take_pinned(2 * a_value + in_words(count * sizeof(Index)));
    auto* const room = static_cast<std::byte*>(host.data());
    const auto copy = [&](auto& to, const auto* from, std::byte* by) {
      if (from == nullptr) return;
      grow(to, count);
      to_device(to.data(), from, count, by);
    };
    copy(values_, values, room);
    copy(decoded_, decoded, room + a_value);
    copy(indices_, indices, room + 2 * a_value);
    host.used_by(x_.stream);
  }
  /// Starts to copy `count` values to the device, by way of `pinned`.
  template <class U>
  void to_device(U* to, const U* from, std::size_t count, std::byte* pinned) const {
    std::memcpy(pinned, from, count * sizeof(U));
    check_cuda(cudaMemcpyAsync(to, pinned, count * sizeof(U), cudaMemcpyHostToDevice, x_.stream),
               "cudaMemcpyAsync to the device");
  }
  /// Starts to copy to a pinned buffer.
  template <class U>
  void to_host(U* to, const U* from, std::uint64_t count) const {
    if (count == 0) return;
    check_cuda(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(count) * sizeof(U), cudaMemcpyDeviceToHost, x_.stream),
        "cudaMemcpyAsync to the host");
  }

  device_span<T> x_;                                // the accumulated values
  void (*end_transfers_)(void*) noexcept = nullptr; // of the communicator of the last `select`
  void* net_ = nullptr;
  pinned_memory pinned_;
  cuda_event last_; // the end of the work on the device so far
  device_array<T> values_, decoded_;
  device_array<Index> indices_;
  device_array<kernel::cut<T>> cut_;
  device_array<std::byte> search_;
  device_array<std::uint64_t> words_, count_;
};

} // namespace spar::detail
