// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decodes arbitrary bytes as QSGD buckets: each value must be that of its level's bits, and nothing else may be read or
// written.
#include "fuzz/fuzz.hpp"

#include <spar/storage/qsgd.hpp>

#include <limits>

namespace {

/// The definition: the level's two's complement times scale / s; level 0 is 0, the lowest level is NaN.
template <int Bits, class T>
T value_of(const std::byte* bucket, std::size_t entry) {
  T scale;
  std::memcpy(&scale, bucket, sizeof(T));
  const auto byte = std::to_integer<unsigned>(bucket[sizeof(T) + entry * Bits / 8]);
  const int code = static_cast<int>(byte >> (entry * Bits % 8) & ((1U << Bits) - 1));
  constexpr int sign = 1 << (Bits - 1);
  const int level = (code ^ sign) - sign;
  if (level == 0) return 0;
  if (level == -sign) return std::numeric_limits<T>::quiet_NaN();
  return scale * (static_cast<T>(level) / static_cast<T>(sign - 1));
}

template <class T>
bool same(T a, T b) {
  return a == b || (a != a && b != b);
}

template <int Bits, class T>
void decode_any(fuzz::input& in) {
  spar::storage::qsgd<Bits> storage;
  storage.bucket = 1 + in.take<std::uint16_t>() % 300;
  const std::size_t count = in.take<std::uint16_t>() % 600;
  const fuzz::exact_bytes bytes = in.bytes(storage.template encoded_bytes<T>(count));
  std::vector<T> values(count);
  storage.decode(std::span<const std::byte>(bytes), std::span<T>(values));

  const std::size_t whole = storage.template encoded_bytes<T>(storage.bucket);
  for (std::size_t e = 0; e < count; ++e) {
    const std::byte* bucket = bytes.data() + e / storage.bucket * whole;
    fuzz::demand(same(values[e], value_of<Bits, T>(bucket, e % storage.bucket)),
                 "a value differs from the definition of its bits");
  }

  fuzz::exact_bytes again(bytes.size()); // encoding takes any values, too
  std::vector<T> rounded(count);
  storage.encode(std::span<const T>(values), std::span(again), {});
  storage.decode(std::span<const std::byte>(again), std::span<T>(rounded));
  for (std::size_t e = 0; e < count; ++e)
    fuzz::demand((values[e] != values[e]) == (rounded[e] != rounded[e]), "encoding removes or creates a NaN");
}

template <class T>
void any_bits(unsigned kind, fuzz::input& in) {
  switch (kind % 3) {
  case 0:
    return decode_any<2, T>(in);
  case 1:
    return decode_any<4, T>(in);
  default:
    return decode_any<8, T>(in);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  const auto kind = in.take<std::uint8_t>();
  if (kind % 2 == 0)
    any_bits<float>(kind / 2U, in);
  else
    any_bits<double>(kind / 2U, in);
  return 0;
}
