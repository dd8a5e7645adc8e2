// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Envelopes: what is written is read again, in the short form and in the full one; damaged or truncated envelopes are
// rejected.
#include <spar/runtime/messages/envelope.hpp>
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace {

/// A message as a channel stamps it.
template <class T>
spar::message_pieces dense_message(std::span<const T> values, std::uint64_t n) {
  const spar::payload what = spar::view_message(values);
  spar::message_pieces out{{}, what.pieces};
  out.head.format = what.format;
  out.head.count = what.count;
  out.head.sequence = 0xABCD;
  out.head.dimension = n;
  out.head.digest = 0x89AB'CDEF'0123'4567;
  out.head.element = spar::code_of<T>;
  out.head.index = spar::element_code::uint64;
  for (std::size_t i = 0; i < spar::max_pieces; ++i) out.head.lengths[i] = out.pieces[i].size();
  return out;
}

struct written {
  alignas(16) std::array<std::byte, spar::envelope_bytes> memory{};
  std::size_t size;

  explicit written(const spar::message_pieces& out) : size(spar::write_envelope(out, memory.data())) {}
  [[nodiscard]] std::span<const std::byte> bytes() const { return std::span(memory).first(size); }
};

bool same(const spar::header& a, const spar::header& b) {
  return a.magic == b.magic && a.version == b.version && a.format == b.format && a.sequence == b.sequence &&
         a.digest == b.digest && a.count == b.count && a.lengths == b.lengths && a.element == b.element &&
         a.index == b.index;
}

/// Checks that reading returns what was written.
void expect_round_trip(const spar::message_pieces& out) {
  const written w(out);
  spar::header h;
  const spar::payload_views pieces = spar::read_envelope(w.bytes(), h);
  EXPECT_TRUE(same(h, out.head));
  EXPECT_EQ(h.dimension, spar::short_header::suffices(out.head) ? spar::header::unknown_dimension : out.head.dimension);
  for (std::size_t i = 0; i < spar::max_pieces; ++i) {
    const auto expected = spar::is_enclosed(out.head) ? out.pieces[i] : std::span<const std::byte>{};
    EXPECT_TRUE(std::equal(pieces[i].begin(), pieces[i].end(), expected.begin(), expected.end())) << "piece " << i;
    EXPECT_EQ(pieces[i].empty() ? 0 : reinterpret_cast<std::uintptr_t>(pieces[i].data()) % 16, 0U) << "piece " << i;
  }
}

template <class T>
class dense_envelope : public testing::Test {};
using values = testing::Types<float, double, std::int32_t, std::int64_t, std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(dense_envelope, values);

TYPED_TEST(dense_envelope, is_read_as_it_was_written) {
  constexpr std::uint64_t many = std::uint64_t{1} << 32;
  for (const std::size_t count : {0U, 1U, 2U, 3U, 100U, 511U, 512U, 513U, 1024U, 1025U, 5000U}) {
    std::vector<TypeParam> x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<TypeParam>(3 * i + 1);
    for (const std::uint64_t n : {std::uint64_t{count}, many}) {
      SCOPED_TRACE(testing::Message() << count << " of " << n);
      expect_round_trip(dense_message<TypeParam>(x, n));
    }
  }
}

TEST(envelope, of_a_few_dense_values_has_sixteen_bytes_more) {
  const std::array<float, 2> x{1, 2};
  EXPECT_EQ(written(dense_message<float>(x, 2)).size, 16U + 8U);
  EXPECT_EQ(written(dense_message<float>(x, std::uint64_t{1} << 32)).size, 16U + 8U)
      << "the digest includes the dimension";
  const std::vector<float> most(1024);
  EXPECT_EQ(written(dense_message<float>(most, 1024)).size, 16U + 4096U);
  const std::vector<float> many(1025);
  EXPECT_EQ(written(dense_message<float>(many, 1025)).size, 64U) << "the values are sent separately";
}

spar::message_pieces sparse_message(std::span<const std::uint32_t> indices, std::span<const double> x) {
  auto out = dense_message<double>(x, 1000);
  out.head.format = spar::wire_format::sparse;
  out.head.index = spar::element_code::uint32;
  out.pieces = {std::as_bytes(indices), std::as_bytes(x), {}};
  out.head.lengths = {indices.size_bytes(), x.size_bytes(), 0};
  return out;
}

TEST(envelope, of_a_stream_is_read_as_it_was_written) {
  for (const std::size_t count : {0U, 1U, 3U, 300U, 341U, 342U, 4000U}) {
    SCOPED_TRACE(count);
    std::vector<std::uint32_t> indices(count);
    std::vector<double> x(count);
    for (std::size_t i = 0; i < count; ++i) {
      indices[i] = static_cast<std::uint32_t>(2 * i);
      x[i] = static_cast<double>(i) + 0.5;
    }
    expect_round_trip(sparse_message(indices, x));
  }
}

TEST(envelope, of_three_pieces_is_read_as_it_was_written) {
  const std::array<std::uint64_t, 3> counts{1, 0, 2};
  const std::array<std::uint32_t, 3> indices{7, 8, 9};
  const std::array<double, 3> x{1, 2, 3};
  auto out = sparse_message(indices, x);
  out.head.format = spar::wire_format::parts;
  out.pieces = {std::as_bytes(std::span(counts)), std::as_bytes(std::span(indices)), std::as_bytes(std::span(x))};
  out.head.lengths = {24, 12, 24};
  expect_round_trip(out);
}

/// Two pieces of the same dense vector, as in a ring's wrapped range, and a count that differs from the number of
/// values.
TEST(envelope, that_a_short_header_does_not_describe_has_a_full_one) {
  const std::array<float, 4> x{1, 2, 3, 4};
  auto two = dense_message<float>(std::span(x).first(1), 4);
  two.pieces[1] = std::as_bytes(std::span(x).subspan(1));
  two.head.lengths[1] = two.pieces[1].size();
  two.head.count = 4;
  expect_round_trip(two);
  auto other = dense_message<float>(x, 4);
  other.head.count = 3;
  expect_round_trip(other);
  auto own_type = dense_message<float>(x, 4);
  own_type.head.element = static_cast<spar::element_code>(77);
  expect_round_trip(own_type);
  auto bytes = dense_message<float>(x, 4);
  bytes.head.format = spar::wire_format::block_coded;
  expect_round_trip(bytes);
}

/// A damaged envelope is never accepted, neither with a flipped bit in the header nor with missing or additional bytes.
void expect_damage_is_noticed(const spar::message_pieces& out, std::size_t header_size) {
  const written good(out);
  spar::header h;
  for (std::size_t bit = 0; bit < 8 * header_size; ++bit) {
    written bad = good;
    bad.memory[bit / 8] ^= std::byte{static_cast<unsigned char>(1U << (bit % 8))};
    EXPECT_THROW((void)spar::read_envelope(bad.bytes(), h), spar::corrupt_message) << "bit " << bit;
  }
  for (std::size_t size = 0; size < header_size; ++size) {
    EXPECT_THROW((void)spar::read_envelope(good.bytes().first(size), h), spar::corrupt_message) << size;
  }
}

TEST(envelope, with_a_damaged_short_header_is_refused) {
  const std::array<float, 2> x{1, 2};
  expect_damage_is_noticed(dense_message<float>(x, 2), 16);
}

TEST(envelope, with_a_damaged_full_header_is_refused) {
  const std::array<std::uint32_t, 3> indices{7, 8, 9};
  const std::array<double, 3> x{1, 2, 3};
  expect_damage_is_noticed(sparse_message(indices, x), sizeof(spar::header));
  const std::vector<float> many(5000);
  expect_damage_is_noticed(dense_message<float>(many, 5000), sizeof(spar::header));
}

TEST(envelope, that_is_cut_off_is_refused) {
  const std::array<std::uint32_t, 3> indices{7, 8, 9};
  const std::array<double, 3> x{1, 2, 3};
  const written w(sparse_message(indices, x));
  spar::header h;
  for (std::size_t size = 0; size < w.size; ++size) {
    EXPECT_THROW((void)spar::read_envelope(w.bytes().first(size), h), spar::corrupt_message) << size;
  }
  EXPECT_THROW((void)spar::read_envelope(std::span(w.memory).first(w.size + 1), h), spar::corrupt_message);
}

TEST(envelope, with_more_behind_a_short_header_than_is_ever_sent_so_is_refused) {
  const std::vector<float> most(1024);
  const written w(dense_message<float>(most, 1024));
  spar::header h;
  EXPECT_THROW((void)spar::read_envelope(std::span(w.memory).first(w.size + 4), h), spar::corrupt_message);
}

/// A short message does not contain its length. If whole values are missing, `count` shows it, which the receiver
/// compares with the expected number; if part of a value is missing, the reader rejects the message.
TEST(envelope, of_dense_values_that_is_cut_off_never_passes_for_the_whole) {
  const std::array<double, 3> x{1, 2, 3};
  const written w(dense_message<double>(x, 3));
  for (std::size_t size = 0; size < w.size; ++size) {
    spar::header h;
    try {
      (void)spar::read_envelope(w.bytes().first(size), h);
      EXPECT_LT(h.count, 3U) << size;
      EXPECT_EQ(h.payload_bytes(), size - 16) << size;
    } catch (const spar::corrupt_message&) {
    }
  }
}

/// What earlier versions sent: one value of a sum by recursive doubling.
TEST(envelope, of_another_version_of_the_wire_format_is_named) {
  const auto refusal = [](std::span<const std::byte> bytes) -> std::string {
    spar::header h;
    try {
      (void)spar::read_envelope(bytes, h);
    } catch (const spar::corrupt_message& e) {
      return e.what();
    }
    return "nothing";
  };
  for (const int version : {1, 2}) {
    alignas(16) const std::array<std::byte, 24> brief{version == 1 ? std::byte{0x5D} : std::byte{0xB2}, std::byte{1}};
    auto full = sparse_message({}, {});
    full.head.version = static_cast<std::uint8_t>(version);
    const written whole(full);
    const std::string expected =
        "a message has version " + std::to_string(version) + " of the wire format, but this rank has version 3";
    EXPECT_EQ(refusal(brief), expected);
    EXPECT_EQ(refusal(whole.bytes()), expected);
  }
}

/// A signature of values of T, or of a stream, with this algorithm and operation.
template <class T, class Index, class Algorithm, class Op>
std::uint64_t digest(std::uint64_t n, std::uint64_t option = 0) {
  return spar::signature_of<T, Index, Op>(n, Algorithm{}, option).digest;
}

TEST(signature, is_compared_by_every_bit_of_its_digest) {
  const auto agreed = spar::signature_of<float, std::uint32_t, spar::sum>(100, spar::ring{});
  const spar::call_identity call{.sequence = 0xABCD'EF01'2345, .history = 0x1234'5678'9ABC'DEF0};
  EXPECT_TRUE(spar::is_of(spar::header_of(agreed, call), agreed, call));
  for (int bit = 0; bit < 64; ++bit) {
    auto h = spar::header_of(agreed, call);
    h.digest ^= std::uint64_t{1} << bit;
    EXPECT_FALSE(spar::is_of(h, agreed, call)) << bit;
    auto other = call;
    other.history ^= std::uint64_t{1} << bit;
    EXPECT_FALSE(spar::is_of(spar::header_of(agreed, other), agreed, call)) << bit;
  }
}

TEST(signature, has_another_digest_where_anything_differs) {
  using spar::no_indices, spar::ring, spar::rabenseifner, spar::sum, spar::average;
  using index = std::uint32_t;
  std::set<std::uint64_t> all;
  std::size_t made = 0;
  for (std::uint64_t n = 0; n < 200; ++n) {
    for (std::uint64_t option = 0; option < 20; ++option, made += 6) {
      all.insert(digest<float, no_indices, ring, sum>(n, option));
      all.insert(digest<float, no_indices, ring, average>(n, option));
      all.insert(digest<float, no_indices, rabenseifner, sum>(n, option));
      all.insert(digest<float, index, ring, sum>(n, option));
      all.insert(digest<float, index, ring, average>(n, option));
      all.insert(digest<float, index, rabenseifner, sum>(n, option));
    }
  }
  EXPECT_EQ(all.size(), made);
}

} // namespace
