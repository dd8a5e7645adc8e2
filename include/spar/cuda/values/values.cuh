// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The work of a rank on dense values in device memory (see workspace/host_work.hpp).
#pragma once

#include <spar/core/address.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/pieces.hpp>
#include <spar/cuda/runtime.hpp>
#include <spar/cuda/values/codecs.cuh>

#include <cstddef>
#include <cstdint>
#include <span>

namespace spar::inline v0_1::detail {

/// Puts the work of a rank on values in device memory into its own stream. All functions return
/// at once, and throw `cuda_error` if CUDA fails. All pointers point to device memory.
class device_values {
 public:
  device_values() = default;
  device_values(const device_values&) = delete;

  [[nodiscard]] device_stream& order() noexcept { return order_; }
  [[nodiscard]] const device_stream& order() const noexcept { return order_; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return order_.get(); }

  template <class T, class Op>
  void reduce(std::span<T> inout, const T* right, Op op) const {
    kernel::start_combine(inout.data(), right, inout.size(), inout.data(), op, stream());
  }
  template <class T, class Op>
  void reduce_left(std::span<T> inout, const T* left, Op op) const {
    kernel::start_combine(left, inout.data(), inout.size(), inout.data(), op, stream());
  }
  template <class T, class Op>
  void finalize(std::span<T> x, Op op, rank_t ranks) const {
    kernel::start_finalize(x.data(), x.size(), ranks, op, stream());
  }
  template <class T>
  void fill(std::span<T> x, T value) const {
    kernel::start_fill(x.data(), x.size(), value, stream());
  }
  template <class U>
  void copy(U* to, std::span<const U> from) const {
    start_copy(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from.data()), from.size_bytes(),
               cudaMemcpyDeviceToDevice, stream());
  }

  template <class Codec, class T>
  void decode(const Codec& codec, std::span<const std::byte> in, std::span<T> out) const {
    device_codec<Codec>::decode(codec, in.data(), out, stream());
  }
  /// Replaces the values by op(decoded, value), with one kernel. Returns false, and does nothing, if the codec has
  /// none.
  template <class Codec, class T, class Op>
  bool reduce_left(const Codec& codec, std::span<const std::byte> in, std::span<T> inout, Op op) const {
    return visit<T>(codec, [&]<class Chosen>(const Chosen& chosen) {
      if constexpr (reduces_encoded<Chosen, T, Op>)
        device_codec<Chosen>::reduce_left(chosen, in.data(), inout, op, order_.get());
      return reduces_encoded<Chosen, T, Op>;
    });
  }
  /// The number of values of type T that `codec` encodes together (see `device_codec`).
  template <class T, class Codec>
  [[nodiscard]] static std::uint64_t together(const Codec& codec) {
    return visit<T>(codec, []<class Chosen>(const Chosen& chosen) { return device_codec<Chosen>::together(chosen); });
  }

 private:
  /// Calls `f` with the codec, or with the codec that it has chosen.
  template <class T, class Codec, class F>
  static auto visit(const Codec& codec, F f) {
    if constexpr (requires { device_codec<Codec>::template visit<T>(codec, f); })
      return device_codec<Codec>::template visit<T>(codec, f);
    else
      return f(codec);
  }

  device_stream order_;
};

} // namespace spar::inline v0_1::detail
