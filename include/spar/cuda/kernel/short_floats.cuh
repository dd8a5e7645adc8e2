// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes values in device memory in two bytes each, and decodes them. The device's version of
// storage/kernel/short_floats.hpp.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/rows.cuh>
#include <spar/storage/kernel/short_floats.hpp>

#include <cstddef>
#include <cstdint>

namespace spar::kernel {

namespace detail {

template <class Code, class T>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    encode_short(const T* x, std::uint64_t n, std::uint16_t* out) {
  spar::detail::for_rows(n, [&](std::uint64_t at) { out[at] = Code::encode(static_cast<float>(x[at])); });
}
template <class Code, class T>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    decode_short(const std::uint16_t* in, std::uint64_t n, T* out) {
  spar::detail::for_rows(n, [&](std::uint64_t at) { out[at] = static_cast<T>(Code::decode(in[at])); });
}

} // namespace detail

/// Starts a kernel that encodes n values with `bfloat16_code` or `half_code`. All pointers point to device memory. The
/// bits are those of the host.
template <class Code, class T>
void start_encode_short(const T* x, std::uint64_t n, std::uint16_t* out, cudaStream_t stream) {
  spar::detail::launch_rows(detail::encode_short<Code, T>, n, stream, x, n, out);
}
/// Starts a kernel that decodes n values.
template <class Code, class T>
void start_decode_short(const std::uint16_t* in, std::uint64_t n, T* out, cudaStream_t stream) {
  spar::detail::launch_rows(detail::decode_short<Code, T>, n, stream, in, n, out);
}

} // namespace spar::kernel
