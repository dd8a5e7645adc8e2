// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decodes arbitrary bytes as packed integers. What is accepted must survive another encoding, in at most as many bits.
#include "fuzz/fuzz.hpp"

#include <spar/storage/packed.hpp>

#include <cstdint>

namespace {

template <class T>
void decode_any(fuzz::input& in) {
  const spar::storage::packed codec{.bits = in.take<std::uint8_t>() % 65U};
  const std::size_t count = in.take<std::uint16_t>() % 700;
  const fuzz::exact_bytes bytes = in.bytes(in.left());
  std::vector<T> values(count), twice(count);
  try {
    codec.decode(std::span<const std::byte>(bytes), std::span<T>(values));
  } catch (const spar::corrupt_message&) {
    fuzz::refused = true;
    return;
  }
  twice = values;
  codec.decode_and_add(std::span<const std::byte>(bytes), std::span<T>(twice));
  const spar::storage::packed any;
  fuzz::exact_bytes room(any.encoded_bytes<T>(count));
  const std::size_t size = any.encode(std::span<const T>(values), std::span(room), {});
  fuzz::demand(size <= bytes.size(), "values need more bytes when they are encoded again");
  std::vector<T> same(count);
  any.decode(std::span<const std::byte>(room).first(size), std::span<T>(same));
  fuzz::demand(same == values, "a value changes when it is encoded and decoded again");
  for (std::size_t e = 0; e < count; ++e)
    fuzz::demand(twice[e] == static_cast<T>(2 * static_cast<std::uint64_t>(values[e])), "a sum is wrong");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  if (in.take<std::uint8_t>() % 2 == 0)
    decode_any<std::int32_t>(in);
  else
    decode_any<std::int64_t>(in);
  return 0;
}
