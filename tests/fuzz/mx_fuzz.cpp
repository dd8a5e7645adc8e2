// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decodes arbitrary bytes as microscaling blocks. The codec must read and write nothing else, must not lose a NaN or an
// infinity, and must keep values that it has encoded and decoded once.
#include "fuzz/fuzz.hpp"

#include <spar/storage/mx.hpp>

#include <cmath>
#include <cstdint>

namespace {

template <class T>
bool same(T a, T b) {
  return a == b || (a != a && b != b);
}

template <class Element, class T>
void decode_any(fuzz::input& in) {
  const spar::storage::mx<Element> codec;
  const std::size_t count = in.take<std::uint16_t>() % 700;
  const fuzz::exact_bytes bytes = in.bytes(codec.template encoded_bytes<T>(count));
  std::vector<T> values(count), once(count), twice(count);
  codec.decode(std::span<const std::byte>(bytes), std::span<T>(values));
  fuzz::exact_bytes again(bytes.size());
  codec.encode(std::span<const T>(values), std::span(again), {});
  codec.decode(std::span<const std::byte>(again), std::span<T>(once));
  codec.encode(std::span<const T>(once), std::span(again), {});
  codec.decode(std::span<const std::byte>(again), std::span<T>(twice));
  for (std::size_t e = 0; e < count; ++e) {
    fuzz::demand(std::isfinite(values[e]) || !std::isfinite(once[e]), "encoding hides a NaN or an infinity");
    fuzz::demand(same(once[e], twice[e]), "a value changes when it is encoded and decoded again");
  }
}

template <class T>
void any_element(unsigned kind, fuzz::input& in) {
  switch (kind % 3) {
  case 0:
    return decode_any<spar::storage::e4m3, T>(in);
  case 1:
    return decode_any<spar::storage::e5m2, T>(in);
  default:
    return decode_any<spar::storage::e2m1, T>(in);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  const auto kind = in.take<std::uint8_t>();
  if (kind % 2 == 0)
    any_element<float>(kind / 2U, in);
  else
    any_element<double>(kind / 2U, in);
  return 0;
}
