// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decodes arbitrary bytes as a piece of a field. What is accepted must survive another encoding without loss.
#include "fuzz/fuzz.hpp"

#include <spar/storage/zfp_field.hpp>

#include <cstdint>
#include <cstring>

namespace {

template <class T>
void decode_any(fuzz::input& in) {
  using field = spar::storage::zfp_field;
  field codec{};
  const unsigned dimensions = in.take<std::uint8_t>() % 4U + 1;
  for (unsigned d = 0; d < dimensions; ++d) codec.shape[d] = in.take<std::uint8_t>() % 9U + 1;
  switch (in.take<std::uint8_t>() % 4U) {
  case 1:
    codec.rate = static_cast<double>(in.take<std::uint8_t>() % (8 * sizeof(T)) + 1);
    break;
  case 2:
    codec.precision = static_cast<unsigned>(in.take<std::uint8_t>() % (8 * sizeof(T)) + 1);
    break;
  case 3:
    codec.accuracy = 1.0 / (in.take<std::uint16_t>() + 1);
    break;
  default:
    break;
  }
  std::size_t count = 1;
  for (unsigned d = 0; d < dimensions; ++d) count *= codec.shape[d];
  const fuzz::exact_bytes bytes = in.bytes(in.left());
  std::vector<T> values(count);
  try {
    codec.decode(std::span<const std::byte>(bytes), std::span<T>(values));
  } catch (const spar::corrupt_message&) {
    fuzz::refused = true;
    return;
  }
  const field lossless{.shape = codec.shape};
  fuzz::exact_bytes room(lossless.encoded_bytes<T>(count));
  const std::size_t size = lossless.encode(std::span<const T>(values), std::span(room), {});
  std::vector<T> same(count);
  lossless.decode(std::span<const std::byte>(room).first(size), std::span<T>(same));
  fuzz::demand(std::memcmp(same.data(), values.data(), count * sizeof(T)) == 0,
               "a value changes when it is encoded and decoded again");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  if (in.take<std::uint8_t>() % 2 == 0)
    decode_any<float>(in);
  else
    decode_any<double>(in);
  return 0;
}
