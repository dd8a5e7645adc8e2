// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decodes arbitrary bytes as coded entries. The accepted indices must ascend in their range, nothing beyond the bytes
// may be read, and the entries must survive another encoding.
#include "fuzz/fuzz.hpp"

#include <spar/storage/coded.hpp>

namespace {

template <unsigned Mantissa, class T, class Index>
void decode_any(fuzz::input& in) {
  using codec = spar::storage::coded<Mantissa>;
  const std::size_t count = in.take<std::uint16_t>() % 1200;
  spar::index_range range;
  range.begin = in.take<Index>();
  range.end = range.begin + in.take<std::uint32_t>();
  if (sizeof(Index) == 4) range.end = std::min(range.end, std::uint64_t{1} << 32);
  if (range.end < range.begin || range.size() < count) return; // callers check the count
  std::vector<Index> indices(count), again(count);
  std::vector<T> values(count), same(count);
  try {
    codec::template decode<T, Index>(in.bytes(in.left()), range, {indices, values});
  } catch (const spar::corrupt_message&) {
    fuzz::refused = true;
    return;
  }
  std::uint64_t next = range.begin;
  for (const Index i : indices) {
    fuzz::demand(i >= next && i < range.end, "an index is out of order or out of the range");
    next = std::uint64_t{i} + 1;
  }
  for (const bool fast : {false, true}) {
    fuzz::exact_bytes bytes(codec::template bound<T, Index>(range, count));
    const spar::coo_span<T, Index> entries{indices, values};
    const std::size_t size = codec{.fast = fast}.encode(entries, range, std::span(bytes));
    fuzz::demand(size <= bytes.size(), "the encoding is larger than its bound");
    codec::template decode<T, Index>(
        fuzz::exact_bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)), range, {again, same});
    fuzz::demand(again == indices, "an index changes when it is encoded and decoded again");
    fuzz::demand(count == 0 || std::memcmp(same.data(), values.data(), count * sizeof(T)) == 0,
                 "a value changes when it is encoded and decoded again");
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  switch (in.take<std::uint8_t>() % 5) {
  case 0:
    decode_any<52, float, std::uint32_t>(in);
    break;
  case 1:
    decode_any<52, double, std::uint64_t>(in);
    break;
  case 2:
    decode_any<7, float, std::uint64_t>(in);
    break;
  case 3:
    decode_any<7, double, std::uint32_t>(in);
    break;
  default:
    decode_any<52, std::int32_t, std::uint32_t>(in);
  }
  return 0;
}
