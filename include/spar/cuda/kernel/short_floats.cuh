// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes values in device memory in two bytes each, and decodes them. The device's version of
// storage/kernel/short_floats.hpp.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/rows.cuh>
#include <spar/storage/kernel/short_floats.hpp>

#include <cstdint>

namespace spar::inline v0_1::kernel {

/// Whether a value is finite, but its encoding is not.
template <class Code>
struct becomes_infinite {
  template <class T>
  __device__ bool operator()(T value) const {
    const T magnitude = value < 0 ? -value : value;
    return spar::detail::is_finite(value) && !(static_cast<float>(magnitude) < short_limit<Code, T>);
  }
};

namespace detail {

template <class Code, class T>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    encode_short(const T* x, std::uint64_t n, std::uint16_t* out, std::uint32_t* refused) {
  const auto write = [&](std::uint64_t at, T value) {
    out[at] = short_of<Code>(static_cast<float>(value));
    if (refused != nullptr && becomes_infinite<Code>{}(value)) *refused = 1; // all threads write the same value
  };
  spar::detail::for_rows(n, [&](std::uint64_t at) { return x[at]; }, write);
}
template <class Code, class T>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    decode_short(const std::uint16_t* in, std::uint64_t n, T* out) {
  const auto write = [&](std::uint64_t at, std::uint16_t code) { out[at] = static_cast<T>(float_of<Code>(code)); };
  spar::detail::for_rows(n, [&](std::uint64_t at) { return in[at]; }, write);
}
template <class Code, class T, class Op>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    reduce_short(const std::uint16_t* left, std::uint64_t n, T* inout, Op op) {
  struct operands {
    std::uint16_t left;
    T right;
  };
  const auto read = [&](std::uint64_t at) { return operands{left[at], inout[at]}; };
  const auto write = [&](std::uint64_t at, operands of) {
    inout[at] = op(static_cast<T>(float_of<Code>(of.left)), of.right);
  };
  spar::detail::for_rows(n, read, write);
}

} // namespace detail

/// Starts a kernel that encodes n values with `bfloat16_code` or `half_code`. Unless `refused` is null, sets `*refused`
/// to 1 if a finite value becomes infinite, and otherwise leaves it as it is. All pointers point to memory that the
/// device can access. The bits are those of the host.
template <class Code, class T>
void start_encode_short(const T* x, std::uint64_t n, std::uint16_t* out, cudaStream_t stream,
                        std::uint32_t* refused = nullptr) {
  spar::detail::launch_rows(detail::encode_short<Code, T>, n, stream, x, n, out, refused);
}
/// Starts a kernel that decodes n values.
template <class Code, class T>
void start_decode_short(const std::uint16_t* in, std::uint64_t n, T* out, cudaStream_t stream) {
  spar::detail::launch_rows(detail::decode_short<Code, T>, n, stream, in, n, out);
}
/// Starts a kernel that decodes n values, and replaces inout[i] by op(decoded[i], inout[i]).
template <class Code, class T, class Op>
void start_reduce_short(const std::uint16_t* left, std::uint64_t n, T* inout, Op op, cudaStream_t stream) {
  spar::detail::launch_rows(detail::reduce_short<Code, T, Op>, n, stream, left, n, inout, op);
}

} // namespace spar::inline v0_1::kernel
