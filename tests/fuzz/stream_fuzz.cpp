// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decodes arbitrary messages as streams: the accepted streams must have ascending, distinct indices inside the expected
// range.
#include "fuzz/hostile.hpp"
#include "support/varint.hpp"

#include <spar/storage/wire.hpp>

namespace {

/// Checks a stream that was accepted for `range` of n indices.
template <class T, class Index>
void expect_valid(const spar::stream_view<T, Index>& v, std::uint64_t n, spar::index_range range) {
  fuzz::demand(v.dimension() == n && v.count() <= range.size(), "the stream has a wrong size");
  fuzz::demand(!v.is_dense() || (v.first() == range.begin && v.count() == range.size()),
               "the values are of another range");
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
  if (sum == ~0U) std::abort(); // forces a read of all values
}

template <class T, class Index>
void decode_any(fuzz::input& in) {
  std::uint64_t n = in.take<std::uint64_t>();
  if constexpr (sizeof(Index) == 4) n %= (std::uint64_t{1} << 32) + 1; // 32-bit indices reach no further
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
  fuzz::demand(v.count() == message.head().count, "the count differs from the header's");
  expect_valid(v, n, range);
}

/// Receives one stream from another rank, with a storage that encodes streams and blocks.
template <class T, class Index>
struct receive_one : spar::algorithm_defaults {
  static constexpr std::string_view name = "receive_one";
  using storage = spar::storage::then<spar_test::varint, spar::storage::as_bfloat16>;

  template <class Net>
  spar::task<spar::sparse_stream<T, Index>> operator()(spar::channel<Net> net, spar::index_range range) const& {
    spar::incoming<storage, T, Index> in(net.memory());
    co_await net.receive(1, in);
    const storage by;
    const spar::stream_view<T, Index> received = co_await in.view(net, by, range);
    co_return spar::sparse_stream<T, Index>::copy(net.memory(), received);
  }
};

template <class T, class Index>
void decode_any_code(fuzz::input& in) {
  const std::uint64_t n = in.take<std::uint32_t>(); // small enough that a stream of n entries fits into memory
  spar::index_range range;
  range.begin = std::min<std::uint64_t>(in.take<std::uint32_t>(), n);
  range.end = range.begin + std::min<std::uint64_t>(in.take<std::uint16_t>(), n - range.begin);
  fuzz::hostile net(0, 2, in);
  const receive_one<T, Index> algorithm;
  try {
    const auto s = net.run(spar::signature_of<T, Index, spar::sum>(n, algorithm), algorithm, range);
    expect_valid(s.view(), n, range);
  } catch (const spar::corrupt_message&) {
    fuzz::refused = true;
  } catch (const spar::mismatch&) { // a message may have other elements than the call
    fuzz::refused = true;
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input in(data, size);
  switch (in.take<std::uint8_t>() % 6) {
  case 0:
    decode_any<float, std::uint32_t>(in);
    break;
  case 1:
    decode_any<float, std::uint64_t>(in);
    break;
  case 2:
    decode_any<double, std::uint32_t>(in);
    break;
  case 3:
    decode_any<double, std::uint64_t>(in);
    break;
  case 4:
    decode_any_code<float, std::uint32_t>(in);
    break;
  default:
    decode_any_code<double, std::uint64_t>(in);
  }
  return 0;
}
