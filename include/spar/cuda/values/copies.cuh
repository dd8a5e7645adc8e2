// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies of values and streams in device memory, and between device and host.
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/memory.hpp>
#include <spar/cuda/pieces.hpp>
#include <spar/cuda/recycled.hpp>
#include <spar/cuda/values/values.cuh>
#include <spar/cuda/waits.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

namespace spar::inline v0_1::detail {

/// Puts copies of values and streams into the stream of a device. The functions that copy to the host are coroutines,
/// which wait for the copy. All functions throw `cuda_error` if CUDA fails.
class device_copies : public device_values {
 public:
  /// `memory` is device memory, used in the order of the stream; `lists` is memory of the host, and `answers` is
  /// page-locked. `of` is told of allocations.
  device_copies(device_pool& memory, pool& lists, pool& answers, device_waits& waits, const device_pool::owner& of)
      : memory_(&memory), lists_(&lists), answers_(&answers), waits_(&waits), owner_(of) {}

  [[nodiscard]] device_pool& memory() const noexcept { return *memory_; }
  [[nodiscard]] pool& lists() const noexcept { return *lists_; }
  /// Resumes the coroutines of this object.
  [[nodiscard]] spar::scheduler& scheduler() const noexcept { return waits_->scheduler(); }

  template <element T, index_type Index>
  void write(sparse_stream<T, Index>& to, std::size_t at, const stream_view<T, Index>& v) const {
    if (v.is_dense())
      copy(to.values().data() + at, v.values());
    else
      write_pieces_at(to, at, std::span(&v, 1));
  }
  /// Overwrites the entries of `to` with those of sparse streams, one after the other, with one kernel for up to four.
  template <element T, index_type Index>
  void write_pieces(sparse_stream<T, Index>& to, std::span<const stream_view<T, Index>> from) const {
    write_pieces_at(to, 0, from);
  }
  template <element T, index_type Index>
  [[nodiscard]] sparse_stream<T, Index> duplicate(const stream_view<T, Index>& v) const {
    auto out = v.is_dense() ? sparse_stream<T, Index>::dense(*memory_, v.dimension(), v.first(), v.count())
                            : sparse_stream<T, Index>::sparse(*memory_, v.dimension(), v.count());
    write(out, 0, v);
    return out;
  }
  /// Returns a copy of `list` in device memory.
  template <class U>
  [[nodiscard]] buffer<U> upload(std::span<const U> list) {
    buffer<U> out(*memory_, list.size());
    upload(out.data(), list);
    return out;
  }
  /// Starts to copy `list` to device memory.
  template <class U>
  void upload(U* to, std::span<const U> list) {
    if (list.empty()) return;
    pinned_memory::lease host = staging_.take(list.size_bytes(), [this] {
      if (owner_.allocates != nullptr) owner_.allocates(owner_.self);
    });
    std::memcpy(host.data(), list.data(), list.size_bytes());
    start_copy(reinterpret_cast<std::byte*>(to), static_cast<const std::byte*>(host.data()), list.size_bytes(),
               cudaMemcpyHostToDevice, stream());
    host.used_by(stream());
  }
  /// Copies values from device memory to `to`.
  template <class U>
  [[nodiscard]] task<void> download(std::span<U> to, const U* from) const {
    if (to.empty()) co_return;
    buffer<U> host(*answers_, to.size());
    device_waits::wait copied(*waits_, stream());
    start_download(host, from);
    co_await copied;
    std::memcpy(to.data(), host.data(), to.size_bytes());
  }
  /// Returns the value at `from`, which is in device memory.
  template <class U>
  [[nodiscard]] task<U> number(const U* from) const {
    buffer<U> host(*answers_, 1);
    device_waits::wait copied(*waits_, stream());
    start_download(host, from);
    co_await copied;
    co_return host.data()[0];
  }
  /// Returns a copy of the sparse stream `v` in `memory`, which is on the host.
  template <element T, index_type Index>
  [[nodiscard]] task<sparse_stream<T, Index>> to_host(stream_view<T, Index> v, pool& memory) const {
    auto out = sparse_stream<T, Index>::sparse(memory, v.dimension(), v.count());
    if (v.count() == 0) co_return out;
    buffer<Index> indices(*answers_, v.count());
    buffer<T> values(*answers_, v.count());
    device_waits::wait copied(*waits_, stream());
    start_download(indices, v.indices().data());
    start_download(values, v.values().data());
    co_await copied;
    std::memcpy(out.indices().data(), indices.data(), out.indices().size_bytes());
    std::memcpy(out.values().data(), values.data(), out.values().size_bytes());
    co_return out;
  }

 protected:
  /// Numbers that kernels write straight to page-locked memory of the host, which needs no copy. Construct it before
  /// the work starts, and await it before the values are read.
  template <class U>
  class host_answer {
   public:
    host_answer(const device_copies& at, std::size_t count, U initial = {})
        : values_(*at.answers_, count), written_(*at.waits_, at.stream()) {
      for (std::size_t i = 0; i < count; ++i) values_.data()[i] = initial;
    }
    [[nodiscard]] U* data() noexcept { return values_.data(); }
    /// Waits for the work that is now in the stream.
    [[nodiscard]] device_waits::wait& written() noexcept { return written_; }

   private:
    buffer<U> values_;
    device_waits::wait written_;
  };

 private:
  template <class T, class Index>
  void write_pieces_at(sparse_stream<T, Index>& to, std::size_t at, std::span<const stream_view<T, Index>> from) const {
    while (!from.empty()) {
      const std::size_t some = std::min<std::size_t>(kernel::entry_pieces<T, Index>::most, from.size());
      kernel::entry_pieces<T, Index> pieces;
      for (const auto& v : from.first(some)) pieces.add(v.indices().data(), v.values().data(), v.count());
      kernel::start_copy_entries(pieces, to.indices().data() + at, to.values().data() + at, stream());
      at += pieces.count();
      from = from.subspan(some);
    }
  }
  /// Starts to fill `host`, which is page-locked and must not be given back before the copy has ended.
  template <class U>
  void start_download(buffer<U>& host, const U* from) const {
    start_copy(reinterpret_cast<std::byte*>(host.data()), reinterpret_cast<const std::byte*>(from),
               host.size() * sizeof(U), cudaMemcpyDeviceToHost, stream());
  }

  device_pool* memory_;
  pool* lists_;
  pool* answers_;
  device_waits* waits_;
  device_pool::owner owner_;
  pinned_memory staging_;
};

} // namespace spar::inline v0_1::detail
