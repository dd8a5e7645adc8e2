// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decoding of streams: the decoder returns what was encoded, and rejects each kind of malformed message with an error
// that names the defect.
#include <spar/storage/gathered.hpp>
#include <spar/storage/wire.hpp>
#include <spar/workspace/host_work.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

using index = std::uint32_t;
constexpr std::uint64_t n = 100;

/// A message as the receiver gets it.
struct message {
  spar::wire_format format = spar::wire_format::sparse;
  std::uint64_t count = 0;
  std::vector<std::uint64_t> ends = {}; // the ends of the parts, if the message has parts
  std::vector<index> indices = {};
  std::vector<float> values = {};

  void arrive(spar::message_buffer& in) const {
    const auto bytes_of = [](const auto& v) { return std::as_bytes(std::span(v)); };
    spar::payload_views pieces{};
    if (format == spar::wire_format::dense)
      pieces = {bytes_of(values)};
    else if (format == spar::wire_format::parts)
      pieces = {bytes_of(ends), bytes_of(indices), bytes_of(values)};
    else
      pieces = {bytes_of(indices), bytes_of(values)};
    in.arrived() = spar::header();
    in.arrived().dimension = n;
    in.arrived().count = count;
    in.arrived().format = format;
    for (std::size_t i = 0; i < pieces.size(); ++i) in.arrived().lengths[i] = pieces[i].size();
    in.copy_from(pieces);
  }
};

/// Returns the text of `corrupt_message`, or "" if the message is accepted.
template <class Take>
std::string refusal(const message& m, Take take) {
  spar::pool memory;
  spar::message_buffer in(memory);
  m.arrive(in);
  try {
    take(in, memory);
  } catch (const spar::corrupt_message& e) {
    return e.what();
  }
  return "";
}

void expect_refused(const message& m, const char* text) {
  const auto decode = [](const spar::message_buffer& in, spar::pool&) {
    (void)spar::decode<float, index>(in, {10, 20});
  };
  EXPECT_NE(refusal(m, decode).find(text), std::string::npos)
      << text << " is missing from the error: " << refusal(m, decode);
}

TEST(stream_on_the_wire, is_decoded) {
  spar::pool memory;
  spar::message_buffer in(memory);
  message{.count = 3, .indices = {10, 13, 19}, .values = {1, 2, 3}}.arrive(in);
  const auto sparse = spar::decode<float, index>(in, {10, 20});
  EXPECT_FALSE(sparse.is_dense());
  EXPECT_EQ(sparse.dimension(), n);
  EXPECT_EQ(std::vector(sparse.indices().begin(), sparse.indices().end()), (std::vector<index>{10, 13, 19}));
  EXPECT_EQ(std::vector(sparse.values().begin(), sparse.values().end()), (std::vector<float>{1, 2, 3}));

  spar::message_buffer values(memory);
  message{.format = spar::wire_format::dense, .count = 10, .values = std::vector<float>(10, 4)}.arrive(values);
  const auto dense = spar::decode<float, index>(values, {10, 20});
  EXPECT_TRUE(dense.is_dense());
  EXPECT_EQ(dense.first(), 10U);
  EXPECT_EQ(dense.count(), 10U);
}

TEST(stream_on_the_wire, is_refused_where_it_is_damaged) {
  expect_refused({.count = 2, .indices = {10, 20}, .values = {1, 2}},
                 "index 20 at entry 1; expected ascending indices below 20");
  expect_refused({.count = 2, .indices = {13, 12}, .values = {1, 2}}, "index 12 at entry 1; expected ascending");
  expect_refused({.count = 2, .indices = {13, 13}, .values = {1, 2}}, "index 13 at entry 1; expected ascending");
  expect_refused({.count = 2, .indices = {9, 12}, .values = {1, 2}},
                 "index 9 at entry 0; expected an index of at least 10");
  expect_refused({.count = 3, .indices = {11, 12}, .values = {1, 2}}, "; expected 3 of each");
  expect_refused({.count = 2, .indices = {11, 12}, .values = {1}}, "2 indices and 1 values");
  expect_refused({.format = spar::wire_format::dense, .count = 9, .values = std::vector<float>(9)},
                 "; expected 10 values");
  expect_refused({.format = spar::wire_format::dense, .count = 10, .values = std::vector<float>(9)},
                 "; expected 10 values");
  expect_refused({.format = spar::wire_format::block_coded, .count = 1, .indices = {11}, .values = {1}},
                 "expected format 1 (sparse stream) or 2 (dense stream)");
}

TEST(streams_on_the_wire, are_joined_or_refused) {
  const std::array<index, 1> own_index{5};
  const std::array<float, 1> own_value{7};
  const auto join = [&](const spar::message_buffer& in, spar::pool& memory) {
    const auto mine = spar::sparse_view(n, own_index, own_value);
    spar::scheduler scheduler(memory);
    const spar::host_work work(scheduler);
    const spar::gathered<float, index> have(mine, 3, work);
    const auto ends = in.piece<std::uint64_t>(0);
    have.check_ends(in, ends, 2);
    spar::check_parts(in.piece<index>(1), ends, [](std::size_t) { return spar::index_range{0, n}; });
    const auto all = have.joined(in, ends, work);
    EXPECT_EQ(all.size(), 3U);
    EXPECT_EQ(all.count(), 4U);
    EXPECT_EQ(all.part(1).indices()[0], 40U);
    EXPECT_EQ(all.part(2).count(), 2U);
    for (const std::size_t first : {1U, 2U}) {
      const auto turned = have.joined(in, ends, work, first);
      for (std::size_t part = 0; part < 3; ++part) {
        const auto got = turned.part(part), expected = all.part((part + first) % 3);
        EXPECT_TRUE(std::ranges::equal(got.indices(), expected.indices()));
        EXPECT_TRUE(std::ranges::equal(got.values(), expected.values()));
      }
    }
  };
  const message right{spar::wire_format::parts, 3, {1, 3}, {40, 2, 3}, {1, 2, 3}};
  EXPECT_EQ(refusal(right, join), "");

  const auto expect = [&](message m, const char* text) {
    EXPECT_NE(refusal(m, join).find(text), std::string::npos)
        << text << " is missing from the error: " << refusal(m, join);
  };
  message wrong = right;
  wrong.ends = {4, 3};
  expect(wrong, "stream 0 ends at entry 4; expected at least 0 and at most 3");
  wrong.ends = {1, 2};
  expect(wrong, "expected wire format 4, 2 streams");
  wrong.ends = {3};
  expect(wrong, "expected wire format 4, 2 streams");
  wrong = right;
  wrong.values.pop_back();
  expect(wrong, "expected wire format 4, 2 streams");
  wrong = right;
  wrong.format = spar::wire_format::sparse; // a format without ends of parts
  expect(wrong, "12 bytes, is not a multiple of the element size of 8 bytes");
  wrong = right;
  wrong.indices = {40, 3, 2};
  expect(wrong, "expected ascending indices below");
}

} // namespace
} // namespace spar_test
