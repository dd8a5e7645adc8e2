// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any message as a stream: what is accepted has indices that ascend, each once, inside the range that was due.
#include "fuzz/fuzz.hpp"

#include <spar/storage/wire.hpp>

namespace {

template <class T, class Index>
void decode_any(fuzz::input& in) {
  std::uint64_t n = in.take<std::uint64_t>();
  if constexpr (sizeof(Index) == 4) n %= (std::uint64_t{1} << 32) + 1; // no more has indices
  spar::index_range range;
  range.begin = std::min(in.take<std::uint64_t>(), n);
  range.end = range.begin + std::min(in.take<std::uint64_t>(), n - range.begin);

  spar::pool memory;
  spar::message_buffer message(memory);
  spar::header agreed;
  agreed.dimension = n;
  fuzz::arrive(message, in, agreed);
  spar::stream_view<T, Index> v;
  try {
    v = spar::decode<T, Index>(message, range);
  } catch (const spar::corrupt_message&) {
    fuzz::refused = true;
    return;
  }
  fuzz::demand(v.dimension() == n && v.count() == message.head().count, "the header says something else");
  fuzz::demand(!v.is_dense() || (v.first() == range.begin && v.count() == range.size()), "values of another range");
  std::uint64_t next = range.begin;
  unsigned sum = 0;
  v.for_each([&](std::uint64_t i, const T& value) {
    fuzz::demand(i >= next && i < range.end, "an index is out of order or out of the range");
    fuzz::demand(!v.is_dense() || i == next, "a dense stream has a gap");
    next = i + 1;
    std::array<unsigned char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &value, sizeof(T));
    sum += bytes[0];
  });
  if (sum == ~0U) std::abort(); // so that the values are read
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  switch (in.take<std::uint8_t>() % 4) {
  case 0:
    decode_any<float, std::uint32_t>(in);
    break;
  case 1:
    decode_any<float, std::uint64_t>(in);
    break;
  case 2:
    decode_any<double, std::uint32_t>(in);
    break;
  default:
    decode_any<double, std::uint64_t>(in);
  }
  return 0;
}
