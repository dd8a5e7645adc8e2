// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The storage `named_codec` on a device: each call runs the kernels of the codec that was chosen by its name.
#pragma once

#include <spar/core/error.hpp>
#include <spar/cuda/values/codecs.cuh>
#include <spar/cuda/values/zfp.cuh>
#include <spar/storage/named_codec.hpp>

#include <cstddef>
#include <span>
#include <type_traits>

namespace spar::inline v0_1::detail {

/// Whether there are kernels for a codec that `named_codec` may have chosen.
template <class Codec>
inline constexpr bool has_kernels = true;
template <class Element>
inline constexpr bool has_kernels<storage::mx<Element>> = false;

template <>
struct device_codec<storage::named_codec> {
  template <class T>
  static void encode(const storage::named_codec& by, std::span<const T> x, std::byte* out, block_position at,
                     cudaStream_t stream) {
    visit<T>(by, [&]<class Codec>(const Codec& chosen) { device_codec<Codec>::encode(chosen, x, out, at, stream); });
  }
  template <class T>
  static void decode(const storage::named_codec& by, const std::byte* in, std::span<T> out, cudaStream_t stream) {
    visit<T>(by, [&]<class Codec>(const Codec& chosen) { device_codec<Codec>::decode(chosen, in, out, stream); });
  }
  /// Calls `f` with the chosen codec. Throws `invalid_argument` if there are no kernels for it.
  template <class T, class F>
  static auto visit(const storage::named_codec& by, F f) {
    using result = std::invoke_result_t<F&, const storage::dense&>;
    return by.visit<T>([&]<class Codec>(const Codec& chosen) -> result {
      if constexpr (has_kernels<Codec>)
        return f(chosen);
      else
        raise<invalid_argument>({"there are no kernels for the codec mx: use values in host memory, or spar::staged"});
    });
  }
};

} // namespace spar::inline v0_1::detail
