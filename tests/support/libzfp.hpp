// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes and decodes by libzfp, the reference of spar's own coders.
#pragma once

#include <zfp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace spar_test {

/// A stream of libzfp over words, in blocks of four values and `limit` bits.
template <class T>
class libzfp {
 public:
  libzfp(std::vector<std::uint64_t>& words, unsigned limit)
      : bits_(stream_open(words.data(), 8 * words.size())), zfp_(zfp_stream_open(bits_)) {
    zfp_stream_set_rate(zfp_, limit / 4.0, is_double ? zfp_type_double : zfp_type_float, 1, 0);
  }
  libzfp(const libzfp&) = delete;
  ~libzfp() {
    zfp_stream_close(zfp_);
    stream_close(bits_);
  }

  void encode_block(const T* x, std::size_t count) {
    // Where libzfp's scale would be infinite, spar encodes zeros.
    constexpr T smallest = is_double ? static_cast<T>(0x1p-962) : static_cast<T>(0x1p-98);
    static constexpr std::array<T, 4> zeros{};
    T top = 0;
    for (std::size_t i = 0; i < count; ++i) top = std::max(top, std::abs(x[i]));
    if (top < smallest) x = zeros.data();
    if constexpr (is_double) {
      if (count == 4)
        zfp_encode_block_double_1(zfp_, x);
      else
        zfp_encode_partial_block_strided_double_1(zfp_, x, count, 1);
    } else {
      if (count == 4)
        zfp_encode_block_float_1(zfp_, x);
      else
        zfp_encode_partial_block_strided_float_1(zfp_, x, count, 1);
    }
  }
  void flush() { stream_flush(bits_); }
  void decode_block(T* x, std::size_t count) {
    if constexpr (is_double) {
      if (count == 4)
        zfp_decode_block_double_1(zfp_, x);
      else
        zfp_decode_partial_block_strided_double_1(zfp_, x, count, 1);
    } else {
      if (count == 4)
        zfp_decode_block_float_1(zfp_, x);
      else
        zfp_decode_partial_block_strided_float_1(zfp_, x, count, 1);
    }
  }

 private:
  static constexpr bool is_double = std::is_same_v<T, double>;
  bitstream* bits_;
  zfp_stream* zfp_;
};

/// Returns n values encoded by libzfp. The bits after the last block are zeros: libzfp leaves bits of values there,
/// which mean nothing.
template <class T>
std::vector<std::uint64_t> encoded_by_libzfp(const T* x, std::size_t n, unsigned limit) {
  const std::size_t bits = (n + 3) / 4 * limit;
  std::vector<std::uint64_t> words(bits / 64 + 2); // libzfp writes beyond the last block
  libzfp<T> stream(words, limit);
  for (std::size_t i = 0; i < n; i += 4) stream.encode_block(x + i, std::min<std::size_t>(4, n - i));
  stream.flush();
  words.resize((bits + 63) / 64);
  if (bits % 64 != 0) words.back() &= (std::uint64_t{1} << bits % 64) - 1;
  return words;
}
template <class T>
std::vector<T> decoded_by_libzfp(std::vector<std::uint64_t> words, std::size_t n, unsigned limit) {
  std::vector<T> x(n);
  words.resize(words.size() + 2);
  libzfp<T> stream(words, limit);
  for (std::size_t i = 0; i < n; i += 4) stream.decode_block(x.data() + i, std::min<std::size_t>(4, n - i));
  return x;
}

} // namespace spar_test
