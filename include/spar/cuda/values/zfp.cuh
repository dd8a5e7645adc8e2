// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The storage zfp on a device, with the bits of the host.
#pragma once

#include <spar/core/non_finite.hpp>
#include <spar/cuda/kernel/zfp.cuh>
#include <spar/cuda/values/codecs.cuh>
#include <spar/storage/zfp.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace spar::inline v0_1::detail {

template <>
struct device_codec<storage::zfp> {
  template <class T>
  static void encode(const storage::zfp& by, std::span<const T> x, std::byte* out, block_position,
                     cudaStream_t stream) {
    kernel::start_zfp_encode(x.data(), x.size(), bits(by), reinterpret_cast<std::uint32_t*>(out), stream);
  }
  template <class T>
  static void decode(const storage::zfp& by, const std::byte* in, std::span<T> out, cudaStream_t stream) {
    kernel::start_zfp_decode(reinterpret_cast<const std::uint32_t*>(in), out.size(), bits(by), out.data(), stream);
  }
  static std::uint64_t together(const storage::zfp&) noexcept { return 4; }
  template <class T>
  static constexpr T most = std::numeric_limits<T>::max() / 8;
  struct refuses {
    template <class T>
    __device__ bool operator()(T value) const {
      return !(is_at_most(value, most<T>) && is_at_most(-most<T>, value)); // also NaN
    }
  };
  static void refuse(const storage::zfp& by, std::size_t values) {
    if (by.non_finite == storage::unsupported::exact) return;
    raise<invalid_argument>(
        {"zfp cannot encode NaN, infinite values and magnitudes above an eighth of the largest finite number, but a "
         "piece of ",
         values,
         " values in device memory contains some; to send such pieces uncompressed, set non_finite = "
         "unsupported::exact"});
  }

 private:
  static unsigned bits(const storage::zfp& by) { return static_cast<unsigned>(zfp_block_bits(by.rate)); }
};

} // namespace spar::inline v0_1::detail
