// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decodes arbitrary bytes as blocks of every codec but QSGD. The codec must read and write nothing else, and the values
// of 16-bit codes must survive another encoding.
#include "fuzz/fuzz.hpp"

#include <spar/storage/named_codec.hpp>

namespace {

template <class Codec, class T>
std::vector<T> decode_any(const Codec& codec, std::size_t count, fuzz::input& in) {
  const fuzz::exact_bytes bytes = in.bytes(codec.template encoded_bytes<T>(count));
  std::vector<T> values(count);
  codec.decode(std::span<const std::byte>(bytes), std::span<T>(values));
  if (codec.can_encode(std::span<const T>(values))) {
    fuzz::exact_bytes again(bytes.size());
    codec.encode(std::span<const T>(values), std::span(again), {});
    if constexpr (!std::is_same_v<Codec, spar::storage::named_codec>) {
      std::vector<T> same(count);
      codec.decode(std::span<const std::byte>(again), std::span<T>(same));
      for (std::size_t e = 0; e < count; ++e) {
        fuzz::demand(values[e] == same[e] || (values[e] != values[e] && same[e] != same[e]),
                     "a value changes when it is encoded and decoded again");
      }
    }
  }
  return values;
}

template <class T>
void any(unsigned kind, fuzz::input& in) {
  const std::size_t count = in.take<std::uint16_t>() % 700;
  switch (kind % 4) {
  case 0:
    decode_any<spar::storage::as_bfloat16, T>({}, count, in);
    return;
  case 1:
    decode_any<spar::storage::as_half, T>({}, count, in);
    return;
  case 2:
    decode_any<spar::storage::named_codec, T>(spar::storage::named_codec("none"), count, in);
    return;
  default:
    const std::array rates{"zfp:4", "zfp:8", "zfp:11.25", "zfp:16", "zfp:32"};
    decode_any<spar::storage::named_codec, T>(spar::storage::named_codec(rates[kind / 4 % rates.size()]), count, in);
    return;
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  const auto kind = in.take<std::uint8_t>();
  if (kind % 2 == 0)
    any<float>(kind / 2U, in);
  else
    any<double>(kind / 2U, in);
  return 0;
}
