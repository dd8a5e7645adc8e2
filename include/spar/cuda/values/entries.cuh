// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Entries that leave a vector in device memory for the host, and entries that return.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/cuda/call.hpp>
#include <spar/cuda/device_span.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/runtime.hpp>
#include <spar/cuda/values/work.cuh>
#include <spar/cuda/waits.hpp>
#include <spar/runtime/tasks/scheduler.hpp>
#include <spar/selector/everything.hpp>
#include <spar/storage/residual_view.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>

#include <sched.h>

namespace spar::inline v0_1::detail {

/// Selects entries from a vector in device memory, and copies them to the host; writes entries from the host to device
/// memory. Works on one vector at a time, in its own stream. Keeps its memory for later vectors. All functions
/// throw `cuda_error` if CUDA fails.
template <kernel::ranked T, index_type Index>
class device_entries {
 public:
  device_entries() = default;
  device_entries(const device_entries&) = delete;

  /// The stream of all work on the vectors.
  [[nodiscard]] device_stream& order() noexcept { return work_.order(); }

  /// Sets the `x.size` values at `accumulated` to the values of `x` plus those at `residual`, which may be null, and
  /// moves the selected entries to the host. Returns the same entries, and leaves the same state `now`, as the selector
  /// on the host. Waits for the device; meanwhile the rank takes part in the rounds of partial collectives.
  template <communicates Net, class Selector>
  sparse_stream<T, Index> select(Net& net, const Selector& by, state_of<Selector>& now, device_span<T> x,
                                 const T* residual, T* accumulated) {
    net_ = {&net, [](void* of) noexcept { end_transfers(*static_cast<Net*>(of)); },
            [](void* of) { static_cast<Net*>(of)->progress(false); }};
    work_.order().follow(x.stream);
    values_ = {accumulated, static_cast<std::size_t>(x.size)};
    const device_sum<T> add_residual{residual, x.data, accumulated, x.size, work_.stream()};
    pool& memory = port_of(net).memory();
    if constexpr (std::same_as<Selector, selector::everything>) {
      add_residual(0, values_.size());
      auto all = sparse_stream<T, Index>::dense(memory, x.size, 0, values_.size());
      work_.download(all.values(), std::as_const(values_).data()).result();
      clear(values_.data(), values_.size_bytes(), work_.stream());
      return all;
    } else {
      const auto mine = by.template operator()<Index>(work_, values_, now, add_residual).result();
      return work_.to_host(mine.view(), memory).result();
    }
  }

  /// A view through which a collective changes the accumulated values of the last `select`.
  [[nodiscard]] residual_view<T> residual() noexcept {
    return {[](void* self, std::span<T>, const residual_change<T>& what) {
              static_cast<device_entries*>(self)->change(what);
            },
            this};
  }

  /// Starts to write the values of `sum` to `x`, with zeros where `sum` has no entry. Further work in `x.stream` begins
  /// afterwards.
  void write(const stream_view<T, Index>& sum, device_span<T> x) {
    if (sum.is_dense()) {
      if (sum.count() < x.size) clear(x.data, static_cast<std::size_t>(x.size) * sizeof(T), work_.stream());
      work_.upload(x.data + sum.first(), sum.values());
    } else {
      const std::span<T> out(x.data, static_cast<std::size_t>(x.size));
      const auto indices = work_.upload(sum.indices());
      const auto values = work_.upload(sum.values());
      work_.write_values(stream_view<T, Index>::sparse(x.size, indices.span(), values.span()), out, T{});
    }
    work_.order().precede(x.stream);
  }

  /// Waits for the work on the device so far, and ignores its errors.
  void wait() const noexcept { work_.order().wait(); }

 private:
  /// The communicator of the last `select`.
  struct communicator {
    void* net = nullptr;
    void (*end_transfers)(void* net) noexcept = nullptr;
    void (*progress)(void* net) = nullptr;
  };

  void change(const residual_change<T>& what) {
    spar::ensure(what.indices == nullptr || what.index_bytes == sizeof(Index),
                 "a schedule changes a residual by indices of another type than that of its streams");
    spar::ensure(what.what != residual_change<T>::kind::assign_unlisted,
                 "a schedule on the host filters the entries that it puts into a residual itself");
    const auto copy = [&]<class U>(const U* from) {
      return work_.upload(std::span<const U>(from, from == nullptr ? 0 : what.count));
    };
    const auto indices = copy(static_cast<const Index*>(what.indices));
    const auto values = copy(what.values), decoded = copy(what.decoded);
    residual_change<T> there = what;
    there.indices = indices.data();
    there.values = values.data();
    there.decoded = decoded.data();
    work_.change(values_.data(), there);
  }

  std::span<T> values_; // the accumulated values
  communicator net_;
  const device_pool::owner allocates_{[](void* self) noexcept {
                                        const communicator& net = static_cast<device_entries*>(self)->net_;
                                        if (net.net != nullptr) net.end_transfers(net.net);
                                      },
                                      nullptr, this};
  pool lists_;
  pinned_resource page_locked_{allocates_};
  pool answers_{page_locked_};
  device_pool memory_{allocates_};
  // No call resumes the coroutines of `work_`: these wait inside `select`, and meanwhile make progress.
  scheduler none_suspended_{lists_};
  const device_waits::progress make_progress_{[](void* self) {
                                                const communicator& net = static_cast<device_entries*>(self)->net_;
                                                net.progress(net.net);
                                                sched_yield();
                                              },
                                              this};
  device_waits waits_{none_suspended_, make_progress_};
  device_work work_{memory_, lists_, answers_, waits_, allocates_};
};

} // namespace spar::inline v0_1::detail
